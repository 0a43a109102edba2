// What a waiting fan reads about the wait; the operators' console shows the same words.
import { waitBetween } from "./format.js";

const STANDSTILL = {
  paused: "The line is paused. You keep your place.",
  last_chance: "Every ticket is in somebody's basket. The line moves when some come back.",
};

const NOBODY_CALLED = {
  "stock-low": "For each ticket left somebody is inside or was called. The line moves when some come back.",
  "room-full": "The shop is full. The line moves when somebody inside is done.",
  slower: "Nobody is called at the moment. You keep your place.",
};

const CHANGED = {
  "rate-lowered": "It takes longer than we said: the organisers let fewer fans in per minute now.",
  throttled: "It takes longer than we said: the checkout is busy, so fewer fans are let in for a while.",
  recovering: "It takes longer than we said: after an interruption the line picks up speed again.",
  "other-lanes": "It takes longer than we said: fans in another line are let in beside yours.",
  "room-full": "It takes longer than we said: those inside take their time.",
  "fans-returned": "It takes longer than we said: fans ahead of you have come back.",
  slower: "It takes longer than we said: the line moves more slowly than before.",
  "start-moved": "The start of the sale was moved.",
};
const CHANGE_TOLD_MS = 10 * 60_000;

export const NOT_STARTED = "Nobody has been called yet. You keep your place.";

/** How long it takes, or why nobody can say: `range` is `[low, high]` in seconds, `changed` as the status has it. */
export function estimateWords({ state, position, range, changed }) {
  if (STANDSTILL[state]) return STANDSTILL[state];
  if (position === 0) return "You will be called in a moment.";
  if (range) return `Your turn in ${waitBetween(...range)}`;
  return NOBODY_CALLED[changed?.reason] ?? "We will tell you how long as soon as we know.";
}

/** Why the wait grew, for some minutes. */
export function changeWords(changed) {
  if (!changed || Date.now() - Date.parse(changed.at) > CHANGE_TOLD_MS) return "";
  return CHANGED[changed.reason] ?? "";
}
