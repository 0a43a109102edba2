// The colours of the style sheet for the canvas: light, dark, or the few of a forced palette.
import { element } from "../dom.js";

const NAMES = ["ink", "soft", "card", "sunk", "line", "edge", "accent", "on-accent"];
const TIERS = 5;
const CHANGES = ["(prefers-color-scheme: dark)", "(forced-colors: active)", "(prefers-contrast: more)"];

/** The colours as they are now, by name, and of the tiers of prices. */
export function paletteOf(node) {
  const probe = element("span", { class: "seat hall-probe", "aria-hidden": "true" });
  node.append(probe);
  const seen = (variable) => {
    probe.style.color = `var(--${variable})`;
    return getComputedStyle(probe).color;
  };
  const palette = Object.fromEntries(NAMES.map((name) => [name, seen(name)]));
  palette.tiers = Array.from({ length: TIERS }, (_, tier) => {
    probe.dataset.tier = tier;
    return seen("tier");
  });
  palette.font = getComputedStyle(node).fontFamily;
  probe.remove();
  return palette;
}

export function onPaletteChange(changed) {
  for (const query of CHANGES) matchMedia(query).addEventListener("change", changed);
}
