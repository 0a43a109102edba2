// The key to an order that the link in a mail carries: in the fragment, which no server sees; a cookie from then on.
import { ask } from "./api.js";

/** Takes the key out of the address bar and lets this browser keep it. */
export async function openHere(reference) {
  const key = new URLSearchParams(location.hash.slice(1)).get("key");
  if (!key) return;
  history.replaceState(null, "", location.pathname);
  await ask("POST", `/orders/${encodeURIComponent(reference)}/key`, { bearer: key }).catch(() => null);
}
