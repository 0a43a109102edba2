// Figures and times as words. What is unknown is a dash.
import type { RoomVitals } from "./documents";

export type Figure = number | null; // null means unknown
export type RoomState = NonNullable<RoomVitals["state"]>;

export const UNKNOWN = "–";
const whole = new Intl.NumberFormat("en-GB", { maximumFractionDigits: 0 });
const tenths = new Intl.NumberFormat("en-GB", { maximumFractionDigits: 1 });

export const count = (value: Figure | undefined): string => value == null ? UNKNOWN : whole.format(value);

export const rate = (value: Figure | undefined): string =>
  value == null ? UNKNOWN : (Math.abs(value) >= 100 ? whole : tenths).format(value);

export const percent = (part: Figure | undefined, all: Figure | undefined): string => {
  if (part == null || !all) return UNKNOWN;
  const share = part / all * 100;
  return `${share > 0 && share < 10 ? tenths.format(share) : Math.floor(share)} %`;
};

// 8 s, 4 min 10 s, 1 h 05 min.
export function duration(seconds: Figure | undefined): string {
  if (seconds == null) return UNKNOWN;
  if (seconds < 10) return `${tenths.format(seconds)} s`;
  const s = Math.round(seconds);
  if (s < 60) return `${s} s`;
  const min = Math.floor(s / 60);
  if (min < 10) return s % 60 ? `${min} min ${s % 60} s` : `${min} min`;
  if (min < 60) return `${Math.round(s / 60)} min`;
  const all = Math.round(s / 60);
  return `${whole.format(Math.floor(all / 60))} h ${String(all % 60).padStart(2, "0")} min`;
}

// Two ends of a band in one unit: 18–24 min.
export function band(from: number, to: number | null): string {
  if (to === null) return `from ${duration(from)}`;
  if (to < 60) return `${Math.round(from)}–${Math.round(to)} s`;
  if (to < 7200) {
    const [least, most] = [Math.max(1, Math.round(from / 60)), Math.round(to / 60)];
    return least === most ? `${most} min` : `${least}–${most} min`;
  }
  return `${tenths.format(from / 3600)}–${tenths.format(to / 3600)} h`;
}

const clock = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const minutes = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit" });
const day = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short" });
const fullDay = new Intl.DateTimeFormat("en-GB", { weekday: "short", day: "numeric", month: "long", year: "numeric" });

export const clockTime = (ms: number): string => clock.format(ms);
export const minuteTime = (ms: number): string => minutes.format(ms);
export const dayTime = (ms: number, now: number): string =>
  new Date(ms).toDateString() === new Date(now).toDateString() ? clock.format(ms) : `${day.format(ms)} ${minutes.format(ms)}`;
export const longDate = (text: string): string => `${fullDay.format(new Date(text))}, ${minutes.format(new Date(text))}`;

export const STATES: Record<RoomState, string> = {
  draft: "Draft", prequeue: "Pre-queue", open: "Open", paused: "Paused", draining: "Draining",
  last_chance: "Last chance", sold_out: "Sold out", closed: "Closed",
};

const REASONS: Record<string, string> = {
  draft: "the room is not open yet", paused: "paused", closed: "the room is closed", sold_out: "sold out",
  stock: "held back to the stock left", full: "every place in the shop is taken",
  "inventory-slow": "inventory is slow", "inventory-silent": "inventory says nothing",
  "orders-slow": "orders are slow", "orders-silent": "orders say nothing",
  easing: "as many as checkout completes", recovering: "recovers after a throttle",
};
export const reasonWords = (why: string): string => REASONS[why] ?? why.replaceAll("_", " ").replaceAll("-", " ");

export const sentence = (text: string): string => text.charAt(0).toUpperCase() + text.slice(1).replaceAll("_", " ");

// Text of the runbook: `code` becomes code, [links](#to) their words.
export const plain = (text: string): { code: boolean; text: string }[] =>
  text.replace(/\[([^\]]*)\]\([^)]*\)/g, "$1").split("`").map((part, index) => ({ code: index % 2 === 1, text: part }));

export interface Difference { name: string; before: string; after: string }

// The values that a change changed, nested ones by names joined with a dot; none if it made something new.
export function differences(before: Record<string, unknown> | null, after: Record<string, unknown> | null): Difference[] {
  if (!before || !after) return [];
  const flat = (from: Record<string, unknown>, prefix = ""): [string, unknown][] => Object.entries(from).flatMap(
    ([name, value]) => value && typeof value === "object" && !Array.isArray(value)
      ? flat(value as Record<string, unknown>, `${prefix}${name}.`) : [[prefix + name, value] as [string, unknown]]);
  const [old, fresh] = [new Map(flat(before)), new Map(flat(after))];
  const hidden = new Set(["version", "epoch"]);
  const found = [...new Set([...old.keys(), ...fresh.keys()])]
    .filter((name) => !hidden.has(name) && JSON.stringify(old.get(name) ?? null) !== JSON.stringify(fresh.get(name) ?? null))
    .map((name) => ({ name: name.replaceAll("_", " "), before: shortly(old.get(name)), after: shortly(fresh.get(name)) }));
  return found.every((one) => one.before === "none") && found.length > 3 ? [] : found;
}

function shortly(value: unknown): string {
  if (value === null || value === undefined) return "none";
  const text = typeof value === "string" ? value : JSON.stringify(value);
  return text.length > 60 ? `${text.slice(0, 57)}…` : text;
}
