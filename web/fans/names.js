// Names on tickets: a field for each ticket, in the order of the lines, or one name that stands on all of them.
// What was typed stays with its ticket while others are removed.
import { byId, element, fault, show, write } from "./dom.js";
import { moment, seat } from "./format.js";
import { fill } from "./words.js";

const CHARS_MAX = 100;

/** A field with its label and its error; `autocomplete` is that of the fan for the first alone. */
function field(id, { label, value, first }) {
  const input = element("input", {
    id, autocomplete: first ? "name" : "off", required: true, maxlength: CHARS_MAX, "aria-describedby": `${id}-error`,
  });
  input.value = value;
  input.addEventListener("input", () => input.ariaInvalid === "true" && fault(id, ""));
  const error = element("p", { id: `${id}-error`, class: "field-error", hidden: true });
  return [element("label", { for: id }, label), input, error];
}

/** The label of a ticket's field: which ticket it is, by its number from 1 and its place. */
export function ticketLabel(n, { seat_id: id, section_id: section }, sections) {
  const place = id ? seat(id, sections) : (sections.get(section)?.name ?? section);
  return fill(texts.name_on_ticket, { n, place });
}

/** Until when names may be changed, in words. */
export const untilWords = (until, zone) => fill(texts.names_until, { time: moment(until, zone) });

export class NameFields {
  #inputs = [];
  #shown = "";

  /** Shows a field for each of `{key, label, value}`, and keeps what was typed in those that were there before. */
  show(asked) {
    const shown = JSON.stringify(asked);
    if (shown === this.#shown) return;
    this.#shown = shown;
    const typed = new Map(this.values);
    const fields = asked.map(({ key, label, value = "" }, n) => field(`name-${n + 1}`, { label, value: typed.get(key) || value, first: n === 0 }));
    this.#inputs = asked.map(({ key }, n) => ({ key, input: fields[n][1] }));
    byId("names-fields").replaceChildren(...fields.flat());
  }

  /** What is typed, by key, in order. */
  get values() {
    return this.#inputs.map(({ key, input }) => [key, input.value.trim()]);
  }

  /** Whether each field has a name; says so beside the first that has none, and goes there. */
  complete() {
    const empty = this.#inputs.find(({ input }) => !input.value.trim());
    for (const { input } of this.#inputs) fault(input.id, input === empty?.input ? texts.name_missing : "");
    empty?.input.focus();
    return !empty;
  }
}

/** The names of a checkout, as its quote asks for them. */
export class OrderNames {
  #fields = new NameFields();

  constructor({ names_until: until, timezone }) {
    write("names-note", `${texts.names_each} ${until ? untilWords(until, timezone) : ""}`.trim());
  }

  ask({ names = "none", lines = [] }, sections) {
    const all = names === "order";
    show("name-note", all);
    if (all) byId("name").setAttribute("aria-describedby", "name-note");
    else byId("name").removeAttribute("aria-describedby");
    const tickets = names === "ticket" ? lines.flatMap((line) => new Array(line.quantity).fill(line)) : [];
    const place = (line) => line.seat_id ?? line.section_id;
    const before = (line, n) => tickets.slice(0, n).filter((other) => place(other) === place(line)).length;
    this.#fields.show(tickets.map((line, n) => ({ key: `${place(line)} ${before(line, n)}`, label: ticketLabel(n + 1, line, sections) })));
    show("names", tickets.length > 0);
  }

  complete() {
    return this.#fields.complete();
  }

  /** What an order brings of them. */
  get body() {
    const names = this.#fields.values.map(([, name]) => name);
    return names.length > 0 ? { names } : {};
  }
}
