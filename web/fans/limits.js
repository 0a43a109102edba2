// Limits of tickets in words: which are set, and which one a request would exceed.
import { fill } from "./words.js";

const SET = { tickets_per_order: texts.event_limit, tickets_per_customer: texts.limit_customer, tour_tickets_per_customer: texts.limit_tour };
const EXCEEDED = { ...SET, open_orders_per_customer: texts.limit_open_orders };

/** The limits of an event, 0 being none; one that another makes pointless is left out. */
export function limitWords(limits) {
  const less = (name) => limits[name] > 0 && (name === "tickets_per_order" || limits[name] !== limits.tickets_per_order);
  return Object.keys(SET).filter(less).map((name) => fill(SET[name], { n: limits[name] })).join(" · ");
}

/** Why the server refused; a limit with its number, and how much of it is used. */
export function refusalWords({ slug, message, members }) {
  const limit = slug === "limit-exceeded" && EXCEEDED[members.limit];
  if (!limit) return message;
  const told = fill(texts.limit_exceeded, { limit: fill(limit, { n: members.allowed }) });
  return members.used > 0 ? `${told} ${fill(texts.limit_used, { n: members.used })}` : told;
}
