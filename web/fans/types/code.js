// A code that opens price types. It goes with each request for tickets, and only the server knows whether it is good; until
// then the page offers what needs one to who has typed one.
import { element, fault, show, write } from "../dom.js";
import { tab } from "../memory.js";
import { LOCALE, fill } from "../words.js";

const AND = new Intl.ListFormat(LOCALE, { type: "conjunction" });

export class Code {
  /** The field stands behind a form of the choice, and behind the held tickets later. */
  constructor({ fact, basket, types }, choice) {
    Object.assign(this, { fact, basket, types, choice });
    this.kept = `code:${fact.event_id}`;
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
    basket.code = this.field.value;
    (types ?? basket).addEventListener("change", () => this.update());
    this.update();
  }

  standBehind(place = this.choice) {
    place.after(this.node);
  }

  update() {
    const { basket, fact } = this;
    const opened = [...(this.types?.locked ?? []).map(({ name }) => name), ...(fact.code_opens_places ? [texts.code_places] : [])];
    show(this.node, opened.length > 0);
    const types = AND.format(opened);
    write(this.note, fill(basket.code ? texts.type_code_in : texts.type_code_opens, { types }));
  }

  #use(code) {
    fault("type-code", null);
    tab(this.kept, code || null);
    this.basket.code = code;
  }

  refuse(text) {
    fault("type-code", text);
  }
}
