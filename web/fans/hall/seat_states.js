// The states of all seats of a hall: from the event's stream while it is live, else by asking for the state every few
// seconds. Frames are taken, dropped or healed exactly as docs/use/hall.md says, so a page never keeps a wrong seat.
import { FREE, HELD, STATUSES, decodeState, fromBase64, readChanges, unpack } from "./seat_codes.js";

const ASK_EVERY_MS = 4_000;
const TIMEOUT_MS = 20_000;
/** Above this a stream shows the sections that are open, and the rest is as old as the last answer of the state. */
const STREAMED_SEATS_MAX = 50_000;
const SECTIONS_MAX = 50;

/** Its event `change` has the seats that changed as `detail`; `stale` says that the hall has other seats by now. */
export class SeatStates extends EventTarget {
  #timer = null;
  #asking = null;
  #again = false;
  #watching = false;
  #parts = null;
  #focus = [];
  #version = -1;
  /** As everybody has them, and the reserved ones that are free for this fan. */
  #all;
  #kept = new Set();
  /** Whether it is asked which are free for this fan, and not known yet. */
  waits = false;
  /** Whether the states were ever heard. */
  known = false;

  constructor({ eventId, geometry, feed }) {
    super();
    Object.assign(this, { path: `/events/${eventId}/map/state`, geometry, feed, codes: new Uint8Array(geometry.count) });
    this.#all = new Uint8Array(geometry.count);
  }

  /** The state of a seat, in the words of the list. */
  stateOf(seat) {
    return { status: STATUSES[this.codes[seat]], kept: this.isKept(seat) || undefined };
  }

  /** Whether a seat is free for this fan, and held for everybody else. */
  isKept(seat) {
    return this.codes[seat] === FREE && this.#all[seat] === HELD;
  }

  /** These seats, and no others, are free for this fan while they are held for everybody. */
  keep(seats) {
    const concerned = new Set([...this.#kept, ...seats]);
    this.#kept = seats;
    const changed = [...concerned].filter((seat) => this.#put(seat, this.#all[seat]));
    if (changed.length > 0) this.dispatchEvent(new CustomEvent("change", { detail: changed }));
  }

  /** Whether it is another state for this fan. */
  #put(seat, code) {
    this.#all[seat] = code;
    const seen = code === HELD && this.#kept.has(seat) ? FREE : code;
    const isOther = this.codes[seat] !== seen;
    this.codes[seat] = seen;
    return isOther;
  }

  watch() {
    if (this.#watching) return;
    this.#watching = true;
    this.#listen();
    if (this.#parts) this.ask();
    this.#askLater();
  }

  rest() {
    if (!this.#watching) return;
    this.#watching = false;
    clearTimeout(this.#timer);
    this.feed.showSeats("");
  }

  /** These sections are looked at. In a hall that is too large to stream, they are what is streamed. */
  focusOn(sectionIds) {
    const ids = sectionIds.filter((id) => this.geometry.byId.get(id)?.seats > 0).slice(0, SECTIONS_MAX).sort();
    if (!this.#watching || this.geometry.count <= STREAMED_SEATS_MAX || ids.join() === this.#focus.join()) return;
    this.#focus = ids;
    this.#listen();
  }

  #listen() {
    this.#version = -1;
    this.#parts = this.geometry.count > STREAMED_SEATS_MAX ? this.#focus.map((id) => this.geometry.byId.get(id)) : null;
    this.feed.showSeats(this.#parts ? this.#focus.join() : "*", (data) => this.hear(data));
  }

  /** The seats that the stream shows, as ranges of all seats. */
  get #shown() {
    return this.#parts?.map(({ first, rows, seats }) => [first, rows * seats]) ?? [[0, this.geometry.count]];
  }

  /** One event `seats` of the stream; `all`: it shows the whole hall, whatever was asked for. */
  hear(data) {
    if (data.v !== 0 && data.v <= this.#version) return;
    const shown = data.all ? [[0, this.geometry.count]] : this.#shown;
    const count = shown.reduce((sum, [, seats]) => sum + seats, 0);
    try {
      if (data.s !== undefined) this.#take(data.v, unpack(fromBase64(data.s), count), shown);
      else if (data.after > this.#version) this.ask();
      else this.#apply(data.v, fromBase64(data.d), shown, count);
    } catch (problem) {
      if (!(problem instanceof RangeError)) throw problem;
      this.dispatchEvent(new Event("stale"));
    }
  }

  /** Asks for the state of all seats; once more if somebody asks meanwhile, since what was asked for may be newer. */
  ask() {
    this.#again = Boolean(this.#asking);
    this.#asking ??= this.#askOnce().finally(() => {
      this.#asking = null;
      if (this.#again) this.ask();
    });
    return this.#asking;
  }

  async #askOnce() {
    try {
      const answer = await fetch(this.path, { cache: "no-cache", signal: AbortSignal.timeout(TIMEOUT_MS) });
      if (!answer.ok) return;
      const { version, codes } = decodeState(await answer.arrayBuffer());
      if (codes.length !== this.geometry.count) this.dispatchEvent(new Event("stale"));
      else if (version === 0 || version > this.#version) this.#take(version, codes, [[0, codes.length]]);
    } catch {
      // the next answer or the next snapshot repairs it
    }
  }

  #askLater() {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(async () => {
      if ((!this.feed.hearsSeats || this.#parts) && !document.hidden) await this.ask();
      if (this.#watching) this.#askLater();
    }, ASK_EVERY_MS * (0.85 + Math.random() * 0.3));
  }

  #take(version, codes, ranges) {
    const changed = [];
    let n = 0;
    for (const [first, count] of ranges) {
      for (let seat = first; seat < first + count; seat += 1, n += 1) {
        if (this.#put(seat, codes[n])) changed.push(seat);
      }
    }
    this.#became(version, changed);
  }

  #apply(version, data, shown, count) {
    const changed = [];
    let [part, before] = [0, 0];
    readChanges(data, count, (seat, code) => {
      while (seat - before >= shown[part][1]) before += shown[part++][1];
      const n = shown[part][0] + seat - before;
      if (this.#put(n, code)) changed.push(n);
    });
    this.#became(version, changed);
  }

  #became(version, changed) {
    const first = !this.known;
    this.known = true;
    this.#version = version;
    if (first || changed.length > 0) this.dispatchEvent(new CustomEvent("change", { detail: changed }));
  }
}
