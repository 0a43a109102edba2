// Waiting: the position in large type, updating by itself; announced now and then, not at every step.
import { countdown } from "./clock.js";
import { announce, byId, show, trouble, write } from "./dom.js";
import { moment, remaining } from "./format.js";
import { Near } from "./near.js";
import { offerNotification } from "./ring.js";
import { changeWords, estimateWords, NOT_STARTED } from "./wait_words.js";
import { count, fill } from "./words.js";

const SPEAK_EVERY_MS = 20_000;

export class Waiting {
  #spokenMs = 0;
  #stop = () => {};

  constructor({ line, stock, prices, showName }) {
    Object.assign(this, { line, stock, prices, showName });
    this.near = new Near(showName);
    stock.addEventListener("change", () => this.#left());
    byId("leave").addEventListener("click", () => this.#leave());
    line.addEventListener("change", () => this.render());
  }

  enter() {
    this.#spokenMs = 0;
    offerNotification();
    this.render();
    this.#left();
  }

  leave() {
    this.#stop();
    this.near.leave();
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
    write("waiting-title", drawn ? texts.waiting_title : texts.waiting_lottery);
    write("number-is", drawn ? texts.number_is : texts.entry_number_is);
    write("not-called", drawn ? NOT_STARTED : texts.not_drawn);
    write("join-seq", count(place.join_seq));
    write("lane-name", this.line.laneName ? ` ${fill(texts.in_lane, { lane: this.line.laneName })}` : "");
    if (early) this.#beforeStart(this.line.startsAt);
    else if (!drawing) this.#inLine(position);
  }

  #inLine(position) {
    write("position", position > 0 ? count(position) : texts.position_next);
    byId("position").style.setProperty("--characters", byId("position").textContent.length);
    write("estimate", this.#estimate(position));
    write("estimate-changed", changeWords(this.line.place.estimate_changed));
    byId("progress").value = this.line.progress;
    show("near", this.near.at(position, this.line.estimateRange));
    document.title = `${position > 0 ? fill(texts.title_position, { n: position }) : texts.title_next} · ${this.showName}`;
    if (Date.now() - this.#spokenMs < SPEAK_EVERY_MS) return;
    this.#spokenMs = Date.now();
    announce(`${position > 0 ? fill(texts.spoken_position, { n: position }) : texts.title_next}. ${this.#estimate(position)}`);
  }

  /** What is left for those who wait, at which prices: nobody waits for what is gone. */
  #left() {
    if (byId("waiting").hidden) return;
    const sections = [...this.stock.sections.values()];
    const sum = (name) => sections.reduce((total, section) => total + (section[name] ?? 0), 0);
    if (sections.some((section) => section.available_seats === undefined)) return;
    const minors = sections.filter((section) => section.available_seats > 0).flatMap((section) => [section, ...(section.price_levels ?? [])]);
    const prices = minors.map((level) => level.price_minor).sort((one, other) => one - other);
    const [least, most] = [prices[0], prices.at(-1)].map((minor) => minor !== undefined && this.prices.one(minor));
    const left = fill(texts.left_of, { n: sum("available_seats"), total: sum("total_seats") });
    const range = least === most ? least : fill(texts.price_range, { least, most });
    write("left-now", range ? `${left} · ${range}` : left);
  }

  #estimate(position) {
    const { estimateRange: range, place, frame } = this.line;
    return estimateWords({ state: frame?.state, position, range, changed: place.estimate_changed });
  }

  #beforeStart(startsAt) {
    document.title = `${byId("waiting-title").textContent} · ${this.showName}`;
    show("start-clock", Boolean(startsAt));
    if (!startsAt || startsAt === this.due) return;
    this.due = startsAt;
    write("start-at", moment(startsAt, this.line.zone));
    this.#stop = countdown(startsAt, (seconds) => write("start-countdown", remaining(seconds)), () => this.line.begin());
  }

  async #leave() {
    if (!window.confirm(texts.leave_sure)) return;
    await this.line.leave().catch((problem) => trouble(problem.message));
  }
}
