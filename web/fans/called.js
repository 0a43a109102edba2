// Called: the fan may claim the pass. A visible page claims it at once; a hidden one shows the time left to claim, and
// the session begins only when the fan is back.
import { countdown } from "./clock.js";
import { byId, show, write } from "./dom.js";
import { remaining } from "./format.js";
import { ring } from "./ring.js";

export class Called {
  #stop = () => {};
  #waits = false;

  /** `claim()` fetches the pass; `rings()` says whether this tab is the one to ring. */
  constructor({ line, showName, rings, claim }) {
    Object.assign(this, { line, showName, rings, claim });
    byId("come-in").addEventListener("click", () => this.#comeIn());
    document.addEventListener("visibilitychange", () => this.#waits && !document.hidden && this.#comeIn());
    line.addEventListener("change", () => this.#waits && line.place?.status === "admitted" && this.#comeIn());
  }

  enter() {
    if (this.rings() || !document.hidden) ring(texts.called_title, this.showName);
    this.#waits = document.hidden && this.line.place?.status === "ready";
    this.#render();
    if (!this.#waits) this.claim();
  }

  leave() {
    this.#waits = false;
    this.#stop();
  }

  #comeIn() {
    if (!this.#waits) return;
    this.#waits = false;
    this.#render();
    this.claim();
  }

  #render() {
    this.#stop();
    const until = this.#waits ? this.line.place?.until : null;
    write("called-text", this.#waits ? texts.called_kept : texts.called_opening);
    show("called-progress", !this.#waits);
    show("come-in", this.#waits);
    show("called-window", Boolean(until));
    if (until) this.#stop = countdown(until, (seconds) => write("called-clock", remaining(seconds)), () => this.line.nudge());
  }
}
