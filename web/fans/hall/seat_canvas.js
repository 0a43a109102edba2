// The seats on one canvas. The base is painted when the view moves or zooms: moved by a few points, it is shifted and only
// its new edges are painted. Seats that change are painted singly, in one animation frame. Far away a seat is a dot;
// nearer it has the shape of its state and the mark of its price; as a target it has its number.
import { CLOSED, FREE, HELD, SOLD } from "./seat_codes.js";
import { SeatShapes } from "./seat_shapes.js";
import { TARGET_PX } from "./view.js";

export const DOT_PX = 10;
const ROW_NAMES_PX = 13;
/** Sizes of dots by state, as shares of a seat: each state is told by its size, too. */
const DOTS = { [FREE]: 1, [HELD]: 0.62, [SOLD]: 0.3 };

export class SeatCanvas {
  #frame = 0;
  #changed = new Set();
  #painted = null;

  /** `seats`: codes by seat, `own(seat)`, and `tierOf(section, row)` as `{tier, mark}`. */
  constructor({ canvas, geometry, view, codes, own, tierOf, sectionName, stageName }) {
    Object.assign(this, { canvas, geometry, view, codes, own, sectionName, stageName });
    this.context = canvas.getContext("2d", { alpha: false });
    this.shapes = new SeatShapes();
    this.tiers = geometry.sections.map((section) => Array.from({ length: section.rows }, (_, row) => tierOf(section, row + 1)));
  }

  use(palette) {
    this.palette = palette;
    this.#painted = null;
  }

  /** The view has moved, or everything changed: paints at the next frame. */
  paint({ all = false } = {}) {
    if (all) this.#painted = null;
    this.#frame ||= requestAnimationFrame(() => this.paintNow());
  }

  /** These seats changed. */
  paintSeats(seats) {
    for (const seat of seats) this.#changed.add(seat);
    this.paint();
  }

  paintNow() {
    cancelAnimationFrame(this.#frame);
    this.#frame = 0;
    const { x, y, scale, width, height, ratio } = this.view;
    const before = this.#painted;
    const same = before && before.scale === scale && before.width === width && before.height === height && before.ratio === ratio;
    if (!same) this.#paintAll();
    else if (before.x !== x || before.y !== y) this.#shift(x - before.x, y - before.y);
    this.#painted = { x, y, scale, width, height, ratio };
    if (same) for (const seat of this.#changed) this.#paintSeat(seat);
    this.#changed.clear();
  }

  /** What stays visible is moved; the edges that came into view are painted. */
  #shift(dx, dy) {
    const { width, height, ratio } = this.view;
    if (Math.abs(dx) >= width || Math.abs(dy) >= height) return this.#paintAll();
    const { context, canvas } = this;
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.drawImage(canvas, Math.round(dx * ratio), Math.round(dy * ratio));
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    if (dx) this.#paintPart(dx > 0 ? 0 : width + dx, 0, Math.abs(dx), height);
    if (dy) this.#paintPart(0, dy > 0 ? 0 : height + dy, width, Math.abs(dy));
    return undefined;
  }

  #paintAll() {
    const { width, height, ratio } = this.view;
    const [across, down] = [Math.round(width * ratio), Math.round(height * ratio)];
    if (this.canvas.width !== across || this.canvas.height !== down) Object.assign(this.canvas, { width: across, height: down });
    this.context.setTransform(ratio, 0, 0, ratio, 0, 0);
    this.#paintPart(0, 0, width, height);
  }

