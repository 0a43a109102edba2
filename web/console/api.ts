// Calls of the suite's own APIs, with the cookie of who is signed in. A refusal becomes a Problem.
import { session } from "./live";
import type { ApprovedCall } from "./documents";

// A problem document (RFC 9457), or what stands for it if no service answered.
export class Problem extends Error {
  constructor(
    readonly status: number, readonly title: string, readonly detail: string | null = null,
    readonly retryAfterS: number | null = null,
  ) {
    super(detail ?? title);
  }
}

// A write that is refused until a second person approves it, and what was sent.
export interface Refused { control: string; body: string; key: string | undefined; etag: string | null }
export class SecondPersonNeeded extends Problem {
  constructor(found: Problem, readonly refused: Refused) { super(found.status, found.title, found.detail); }
}

export type Method = "GET" | "POST" | "PUT" | "PATCH" | "DELETE";
export interface Options { body?: unknown; etag?: string | null; key?: string | undefined; granted?: ApprovedCall | undefined }
export interface Answer<T> { data: T; etag: string | null }

const PATIENCE_MS = 30_000;
const SECOND_PERSON = "/problems/second-person-needed";
export const approved = new Map<string, ApprovedCall>(); // by key: the request is repeated as it was approved

export const newKey = (): string => crypto.randomUUID?.() ?? randomWord();

export async function call<T>(method: Method, path: string, { body, etag, key, granted }: Options = {}): Promise<Answer<T>> {
  const agreed = granted ?? (key ? approved.get(key) : undefined);
  const text = agreed ? agreed.body : body === undefined ? null : JSON.stringify(body);
  const version = agreed ? agreed.if_match : etag;
  const headers = new Headers({ Accept: "application/json" });
  if (text !== null) headers.set("Content-Type", "application/json");
  if (version) headers.set("If-Match", version);
  if (key) headers.set("Idempotency-Key", key);
  if (agreed) headers.set("Onsale-Approval", agreed.approval);
  const request = { method, headers, body: text, signal: AbortSignal.timeout(PATIENCE_MS) };
  const answer = await fetch(path, request).catch(() => {
    throw new Problem(0, "No answer", "The service did not answer. It may have done it or not: look, then try again.");
  });
  if (answer.status === 401) session.value = null;
  if (!answer.ok) throw await problemOf(answer, { body: text ?? "", key, etag: etag ?? null });
  const found = await answer.text();
  return { data: (found ? JSON.parse(found) : null) as T, etag: answer.headers.get("ETag") };
}

async function problemOf(answer: Response, sent: Omit<Refused, "control">): Promise<Problem> {
  const found = await answer.json().catch(() => ({})) as Record<string, unknown>;
  // A refused value is named by its field, in the words of an operator: "rate per s: Input should be less than …".
  const detail = Array.isArray(found.errors) ? found.errors.map(words).join("; ") : typeof found.detail === "string" ? found.detail : "";
  const waits = Number(answer.headers.get("Retry-After") ?? found.retry_after_s);
  const problem = new Problem(
    answer.status, typeof found.title === "string" ? found.title : `The service answered ${answer.status}`, detail || null,
    waits > 0 ? waits : null,
  );
  const needed = found.type === SECOND_PERSON && typeof found.control === "string";
  return needed ? new SecondPersonNeeded(problem, { ...sent, control: found.control as string }) : problem;
}

const words = ({ field, message }: { field: string; message: string }): string =>
  `${field.replaceAll("_", " ")}: ${message.replace("Input should be", "must be").replace("Value error, ", "")}`;

// Over plain http on another host a browser has no crypto.randomUUID.
function randomWord(): string {
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}
