// The figures of one event as they come: the stream fills signals, and the past fills the arrays that charts draw.
// A stream that breaks, ends or falls silent is opened again within two seconds; each begins with a snapshot.
import { computed, signal } from "@preact/signals";
import type { ActiveAlarm, ApprovalView, Change, PastAlarm, Process, Session, Snapshot, Vitals, VitalsHistory } from "./documents";
import type { Figure } from "./format";

export const PATHS = [
  "line.waiting", "line.called", "rate.set_per_s", "rate.effective_per_s", "rate.called_per_s", "rate.claimed_per_s",
  "stock.free", "stock.held", "stock.paying", "stock.sold", "orders.pending", "orders.confirmed", "wait.p50_s",
  "wait.p95_s", "streams.open", "room.active",
] as const;
export type Path = (typeof PATHS)[number];
export type Part = keyof Vitals["ages"];

// Times in milliseconds, oldest first, and the values of each path at these times.
export interface Past { at: number[]; series: Record<Path, Figure[]>; alarms: PastAlarm[] }

const STALE_S = 3;
const RECONNECT_MS = 1000;
const SILENT_MS = 5000; // the stream brings figures each second
const CHANGES_MAX = 200;
const SAMPLE_MS = 10_000; // the past of alarms is known to ten seconds
const POINTS_MAX = 4000;

export const session = signal<Session | null>(null);
export const snapshot = signal<Snapshot | null>(null);
export const vitals = signal<Vitals | null>(null);
export const alarms = signal<ActiveAlarm[]>([]);
export const processes = signal<Process[]>([]);
export const changes = signal<Change[]>([]);
// Alarms of the time shown, newest first: those that ended too, and those before this page was opened.
export const alarmLog = signal<PastAlarm[]>([]);
export const approvals = signal<ApprovalView[]>([]);
export const connected = signal(false);
export const lastHeardMs = signal(0);
export const clockMs = signal(Date.now());
export const unknownEvent = signal(false);
export const spanS = signal(900);

export const emptyPast = (): Past =>
  ({ at: [], alarms: [], series: Object.fromEntries(PATHS.map((path) => [path, []])) as unknown as Past["series"] });
export const history = emptyPast();
export const historyVersion = signal(0);

// What the replay shows instead, if one runs.
export const replayed = signal<{ vitals: Vitals; past: Past } | null>(null);
export const shown = computed(() => replayed.value?.vitals ?? vitals.value);

// Seconds since a part was heard, by the last figures and by how long ago they came.
export const ages = computed<Record<Part, number | null>>(() => {
  const found = shown.value?.ages ?? { queue: null, inventory: null, orders: null, notifier: null };
  if (replayed.value) return found;
  const late = Math.max(0, clockMs.value - lastHeardMs.value) / 1000;
  const more = late > STALE_S ? late : 0;
  const aged = Object.entries(found).map(([part, age]) => [part, age === null ? null : age + more]);
  return Object.fromEntries(aged) as Record<Part, number | null>;
});
export const isStale = (age: number | null) => age === null || age > STALE_S;

const listeners = new Set<(vitals: Vitals) => void>();
// Calls the listener with each record of figures, until the returned function is called.
export function onVitals(listener: (vitals: Vitals) => void): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

let watched: string | null = null;
let source: EventSource | null = null;
let timer: ReturnType<typeof setTimeout> | undefined;
let changedAtMs = 0;

setInterval(() => {
  clockMs.value = Date.now();
  if (source && Date.now() - changedAtMs > SILENT_MS) reopen(0);
}, 1000);

// Shows this event from now on.
export function watch(eventId: string): void {
  if (watched === eventId) return;
  stop();
  watched = eventId;
  open();
  void loadPast();
}

// Shows nothing more.
export function stop(): void {
  watched = null;
  close();
  snapshot.value = vitals.value = null;
  lastHeardMs.value = 0; // the age of one event's figures says nothing of another's
  alarms.value = processes.value = changes.value = alarmLog.value = approvals.value = [];
  unknownEvent.value = false;
  replayed.value = null;
  replacePast(emptyPast());
}

// Draws the last seconds of the past from now on.
export function showSpan(seconds: number): void {
  spanS.value = seconds;
  void loadPast();
}

export async function readPast(eventId: string, fromMs: number, toMs: number): Promise<Past> {
  const query = new URLSearchParams({ from_ms: String(fromMs), to_ms: String(toMs) });
  const answer = await fetch(`/console/api/events/${eventId}/vitals?${query}`);
  if (!answer.ok) throw new Error(String(answer.status));
  const found = await answer.json() as VitalsHistory;
  const series = Object.fromEntries(PATHS.map((path) => [path, found.series[path] ?? found.at_ms.map(() => null)]));
  return { at: found.at_ms, series: series as Past["series"], alarms: found.alarms };
}

export const figure = (from: Vitals, path: Path): Figure => {
  const [part, name] = path.split(".") as [keyof Vitals, string];
  return (from[part] as unknown as Record<string, Figure>)[name] ?? null;
};

