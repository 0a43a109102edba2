// The client of the API for fans: `new Fan(new Client(url), "arena-2026")`, then join, wait, claim, hold, order. It is what
// our own pages use, and is served as /onsale.js. In a browser it works on the suite's own site, with its cookies; elsewhere
// (node, a shop's server) it keeps the tokens and sends them itself. Every write carries an idempotency key or is
// idempotent by nature, so repeating a request is always safe.
import type {
  CustomerDetails, JoinBody, JoinedAnswer, LineAnswer, OrderAccepted, OrderView, PassAnswer, Payment, QuoteAnswer, ReservationView, ReserveBody,
  SectionList, StatusAnswer, TicketsAnswer, TypesBody,
} from "./documents";

const TIMEOUT_MS = 20_000;
const BUSY = new Set([429, 502, 503, 504]);
const PROOFS_MAX = 3;
const ENDS = new Set(["ready", "admitted", "completed", "expired", "left"]);
const OVER = new Set(["sold_out", "closed"]);
const ASK_EVERY_MS = 4_000;
const ERRORS_MAX = 3;
const FIRST_FRAME_MS = 10_000;
const STEADY_MS = 500;
const FIRST_RETRY_MS = 5_000;
const LAST_RETRY_MS = 60_000;
/** The server ends every silence after at most 18 s. */
export const SILENT_MS = 25_000;

/** A problem document, as an exception. `status` is 0 when no answer came: then nobody knows whether the request was executed. */
export class Problem extends Error {
  declare status: number;
  declare type: string;
  declare title: string;
  declare members: Record<string, any>;
  declare retryAfterS: number | null;

