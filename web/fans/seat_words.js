// The facts of a seat in words, the same in the map and in the list.
import { traitWords } from "./traits.js";
import { fill } from "./words.js";

const STATUSES = {
  available: texts.seat_available,
  reserved: texts.seat_reserved,
  sold: texts.seat_sold,
  blocked: texts.seat_blocked,
  yours: texts.legend_yours,
};

export const seatFacts = ({ row, label, number, status, kept, traits }, price) =>
  fill(texts.seat_facts, {
    row, number: label || number, price: [...traitWords(traits), price].join(texts.list_comma),
    status: kept && status === "available" ? texts.seat_kept : (STATUSES[status] ?? status),
  });
