// The tickets of a hold, line by line, each with a button that returns one ticket and keeps the rest.
// The request names what stays, so that repeating it does not return a second ticket.
import { ask } from "./api.js";
import { announce, byId, element } from "./dom.js";
import { plural, seat as seatName } from "./format.js";

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
      return { words: name, name, rest: { seats: seats.filter((other) => other !== seat), ga } };
    });
    const counted = ga.map(({ section_id: sectionId, quantity }) => {
      const name = this.stock.sections.get(sectionId)?.name ?? sectionId;
      const fewer = ga.map((part) => (part.section_id === sectionId ? { ...part, quantity: quantity - 1 } : part));
      const rest = { seats, ga: fewer.filter((part) => part.quantity > 0) };
      return { words: `${quantity} × ${name}`, name: quantity > 1 ? `one ticket for ${name}` : name, one: quantity > 1, rest };
    });
    this.node.replaceChildren(...[...each, ...counted].map((line, n) => this.#line(line, n, path)));
  }

  lock(locked) {
    for (const button of this.node.querySelectorAll("button")) button.disabled = locked;
  }

  #line({ words, name, one, rest }, n, path) {
    const attributes = { type: "button", class: "plain", "aria-label": `Remove ${name}` };
    const button = element("button", attributes, one ? "Remove one" : "Remove");
    button.addEventListener("click", () => this.#remove(name, rest, n, path));
    return element("li", {}, element("span", {}, words), button);
  }

  async #remove(name, rest, n, path) {
    const left = rest.seats.length + rest.ga.reduce((sum, part) => sum + part.quantity, 0);
    if (this.#asking) return;
    if (left === 0) return this.last();
    this.#asking = true;
    try {
      this.kept(await ask("POST", path, { body: rest }));
      const buttons = this.node.querySelectorAll("button");
      buttons[Math.min(n, buttons.length - 1)].focus();
      announce(`Removed: ${name}. ${plural(left, "ticket")} left.`);
    } catch (problem) {
      await this.refused(problem);
    } finally {
      this.#asking = false;
    }
  }
}
