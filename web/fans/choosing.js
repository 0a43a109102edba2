// Choosing: a list of sections, a seat plan and the selection. One button holds the whole selection or nothing.
import { ask } from "./api.js";
import { countdown } from "./clock.js";
import { announce, byId, disable, show, trouble, write } from "./dom.js";
import { remaining, seat as seatName } from "./format.js";
import { refusalWords } from "./limits.js";
import { MoreTime } from "./more_time.js";
import { priceOfRow } from "./price_tiers.js";
import { SeatPlan, byRow } from "./seats.js";
import { SingleSeats } from "./single_seats.js";
import { filterControl } from "./traits.js";
import { fill } from "./words.js";

const REFRESH_MS = 5_000;
const SOON_S = 120;

export class Choosing {
  #stop = () => {};
  #timer = null;
  /** The seats of each section that was opened: their names and prices stay. */
  seats = new Map();

  /** Calls `held(reservation)` when the server holds the selection, `timeUp()` when the session has ended. */
  constructor({ eventId, stock, basket, prices, filter, sections, types, held, timeUp }) {
    Object.assign(this, { eventId, stock, basket, prices, sections, types, held, timeUp });
    const control = filterControl(filter, stock.sections.values());
    if (control) byId("sections").before(control);
    this.plan = new SeatPlan({ stock, basket, prices, filter, picked: (seat) => this.picked(seat) });
    this.single = new SingleSeats({ basket, stock, hallOf: (sectionId) => this.#hallOf(sectionId) });
    byId("hold").addEventListener("click", () => this.#hold());
    byId("seats-back").addEventListener("click", () => this.close());
    basket.addEventListener("change", () => this.render());
    basket.addEventListener("change", () => this.#codeChanged());
    this.moreTime = new MoreTime("more-session", (pass) => this.#longer(pass));
  }

  /** `pass` has the end of the session: choose and hold before it. */
  enter(pass = {}) {
    this.pass = pass;
    show("basket");
    this.types?.code.standBehind();
    this.render();
    this.#countDown();
  }

  #countDown() {
    const until = this.pass.expires_at;
    this.#stop();
    show("session", Boolean(until));
    if (until) this.#stop = countdown(until, (seconds) => this.#tick(seconds), this.timeUp);
  }

  #longer(pass) {
    Object.assign(this.pass, pass);
    this.#countDown();
    byId("choosing-title").focus();
  }

  /** Announces the end in advance; tickets held by then stay held. */
  #tick(seconds) {
    this.moreTime.offer(seconds, `/events/${this.eventId}/queue/pass/extend`, this.pass.checkout_key);
    write("session-clock", remaining(seconds));
    const soon = seconds <= SOON_S ? texts.session_soon : "";
    byId("session").toggleAttribute("data-soon", Boolean(soon));
    write("session-soon", soon);
    this.moreTime.speak(seconds, texts.seconds_to_choose, soon);
  }

  leave() {
    this.#stop();
    this.close();
    show("basket", false);
  }

  /** Opens a seat plan and keeps it current while it is open. */
  async open(sectionId) {
    const section = this.stock.sections.get(sectionId);
    byId("journey").dataset.plan = "open";
    this.sections.mark(sectionId);
    write("seats-title", section.name);
    if (this.plan.sectionId !== sectionId) this.plan.clear();
    this.openId = sectionId;
    show("seat-panel");
    byId("seats").setAttribute("aria-busy", "true");
    await this.#refresh();
    byId("seats-title").focus({ preventScroll: true });
    byId("seat-panel").scrollIntoView({ block: "start" });
  }

  /** The states of all seats, while they are known, replace asking for pages of seats. */
  follow(states) {
    this.states?.removeEventListener("change", this.heard);
    this.states = states;
    this.heard = ({ detail }) => this.#restate(detail);
    states?.addEventListener("change", this.heard);
  }

  /** The code that was typed, where codes open places; the states know which seats are free for this fan. */
  get #code() {
    return this.stock.codeOpensPlaces && !this.states?.known ? this.basket.code : "";
  }

  #codeChanged() {
    if (this.openId && this.codeShown !== this.#code) this.#refresh();
  }

  #restate(seats) {
    const { geometry } = this.states;
    this.plan.restate(seats.map((seat) => geometry.nameOf(seat).id), (id) => this.#stateOf(id));
    this.#lose();
    this.single.look();
  }

  #stateOf(seatId) {
    return this.states.stateOf(this.states.geometry.seatOf(seatId));
  }

