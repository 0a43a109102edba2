/**
 * The gate as a Cloudflare Worker on the shop's route. Settings are variables of the Worker; see docs/use/edge-gates.md.
 * A Worker's isolate keeps the keys between requests.
 */
import { Gate, readSettings } from "./gate.js";

const ANSWERS_WITHIN_MS = 2000;

/** @type {Gate | undefined} */
let gate;

export default {
  /** @param {Request} request @param {Record<string, string>} env */
  async fetch(request, env) {
    gate ??= new Gate(readSettings((name) => env[name]), { fetchKeys: fetchInTime, fetchRedirect: fetchInTime, verify });
    const decision = await gate.decide(request);
    if ("answer" in decision) return decision.answer;
    const onward = new Request(request);
    onward.headers.delete("x-onsale-holder"); // a client's own
    if (decision.holder) onward.headers.set("x-onsale-holder", decision.holder);
    return fetch(onward);
  },
};

function fetchInTime(url, init) {
  return fetch(url, { ...init, redirect: "manual", signal: AbortSignal.timeout(ANSWERS_WITHIN_MS) });
}

async function verify(raw, signature, message) {
  const key = await crypto.subtle.importKey("raw", raw, { name: "Ed25519" }, false, ["verify"]);
  return crypto.subtle.verify({ name: "Ed25519" }, key, signature, message);
}
