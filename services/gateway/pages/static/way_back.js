// The way back to the site whose gate sent this fan here: told once, in the fragment, and kept for this tab.
import { ask } from "./api.js";
import { tab } from "./memory.js";

const keyOf = (eventId) => `way-back:${eventId}`;

/** Takes what the gate told out of the address bar. */
export function noteWayBack(eventId) {
  const told = new URLSearchParams(location.hash.slice(1));
  const [returnTo, gate] = [told.get("return_to"), told.get("gate")];
  if (!returnTo || !gate) return;
  tab(keyOf(eventId), { return_to: returnTo, gate });
  history.replaceState(null, "", location.pathname);
}

/** Whether a gate sent this fan here. Nothing that came by the link is ever a key: who made the link knows it. */
export const cameByGate = (eventId) => Boolean(tab(keyOf(eventId)));

/** Sends an admitted fan back; false for who did not come from a site, or from one that is no longer allowed. */
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
