// The return to the protected site that redirected this fan here: given once, in the fragment, and kept for this tab.
import { ask } from "./api.js";
import { tab } from "./memory.js";

const keyOf = (eventId) => `way-back:${eventId}`;

/** Removes the values from the address bar and stores them. */
export function noteWayBack(eventId) {
  const told = new URLSearchParams(location.hash.slice(1));
  const [returnTo, gate] = [told.get("return_to"), told.get("gate")];
  if (!returnTo || !gate) return;
  tab(keyOf(eventId), { return_to: returnTo, gate });
  history.replaceState(null, "", location.pathname);
}

/** Whether a protected site redirected this fan. Values from the link are never used as a key: its author knows them. */
export const cameByGate = (eventId) => Boolean(tab(keyOf(eventId)));

/** Sends an admitted fan back; false without a site to return to, or if the site is no longer allowed. */
export async function goBack(eventId) {
  const wayBack = tab(keyOf(eventId));
  if (!wayBack) return false;
  try {
    const { location: address } = await ask("POST", `/events/${eventId}/queue/handover`, { body: wayBack, patience: 4 });
    location.replace(address);
    return true;
  } catch (problem) {
    if (problem.status !== 422) throw problem;
    tab(keyOf(eventId), null);
    return false;
  }
}