  #paintPart(left, top, width, height) {
    const { context, palette, view } = this;
    context.save();
    context.beginPath();
    context.rect(left, top, width, height);
    context.clip();
    context.fillStyle = palette.sunk;
    context.fillRect(left, top, width, height);
    this.#paintStage();
    const part = { left, top, right: left + width, bottom: top + height };
    for (const [n, section] of this.geometry.sections.entries()) {
      const [boxLeft, boxTop] = view.toScreen(section.box.left, section.box.top);
      const [boxRight, boxBottom] = view.toScreen(section.box.right, section.box.bottom);
      if (boxRight < left || boxLeft > part.right || boxBottom < top || boxTop > part.bottom) continue;
      this.#paintOutline(section);
      this.#paintRows(section, this.tiers[n], part);
    }
    context.restore();
  }

  #paintStage() {
    const { stage } = this.geometry;
    if (!stage) return;
    const { context, palette, view } = this;
    const [x, y] = view.toScreen(stage.at[0] - stage.size[0] / 2, stage.at[1] - stage.size[1] / 2);
    const [width, height] = [stage.size[0] * view.scale, stage.size[1] * view.scale];
    context.fillStyle = palette.line;
    context.fillRect(x, y, width, height);
    this.#write(this.stageName, x + width / 2, y + height / 2, Math.min(height * 0.5, 18), palette.ink);
  }

  #paintOutline(section) {
    const { context, palette, view } = this;
    context.beginPath();
    for (const [x, y] of section.outline) context.lineTo(...view.toScreen(x, y));
    context.closePath();
    context.fillStyle = palette.card;
    context.strokeStyle = palette.line;
    context.lineWidth = 1;
    context.fill();
    context.stroke();
    if (section.rows > 0) return;
    const [x, y] = view.toScreen((section.box.left + section.box.right) / 2, (section.box.top + section.box.bottom) / 2);
    this.#write(this.sectionName(section.id), x, y, 14, palette.ink);
  }

  #paintRows(section, tiers, part) {
    const { geometry, view } = this;
    const px = section.side * view.scale;
    const [most, step] = [px, section.seats];
    for (let row = 0, first = section.first; row < section.rows; row += 1, first += step) {
      for (let seat = first; seat < first + step; seat += 1) {
        const [x, y] = [geometry.x[seat] * view.scale + view.x, geometry.y[seat] * view.scale + view.y];
        if (x < part.left - most || x > part.right + most || y < part.top - most || y > part.bottom + most) continue;
        if (px < DOT_PX) this.#dot(seat, x, y, px, tiers[row]);
        else this.#shape(seat, x, y, px, tiers[row], seat - first + 1);
      }
      if (px >= ROW_NAMES_PX) this.#nameRow(section, row, first);
    }
  }

  /** The row's number stands before its first seat. */
  #nameRow(section, row, first) {
    const { geometry, view, palette } = this;
    const away = section.lines.spacing * 0.95;
    const turn = (section.lines.angle * Math.PI) / 180;
    const [x, y] = view.toScreen(geometry.x[first] - away * Math.cos(turn), geometry.y[first] - away * Math.sin(turn));
    this.#write(String(row + 1), x, y, Math.min(section.side * view.scale * 0.5, 13), palette.soft);
  }

  #paintSeat(seat) {
    const { geometry, view, context, palette } = this;
    const section = geometry.sectionOf(seat);
    const local = seat - section.first;
    const row = Math.floor(local / section.seats);
    const tier = this.tiers[geometry.sections.indexOf(section)][row];
    const px = section.side * view.scale;
    const [x, y] = view.toScreen(geometry.x[seat], geometry.y[seat]);
    const edge = px / 2 + 1;
    if (x < -edge || y < -edge || x > view.width + edge || y > view.height + edge) return;
    context.fillStyle = palette.card;
    context.fillRect(x - edge, y - edge, 2 * edge, 2 * edge);
    if (px < DOT_PX) this.#dot(seat, x, y, px, tier);
    else this.#shape(seat, x, y, px, tier, (local % section.seats) + 1);
  }

  #dot(seat, x, y, px, { tier }) {
    const { context, palette } = this;
    const mine = this.own(seat);
    const code = this.codes[seat];
    if (code === CLOSED && !mine) return;
    const size = Math.max(mine ? px * 1.3 : px * DOTS[code], 1);
    context.fillStyle = mine ? palette.accent : code === FREE ? palette.tiers[tier] : palette.edge;
    context.fillRect(x - size / 2, y - size / 2, size, size);
  }

  #shape(seat, x, y, px, { tier, mark }, number) {
    const mine = this.own(seat);
    const code = this.codes[seat];
    if (code === CLOSED && !mine) return;
    const { palette, view, context } = this;
    const shape = this.shapes.of({ px, ratio: view.ratio, palette, code, tier, mark, mine });
    const size = shape.width / view.ratio;
    context.drawImage(shape, x - size / 2, y - size / 2, size, size);
    if (px >= TARGET_PX && !mine && code !== SOLD) {
      this.#write(String(number), x, y - px * 0.06, px * 0.4, code === FREE ? palette.ink : palette.soft);
    }
  }

  #write(text, x, y, px, colour) {
    const { context, palette } = this;
    if (px < 6) return;
    const font = `${Math.round(px * 2) / 2}px ${palette.font}`;
    if (context.font !== font) context.font = font;
    context.textAlign = "center";
    context.textBaseline = "middle";
    context.fillStyle = colour;
    context.fillText(text, x, y);
  }
}
