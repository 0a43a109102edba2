// An order's tickets as they look on the order page, in the words of their hall.
import { ask } from "./api.js";
import { element, paint, write } from "./dom.js";
import { date, hour, plural } from "./format.js";

const shows = new Map();

/** One list item per seat and one per general-admission section. */
export async function tickets(order) {
  const show = await catalogueEntry(order.event_id);
  const sections = new Map((show?.sections ?? []).map((section) => [section.section_id, section]));
  return order.lines.map((line) => ticket(line, sections, order));
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
    write("order-when", `${show.venue} · ${date(show.starts_at)}, ${hour(show.starts_at)}`);
  }
  return show;
}
