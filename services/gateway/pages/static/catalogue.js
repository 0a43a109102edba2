// The front page: one card per event, page by page.
import { ask } from "./api.js";
import { byId, element, paint, show, trouble } from "./dom.js";
import { date, hour, money } from "./format.js";

const STATES = {
  prequeue: "Starts soon",
  open: "On sale",
  last_chance: "Last chance",
  paused: "Paused",
  draining: "Ending",
  draft: "Not open yet",
  sold_out: "Sold out",
  closed: "Closed",
};

function card(event) {
  const state = element("span", { class: "state" });
  const poster = element("div", { class: "poster" }, element("h2", {}, event.name), state);
  paint(poster, event.event_id);
  const known = Number.isFinite(event.price_from_minor);
  const from = known ? `from ${money(event.price_from_minor, event.currency)}` : "";
  const facts = element(
    "div",
    { class: "facts" },
    element("p", {}, event.venue),
    element("p", {}, element("time", { datetime: event.starts_at }, `${date(event.starts_at)}, ${hour(event.starts_at)}`)),
    element("p", { class: "price" }, from),
  );
  const link = element("a", { class: "event-card", href: `/e/${encodeURIComponent(event.event_id)}` }, poster, facts);
  tell(state, event);
  return element("li", {}, link);
}

/** The catalogue does not know how the line stands; that answer may come later or not at all. */
async function tell(node, event) {
  const line = await ask("GET", `/events/${encodeURIComponent(event.event_id)}/queue`, { patience: 0 }).catch(() => null);
  node.dataset.state = line?.state ?? "";
  node.textContent = STATES[line?.state] ?? "";
}

async function load(cursor) {
  const query = cursor ? `?cursor=${encodeURIComponent(cursor)}` : "";
  const { events, next } = await ask("GET", `/events${query}`, { patience: 5 });
  byId("events").append(...events.map(card));
  show("loading", false);
  show("none", !next && byId("events").childElementCount === 0);
  show("more", Boolean(next));
  byId("more").onclick = () => attempt(next);
}

const attempt = (cursor) => load(cursor).catch((problem) => trouble(problem.message));

byId("trouble-close").addEventListener("click", () => trouble(null));
attempt(null);
