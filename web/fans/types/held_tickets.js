// The tickets of a hold, one a line, each with the choice of its price type and a button that returns it. Another type keeps
// the place and its time; the new total is told once all fees are in it.
import { ask } from "../api.js";
import { announce, byId, element, trouble } from "../dom.js";
import { fill } from "../words.js";
import { Choice } from "./choice.js";

export class HeldTickets {
  #asking = false;
  #choices = [];
  #changing = Promise.resolve();

  /** Calls `kept(reservation)` with what is held now, `last()` if the only ticket is to go, `refused(problem)` if nothing
   * changed for another reason than a price type. */
  constructor({ eventId, types, kept, last, refused }) {
    Object.assign(this, { eventId, types, kept, last, refused, node: byId("held-tickets") });
    this.node.classList.add("type-choices");
    types.addEventListener("change", () => this.#choices.forEach((choice) => choice.update()));
  }

  render({ reservation_id: id, tickets }) {
    this.path = `/events/${this.eventId}/reservations/${id}`;
    this.tickets = tickets.flatMap((ticket) => Array.from({ length: ticket.quantity }, () => ({ ...ticket, quantity: 1 })));
    this.#choices = this.tickets.map((ticket, n) => this.#line(ticket, n));
    this.node.replaceChildren(...this.#choices.map(({ node }) => node));
    this.types.code.standBehind(this.node);
  }

  lock(locked) {
    for (const control of this.node.querySelectorAll(":is(button,select)")) control.disabled = locked;
  }

  #line({ section_id: section, seat_id: seat, type_id: typeId, prices }, n) {
    const { types } = this;
    const place = types.place(section, seat);
    const options = () => types.list.filter(({ type_id: of }) => of in prices).map((type) => [type, prices[type.type_id]]);
    const choice = new Choice({ types, ticket: seat ?? section, place, typeId, options, chosen: (type) => this.#change(n, place, type) });
    const button = element("button", { type: "button", class: "plain", "aria-label": fill(texts.remove_named, { name: place }) }, texts.remove);
    button.addEventListener("click", () => this.#remove(n, place));
    choice.select.after(button);
    return choice;
  }

  /** Changes follow each other, however fast they are chosen; an earlier one may have moved the tickets of a section. */
  #change(n, place, type) {
    const choice = this.#choices[n];
    const held = this.tickets[n];
    choice.typeId = type.type_id;
    choice.update();
    const back = () => {
      choice.typeId = held.type_id;
      choice.update();
    };
    this.#changing = this.#changing.catch(() => {}).then(() => this.#changed(held, this.#find(held, n), place, type, back));
  }

  /** Where a ticket is: one of a section without seats is any of its type. */
  #find({ section_id: section, seat_id: seat, type_id: typeId }, n) {
    const isIt = (ticket) => (seat ? ticket.seat_id === seat : ticket.section_id === section && !ticket.seat_id && ticket.type_id === typeId);
    return isIt(this.tickets[n] ?? {}) ? n : this.tickets.findIndex(isIt);
  }

  async #changed(held, n, place, { type_id: typeId, name }, back) {
    const { seats, ga } = parts(this.tickets.map((ticket, m) => (m === n ? { ...ticket, type_id: typeId } : ticket)));
    const types = Object.fromEntries(seats.map(({ seat_id: seat, type_id: type }) => [seat, type]));
    const { code } = this.types.basket;
    const changed = n >= 0 && (await this.#ask("types", { types, ga, ...(code && { code }) }));
    if (!changed) return back();
    this.#choices[this.#find({ ...held, type_id: typeId }, n)]?.select.focus();
    await changed.quoted;
    return announce(fill(texts.type_changed, { place, type: name, total: byId("held-total").textContent }));
  }

  async #remove(n, name) {
    const left = this.tickets.filter((_, m) => m !== n);
    if (left.length === 0) return this.last();
    const { seats, ga } = parts(left);
    if (!(await this.#ask("keep", { seats: seats.map((ticket) => ticket.seat_id), ga }))) return undefined;
    this.#choices[Math.min(n, left.length - 1)].node.querySelector("button").focus();
    return announce(`${fill(texts.removed, { name })} ${fill(texts.tickets_left, { n: left.length })}`);
  }

  /** Null if it was refused, or if another request is under way. */
  async #ask(what, body) {
    if (this.#asking) return null;
    this.#asking = true;
    trouble(null);
    try {
      return { quoted: this.kept(await ask("POST", `${this.path}/${what}`, { body })) };
    } catch (problem) {
      if (!this.types.tell(problem, this.node)) await this.refused(problem);
      return null;
    } finally {
      this.#asking = false;
    }
  }
}

/** Single tickets as a request names them. */
function parts(tickets) {
  const ga = new Map();
  for (const { section_id, seat_id: seat, type_id } of tickets) {
    const key = `${section_id} ${type_id}`;
    if (!seat) ga.set(key, { section_id, type_id, quantity: (ga.get(key)?.quantity ?? 0) + 1 });
  }
  return { seats: tickets.filter((ticket) => ticket.seat_id), ga: [...ga.values()] };
}
