// Where the way without scripts and this one meet: a fan may switch scripts on in the middle.

const value = (name) => document.cookie.split("; ").find((pair) => pair.startsWith(`${name}=`))?.slice(name.length + 1);

/** The server sent the page of a browser without scripts, which would refresh: from now on it sends the other one. */
export function scriptsAreOn() {
  if (!value("onsale_plain")) return;
  document.cookie = "onsale_plain=; Path=/; Max-Age=0; SameSite=Lax";
  if (!value("onsale_plain")) location.replace(location.pathname);
}

/** The id of the hold that a form made. */
export const heldByForm = (eventId) => value(`onsale_reservation_${eventId}`);
