/**
 * Runs an edge gate under Node by the contract that its platform publishes: a Worker exports a handler `fetch(request, env,
 * ctx)`; a Fastly program listens for `fetch` events, reads a config store, and names a backend with each `fetch`.
 * `node host.mjs PROGRAM SETTINGS`; it prints its address and ends when its input ends.
 */
import { webcrypto } from "node:crypto";
import { once } from "node:events";
import { createServer } from "node:http";
import { register } from "node:module";
import { pathToFileURL } from "node:url";

const [program, given] = process.argv.slice(2);
const settings = JSON.parse(given); // { variables, shop, gateway }
const nodeFetch = globalThis.fetch;
globalThis.crypto ??= webcrypto; // before Node 20

const MODULES = {
  "fastly:config-store": "export class ConfigStore { get(name) { return onsaleHost.variables[name] ?? null; } }",
  "fastly:cache-override": "export class CacheOverride { constructor(mode, init) { Object.assign(this, { mode, init }); } }",
  "fastly:experimental": "export function setReusableSandboxOptions(options) { onsaleHost.reuse = options; }",
};
register(
  `data:text/javascript,${encodeURIComponent(`
    const MODULES = ${JSON.stringify(MODULES)};
    export async function resolve(name, context, next) {
      return MODULES[name] ? { url: "data:text/javascript," + encodeURIComponent(MODULES[name]), shortCircuit: true }
        : next(name, context);
    }`)}`,
);
globalThis.onsaleHost = { variables: settings.variables };

/** Sends on to the shop; headers that a connection has for itself stay behind. */
async function toShop(request) {
  const { pathname, search } = new URL(request.url);
  const headers = new Headers(request.headers);
  for (const name of ["host", "connection", "content-length", "transfer-encoding"]) headers.delete(name);
  const body = ["GET", "HEAD"].includes(request.method) ? undefined : await request.arrayBuffer();
  return nodeFetch(settings.shop + pathname + search, { method: request.method, headers, body, redirect: "manual" });
}

async function handlerOf(path) {
  if (!path.includes("fastly")) {
    globalThis.fetch = (asked, init) => (typeof asked === "string" ? nodeFetch(asked, init) : toShop(asked));
    const worker = (await import(pathToFileURL(path))).default;
    const context = { waitUntil() {}, passThroughOnException() {} };
    return (request) => worker.fetch(request, settings.variables, context);
  }
  const listeners = [];
  globalThis.addEventListener = (kind, listener) => kind === "fetch" && listeners.push(listener);
  globalThis.fetch = (asked, { backend, cacheOverride, ...init } = {}) => {
    if (backend === "shop") return toShop(asked);
    if (backend !== "onsale") throw new TypeError(`no backend ${backend}`);
    const { pathname, search } = new URL(asked);
    return nodeFetch(settings.gateway + pathname + search, { ...init, redirect: "manual" }); // Fastly follows none
  };
  await import(pathToFileURL(path));
  return (request) => new Promise((resolve) => listeners[0]({ request, respondWith: resolve }));
}

const handle = await handlerOf(program);
const server = createServer(async (message, answer) => {
  const chunks = [];
  for await (const chunk of message) chunks.push(chunk);
  const body = ["GET", "HEAD"].includes(message.method) ? undefined : Buffer.concat(chunks);
  const init = { method: message.method, headers: message.headers, body };
  try {
    const url = `http://${message.headers.host}${message.url}`;
    const request = new Request(url, init);
    Object.defineProperty(request, "url", { value: url }); // as it was sent: Node resolves `..`
    const response = await handle(request);
    const headers = [...response.headers].filter(([name]) => !["content-encoding", "transfer-encoding"].includes(name));
    answer.writeHead(response.status, headers.flat()).end(Buffer.from(await response.arrayBuffer()));
  } catch (error) {
    answer.writeHead(500).end(String(error.stack));
  }
});
server.listen(0, "127.0.0.2");
await once(server, "listening");
console.log(`http://127.0.0.2:${server.address().port}`);
process.stdin.resume().on("end", () => process.exit());
