// The places of a hall's seats, in map order, computed from the rows of its sections as docs/use/hall.md says; and which seat
// or section lies where. Flat arrays of numbers, so that 100,000 seats are cheap to keep and to walk through.

import { TRAIT_IDS, traitIds } from "../trait_ids.js";

const GRID_UNITS = 32;
const GRID_CELLS_MAX = 65_536;
const TURN = Math.PI / 180;

export class Geometry {
  constructor({ size, stage, sections }) {
    Object.assign(this, { width: size[0], height: size[1], stage });
    let first = 0;
    this.sections = sections.map(({ section_id: id, outline, rows }) => {
      const section = { id, outline, first, rows: rows?.count ?? 0, seats: rows?.seats ?? 0, lines: rows, labels: rows?.labels };
      section.side = rows ? sideOf(rows) : 0;
      section.box = boxOf(outline);
      first += section.rows * section.seats;
      return section;
    });
    this.byId = new Map(this.sections.map((section) => [section.id, section]));
    this.count = first;
    this.x = new Int16Array(first);
    this.y = new Int16Array(first);
    /** By seat a bit for each of its traits, in their order. */
    this.traits = new Uint8Array(first);
    for (const section of this.sections) this.#place(section);
    for (const section of this.sections) this.#mark(section);
    this.#index();
  }

  #place({ first, rows, seats, lines }) {
    if (!lines) return;
    const { at, pitch, spacing, curve, angle } = lines;
    const [cos, sin, last] = [Math.cos(angle * TURN), Math.sin(angle * TURN), spacing * (seats - 1)];
    for (let row = 0, n = first; row < rows; row += 1) {
      for (let seat = 0; seat < seats; seat += 1, n += 1) {
        const u = spacing * seat;
        const v = pitch * row + curve * u * (last - u);
        this.x[n] = Math.floor(at[0] + u * cos - v * sin + 0.5);
        this.y[n] = Math.floor(at[1] + u * sin + v * cos + 0.5);
      }
    }
  }

  #mark({ first, lines }) {
    for (const [bit, id] of TRAIT_IDS.entries()) {
      for (const [from, to] of lines?.traits?.[id] ?? []) {
        for (let seat = first + from; seat <= first + to; seat += 1) this.traits[seat] |= 1 << bit;
      }
    }
  }

  /** What the seat is besides its price. */
  traitsOf(seat) {
    return traitIds(this.traits[seat]);
  }

  /** A grid of squares; each knows its seats as a range of one list. */
  #index() {
    let units = GRID_UNITS;
    while ((this.width / units) * (this.height / units) > GRID_CELLS_MAX) units *= 2;
    const columns = Math.floor(this.width / units) + 1;
    const begins = new Uint32Array(columns * (Math.floor(this.height / units) + 1) + 1);
    const cell = (n) => Math.floor(this.y[n] / units) * columns + Math.floor(this.x[n] / units);
    for (let n = 0; n < this.count; n += 1) begins[cell(n) + 1] += 1;
    for (let c = 1; c < begins.length; c += 1) begins[c] += begins[c - 1];
    const [seats, next] = [new Uint32Array(this.count), begins.slice()];
    for (let n = 0; n < this.count; n += 1) seats[next[cell(n)]++] = n;
    this.grid = { units, columns, begins, seats };
  }

  /** The seat nearest to a point and at most `reach` away, or -1; it looks at all squares within reach. */
  seatNear(x, y, reach) {
    const { units, columns, begins, seats } = this.grid;
    const rows = (begins.length - 1) / columns;
    const clip = (value, most) => Math.min(Math.max(Math.floor(value / units), 0), most - 1);
    let [found, least] = [-1, reach * reach];
    for (let row = clip(y - reach, rows); row <= clip(y + reach, rows); row += 1) {
      const [from, to] = [row * columns + clip(x - reach, columns), row * columns + clip(x + reach, columns)];
      for (let n = begins[from]; n < begins[to + 1]; n += 1) {
        const [dx, dy] = [this.x[seats[n]] - x, this.y[seats[n]] - y];
        if (dx * dx + dy * dy > least) continue;
        [found, least] = [seats[n], dx * dx + dy * dy];
      }
    }
    return found;
  }

  /**
   * The next seat in a direction of the screen that `allowed` lets pass: the nearest, one straight ahead before one aside;
   * where few are allowed, `far` aside also.
   */
  seatTowards(seat, dx, dy, allowed, far = false) {
    let [found, least] = [-1, Infinity];
    for (let n = 0; n < this.count; n += 1) {
      const [x, y] = [this.x[n] - this.x[seat], this.y[n] - this.y[seat]];
      const [ahead, aside] = [x * dx + y * dy, Math.abs(x * dy - y * dx)];
      if (ahead <= 0 || (aside > ahead && !far) || ahead + 2 * aside >= least || !allowed(n)) continue;
      [found, least] = [n, ahead + 2 * aside];
    }
    return found;
  }

  sectionOf(seat) {
    let [low, high] = [0, this.sections.length - 1];
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (this.sections[middle].first <= seat) low = middle;
      else high = middle - 1;
    }
    while (this.sections[low].seats === 0) low -= 1;
    return this.sections[low];
  }

  sectionAt(x, y) {
    return this.sections.find(({ outline }) => isInside(outline, x, y));
  }

  /** Row and seat as on the chair and the ticket; `nth` is the row, counted from 1. */
  nameOf(seat) {
    const section = this.sectionOf(seat);
    const local = seat - section.first;
    const [nth, n] = [Math.floor(local / section.seats), local % section.seats];
    const [row, number] = [rowLabel(section, nth), seatLabels(section, nth)?.[n] ?? String(n + 1)];
    return { section, row, number, nth: nth + 1, id: `${section.id}-${row}-${number}` };
  }

  /** The seat `A-3-12`, or -1. */
  seatOf(seatId) {
    const [id, row, number] = seatId.split("-");
    const section = this.byId.get(id);
    const nth = !section ? -1 : section.labels ? section.labels.rows.indexOf(row) : row - 1;
    if (nth < 0) return -1;
    const n = seatLabels(section, nth)?.indexOf(number) ?? number - 1;
    return n < 0 ? -1 : section.first + nth * section.seats + n;
  }
}

