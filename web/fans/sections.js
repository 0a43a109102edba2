// The list of sections: name, price and availability for everybody; a button for fans who may buy.
import { byId, disable, element, show, write } from "./dom.js";
import { isShown } from "./trait_ids.js";
import { count, fill } from "./words.js";

/** What some places of a section are besides their price. */
export const SECTION_TRAITS = {
  wheelchair: texts.traits_wheelchair, companion: texts.traits_companion,
  restricted_view: texts.traits_restricted_view, easy_access: texts.traits_easy_access,
};

/** The same in words, for the section's line. */
export const sectionTraits = ({ traits = [] }) => Object.keys(SECTION_TRAITS).filter((id) => traits.includes(id)).map((id) => SECTION_TRAITS[id]).join(texts.list_comma);

export class Sections {
  #rows = new Map();

  /** Calls `open(sectionId)` for a seat plan; the selection counts general admission. */
  constructor({ stock, basket, prices, filter, open }) {
    Object.assign(this, { stock, basket, prices, filter, open });
    filter.addEventListener("change", () => this.render());
    prices.addEventListener("change", () => this.render());
    stock.addEventListener("change", () => this.render());
    basket.addEventListener("change", () => this.render());
  }

  render() {
    for (const section of this.stock.sections.values()) {
      const row = this.#rows.get(section.section_id) ?? this.#add(section);
      this.#update(row, section);
    }
  }

  /** Counts general admission in another way: `counter(section)` has its `node` and `update(available)`. */
  countBy(counter) {
    this.counter = counter;
    this.#rows.clear();
    this.render();
  }

  /** Marks the section whose plan is open. */
  mark(sectionId) {
    for (const [id, row] of this.#rows) row.item.toggleAttribute("data-open", id === sectionId);
  }

  #add(section) {
    const left = element("p", { class: "left" });
    const price = element("p", { class: "price" });
    const bar = element("div", { class: "bar", "aria-hidden": "true" });
    const action = section.kind === "ga" ? (this.counter?.(section) ?? this.#stepper(section)) : this.#opener(section);
    const item = element(
      "li",
      { class: "section", id: `section-${section.section_id}` },
      element("h3", {}, section.name),
      price,
      left,
      section.traits?.length > 0 ? element("p", { class: "small traits" }, sectionTraits(section)) : null,
      action.node,
      bar,
    );
    const rendered = byId(item.id); // the document came with it
    if (rendered) rendered.replaceWith(item);
    else byId("sections").append(item);
    const row = { item, price, left, bar, action };
    this.#rows.set(section.section_id, row);
    return row;
  }

  #update({ item, price, left, bar, action }, section) {
    show(item, isShown(this.filter, section.traits));
    write(price, priceOf(section, this.prices));
    const { available_seats: available, total_seats: total, kind } = section;
    if (available === undefined) return;
    const mayHave = kind === "ga" && (this.basket.code || this.stock.laneOpensPlaces) ? section.reserved_seats : 0;
    write(left, available > 0 ? fill(texts.left_of, { n: available, total }) : noneLeft(section));
    bar.style.setProperty("--share", total > 0 ? available / total : 0);
    item.toggleAttribute("data-none", available + mayHave === 0);
    item.toggleAttribute("data-few", available > 0 && available / total < 0.1);
    action.update(available + mayHave);
  }

  #opener(section) {
    const node = element("button", { type: "button", class: "quiet action" }, texts.choose_seats);
    node.setAttribute("aria-label", fill(texts.choose_seats_in, { name: section.name }));
    node.addEventListener("click", () => this.open(section.section_id));
    return { node, update: () => {} };
  }

  #stepper(section) {
    const id = section.section_id;
    const less = element("button", { type: "button", class: "step", "aria-label": fill(texts.one_less, { name: section.name }) }, "−");
    const more = element("button", { type: "button", class: "step", "aria-label": fill(texts.one_more, { name: section.name }) }, "+");
    const output = element("output", { "aria-live": "polite", "aria-label": fill(texts.tickets_for, { name: section.name }) });
    const add = (change) => () => this.basket.setQuantity(section, this.basket.quantity(id) + change);
    less.addEventListener("click", add(-1));
    more.addEventListener("click", add(1));
    const update = (available) => {
      const quantity = this.basket.quantity(id);
      write(output, count(quantity));
      disable(less, quantity === 0);
      disable(more, this.basket.full || quantity >= available);
    };
    const attributes = { class: "stepper action", role: "group", "aria-label": section.name };
    return { node: element("div", attributes, less, output, more), update };
  }
}

/** Why nobody can have a ticket without a code or a lane. */
function noneLeft({ reserved_seats: reserved, held_seats: held }) {
  if (reserved > 0) return fill(texts.all_reserved, { n: reserved });
  return held > 0 ? fill(texts.all_held, { n: held }) : texts.state_sold_out;
}

/** The section's price is the lowest of its rows' prices. */
function priceOf(section, prices) {
  const price = prices.one(section.price_minor);
  return section.price_levels?.length > 0 ? fill(texts.price_from, { price }) : price;
}