  /** The rows of a section as they are known at this moment. */
  #hallOf(sectionId) {
    if (this.states?.known) {
      const { geometry } = this.states;
      const { first, rows, seats } = geometry.byId.get(sectionId);
      const nameOf = (n) => {
        const { id, row, number, nth } = geometry.nameOf(n);
        const price_minor = priceOfRow(this.stock.sections.get(sectionId), nth);
        return { seat_id: id, row, label: number, nth, ...this.states.stateOf(n), price_minor };
      };
      const row = (n) => Array.from({ length: seats }, (_, i) => nameOf(first + n * seats + i));
      return { count: rows, row, of: (seatId) => Math.floor((geometry.seatOf(seatId) - first) / seats) };
    }
    const rows = [...byRow(this.seats.get(sectionId) ?? []).values()];
    const nth = new Map(rows.flatMap((seats, n) => seats.map((seat) => [seat.seat_id, n])));
    return { count: rows.length, row: (n) => rows[n], of: (seatId) => nth.get(seatId) ?? -1 };
  }

  /** Seats of the selection that others have by now. What this fan asks for may be theirs, until an answer says. */
  #lose() {
    const asking = [byId("hold"), byId("best-find")].some((button) => button.ariaBusy === "true");
    if (asking || this.unsure || !this.states?.known || this.states.waits) return;
    const lost = [...this.basket.seats.keys()].filter((id) => this.#stateOf(id).status !== "available");
    if (lost.length > 0) this.#tellLost(lost);
  }

  #tellLost(lost) {
    this.basket.drop(lost);
    const seats = lost.map((id) => seatName(id, this.stock.sections)).join("; ");
    trouble(fill(texts.somebody_faster, { seats }));
  }

  close() {
    clearTimeout(this.#timer);
    const from = this.openId;
    this.openId = null;
    delete byId("journey").dataset.plan;
    show("seat-panel", false);
    this.sections.mark(null);
    this.plan.clear();
    if (from) byId(`section-${from}`).querySelector("button").focus();
  }

  render() {
    const { basket, stock } = this;
    const listed = this.types ? [] : [...basket.seats.keys()]; // with their price types elsewhere
    const seats = listed.map((id) => seatName(id, stock.sections));
    const ga = [...basket.ga.values()].map((line) => fill(texts.several, { n: line.quantity, name: line.name }));
    write("basket-count", basket.count > 0 ? fill(texts.tickets, { n: basket.count }) : texts.basket_empty);
    const hint = basket.count === 0 ? fill(texts.basket_hint, { n: basket.limit }) : "";
    write("basket-list", [...seats, ...ga].join(" · ") || hint);
    this.#total();
    disable(byId("hold"), basket.count === 0);
    this.single.look();
  }

  /** Shows only the total of the latest selection; no total rather than a partial one. */
  async #total() {
    const { lines } = this.basket;
    const mine = (this.totalling = JSON.stringify(lines));
    if (lines.length === 0) return write("basket-total", "");
    const whole = await this.prices.together(lines).catch(() => "");
    return mine === this.totalling && write("basket-total", whole);
  }

  async #refresh() {
    clearTimeout(this.#timer);
    const sectionId = this.openId;
    this.codeShown = this.#code;
    try {
      const known = this.states?.known && this.seats.get(sectionId);
      const seats = known || (await this.stock.seats(sectionId, this.#code));
      this.seats.set(sectionId, seats);
      if (this.openId !== sectionId) return;
      await this.prices.learn(seats.map((seat) => seat.price_minor)).catch(() => {});
      this.plan.render(sectionId, seats, this.stock.sections);
      if (this.states?.known) return this.#restate(seats.map((seat) => this.states.geometry.seatOf(seat.seat_id)));
      this.#timer = setTimeout(() => this.#refresh(), REFRESH_MS * Math.ceil(seats.length / 500));
    } catch (problem) {
      trouble(problem.message);
      this.#timer = setTimeout(() => this.#refresh(), REFRESH_MS);
    } finally {
      byId("seats").removeAttribute("aria-busy");
    }
  }

  picked(seat) {
    trouble(null);
    const mine = this.basket.seats.has(seat.seat_id);
    if (seat.status !== "available" && !mine) announce(texts.seat_taken);
    else if (!this.basket.toggle(seat)) trouble(fill(texts.basket_full, { n: this.basket.limit }));
    else this.#spoken(seat, mine ? texts.seat_put_back : texts.seat_picked);
  }

  #spoken(seat, what) {
    announce(`${fill(what, { seat: seatName(seat.seat_id, this.stock.sections) })} ${fill(texts.tickets, { n: this.basket.count })} ${this.single.words}`.trim());
  }

  async #hold() {
    const button = byId("hold");
    if (button.ariaBusy === "true") return;
    if (this.basket.count === 0) return trouble(texts.pick_first);
    button.ariaBusy = "true";
    trouble(null);
    try {
      const path = `/events/${this.eventId}/reservations`;
      this.held(await ask("POST", path, { body: this.basket.wish, key: this.basket.key, patience: 4 }));
      this.unsure = false;
    } catch (problem) {
      this.#refused(problem);
    } finally {
      button.ariaBusy = "false";
    }
  }

  #refused(problem) {
    this.unsure = problem.unknown;
    if (!problem.unknown) {
      this.basket.renewKey();
      this.states?.dispatchEvent(new Event("refused"));
    }
    if (problem.slug === "single-seat") return this.single.refused(problem);
    if (this.types?.tell(problem, byId("basket"), byId("sections"))) return undefined;
    if (problem.slug !== "seats-taken") return trouble(refusalWords(problem, this.stock.sections));
    const taken = problem.members.seats ?? [];
    this.plan.restate(taken, () => ({ status: "reserved", kept: undefined }));
    return this.#tellLost(taken);
  }
}

