// Waiting: the position in large type, updating by itself; announced now and then, not at every step.
import { countdown } from "./clock.js";
import { announce, byId, show, trouble, write } from "./dom.js";
import { count, moment, remaining, waitBetween } from "./format.js";
import { offerNotification } from "./ring.js";

const SPEAK_EVERY_MS = 20_000;
const STANDSTILL = {
  paused: "The line is paused. You keep your place.",
  last_chance: "Every ticket is in somebody's basket. The line moves when some come back.",
};

const NOBODY_CALLED = {
  "stock-low": "For each ticket left somebody is inside or was called. The line moves when some come back.",
  "room-full": "The shop is full. The line moves when somebody inside is done.",
  slower: "Nobody is called at the moment. You keep your place.",
};

const NOT_DRAWN = "The order has not been drawn yet. Nobody is in line before it is, and being early is no advantage.";

const CHANGED = {
  "rate-lowered": "It takes longer than we said: the organisers let fewer fans in per minute now.",
  throttled: "It takes longer than we said: the checkout is busy, so fewer fans are let in for a while.",
  recovering: "It takes longer than we said: after an interruption the line picks up speed again.",
  "other-lanes": "It takes longer than we said: fans in another line are let in beside yours.",
  "room-full": "It takes longer than we said: those inside take their time.",
  "fans-returned": "It takes longer than we said: fans ahead of you have come back.",
  slower: "It takes longer than we said: the line moves more slowly than before.",
  "start-moved": "The start of the sale was moved.",
};
const CHANGE_TOLD_MS = 10 * 60_000;

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
    offerNotification();
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
    const drawing = position === null;
    show("before-start", early);
    show("in-line", !early && !drawing);
    const drawn = this.line.frame?.lottery === undefined || !drawing;
    write("waiting-title", drawn ? "You are in line" : "You are in the lottery");
    write("number-is", drawn ? "Your number is" : "Your entry number is");
    write("not-called", drawn ? "Nobody has been called yet. You keep your place." : NOT_DRAWN);
    write("join-seq", count(place.join_seq));
    write("lane-name", this.line.laneName ? ` in the line “${this.line.laneName}”` : "");
    if (early) this.#beforeStart(this.line.startsAt);
    else if (!drawing) this.#inLine(position);
  }

  #inLine(position) {
    write("position", position > 0 ? count(position) : "Next");
    byId("position").style.setProperty("--characters", byId("position").textContent.length);
    write("estimate", this.#estimate(position));
    write("estimate-changed", this.#changed());
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
    const range = this.line.estimateRange;
    if (range) return `Your turn in ${waitBetween(...range)}`;
    return NOBODY_CALLED[this.line.place.estimate_changed?.reason] ?? "We will tell you how long as soon as we know.";
  }

  /** The reason why the wait grew, for some minutes. */
  #changed() {
    const changed = this.line.place.estimate_changed;
    if (!changed || Date.now() - Date.parse(changed.at) > CHANGE_TOLD_MS) return "";
    return CHANGED[changed.reason] ?? "";
  }

  #beforeStart(startsAt) {
    document.title = `${byId("waiting-title").textContent} · ${this.showName}`;
    show("start-clock", Boolean(startsAt));
    if (!startsAt || startsAt === this.due) return;
    this.due = startsAt;
    write("start-at", moment(startsAt, this.line.zone));
    this.#stop = countdown(startsAt, (seconds) => write("start-countdown", remaining(seconds)), () => this.line.nudge());
  }

  async #leave() {
    if (!window.confirm("Leave the line? Your place cannot be given back to you.")) return;
    await this.line.leave().catch((problem) => trouble(problem.message));
  }
}
