// Price types of an event: what each is called, who may buy it, and what it costs at a place. The server decides all of it;
// the page offers what a fan may buy as far as it knows, and shows a refusal at the ticket that it names.
import { ask } from "../api.js";
import { byId, element, show, trouble } from "../dom.js";
import { money, seat as seatName } from "../format.js";
import { LOCALE, fill } from "../words.js";
import { FAULTS } from "./choice.js";
import { Code } from "./code.js";
import { HeldTickets } from "./held_tickets.js";
import { SeatTypes } from "./seat_types.js";
import { Steps } from "./steps.js";

export { Accessible } from "./accessible.js";
export { Code } from "./code.js";

const ASKED_AT_ONCE = 100;
const LOOK_EVERY_MS = 10_000;
const AND = new Intl.ListFormat(LOCALE, { type: "conjunction" });
const OR = new Intl.ListFormat(LOCALE, { type: "disjunction" });

document.head.append(element("link", { rel: "stylesheet", href: TYPES_STYLE }));

export class Types extends EventTarget {
  HeldTickets = HeldTickets;
  #allIn = new Map();
  #wanted = [];
  #best = new Map();

  constructor({ fact, line, stock, basket, prices, sections }) {
    super();
    Object.assign(this, { fact, line, stock, basket, prices, list: fact.price_types });
    [this.usual] = this.list;
    for (const [type, minors] of Object.entries(prices.rules.all_in_by_type ?? {})) this.#know(type, minors);
    this.byId = new Map(this.list.map((type) => [type.type_id, type]));
    for (const part of [stock, basket, prices]) part.addEventListener("change", () => this.#changed());
    sections.countBy((section) => this.#counter(section));
    this.code = new Code({ fact, basket, types: this }, byId("best"));
    this.seats = new SeatTypes(this);
    this.#lookOften();
  }

  #changed() {
    this.dispatchEvent(new Event("change"));
  }

  /** The stream does not say how many are left of a type. */
  #lookOften() {
    if (this.stock.types.size === 0) return;
    const choosing = () => !document.hidden && !byId("choosing").hidden;
    setInterval(() => choosing() && this.stock.look().catch(() => {}), LOOK_EVERY_MS);
  }

  // -- who may buy what -------------------------------------------------------------------------------------------------

  /** Types that need a code. */
  get locked() {
    return this.list.filter((type) => type.code_required && this.#forLane(type));
  }

  #forLane({ lanes }) {
    return lanes.length === 0 || lanes.includes(this.line.place?.lane ?? 0);
  }

  /** Whether to offer a type, as far as the page knows. */
  offers(type) {
    return this.#forLane(type) && (!type.code_required || Boolean(this.basket.code));
  }

  gone({ type_id: id }) {
    return this.stock.types.get(id) === 0;
  }

  /** The types that are sold at a place, with their prices before fees: `[type, minor]`. */
  at({ price_minor: usual, prices = {} }) {
    const others = this.list.slice(1).filter(({ type_id: id }) => id in prices);
    return [[this.usual, usual], ...others.map((type) => [type, prices[type.type_id]])];
  }

  /** A seat as the map knows it has the prices of its row, but for types of certain places only; the hold has all. */
  atSeat(seat) {
    if (seat.prices) return this.at(seat);
    const section = this.stock.sections.get(seat.seat_id.split("-")[0]);
    const level = (section.price_levels ?? []).find(({ rows: [first, last] }) => first <= seat.nth && seat.nth <= last);
    const found = this.at({ ...seat, prices: (level ?? section).prices });
    return found.filter(([{ traits }]) => traits.length === 0);
  }

  name(typeId) {
    return this.byId.get(typeId ?? this.usual.type_id)?.name ?? typeId;
  }

  names(typeIds, list = AND) {
    return list.format(typeIds.map((id) => this.name(id)));
  }

  /** What a fan has to know of a type before choosing it. */
  notes(type) {
    const left = this.stock.types.get(type.type_id);
    return [
      type.companion_of.length > 0 && fill(texts.type_companion, { types: this.names(type.companion_of, OR) }),
      type.proof && fill(texts.ticket_proof, { proof: type.proof }),
      type.per_order && fill(texts.type_per_order, { n: type.per_order }),
      left !== undefined && (left > 0 ? fill(texts.type_left, { n: left }) : texts.type_gone),
    ].filter(Boolean).join(" · ");
  }

  // -- what it costs ----------------------------------------------------------------------------------------------------

  /** The text of one ticket of a type at this price, with all fees and taxes once they are known. */
  price(type, minor) {
    if (type === this.usual) return this.prices.one(minor);
    const key = `${minor}:${type.type_id}`;
    const whole = this.#allIn.get(key);
    if (whole === undefined) this.#want(key);
    return whole === undefined || whole === null ? fill(texts.price_plus_fees, { price: this.#money(minor) }) : this.#money(whole);
  }

  label(type, minor) {
    return fill(texts.type_price, { type: type.name, price: this.price(type, minor) });
  }

  #money(minor) {
    return money(minor, this.prices.currency);
  }

  /** Asks for all that is wanted at once. */
  #want(key) {
    this.#allIn.set(key, null);
    if (this.#wanted.push(key) === 1) queueMicrotask(() => this.#learn(this.#wanted.splice(0)));
  }

  async #learn(keys) {
    for (let n = 0; n < keys.length; n += ASKED_AT_ONCE) {
      const query = keys.slice(n, n + ASKED_AT_ONCE).map((key) => `each_of_type=${key}`).join("&");
      const { all_in_by_type: found = {} } = await ask("GET", `${this.prices.path}?${query}`, { patience: 3 }).catch(() => ({}));
      for (const [type, minors] of Object.entries(found)) this.#know(type, minors);
    }
    this.#changed();
  }

