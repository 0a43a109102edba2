// The seat cursor: one real button over the canvas. Arrow keys move it from seat to seat as they lie on the screen, Enter
// picks; what it stands on is its name, and is spoken.
import { announce, element } from "../dom.js";

const DIRECTIONS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
const SIZE_MIN_PX = 24;

export class Cursor {
  seat = -1;

  /** `open(seat)`: whether it may stand there, `few()`: whether that is so of few; `nameOf(seat)`; calls `picked(seat)`, `came(seat)` and `left()`, which is Escape. */
  constructor({ geometry, view, open, few, nameOf, picked, came, left }) {
    Object.assign(this, { geometry, view, open, few, nameOf, picked, came });
    this.node = element("button", { type: "button", class: "hall-cursor", "aria-describedby": "hall-keys" });
    this.node.addEventListener("click", () => picked(this.seat));
    this.node.addEventListener("focus", () => this.come());
    this.node.addEventListener("keydown", (event) => {
      if (event.key === "Escape") return left();
      const to = this.#next(event.key);
      if (to === undefined) return undefined;
      event.preventDefault();
      return to < 0 ? undefined : this.#step(to);
    });
  }

  #next(key) {
    if (DIRECTIONS[key]) return this.geometry.seatTowards(this.seat, ...DIRECTIONS[key], this.open, this.few());
    if (key !== "Home" && key !== "End") return undefined;
    const { section, nth } = this.geometry.nameOf(this.seat);
    const seats = Array.from({ length: section.seats }, (_, n) => section.first + (nth - 1) * section.seats + n).filter(this.open);
    return seats.at(key === "Home" ? 0 : -1) ?? -1;
  }

  #step(seat) {
    this.put(seat);
    announce(this.nameOf(seat));
  }

  put(seat) {
    this.seat = seat;
    this.came(seat);
    this.place();
    this.name();
  }

  name() {
    if (this.seat >= 0) this.node.setAttribute("aria-label", this.nameOf(this.seat));
  }

  /** The view has moved; a cursor outside it waits at its edge. */
  place() {
    if (this.seat < 0) return;
    const [x, y] = this.#at;
    const size = Math.max(SIZE_MIN_PX, this.geometry.sectionOf(this.seat).side * this.view.scale);
    const held = (at, most) => Math.min(Math.max(at - size / 2, 0), most - size);
    const { width, height } = this.view;
    Object.assign(this.node.style, { left: `${held(x, width)}px`, top: `${held(y, height)}px`, width: `${size}px`, height: `${size}px` });
  }

  get #at() {
    return this.view.toScreen(this.geometry.x[this.seat], this.geometry.y[this.seat]);
  }

  /** Stands on the seat nearest to the middle, unless it is in view. */
  come() {
    const { width, height } = this.view;
    const [x, y] = this.seat < 0 ? [-1, -1] : this.#at;
    if (x >= 0 && y >= 0 && x <= width && y <= height) return;
    this.seat = this.geometry.seatNear(...this.view.toHall(width / 2, height / 2), Infinity);
    this.place();
    this.name();
  }
}
