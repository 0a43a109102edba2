// The map that a fan walks through: the overview, and the canvas once it is larger than that. By fingers, mouse, wheel,
// buttons and keys; each way reaches every seat (WCAG 2.5.7).
import { element, show, write } from "../dom.js";
import { Cursor } from "./cursor.js";
import { Gestures } from "./gestures.js";
import { isShown } from "../trait_ids.js";
import { onPaletteChange, paletteOf } from "./palette.js";
import { Overview } from "./overview.js";
import { SeatCanvas } from "./seat_canvas.js";
import { CLOSED, FREE } from "./seat_codes.js";
import { TARGET_PX, View } from "./view.js";

const STEP = 1.6;
const MOVE_SHARE = 0.4;
/** Finer points than these cost time and are not seen. */
const RATIO_MAX = 2;
const KEYS = { "+": ["zoom", STEP], "=": ["zoom", STEP], "-": ["zoom", 1 / STEP] };

export class SeatMap {
  #inside = false;
  #told = -1;

  /** Calls `picked(seat)`, `standing(sectionId)` for general admission, and `moved()` when something else is seen. */
  constructor({ geometry, states, stock, prices, filter, tierOf, factsOf, own, picked, standing, moved }) {
    const isOther = (seat) => filter.on && !isShown(filter, geometry.traitsOf(seat)) && !own(seat);
    Object.assign(this, { geometry, states, stock, isOther, factsOf, own, picked, standing, moved, view: new View(geometry) });
    const { view } = this;
    this.reach = Math.max(...geometry.sections.map(({ side }) => side)) * 0.75;
    this.overview = new Overview({ geometry, stock, prices, filter, chosen: (id) => this.#chosen(id) });
    this.cursor = new Cursor({
      geometry, view, nameOf: factsOf, picked,
      open: (seat) => this.#isOpen(seat),
      few: () => filter.on,
      came: (seat) => this.#came(seat),
      left: () => this.#leave(),
    });
    this.canvas = element("canvas", { class: "hall-canvas", "aria-hidden": "true" });
    this.tip = element("p", { class: "hall-tip", "aria-hidden": "true" });
    this.stage = element("div", { class: "hall-view" }, this.overview.node, this.canvas, this.cursor.node, this.tip);
    this.stage.style.setProperty("--hall-shape", `${geometry.width} / ${geometry.height}`);
    this.tools = this.#tools();
    this.keys = element("p", { class: "small hall-keys", id: "hall-keys" }, texts.hall_keys);
    this.node = element("div", { class: "hall-map" }, this.stage, this.tools, this.keys);
    const sectionName = (id) => stock.sections.get(id)?.name ?? id;
    this.seats = new SeatCanvas({ canvas: this.canvas, geometry, view, states, own, isOther, tierOf, sectionName, stageName: texts.stage });
    this.gestures = new Gestures(this.stage, {
      moved: (dx, dy) => this.#change(() => view.move(dx, dy)),
      zoomed: (x, y, factor) => this.#zoom(x, y, factor),
      tapped: (x, y) => this.#tapped(x, y),
      pointed: (x, y) => this.#pointed(x, y),
    });
    this.cursor.node.addEventListener("keydown", (event) => this.#pressed(event));
    onPaletteChange(() => this.#recolour());
    filter.addEventListener("change", () => this.repaint());
    new ResizeObserver(() => this.#resize()).observe(this.stage);
  }

  /** Seats, or all that is seen, changed. */
  repaint(seats) {
    if (!this.#seatsShown) return;
    if (seats) this.seats.paintSeats(seats);
    else this.seats.paint({ all: true });
    this.cursor.name();
    if (!this.tip.hidden) this.#tell(this.#told);
  }

  /** Whether the fan chooses: without, the overview only shows what is left. */
  allow(inside) {
    this.#inside = inside;
    this.overview.allow(inside);
    if (!inside) this.view.fit();
    this.#show();
  }

  /** The seats of a section fill the view; the cursor stands on the free one nearest to the middle of its first row. */
  open(sectionId) {
    const section = this.geometry.byId.get(sectionId);
    if (!section?.seats) return this.standing(sectionId);
    this.view.show(section);
    this.#show();
    this.cursor.seat = this.#firstOf(section);
    this.#changed();
    this.cursor.name();
    return this.cursor.node.focus({ preventScroll: true });
  }

  #firstOf({ first, rows, seats }) {
    const middle = first + (seats >> 1);
    for (let row = 0; row < rows; row += 1) {
      for (let away = 0; away < 2 * seats; away += 1) {
        const seat = middle + row * seats + (away & 1 ? -1 : 1) * ((away + 1) >> 1);
        const isInRow = seat >= first + row * seats && seat < first + (row + 1) * seats;
        if (isInRow && this.states.codes[seat] === FREE && !this.isOther(seat)) return seat;
      }
    }
    return middle;
  }

  #isOpen(seat) {
    return this.states.codes[seat] !== CLOSED && !this.isOther(seat);
  }

  get #seatsShown() {
    return this.#inside && !this.view.whole;
  }

  #chosen(sectionId) {
    if (this.#inside && !this.gestures.moved) this.open(sectionId);
  }

  #tools() {
    const button = (name, sign, act) => {
      const made = element("button", { type: "button", class: "step", "aria-label": name, title: name, "data-tool": sign }, sign);
      made.addEventListener("click", act);
      return made;
    };
    const move = (dx, dy) => () => this.#change(() => this.view.move(dx * this.view.width * MOVE_SHARE, dy * this.view.height * MOVE_SHARE));
    const zoom = (factor) => () => this.#zoom(this.view.width / 2, this.view.height / 2, factor);
    this.fit = button(texts.hall_whole, "⤢", () => this.#leave({ keep: true }));
    return element(
      "div",
      { class: "hall-tools", role: "group", "aria-label": texts.hall_tools },
      button(texts.hall_closer, "+", zoom(STEP)), button(texts.hall_farther, "−", zoom(1 / STEP)), this.fit,
      button(texts.hall_to_left, "←", move(1, 0)), button(texts.hall_to_top, "↑", move(0, 1)),
      button(texts.hall_to_bottom, "↓", move(0, -1)), button(texts.hall_to_right, "→", move(-1, 0)),
    );
  }

  /** Back to the whole hall; by a key the focus goes to the section that the cursor was in. */
  #leave({ keep = false } = {}) {
    const section = this.cursor.seat >= 0 && this.geometry.sectionOf(this.cursor.seat);
    this.view.fit();
    this.#show();
    if (section && !keep) this.overview.focus(section.id);
  }

  #pressed(event) {
    const [, factor] = KEYS[event.key] ?? [];
    if (!factor || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    const { x, y } = this.geometry;
    this.#zoom(...this.view.toScreen(x[this.cursor.seat], y[this.cursor.seat]), factor);
  }

  #zoom(x, y, factor) {
    if (!this.#inside) return false;
    const { scale, whole } = this.view;
    this.#change(() => this.view.zoom(x, y, factor));
    if (whole !== this.view.whole) this.#show();
    return scale !== this.view.scale;
  }

  #came(seat) {
    const { x, y } = this.geometry;
    this.#change(() => this.view.showSeat(x[seat], y[seat], this.geometry.sectionOf(seat).side));
    this.#show();
    this.#tell(seat);
  }

  /** A tap picks a seat that is large enough to be meant, else it comes nearer. */
  #tapped(px, py) {
    if (!this.#inside) return undefined;
    const [x, y] = this.view.toHall(px, py);
    const section = this.geometry.sectionAt(x, y);
    if (this.view.whole) return section && this.open(section.id);
    const seat = this.#seatAt(px, py);
    if (seat < 0) return section && !section.seats ? this.standing(section.id) : undefined;
    const { side } = this.geometry.sectionOf(seat);
    if (this.view.scale * side < TARGET_PX) return this.#zoom(px, py, (1.25 * TARGET_PX) / (this.view.scale * side));
    this.cursor.seat = seat;
    this.cursor.place();
    this.cursor.name();
    this.#tell(seat);
    return this.picked(seat);
  }

  #seatAt(px, py) {
    const [x, y] = this.view.toHall(px, py);
    const seat = this.geometry.seatNear(x, y, this.reach);
    return seat >= 0 && this.#isOpen(seat) ? seat : -1;
  }

