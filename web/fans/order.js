// The order page: the payment's status, live; a retry after a decline; and the tickets, for good.
// While the outcome is unknown, it says "processing", never "failed".
import { ask, freshKey } from "./api.js";
import { countdown } from "./clock.js";
import { announce, byId, show, trouble, write } from "./dom.js";
import { money, remaining } from "./format.js";
import { billLines } from "./price.js";
import { chosenPayment, offerWays } from "./paying.js";
import { Stream } from "./stream.js";
import { tickets } from "./tickets.js";
import { openHere } from "./way_in.js";

const BLIND_POLL_MS = 2_500;
const LIVE_POLL_MS = 10_000;
const WORDS = {
  processing: ["Processing your payment", "This can take a moment. You may close this page: the order goes on without it."],
  act: ["One more step", "Nothing is paid yet. The payment goes on at the payment provider’s own page, which brings you back here."],
  cancelling: ["Cancelling your order", "We are making sure that nothing is charged. This can take a moment."],
  declined: ["The payment was declined", "Nothing was charged, and your tickets are still held. You may try again."],
  confirmed: ["You are going", "Your tickets are confirmed. This page is yours for good."],
  cancelled: ["Order cancelled", "Nothing stays charged, and the tickets went back."],
  expired: ["The order ran out of time", "Your tickets went back. If a payment arrives after all, it is refunded by itself."],
  review: ["We are looking into it", "The payment needs a human eye. Your tickets stay held; you need not do anything."],
  late_paid: ["Your payment came late", "We are checking whether your tickets are still free. If not, it is refunded by itself."],
  partially_refunded: ["Partly refunded", "Part of what you paid is on its way back to you. Tickets with a code are still good."],
  refunded: ["Refunded", "The whole amount is on its way back to you."],
  too_late: ["Refunded: the payment came too late", "Your tickets had gone back by then. The whole amount is on its way back to you, and you may choose again."],
  unpaid: ["Your payment could not be collected", "Your bank had agreed and then did not pay. Nothing stays charged, and the tickets went back. You may choose again."],
  oversold: ["Refunded: too many were sold", "We sold more tickets than there are, and yours were among the last. We are sorry. The whole amount is on its way back to you."],
};
/** The three visible steps of a pending order, by number. */
const STEPS = {
  waiting: "Step 1 of 3: we have your order. The payment comes next.",
  paying: "Step 2 of 3: the payment is under way. We wait for the answer.",
  "your-turn": "Step 2 of 3: the payment waits for you.",
  confirming: "Step 3 of 3: we are making the tickets yours.",
  cancelling: "We ask the provider to take nothing, or to give it back.",
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
    byId("receipt-pdf").href = `${this.path}/receipt.pdf`;
    offerWays();
  }

  /** Polls until the order is final; a frame only brings the next poll forward. */
  async start() {
    await this.look();
    if (!this.#settled) this.stream.open();
    this.#lookLater();
  }

  #lookLater() {
    if (this.#settled) return this.stream.close();
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
    if (status !== "pending") return status;
    if (cancelAsked) return "cancelling";
    if (ATTEMPT_ENDED.has(attempt?.status)) return "declined";
    return attempt?.checkout_url ? "act" : "processing";
  }

  async render() {
    const { face, order } = this;
    const [title, text] = WORDS[face === "refunded" && order.oversold ? "oversold" : face] ?? [`Order ${order.status}`, ""];
    byId("order").dataset.face = face;
    write("status-title", title);
    write("status-text", face === "declined" && order.attempt.reason ? `${sentence(order.attempt.reason)} ${text}` : text);
    write("progress", STEPS[order.progress] ?? "");
    show("progress", order.status === "pending");
    write("reference", order.reference);
    this.#total(order);
    show("retry", face === "declined");
    show("cancel", order.status === "pending" && face !== "cancelling");
    show("act", face === "act");
    if (face === "act") byId("act").href = order.attempt.checkout_url;
    this.#clock(order.status === "pending" ? order.expires_at : null);
    show("again", OVER.has(order.status));
    byId("again").href = `/e/${encodeURIComponent(order.event_id)}`;
    const shown = [face, order.fulfilled_at, order.refunded_minor, order.refunding_minor].join();
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
    show("tickets-pdf", sold && Boolean(order.fulfilled_at));
    byId("tickets").replaceChildren(...(await tickets(order)));
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
    this.#stop = countdown(until, (seconds) => write("expiry-clock", remaining(seconds)), over);
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
    if (!window.confirm("Cancel this order and give the tickets back?")) return;
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

/** `card_declined` as a readable text. */
function sentence(reason) {
  const words = String(reason).replaceAll("_", " ");
  return `${words.charAt(0).toUpperCase()}${words.slice(1)}.`;
}

byId("trouble-close").addEventListener("click", () => trouble(null));
const reference = decodeURIComponent(location.pathname.split("/")[2] ?? "");
try {
  await openHere(reference);
  await new OrderPage(reference).start();
} catch (problem) {
  show("loading", false);
  const denied = [401, 403, 404].includes(problem.status);
  show("lost");
  const key = "This browser has no key to this order. Open the page in the browser you bought the tickets with, or by the link in our mail.";
  write("lost-text", denied ? key : problem.message);
}