  #know(type, minors) {
    for (const [minor, whole] of Object.entries(minors)) this.#allIn.set(`${minor}:${type}`, whole);
  }

  // -- numbers of tickets by type ---------------------------------------------------------------------------------------

  /** In place of the number of a section of general admission. */
  #counter(section) {
    const { section_id: id, name } = section;
    const of = (type) => (type === this.usual ? undefined : type.type_id);
    let available = Infinity;
    const steps = new Steps({
      types: this,
      name,
      ticket: id,
      options: () => this.at(this.stock.sections.get(id)).map(([type, minor]) => [type, this.price(type, minor), minor]),
      quantity: (type) => this.basket.quantity(id, of(type)),
      set: (type, n, minor) => {
        const priced = of(type) && { type_id: type.type_id, type_minor: minor };
        this.basket.setQuantity({ ...section, name: fill(texts.ticket_type, { place: name, type: type.name }), ...priced }, n);
      },
      full: () => this.basket.full || this.list.reduce((sum, type) => sum + this.basket.quantity(id, of(type)), 0) >= available,
    });
    steps.node.classList.add("action");
    return { node: steps.node, update: (left) => { available = left; steps.update(); } };
  }

  /** In place of the number of the best available. */
  countBest(form, limit) {
    const changed = () => {
      form.dispatchEvent(new Event("change"));
      this.#changed();
    };
    this.#best.set(this.usual, Math.min(2, limit));
    const total = () => [...this.#best.values()].reduce((sum, n) => sum + n, 0);
    const steps = new Steps({
      types: this,
      name: texts.best_title,
      options: () => this.#anywhere(),
      quantity: (type) => this.#best.get(type) ?? 0,
      set: (type, n) => {
        this.#best.set(type, Math.max(0, Math.min(n, limit - total() + (this.#best.get(type) ?? 0))));
        changed();
      },
      full: () => total() >= limit,
    });
    const one = byId("best-quantity");
    for (const node of [one, ...one.labels]) show(node, false);
    one.before(steps.node);
    this.addEventListener("change", () => steps.update());
    steps.update();
  }

  /** Types that the server may choose places for, with their lowest prices. */
  #anywhere() {
    const places = this.fact.sections.flatMap((section) => [section, ...(section.price_levels ?? [])]);
    return this.list.filter(({ traits }) => traits.length === 0).flatMap((type) => {
      const found = places.flatMap((place) => this.at(place)).filter(([each]) => each === type);
      const minors = [...new Set(found.map(([, minor]) => minor))];
      if (minors.length === 0) return [];
      const price = this.price(type, Math.min(...minors));
      return [[type, minors.length > 1 ? fill(texts.price_from, { price }) : price]];
    });
  }

  /** What the best available are to be. */
  get best() {
    const numbers = [...this.#best].filter(([type, n]) => n > 0 && this.offers(type));
    const types = Object.fromEntries(numbers.filter(([type]) => type !== this.usual).map(([{ type_id: id }, n]) => [id, n]));
    return { quantity: numbers.reduce((sum, [, n]) => sum + n, 0), types };
  }

  // -- refusals ---------------------------------------------------------------------------------------------------------

  /** Why a price type was refused, in words; empty for any other problem. */
  words({ slug, members }) {
    const { type_id: type, allowed: n } = members;
    if (slug === "sold-out") return this.#usedUp(members.available ?? {});
    if (slug !== "price-type-refused") return "";
    const values = { type: this.name(type) };
    const companion = () => fill(texts.refused_companion, { ...values, n, types: this.names(this.byId.get(type).companion_of, OR) });
    return {
      place: () => fill(texts.refused_place, values),
      lane: () => fill(texts.refused_lane, values),
      code: () => fill(this.basket.code ? texts.refused_code : texts.refused_without_code, values),
      "per-order": () => fill(texts.refused_per_order, { ...values, n }),
      companion,
    }[members.reason]?.() ?? "";
  }

  #usedUp(available) {
    const used = Object.entries(available).filter(([id]) => id.startsWith("~"));
    return used.map(([id, n]) => fill(n > 0 ? texts.refused_left : texts.refused_gone, { n, type: this.name(id.slice(1)) })).join(" ");
  }

  /** Tells a refusal of a price type at its tickets, and altogether; false for any other problem. */
  tell(problem, ...within) {
    const text = this.words(problem);
    if (!text) return false;
    const { type_id: type, tickets = [], available = {} } = problem.members;
    const types = type ? [type] : Object.keys(available).map((id) => id.slice(1));
    if (available) this.stock.look().catch(() => {});
    if (problem.members.reason === "code") this.code.refuse(text);
    const all = within.flatMap((part) => [...part.querySelectorAll("[data-of-type]")]);
    const concerned = all.filter(({ dataset: { ofType, ticket } }) =>
      types.includes(ofType) && (tickets.length === 0 || tickets.includes(ticket) || tickets.includes(ofType)));
    const shown = concerned.filter((node) => node.checkVisibility());
    for (const node of shown) FAULTS.get(node)(text);
    trouble(text);
    shown[0]?.querySelector(":is(select, [role=group] > button:not([aria-disabled]))")?.focus();
    return true;
  }

  /** The name of a place, as fans read it. */
  place(sectionId, seatId) {
    return seatId ? seatName(seatId, this.stock.sections) : (this.stock.sections.get(sectionId)?.name ?? sectionId);
  }
}
