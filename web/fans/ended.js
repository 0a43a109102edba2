// The end of a place: bought, left, expired, or sold out. One text per cause, each with a next step.
import { ask } from "./api.js";
import { byId, show, trouble, write } from "./dom.js";
import { browser } from "./memory.js";

/** Title and text of each end; in the third place, whether the fan may join again. */
const ENDS = {
  completed: [texts.completed_title, texts.completed_text],
  expired: [texts.expired_title, "", true],
  "expired:unclaimed": [texts.unclaimed_title, texts.unclaimed_text, true],
  "expired:session": [texts.session_ended_title, texts.session_ended_text, true],
  left: [texts.left_title, texts.left_text, true],
  sold_out: [texts.state_sold_out, texts.sold_out_thanks],
  closed: [texts.sale_closed_title, texts.sale_closed_thanks],
};
/** Room states in which nobody can join. */
const SHUT = new Set(["sold_out", "closed", "draining"]);

export class Ended {
  constructor({ eventId, line, join }) {
    Object.assign(this, { eventId, line });
    byId("rejoin").addEventListener("click", () => join().catch((problem) => trouble(problem.message)));
  }

  enter({ reason, why, text } = {}) {
    const shut = SHUT.has(reason) || SHUT.has(this.line.frame?.state);
    const known = ENDS[`${reason}:${why}`] ?? ENDS[reason];
    const [title, told, again] = known ?? [texts.end_title, text ?? ""];
    write("ended-title", title);
    write("ended-text", again ? `${told} ${shut ? texts.line_shut : texts.join_again_text}`.trim() : told);
    this.#linkOrder(browser(`order:${this.eventId}`));
    if (reason === "completed") this.#findOrder();
    show("rejoin", !shut);
    write("rejoin", reason === "completed" ? texts.join_again_more : texts.join_again);
    document.title = title;
  }

  leave() {}

  /** An order whose answer was lost is found by the pass that bought it. */
  async #findOrder() {
    if (!byId("to-order").hidden) return;
    const { orders } = await ask("GET", "/orders").catch(() => ({ orders: [] }));
    const mine = orders.find((order) => order.event_id === this.eventId);
    if (mine) this.#linkOrder(browser(`order:${this.eventId}`, mine.reference));
  }

  #linkOrder(reference) {
    show("to-order", Boolean(reference));
    if (reference) byId("to-order").href = `/o/${reference}`;
  }
}