/** What stands on a row, which is counted from 0. */
export const rowLabel = ({ labels }, nth) => labels?.rows[nth] ?? String(nth + 1);

const seatLabels = ({ labels }, nth) => labels?.seats[labels.of_rows[nth]];

export function isInside(outline, x, y) {
  let inside = false;
  let [x1, y1] = outline.at(-1);
  for (const [x2, y2] of outline) {
    if (y1 > y !== y2 > y && x < ((x2 - x1) * (y - y1)) / (y2 - y1) + x1) inside = !inside;
    [x1, y1] = [x2, y2];
  }
  return inside;
}

export function boxOf(points) {
  const [xs, ys] = [points.map(([x]) => x), points.map(([, y]) => y)];
  return { left: Math.min(...xs), top: Math.min(...ys), right: Math.max(...xs), bottom: Math.max(...ys) };
}

/** Where the words of a section stand: the middle of its outline, or else of the part of the middle line inside it. */
export function middleOf({ outline, box }) {
  const [x, y] = [(box.left + box.right) / 2, (box.top + box.bottom) / 2];
  if (isInside(outline, x, y)) return [x, y];
  const inside = [];
  for (let n = 1; n < 40; n += 1) {
    const at = box.left + ((box.right - box.left) * n) / 40;
    if (isInside(outline, at, y)) inside.push(at);
  }
  return inside.length > 0 ? [inside[inside.length >> 1], y] : outline[0];
}

/** The side of a seat, upright on the screen however its rows are turned: neighbours do not touch. */
function sideOf({ pitch, spacing, angle }) {
  const turned = Math.max(Math.abs(Math.cos(angle * TURN)), Math.abs(Math.sin(angle * TURN)));
  return 0.86 * turned * Math.min(Math.abs(pitch), spacing);
}
