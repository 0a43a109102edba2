// The tickets of a hold, line by line, each with a button that returns one ticket and keeps the rest.
// The request names what stays, so that repeating it does not return a second ticket.
import { ask } from "./api.js";
import { announce, byId, element } from "./dom.js";
import { seat as seatName } from "./format.js";
import { fill } from "./words.js";

export class HeldTickets {
  #asking = false;

  /** Calls `kept(reservation)` with what is left, `last()` if the only ticket is to go, `refused(problem)` if none went. */
  constructor({ eventId, stock, kept, last, refused }) {
    Object.assign(this, { eventId, stock, kept, last, refused, node: byId("held-tickets") });
  }

  render({ reservation_id: id, seats = [], ga = [] }) {
    const path = `/events/${this.eventId}/reservations/${id}/keep`;
    const each = seats.map((seat) => {
      const name = seatName(seat, this.stock.sections);
      return { told: name, name, label: texts.remove_named, rest: { seats: seats.filter((other) => other !== seat), ga } };
    });
    const counted = ga.map(({ section_id: sectionId, quantity }) => {
      const name = this.stock.sections.get(sectionId)?.name ?? sectionId;
      const fewer = ga.map((part) => (part.section_id === sectionId ? { ...part, quantity: quantity - 1 } : part));
      const rest = { seats, ga: fewer.filter((part) => part.quantity > 0) };
      const label = quantity > 1 ? texts.remove_one_of : texts.remove_named;
      return { told: fill(texts.several, { n: quantity, name }), name, label, one: quantity > 1, rest };
    });
    this.node.replaceChildren(...[...each, ...counted].map((line, n) => this.#line(line, n, path)));
  }

  lock(locked) {
    for (const button of this.node.querySelectorAll("button")) button.disabled = locked;
  }

  #line({ told, name, label, one, rest }, n, path) {
    const attributes = { type: "button", class: "plain", "aria-label": fill(label, { name }) };
    const button = element("button", attributes, one ? texts.remove_one : texts.remove);
    button.addEventListener("click", () => this.#remove(name, one ? texts.removed_one : texts.removed, rest, n, path));
    return element("li", {}, element("span", {}, told), button);
  }

  async #remove(name, removed, rest, n, path) {
    const left = rest.seats.length + rest.ga.reduce((sum, part) => sum + part.quantity, 0);
    if (this.#asking) return;
    if (left === 0) return this.last();
    this.#asking = true;
    try {
      this.kept(await ask("POST", path, { body: rest }));
      const buttons = this.node.querySelectorAll("button");
      buttons[Math.min(n, buttons.length - 1)].focus();
      announce(`${fill(removed, { name })} ${fill(texts.tickets_left, { n: left })}`);
    } catch (problem) {
      await this.refused(problem);
    } finally {
      this.#asking = false;
    }
  }
}
