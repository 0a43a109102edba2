// Limits of tickets in words: which are set, and which one a request would exceed.
import { fill } from "./words.js";

const SET = { tickets_per_order: texts.event_limit, tickets_per_customer: texts.limit_customer, tour_tickets_per_customer: texts.limit_tour };
const EXCEEDED = { ...SET, open_orders_per_customer: texts.limit_open_orders };

/** The limits of an event, 0 being none; one that another makes pointless is left out. */
export function limitWords(limits) {
  const less = (name) => limits[name] > 0 && (name === "tickets_per_order" || limits[name] !== limits.tickets_per_order);
  return Object.keys(SET).filter(less).map((name) => fill(SET[name], { n: limits[name] })).join(" · ");
}

const SECTIONS_NAMED_MAX = 3;

/** Why the server refused: what is left, by section; or a limit with its number, and how much of it is used. */
export function refusalWords({ slug, message, members }, sections) {
  if (slug === "sold-out" && members.available) return leftWords(members.available, sections) || message;
  const limit = slug === "limit-exceeded" && EXCEEDED[members.limit];
  if (!limit) return message;
  const told = fill(texts.limit_exceeded, { limit: fill(limit, { n: members.allowed }) });
  return members.used > 0 ? `${told} ${fill(texts.limit_used, { n: members.used })}` : told;
}

/** Of many sections those with the most; the server's words where nothing is left in any. */
function leftWords(available, sections) {
  const most = Object.entries(available).sort(([, a], [, b]) => b - a).slice(0, SECTIONS_NAMED_MAX);
  const some = most.length > 1 ? most.filter(([, n]) => n > 0) : most;
  const told = ([id, n]) => fill(n > 0 ? texts.only_left : texts.none_left, { n, section: sections?.get(id)?.name ?? id });
  return some.map(told).join(" ");
}
