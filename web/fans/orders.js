// The orders that this browser has keys to, newest first; and the links of others, mailed to whom they belong to.
import { ask } from "./api.js";
import { byId, element, show, trouble } from "./dom.js";
import { money, moment } from "./format.js";

const STATUS = {
  cancelled: texts.status_cancelled,
  confirmed: texts.status_confirmed,
  expired: texts.status_expired,
  late_paid: texts.status_late_paid,
  partially_refunded: texts.status_partially_refunded,
  pending: texts.status_pending,
  refunded: texts.status_refunded,
  review: texts.status_review,
};
const ORDERS_MAX = 100;
const NO_KEY = new Set([401, 403]);

function entry(order, show) {
  const facts = [STATUS[order.status], money(order.total_minor, order.currency), order.reference].filter(Boolean).join(" · ");
  const when = show && element("span", { class: "small" }, [show.venue, moment(show.starts_at, show.timezone)].filter(Boolean).join(" · "));
  const link = element("a", { class: "card", href: `/o/${order.reference}` }, element("strong", {}, show?.name ?? order.event_id), when, element("span", {}, facts));
  return element("li", {}, link);
}

async function list() {
  const { orders } = await ask("GET", `/orders?page_size=${ORDERS_MAX}`).catch((problem) => {
    if (NO_KEY.has(problem.status)) return { orders: [] };
    throw problem;
  });
  const ids = [...new Set(orders.map((order) => order.event_id))];
  const found = await Promise.all(ids.map((id) => ask("GET", `/events/${encodeURIComponent(id)}`).catch(() => null)));
  const shows = new Map(ids.map((id, n) => [id, found[n]]));
  byId("orders").replaceChildren(...orders.map((order) => entry(order, shows.get(order.event_id))));
  show("none", orders.length === 0);
}

async function askForLinks(event) {
  event.preventDefault();
  trouble(null);
  if (byId("links-ask").ariaBusy === "true") return;
  byId("links-ask").ariaBusy = "true";
  try {
    await ask("POST", "/orders/links", { body: { email: byId("email").value.trim() } });
    show("links-sent");
  } catch (problem) {
    trouble(problem.slug === "mail-disabled" ? texts.mail_disabled : problem.message);
  } finally {
    byId("links-ask").ariaBusy = "false";
  }
}

byId("trouble-close").addEventListener("click", () => trouble(null));
byId("links").addEventListener("submit", askForLinks);
await list().catch((problem) => trouble(problem.message));
show("loading", false);
