// More time, offered near the end of a deadline. The server gives it once.
import { ask } from "./api.js";
import { announce, byId, show, trouble } from "./dom.js";
import { fill } from "./words.js";

const OFFER_S = 120;
const SPOKEN_AT_S = new Set([120, 60, 20]);

export class MoreTime {
  #path = null;
  #had = null;

  /** `button` is its id; calls `given(answer)` with the server's answer. */
  constructor(button, given) {
    Object.assign(this, { button, given });
    byId(button).addEventListener("click", () => this.#ask());
  }

  /** `path` takes the request for this deadline, or is null if none may be made; `of` names what lasts longer. */
  offer(seconds, path, of = path) {
    Object.assign(this, { of });
    this.#path = path;
    show(this.button, Boolean(path) && seconds <= OFFER_S && seconds > 0 && this.#had !== of);
  }

  get offered() {
    return !byId(this.button).hidden;
  }

  /** Announces the time left at a few moments: `text` with `n` seconds, what `more` says, and that more may be asked for. */
  speak(seconds, text, ...more) {
    const n = Math.ceil(seconds);
    if (SPOKEN_AT_S.has(n)) announce([fill(text, { n }), ...more, this.offered ? texts.may_ask_time : ""].join(" "));
  }

  async #ask() {
    const { of } = this;
    try {
      const answer = await ask("POST", this.#path);
      announce(texts.more_time_given);
      this.given(answer);
    } catch (problem) {
      if (problem.slug !== "already-extended") return trouble(problem.message);
      trouble(texts.extended_once, "calm");
    }
    this.#had = of;
    show(this.button, false);
  }
}
