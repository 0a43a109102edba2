// The line as this fan sees it: their place, the public line, the position computed from both, and the status polls.
// The position is one subtraction in the browser and never rises within an epoch. Far back in a long line the public line,
// which a cache answers, says all that the status would, and the status is asked for as a heartbeat only.
import { Problem, ask, client, freshKey } from "./api.js";
import { now } from "./clock.js";
import { keepsCookies, noCookies } from "./cookies.js";
import { browser, tab } from "./memory.js";
import { cameByGate } from "./way_back.js";
import { Place, placeByLine } from "./onsale.ts";
import { prove } from "./proof.js";

const POLL_MS = 30_000; // where no answer says when
const NEAR_POLL_MS = 2_000;
/** A tab polls so much later after another one has told what it heard: then that one polls for both. */
const OTHERS_FIRST_MS = 5_000;
/** Pages that were told at one time to ask for their own status do so within this time. */
const SPREAD_MS = 10_000;

export class Line extends EventTarget {
  #timer = null;
  #dueMs = null;
  #heads = new Map();
  #anchor = null;
  #changedAt = null;
  #unproven = null;
  #far = false;
  place = null;
  frame = null;
  heardMs = 0;

  constructor(eventId) {
    super();
    this.eventId = eventId;
    this.path = `/events/${eventId}/queue`;
    this.own = new Place(client, eventId);
  }

  /** The public line, which needs no credential. */
  async look() {
    this.hear(await ask("GET", this.path));
  }

  /** My place, or null without one. The request is also the heartbeat of the place. */
  async check() {
    try {
      const answer = await ask("GET", `${this.path}/status`, { patience: 0 });
      if (answer === null) return null; // the page came with it: this browser has no place
      this.#take(answer);
      this.tell?.(answer);
      this.#unproven = null;
      if (answer.heartbeat_after_ms && !this.frame?.heartbeat_after_ms) await this.look().catch(() => {});
    } catch (problem) {
      if (problem.status !== 401 && problem.status !== 404 && problem.slug !== "stale-epoch") throw problem;
      if (problem.status === 401) await this.#giveBack();
      this.place = null;
      this.#changed();
    }
    return this.place;
  }

