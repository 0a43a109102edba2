// Held: the clock runs; the fan enters their details and pays, or returns tickets, all or one by one.
// An order without an answer is sent again unchanged, under the same key: it can never become a second charge.
import { ask } from "./api.js";
import { Bill } from "./bill.js";
import { countdown } from "./clock.js";
import { byId, trouble, write } from "./dom.js";
import { EmailField } from "./email.js";
import { remaining } from "./format.js";
import { HeldTickets } from "./held_tickets.js";
import { refusalWords } from "./limits.js";
import { browser, tab } from "./memory.js";
import { MoreTime } from "./more_time.js";
import { OrderNames } from "./names.js";
import { Reminder } from "./reminder.js";
import { chosenPayment, offerWays } from "./paying.js";
import { fill } from "./words.js";

export class Hold {
  #stop = () => {};
  #sent = null;
  #bill = new Bill((quote) => this.names.ask(quote, this.stock.sections));

  /** Calls `shown(reservation)` with what is held, also after part of it was returned, and `over(reason)` at the end of the
   * step: returned or expired. */
  constructor({ eventId, stock, types, event, shown, over }) {
    Object.assign(this, { eventId, stock, shown, over, names: new OrderNames(event) });
    byId("checkout").addEventListener("submit", (event) => {
      event.preventDefault();
      this.#pay();
    });
    byId("give-back").addEventListener("click", () => this.#giveBack());
    this.moreTime = new MoreTime("more-time", (reservation) => this.#longer(reservation));
    this.reminder = new Reminder();
    this.email = new EmailField(() => byId("checkout").requestSubmit());
    const Tickets = types?.HeldTickets ?? HeldTickets;
    this.tickets = new Tickets({
      eventId,
      stock,
      types,
      kept: (reservation) => this.#kept(reservation),
      last: () => this.#giveBack(),
      refused: (problem) => this.#notRemoved(problem),
    });
  }

  get #path() {
    return `/events/${this.eventId}/reservations/${this.reservation.reservation_id}`;
  }

  enter(reservation) {
    this.reservation = reservation;
    browser(`reservation:${this.eventId}`, reservation.reservation_id);
    this.reminder.offer(reservation.reservation_id);
    this.tickets.render(reservation);
    this.shown(reservation);
    const quoted = this.#bill.enter(reservation);
    offerWays();
    this.#stop();
    this.#stop = countdown(reservation.reserved_until, (seconds) => this.#tick(seconds), () => this.#ranOut());
    return quoted;
  }

  leave() {
    this.#stop();
    this.#lock(null);
  }

  #tick(seconds) {
    write("hold-clock", remaining(seconds));
    byId("hold-clock").toggleAttribute("data-soon", seconds < 60);
    this.moreTime.offer(seconds, this.#sent ? null : `${this.#path}/extend`);
    this.moreTime.speak(seconds, texts.seconds_left);
  }

  #longer(reservation) {
    this.enter(reservation);
    byId("held-title").focus();
  }

  async #ranOut() {
    const now = await ask("GET", this.#path).catch(() => null);
    const longer = Date.parse(now?.reserved_until) > Date.parse(this.reservation.reserved_until);
    if (now?.status === "pending_payment" && longer) return this.enter(now);
    if (!this.#sent) return this.#end(texts.hold_ran_out);
  }

  async #giveBack() {
    trouble(null);
    try {
      await ask("DELETE", this.#path);
    } catch (problem) {
      if (problem.status !== 404 && problem.status !== 410) return trouble(problem.message);
    }
    this.#end(texts.gave_back);
  }

  #kept(reservation) {
    trouble(null);
    return this.enter(reservation);
  }

  /** Another tab may have been faster: loads the reservation again. */
  async #notRemoved(problem) {
    if (problem.status === 404 || problem.slug === "hold-expired") return this.#end(problem.message);
    trouble(problem.message);
    if (problem.slug !== "not-held") return undefined;
    const now = await ask("GET", this.#path).catch(() => null);
    return now?.status === "pending_payment" ? this.enter(now) : undefined;
  }

  #end(reason) {
    browser(`reservation:${this.eventId}`, null);
    this.over(reason);
  }

  async #pay() {
    if (byId("pay").ariaBusy === "true") return;
    trouble(null);
    if (!this.names.complete()) return;
    this.#lock(this.#sent ?? this.#body());
    try {
      const key = `${tab(`checkout:${this.eventId}`)}.${this.reservation.reservation_id}`;
      const order = await ask("POST", "/orders", { body: this.#sent, key, patience: 5 });
      browser(`order:${this.eventId}`, order.reference);
      browser(`reservation:${this.eventId}`, null);
      location.assign(`/o/${order.reference}`);
    } catch (problem) {
      this.#refused(problem);
    }
  }

  #body() {
    const field = (name) => byId(name).value.trim();
    return {
      reservation_id: this.reservation.reservation_id,
      expected_total_minor: this.#bill.totalMinor,
      currency: this.#bill.currency,
      promo_code: this.#bill.code,
      customer: { name: field("name"), ...this.email.fields },
      ...this.names.body,
      payment: chosenPayment(),
    };
  }

  /** While an order is under way, or its outcome is unknown, its body must not change. */
  #lock(body) {
    this.#sent = body;
    byId("pay").ariaBusy = String(body !== null);
    const fields = [...byId("checkout").elements, ...byId("promo-form").elements];
    for (const field of fields) if (field.id !== "pay") field.disabled = body !== null;
    this.tickets.lock(body !== null);
  }

  #refused(problem) {
    if (problem.unknown || problem.status >= 500) {
      byId("pay").ariaBusy = "false";
      write("pay", texts.try_again);
      return trouble(texts.order_unknown);
    }
    this.#lock(null);
    this.#bill.total();
    if (this.email.asks(problem)) return undefined;
    if (problem.slug === "hold-expired") return this.#end(problem.message);
    if (problem.slug === "promo-code-not-valid") this.#bill.refuse(problem);
    if (problem.slug === "ticket-names-refused") this.#bill.again();
    if (problem.slug !== "price-changed") return trouble(refusalWords(problem));
    this.#bill.show(problem.members);
    return trouble(fill(texts.price_changed, { price: this.#bill.text }));
  }
}
