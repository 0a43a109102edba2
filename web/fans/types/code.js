// A code that opens price types. It goes with each request for tickets, and only the server knows whether it is good; until
// then the page offers what needs one to who has typed one.
import { element, fault, show, write } from "../dom.js";
import { tab } from "../memory.js";
import { fill } from "../words.js";

export class Code {
  /** The field stands behind a form of the choice, and behind the held tickets later. */
  constructor(types, choice) {
    Object.assign(this, { types, choice });
    this.kept = `code:${types.fact.event_id}`;
    const id = "type-code";
    this.field = element("input", {
      id, autocomplete: "off", autocapitalize: "characters", spellcheck: "false", maxlength: 200, "aria-describedby": `${id}-error ${id}-note`,
    });
    this.note = element("p", { class: "small", id: `${id}-note`, role: "status" });
    const button = element("button", { type: "submit", class: "quiet" }, texts.type_code_use);
    this.node = element(
      "form",
      { class: "promo type-code", id: "type-code-form" },
      element("label", { for: id }, texts.type_code),
      element("div", { class: "promo-row" }, this.field, button),
      element("p", { class: "field-error", id: `${id}-error`, hidden: true }),
      this.note,
    );
    this.node.addEventListener("submit", (event) => {
      event.preventDefault();
      this.#use(this.field.value.trim());
    });
    this.standBehind(choice);
    this.field.value = tab(this.kept) ?? "";
    types.basket.code = this.field.value;
    types.addEventListener("change", () => this.update());
    this.update();
  }

  standBehind(place = this.choice) {
    place.after(this.node);
  }

  update() {
    const { locked, basket } = this.types;
    show(this.node, locked.length > 0);
    const types = this.types.names(locked.map(({ type_id: id }) => id));
    write(this.note, fill(basket.code ? texts.type_code_in : texts.type_code_opens, { types }));
  }

  #use(code) {
    fault("type-code", null);
    tab(this.kept, code || null);
    this.types.basket.code = code;
  }

  refuse(text) {
    fault("type-code", text);
  }
}
