// Before joining: the state of the line, the join button, and a code field if a lane requires a code.
import { ask } from "./api.js";
import { countdown } from "./clock.js";
import { byId, fault, show, trouble, write } from "./dom.js";
import { moment, plural, remaining } from "./format.js";
import { count } from "./words.js";
import { Prices } from "./price.js";

const ORDERED = "You will be called in order, first come, first served.";
const WORDS = {
  prequeue: ["The sale has not started", "Join now, get your place, and wait here until it does.", "Join the line"],
  open: ["The sale is on", `Join the line. ${ORDERED}`, "Join the line"],
  last_chance: ["Last chance", "Every ticket is in somebody's basket. When some come back, the line moves.", "Join the line"],
  paused: ["The line is paused", "Nobody is being called right now. You can join and keep your place.", "Join the line"],
  draining: ["The sale is ending", "The line takes nobody new. Whoever is in it will still be called."],
  sold_out: ["Sold out", "All tickets are sold. Thank you for coming."],
  closed: ["The sale is closed", "This sale has ended."],
  draft: ["Not open yet", "This sale has not been opened. Come back soon."],
};

export class Lobby {
  #stop = () => {};

  constructor({ line, join }) {
    this.line = line;
    byId("join").addEventListener("click", () => this.#join(join));
    byId("code-form").addEventListener("submit", (event) => {
      event.preventDefault();
      this.#join(join);
    });
    line.addEventListener("change", () => this.render());
  }

  enter() {
    this.render();
  }

  leave() {
    this.#stop();
  }

  render() {
    const frame = this.line.frame;
    if (!frame || byId("lobby").hidden) return;
    const [title, text, button] = WORDS[frame.state] ?? (frame.state ? WORDS.closed : WORDS.open);
    write("lobby-title", title);
    write("lobby-text", frame.lottery ? text.replace(ORDERED, "You will be called in the order of the draw.") : text);
    write("lobby-length", this.#length(frame, button));
    show("join", Boolean(button));
    write("join", frame.lottery === "open" ? "Enter the lottery" : (button ?? ""));
    this.#askForCode(frame, button);
    this.#countDown(frame);
  }

  #length({ head_seq: head, tail_seq: tail, rate_per_s: rate }, open) {
    if (!open || tail === undefined) return "";
    const waiting = Math.max(0, tail - head);
    if (waiting === 0) return "Nobody is waiting right now.";
    const perMinute = Math.max(1, Math.round(rate * 60));
    const pace = rate > 0 ? `, up to ${plural(perMinute, "fan")} called per minute` : "";
    return `${count(waiting)} ${waiting === 1 ? "fan is" : "fans are"} in line${pace}.`;
  }

  #askForCode({ lanes = {} }, open) {
    const names = Object.values(lanes).filter((lane) => lane.code_required).map((lane) => lane.name);
    show("code-form", Boolean(open) && names.length > 0);
    write("code-note", `For ${names.join(" or ")}. Without one you join the general line.`);
  }

  #countDown({ state, sale_starts_at: startsAt }) {
    const due = state === "prequeue" && startsAt ? startsAt : null;
    show("lobby-start", due !== null);
    if (due === this.due) return;
    this.#stop();
    this.due = due;
    if (!due) return;
    write("lobby-start-at", moment(due, this.line.zone));
    const started = () => this.line.look().catch(() => {});
    this.#stop = countdown(due, (seconds) => write("lobby-countdown", remaining(seconds)), started);
  }

  async #join(join) {
    const button = byId("join");
    if (button.ariaBusy === "true") return;
    button.ariaBusy = "true";
    trouble(null);
    fault("code", null);
    try {
      await join(byId("code-form").hidden ? "" : byId("code").value.trim());
    } catch (problem) {
      if (!problem.slug?.startsWith("code-")) return trouble(problem.message);
      fault("code", problem.message);
      byId("code").focus();
    } finally {
      button.ariaBusy = "false";
    }
  }
}

/** The facts at the top: what, where, when, and the price once it is known. */
export async function describe(eventId) {
  const fact = await ask("GET", `/events/${eventId}`, { patience: 5 });
  const prices = new Prices(fact.event_id, fact.currency);
  const levels = fact.sections.flatMap((section) => [section, ...(section.price_levels ?? [])]);
  prices.learn(levels.map((level) => level.price_minor)).catch(() => {});
  return { ...fact, prices };
}
