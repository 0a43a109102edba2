// The whole hall as a drawing: the shape of each section, its colour and pattern by what is left, and its words where they
// fit. For fans who choose each section is a button, too.
import { element, show, write } from "../dom.js";
import { sectionTraits } from "../sections.js";
import { isShown } from "../trait_ids.js";
import { fill } from "../words.js";
import { isInside, middleOf } from "./geometry.js";
import { svg } from "./svg.js";

const FEW = 0.1;
const SOME = 0.5;
const PAD_PX = 3;

/** How much is left of a section, as one of four; nothing is known before the first counts. */
export function levelOf({ available_seats: available, total_seats: total }) {
  if (available === undefined) return "unknown";
  if (available === 0) return "none";
  const share = available / total;
  return share < FEW ? "few" : share < SOME ? "some" : "many";
}

export class Overview {
  #parts = new Map();
  #buttons = false;

  /** Calls `chosen(sectionId)`. */
  constructor({ geometry, stock, prices, filter, chosen }) {
    Object.assign(this, { geometry, stock, prices, filter, chosen });
    this.drawing = svg("svg", { class: "hall-drawing", "aria-hidden": "true", focusable: "false" }, patterns());
    this.stage = geometry.stage && svg("rect", { class: "hall-stage-shape" });
    this.stageName = element("span", { class: "hall-stage-name", "aria-hidden": "true" }, texts.stage);
    if (this.stage) this.drawing.append(this.stage);
    this.labels = element("div", { class: "hall-labels" });
    this.node = element("div", { class: "hall-overview" }, this.drawing, this.stage && this.stageName, this.labels);
    for (const section of geometry.sections) this.#add(section);
    stock.addEventListener("change", () => this.update());
    prices.addEventListener("change", () => this.update());
    filter.addEventListener("change", () => this.update());
  }

  /** Sections are buttons while the fan chooses. */
  allow(buttons) {
    if (buttons === this.#buttons) return;
    this.#buttons = buttons;
    for (const [id, part] of this.#parts) {
      const { label } = part;
      part.label = buttons ? element("button", { type: "button", class: "hall-label" }) : element("p", { class: "hall-label" });
      part.label.append(...label.childNodes);
      part.label.title = label.title;
      Object.assign(part.label.dataset, label.dataset);
      part.label.addEventListener("click", () => this.chosen(id));
      part.label.addEventListener("focus", () => part.shape.toggleAttribute("data-focus", true));
      part.label.addEventListener("blur", () => part.shape.toggleAttribute("data-focus", false));
      label.replaceWith(part.label);
      part.sizes = null;
    }
    this.place();
  }

  focus(sectionId) {
    this.#parts.get(sectionId)?.label.focus();
  }

  #add(section) {
    const shape = svg("path", { class: "hall-section", "data-section": section.id });
    const lines = ["name", "from", "count"].map((name) => element("span", { class: `hall-${name}` }));
    const short = element("span", { class: "hall-short", "aria-hidden": "true" }, section.id);
    const label = element("p", { class: "hall-label", "data-section": section.id }, ...lines, short);
    this.drawing.append(shape);
    this.labels.append(label);
    this.#parts.set(section.id, { section, shape, label, lines, short, middle: middleOf(section) });
  }

  update() {
    for (const [id, part] of this.#parts) {
      const section = this.stock.sections.get(id);
      if (section) this.#tell(part, section);
    }
    this.place();
  }

