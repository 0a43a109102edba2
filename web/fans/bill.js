// The bill of a hold: its current price with all fees and taxes, and its promo code.
// A refused code changes nothing: the last bill stays, and the reason is shown beside the field.
import { ask } from "./api.js";
import { announce, byId, show, write } from "./dom.js";
import { money } from "./format.js";
import { billLines } from "./price.js";
import { fill } from "./words.js";

/** A quote that says why there is none. */
const REFUSED = ["promo-code-not-valid", "amount-not-payable"];

export class Bill {
  code = null;
  #asked = 0;

  /** Calls `quoted(quote)` with each quote. */
  constructor(quoted) {
    this.quoted = quoted;
    byId("promo-form").addEventListener("submit", (event) => {
      event.preventDefault();
      this.#apply(byId("promo").value.trim());
    });
  }

  /** Until the quote arrives, or without one, shows the reservation's amount: nothing else can be charged. Done when the
   * quote is shown. */
  enter(reservation) {
    if (reservation.reservation_id !== this.reservation?.reservation_id) this.#take(null);
    this.reservation = reservation;
    this.show({ total_minor: reservation.total_amount_minor_units, currency: reservation.currency });
    return this.#ask(this.code).catch((problem) => REFUSED.includes(problem.slug) && this.refuse(problem));
  }

  show(quote) {
    if (quote.lines) this.quoted(quote);
    this.totalMinor = quote.total_minor;
    this.currency = quote.currency;
    const lines = billLines(quote);
    byId("bill").replaceChildren(...lines);
    show("bill", lines.length > 0);
    show("paying", this.totalMinor > 0);
    this.total();
  }

  total() {
    write("held-total", this.text);
    write("hold-label", this.totalMinor > 0 ? texts.hold_pay_label : texts.hold_take_label);
    write("pay", this.totalMinor > 0 ? fill(texts.pay_price, { price: this.text }) : texts.get_tickets);
  }

  get text() {
    return money(this.totalMinor, this.currency);
  }

  /** Asks once more: the event may ask for something else by now. */
  again() {
    this.#ask(this.code).catch(() => {});
  }

  /** The code was valid when it was entered and is not any more. */
  refuse(problem) {
    this.#take(null);
    this.#say(problem.message);
    this.#ask(null).catch(() => {});
  }

  async #apply(code) {
    if (byId("promo-apply").ariaBusy === "true") return;
    byId("promo-apply").ariaBusy = "true";
    try {
      await this.#ask(code || null);
      this.#take(code || null);
      this.#say(code ? fill(texts.promo_applied, { price: this.text }) : "");
    } catch (problem) {
      this.#say(problem.message, true);
    } finally {
      byId("promo-apply").ariaBusy = "false";
    }
  }

  /** Shows only the answer to the latest request. */
  async #ask(code) {
    this.#asked += 1;
    const mine = this.#asked;
    const body = { reservation_id: this.reservation.reservation_id, promo_code: code };
    const quote = await ask("POST", "/orders/quote", { body });
    if (mine === this.#asked) this.show(quote);
  }

  #take(code) {
    this.code = code;
    byId("promo").value = code ?? "";
    this.#say("");
  }

  #say(text, wrong = false) {
    write("promo-note", text);
    byId("promo").setAttribute("aria-invalid", String(wrong));
    if (text) announce(text);
  }
}
