// Availability by section: from the catalogue, then updated by frames.
import { ask } from "./api.js";

export class Stock extends EventTarget {
  sections = new Map();
  #heard = new Map();
  #kept = new Map();
  /** How many are left of price types of which there is a number in all. */
  types = new Map();
  currency = "EUR";

  constructor(eventId) {
    super();
    this.path = `/events/${eventId}/sections`;
  }

  /** The catalogue entry has rows and prices; counts follow with the first frame or poll. */
  describe(show) {
    this.currency = show.currency;
    this.singleSeats = show.limits.single_seats;
    this.codeOpensPlaces = show.code_opens_places;
    this.laneOpensPlaces = show.lane_opens_places;
    for (const section of show.sections) this.#merge({ total_seats: section.capacity, ...section });
  }

  async look() {
    this.hear(await ask("GET", this.path));
  }

  hear(frame) {
    for (const section of frame.sections) this.#merge(section);
    for (const { type_id: type, available } of frame.types ?? []) this.types.set(type, available);
    this.dispatchEvent(new Event("change"));
  }

  /** All seats of a section, over all pages of the API, as who has this code may have them. */
  async seats(sectionId, code = "") {
    const seats = [];
    const withCode = code && `&code=${encodeURIComponent(code)}`;
    for (let page = 1; page <= 40; page += 1) {
      const answer = await ask("GET", `${this.path}/${sectionId}/seats?page=${page}&page_size=500${withCode}`);
      seats.push(...answer.seats);
      if (answer.seats.length === 0 || seats.length >= answer.total_seats) break;
    }
    return seats;
  }

  /** So many seats more are free for this fan than for everybody, by section. */
  keep(counts) {
    this.#kept = counts;
    this.hear({ sections: [...this.#heard.values()] });
  }

  #merge(section) {
    const id = section.section_id;
    const heard = { ...this.#heard.get(id), reserved_seats: 0, ...section };
    this.#heard.set(id, heard);
    const kept = this.#kept.get(id);
    this.sections.set(id, kept ? { ...heard, available_seats: (heard.available_seats ?? 0) + kept } : heard);
  }
}
