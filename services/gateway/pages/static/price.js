// What a total is made of: tickets, a discount, fees, taxes. The same lines before paying and on the order page.
import { ask } from "./api.js";
import { element } from "./dom.js";
import { money } from "./format.js";

/** List items; none when there is nothing but tickets. */
export function billLines({ lines = [], extras = [], currency }) {
  if (extras.length === 0) return [];
  const tickets = lines.reduce((sum, line) => sum + line.unit_price_minor * line.quantity, 0);
  const item = (name, minor, included = false) =>
    element("li", { "data-included": included }, element("span", {}, name), element("span", {}, money(minor, currency)));
  return [item("Tickets", tickets), ...extras.map((extra) => item(label(extra), extra.amount_minor, extra.included))];
}

function label({ name, percent, included, kind }) {
  const share = percent ? ` (${Number(percent)} %)` : "";
  if (kind === "discount") return `Promo code ${name}${share}`;
  return included ? `Includes ${name}${share}` : `${name}${share}`;
}

/** What comes on top of the tickets' prices at this event, in words; empty if nothing does. */
export async function onTop(eventId, currency) {
  const path = `/orders/events/${encodeURIComponent(eventId)}/prices`;
  const { fees = [], taxes = [] } = await ask("GET", path, { patience: 0 }).catch(() => ({}));
  const how = ({ amount_minor: minor, percent }) => (percent ? `${Number(percent)} %` : money(minor, currency));
  const words = fees.map((fee) => `${fee.name} ${how(fee)} per ${fee.per}`);
  const added = taxes.filter((tax) => !tax.included).map((tax) => `${tax.name} ${how(tax)}`);
  return [...words, ...added].join(", ");
}
