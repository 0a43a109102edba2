// Fingers, mouse and wheel on the map, as four things: moved by, zoomed at, tapped at, pointed at.

const STILL_PX = 8;
const WHEEL_PX = 300;
const WHEEL_LINE_PX = 16;

export class Gestures {
  #pointers = new Map();
  /** Whether the last gesture moved something: a click that ends it is none. */
  moved = false;

  /** Calls `moved(dx, dy)`, `zoomed(x, y, factor)` (true if it did), `tapped(x, y)`, `pointed(x, y)` or without a place. */
  constructor(node, calls) {
    Object.assign(this, { node, calls });
    const on = (name, hear, options) => node.addEventListener(name, hear, options);
    on("pointerdown", (event) => this.#down(event));
    on("pointermove", (event) => this.#move(event));
    on("pointerup", (event) => this.#up(event));
    on("pointercancel", (event) => this.#pointers.delete(event.pointerId));
    on("pointerleave", () => calls.pointed());
    on("wheel", (event) => this.#wheel(event), { passive: false });
  }

  #at(event) {
    const { left, top } = this.node.getBoundingClientRect();
    return [event.clientX - left - this.node.clientLeft, event.clientY - top - this.node.clientTop];
  }

  #down(event) {
    if (event.button !== 0) return;
    if (this.#pointers.size === 0) this.moved = false;
    this.#pointers.set(event.pointerId, this.#at(event));
  }

  #move(event) {
    const [x, y] = this.#at(event);
    const before = this.#pointers.get(event.pointerId);
    if (!before) return event.pointerType === "mouse" && this.calls.pointed(x, y);
    const [dx, dy] = [x - before[0], y - before[1]];
    if (!this.moved && this.#pointers.size === 1 && Math.hypot(dx, dy) < STILL_PX) return undefined;
    if (!this.moved) this.node.setPointerCapture(event.pointerId);
    this.moved = true;
    this.calls.pointed();
    const other = [...this.#pointers].find(([id]) => id !== event.pointerId)?.[1];
    this.#pointers.set(event.pointerId, [x, y]);
    if (!other) return this.calls.moved(dx, dy);
    const apart = (from) => Math.max(1, Math.hypot(from[0] - other[0], from[1] - other[1]));
    this.calls.moved(dx / 2, dy / 2);
    return this.calls.zoomed((x + other[0]) / 2, (y + other[1]) / 2, apart([x, y]) / apart(before));
  }

  #up(event) {
    if (!this.#pointers.delete(event.pointerId) || this.moved || this.#pointers.size > 0) return;
    if (!event.target.closest("button")) this.calls.tapped(...this.#at(event));
  }

  /** What cannot zoom further out scrolls the page. */
  #wheel(event) {
    const px = event.deltaY * (event.deltaMode === WheelEvent.DOM_DELTA_LINE ? WHEEL_LINE_PX : 1) * (event.ctrlKey ? 4 : 1);
    if (this.calls.zoomed(...this.#at(event), Math.exp(-px / WHEEL_PX))) event.preventDefault();
  }
}
