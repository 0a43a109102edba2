// Keeps line and stock current: by the stream if this fan has a place, else by polling, as often as the server
// says. Whether data is current depends on when it last arrived, not on the state of a socket.
import { Problem } from "./api.js";
import { SILENT_MS, Stream } from "./stream.js";

const ASK_EVERY_MS = 4_000;
const LOOK_EVERY_MS = 1_000;
/** What the stream says of itself, by kind. */
const NOTICES = { interrupted: texts.live_interrupted, restored: texts.live_restored };

export class Feed {
  #timer = null;
  #listening = false;
  #degraded = false;
  #answeredMs = Date.now();
  #nextMs = ASK_EVERY_MS;
  #told = null;

  /** Calls `noticed(text, {over})` for interruptions and their end; `changed(state, sinceMs)` when the connection changes;
   * `sinceMs` is when data last arrived, for `offline`. */
  constructor({ eventId, line, stock, noticed, changed }) {
    Object.assign(this, { line, stock, changed });
    this.stream = new Stream(
      `/events/${eventId}/sections/updates`,
      {
        sections: (frame) => stock.hear(frame),
        line: (frame) => {
          this.#degraded = Boolean(frame.degraded);
          noticed(frame.degraded ? texts.live_interrupted : "", { over: !frame.degraded });
          line.hear(frame);
        },
        notice: ({ kind }) => noticed(NOTICES[kind] ?? "", { over: kind === "restored" }),
      },
      () => this.#tell(),
    );
    document.addEventListener("visibilitychange", () => this.#wake());
    window.addEventListener("online", () => this.#wake());
    window.addEventListener("offline", () => this.#tell());
    setInterval(() => this.#look(), LOOK_EVERY_MS);
    this.#askLater(ASK_EVERY_MS);
  }

  /** From joining on: streams are for fans with a place. */
  listen() {
    this.#listening = true;
    this.stream.open();
  }

  hush() {
    this.#listening = false;
    this.stream.close();
    this.#tell();
  }

  get #heardMs() {
    return Math.max(this.stream.heardMs, this.#answeredMs, this.line.heardMs);
  }

  get #state() {
    const patienceMs = SILENT_MS + (this.stream.state === "live" ? 0 : this.#nextMs);
    if (!navigator.onLine || Date.now() - this.#heardMs > patienceMs) return "offline";
    if (!this.#listening) return null;
    return this.stream.state === "live" && this.#degraded ? "degraded" : this.stream.state;
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
    if (this.stream.state !== "live" && !document.hidden) {
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
    if (this.#listening && Date.now() - this.stream.heardMs > SILENT_MS) this.stream.reopen();
    this.line.nudge();
    this.#askLater(0);
  }
}
