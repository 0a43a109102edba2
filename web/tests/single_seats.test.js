import "./page.js";
import assert from "node:assert/strict";
import test from "node:test";
import { lookAt } from "../fans/single_seats.js";

const WIDTH = 6;

/** A section of rows of marks: free, taken, or mine; a row in capitals costs more. */
function hallOf(rows) {
  const seats = rows.map((marks, r) => [...marks].map((mark, i) => ({
    seat_id: `A-${r + 1}-${i + 1}`, price_minor: marks === marks.toUpperCase() && /[A-Z]/.test(marks) ? 900 : 500,
    status: ".m".includes(mark.toLowerCase()) ? "available" : "sold",
  })));
  const mine = seats.flatMap((row, r) => row.filter((_, i) => rows[r][i].toLowerCase() === "m").map(({ seat_id: id }) => id));
  return { mine, hall: { count: seats.length, row: (n) => seats[n], of: (id) => Number(id.split("-")[1]) - 1 } };
}

function look(...rows) {
  const { mine, hall } = hallOf(rows);
  const { alone, instead } = lookAt(mine, hall);
  const taken = mine.map((id) => instead.get(id)?.seat_id ?? id);
  return [alone.map(({ seat_id: id }) => id), instead.size > 0 ? taken.sort() : null];
}

test("a choice that leaves none alone has nothing to say", () => {
  assert.deepEqual(look("mm....", "......"), [[], null]);
  assert.deepEqual(look(".xmmx.", "......"), [[], null], "they were alone before");
});

test("the seats of the same row are shifted, or those of the nearest row taken", () => {
  assert.deepEqual(look(".mm..x"), [["A-1-1"], ["A-1-1", "A-1-2"]]);
  assert.deepEqual(look("m.m..."), [["A-1-2"], ["A-1-1", "A-1-2"]]);
  assert.deepEqual(look("......", "xxxxxx", "mm.xxx"), [["A-3-3"], ["A-1-1", "A-1-2"]]);
  assert.deepEqual(look("x..xxx", "mm.xxx", "x..xxx"), [["A-2-3"], ["A-1-2", "A-1-3"]], "the front one of two");
});

test("nothing is better if all else leaves one alone or costs more", () => {
  assert.deepEqual(look("mm.xxx", "...xxx"), [["A-1-3"], null]);
  assert.deepEqual(look("mm.xxx", "XX..XX"), [["A-1-3"], null]);
});

/** All rows of six marks, and two more: the same answer as by trying every place. */
test("the better seats are those of an exhaustive search", () => {
  const leaves = (row, chosen) => [...row].filter((mark, i) => {
    const free = (k) => row[k] === "." && !chosen.has(k);
    return free(i) && (chosen.has(i - 1) || chosen.has(i + 1)) && !free(i - 1) && !free(i + 1);
  }).length;
  let compared = 0;
  for (let code = 0; code < 3 ** WIDTH; code += 1) {
    const marks = Array.from({ length: WIDTH }, (_, i) => ".xm"[Math.floor(code / 3 ** i) % 3]).join("");
    const mine = new Set([...marks].flatMap((mark, i) => (mark === "m" ? [i] : [])));
    const row = marks.replaceAll("m", ".");
    if (mine.size === 0 || leaves(row, mine) === 0) continue;
    const first = Math.min(...mine);
    const places = [row, "x.....", "..xx.x"].flatMap((other, r) => Array.from({ length: WIDTH - mine.size + 1 }, (_, at) => {
      const chosen = new Set(Array.from({ length: mine.size }, (_seat, k) => at + k));
      const fits = [...chosen].every((k) => other[k] === ".") && leaves(other, chosen) === 0;
      return fits ? [r, Math.abs(at - first), at] : null;
    })).filter(Boolean).sort(([a, b, c], [x, y, z]) => a - x || b - y || c - z);
    const expected = places.length > 0 ? Array.from(mine, (_, k) => `A-${places[0][0] + 1}-${places[0][2] + 1 + k}`) : null;
    assert.deepEqual(look(marks, "x.....", "..xx.x")[1], expected, marks);
    compared += 1;
  }
  assert.ok(compared > 100);
});