  constructor({ status = 0, type = "", title = "", detail = "", ...members }: Record<string, any> = {}, retryAfterS: number | null = null) {
    super(detail || title);
    Object.assign(this, { status, type, title, members, retryAfterS });
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

export interface Options {
  /** Credentials are the suite's cookies; otherwise the tokens of the answers. By default: in a browser. */
  cookies?: boolean;
  /** Sent with each request. */
  headers?: Record<string, string>;
  /** Called with each response, and when the request was sent and answered. */
  observe?: (response: Response, sentMs: number, answeredMs: number) => void;
  /** Members of a problem in other words; the problem is undefined if no answer came. */
  explain?: (problem?: Record<string, any>) => Record<string, any> | Promise<Record<string, any>>;
}

export interface Request {
  body?: unknown;
  key?: string;
  proof?: string;
  bearer?: string;
  /** How often to retry while the server is busy or silent. */
  patience?: number;
}

/** A suite at one address. */
export class Client {
  url: string;
  cookies: boolean;
  #options: Options;

  constructor(url = "", options: Options = {}) {
    this.url = url.replace(/\/$/, "");
    this.cookies = options.cookies ?? typeof document !== "undefined";
    this.#options = options;
  }

  /** Sends a request and returns the JSON body; throws `Problem`. */
  async ask<Answer = any>(method: string, path: string, { patience = 2, ...request }: Request = {}): Promise<Answer> {
    for (let attempt = 0; ; attempt += 1) {
      try {
        return await this.#once(method, path, request);
      } catch (problem) {
        if (!(problem instanceof Problem && problem.passing) || attempt >= patience) throw problem;
        await pause(problem.retryAfterS ?? 2 ** attempt);
      }
    }
  }

  async #once(method: string, path: string, { body, key, proof, bearer }: Request) {
    const headers: Record<string, string> = { ...this.#options.headers, Accept: "application/json" };
    if (body !== undefined) headers["Content-Type"] = "application/json";
    if (key) headers["Idempotency-Key"] = key;
    if (bearer) headers.Authorization = `Bearer ${bearer}`;
    if (proof) headers["Onsale-Proof-Of-Work"] = proof;
    const sentMs = Date.now();
    const response = await this.#reach(path, { method, headers, body: body === undefined ? undefined : JSON.stringify(body) });
    this.#options.observe?.(response, sentMs, Date.now());
    const answer = await response.json().catch(() => null);
    if (response.ok) return answer;
    const retryAfterS = Number.parseFloat(response.headers.get("Retry-After") ?? "");
    const words = await this.#options.explain?.(answer ?? {});
    throw new Problem({ ...answer, ...words, status: response.status }, Number.isNaN(retryAfterS) ? null : retryAfterS);
  }

  async #reach(path: string, request: RequestInit) {
    try {
      return await fetch(this.url + path, { ...request, cache: "no-cache", signal: AbortSignal.timeout(TIMEOUT_MS) });
    } catch {
      throw new Problem({ title: "No answer came.", ...(await this.#options.explain?.()) });
    }
  }
}

const BEFORE_SALE = new Set(["draft", "prequeue"]);
const A_DAY_S = 86_400;
const ADMISSION_DELAY_S = 2;
const ROUNDING_S = 1e-6;

/** What the status of a waiting place would say, computed from the public line: position, wait, state and message. Null if
 * the fan has to ask for the status: the line is not long, the place is near its head, or its rank was drawn and is not
 * known yet. `since` is when the fan joined, in ms. */
export function placeByLine<Known extends Partial<JoinedAnswer> & Partial<StatusAnswer>>(place: Known, line: LineAnswer, since = 0) {
  const waits = place.status === "waiting" || place.status === "prequeue";
  if (!waits || !place.heartbeat_after_ms || !line.heartbeat_after_ms) return null;
  const lane = place.lane ? line.lanes?.[place.lane] : line;
  if (!lane) return null;
  const drawn = line.lottery == null || line.lottery === "drawn";
  const rank = line.lottery == null ? place.join_seq! : place.rank;
  if (drawn && rank == null) return null;
  const position = Math.max(0, (rank ?? place.join_seq!) - lane.head_seq);
  if (position <= line.near_places) return null;
  const at = Date.parse(line.server_time);
  const early = BEFORE_SALE.has(line.state);
  const closed = lane.opens_at != null && Date.parse(lane.opens_at) > at;
  const changed = lane.estimate_changed;
  return {
    ...place,
    status: early || closed ? ("prequeue" as const) : ("waiting" as const),
    position_in_queue: drawn ? position : null,
    head_seq: lane.head_seq,
    ...waitOf(position, lane.seconds_per_place, line.estimate_band, early ? Math.max(0, Date.parse(line.sale_starts_at ?? "") - at) / 1000 : 0),
    estimate_changed: changed && lane.seconds_per_place !== null && Date.parse(changed.at) < since ? null : changed,
    state: line.state,
    message: line.message,
  };
}

/** The wait in seconds with its bounds; above a day only the lower one. */
function waitOf(position: number, secondsPerPlace: number | null, band: number, beforeS: number) {
  if (secondsPerPlace === null) return { estimated_wait_time: null, estimated_wait_low: null, estimated_wait_high: null };
  const unsure = Math.exp(band + Math.min(1, position ** -0.5));
  const waitS = position * secondsPerPlace;
  const lowS = beforeS + waitS / unsure;
  if (beforeS + waitS > A_DAY_S) {
    return { estimated_wait_time: null, estimated_wait_low: Math.floor(Math.min(lowS, A_DAY_S)), estimated_wait_high: null };
  }
  const highS = beforeS + waitS * unsure + ADMISSION_DELAY_S;
  return { estimated_wait_time: Math.max(1, Math.ceil(beforeS + waitS - ROUNDING_S)), estimated_wait_low: Math.floor(lowS), estimated_wait_high: Math.ceil(highS) };
}

/** A fan's place in the line. `queueToken`, `pass` and `checkoutKey` are what the next step needs; with cookies only the last
 * is kept here. */
export class Place {
  declare queueToken?: string;
  declare pass?: string;
  declare checkoutKey?: string;
  place: (Partial<JoinedAnswer> & Partial<StatusAnswer>) | null = null;
  protected joinedMs = 0;
  declare protected client: Client;
  declare protected event: string;

  constructor(client: Client, eventId: string) {
    Object.assign(this, { client, event: `/events/${encodeURIComponent(eventId)}` });
  }

  /** Takes a place in the line. The same `key` gets the same place. `prove` solves a challenge, if the line requires it. */
  async join(
    body: JoinBody = {},
    { key = freshKey(), prove }: { key?: string; prove?: (challenge: any) => Promise<string> } = {},
  ): Promise<JoinedAnswer> {
    let proof: string | undefined;
    for (let proofs = 0; ; proofs += 1) {
      try {
        const joined = await this.client.ask<JoinedAnswer>("POST", `${this.event}/queue`, { key, proof, body, patience: 5 });
        if (!this.client.cookies) this.queueToken = joined.queue_token ?? undefined;
        this.place = joined;
        this.joinedMs = Date.now();
        return joined;
      } catch (problem) {
        if (!prove || proofs === PROOFS_MAX || (problem as Problem).slug !== "proof-of-work-needed") throw problem;
        proof = await prove((problem as Problem).members.challenge);
      }
    }
  }

  /** The place now. Asking for it keeps it. */
  async status(): Promise<StatusAnswer | null> {
    return this.client.ask("GET", `${this.event}/queue/status`, { bearer: this.queueToken, patience: 0 });
  }

  async leave() {
    await this.client.ask("DELETE", `${this.event}/queue`, { bearer: this.queueToken });
  }

  /** Turns the call into the pass to buy with. Throws `not-admitted` before the call. */
  async claim(): Promise<PassAnswer> {
    const answer = await this.client.ask<PassAnswer>("POST", `${this.event}/queue/pass`, { bearer: this.queueToken, patience: 4 });
    if (!this.client.cookies) this.pass = answer.pass;
    this.checkoutKey = answer.checkout_key;
    return answer;
  }
}

/** One fan of one event, from joining to tickets. */
export class Fan extends Place {
  /** Waits for the call, by stream and polls. Far back in a long line, where no stream is live, the polls read the public
   * line. `changed` hears each status. Ends with the last: `ready` or `admitted` if the
   * fan was called, otherwise the wait is over without. */
  async wait(changed: (place: StatusAnswer) => void = () => {}, { signal }: { signal?: AbortSignal } = {}): Promise<StatusAnswer> {
    const { join_seq: seq = Infinity, lane = 0 } = this.place ?? {};
    let wake = () => {};
    const hear = (frame: any) => {
      const head = (frame.lanes?.[lane] ?? frame).head_seq;
      if (head >= (this.place?.rank ?? seq) || OVER.has(frame.state)) wake();
    };
    const stream = new Stream(this.client.url + this.event + "/sections/updates", { line: hear });
    if (this.client.cookies) stream.open();
    try {
      for (;;) {
        const place = await this.client.ask<StatusAnswer>("GET", `${this.event}/queue/status`, { bearer: this.queueToken, patience: 9 });
        this.place = { ...this.place, ...place };
        changed(place);
        if (ENDS.has(place.status) || OVER.has(place.state)) return place;
        signal?.throwIfAborted();
        const untilMs = Date.now() + (place.heartbeat_after_ms ?? place.poll_after_ms) * jitter();
        let called = false;
        const rest = (ms: number) =>
          new Promise<void>((resume) => {
            const late = setTimeout(resume, Math.min(ms, untilMs - Date.now()));
            wake = () => setTimeout(() => (clearTimeout(late), (called = true), resume()), 500);
          });
        if (!place.heartbeat_after_ms || stream.state === "live") {
          await rest(Infinity);
          continue;
        }
        for (let nextMs = ASK_EVERY_MS * jitter(); ; ) { // a cache may have an older line than this status was made of
          await rest(nextMs);
          if (called || Date.now() >= untilMs) break;
          signal?.throwIfAborted();
          const line = await this.client.ask<LineAnswer>("GET", `${this.event}/queue`, { patience: 9 });
          const now = placeByLine(this.place, line, this.joinedMs);
          if (!now || OVER.has(line.state)) break;
          changed(now as StatusAnswer);
          nextMs = line.poll_after_ms * jitter();
        }
      }
    } finally {
      stream.close();
    }
  }

  sections(): Promise<SectionList> {
    return this.client.ask("GET", `${this.event}/sections`);
  }

  /** Calls `line` and `sections` with what changes, by a stream while there is one, otherwise by polls. Returns what ends it. */
  updates(hear: { line?: (frame: any) => void; sections?: (frame: any) => void }, changed?: (state: string) => void) {
    const stream = new Stream(this.client.url + this.event + "/sections/updates", hear, changed);
    const look = async () => {
      if (stream.state === "live") return;
      hear.line?.(await this.client.ask("GET", `${this.event}/queue`));
      hear.sections?.(await this.sections());
    };
    const timer = setInterval(() => look().catch(() => {}), ASK_EVERY_MS);
    if (this.client.cookies) stream.open();
    else look().catch(() => {});
    return () => {
      clearInterval(timer);
      stream.close();
    };
  }

  /** Holds seats, general admission or the best available, all or nothing. */
  hold(selection: ReserveBody, key = freshKey()): Promise<ReservationView> {
    return this.client.ask("POST", `${this.event}/reservations`, { body: selection, key, bearer: this.pass, patience: 4 });
  }

  /** Changes the price types of what is held: of seats that are not named to the usual one. The places and the time stay. */
  changeTypes(held: ReservationView, body: TypesBody): Promise<ReservationView> {
    return this.client.ask("POST", `${this.event}/reservations/${held.reservation_id}/types`, { body, bearer: this.pass, patience: 4 });
  }

  /** Orders what is held, at the price it is quoted now. One reservation makes one order, however often it is sent. */
  async order(held: ReservationView, customer: CustomerDetails, payment: Payment, code: string | null = null): Promise<OrderAccepted> {
    const named = { reservation_id: held.reservation_id, promo_code: code };
    const { total_minor: total, currency } = await this.client.ask<QuoteAnswer>("POST", "/orders/quote", { body: named, bearer: this.pass });
    const body = { ...named, expected_total_minor: total, currency, customer, payment };
    const key = `${this.checkoutKey}.${held.reservation_id}`;
    return this.client.ask("POST", "/orders", { body, key, bearer: this.pass, patience: 5 });
  }

  /** The order once it is no longer pending; one that waits on the provider's page (`attempt.checkout_url`) goes on pending. */
  async settled(order: OrderAccepted, changed: (now: OrderView) => void = () => {}): Promise<OrderView> {
    for (let waitS = 0.3; ; waitS = Math.min(3, waitS * 1.25)) {
      const now = await this.client.ask<OrderView>("GET", `/orders/${order.reference}`, { bearer: order.order_token, patience: 9 });
      changed(now);
      if (now.status !== "pending") return now;
      await pause(waitS);
    }
  }

  tickets(order: OrderAccepted): Promise<TicketsAnswer> {
    return this.client.ask("GET", `/orders/${order.reference}/tickets`, { bearer: order.order_token });
  }
}

/** Waits up to half a minute, with jitter: clients that were rejected together must not return together. */
export function pause(seconds: number) {
  return new Promise<void>((resume) => setTimeout(resume, Math.min(seconds, 30) * 1000 * (1 + Math.random() / 4)));
}

/** Up to a fifth less, so that those who were told the same do not ask at the same time. */
function jitter() {
  return 0.8 + Math.random() * 0.2;
}

/** A fresh idempotency key. Browsers offer `randomUUID` only over HTTPS and on localhost. */
export function freshKey(): string {
  if (crypto.randomUUID) return crypto.randomUUID();
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** One EventSource with its state: "live", "reconnecting", "crowded" if the server rejected it, or "polling" if streams
 * do not get through. Its user polls while it is not live. A rejected or broken stream reconnects when the server said.
 * One that is silent for longer than the heartbeat allows is not live. */
export class Stream {
  #source: EventSource | null = null;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #silence: ReturnType<typeof setTimeout> | undefined;
  #begun = false;
  #away = false;
  #errors = 0;
  #retryMs = FIRST_RETRY_MS;
  declare url: string;
  declare handlers: Record<string, (data: any) => void>;
  declare changed: (state: string) => void;
  state = "closed";
  heardMs = 0;

  /** `handlers`: event names to functions of the parsed data; `changed(state)` is called at interruptions and their end. */
  constructor(url: string, handlers: Record<string, (data: any) => void>, changed: (state: string) => void = () => {}) {
    Object.assign(this, { url, handlers, changed });
  }

  open() {
    if (this.#source) return;
    clearTimeout(this.#timer);
    this.#source = new EventSource(this.url);
    this.#source.onopen = () => this.#opened();
    this.#source.onerror = () => this.#interrupted();
    this.#source.addEventListener("turned_away", () => this.#turnedAway());
    const heard: typeof this.handlers = { beat: () => {}, ...this.handlers };
    for (const [name, hear] of Object.entries(heard)) {
      this.#source.addEventListener(name, (message) => {
        clearTimeout(this.#silence);
        this.heardMs = Date.now();
        this.#begun = true;
        this.#away = false;
        this.#errors = 0;
        this.#become("live");
        hear(JSON.parse(message.data));
      });
    }
  }

  /** Nothing arrived for longer than the server is ever silent: a sleeping phone leaves sockets that look open. */
  get silent() {
    return this.state === "live" && Date.now() - this.heardMs > SILENT_MS;
  }

  close() {
    clearTimeout(this.#timer);
    clearTimeout(this.#silence);
    this.#source?.close();
    this.#source = null;
    this.#begun = this.#away = false;
    this.state = "closed";
  }

  /** Called when the stream is found to be dead. */
  reopen() {
    this.close();
    this.open();
    this.#become("reconnecting");
  }

  /** A first stream begins with a snapshot: without one, something between server and browser holds it back. A resumed
   * stream may have nothing to send; it is live unless it is rejected at once. */
  #opened() {
    clearTimeout(this.#silence);
    this.#silence = this.#begun
      ? setTimeout(() => this.#steady(), STEADY_MS)
      : setTimeout(() => this.#fallBack(), FIRST_FRAME_MS);
  }

  #steady() {
    this.heardMs = Date.now();
    this.#become("live");
  }

  /** The stream ends after this, and the browser reconnects when the server said. */
  #turnedAway() {
    clearTimeout(this.#silence);
    this.#away = true;
    this.#become("crowded");
  }

  #interrupted() {
    clearTimeout(this.#silence);
    this.#errors += 1;
    if (this.#away && this.#source?.readyState === EventSource.CONNECTING) return this.#become("crowded");
    if (this.#source?.readyState !== EventSource.CONNECTING) return this.#fallBack();
    return this.#become(this.#errors < ERRORS_MAX ? "reconnecting" : "polling");
  }

  #fallBack() {
    this.close();
    this.#become("polling");
    this.#timer = setTimeout(() => this.open(), this.#retryMs * (1 + Math.random()));
    this.#retryMs = Math.min(this.#retryMs * 2, LAST_RETRY_MS);
  }

  #become(state: string) {
    if (state === "live") this.#retryMs = FIRST_RETRY_MS;
    if (state === this.state) return;
    this.state = state;
    this.changed(state);
  }
}
