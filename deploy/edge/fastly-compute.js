/**
 * The gate as a Fastly Compute program. Settings are a config store named `onsale`; backends are `shop` and `onsale`; see
 * docs/use/edge-gates.md. Its runtime lacks Ed25519, so signatures are verified in JavaScript, each pass once a sandbox.
 */
import { CacheOverride } from "fastly:cache-override";
import { ConfigStore } from "fastly:config-store";
import { setReusableSandboxOptions } from "fastly:experimental";
import { verify as verifyEd25519 } from "./ed25519.js";
import { Gate, readSettings } from "./gate.js";

const VERIFIED_MAX = 1000;
const KEYS_CACHED = new CacheOverride("override", { ttl: 60, swr: 240 });
const NOT_CACHED = new CacheOverride("pass");

setReusableSandboxOptions({ maxRequests: 1000 });

/** @type {Gate | undefined} */
let gate;
/** @type {Set<string>} */
const verified = new Set();

addEventListener("fetch", (event) => event.respondWith(handle(event.request)));

async function handle(request) {
  gate ??= makeGate();
  const decision = await gate.decide(request);
  if ("answer" in decision) return decision.answer;
  const onward = new Request(request);
  onward.headers.delete("x-onsale-holder"); // a client's own
  if (decision.holder) onward.headers.set("x-onsale-holder", decision.holder);
  return fetch(onward, { backend: "shop" });
}

function makeGate() {
  const store = new ConfigStore("onsale");
  return new Gate(readSettings((name) => store.get(name)), {
    fetchKeys: (url, init) => fetch(url, { ...init, backend: "onsale", cacheOverride: KEYS_CACHED }),
    fetchRedirect: (url, init) => fetch(url, { ...init, backend: "onsale", cacheOverride: NOT_CACHED }),
    verify,
  });
}

/** @param {Uint8Array} key @param {Uint8Array} signature @param {Uint8Array} message */
async function verify(key, signature, message) {
  const entry = [key, signature, message].join("|");
  if (verified.has(entry)) return true;
  if (!(await verifyEd25519(key, signature, message))) return false;
  if (verified.size >= VERIFIED_MAX) verified.clear();
  verified.add(entry);
  return true;
}
