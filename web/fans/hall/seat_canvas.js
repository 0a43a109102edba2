// The seats on one canvas, which is larger than the view: a small movement only moves it. All of it is painted when the
// view zooms or leaves it; seats that change are painted singly, in one animation frame. Far away a seat is a dot; nearer
// it has the shape of its state and the mark of its price; as a target it has its number.
import { traitIds } from "../trait_ids.js";
import { rowLabel } from "./geometry.js";
import { CLOSED, FREE, HELD, SOLD } from "./seat_codes.js";
import { SeatShapes } from "./seat_shapes.js";
import { TARGET_PX } from "./view.js";

export const DOT_PX = 10;
const ROW_NAMES_PX = 13;
/** Of the view, on each side, and at most. */
const MARGIN = 0.5;
const MARGIN_PX = 200;
/** Sizes of dots by state, as shares of a seat: each state is told by its size, too. */
const DOTS = { [FREE]: 1, [HELD]: 0.62, [SOLD]: 0.3 };

/** Of one that is not looked for. */
const OTHER = 0.2;
/** What is cut out of the dot of a seat with a trait, by trait: left, top, width and height as shares of the dot. */
const CUTS = {
  wheelchair: [0.25, 0.25, 0.5, 0.5],
  companion: [0, 0.4, 1, 0.2],
  restricted_view: [0.5, 0, 0.5, 0.5],
  easy_access: [0.35, 0.65, 0.3, 0.35],
};

export class SeatCanvas {
  #frame = 0;
  #changed = new Set();
  #rest = 0;
  /** After a movement without another, the canvas is put around the view again. */
  restMs = 250;

  /** `states` of the seats, `own(seat)`, `isOther(seat)` of one that is not looked for, and `tierOf(section, row)` as `{tier, mark}`. */
  constructor({ canvas, geometry, view, states, own, isOther, tierOf, sectionName, stageName }) {
    Object.assign(this, { canvas, geometry, view, states, codes: states.codes, own, isOther, sectionName, stageName });
    this.context = canvas.getContext("2d", { alpha: false });
    this.shapes = new SeatShapes();
    this.tiers = geometry.sections.map((section) => Array.from({ length: section.rows }, (_, row) => tierOf(section, row + 1)));
  }

  use(palette) {
    this.palette = palette;
    this.base = null;
  }

  /** The view has moved, or everything changed: paints at the next frame. */
  paint({ all = false } = {}) {
    if (all) this.base = null;
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
    const { base, view } = this;
    const [dx, dy] = [view.x - base?.viewX, view.y - base?.viewY];
    const same = ["scale", "viewWidth", "viewHeight", "ratio"].every((name) => base?.[name] === this.#now[name]);
    const covered = same && Math.abs(dx) <= base.aside && Math.abs(dy) <= base.above;
    if (!covered) this.#paintAll();
    else for (const seat of this.#changed) this.#paintSeat(seat);
    if (covered) this.#put(dx, dy);
    this.#changed.clear();
    clearTimeout(this.#rest);
    if (covered && (dx || dy)) this.#rest = setTimeout(() => this.paint({ all: true }), this.restMs);
  }

  get #now() {
    const { x, y, scale, width, height, ratio } = this.view;
    return { viewX: x, viewY: y, scale, viewWidth: width, viewHeight: height, ratio };
  }

  /** The canvas is larger than the view, which moves over it; it is painted anew where the view leaves it, and at rest. */
  #paintAll() {
    const now = this.#now;
    const [aside, above] = [now.viewWidth, now.viewHeight].map((size) => Math.round(Math.min(size * MARGIN, MARGIN_PX)));
    const [width, height] = [now.viewWidth + 2 * aside, now.viewHeight + 2 * above];
    this.base = { ...now, aside, above, x: now.viewX + aside, y: now.viewY + above, width, height };
    const [across, down] = [Math.round(width * now.ratio), Math.round(height * now.ratio)];
    if (this.canvas.width !== across || this.canvas.height !== down) {
      Object.assign(this.canvas, { width: across, height: down });
      Object.assign(this.canvas.style, { width: `${width}px`, height: `${height}px` });
    }
    this.context.setTransform(now.ratio, 0, 0, now.ratio, 0, 0);
    this.#paintBase();
    this.#put(0, 0);
  }

  #put(dx, dy) {
    this.canvas.style.transform = `translate(${dx - this.base.aside}px, ${dy - this.base.above}px)`;
  }

