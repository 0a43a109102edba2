// Places for wheelchair users among the best available: how many, and how many places next to them for who comes along.
// They are counted besides the other tickets, at the price types that are for such places, if there are any.
import { byId, element, trouble } from "../dom.js";
import { fill } from "../words.js";
import { FAULTS } from "./choice.js";
import { Steps } from "./steps.js";

const ROWS = [
  { type_id: "wheelchair", trait: "wheelchair", name: texts.access_wheelchair },
  { type_id: "companion", trait: "companion", name: texts.access_companion, note: texts.access_next },
];

export class Accessible extends EventTarget {
  #numbers = new Map(ROWS.map((row) => [row, 0]));

  /** `types` may be missing. */
  constructor({ fact, prices, basket, types }) {
    super();
    Object.assign(this, { fact, prices, types, limit: basket.limit });
    if (!types) byId("best-quantity").prepend(element("option", { value: 0 }, fill(texts.tickets, { n: 0 })));
    const [chairs] = ROWS;
    const steps = new Steps({
      types: { addEventListener() {}, offers: () => true, gone: (row) => row !== chairs && this.#numbers.get(chairs) === 0, notes: (row) => this.#note(row) },
      name: texts.access_title,
      options: () => ROWS.map((row) => [row, this.#price(row)]),
      quantity: (row) => this.#numbers.get(row),
      set: (row, n) => this.#set(row, n),
      full: () => this.#total >= this.limit,
    });
    const node = element("details", { class: "access", id: "access" }, element("summary", {}, texts.access_title), steps.node);
    byId("best-groups").before(node);
    for (const part of [prices, types]) part?.addEventListener("change", () => steps.update());
    this.addEventListener("change", () => steps.update());
    this.steps = steps;
    steps.update();
  }

  get #total() {
    return [...this.#numbers.values()].reduce((sum, n) => sum + n, 0);
  }

  #set(row, n) {
    this.#numbers.set(row, n);
    const [chairs, companions] = ROWS;
    if (this.#numbers.get(chairs) === 0) this.#numbers.set(companions, 0);
    byId("best").dispatchEvent(new Event("change"));
    this.dispatchEvent(new Event("change"));
  }

  /** The price type for such places, or a companion's that comes with the one of wheelchair places; without one they cost
   * what others do. */
  #type({ trait }) {
    const offered = this.types?.list.filter((type) => this.types.offers(type)) ?? [];
    const own = offered.find((type) => type.traits.includes(trait));
    if (own || trait !== "companion") return own;
    const guest = this.#type(ROWS[0]) ?? this.types?.usual;
    const sections = this.fact.sections.filter(({ traits = [] }) => traits.includes("wheelchair"));
    const everywhere = ({ type_id: id }) => sections.every(({ prices = {} }) => id in prices);
    return offered.find((type) => type.traits.length === 0 && type.companion_of.includes(guest.type_id) && everywhere(type));
  }

  #note(row) {
    const type = this.#type(row);
    return [row.note, type && this.types.notes(type)].filter(Boolean).join(" · ");
  }

  #price(row) {
    const type = this.#type(row);
    const sections = this.fact.sections.filter(({ traits = [] }) => traits.includes(row.trait));
    const places = sections.flatMap((section) => [section, ...(section.price_levels ?? [])]);
    const minors = [...new Set(places.map((place) => (type ? place.prices[type.type_id] : place.price_minor)))];
    if (minors.length === 0) return "";
    const least = Math.min(...minors);
    const price = type ? this.types.price(type, least) : this.prices.one(least);
    return minors.length > 1 ? fill(texts.price_from, { price }) : price;
  }

  /** A wish for the best available with these places, too. A companion's price is for one with each wheelchair. */
  with(best) {
    const [wheelchair, companions] = ROWS.map((row) => this.#numbers.get(row));
    if (wheelchair === 0) return best;
    const types = { ...best.types };
    for (const [row, n] of [[ROWS[0], wheelchair], [ROWS[1], Math.min(wheelchair, companions)]]) {
      const type = this.#type(row);
      if (type && n > 0) types[type.type_id] = (types[type.type_id] ?? 0) + n;
    }
    return { ...best, quantity: best.quantity + wheelchair + companions, wheelchair, companions, ...(this.types && { types }) };
  }

  /** Tells that there are not so many together; false for any other problem. */
  tell({ slug, members }) {
    if (slug !== "no-accessible-places") return false;
    const { wheelchair, companions } = members;
    const text = fill(texts.access_left, { wheelchair, companions });
    byId("access").open = true;
    FAULTS.get(this.steps.node.firstElementChild)(text);
    trouble(text);
    return true;
  }
}
