// Numbers of tickets by price type: for each type its name, its price, what a fan has to know of it, and one more or less.
import { disable, element, show, write } from "../dom.js";
import { count, fill } from "../words.js";
import { FAULTS } from "./choice.js";

export class Steps {
  #rows = new Map();

  /** `options()` are `[type, price, minor]` of all types that are sold there; `quantity(type)` and `set(type, n, minor)` have
   * the numbers, `full()` says that there may be no more. `ticket` is what a refusal calls these tickets. */
  constructor({ types, name, ticket, options, quantity, set, full }) {
    Object.assign(this, { types, name, ticket, options, quantity, set, full });
    this.node = element("ul", { class: "type-steps", "aria-label": name });
    types.addEventListener("change", () => this.update());
  }

  update() {
    for (const [type, price, minor] of this.options()) {
      const row = this.#rows.get(type) ?? this.#add(type, minor);
      const { types } = this;
      const quantity = this.quantity(type);
      show(row.node, types.offers(type) || quantity > 0);
      write(row.price, price);
      write(row.note, row.wrong || types.notes(type));
      row.note.classList.toggle("field-error", Boolean(row.wrong));
      write(row.output, count(quantity));
      disable(row.less, quantity === 0);
      disable(row.more, this.full() || types.gone(type));
    }
  }

  #add(type, minor) {
    const named = fill(texts.ticket_type, { place: this.name, type: type.name });
    const step = (sign, label, change) => {
      const button = element("button", { type: "button", class: "step", "aria-label": fill(label, { name: named }) }, sign);
      button.addEventListener("click", () => button.ariaDisabled !== "true" && this.#step(type, change, minor));
      return button;
    };
    const [less, more] = [step("−", texts.one_less, -1), step("+", texts.one_more, 1)];
    const output = element("output", { "aria-live": "polite", "aria-label": fill(texts.tickets_for, { name: named }) });
    const [price, note] = [element("span", { class: "type-price" }), element("span", { class: "small" })];
    const words = element("div", { class: "type-words" }, element("strong", {}, type.name), " ", price, note);
    const stepper = element("div", { class: "stepper", role: "group", "aria-label": named }, less, output, more);
    const node = element("li", { "data-of-type": type.type_id, "data-ticket": this.ticket }, words, stepper);
    this.node.append(node);
    const row = { node, price, note, output, less, more };
    this.#rows.set(type, row);
    FAULTS.set(node, (text) => this.#fault(row, text));
    return row;
  }

  #step(type, change, minor) {
    for (const row of this.#rows.values()) row.wrong = "";
    this.set(type, this.quantity(type) + change, minor);
  }

  #fault(row, text) {
    row.wrong = text;
    this.update();
  }
}
