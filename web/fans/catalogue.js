// The front page: one card per event, page by page.
import { ask } from "./api.js";
import { byId, element, paint, show, trouble } from "./dom.js";
import { moment } from "./format.js";
import { Prices } from "./price.js";
import { fill } from "./words.js";

const STATES = {
  prequeue: texts.state_prequeue,
  open: texts.state_open,
  last_chance: texts.state_last_chance,
  paused: texts.state_paused,
  draining: texts.state_draining,
  draft: texts.state_draft,
  sold_out: texts.state_sold_out,
  closed: texts.state_closed,
};

function card(event) {
  const state = element("span", { class: "state" });
  const poster = element("div", { class: "poster" }, element("h2", {}, event.name), state);
  paint(poster, event.event_id);
  const known = Number.isFinite(event.price_from_minor);
  const price = element("p", { class: "price" });
  if (known) tellPrice(price, event);
  const facts = element(
    "div",
    { class: "facts" },
    element("p", {}, event.venue),
    element("p", {}, element("time", { datetime: event.starts_at }, moment(event.starts_at, event.timezone))),
    price,
  );
  const link = element("a", { class: "event-card", href: `/e/${encodeURIComponent(event.event_id)}` }, shown(event.picture), poster, facts);
  tell(state, event);
  return element("li", {}, link);
}

const shown = (picture) => (picture ? element("img", { class: "picture", src: picture.url, alt: picture.alt, width: picture.width, height: picture.height, loading: "lazy" }) : "");

/** The price with all fees and taxes; empty if it is not known. */
async function tellPrice(node, event) {
  const prices = new Prices(event.event_id, event.currency);
  await prices.learn([event.price_from_minor]).catch(() => {});
  node.textContent = fill(texts.price_from, { price: prices.one(event.price_from_minor) });
}

/** The catalogue does not include the state of the line; its answer may come later or not at all. */
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
