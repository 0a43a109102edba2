// Single seats: which available seats a choice would leave alone in their row, and as many seats side by side that leave
// none, in the same row or the nearest one at the same price. The server decides the same once more when it holds.
import { announce, byId, element, show } from "./dom.js";
import { seat as seatName } from "./format.js";
import { fill } from "./words.js";

const SEARCHED_ROWS_MAX = 200;

/** What a choice leaves alone in a section, and the seats to take instead of others, by their ids. `hall` has the section's
 * rows: `count`, `row(n)` with its seats, and `of(seatId)`, which row a seat is in. */
export function lookAt(seatIds, hall) {
  const mine = new Set(seatIds);
  const used = new Set(seatIds.map((id) => hall.of(id)));
  const [alone, instead] = [[], new Map()];
  for (const n of [...used].sort((a, b) => a - b)) {
    const row = hall.row(n);
    const left = leftAlone(row, mine);
    if (left.length === 0) continue;
    alone.push(...left);
    const own = row.filter(({ seat_id: id }) => mine.has(id));
    const place = nearest(hall, n, own, row.indexOf(own[0]), used);
    place?.seats.forEach((seat, i) => instead.set(own[i].seat_id, seat));
    if (place) used.add(place.n);
  }
  return { alone, instead };
}

const isFree = (seat, mine) => seat?.status === "available" || Boolean(seat && mine?.has(seat.seat_id));

function leftAlone(row, mine) {
  const isLeft = (seat) => isFree(seat) && !mine.has(seat.seat_id);
  const isMine = (seat) => Boolean(seat && mine.has(seat.seat_id));
  return row.filter((seat, i) => {
    const beside = [row[i - 1], row[i + 1]];
    return isLeft(seat) && beside.some(isMine) && !beside.some((other) => other && isLeft(other));
  });
}

function nearest(hall, n, own, at, used) {
  const mine = new Set(own.map(({ seat_id: id }) => id));
  const most = Math.min(Math.max(n, hall.count - 1 - n), SEARCHED_ROWS_MAX);
  for (let off = 0; off <= most; off += 1) {
    for (const other of off === 0 ? [n] : [n - off, n + off]) {
      if (other < 0 || other >= hall.count || (off > 0 && used.has(other))) continue;
      const seats = placeIn(hall.row(other), own, at, mine);
      if (seats) return { n: other, seats };
    }
  }
  return null;
}

/** Where so many seats leave none alone in a row, nearest to `at`. */
function placeIn(row, own, at, mine) {
  const free = row.map((seat) => isFree(seat, mine));
  const last = row.length - own.length;
  const starts = Array.from({ length: Math.max(0, last + 1) }, (_, i) => i).sort((a, b) => Math.abs(a - at) - Math.abs(b - at) || a - b);
  const start = starts.find((i) => {
    const end = i + own.length;
    const fits = row.slice(i, end).every((seat, k) => free[i + k] && seat.price_minor === own[0].price_minor);
    return fits && !(free[i - 1] && !free[i - 2]) && !(free[end] && !free[end + 1]);
  });
  return start === undefined ? null : row.slice(start, start + own.length);
}

/** The hint above the selection, with a button that takes the better seats. */
export class SingleSeats {
  #shown = "";
  /** What is said of the selection; empty if it leaves none alone. */
  words = "";

  /** `hallOf(sectionId)` are its rows, as `lookAt` wants them; nothing while they are not known. */
  constructor({ basket, stock, hallOf }) {
    Object.assign(this, { basket, stock, hallOf });
    this.node = element("div", { id: "single-seats", class: "single-seats", hidden: true });
    byId("basket").prepend(this.node);
  }

  /** Says what the selection would leave alone, unless the event allows it. */
  look() {
    if (this.stock.singleSeats === "allow") return;
    const [alone, instead] = [[], new Map()];
    const picked = [...this.basket.seats.keys()];
    for (const sectionId of new Set(picked.map(sectionOf))) {
      const ids = picked.filter((id) => sectionOf(id) === sectionId);
      const hall = this.hallOf(sectionId);
      const found = hall && ids.every((id) => hall.of(id) >= 0) ? lookAt(ids, hall) : { alone: [], instead: [] };
      alone.push(...found.alone.map(({ seat_id: id }) => id));
      found.instead.forEach((seat, id) => instead.set(id, seat));
    }
    this.#tell(alone, instead, fill(texts.single_seat_left, { seats: this.#named(alone) }));
  }

  /** Says why the server refused, with the seats that it offers. */
  refused({ members: { seats = [], better } }) {
    const own = inOrder([...this.basket.seats.keys()]);
    const others = inOrder(better ?? []).map((id) => [id, ...id.split("-")]);
    const instead = new Map(others.map(([id, , row, label], i) => [own[i], { seat_id: id, row, label, status: "available" }]));
    const left = fill(texts.single_seat_left, { seats: this.#named(seats) });
    this.#tell(seats, instead, `${left} ${texts.single_seat_refused}`);
    announce(this.words);
  }

  #named(ids) {
    return ids.map((id) => seatName(id, this.stock.sections)).join("; ");
  }

  /** What is said now; the button keeps its focus while nothing changes. */
  #tell(alone, instead, told) {
    const words = alone.length > 0 ? told : "";
    const key = [words, ...[...instead.values()].map(({ seat_id: id }) => id)].join();
    if (key === this.#shown) return;
    Object.assign(this, { words });
    this.#shown = key;
    show(this.node, Boolean(words));
    this.node.replaceChildren(element("p", {}, words), ...(instead.size > 0 ? [this.#button(instead)] : []));
    const focused = words && byId("seats").contains(document.activeElement) && document.activeElement;
    if (focused) focused.scrollIntoView({ block: "nearest" }); // it may stand below the hint now
  }

  #button(instead) {
    const names = this.#named([...instead.values()].map(({ seat_id: id }) => id));
    const button = element("button", { type: "button", class: "quiet" }, fill(texts.single_seat_take, { seats: names }));
    button.addEventListener("click", () => {
      this.basket.exchange(instead);
      byId("hold").focus();
      announce(fill(texts.single_seat_taken, { seats: names }));
    });
    return button;
  }
}

const sectionOf = (seatId) => seatId.split("-")[0];
const inOrder = (ids) => [...ids].sort((a, b) => a.localeCompare(b, "en", { numeric: true }));
