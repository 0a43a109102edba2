// What things cost with everything in them: before anything is held as the server computes it from the event's fees and
// taxes, and after that line by line. The same lines before paying and on the order page.
import { ask } from "./api.js";
import { element } from "./dom.js";
import { money } from "./format.js";

const ASKED_AT_ONCE = 100;

/** All-in prices of one event. Where they cannot be had, prices are told without them, and that it is so. */
export class Prices extends EventTarget {
  #allIn = new Map();
  #asked = new Set();
  #together = new Map();
  rules = {};

  constructor(eventId, currency) {
    super();
    Object.assign(this, { currency, path: `/orders/events/${encodeURIComponent(eventId)}/prices` });
  }

  /** Asks about prices it does not know yet. */
  async learn(minors) {
    const fresh = [...new Set(minors)].filter((minor) => !this.#asked.has(minor));
    for (let n = 0; n < fresh.length; n += ASKED_AT_ONCE) {
      const some = fresh.slice(n, n + ASKED_AT_ONCE);
      for (const minor of some) this.#asked.add(minor);
      const query = some.map((minor) => `each=${minor}`).join("&");
      const { all_in: allIn, ...rules } = await ask("GET", `${this.path}?${query}`, { patience: 3 });
      for (const [minor, whole] of Object.entries(allIn)) this.#allIn.set(Number(minor), whole);
      this.rules = rules;
    }
    if (fresh.length > 0) this.dispatchEvent(new Event("change"));
  }

  /** One ticket of this price, in words. */
  one(minor) {
    const whole = this.#allIn.get(minor);
    return whole === undefined ? `${money(minor, this.currency)} plus fees` : money(whole, this.currency);
  }

  /** One order of these `[price, quantity]`; the answer of before while the server is asked. */
  async together(lines) {
    const query = lines.map(([minor, quantity]) => `line=${minor}x${quantity}`).sort().join("&");
    if (!this.#together.has(query)) {
      const { together_minor: whole } = await ask("GET", `${this.path}?${query}`);
      this.#together.set(query, money(whole, this.currency));
    }
    return this.#together.get(query);
  }

  /** What is in every price beside the ticket; empty if nothing is. */
  get contents() {
    const { fees = [], taxes = [] } = this.rules;
    const how = ({ amount_minor: minor, percent }) => (percent ? `${Number(percent)} %` : money(minor, this.currency));
    return [...fees.map((fee) => `${fee.name} ${how(fee)} per ${fee.per}`), ...taxes.map((tax) => `${tax.name} ${how(tax)}`)].join(", ");
  }

  /** A fee per order is in the price of one ticket, and not once more in that of a second. */
  get perOrder() {
    return (this.rules.fees ?? []).some((fee) => fee.per === "order");
  }
}

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
