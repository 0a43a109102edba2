// Best available: how many, where, up to which price. The server selects and holds in one step.
import { ask, freshKey } from "./api.js";
import { byId, element, show, trouble, write } from "./dom.js";
import { refusalWords } from "./limits.js";
import { fill } from "./words.js";

export class Best {
  #key = freshKey();

  /** Calls `held(reservation)` when the server holds its selection. */
  constructor({ eventId, stock, prices, basket, types, accessible, held }) {
    const { limit } = basket;
    Object.assign(this, { eventId, stock, prices, basket, types, held });
    const form = byId("best");
    for (let n = 1; n <= limit; n += 1) byId("best-quantity").append(element("option", { value: n }, fill(texts.tickets, { n })));
    byId("best-quantity").value = String(Math.min(2, limit));
    form.addEventListener("change", () => (this.#key = freshKey()));
    form.addEventListener("submit", (event) => this.#submit(event));
    basket.addEventListener("change", () => (this.#key = freshKey()));
    stock.addEventListener("change", () => this.#fill());
    types?.countBest(form, limit);
    this.accessible = accessible && accessible();
    this.#fill();
  }

  get wish() {
    const where = byId("best-where").value;
    const best = { quantity: Number(byId("best-quantity").value), split: byId("best-split").checked, ...this.types?.best };
    if (where.startsWith("section:")) best.section_id = where.slice("section:".length);
    if (where.startsWith("price:")) best.max_price_minor = Number(where.slice("price:".length));
    return { best_available: this.accessible ? this.accessible.with(best) : best, ...(this.basket.code && { code: this.basket.code }) };
  }

  /** Sets sections and prices, once they are loaded. */
  #fill() {
    const where = byId("best-where");
    const sections = [...this.stock.sections.values()];
    if (where.options.length > 1 || sections.length === 0) return;
    show("best-groups", sections.some(({ kind }) => kind === "seated"));
    const levels = sections.flatMap((section) => [section, ...(section.price_levels ?? [])]);
    const prices = [...new Set(levels.map((level) => level.price_minor))].sort((a, b) => a - b).slice(0, -1);
    for (const price of prices) {
      const option = element("option", { value: `price:${price}` });
      const tell = () => write(option, fill(texts.best_up_to, { price: this.prices.one(price) }));
      this.prices.addEventListener("change", tell);
      tell();
      where.append(option);
    }
    for (const { section_id: id, name } of sections) where.append(element("option", { value: `section:${id}` }, name));
  }

  async #submit(event) {
    event.preventDefault();
    const button = byId("best-find");
    if (button.ariaBusy === "true") return;
    button.ariaBusy = "true";
    trouble(null);
    try {
      this.held(await ask("POST", `/events/${this.eventId}/reservations`, { body: this.wish, key: this.#key, patience: 4 }));
    } catch (problem) {
      this.#refused(problem);
    } finally {
      button.ariaBusy = "false";
    }
  }

  #refused(problem) {
    if (!problem.unknown) this.#key = freshKey();
    if (this.types?.tell(problem, byId("best")) || (this.accessible && this.accessible.tell(problem))) return undefined;
    if (problem.slug !== "no-adjacent-seats") return trouble(refusalWords(problem, this.stock.sections));
    byId("best-split").focus();
    return trouble(fill(texts.best_together, { n: problem.members.together ?? 1 }));
  }
}
