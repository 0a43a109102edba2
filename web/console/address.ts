// The address of the screen that is shown: following links without loading the page again, and leaving it.
import { signal } from "@preact/signals";
import { session, stop } from "./live";

export const path = signal(location.pathname);

addEventListener("popstate", () => { path.value = location.pathname; });

// Follows a link of the console without loading the page again.
export function go(event: MouseEvent): void {
  if (event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey) return;
  event.preventDefault();
  history.pushState(null, "", (event.currentTarget as HTMLAnchorElement).href);
  path.value = location.pathname;
  scrollTo(0, 0);
}

export async function signOut(): Promise<void> {
  try { await fetch("/console/session", { method: "DELETE" }); } catch { return; }
  stop();
  session.value = null;
}
