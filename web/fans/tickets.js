// An order's tickets on the order page, in the words of their venue.
import { ask } from "./api.js";
import { element, paint, show as unhide, write } from "./dom.js";
import { moment, ownTime, plural } from "./format.js";

const shows = new Map();
const ISSUED = new Set(["confirmed", "partially_refunded", "refunded"]);
let moving = null;

/** One list item per ticket, with its code once issued; before that, one per seat and per general-admission section. */
export async function tickets(order) {
  const show = await catalogueEntry(order.event_id);
  const issued = ISSUED.has(order.status) ? await ask("GET", `/orders/${order.reference}/tickets`).catch(() => null) : null;
  clearInterval(moving);
  if (issued?.tickets.length) return withCodes(issued, order);
  const sections = new Map((show?.sections ?? []).map((section) => [section.section_id, section]));
  return order.lines.map((line) => ticket(line, sections, order));
}

function withCodes({ tickets: all, window_s: windowS }, order) {
  const nodes = all.map((one) => admission(one, order));
  unhide("tickets-note", windowS > 0);
  write("tickets-note", "The codes move: show this page at the door, not a picture of it.");
  if (windowS > 0) {
    moving = setInterval(() => {
      for (const node of nodes) renew(node.querySelector("img"), windowS);
    }, windowS * 1000);
  }
  return nodes;
}

function admission({ ticket_id: id, place, status }, order) {
  const [section, ...rest] = place.split(", ");
  const words = [element("strong", {}, section), element("span", {}, upperFirst(rest.join(", ")))];
  const alt = `The code to show at the door: ${place}`;
  const good = status === "valid";
  const code = good
    ? element("img", { class: "code", src: `/orders/${order.reference}/tickets/${id}.svg`, alt, width: 232, height: 232 })
    : element("em", { class: "void" }, "Given back: not valid");
  const node = element("li", { class: "ticket", "data-status": status }, ...words, code, element("code", {}, id));
  paint(node, order.event_id ?? "");
  return node;
}

const upperFirst = (text) => text.charAt(0).toUpperCase() + text.slice(1);

function renew(image, windowS) {
  if (!image || document.hidden) return;
  image.src = `${image.src.split("?")[0]}?w=${Math.floor(Date.now() / 1000 / windowS)}`;
}

function ticket(line, sections, order) {
  const [sectionId, row, number] = line.seat_id?.split("-") ?? [line.section_id];
  const name = sections.get(sectionId)?.name ?? sectionId;
  const place = row ? `Row ${row}, seat ${number}` : plural(line.quantity ?? 1, "ticket");
  const node = element("li", { class: "ticket" }, element("strong", {}, name), element("span", {}, place));
  paint(node, order.event_id ?? "");
  return node;
}

async function catalogueEntry(eventId) {
  if (!eventId) return null;
  if (!shows.has(eventId)) shows.set(eventId, await ask("GET", `/events/${encodeURIComponent(eventId)}`).catch(() => null));
  const show = shows.get(eventId);
  if (show) {
    write("order-event", show.name);
    write("order-when", [show.venue, moment(show.starts_at, show.timezone), ownTime(show.starts_at, show.timezone)].filter(Boolean).join(" · "));
  }
  return show;
}
