// Client of the public API: JSON in and out, problems as exceptions, retries while the server is busy.
// Every write carries an idempotency key or is idempotent by nature, so repeating a request is always safe.
import { observe } from "./clock.js";

const TIMEOUT_MS = 20_000;
const BUSY = new Set([429, 502, 503, 504]);

export class Problem extends Error {
  constructor({ status = 0, type = "", title = "", detail = "", ...members } = {}, retryAfterS = null) {
    super(detail || title || texts.problem_unnamed);
    Object.assign(this, { status, type, members, retryAfterS });
  }

  /** The slug at the end of the type: `seats-taken`. */
  get slug() {
    return this.type.split("/").pop();
  }

  /** Whether to retry automatically: the server is busy, gave no answer, or still works on the same key. */
  get passing() {
    return this.unknown || this.slug === "idempotency-in-flight" || (BUSY.has(this.status) && this.slug !== "line-full");
  }

  /** True when it is unknown whether the server executed the request. */
  get unknown() {
    return this.status === 0;
  }
}

/** Answers that came with the page, by path, each good for one request: the first view asks for nothing. */
const brought = new Map(Object.entries(JSON.parse(document.getElementById("facts")?.textContent || "{}")));

/** Sends a request and returns the JSON body. `patience`: how often to retry while the server is busy or silent. */
export async function ask(method, path, { body, key, proof, bearer, patience = 2 } = {}) {
  if (method === "GET" && brought.has(path)) return take(path);
  for (let attempt = 0; ; attempt += 1) {
    try {
      return await once(method, path, { body, key, proof, bearer });
    } catch (problem) {
      if (!problem.passing || attempt >= patience) throw problem;
      await pause(problem.retryAfterS ?? 2 ** attempt);
    }
  }
}

function take(path) {
  const answer = brought.get(path);
  brought.delete(path);
  return answer;
}

async function once(method, path, { body, key, proof, bearer }) {
  const headers = { Accept: "application/json" };
  if (body !== undefined) headers["Content-Type"] = "application/json";
  if (key) headers["Idempotency-Key"] = key;
  if (bearer) headers.Authorization = `Bearer ${bearer}`;
  if (proof) headers["Onsale-Proof-Of-Work"] = proof;
  const sentMs = Date.now();
  const response = await reach(path, { method, headers, body: body === undefined ? undefined : JSON.stringify(body) });
  observe(response, sentMs, Date.now());
  const answer = await response.json().catch(() => null);
  if (response.ok) return answer;
  const retryAfterS = Number.parseFloat(response.headers.get("Retry-After") ?? "");
  const told = { ...answer, ...(await inOwnWords(answer)), status: response.status };
  throw new Problem(told, Number.isNaN(retryAfterS) ? null : retryAfterS);
}

/** The server's texts are English. A page in another language has its own for what a fan can meet, in a file that few need;
 * its address comes from the build. */
async function inOwnWords(answer) {
  if (!PROBLEM_TEXTS) return {};
  const { PROBLEMS = {} } = await import(PROBLEM_TEXTS).catch(() => ({}));
  return { detail: PROBLEMS[answer?.type?.split("/").pop()] ?? texts.problem_unnamed };
}

async function reach(path, request) {
  try {
    return await fetch(path, { ...request, cache: "no-cache", signal: AbortSignal.timeout(TIMEOUT_MS) });
  } catch {
    throw new Problem({ title: texts.problem_no_connection });
  }
}

/** Waits up to half a minute, with jitter: clients that were rejected together must not return together. */
export function pause(seconds) {
  return new Promise((resume) => setTimeout(resume, Math.min(seconds, 30) * 1000 * (1 + Math.random() / 4)));
}

/** A fresh idempotency key. Browsers offer `randomUUID` only over HTTPS and on localhost. */
export function freshKey() {
  if (crypto.randomUUID) return crypto.randomUUID();
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}
