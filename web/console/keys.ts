// Keys of one letter. They can be switched off (remembered in this browser) and rest while somebody types.
import { signal } from "@preact/signals";
import { closeDrawer, drawer, openDrawer } from "./drawers/drawer";
import { replayed } from "./live";
import { stopReplay } from "./replay";

const STORED = "onsale.keys";
export const KEYS: [string, string][] = [
  ["?", "This help"], ["p", "Room: pause or resume, asks first"], ["r", "Rate of admission"],
  ["m", "Message to the fans"], ["/", "Search orders"], ["Esc", "Close what is open"],
  ["← →", "Move the cursor of a chart that has the focus; Home and End jump"],
];

export const keysOn = signal(stored());
export const helpOpen = signal(false);

function stored(): boolean {
  try { return localStorage.getItem(STORED) !== "off"; } catch { return true; }
}

export function switchKeys(on: boolean): void {
  keysOn.value = on;
  try { localStorage.setItem(STORED, on ? "on" : "off"); } catch { /* for this visit only */ }
}

const types = (target: EventTarget | null) =>
  target instanceof HTMLElement && (target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName));

// Listens on the screen of an event, until the returned function is called.
export function listen(): () => void {
  const pressed = (event: KeyboardEvent) => {
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "Escape") {
      if (helpOpen.value) helpOpen.value = false; // now: the browser tells of it later, and the next key may come before
      else if (drawer.value) closeDrawer();
      else if (replayed.value) stopReplay();
      return;
    }
    if (!keysOn.value || types(event.target) || drawer.value || helpOpen.value) return;
    const act = event.key === "?" ? () => { helpOpen.value = true; } : replayed.value ? undefined : {
      p: () => openDrawer("room"), r: () => openDrawer("rate"), m: () => openDrawer("message"),
      "/": () => openDrawer("orders"),
    }[event.key];
    if (!act) return;
    event.preventDefault();
    act();
  };
  addEventListener("keydown", pressed);
  return () => removeEventListener("keydown", pressed);
}
