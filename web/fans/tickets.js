// An order's tickets on the order page, in the words of their venue.
import { ask } from "./api.js";
import { wear } from "./brand.js";
import { element, paint, show as unhide, write } from "./dom.js";
import { moment, ownTime } from "./format.js";
import { fill } from "./words.js";

const shows = new Map();
const ISSUED = new Set(["confirmed", "partially_refunded", "refunded", "review"]);
let moving = null;

/** One list item per ticket, with its code once issued; before that, one per seat and per general-admission section. Calls
 * `heard(issued, {sections, zone})` with the tickets that are issued, or null, and what the event says of their places. */
export async function tickets(order, heard) {
  const show = await catalogueEntry(order.event_id);
  const issued = ISSUED.has(order.status) ? await ask("GET", `/orders/${order.reference}/tickets`).catch(() => null) : null;
  clearInterval(moving);
  const sections = new Map((show?.sections ?? []).map((section) => [section.section_id, section]));
  heard(issued, { sections, zone: show?.timezone ?? "UTC" });
  if (issued?.tickets.length) return withCodes(issued, sections, order);
  return order.lines.map((line) => ticket(line, sections, order));
}

function withCodes({ tickets: all, window_s: windowS }, sections, order) {
  const nodes = all.map((one) => admission(one, sections, order));
  unhide("tickets-note", windowS > 0);
  write("tickets-note", texts.codes_move);
  if (windowS > 0) {
    moving = setInterval(() => {
      for (const node of nodes) renew(node.querySelector("img"), windowS);
    }, windowS * 1000);
  }
  return nodes;
}

function admission({ ticket_id: id, status, name: person, ...one }, sections, order) {
  const { name, place } = placeOf(one, sections);
  const alt = fill(texts.door_code, { place: [name, place, one.type_name].filter(Boolean).join(", ") });
  const good = status === "valid";
  const code = good
    ? element("img", { class: "code", src: `/orders/${order.reference}/tickets/${id}.svg`, alt, width: 232, height: 232 })
    : element("em", { class: "void" }, texts.ticket_void);
  const node = element("li", { class: "ticket", "data-status": status }, element("strong", {}, name), element("span", {}, place), ...typeOf(one), named(person), code, element("code", {}, id));
  paint(node, order.event_id ?? "");
  return node;
}

const named = (person) => (person ? element("span", { class: "ticket-name" }, person) : null);

/** The section in the words of its venue, and the seat in it. */
function placeOf({ section_id: ofGa, seat_id: seat }, sections) {
  const [sectionId, row, number] = seat?.split("-") ?? [ofGa];
  return { name: sections.get(sectionId)?.name ?? sectionId, place: row ? fill(texts.row_seat, { row, number }) : "" };
}

/** The price type, and what is shown at the door because of it. */
function typeOf({ type_name: type, proof }) {
  const shown = [type, proof && fill(texts.ticket_proof, { proof })].filter(Boolean);
  return shown.map((text, n) => element("span", { class: n ? "proof" : "type" }, text));
}

function renew(image, windowS) {
  if (!image || document.hidden) return;
  image.src = `${image.src.split("?")[0]}?w=${Math.floor(Date.now() / 1000 / windowS)}`;
}

function ticket(line, sections, order) {
  const { name, place } = placeOf(line, sections);
  const told = place || fill(texts.tickets, { n: line.quantity ?? 1 });
  const people = (line.names ?? []).map((one) => one.name).join(texts.list_comma);
  const node = element("li", { class: "ticket" }, element("strong", {}, name), element("span", {}, told), ...typeOf(line), named(people));
  paint(node, order.event_id ?? "");
  return node;
}

async function catalogueEntry(eventId) {
  if (!eventId) return null;
  if (!shows.has(eventId)) shows.set(eventId, await ask("GET", `/events/${encodeURIComponent(eventId)}`).catch(() => null));
  const show = shows.get(eventId);
  if (show) {
    wear(show.brand);
    write("order-event", show.name);
    write("order-when", [show.venue, moment(show.starts_at, show.timezone), ownTime(show.starts_at, show.timezone)].filter(Boolean).join(" · "));
  }
  return show;
}
