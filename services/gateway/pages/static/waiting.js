// Waiting: the position very large, moving by itself; spoken aloud now and then, not with every step.
import { countdown } from "./clock.js";
import { announce, byId, show, trouble, write } from "./dom.js";
import { count, hour, remaining, wait } from "./format.js";

const SPEAK_EVERY_MS = 20_000;
const STANDSTILL = {
  paused: "The line is paused. You keep your place.",
  last_chance: "Every ticket is in somebody's basket. The line moves when some come back.",
};

export class Waiting {
  #spokenMs = 0;
  #stop = () => {};

  constructor({ line, showName }) {
    Object.assign(this, { line, showName });
    byId("leave").addEventListener("click", () => this.#leave());
    line.addEventListener("change", () => this.render());
  }

  enter() {
    this.#spokenMs = 0;
    this.render();
  }

  leave() {
    this.#stop();
    this.due = null;
  }

  render() {
    const { place, position } = this.line;
    if (byId("waiting").hidden || !place) return;
    const early = place.status === "prequeue";
    show("before-start", early);
    show("in-line", !early);
    write("join-seq", count(place.join_seq));
    write("lane-name", this.line.laneName ? ` in the line “${this.line.laneName}”` : "");
    if (early) this.#beforeStart(this.line.startsAt);
    else this.#inLine(position);
  }

  #inLine(position) {
    write("position", position > 0 ? count(position) : "Next");
    byId("position").style.setProperty("--characters", byId("position").textContent.length);
    write("estimate", this.#estimate(position));
    byId("progress").value = this.line.progress;
    document.title = position > 0 ? `${count(position)} in line · ${this.showName}` : `You are next · ${this.showName}`;
    if (Date.now() - this.#spokenMs < SPEAK_EVERY_MS) return;
    this.#spokenMs = Date.now();
    announce(`Your place in line: ${position > 0 ? count(position) : "next"}. ${this.#estimate(position)}`);
  }

  #estimate(position) {
    const standstill = STANDSTILL[this.line.frame?.state];
    if (standstill) return standstill;
    if (position === 0) return "You will be called in a moment.";
    const seconds = this.line.estimateS;
    return seconds === null ? "We will tell you how long as soon as we know." : `Your turn in ${wait(seconds)}`;
  }

  #beforeStart(startsAt) {
    document.title = `You are in · ${this.showName}`;
    show("start-clock", Boolean(startsAt));
    if (!startsAt || startsAt === this.due) return;
    this.due = startsAt;
    write("start-at", hour(startsAt));
    this.#stop = countdown(startsAt, (seconds) => write("start-countdown", remaining(seconds)), () => this.line.nudge());
  }

  async #leave() {
    if (!window.confirm("Leave the line? Your place cannot be given back to you.")) return;
    await this.line.leave().catch((problem) => trouble(problem.message));
  }
}