async function loadPast(): Promise<void> {
  const eventId = watched;
  if (!eventId) return;
  const now = vitals.value?.at_ms ?? Date.now();
  try {
    const past = await readPast(eventId, now - spanS.value * 1000, now + 60_000);
    if (watched !== eventId) return;
    replacePast(past);
    if (vitals.value) append(vitals.value);
  } catch { /* the charts begin with what the stream brings */ }
}

function replacePast(past: Past): void {
  Object.assign(history, past);
  const heard = alarmLog.value;
  const isHeard = (one: PastAlarm) => heard.some((other) => one.name === other.name
    && one.since_ms <= (other.ended_ms ?? Infinity) && other.since_ms - SAMPLE_MS <= (one.ended_ms ?? Infinity));
  alarmLog.value = [...heard, ...past.alarms.filter((one) => !isHeard(one))]
    .sort((one, other) => other.since_ms - one.since_ms).slice(0, CHANGES_MAX);
  if (snapshot.value) hearAlarms(alarms.value); // what ended since its last sample does not fire
  historyVersion.value++;
}

function append(found: Vitals): void {
  const { at, series } = history;
  const last = at.at(-1) ?? 0;
  if (found.at_ms <= last) return;
  const step = Math.max(0, spanS.value * 1000 / POINTS_MAX);
  const before = at.at(-2);
  const replaces = before !== undefined && found.at_ms - before < step;
  if (replaces) at.pop();
  at.push(found.at_ms);
  let old = 0;
  while (old < at.length && at[old]! < found.at_ms - spanS.value * 1000) old++;
  at.splice(0, old);
  for (const path of PATHS) {
    const values = series[path];
    if (replaces) values.pop();
    values.push(figure(found, path));
    values.splice(0, old);
  }
  historyVersion.value++;
}

function open(): void {
  if (!watched) return;
  const mine = source = new EventSource(`/console/api/events/${watched}/stream`);
  changedAtMs = Date.now();
  const on = <T>(name: string, take: (data: T) => void) => mine.addEventListener(name, (event) => {
    if (source !== mine) return;
    changedAtMs = Date.now();
    take(JSON.parse((event as MessageEvent<string>).data) as T);
  });
  on<Snapshot>("snapshot", (found) => {
    const gap = history.at.length > 0 && found.vitals.at_ms - history.at.at(-1)! > 2500;
    snapshot.value = found;
    hearAlarms(found.alarms);
    processes.value = found.processes;
    changes.value = found.changes;
    approvals.value = found.approvals;
    connected.value = true;
    hear(found.vitals);
    if (gap) void loadPast();
  });
  on<Vitals>("vitals", hear);
  on<ActiveAlarm[]>("alarms", hearAlarms);
  on<Process[]>("processes", (found) => { processes.value = found; });
  on<ApprovalView[]>("approvals", (found) => { approvals.value = found; });
  on<Change>("change", (found) => {
    const others = changes.value.filter((one) => one.service !== found.service || one.id !== found.id);
    changes.value = [found, ...others].sort((one, other) => other.at_ms - one.at_ms).slice(0, CHANGES_MAX);
  });
  mine.addEventListener("error", () => {
    if (source !== mine) return;
    const refused = mine.readyState === EventSource.CLOSED;
    reopen(RECONNECT_MS);
    if (refused) void learnWhy();
  });
}

function hear(found: Vitals): void {
  vitals.value = found;
  lastHeardMs.value = clockMs.value = Date.now();
  append(found);
  for (const listener of listeners) listener(found);
}

function hearAlarms(found: ActiveAlarm[]): void {
  alarms.value = found;
  const now = vitals.value?.at_ms ?? Date.now();
  const kept = alarmLog.value.map((entry) => {
    if (entry.ended_ms !== null) return entry;
    const alarm = found.find(({ name }) => name === entry.name);
    return alarm ? { ...alarm, since_ms: Math.min(alarm.since_ms, entry.since_ms), ended_ms: null } : { ...entry, ended_ms: now };
  });
  const fresh = found.filter(({ name }) => !kept.some((entry) => entry.ended_ms === null && entry.name === name));
  alarmLog.value = [...fresh.map((alarm) => ({ ...alarm, ended_ms: null })), ...kept].slice(0, CHANGES_MAX);
}

function close(): void {
  clearTimeout(timer);
  source?.close();
  source = null;
  connected.value = false;
}

function reopen(afterMs: number): void {
  close();
  timer = setTimeout(open, afterMs);
}

// A stream that was answered with a problem: the session has ended, or there is no such event.
async function learnWhy(): Promise<void> {
  const eventId = watched;
  try {
    if ((await fetch("/console/session")).status === 401) {
      session.value = null;
      stop();
    } else if (eventId) {
      const asked = new AbortController();
      const answer = await fetch(`/console/api/events/${eventId}/stream`, { signal: asked.signal });
      asked.abort();
      unknownEvent.value = answer.status === 404 && watched === eventId;
    }
  } catch { /* the console is away; the next attempt is on its way */ }
}