  #pointed(px, py) {
    const seat = px === undefined || !this.#seatsShown ? -1 : this.#seatAt(px, py);
    this.stage.toggleAttribute("data-seat", seat >= 0);
    this.#tell(seat);
  }

  #tell(seat) {
    this.#told = seat;
    show(this.tip, seat >= 0);
    if (seat < 0) return;
    write(this.tip, this.factsOf(seat));
    const [x, y] = this.view.toScreen(this.geometry.x[seat], this.geometry.y[seat]);
    const side = this.geometry.sectionOf(seat).side * this.view.scale;
    const half = this.tip.offsetWidth / 2 + 4;
    const below = y - side / 2 - this.tip.offsetHeight - 10 < 0;
    const left = Math.min(Math.max(x, half), Math.max(half, this.view.width - half));
    Object.assign(this.tip.style, { left: `${left}px`, top: `${below ? y + side / 2 + 8 : y - side / 2 - this.tip.offsetHeight - 8}px` });
  }

  #change(act) {
    const { x, y, scale } = this.view;
    act();
    if (x !== this.view.x || y !== this.view.y || scale !== this.view.scale) this.#changed();
  }

  #changed() {
    this.#tell(-1);
    this.moved();
    if (!this.#seatsShown) return;
    this.seats.paint();
    this.cursor.place();
  }

  /** The sections in view. */
  get seen() {
    return this.#seatsShown ? this.geometry.sections.filter(({ box }) => this.#isSeen(box)) : [];
  }

  /** The section in the middle, if seats are shown, and whether they are large enough to be picked. */
  get near() {
    if (!this.#seatsShown) return null;
    const [x, y] = this.view.toHall(this.view.width / 2, this.view.height / 2);
    const section = this.geometry.sectionAt(x, y);
    return { section, large: (section?.side ?? this.view.side) * this.view.scale >= TARGET_PX };
  }

  #isSeen({ left, top, right, bottom }) {
    const [x1, y1] = this.view.toHall(0, 0);
    const [x2, y2] = this.view.toHall(this.view.width, this.view.height);
    return left < x2 && right > x1 && top < y2 && bottom > y1;
  }

  /** The overview while all of the hall is seen, else the seats. */
  #show() {
    const seats = this.#seatsShown;
    const was = !this.canvas.hidden;
    show(this.overview.node, !seats);
    for (const part of [this.canvas, this.cursor.node]) show(part, seats);
    show(this.tip, seats && !this.tip.hidden);
    show(this.tools, this.#inside);
    show(this.keys, seats);
    this.stage.toggleAttribute("data-near", seats);
    if (seats && !was) this.#recolour();
    if (seats && this.cursor.seat < 0) this.cursor.come();
    if (this.geometry.count === 0) show(this.cursor.node, false);
    if (!seats) this.overview.place();
    this.#changed();
  }

  #recolour() {
    if (!this.#seatsShown) return;
    this.seats.use(paletteOf(this.stage));
    this.seats.paint();
  }

  #resize() {
    const { clientWidth, clientHeight } = this.stage;
    if (clientWidth === 0) return;
    this.view.resize(clientWidth, clientHeight, Math.min(window.devicePixelRatio || 1, RATIO_MAX));
    const view = new View(this.geometry);
    view.resize(clientWidth, clientHeight, this.view.ratio);
    this.overview.resize(view);
    this.#show();
  }
}
