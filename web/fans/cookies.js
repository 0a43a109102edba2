// Tests whether this browser keeps cookies, before anything is taken: without them a place would be lost.
import { Problem } from "./api.js";
import { fill } from "./words.js";

const PROBE = "onsale_probe";

export function keepsCookies() {
  try {
    document.cookie = `${PROBE}=1; Path=/; SameSite=Lax; Max-Age=60`;
    const kept = document.cookie.includes(`${PROBE}=1`);
    document.cookie = `${PROBE}=; Path=/; SameSite=Lax; Max-Age=0`;
    return navigator.cookieEnabled && kept;
  } catch {
    return false;
  }
}

/** The message for the fan. */
export const noCookies = () =>
  new Problem({
    type: "/problems/no-cookies",
    detail: fill(texts.no_cookies, { host: location.host }),
  });
