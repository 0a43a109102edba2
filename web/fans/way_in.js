// The order token that the link in a mail carries: in the fragment, which no server sees; a cookie from then on.
import { ask } from "./api.js";

/** Removes the token from the address bar and stores it in this browser. */
export async function openHere(reference) {
  const key = new URLSearchParams(location.hash.slice(1)).get("key");
  if (!key) return;
  history.replaceState(null, "", location.pathname);
  await ask("POST", `/orders/${encodeURIComponent(reference)}/key`, { bearer: key }).catch(() => null);
}
