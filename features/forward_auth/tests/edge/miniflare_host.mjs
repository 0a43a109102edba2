/**
 * Runs the Worker in workerd, the runtime of Cloudflare Workers, by Miniflare. `node miniflare_host.mjs FOLDER SETTINGS`;
 * it prints its address and ends when its input ends. What the Worker fetches goes to the shop, or to the gateway.
 */
import { readFileSync } from "node:fs";
import { Miniflare } from "miniflare";

const [folder, given] = process.argv.slice(2);
const settings = JSON.parse(given); // { variables, shop, gateway }

const miniflare = new Miniflare({
  host: "127.0.0.1",
  port: 0,
  modules: ["cloudflare-worker.js", "gate.js"].map((path) => ({
    type: "ESModule", path, contents: readFileSync(`${folder}/${path}`, "utf8"),
  })),
  compatibilityDate: "2026-07-01",
  bindings: settings.variables,
  async outboundService(request) {
    const { pathname, search } = new URL(request.url);
    const target = request.url.startsWith(`${settings.gateway}/`) ? settings.gateway : settings.shop;
    const headers = new Headers(request.headers);
    for (const name of ["host", "connection", "content-length", "transfer-encoding"]) headers.delete(name);
    const body = ["GET", "HEAD"].includes(request.method) ? undefined : await request.arrayBuffer();
    return fetch(target + pathname + search, { method: request.method, headers, body, redirect: "manual" });
  },
});
console.log((await miniflare.ready).origin);
process.stdin.resume().on("end", async () => {
  await miniflare.dispose();
  process.exit();
});