  #tell(part, section) {
    const { shape, label, lines } = part;
    const price = this.prices.one(section.price_minor);
    const { available_seats: available, total_seats: total } = section;
    shape.dataset.left = label.dataset.left = levelOf(section);
    const other = !isShown(this.filter, section.traits);
    for (const node of [shape, label]) node.toggleAttribute("data-other", other);
    const several = section.price_levels?.length > 0;
    const told = [section.name, several ? fill(texts.price_from, { price }) : price, available > 0 ? fill(texts.hall_free, { n: available }) : ""];
    if (available === 0) told[2] = section.held_seats > 0 ? texts.legend_basket : texts.legend_sold;
    if (available === 0 && section.reserved_seats > 0) told[2] = fill(texts.all_reserved, { n: section.reserved_seats });
    if (other) told[2] = texts.filter_none;
    const left = total ? [available > 0 && !other ? fill(texts.left_of, { n: available, total }) : told[2]] : [];
    label.title = [told[0], told[1], ...left, sectionTraits(section)].filter(Boolean).join(texts.list_comma);
    if (lines.every((line, n) => line.textContent === told[n])) return;
    lines.forEach((line, n) => write(line, told[n]));
    part.sizes = null;
  }

  /** The view fits the hall into its place. */
  resize(view) {
    if (this.view && ["width", "height"].every((side) => view[side] === this.view[side])) return this.place();
    this.view = view;
    for (const part of this.#parts.values()) part.sizes = null;
    this.drawing.setAttribute("viewBox", `0 0 ${view.width} ${view.height}`);
    const at = ([x, y]) => view.toScreen(x, y);
    for (const { section, shape } of this.#parts.values()) {
      shape.setAttribute("d", `M${section.outline.map((point) => at(point).map((each) => each.toFixed(1)).join(" ")).join("L")}Z`);
    }
    const { stage } = this.geometry;
    if (stage) {
      const [x, y] = at([stage.at[0] - stage.size[0] / 2, stage.at[1] - stage.size[1] / 2]);
      const [width, height] = stage.size.map((size) => size * view.scale);
      for (const [name, value] of Object.entries({ x, y, width, height, rx: 3 })) this.stage.setAttribute(name, value);
      Object.assign(this.stageName.style, { left: `${x + width / 2}px`, top: `${y + height / 2}px` });
      show(this.stageName, true);
      show(this.stageName, this.stageName.offsetWidth < width);
    }
    return this.place();
  }

  /** Each section shows as many of its words as its shape has room for, or its id; all are in its name for screen readers. */
  place() {
    if (!this.view?.width || this.node.offsetParent === null) return;
    const fresh = [...this.#parts.values()].filter(({ sizes }) => !sizes);
    const sizeOf = (line) => [line.offsetWidth, line.offsetHeight];
    for (const { label } of fresh) label.dataset.lines = "all";
    for (const part of fresh) part.sizes = [part.lines.map(sizeOf), sizeOf(part.short)];
    const at = fresh.map(({ middle }) => this.view.toScreen(...middle));
    fresh.forEach(({ label, section, sizes }, n) => (label.dataset.lines = this.#room(section, ...at[n], ...sizes)));
    const boxes = fresh.map(({ label }) => [label.offsetWidth, label.offsetHeight]);
    fresh.forEach(({ label }, n) => {
      const [left, top] = boxes[n].map((size, side) => Math.round(at[n][side] - size / 2));
      Object.assign(label.style, { left: `${left}px`, top: `${top}px` });
    });
  }

  #room(section, x, y, sizes, short) {
    const tries = [["3", sizes], ["2", sizes.slice(0, 2)], ["1", sizes.slice(0, 1)], ["short", [short]]];
    for (const [lines, shown] of tries) {
      const wide = Math.max(...shown.map(([width]) => width)) / 2 + PAD_PX;
      const high = shown.reduce((sum, [, height]) => sum + height, 0) / 2 + PAD_PX;
      const corners = [[x - wide, y - high], [x + wide, y - high], [x + wide, y + high], [x - wide, y + high]];
      if (corners.every((corner) => isInside(section.outline, ...this.view.toHall(...corner)))) return lines;
    }
    return "none";
  }
}

/** Lines over the colour, the denser the less is left; crossed where nothing is. */
function patterns() {
  const pattern = (id, size, ...lines) =>
    svg("pattern", { id: `hall-${id}`, width: size, height: size, patternUnits: "userSpaceOnUse" },
      svg("rect", { width: size, height: size, class: `hall-ground-${id}` }),
      ...lines.map((d) => svg("path", { d, class: "hall-hatch" })));
  const slanted = (size) => `M0 ${size}L${size} 0M-1 1L1 -1M${size - 1} ${size + 1}L${size + 1} ${size - 1}`;
  return svg("defs", {}, pattern("some", 12, slanted(12)), pattern("few", 6, slanted(6)), pattern("none", 9, slanted(9), "M0 0L9 9"));
}
