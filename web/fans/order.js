// The order page: the payment's status, live; a retry after a decline; and the tickets, for good.
// While the outcome is unknown, it says "processing", never "failed".
import { Address } from "./address.js";
import { ask, freshKey } from "./api.js";
import { countdown } from "./clock.js";
import { announce, byId, show, trouble, write } from "./dom.js";
import { money, remaining } from "./format.js";
import { MoreTime } from "./more_time.js";
import { NamesChange } from "./names_change.js";
import { billLines } from "./price.js";
import { chosenPayment, offerWays } from "./paying.js";
import { scriptsAreOn } from "./plain.js";
import { Stream } from "./onsale.ts";
import { tickets } from "./tickets.js";
import { openHere } from "./way_in.js";
import { fill } from "./words.js";

const BLIND_POLL_MS = 2_500;
const LIVE_POLL_MS = 10_000;
const MAIL_MS = 20_000; // by then the mail server has taken the mail, or refused it
const FACES = {
  processing: [texts.order_processing, texts.order_processing_text],
  act: [texts.order_act, texts.order_act_text],
  cancelling: [texts.order_cancelling, texts.order_cancelling_text],
  declined: [texts.order_declined, texts.order_declined_text],
  confirmed: [texts.order_confirmed, texts.order_confirmed_text],
  cancelled: [texts.order_cancelled, texts.order_cancelled_text],
  expired: [texts.order_expired, texts.order_expired_text],
  review: [texts.order_review, texts.order_review_text],
  disputed: [texts.order_disputed, texts.order_disputed_text],
  taken_back: [texts.order_taken_back, texts.order_taken_back_text],
  late_paid: [texts.order_late_paid, texts.order_late_paid_text],
  partially_refunded: [texts.order_partially_refunded, texts.order_partially_refunded_text],
  refunded: [texts.order_refunded, texts.order_refunded_text],
  too_late: [texts.order_too_late, texts.order_too_late_text],
  unpaid: [texts.order_unpaid, texts.order_unpaid_text],
  oversold: [texts.order_oversold, texts.order_oversold_text],
};
/** The three visible steps of a pending order, by number. */
const STEPS = {
  waiting: texts.step_waiting,
  paying: texts.step_paying,
  "your-turn": texts.step_your_turn,
  confirming: texts.step_confirming,
  cancelling: texts.step_cancelling,
};
/** Reasons of a declined payment that a fan can do something about. */
const DECLINES = {
  card_declined: texts.card_declined,
  insufficient_funds: texts.insufficient_funds,
  expired_card: texts.expired_card,
  incorrect_cvc: texts.incorrect_cvc,
};
/** Watches every order that can still change by itself: even an expired one may be paid late, and then refunded. */
const SETTLED = new Set(["confirmed", "refunded", "partially_refunded"]);
const SOLD = new Set(["confirmed", "partially_refunded"]);
const OVER = new Set(["cancelled", "expired", "refunded"]);
const ATTEMPT_ENDED = new Set(["failed", "cancelled"]);

class OrderPage {
  #key = freshKey();
  #shown = null;
  #stop = () => {};

