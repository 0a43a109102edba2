// Replay: the kept figures of the past on the same screen, ten times as fast. What is not kept is shown as unknown.
import { signal } from "@preact/signals";
import { clockTime, dayTime, minuteTime, type Figure } from "./format";
import { clockMs, PATHS, readPast, replayed, vitals, type Part, type Past } from "./live";
import type { Vitals } from "./documents";

const SPEEDS = [1, 10, 60];
const DAY_MS = 86_400_000;
const FRAME_MS = 250;
const MINUTE_MS = 60_000;
const PARTS: Part[] = ["queue", "inventory", "orders", "notifier"];

interface Tape { eventId: string; past: Past; first: number; last: number }
const tape = signal<Tape | null>(null);
const atMs = signal(0);
const speed = signal(10);
const playing = signal(false);
export const replayProblem = signal<string | null>(null);
let timer: ReturnType<typeof setInterval> | undefined;

// Plays the last day of an event from the first moment at which anybody waited or anything was sold.
export async function startReplay(eventId: string): Promise<void> {
  replayProblem.value = null;
  try {
    const now = Date.now();
    const past = await readPast(eventId, now - DAY_MS, now);
    const { "line.waiting": waiting, "stock.sold": sold } = past.series;
    const begins = past.at.findIndex((_, index) => !!waiting[index] || !!sold[index]);
    if (begins < 0) throw new Error("Nothing was kept of this event yet: nobody waited and nothing was sold.");
    // The day comes in long steps; the sale itself is read again in the shortest.
    const sale = await readPast(eventId, past.at[begins]! - MINUTE_MS, now);
    tape.value = { eventId, past: sale, first: sale.at[0]!, last: sale.at.at(-1)! };
    atMs.value = tape.value.first;
    playing.value = true;
    show();
    clearInterval(timer);
    timer = setInterval(advance, FRAME_MS);
  } catch (failed) {
    replayProblem.value = failed instanceof Error && failed.message.length > 3 ? failed.message : "The past could not be read.";
  }
}

export function stopReplay(): void {
  clearInterval(timer);
  tape.value = null;
  replayed.value = null;
}

function advance(): void {
  const { value } = tape;
  if (!value || replayed.peek() === null) return stopReplay();
  if (!playing.value) return;
  atMs.value = Math.min(value.last, atMs.value + FRAME_MS * speed.value);
  if (atMs.value === value.last) playing.value = false;
  show();
}

function show(): void {
  const { eventId, past } = tape.value!;
  const index = Math.max(0, past.at.findLastIndex((ms) => ms <= atMs.value));
  const at = past.at.slice(0, index + 1);
  const series = Object.fromEntries(PATHS.map((path) => [path, past.series[path].slice(0, index + 1)])) as Past["series"];
  replayed.value = { vitals: figures(eventId, { at, series, alarms: [] }), past: { at, series, alarms: past.alarms } };
}

// The figures at the end of this past, as far as they were kept.
function figures(eventId: string, { at, series }: Past): Vitals {
  const last = at.length - 1;
  const get = (path: keyof Past["series"]): Figure => series[path][last] ?? null;
  const [free, held, sold] = [get("stock.free"), get("stock.held"), get("stock.sold")];
  const minuteAgo = at.findLastIndex((ms) => ms <= at[last]! - MINUTE_MS);
  const soldThen = minuteAgo < 0 ? null : series["stock.sold"][minuteAgo] ?? null;
  const elapsed = minuteAgo < 0 ? 0 : (at[last]! - at[minuteAgo]!) / MINUTE_MS;
  const now = vitals.peek();
  const unknown = ["joined", "called", "claimed", "held", "ordered", "confirmed"];
  return {
    event_id: eventId, at_ms: at[last]!, ages: Object.fromEntries(PARTS.map((part) => [part, 0])) as Vitals["ages"],
    room: { state: null, version: null, active: get("room.active"), max_active: now?.room.max_active ?? null, message: null },
    line: { waiting: get("line.waiting"), head: null, tail: null, live_share: null, called: get("line.called"), claimed: null, missed_calls: null },
    rate: {
      set_per_s: get("rate.set_per_s"), effective_per_s: get("rate.effective_per_s"),
      called_per_s: get("rate.called_per_s"), claimed_per_s: get("rate.claimed_per_s"), why: null,
    },
    wait: { p50_s: get("wait.p50_s"), p95_s: get("wait.p95_s") },
    stock: {
      free, held, sold, paying: get("stock.paying"), oldest_hold_s: null, sections: [],
      total: free === null || held === null || sold === null ? null : free + held + sold,
    },
    sell: {
      per_min: sold === null || soldThen === null || !elapsed ? null : (sold - soldThen) / elapsed,
      out_s: null, out_earliest_s: null, out_latest_s: null,
    },
    orders: {
      pending: get("orders.pending"), confirmed: get("orders.confirmed"), confirmed_per_s: null, due: null,
      oldest_due_s: null, in_review: null, declines: {},
    },
    funnel: unknown.map((name) => ({
      name, fans: { called: get("line.called"), confirmed: get("orders.confirmed") }[name] ?? null,
    })),
    streams: { open: get("streams.open"), turned_away: null },
    proof: { oversold: null, duplicates: null, inversions: null, charged_twice: null, at_ms: null },
    without_reports: [],
  };
}

export function ReplayBar() {
  const { value } = tape;
  if (!value || !replayed.value) return null;
  return (
    <section class="replaybar" aria-label="Replay">
      <b class="pill">Replay</b>
      <button type="button" class="button small" onClick={() => {
        if (!playing.value && atMs.value >= value.last) atMs.value = value.first;
        playing.value = !playing.value;
      }}>{playing.value ? "Stop" : "Play"}</button>
      <div class="spans" role="group" aria-label="Speed">
        {SPEEDS.map((times) => <button key={times} type="button" aria-pressed={speed.value === times} onClick={() => { speed.value = times; }}>{times}×</button>)}
      </div>
      <input type="range" aria-label="Moment" min={value.first} max={value.last} step={1000} value={atMs.value}
        aria-valuetext={clockTime(atMs.value)} onInput={(event) => { atMs.value = Number(event.currentTarget.value); show(); }} />
      <span class="num"><b>{dayTime(atMs.value, clockMs.value)}</b> <span class="muted">of {minuteTime(value.first)}–{minuteTime(value.last)}</span></span>
      <button type="button" class="button primary small" onClick={stopReplay}>Back to now</button>
    </section>
  );
}
