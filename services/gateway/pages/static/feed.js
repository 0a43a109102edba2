// Keeps line and stock current: by the stream when this fan may listen, by asking when not or when the stream fails, as
// often as the server says.
import { Problem } from "./api.js";
import { Stream } from "./stream.js";

const ASK_EVERY_MS = 4_000;
const SILENT_MS = 20_000;
const INTERRUPTED = "Live updates are interrupted. Numbers here may be a few seconds old.";

export class Feed {
  #timer = null;
  #listening = false;
  #streamHead = 0;

  /** `noticed(text, {over})` hears of interruptions and their end; `changed(state)` hears how current we are. */
  constructor({ eventId, line, stock, noticed, changed }) {
    Object.assign(this, { line, stock });
    this.stream = new Stream(
      `/events/${eventId}/sections/updates`,
      {
        sections: (frame) => stock.hear(frame),
        line: (frame) => {
          this.#streamHead = frame.head_seq ?? 0;
          changed(frame.degraded ? "degraded" : "live");
          noticed(frame.degraded ? INTERRUPTED : "", { over: !frame.degraded });
          line.hear(frame);
        },
        notice: ({ kind, message }) => noticed(message, { over: kind === "restored" }),
      },
      changed,
    );
    document.addEventListener("visibilitychange", () => this.#wake());
    this.#askLater(ASK_EVERY_MS);
  }

  /** From joining on: streams are for those who hold a place. */
  listen() {
    this.#listening = true;
    this.stream.open();
  }

  hush() {
    this.#listening = false;
    this.stream.close();
  }

  #askLater(ms) {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#askUnlessLive(), ms * (0.85 + Math.random() * 0.3));
  }

  async #askUnlessLive() {
    let nextMs = this.line.frame?.poll_after_ms ?? ASK_EVERY_MS;
    if (this.#behind) this.stream.reopen();
    if (this.stream.state !== "live" && !document.hidden) {
      try {
        await Promise.all([this.line.look(), this.stock.look()]);
      } catch (problem) {
        if (!(problem instanceof Problem)) throw problem;
        nextMs = Math.max(nextMs, (problem.retryAfterS ?? 0) * 1000);
      }
    }
    this.#askLater(nextMs);
  }

  /** Silent, although a sign-of-life poll has meanwhile seen the line move: the socket is dead and has not noticed. */
  get #behind() {
    const silent = Date.now() - this.stream.heardMs > SILENT_MS;
    return this.stream.state === "live" && silent && this.line.place?.lane === 0 && this.line.place.head_seq > this.#streamHead;
  }

  #wake() {
    if (document.hidden) return;
    if (this.#listening && Date.now() - this.stream.heardMs > SILENT_MS) this.stream.reopen();
    this.line.nudge();
    this.#askLater(0);
  }
}
