// The selection before anything is held: seats and general-admission tickets, up to a limit. A seat or tickets may have a
// price type and its price; without one they are of the usual type.
import { freshKey } from "./api.js";

export class Basket extends EventTarget {
  seats = new Map();
  ga = new Map();
  key = freshKey();
  #code = "";

  constructor(limit) {
    super();
    this.limit = limit;
  }

  get count() {
    return this.seats.size + [...this.ga.values()].reduce((sum, line) => sum + line.quantity, 0);
  }

  /** `[price, quantity, price type]` of each line of an order of this selection. */
  get lines() {
    const line = ({ price_minor: usual, type_id: type, type_minor: minor, quantity = 1 }) => [minor ?? usual, quantity, ...(type ? [type] : [])];
    return [...this.seats.values(), ...this.ga.values()].map(line);
  }

  /** What the fan typed to open price types and places. */
  get code() {
    return this.#code;
  }

  set code(code) {
    this.#code = code;
    this.#changed();
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

  /** `price` has the `type_id` and the `type_minor` of another price type than the usual one. */
  setType(seatId, price) {
    this.seats.set(seatId, { ...this.seats.get(seatId), type_id: undefined, type_minor: undefined, ...price });
    this.#changed();
  }

  setQuantity(section, quantity) {
    const key = `${section.section_id} ${section.type_id ?? ""}`;
    this.ga.delete(key);
    const room = Math.max(0, Math.min(quantity, this.limit - this.count));
    if (room > 0) this.ga.set(key, { ...section, quantity: room });
    this.#changed();
  }

  quantity(sectionId, typeId = "") {
    return this.ga.get(`${sectionId} ${typeId}`)?.quantity ?? 0;
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
    const types = [...this.seats].filter(([, seat]) => seat.type_id).map(([id, seat]) => [id, seat.type_id]);
    if (types.length > 0) wish.types = Object.fromEntries(types);
    const part = ({ section_id, quantity, type_id }) => ({ section_id, quantity, ...(type_id && { type_id }) });
    if (this.ga.size > 0) wish.ga = [...this.ga.values()].map(part);
    if (this.code) wish.code = this.code;
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
