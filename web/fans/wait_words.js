// What a waiting fan reads about the wait; the operators' console shows the same words.
import { waitBetween } from "./format.js";
import { fill } from "./words.js";

const STANDSTILL = {
  paused: texts.line_paused,
  last_chance: texts.line_last_chance,
};

const NOBODY_CALLED = {
  "stock-low": texts.nobody_stock_low,
  "room-full": texts.nobody_room_full,
  slower: texts.nobody_slower,
};

const CHANGED = {
  "rate-lowered": texts.changed_rate_lowered,
  throttled: texts.changed_throttled,
  recovering: texts.changed_recovering,
  "other-lanes": texts.changed_other_lanes,
  "room-full": texts.changed_room_full,
  "fans-returned": texts.changed_fans_returned,
  slower: texts.changed_slower,
  "start-moved": texts.changed_start_moved,
};
const CHANGE_TOLD_MS = 10 * 60_000;

export const NOT_STARTED = texts.not_started;

/** How long it takes, or why nobody can say: `range` is `[low, high]` in seconds, `changed` as the status has it. */
export function estimateWords({ state, position, range, changed }) {
  if (STANDSTILL[state]) return STANDSTILL[state];
  if (position === 0) return texts.called_soon;
  if (range) return fill(texts.turn_in, { wait: waitBetween(...range) });
  return NOBODY_CALLED[changed?.reason] ?? texts.wait_unknown;
}

/** Why the wait grew, for some minutes. */
export function changeWords(changed) {
  if (!changed || Date.now() - Date.parse(changed.at) > CHANGE_TOLD_MS) return "";
  return CHANGED[changed.reason] ?? "";
}
