// The selection before anything is held: seats and general-admission tickets, up to a limit.
import { freshKey } from "./api.js";

export class Basket extends EventTarget {
  seats = new Map();
  ga = new Map();
  key = freshKey();

  constructor(limit) {
    super();
    this.limit = limit;
  }

  get count() {
    return this.seats.size + [...this.ga.values()].reduce((sum, line) => sum + line.quantity, 0);
  }

  /** `[price, quantity]` of each line of an order of this selection. */
  get lines() {
    const seats = [...this.seats.values()].map((seat) => [seat.price_minor, 1]);
    return [...seats, ...[...this.ga.values()].map((line) => [line.price_minor, line.quantity])];
  }

  get full() {
    return this.count >= this.limit;
  }

  /** Selects or deselects a seat; false if the limit is reached. */
  toggle(seat) {
    if (!this.seats.delete(seat.seat_id)) {
      if (this.full) return false;
      this.seats.set(seat.seat_id, seat);
    }
    this.#changed();
    return true;
  }

  /** Takes other seats at the same price: `instead` has them by the ids of those that they are for. */
  exchange(instead) {
    const taken = ([id, seat]) => (instead.has(id) ? [instead.get(id).seat_id, { ...seat, ...instead.get(id) }] : [id, seat]);
    this.seats = new Map([...this.seats].map(taken));
    this.#changed();
  }

  drop(seatIds) {
    for (const seatId of seatIds) this.seats.delete(seatId);
    this.#changed();
  }

  setQuantity(section, quantity) {
    this.ga.delete(section.section_id);
    const room = Math.max(0, Math.min(quantity, this.limit - this.count));
    if (room > 0) this.ga.set(section.section_id, { ...section, quantity: room });
    this.#changed();
  }

  quantity(sectionId) {
    return this.ga.get(sectionId)?.quantity ?? 0;
  }

  clear() {
    this.seats.clear();
    this.ga.clear();
    this.#changed();
  }

  /** The request body of a reservation. */
  get wish() {
    const wish = {};
    if (this.seats.size > 0) wish.seats = [...this.seats.keys()];
    if (this.ga.size > 0) wish.ga = [...this.ga].map(([sectionId, { quantity }]) => ({ section_id: sectionId, quantity }));
    return wish;
  }

  /** After a definite answer the next try has a new key; without an answer it must use the same key again. */
  renewKey() {
    this.key = freshKey();
  }

  #changed() {
    this.renewKey();
    this.dispatchEvent(new Event("change"));
  }
}
