// Keeps line and stock current: by the stream if this fan has a place, else by polling, as often as the server
// says. Whether data is current depends on when it last arrived, not on the state of a socket. Of several tabs one has
// the stream; any of them asks if it hears nothing.
import { Problem } from "./api.js";
import { SILENT_MS, Stream } from "./onsale.ts";
import { Tabs } from "./tabs.js";

const ASK_EVERY_MS = 4_000;
const LOOK_EVERY_MS = 1_000;
/** All seats come every half minute at least. */
const SEATS_SILENT_MS = 40_000;
const ALL_SEATS = "*";
/** What the stream says of itself, by kind. */
const NOTICES = { interrupted: texts.live_interrupted, restored: texts.live_restored };

export class Feed {
  #timer = null;
  #listening = false;
  #degraded = false;
  #answeredMs = Date.now();
  #nextMs = ASK_EVERY_MS;
  #told = null;
  #leader = { state: null, heardMs: 0 };
  #shown = "";
  #hearSeats = () => {};
  #seatsMs = 0;

  /** Calls `noticed(text, {over})` for interruptions and their end; `changed(state, sinceMs)` when the connection changes;
   * `sinceMs` is when data last arrived, for `offline`. */
  constructor({ eventId, line, stock, noticed, changed }) {
    Object.assign(this, { line, stock, changed, path: `/events/${eventId}/sections/updates` });
    this.hears = {
      beat: () => {},
      sections: (frame) => stock.hear(frame),
      line: (frame) => {
        this.#degraded = Boolean(frame.degraded);
        noticed(frame.degraded ? texts.live_interrupted : "", { over: !frame.degraded });
        line.hear(frame);
      },
      seats: (frame) => {
        this.#seatsMs = Date.now();
        this.#hearSeats(frame);
      },
      notice: ({ kind }) => noticed(NOTICES[kind] ?? "", { over: kind === "restored" }),
    };
    this.tabs = new Tabs(eventId, (kind, data) => this.#heard(kind, data));
    const handlers = Object.keys(this.hears).map((kind) => [kind, (frame) => this.#hear(kind, frame)]);
    this.stream = new Stream(this.path, Object.fromEntries(handlers), () => this.#streamTurned());
    line.tell = (place) => this.tabs.tell("place", place);
    document.addEventListener("visibilitychange", () => this.#wake());
    window.addEventListener("online", () => this.#wake());
    window.addEventListener("offline", () => this.#tell());
    setInterval(() => this.#look(), LOOK_EVERY_MS);
    this.#askLater(ASK_EVERY_MS);
  }

  /** From joining on: streams are for fans with a place. */
  listen() {
    this.#listening = true;
    this.tabs.compete(() => this.stream.open());
    if (!this.tabs.leads) this.tabs.tell("hello");
  }

  /** Whether states of seats arrive, here or from the tab that leads. */
  get hearsSeats() {
    return this.tabs.leads ? this.stream.state === "live" : Date.now() - this.#seatsMs < SEATS_SILENT_MS;
  }

  /** The stream also shows the seats of these sections, `*` for all, or none; it opens anew, with their states. */
  showSeats(sections, hear = () => {}) {
    this.#shown = sections;
    this.#hearSeats = hear;
    this.stream.url = sections ? `${this.path}?seats=${encodeURIComponent(sections)}` : this.path;
    if (!this.tabs.leads) return;
    this.stream.close();
    this.stream.open();
  }

  hush() {
    this.#listening = false;
    this.tabs.resign();
    this.stream.close();
    this.#tell();
  }

  /** From the stream: this tab leads. */
  #hear(kind, frame) {
    if (kind !== "seats" || this.#shown === ALL_SEATS) this.tabs.tell(kind, frame);
    this.hears[kind](frame);
  }

  /** From another tab. */
  #heard(kind, data) {
    if (kind === "hello") return this.tabs.leads && this.#streamTurned();
    if (kind === "place") return this.line.learn(data, { later: !this.tabs.leads });
    if (this.tabs.leads) return null;
    this.#leader.heardMs = Date.now();
    if (kind === "state") this.#leader.state = data;
    else if (kind !== "seats" || this.#shown === ALL_SEATS) this.hears[kind](data);
    return this.#tell();
  }

  #streamTurned() {
    this.tabs.tell("state", this.stream.state);
    this.#tell();
  }

  get #heardMs() {
    return Math.max(this.stream.heardMs, this.#leader.heardMs, this.#answeredMs, this.line.heardMs);
  }

  /** The stream's state, here or in the tab that leads, as long as that tells. */
  get #streamState() {
    if (this.tabs.leads) return this.stream.state;
    return Date.now() - this.#leader.heardMs > SILENT_MS ? "polling" : (this.#leader.state ?? "polling");
  }

  get #state() {
    const state = this.#streamState;
    const patienceMs = SILENT_MS + (state === "live" ? 0 : this.#nextMs);
    if (!navigator.onLine || Date.now() - this.#heardMs > patienceMs) return "offline";
    if (!this.#listening) return null;
    return state === "live" && this.#degraded ? "degraded" : state;
  }

  #tell() {
    const state = this.#state;
    if (state === this.#told) return;
    this.#told = state;
    this.changed(state, this.#heardMs);
  }

  #look() {
    if (document.hidden) return;
    if (this.#listening && this.stream.silent) this.stream.reopen();
    this.#tell();
  }

  #askLater(ms) {
    clearTimeout(this.#timer);
    this.#nextMs = ms;
    this.#timer = setTimeout(() => this.#askUnlessLive(), ms * (0.85 + Math.random() * 0.3));
  }

  async #askUnlessLive() {
    let nextMs = this.line.frame?.poll_after_ms ?? ASK_EVERY_MS;
    if (this.#streamState !== "live" && !document.hidden) {
      try {
        await Promise.all([this.line.look(), this.stock.look()]);
        this.#answeredMs = Date.now();
      } catch (problem) {
        if (!(problem instanceof Problem)) throw problem;
        nextMs = Math.max(nextMs, (problem.retryAfterS ?? 0) * 1000);
      }
    }
    this.#tell();
    this.#askLater(nextMs);
  }

  #wake() {
    if (document.hidden) return;
    if (this.tabs.leads && Date.now() - this.stream.heardMs > SILENT_MS) this.stream.reopen();
    this.line.nudge();
    this.#askLater(0);
  }
}
