// Numbers, money and times in the fan's locale. Times of an event are in the venue's time zone, which is named; the
// fan's own time is only added.
import { written as amount } from "../money.ts";
import { LOCALE, count, fill } from "./words.js";


const DATE = { weekday: "short", day: "numeric", month: "long", year: "numeric" };
const TIME = { hour: "numeric", minute: "2-digit" };
const TWO = new Intl.NumberFormat(LOCALE, { minimumIntegerDigits: 2 });
const HOUR = new Intl.DateTimeFormat(LOCALE, { hour: "numeric", minute: "2-digit" });

/** Minor units as text; the currency decides the number of digits (2 for EUR, 0 for JPY). */
export const money = (minor, currency) => amount(minor, currency, LOCALE);

const written = (iso, zone, style) => new Intl.DateTimeFormat(LOCALE, { ...style, timeZone: known(zone) }).format(new Date(iso));

/** A time zone that this browser does not know is shown as UTC. */
function known(zone) {
  try {
    return new Intl.DateTimeFormat(LOCALE, { timeZone: zone }).resolvedOptions().timeZone;
  } catch {
    return "UTC";
  }
}

/** A time of today on the fan's own clock. */
export const clockTime = (ms) => HOUR.format(new Date(ms));

export const date = (iso, zone) => written(iso, zone, DATE);

/** 19:00 Japan Standard Time. */
export const time = (iso, zone) => written(iso, zone, { ...TIME, timeZoneName: "long" });

/** A time that may be on another day. */
export const moment = (iso, zone) => fill(texts.moment, { date: date(iso, zone), time: time(iso, zone) });

/** The same in the fan's own time zone; empty if it reads the same. */
export function ownTime(iso, zone) {
  const own = Intl.DateTimeFormat().resolvedOptions().timeZone;
  const style = { ...DATE, ...TIME };
  return written(iso, zone, style) === written(iso, own, style) ? "" : fill(texts.own_time, { moment: moment(iso, own) });
}

/** A countdown: 4:07, 1:02:09, 3 days 4 h. */
export function remaining(seconds) {
  const left = Math.max(0, Math.ceil(seconds));
  const [days, hours, minutes] = [Math.floor(left / 86400), Math.floor(left / 3600) % 24, Math.floor(left / 60) % 60];
  if (days > 0) return fill(texts.countdown_days, { n: days, hours });
  if (hours > 0) return `${count(hours)}:${TWO.format(minutes)}:${TWO.format(left % 60)}`;
  return `${count(minutes)}:${TWO.format(left % 60)}`;
}

/** An estimate, rounded up, in words. */
export function wait(seconds) {
  if (seconds < 45) return texts.wait_less;
  const minutes = Math.ceil(seconds / 60);
  if (minutes < 90) return fill(texts.wait_minutes, { n: minutes });
  const hours = Math.round(minutes / 30) / 2;
  return hours < 36 ? fill(texts.wait_hours, { n: hours }) : texts.wait_over_a_day;
}

/** A range of waits: "8 to 14 minutes", one value if both read the same; "more than 23 hours" without an upper bound. */
export function waitBetween(low, high) {
  if (high === null) return fill(texts.wait_over_hours, { n: Math.floor(low / 3600) });
  const [from, to] = [Math.max(1, Math.floor(low / 60)), Math.ceil(high / 60)];
  if (to > 90 || from >= to) return wait(high);
  return fill(texts.wait_range, { from, n: to });
}

/** Seat `A-3-12` in the words of its venue. */
export function seat(seatId, sections) {
  const [sectionId, row, number] = seatId.split("-");
  return fill(texts.seat, { section: sections?.get(sectionId)?.name ?? sectionId, row, number });
}
