// The reserved seats that this fan may buy: those of the code that they typed, and of the lane by which they came. The map
// is one for all and shows them as held; the server says which of them are free, and these are laid over it.
import { ask } from "../api.js";
import { announce, element, show, trouble, write } from "../dom.js";
import { fill } from "../words.js";

/** The answer is the same for all who may buy the same, and without a body while none of these seats has changed. */
const ASK_EVERY_MS = 5_000;
const NONE = { seats: 0, free: {} };

export class Reserved {
  #timer = null;
  #asking = null;
  #watching = false;
  #shown = "";
  /** How many of them are free, in words. */
  node = element("p", { class: "small", id: "hall-kept", hidden: true });

  constructor({ fact, eventId, stock, basket, states }) {
    Object.assign(this, { fact, path: `/events/${eventId}/map/reserved`, stock, basket, states });
    basket.addEventListener("change", () => this.code !== this.#code && this.ask());
    states.addEventListener("refused", () => this.ask());
  }

  watch() {
    if (this.#watching) return;
    this.#watching = true;
    this.ask();
  }

  rest() {
    this.#watching = false;
    this.#asking = null;
    clearTimeout(this.#timer);
  }

  get #code() {
    return this.fact.code_opens_places ? this.basket.code : "";
  }

  /** Asks now, and again later if any seat is open to this fan, whose lane the server knows. What is asked for last counts. */
  async ask() {
    clearTimeout(this.#timer);
    if (!this.#watching) return;
    const asking = (this.#asking = {});
    const code = this.#code;
    const isOther = code !== this.code;
    this.code = code;
    if (!code && !this.fact.lane_opens_places) return this.#lay(NONE, isOther);
    this.states.waits ||= isOther;
    const query = code && `?code=${encodeURIComponent(code)}`;
    const answer = await ask("GET", this.path + query, { patience: 0 }).catch((problem) => problem);
    if (asking !== this.#asking) return;
    if (answer.free) this.#lay(answer, isOther || this.states.waits);
    else if (answer.slug === "too-many-wrong-codes") this.#refused(answer, isOther);
    if (answer.seats !== 0) this.#askLater(answer.retryAfterS);
  }

  #askLater(afterS) {
    const waitMs = Math.max(ASK_EVERY_MS, (afterS ?? 0) * 1000) * (0.85 + Math.random() * 0.3);
    this.#timer = setTimeout(() => (document.hidden ? this.#askLater() : this.ask()), waitMs);
  }

  /** Nobody knows what this code opens; what the one before opened is gone. */
  #refused({ message }, isOther) {
    this.#lay(NONE, isOther);
    this.states.waits = true;
    if (isOther) trouble(message);
  }

  #lay({ seats, free }, isOther) {
    const { geometry } = this.states;
    const open = new Set();
    const counts = new Map();
    for (const [id, runs] of Object.entries(free)) {
      const { first } = geometry.byId.get(id);
      for (const [from, to] of runs) for (let n = from; n <= to; n += 1) open.add(first + n);
      counts.set(id, runs.reduce((sum, [from, to]) => sum + to - from + 1, 0));
    }
    if (isOther) this.#giveUp(open);
    this.states.waits = false;
    this.states.keep(open);
    const text = seats > 0 ? fill(texts.hall_kept, { n: open.size }) : "";
    write(this.node, text);
    show(this.node, Boolean(text));
    if (isOther && text) announce(text);
    const shown = JSON.stringify([...counts]);
    if (shown !== this.#shown) this.stock.keep(counts);
    this.#shown = shown;
  }

  /** Seats of the selection that only the code before opened. */
  #giveUp(open) {
    const isGone = (seat) => this.states.isKept(seat) && !open.has(seat);
    const gone = [...this.basket.seats.keys()].filter((id) => isGone(this.states.geometry.seatOf(id)));
    if (gone.length === 0) return;
    this.basket.drop(gone);
    trouble(texts.problem_reserved_seats);
  }
}
