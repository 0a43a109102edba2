// Before joining: the state of the line, the join button, and a code field if a lane requires a code.
import { ask } from "./api.js";
import { countdown } from "./clock.js";
import { byId, fault, show, trouble, write } from "./dom.js";
import { moment, remaining } from "./format.js";
import { Prices } from "./price.js";
import { LOCALE, fill } from "./words.js";

/** Title and text of each state of the line; in the third place, whether it takes fans. */
const STATES = {
  prequeue: [texts.lobby_prequeue, texts.lobby_prequeue_text, true],
  open: [texts.lobby_open, texts.lobby_open_text, true],
  last_chance: [texts.state_last_chance, texts.lobby_last_chance_text, true],
  paused: [texts.lobby_paused, texts.lobby_paused_text, true],
  draining: [texts.lobby_draining, texts.lobby_draining_text],
  sold_out: [texts.state_sold_out, texts.lobby_sold_out_text],
  closed: [texts.sale_closed_title, texts.lobby_closed_text],
  draft: [texts.state_draft, texts.lobby_draft_text],
};
const OR = new Intl.ListFormat(LOCALE, { type: "disjunction" });

export class Lobby {
  #stop = () => {};

  constructor({ line, join }) {
    this.line = line;
    byId("join-form").addEventListener("submit", (event) => {
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
    const known = STATES[frame.state] ?? (frame.state ? STATES.closed : STATES.open);
    const [title, text, open] = known;
    write("lobby-title", title);
    write("lobby-text", frame.lottery && known === STATES.open ? texts.lobby_open_lottery : text);
    write("lobby-length", this.#length(frame, open));
    show("join", Boolean(open));
    write("join", frame.lottery === "open" ? texts.enter_lottery : texts.join);
    this.#askForCode(frame, open);
    this.#countDown(frame);
  }

  #length({ head_seq: head, tail_seq: tail, rate_per_s: rate }, open) {
    if (!open || tail === undefined) return "";
    const waiting = Math.max(0, tail - head);
    if (waiting === 0) return texts.nobody_waits;
    const pace = rate > 0 ? fill(texts.called_per_minute, { n: Math.max(1, Math.round(rate * 60)) }) : "";
    return `${fill(texts.fans_in_line, { n: waiting })} ${pace}`.trim();
  }

  #askForCode({ lanes = {} }, open) {
    const names = Object.values(lanes).filter((lane) => lane.code_required).map((lane) => lane.name);
    show("code-form", Boolean(open) && names.length > 0);
    write("code-note", fill(texts.code_note, { lanes: OR.format(names) }));
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