  /** A place whose cookie was not kept is left with the token of the answer, and the fan gets the reason. */
  async #giveBack() {
    const token = this.#unproven;
    this.#unproven = null;
    if (!token) return;
    await ask("DELETE", this.path, { bearer: token }).catch(() => {});
    this.unkept = noCookies().message;
  }

  /** One key per attempt to join, made only here: a lost answer must not cost a second place. */
  async join(code) {
    if (!keepsCookies()) throw noCookies();
    const key = tab(`join:${this.eventId}`) ?? tab(`join:${this.eventId}`, freshKey());
    try {
      const body = { ...(code && { code }), ...(cameByGate(this.eventId) && { from_gate: true }) };
      const joined = await this.own.join(body, { key, prove });
      tab(`joined:${this.eventId}`, now());
      this.#take(joined);
      const { queue_token: _token, ...place } = joined;
      this.tell?.(place);
    } catch (problem) {
      if (!problem.unknown) tab(`join:${this.eventId}`, null);
      throw problem;
    }
    tab(`join:${this.eventId}`, null);
  }

  /** Claims the pass: `{expires_at, checkout_key}`. Throws `not-admitted` before the call. */
  async claim() {
    const pass = await this.own.claim();
    this.place = { ...this.place, status: pass.status ?? "admitted" };
    tab(`checkout:${this.eventId}`, pass.checkout_key);
    return pass;
  }

  async leave() {
    await this.own.leave();
    this.place = { ...this.place, status: "left" };
    this.tell?.(this.place);
    this.#changed();
  }

  /** What another tab was told of this fan's place. With `later` this one need not ask so soon. */
  learn(place, { later }) {
    const polls = this.#dueMs !== null;
    this.#take(place);
    if (!later || !polls) return;
    this.rest();
    this.#pollWithin(this.#askAfterMs + OTHERS_FIRST_MS);
  }

  /** Applies a line frame from the stream or from a poll. */
  hear(frame) {
    if (this.frame?.epoch !== undefined && frame.epoch !== undefined && frame.epoch !== this.frame.epoch) {
      this.#heads.clear();
      if (this.place) delete this.place.heartbeat_after_ms; // it is not known to this line
    }
    this.frame = { ...this.frame, ...frame, lanes: merged(this.frame?.lanes, frame.lanes) };
    this.#follow(frame);
    this.#head(0, frame.head_seq);
    for (const [lane, heads] of Object.entries(frame.lanes ?? {})) this.#head(Number(lane), heads.head_seq);
    this.#changed();
    if (this.place?.status === "waiting" && this.position === 0) this.#pollWithin(NEAR_POLL_MS);
  }

  /** What the status would say, if the public line tells it. A page that has to ask again does not do so at once. */
  #follow(frame) {
    const place = this.place && this.frame.server_time && placeByLine(this.place, this.frame, tab(`joined:${this.eventId}`) ?? 0);
    const wasFar = this.#far;
    if (place && frame.server_time) this.#take(place);
    this.#far = Boolean(place);
    if (wasFar && !place && this.#dueMs !== null) this.#spread();
  }

  #spread() {
    const { position, place } = this;
    this.#pollWithin((position === null ? place.poll_after_ms : Math.min(place.poll_after_ms, SPREAD_MS)) * Math.random());
  }

  get #askAfterMs() {
    return (this.#far && this.place.heartbeat_after_ms) || (this.place?.poll_after_ms ?? POLL_MS);
  }

  /** When my lane is called: with the sale's start, or at its own time after it. */
  get startsAt() {
    const { sale_starts_at: sale, opens_at: general, lanes } = this.frame ?? {};
    const own = this.place?.lane ? lanes?.[this.place.lane]?.opens_at : general;
    return sale && own ? (Date.parse(own) > Date.parse(sale) ? own : sale) : (own ?? sale);
  }

  /** My lane's name; empty in the general lane. */
  get laneName() {
    return (this.place?.lane && this.frame?.lanes?.[this.place.lane]?.name) || "";
  }

  get position() {
    if (this.#rank === null) return null;
    return Math.max(0, this.#rank - (this.#heads.get(this.place.lane) ?? 0));
  }

  /** The rank of this place: its number, or its drawn rank with a lottery; null before the draw. */
  get #rank() {
    if (this.place === null) return null;
    return this.frame?.lottery === undefined ? this.place.join_seq : (this.place.rank ?? null);
  }

  /** Seconds, or null while unknown: the server's last estimate, shrinking with the position. */
  get estimateS() {
    if (!this.#anchor || this.#anchor.seconds === null || this.#anchor.seconds === undefined) return null;
    if (this.#anchor.position === 0) return this.#anchor.seconds;
    return (this.#anchor.seconds * this.position) / this.#anchor.position;
  }

  /** Lower and upper bound in seconds, shrinking likewise; the upper one is null above a day. */
  get estimateRange() {
    const { low, high } = this.#anchor ?? {};
    if (!Number.isFinite(low)) return null;
    const share = this.#anchor.position === 0 ? 1 : this.position / this.#anchor.position;
    return [low * share, Number.isFinite(high) ? high * share : null];
  }

  /** Progress from 0 to 1 since the fan joined. */
  get progress() {
    const key = `start:${this.eventId}:${this.place.join_seq}`;
    const start = tab(key) ?? tab(key, this.position) ?? this.position;
    return start > 0 ? 1 - this.position / start : 1;
  }

  /** Starts the status polls; they go on until `rest()`. */
  watch() {
    this.#pollWithin(this.place?.poll_after_ms === undefined ? NEAR_POLL_MS : this.#askAfterMs);
  }

  /** The time of the start has come: the line says whether the sale has begun. */
  begin() {
    if (this.#far) this.look().catch(() => {});
    else this.nudge();
  }

  /** The fan is back at the page: polls at once. */
  nudge() {
    if (this.place) this.#pollWithin(300);
  }

  rest() {
    clearTimeout(this.#timer);
    this.#dueMs = null;
  }

  #take(answer) {
    this.heardMs = Date.now();
    const laneKey = `lane:${this.eventId}`;
    const lane = answer.lane ?? browser(laneKey) ?? 0;
    if (this.place?.join_seq !== answer.join_seq) this.#anchor = null;
    if (answer.lane !== undefined) browser(laneKey, answer.lane);
    this.place = { ...answer, lane };
    this.#unproven = answer.queue_token ?? this.#unproven;
    delete this.place.queue_token;
    const ahead = answer.position_in_queue ?? NaN;
    this.#head(lane, answer.head_seq ?? (answer.rank ?? answer.join_seq) - ahead);
    const { estimated_wait_low: low, estimated_wait_high: high } = answer;
    this.#anchor = { seconds: this.#promised(answer), low, high, position: this.position };
    this.#far = Boolean(this.frame?.server_time && placeByLine(this.place, this.frame));
    this.#changed();
  }

  /** Never more than before, unless the answer names a reason: processes may differ slightly. */
  #promised({ estimated_wait_time: seconds, estimate_changed: changed }) {
    const said = this.estimateS;
    const why = changed?.at ?? null;
    const same = why === this.#changedAt;
    this.#changedAt = why;
    return same && said !== null && Number.isFinite(seconds) ? Math.min(seconds, said) : seconds;
  }

  #head(lane, headSeq) {
    if (Number.isFinite(headSeq)) this.#heads.set(lane, Math.max(headSeq, this.#heads.get(lane) ?? 0));
  }

  /** Brings the next poll forward, never later: one timer, with a little jitter. */
  #pollWithin(ms) {
    const dueMs = Date.now() + ms * (0.8 + Math.random() * 0.2);
    if (this.#dueMs && this.#dueMs <= dueMs) return;
    clearTimeout(this.#timer);
    this.#dueMs = dueMs;
    this.#timer = setTimeout(() => this.#poll(), dueMs - Date.now());
  }

  async #poll() {
    this.#dueMs = null;
    let nextMs = NEAR_POLL_MS * 2;
    try {
      await this.check();
      nextMs = Math.max(1000, this.#askAfterMs);
    } catch (problem) {
      if (!(problem instanceof Problem)) throw problem;
      nextMs = (problem.retryAfterS ?? 4) * 1000;
    }
    if (this.place) this.#pollWithin(nextMs);
  }

  #changed() {
    this.dispatchEvent(new Event("change"));
  }
}

/** Frames of the stream have the heads of lanes; polls also have their names. */
function merged(before = {}, now = {}) {
  const lanes = { ...before };
  for (const [lane, facts] of Object.entries(now)) lanes[lane] = { ...lanes[lane], ...facts };
  return lanes;
}
