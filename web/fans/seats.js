// A seat plan: a grid of rows of buttons, one tab stop, arrow keys inside. Shape and name show the state, not only colour.
import { byId, disable, element, show } from "./dom.js";
import { priceTiers } from "./price_tiers.js";
import { seatFacts } from "./seat_words.js";
import { isShown } from "./trait_ids.js";
import { filterControl, inOrder, legendOf, symbol, traitsOf } from "./traits.js";
import { fill } from "./words.js";

export class SeatPlan {
  #seats = new Map();
  #grid = [];
  #tiers = new Map();
  #rows = [];

  /** Calls `picked(seat)` on every press of a seat. */
  constructor({ stock, basket, prices, filter, picked }) {
    Object.assign(this, { basket, prices, filter, picked });
    this.node = byId("seats");
    this.legend = element("ul", { class: "legend prices", id: "seats-traits", "aria-label": texts.traits });
    byId("price-legend").before(...[filterControl(filter, stock.sections.values()), this.legend].filter(Boolean));
    filter.addEventListener("change", () => this.#filter());
    this.node.addEventListener("click", (event) => this.#pressed(event.target));
    this.node.addEventListener("keydown", (event) => this.#moved(event));
    basket.addEventListener("change", () => this.#mark());
  }

  /** Draws a section, or updates the drawn one without moving anything. */
  render(sectionId, seats, sections) {
    if (this.sectionId === sectionId && this.#seats.size === seats.length) {
      for (const seat of seats) this.#restate(this.#seats.get(seat.seat_id), seat);
      return;
    }
    this.#price(seats, sectionId, sections);
    this.#draw(sectionId, seats);
  }

  /** Each price of the section has a colour, a mark and a line in the legend, from the highest down. */
  #price(seats, sectionId, sections) {
    const minors = [...new Set(seats.map((seat) => seat.price_minor))].sort((a, b) => b - a);
    this.#tiers = priceTiers(sections.values());
    const names = new Map((sections.get(sectionId).price_levels ?? []).map((level) => [level.price_minor, level.name]));
    const entries = minors.map((minor) =>
      element(
        "li",
        {},
        element("span", { class: "seat", "data-status": "available", ...this.#look(minor), "aria-hidden": "true" }),
        [names.get(minor), this.prices.one(minor)].filter(Boolean).join(": "),
      ),
    );
    byId("price-legend").replaceChildren(...entries);
    this.legend.replaceChildren(...legendOf(traitsOf(seats)));
  }

  /** These seats may have changed, to `stateOf(seatId)`. */
  restate(seatIds, stateOf) {
    for (const seatId of seatIds) {
      const known = this.#seats.get(seatId);
      if (known) this.#restate(known, { ...known.seat, ...stateOf(seatId) });
    }
  }

  clear() {
    this.sectionId = null;
    this.#seats.clear();
    this.#grid = this.#rows = [];
    this.node.replaceChildren();
  }

  #draw(sectionId, seats) {
    this.clear();
    this.sectionId = sectionId;
    const rows = byRow(seats);
    const names = [...rows.keys()]; // seats come in map order, which labels need not follow
    const widest = Math.max(...[...rows.values()].map((row) => row.length));
    this.node.style.setProperty("--columns", widest);
    this.#rows = names.map((name) => this.#row(name, rows.get(name)));
    this.node.replaceChildren(...this.#rows.map(({ node }) => node));
    this.#filter();
  }

  /** Rows without a seat that is looked for are not shown, and other seats keep their place only. */
  #filter() {
    for (const row of this.#rows) {
      row.shown = row.line.filter((button) => isShown(this.filter, this.#seats.get(button.dataset.seat).seat.traits));
      for (const button of row.line) button.toggleAttribute("data-other", !row.shown.includes(button));
      show(row.node, row.shown.length > 0);
    }
    this.#grid = this.#rows.map(({ shown }) => shown).filter((line) => line.length > 0);
    this.#rove(this.#grid[0]?.[0]);
  }

  #row(name, seats) {
    const line = seats.map((seat) => this.#button(seat));
    const label = element("span", { class: "row-name", role: "rowheader", "aria-label": fill(texts.row, { row: name }) }, String(name));
    return { line, node: element("div", { class: "row", role: "row" }, label, ...line) };
  }

  #button(seat) {
    const attributes = { type: "button", role: "gridcell", class: "seat", tabindex: "-1", "data-seat": seat.seat_id };
    const traits = inOrder(seat.traits);
    const button = element("button", attributes, String(seat.label || seat.number), ...traits.map(symbol));
    if (traits.length > 0) button.dataset.traits = traits.join(" ");
    const known = { button, seat: {} };
    this.#seats.set(seat.seat_id, known);
    this.#restate(known, seat);
    return button;
  }

  #look(minor) {
    const { tier, mark } = this.#tiers.get(minor) ?? { tier: 0, mark: 0 };
    return { "data-tier": tier, "data-mark": mark };
  }

  #restate(known, seat) {
    const same = known.seat.status === seat.status && known.seat.kept === seat.kept;
    known.seat = seat;
    if (same) return;
    const mine = this.basket.seats.has(seat.seat_id);
    const { button } = known;
    button.dataset.status = seat.status;
    button.toggleAttribute("data-kept", Boolean(seat.kept));
    button.setAttribute("aria-selected", String(mine));
    disable(button, seat.status !== "available" && !mine);
    for (const [name, value] of Object.entries(this.#look(seat.price_minor))) button.setAttribute(name, value);
    button.title = seatFacts(seat, this.prices.one(seat.price_minor));
    button.setAttribute("aria-label", button.title);
  }

  #mark() {
    for (const [seatId, { button }] of this.#seats) {
      const pressed = String(this.basket.seats.has(seatId));
      if (button.getAttribute("aria-selected") !== pressed) button.setAttribute("aria-selected", pressed);
    }
  }

  #pressed(target) {
    const known = this.#seats.get(target.closest?.(".seat")?.dataset.seat);
    if (!known) return;
    this.#rove(known.button);
    this.picked(known.seat);
  }

  /** Exactly one seat is a tab stop; arrows, Home and End move between seats. */
  #rove(button) {
    if (!button) return;
    this.node.querySelector('[tabindex="0"]')?.setAttribute("tabindex", "-1");
    button.tabIndex = 0;
  }

  #moved(event) {
    const y = this.#grid.findIndex((row) => row.includes(event.target));
    if (y < 0) return;
    const x = this.#grid[y].indexOf(event.target);
    const moves = {
      ArrowLeft: [y, x - 1],
      ArrowRight: [y, x + 1],
      ArrowUp: [y - 1, x],
      ArrowDown: [y + 1, x],
      Home: [y, 0],
      End: [y, -1],
    };
    const [row, column] = moves[event.key] ?? [];
    const line = this.#grid[row];
    const next = line?.at(column < 0 && event.key !== "End" ? 0 : Math.min(column, line.length - 1));
    if (!next) return;
    event.preventDefault();
    this.#rove(next);
    next.focus();
  }
}

export function byRow(seats) {
  const rows = new Map();
  for (const seat of seats) {
    if (!rows.has(seat.row)) rows.set(seat.row, []);
    rows.get(seat.row).push(seat);
  }
  return rows;
}
