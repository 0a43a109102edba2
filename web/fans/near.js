// Nearly called: the screen stays on, and a fan who is elsewhere is told once, in time to come back.
import { show } from "./dom.js";
import { ring } from "./ring.js";

const NEAR_PLACES = 200;
const NEAR_S = 300;
const SOON_S = 90;

export class Near {
  #lock = null;
  #wanted = false;
  #told = false;

  constructor(showName) {
    this.showName = showName;
    document.addEventListener("visibilitychange", () => this.#keepOn());
  }

  /** `range` is the estimate as `[low, high]` in seconds, or null. True if it is nearly the fan's turn. */
  at(position, range) {
    const lowS = range?.[0] ?? Infinity;
    const near = position <= NEAR_PLACES && lowS <= NEAR_S;
    this.#want(near);
    if (near && lowS <= SOON_S && document.hidden && !this.#told) {
      this.#told = true;
      ring(texts.nearly_called, this.showName);
    }
    return near;
  }

  leave() {
    this.#told = false;
    this.#want(false);
  }

  /** Says so only while the browser keeps the screen on. */
  #tell() {
    show("screen-on", Boolean(this.#lock && !this.#lock.released));
  }

  #want(wanted) {
    if (wanted === this.#wanted) return;
    this.#wanted = wanted;
    this.#keepOn();
  }

  /** The browser lets go of the screen whenever the page is hidden, or the battery is low. */
  async #keepOn() {
    if (!this.#wanted) {
      this.#lock?.release();
      this.#lock = null;
      this.#tell();
    } else if (!document.hidden && navigator.wakeLock && (!this.#lock || this.#lock.released)) {
      this.#lock = await navigator.wakeLock.request("screen").catch(() => null);
      this.#lock?.addEventListener?.("release", () => this.#tell());
      this.#tell();
      if (!this.#wanted) this.#keepOn();
    }
  }
}
