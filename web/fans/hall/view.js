// What part of the hall is seen, and how large: from places in the hall to places on the screen and back. It moves by whole
// points of the screen, so that what is painted can be moved with it.

const SEAT_PX_MAX = 48;
/** A seat of this size has a number and can be tapped (WCAG 2.5.8). */
export const TARGET_PX = 24;
const COMFORT_PX = 32;
const ENOUGH = 1.7;

export class View {
  x = 0;
  y = 0;
  width = 0;
  height = 0;
  scale = 1;

  /** `hall` has width and height; the largest scale shows its smallest seats at their full size. */
  constructor(hall) {
    this.hall = hall;
    this.side = Math.min(...hall.sections.map(({ side }) => side || Infinity));
    if (!Number.isFinite(this.side)) this.side = 20;
  }

  resize(width, height, ratio) {
    const middle = this.width && this.toHall(this.width / 2, this.height / 2);
    const whole = this.whole;
    Object.assign(this, { width, height, ratio });
    if (!middle || whole) return this.fit();
    return this.#look(middle, this.scale);
  }

  get fitScale() {
    return Math.min(this.width / this.hall.width, this.height / this.hall.height);
  }

  get scaleMax() {
    return Math.max(SEAT_PX_MAX / this.side, 2 * this.fitScale);
  }

  get whole() {
    return this.width === 0 || this.scale <= this.fitScale * 1.001;
  }

  fit() {
    this.#look([this.hall.width / 2, this.hall.height / 2], this.fitScale);
  }

  toHall(px, py) {
    return [(px - this.x) / this.scale, (py - this.y) / this.scale];
  }

  toScreen(x, y) {
    return [x * this.scale + this.x, y * this.scale + this.y];
  }

  move(dx, dy) {
    this.#put(this.x + dx, this.y + dy, this.scale);
  }

  /** The place under this point of the screen stays there. */
  zoom(px, py, factor) {
    const [x, y] = this.toHall(px, py);
    const scale = this.#clip(this.scale * factor);
    this.#put(px - x * scale, py - y * scale, scale);
  }

  /** All of a section; a little less of it where its seats are targets then. */
  show({ box, side }) {
    const [width, height] = [box.right - box.left, box.bottom - box.top];
    const scale = Math.min(this.width / (width * 1.08), this.height / (height * 1.08));
    const close = TARGET_PX / side;
    this.#look([(box.left + box.right) / 2, (box.top + box.bottom) / 2], scale < close && close < ENOUGH * scale ? close : scale);
  }

  /** A seat comes into the view, large enough to be picked. */
  showSeat(x, y, side) {
    if (this.scale * side < TARGET_PX) return this.#look([x, y], COMFORT_PX / side);
    const [px, py] = this.toScreen(x, y);
    const edge = 1.5 * side * this.scale;
    const back = (at, size) => Math.max(0, edge - at) - Math.max(0, at + edge - size);
    return this.move(back(px, this.width), back(py, this.height));
  }

  #look([x, y], wanted) {
    const scale = this.#clip(wanted);
    this.#put(this.width / 2 - x * scale, this.height / 2 - y * scale, scale);
  }

  #clip(scale) {
    return Math.min(Math.max(scale, this.fitScale), this.scaleMax);
  }

  /** The hall stays in the middle while it is smaller than the view, and covers the view while it is larger. */
  #put(x, y, scale) {
    const held = (at, size, hall) => (hall <= size ? (size - hall) / 2 : Math.min(0, Math.max(size - hall, at)));
    const whole = (at) => Math.round(at * this.ratio) / this.ratio;
    this.x = whole(held(x, this.width, this.hall.width * scale));
    this.y = whole(held(y, this.height, this.hall.height * scale));
    this.scale = scale;
  }
}
