// The picture of one seat, painted once for each look and size, then copied: its state by shape (an open box, with a thick
// edge if it is kept for the fan, a hatched box with a broken edge, a cross, a full box with a tick), its price by colour and by the mark at its foot, and what it is
// besides by a symbol; places for wheelchairs and beside them are round.
import { traitIds } from "../trait_ids.js";
import { SYMBOLS } from "../traits.js";
import { FREE, HELD, SOLD } from "./seat_codes.js";

/** Lines of symbols, on 16 by 16. */
const SYMBOL = 16;
/** Seats of this size have room for two of them. */
const TWO_PX = 36;
const ROUND = 0b11;

export class SeatShapes {
  #kept = new Map();
  #for = "";

  of({ px, ratio, palette, code, tier, mark, mine, kept, traits, numbered }) {
    const size = Math.max(1, Math.round(px * ratio));
    const wanted = `${size} ${palette.accent} ${palette.card} ${palette.tiers}`;
    if (wanted !== this.#for) this.#kept.clear();
    this.#for = wanted;
    const key = `${mine ? "mine" : code === FREE ? `${tier} ${mark} ${kept}` : code} ${traits}`;
    let shape = this.#kept.get(key);
    if (!shape) this.#kept.set(key, (shape = paint(size, ratio, { palette, code, tier, mark, mine, kept, traits, numbered, most: px < TWO_PX ? 1 : 2 })));
    return shape;
  }
}

function paint(size, ratio, look) {
  const canvas = document.createElement("canvas");
  canvas.width = canvas.height = size;
  const context = canvas.getContext("2d");
  const line = Math.max(1, Math.round(Math.min(1.5 * ratio, size / 10)));
  context.lineWidth = line;
  const { palette, code, mine, traits, numbered, most } = look;
  const corner = size * (traits & ROUND ? 0.5 : 0.18);
  context.beginPath();
  context.roundRect(line / 2, line / 2, size - line, size - line, corner);
  if (mine) paintMine(context, size, palette);
  else if (code === FREE) paintFree(context, size, line, look);
  else if (code === HELD) paintHeld(context, size, line, { palette, corner });
  else paintSold(context, size, line, palette);
  if (traits && !mine && code !== SOLD) paintSymbols(context, size, traits, { numbered, most, colour: code === FREE ? palette.ink : palette.soft });
  return canvas;
}

function paintMine(context, size, palette) {
  context.fillStyle = palette.accent;
  context.fill();
  context.strokeStyle = palette["on-accent"];
  context.lineWidth = Math.max(1.5, size / 9);
  context.beginPath();
  context.moveTo(size * 0.26, size * 0.53);
  context.lineTo(size * 0.43, size * 0.7);
  context.lineTo(size * 0.75, size * 0.32);
  context.stroke();
}

function paintFree(context, size, line, { palette, tier, mark, kept }) {
  context.fillStyle = palette.card;
  context.fill();
  context.save();
  context.clip();
  context.fillStyle = palette.tiers[tier];
  paintMark(context, size, Math.max(2, Math.round(size * 0.17)), mark);
  context.restore();
  context.strokeStyle = palette.tiers[tier];
  context.lineWidth = kept ? 3 * line : line; // half of it lies outside
  context.stroke();
}

/** A full bar, dashes, dots, two thirds, or a middle piece. */
function paintMark(context, size, high, mark) {
  const bar = (from, to) => context.fillRect(from * size, size - high, (to - from) * size, high);
  if (mark === 0) bar(0, 1);
  else if (mark === 1) for (const at of [0, 0.38, 0.76]) bar(at, at + 0.24);
  else if (mark === 2) for (const at of [0.1, 0.3, 0.5, 0.7, 0.9]) bar(at - 0.05, at + 0.05);
  else if (mark === 3) bar(0, 0.5);
  else bar(0.3, 0.7);
}

function paintHeld(context, size, line, { palette, corner }) {
  context.fillStyle = palette.card;
  context.fill();
  context.save();
  context.clip();
  context.strokeStyle = palette.line;
  context.beginPath();
  for (let at = -size; at < size; at += Math.max(3, size / 5)) {
    context.moveTo(at, size);
    context.lineTo(at + size, 0);
  }
  context.stroke();
  context.restore();
  context.strokeStyle = palette.edge;
  context.setLineDash([size / 6, size / 8]);
  context.beginPath();
  context.roundRect(line / 2, line / 2, size - line, size - line, corner);
  context.stroke();
}

/** Above the number if there is one, then as many as have room; else the first one in the middle. */
function paintSymbols(context, size, traits, { numbered, most, colour }) {
  const shown = traitIds(traits).slice(0, numbered ? most : 1);
  const side = size * (numbered ? 0.4 : 0.62);
  context.setLineDash([]);
  context.strokeStyle = colour;
  shown.forEach((id, n) => {
    context.save();
    context.translate(size / 2 + (n - shown.length / 2) * side, numbered ? size * 0.1 : size * 0.15);
    context.scale(side / SYMBOL, side / SYMBOL);
    context.lineWidth = Math.max(1.4, SYMBOL / side);
    context.stroke(new Path2D(SYMBOLS[id]));
    context.restore();
  });
}

function paintSold(context, size, line, palette) {
  context.fillStyle = palette.sunk;
  context.fill();
  context.strokeStyle = palette.soft;
  context.lineWidth = line;
  context.beginPath();
  for (const [from, to] of [[0.34, 0.66], [0.66, 0.34]]) {
    context.moveTo(size * from, size * 0.34);
    context.lineTo(size * to, size * 0.66);
  }
  context.stroke();
}
