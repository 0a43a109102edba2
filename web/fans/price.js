// Prices with all fees and taxes: before a hold computed by the server from the event's fees and taxes, after that
// line by line. The same lines are shown before payment and on the order page.
import { ask } from "./api.js";
import { element } from "./dom.js";
import { money } from "./format.js";
import { fill } from "./words.js";

const ASKED_AT_ONCE = 100;

/** All-in prices of one event. If they are not available, shows prices without them, and says so. */
export class Prices extends EventTarget {
  #allIn = new Map();
  #asked = new Set();
  #together = new Map();
  rules = {};

  constructor(eventId, currency) {
    super();
    Object.assign(this, { currency, path: `/orders/events/${encodeURIComponent(eventId)}/prices` });
  }

  /** Requests prices that are not known yet. */
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

  /** The text of one ticket of this price. */
  one(minor) {
    const whole = this.#allIn.get(minor);
    if (whole !== undefined) return money(whole, this.currency);
    return fill(texts.price_plus_fees, { price: money(minor, this.currency) });
  }

  /** The price of an order of these `[price, quantity, price type]`; the previous answer until the new one arrives. */
  async together(lines) {
    const query = lines.map(([minor, quantity, type]) => `line=${minor}x${quantity}${type ? `:${type}` : ""}`).sort().join("&");
    if (!this.#together.has(query)) {
      const { together_minor: whole } = await ask("GET", `${this.path}?${query}`);
      this.#together.set(query, money(whole, this.currency));
    }
    return this.#together.get(query);
  }

  /** What every price includes besides the ticket; empty if nothing. */
  get contents() {
    const { fees = [], taxes = [] } = this.rules;
    const told = (part, text) => fill(text, { name: part.name, amount: this.#amount(part) });
    const each = fees.map((fee) => told(fee, fee.per === "order" ? texts.fee_per_order : texts.fee_per_ticket));
    return [...each, ...taxes.map((tax) => told(tax, texts.tax))].join(texts.list_comma);
  }

  #amount({ amount_minor: minor, percent }) {
    return percent ? fill(texts.percent, { n: Number(percent) }) : money(minor, this.currency);
  }

  /** A fee per order counts in the price of the first ticket only. */
  get perOrder() {
    return (this.rules.fees ?? []).some((fee) => fee.per === "order");
  }
}

/** List items; none if there are only tickets. */
export function billLines({ lines = [], extras = [], currency }) {
  if (extras.length === 0) return [];
  const tickets = lines.reduce((sum, line) => sum + line.unit_price_minor * line.quantity, 0);
  const item = (name, minor, included = false) =>
    element("li", { "data-included": included }, element("span", {}, name), element("span", {}, money(minor, currency)));
  return [item(texts.bill_tickets, tickets), ...extras.map((extra) => item(label(extra), extra.amount_minor, extra.included))];
}

function label({ name, percent, included, kind }) {
  const share = percent ? ` (${fill(texts.percent, { n: Number(percent) })})` : "";
  if (kind === "discount") return `${fill(texts.bill_promo, { name })}${share}`;
  return `${included ? fill(texts.bill_included, { name }) : name}${share}`;
}
