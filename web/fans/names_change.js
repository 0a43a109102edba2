// The change of names on an order's tickets, while its buyer may change them: one name for all, or one of each that is valid.
import { ask } from "./api.js";
import { secondsUntil } from "./clock.js";
import { byId, show, trouble, write } from "./dom.js";
import { NameFields, ticketLabel, untilWords } from "./names.js";

export class NamesChange {
  #fields = new NameFields();
  #now = new Map();

  /** `path` is the order's; calls `changed(order)` with the server's answer. */
  constructor(path, changed) {
    Object.assign(this, { path, changed });
    byId("names-form").addEventListener("submit", (event) => {
      event.preventDefault();
      this.#save();
    });
  }

  /** `issued` are the tickets, or null; `sections` are those of the event, by id, and `zone` is that of the venue. */
  render(order, issued, { sections, zone }) {
    const { names = "none", names_until: until = null, tickets = [] } = issued ?? {};
    const valid = tickets.filter(({ status }) => status === "valid");
    const open = names !== "none" && valid.length > 0 && (!until || secondsUntil(until) > 0);
    show("names-change", open);
    if (!open) return;
    const all = { key: "", label: texts.name_label, value: order.customer.name };
    const each = valid.map((one, n) => ({ key: one.ticket_id, label: ticketLabel(n + 1, one, sections), value: one.name ?? "" }));
    const asked = names === "order" ? [all] : each;
    this.#now = new Map(asked.map(({ key, value }) => [key, value]));
    this.#fields.show(asked);
    write("names-note", `${names === "order" ? texts.name_on_all : texts.names_each} ${until ? untilWords(until, zone) : ""}`.trim());
  }

  async #save() {
    if (byId("names-save").ariaBusy === "true" || !this.#fields.complete()) return;
    const other = this.#fields.values.filter(([key, name]) => name !== this.#now.get(key));
    if (other.length === 0) {
      byId("names-change").open = false;
      return;
    }
    trouble(null);
    byId("names-save").ariaBusy = "true";
    try {
      const body = this.#now.has("") ? { name: other[0][1] } : { names: Object.fromEntries(other) };
      const order = await ask("POST", `${this.path}/names`, { body });
      byId("names-change").open = false;
      this.#fields.show([]);
      await this.changed(order);
      trouble(texts.names_changed, "calm");
    } catch (problem) {
      trouble(problem.message);
    } finally {
      byId("names-save").ariaBusy = "false";
    }
  }
}
