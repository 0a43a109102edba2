// The choice of one ticket's price type, and an error at it.
import { element, show, write } from "../dom.js";
import { fill } from "../words.js";

let made = 0;
/** How an error is shown at a list item, or taken away. */
export const FAULTS = new WeakMap();

/** A `select` of the types at a place with their prices, in a list item that says the place. `options()` are `[type, minor]`;
 * calls `chosen(type, minor)`. */
export class Choice {
  #shown = "";

  constructor({ types, ticket, place, typeId, options, chosen }) {
    Object.assign(this, { types, options, typeId: typeId ?? types.usual.type_id });
    const id = `choice-${(made += 1)}`;
    this.select = element("select", { id, "aria-label": fill(texts.type_of, { place }), "aria-describedby": `${id}-note` });
    this.note = element("p", { class: "small type-note", id: `${id}-note` });
    this.node = element("li", { "data-ticket": ticket }, element("span", {}, place), this.select, this.note);
    this.select.addEventListener("change", () => {
      const [type, minor] = this.options().find(([{ type_id: of }]) => of === this.select.value);
      this.fault("");
      chosen(type, minor);
    });
    FAULTS.set(this.node, (text) => this.fault(text));
    this.update();
  }

  /** Its options at their prices, if they are others than are shown. */
  update() {
    const { types } = this;
    const offered = this.options().filter(([type]) => types.offers(type) || type.type_id === this.typeId);
    const listed = offered.map(([type, minor]) => [type.type_id, types.label(type, minor), types.gone(type) && type.type_id !== this.typeId]);
    this.node.dataset.ofType = this.typeId;
    const type = types.byId.get(this.typeId);
    if (!this.wrong) write(this.note, type ? types.notes(type) : "");
    show(this.note, Boolean(this.note.textContent));
    const shown = JSON.stringify([this.typeId, listed]);
    if (shown === this.#shown) return;
    this.#shown = shown;
    this.select.replaceChildren(...listed.map(([value, label, disabled]) => element("option", { value, disabled }, label)));
    this.select.value = this.typeId;
  }

  fault(text) {
    this.wrong = Boolean(text);
    this.note.classList.toggle("field-error", this.wrong);
    this.select.setAttribute("aria-invalid", String(this.wrong));
    write(this.note, text);
    this.update();
  }
}