  #toScreen(x, y) {
    const { base } = this;
    return [x * base.scale + base.x, y * base.scale + base.y];
  }

  #paintBase() {
    const { context, palette, base } = this;
    context.fillStyle = palette.sunk;
    context.fillRect(0, 0, base.width, base.height);
    this.#paintStage();
    for (const [n, section] of this.geometry.sections.entries()) {
      const [left, top] = this.#toScreen(section.box.left, section.box.top);
      const [right, bottom] = this.#toScreen(section.box.right, section.box.bottom);
      if (right < 0 || left > base.width || bottom < 0 || top > base.height) continue;
      this.#paintOutline(section);
      this.colour = "";
      this.#paintRows(section, this.tiers[n]);
    }
  }

  #paintStage() {
    const { stage } = this.geometry;
    if (!stage) return;
    const { context, palette, base } = this;
    const [x, y] = this.#toScreen(stage.at[0] - stage.size[0] / 2, stage.at[1] - stage.size[1] / 2);
    const [width, height] = [stage.size[0] * base.scale, stage.size[1] * base.scale];
    context.fillStyle = palette.line;
    context.fillRect(x, y, width, height);
    this.#write(this.stageName, x + width / 2, y + height / 2, Math.min(height * 0.5, 18), palette.ink);
  }

  #paintOutline(section) {
    const { context, palette } = this;
    context.beginPath();
    for (const [x, y] of section.outline) context.lineTo(...this.#toScreen(x, y));
    context.closePath();
    context.fillStyle = palette.card;
    context.strokeStyle = palette.line;
    context.lineWidth = 1;
    context.fill();
    context.stroke();
    if (section.rows > 0) return;
    const [x, y] = this.#toScreen((section.box.left + section.box.right) / 2, (section.box.top + section.box.bottom) / 2);
    this.#write(this.sectionName(section.id), x, y, 14, palette.ink);
  }

  #paintRows(section, tiers) {
    const { x: across, y: down } = this.geometry;
    const { base } = this;
    const px = section.side * base.scale;
    const step = section.seats;
    for (let row = 0, first = section.first; row < section.rows; row += 1, first += step) {
      for (let seat = first; seat < first + step; seat += 1) {
        const x = across[seat] * base.scale + base.x;
        const y = down[seat] * base.scale + base.y;
        if (x < -px || x > base.width + px || y < -px || y > base.height + px) continue;
        if (this.isOther(seat)) this.#other(x, y, px);
        else if (px < DOT_PX) this.#dot(seat, x, y, px, tiers[row]);
        else this.#shape(seat, x, y, px, tiers[row]);
      }
      if (px >= ROW_NAMES_PX) this.#nameRow(section, row, first);
    }
  }

  /** The row's label stands before its first seat. */
  #nameRow(section, row, first) {
    const { geometry, base, palette } = this;
    const away = section.lines.spacing * 0.95;
    const turn = (section.lines.angle * Math.PI) / 180;
    const [x, y] = this.#toScreen(geometry.x[first] - away * Math.cos(turn), geometry.y[first] - away * Math.sin(turn));
    this.#write(rowLabel(section, row), x, y, Math.min(section.side * base.scale * 0.5, 13), palette.soft);
  }

  #paintSeat(seat) {
    const { geometry, base, context, palette } = this;
    const section = geometry.sectionOf(seat);
    const local = seat - section.first;
    const row = Math.floor(local / section.seats);
    const tier = this.tiers[geometry.sections.indexOf(section)][row];
    const px = section.side * base.scale;
    const [x, y] = this.#toScreen(geometry.x[seat], geometry.y[seat]);
    this.colour = "";
    const edge = px / 2 + 1;
    if (x < -edge || y < -edge || x > base.width + edge || y > base.height + edge) return;
    context.fillStyle = palette.card;
    context.fillRect(x - edge, y - edge, 2 * edge, 2 * edge);
    if (this.isOther(seat)) this.#other(x, y, px);
    else if (px < DOT_PX) this.#dot(seat, x, y, px, tier);
    else this.#shape(seat, x, y, px, tier);
  }

  #dot(seat, x, y, px, { tier }) {
    const { context, palette } = this;
    const mine = this.own(seat);
    const code = this.codes[seat];
    if (code === CLOSED && !mine) return;
    const { ratio } = this.base;
    const size = Math.max(Math.round((mine ? px * 1.3 : px * DOTS[code]) * ratio), 1) / ratio;
    const colour = mine ? palette.accent : code === FREE ? palette.tiers[tier] : palette.edge;
    if (colour !== this.colour) context.fillStyle = this.colour = colour;
    const [left, top] = [this.#whole(x - size / 2), this.#whole(y - size / 2)];
    context.fillRect(left, top, size, size);
    if (this.geometry.traits[seat] && code === FREE && !mine) this.#cut(seat, left, top, size);
  }

  /** Far away a trait is a part that is cut out of the dot: its middle, a slit, a corner, or a notch at its foot. */
  #cut(seat, left, top, size) {
    const { context, palette } = this;
    const [first] = traitIds(this.geometry.traits[seat]);
    const [x, y, width, height] = CUTS[first].map((share) => share * size);
    context.fillStyle = this.colour = palette.card;
    context.fillRect(left + x, top + y, width, height);
  }

  /** A seat that is not looked for keeps its place only. */
  #other(x, y, px) {
    this.context.fillStyle = this.colour = this.palette.line;
    const size = Math.max(1, px * OTHER);
    this.context.fillRect(this.#whole(x - size / 2), this.#whole(y - size / 2), size, size);
  }

  #shape(seat, x, y, px, { tier, mark }) {
    const mine = this.own(seat);
    const code = this.codes[seat];
    if (code === CLOSED && !mine) return;
    const { palette, base, context } = this;
    const traits = this.geometry.traits[seat];
    const numbered = px >= TARGET_PX && !mine && code !== SOLD;
    const shape = this.shapes.of({ px, ratio: base.ratio, palette, code, tier, mark, mine, kept: this.states.isKept(seat), traits, numbered });
    const size = shape.width / base.ratio;
    context.drawImage(shape, this.#whole(x - size / 2), this.#whole(y - size / 2), size, size);
    if (numbered) {
      const { number } = this.geometry.nameOf(seat);
      const [low, high] = traits ? [0.2, 0.3] : [-0.06, 0.4];
      this.#write(number, x, y + px * low, px * Math.min(high, 1.5 / number.length), code === FREE ? palette.ink : palette.soft);
    }
  }

  /** On a whole point of the screen: what lies there is copied, not blended. */
  #whole(at) {
    const { ratio } = this.base;
    return Math.round(at * ratio) / ratio;
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