  constructor(reference) {
    this.reference = reference;
    this.path = `/orders/${encodeURIComponent(reference)}`;
    this.stream = new Stream(`${this.path}/updates`, { order: () => this.look().catch(() => {}) }, () => {});
    byId("retry").addEventListener("submit", (event) => {
      event.preventDefault();
      this.#payAgain();
    });
    byId("cancel").addEventListener("click", () => this.#cancel());
    byId("print").addEventListener("click", () => window.print());
    byId("tickets-pdf").href = `${this.path}/tickets.pdf`;
    byId("calendar").href = `${this.path}/event.ics`;
    byId("receipt-pdf").href = `${this.path}/receipt.pdf`;
    this.moreTime = new MoreTime("more-time", (order) => this.#longer(order));
    this.address = new Address(this.path, (order) => this.#changed(order));
    this.names = new NamesChange(this.path, (order) => this.#changed(order));
    offerWays();
  }

  /** Polls until the order is final; a frame only brings the next poll forward. */
  async start() {
    await this.look();
    if (!this.#settled) this.stream.open();
    this.#lookLater();
  }

  #lookLater() {
    if (this.#settled) {
      setTimeout(() => this.look().catch(() => {}), MAIL_MS);
      return this.stream.close();
    }
    const ms = this.stream.state === "live" ? LIVE_POLL_MS : BLIND_POLL_MS;
    return setTimeout(async () => {
      if (!document.hidden) await this.look().catch(() => {});
      this.#lookLater();
    }, ms * (0.8 + Math.random() * 0.4));
  }

  async look() {
    this.order = await ask("GET", this.path, { patience: 1 });
    await this.render();
  }

  /** Sold with its tickets, or refunded: nothing changes by itself any more. */
  get #settled() {
    const { status, fulfilled_at: fulfilledAt } = this.order;
    return SETTLED.has(status) && (Boolean(fulfilledAt) || !SOLD.has(status));
  }

  get face() {
    const { status, attempt, cancel_asked: cancelAsked } = this.order;
    if (status === "cancelled" && this.order.end_reason === "capture") return "unpaid";
    if (status === "refunded" && !this.order.confirmed_at) return "too_late";
    if (status === "refunded" && this.order.disputed_minor > 0) return "taken_back";
    if (status === "review" && this.order.dispute) return "disputed";
    if (status !== "pending") return status;
    if (cancelAsked) return "cancelling";
    if (ATTEMPT_ENDED.has(attempt?.status)) return "declined";
    return attempt?.checkout_url ? "act" : "processing";
  }

  async render() {
    const { face, order } = this;
    const [title, text] = FACES[face === "refunded" && order.oversold ? "oversold" : face] ?? [fill(texts.order_other, { status: order.status }), ""];
    byId("order").dataset.face = face;
    write("status-title", title);
    write("status-text", face === "declined" && order.attempt.reason ? `${DECLINES[order.attempt.reason] ?? ""} ${text}`.trim() : text);
    write("progress", STEPS[order.progress] ?? "");
    show("progress", order.status === "pending");
    write("reference", order.reference);
    this.#total(order);
    this.address.render(order);
    show("retry", face === "declined");
    show("cancel", order.status === "pending" && face !== "cancelling");
    show("act", face === "act");
    if (face === "act") byId("act").href = order.attempt.checkout_url;
    this.#clock(order.status === "pending" ? order.expires_at : null);
    show("again", OVER.has(order.status));
    byId("again").href = `/e/${encodeURIComponent(order.event_id)}`;
    const names = JSON.stringify([order.customer.name, order.lines.map((line) => line.names)]);
    const shown = [face, order.fulfilled_at, order.refunded_minor, order.refunding_minor, names].join();
    if (shown === this.#shown) return;
    this.#shown = shown;
    await this.#turned(title, order);
  }

  async #turned(title, order) {
    document.title = `${title} · Onsale`;
    announce(title);
    show("loading", false);
    show("order");
    const sold = SOLD.has(order.status);
    show("papers", Boolean(order.confirmed_at));
    show("proof", sold);
    show("calendar", sold);
    show("tickets-pdf", sold && Boolean(order.fulfilled_at));
    const heard = (issued, places) => this.names.render(order, issued, places);
    byId("tickets").replaceChildren(...(await tickets(order, heard)));
  }

  #total(order) {
    const lines = billLines(order);
    byId("bill").replaceChildren(...lines);
    show("bill", lines.length > 0);
    write("total", money(order.total_minor, order.currency));
    show("charged-line", order.charged_minor > order.total_minor);
    write("charged", money(order.charged_minor, order.currency));
    show("refunded-line", order.refunded_minor > 0);
    write("refunded", money(order.refunded_minor, order.currency));
    show("refunding-line", order.refunding_minor > 0);
    write("refunding", money(order.refunding_minor, order.currency));
  }

  #clock(until) {
    show("expiry", Boolean(until));
    if (until === this.until) return;
    this.#stop();
    this.until = until;
    if (!until) return;
    const over = () => this.look().catch(() => {});
    this.#stop = countdown(until, (seconds) => this.#tick(seconds), over);
  }

  #tick(seconds) {
    const { extended, cancel_asked: cancelled } = this.order;
    write("expiry-clock", remaining(seconds));
    this.moreTime.offer(seconds, extended || cancelled ? null : `${this.path}/extend`);
    if (this.moreTime.offered) this.moreTime.speak(seconds, texts.seconds_left);
  }

  async #changed(order) {
    this.order = order;
    await this.render();
  }

  async #longer(order) {
    await this.#changed(order);
    byId("status-title").focus();
  }

  /** One key per attempt: a double click, or a repetition without an answer, is one attempt. */
  async #payAgain() {
    const body = { payment: chosenPayment() };
    await this.#do("pay-again", async () => {
      await ask("POST", `${this.path}/payments`, { body, key: this.#key, patience: 4 });
      this.#key = freshKey();
    });
  }

  async #cancel() {
    if (!window.confirm(texts.order_cancel_sure)) return;
    await this.#do("cancel", () => ask("POST", `${this.path}/cancel`, { patience: 4 }));
  }

  async #do(button, work) {
    if (byId(button).ariaBusy === "true") return;
    byId(button).ariaBusy = "true";
    trouble(null);
    try {
      await work();
      await this.look();
    } catch (problem) {
      if (!problem.unknown) this.#key = freshKey();
      trouble(problem.message);
    } finally {
      byId(button).ariaBusy = "false";
    }
  }
}

scriptsAreOn();
byId("trouble-close").addEventListener("click", () => trouble(null));
const reference = decodeURIComponent(location.pathname.split("/")[2] ?? "");
try {
  await openHere(reference);
  await new OrderPage(reference).start();
} catch (problem) {
  show("loading", false);
  const denied = [401, 403, 404].includes(problem.status);
  show("lost");
  write("lost-text", denied ? texts.order_no_key : problem.message);
}
