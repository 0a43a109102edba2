// What places are besides their price: for a wheelchair, for who comes with one, with a restricted view, without steps. Each
// trait has a symbol and words, the same in the map, in the lists and in the legends.
import { element } from "./dom.js";
import { SECTION_TRAITS } from "./sections.js";
import { TRAIT_IDS } from "./trait_ids.js";

const SVG = "http://www.w3.org/2000/svg";
const SEAT_TRAITS = {
  wheelchair: texts.trait_wheelchair, companion: texts.trait_companion,
  restricted_view: texts.trait_restricted_view, easy_access: texts.trait_easy_access,
};
/** The lines of the symbols, on 16 by 16. */
export const SYMBOLS = {
  wheelchair: "M7.6 2.4a1.3 1.3 0 1 1-2.6 0a1.3 1.3 0 1 1 2.6 0M6.3 5.2V9.6H10.6L12.6 13.6H14.4M6.3 6.8H10M4.2 8A4.1 4.1 0 1 0 10.4 12.4",
  companion: "M7.2 4.2a2.2 2.2 0 1 1-4.4 0a2.2 2.2 0 1 1 4.4 0M1.4 14V12.4A3.6 3.6 0 0 1 8.6 12.4V14M12.2 4.6V11M9 7.8H15.4",
  restricted_view: "M1.2 8C4.2 3.6 11.8 3.6 14.8 8C11.8 12.4 4.2 12.4 1.2 8ZM9.8 8a1.8 1.8 0 1 1-3.6 0a1.8 1.8 0 1 1 3.6 0M2.6 13.8L13.4 2.2",
  easy_access: "M1.4 13H14.6V5.4Z",
};

export const inOrder = (traits = []) => TRAIT_IDS.filter((id) => traits.includes(id));

/** The traits of a seat in words. */
export const traitWords = (traits) => inOrder(traits).map((id) => SEAT_TRAITS[id]);

/** The symbol of a trait; words stand beside it. */
export function symbol(id) {
  const lines = document.createElementNS(SVG, "path");
  lines.setAttribute("d", SYMBOLS[id]);
  const drawn = document.createElementNS(SVG, "svg");
  for (const [name, value] of Object.entries({ viewBox: "0 0 16 16", class: "trait", "data-trait": id, "aria-hidden": "true" })) drawn.setAttribute(name, value);
  drawn.append(lines);
  return drawn;
}

/** The entries of a legend. */
export const legendOf = (traits) => inOrder(traits).map((id) => element("li", {}, symbol(id), SECTION_TRAITS[id]));

/** What places of some sections are. */
export const traitsOf = (sections) => inOrder([...sections].flatMap(({ traits = [] }) => traits));

/** A checkbox: only places for wheelchair users. One filter has several; null where no place is for wheelchair users. */
export function filterControl(filter, sections) {
  if (!traitsOf(sections).includes("wheelchair")) return null;
  const box = element("input", { type: "checkbox" });
  box.addEventListener("change", () => {
    filter.on = box.checked;
    filter.dispatchEvent(new Event("change"));
  });
  filter.addEventListener("change", () => (box.checked = filter.on));
  return element("label", { class: "check filter" }, box, texts.filter_wheelchair);
}
