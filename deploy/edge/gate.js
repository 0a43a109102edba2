/**
 * The gate of a shop at the edge: who has a valid pass goes on to the shop, everybody else to the waiting room and back.
 * It verifies passes with the public keys alone; no secret leaves the suite. The rules are those of forward-auth
 * (docs/use/forward-auth.md). It uses only what all edges have: Request, Response, URLSearchParams and SHA-256.
 */

const LEEWAY_S = 5;
const KEYS_FRESH_S = 300; // during a rotation both keys are published for longer
const KEYS_KEPT_S = 86_400; // known keys still count while the gateway cannot be reached
const FETCH_INTERVAL_S = 10;
const KEYS_MAX = 16;
const KEYS_CHARS_MAX = 65_536;
const PASS_CHARS_MAX = 2048;
const URI_CHARS_MAX = 4096;
const RETURN_CHARS_MAX = 2048;
const GATE_COOKIE_S = 7 * 86_400;
const CODE = "onsale_handover";
const PLAIN_PATH = /^\/[A-Za-z0-9_.~/@:,+=-]*$/;
const GATE_ID = /^[A-Za-z0-9_-]{22}$/;

const PROBLEMS = {
  "no-credential": [401, "This needs a credential: a Bearer token or our cookie."],
  "bad-credential": [401, "The credential is not valid: forged, expired, or from before a reset."],
  "wrong-event": [403, "The credential is for another event."],
  "malformed-request": [422, "The address could not be read."],
  unavailable: [503, "The waiting room cannot answer right now."],
};

/** @typedef {(url: string, init: { headers: Record<string, string> }) => Promise<Response>} Fetch */

/**
 * The settings from texts, as edges keep them. Throws when one is missing or wrong, so that a deployment fails at once.
 * @param {(name: string) => string | null | undefined} read
 */
export function readSettings(read) {
  const origin = (name, text) => {
    if (!/^https?:\/\/[a-z0-9.-]+(:\d+)?$/.test(text ?? "")) throw new Error(`${name} is not an origin: ${text}`);
    return text;
  };
  const list = (name) => (read(name) ?? "").split(",").map((part) => part.trim()).filter(Boolean);
  const eventId = read("ONSALE_EVENT") ?? "";
  if (!/^[A-Za-z0-9][A-Za-z0-9_-]{0,31}$/.test(eventId)) throw new Error(`ONSALE_EVENT is not an event's id: ${eventId}`);
  const onOutage = read("ONSALE_ON_OUTAGE") || "closed";
  if (onOutage !== "closed" && onOutage !== "open") throw new Error(`ONSALE_ON_OUTAGE is open or closed: ${onOutage}`);
  const openForS = Number(read("ONSALE_OPEN_FOR_S") || 60);
  if (!(openForS >= 1 && openForS <= 3600)) throw new Error(`ONSALE_OPEN_FOR_S is 1 to 3600: ${openForS}`);
  const waitingRoom = origin("ONSALE_WAITING_ROOM", read("ONSALE_WAITING_ROOM"));
  return {
    eventId,
    waitingRoom,
    gateway: origin("ONSALE_GATEWAY", read("ONSALE_GATEWAY") || waitingRoom),
    sites: list("ONSALE_SITES").map((site) => origin("ONSALE_SITES", site)),
    letThrough: list("ONSALE_LET_THROUGH"),
    onOutage,
    openForS,
  };
}

/** Public keys by id, fetched when they are old or a pass names an unknown one, at most every ten seconds. */
class Keys {
  /** @type {Map<string, Uint8Array>} */
  keys = new Map();
  failed = false;
  #fetchedS = -Infinity;
  #triedS = -Infinity;
  /** @type {{ sinceS: number, healthySinceS?: number } | null} since when keys cannot be fetched, and can again */
  #outage = null;

  /** @param {string} url @param {Fetch} fetchAnswer @param {() => number} now */
  constructor(url, fetchAnswer, now) {
    this.url = url;
    this.fetchAnswer = fetchAnswer;
    this.now = now;
  }

  /**
   * Whether keys are known. A request that comes while another fetches goes on with the known ones, if there are any.
   * @param {number} openForS @param {string} [kid]
   */
  async refresh(openForS, kid) {
    const now = this.now();
    const fresh = now - this.#fetchedS <= KEYS_FRESH_S && (kid === undefined || this.keys.has(kid));
    const waits = now - this.#triedS <= FETCH_INTERVAL_S && (this.keys.size > 0 || this.failed);
    if (!fresh && !waits) {
      this.#triedS = now;
      try {
        await this.#fetch();
        this.#worked(now, openForS);
      } catch (error) {
        console.warn(`onsale: keys not fetched from ${this.url}: ${error}`);
        this.failed = true;
        this.#outage = { sinceS: this.#outage?.sinceS ?? now };
      }
    }
    if (now - this.#fetchedS > KEYS_KEPT_S) this.keys = new Map();
    return this.keys.size > 0;
  }

  /** For how long the keys could not be fetched; null while they can. */
  outageS() {
    return this.failed && this.#outage ? this.now() - this.#outage.sinceS : null;
  }

  /** An outage ends only after the keys could be fetched for as long as the limit: flapping does not begin a new one. */
  #worked(now, openForS) {
    this.failed = false;
    if (!this.#outage) return;
    const healthySinceS = (this.#outage.healthySinceS ??= now);
    if (now - healthySinceS >= openForS) this.#outage = null;
  }

  async #fetch() {
    const answer = await this.fetchAnswer(this.url, { headers: { accept: "application/json" } });
    if (answer.status !== 200) throw new Error(`status ${answer.status}`);
    const text = await answer.text();
    if (text.length > KEYS_CHARS_MAX) throw new Error("too long");
    const found = JSON.parse(text).keys.filter((key) => key.kty === "OKP" && key.crv === "Ed25519").slice(0, KEYS_MAX);
    const keys = new Map();
    for (const { kid, x } of found) keys.set(String(kid), canonicalBytes(x));
    if (!keys.size || [...keys.values()].some((raw) => raw?.length !== 32)) throw new Error("no usable key");
    this.keys = keys;
    this.#fetchedS = this.now();
  }
}

/** A request as the rules see it. The path is the text that was sent: the shop may read an escape as another path. */
class Asked {
  constructor(request, eventId) {
    const [, scheme, host, uri] = /^(https?):\/\/([^/?#]+)([^#]*)/.exec(request.url) ?? [];
    this.request = request;
    this.secure = scheme === "https";
    this.site = `${scheme}://${host?.toLowerCase()}`;
    this.uri = uri?.startsWith("/") ? uri : `/${uri}`;
    this.path = this.uri.split("?")[0];
    this.readable = Boolean(host) && /^[!-~]*$/.test(this.uri) && this.uri.length <= URI_CHARS_MAX;
    const prefix = this.secure ? "__Host-" : "";
    this.gateCookie = `${prefix}onsale_gate_${eventId}`;
    this.passCookie = `${prefix}onsale_pass_${eventId}`;
  }

  header(name) {
    return this.request.headers.get(name);
  }

  cookie(name) {
    for (const part of (this.header("cookie") ?? "").split(";")) {
      const pair = part.trim();
      if (pair.startsWith(`${name}=`)) return pair.slice(name.length + 1);
    }
    return "";
  }

  get gateId() {
    const id = this.cookie(this.gateCookie);
    return GATE_ID.test(id) ? id : null;
  }

  get hasCode() {
    return this.uri.slice(this.path.length + 1).split("&").some((part) => part.startsWith(`${CODE}=`));
  }

  /** The path and query without a code; the rest as it was sent. A browser would take `//x` for a host. */
  get uriWithoutCode() {
    const parts = this.uri.slice(this.path.length + 1).split("&");
    const kept = parts.filter((part) => part && !part.startsWith(`${CODE}=`));
    return kept.length ? `${this.path}?${kept.join("&")}` : this.path;
  }

  /** Whether a browser navigates: by `Sec-Fetch-Mode`; without it by `Accept`, unless a script made the call. */
  get isPage() {
    const mode = this.header("sec-fetch-mode");
    if (mode !== null) return mode === "navigate";
    return this.header("x-requested-with") === null && (this.header("accept") ?? "").includes("text/html");
  }

  /** The cookie comes first, because `Authorization` may hold the shop's own token. */
  get passes() {
    const bearer = /^bearer (\S+)$/i.exec(this.header("authorization") ?? "")?.[1] ?? "";
    return [this.cookie(this.passCookie), bearer].filter((text) => text && text.length <= PASS_CHARS_MAX);
  }
}

export class Gate {
  /**
   * @param {ReturnType<typeof readSettings>} settings
   * @param {{
   *   fetchKeys: Fetch,
   *   fetchRedirect: Fetch,
   *   verify: (key: Uint8Array, signature: Uint8Array, message: Uint8Array) => Promise<boolean>,
   *   now?: () => number,
   * }} edge what differs between edges: `fetchRedirect` follows no redirect, `now` is in seconds
   */
  constructor(settings, edge) {
    this.settings = settings;
    this.edge = edge;
    this.now = edge.now ?? (() => Date.now() / 1000);
    this.keys = new Keys(`${settings.gateway}/.well-known/jwks.json`, edge.fetchKeys, this.now);
    this.room = `${settings.waitingRoom}/e/${settings.eventId}`;
  }

  /**
   * Either the answer to give in the shop's place, or the holder of the pass ("" for a request that needs none).
   * @param {Request} request
   * @returns {Promise<{ answer: Response } | { holder: string }>}
   */
  async decide(request) {
    const asked = new Asked(request, this.settings.eventId);
    if (!asked.readable) return this.#problem("malformed-request");
    if (asked.hasCode) return this.#redeem(asked);
    let wrong = "no-credential";
    for (const text of asked.passes) {
      const read = await this.#read(text);
      if ("holder" in read) return read;
      wrong = read.wrong;
    }
    if (this.#exempt(asked) || (await this.#open())) return { holder: "" };
    if (wrong === "unavailable" || !asked.isPage) return this.#problem(wrong);
    return this.#toTheRoom(asked);
  }

  /**
   * The holder of a valid pass of this event, or what is wrong with it. The token does not choose the algorithm.
   * @param {string} text
   * @returns {Promise<{ holder: string } | { wrong: string }>}
   */
  async #read(text) {
    const parts = text.split(".");
    const [header, claims, signature] = parts.map(canonicalBytes);
    if (parts.length !== 3 || !header || !claims || signature?.length !== 64) return { wrong: "bad-credential" };
    const head = parsed(header);
    if (head?.alg !== "EdDSA" || typeof head.kid !== "string" || "crit" in head) return { wrong: "bad-credential" };
    if (!(await this.keys.refresh(this.settings.openForS, head.kid))) return { wrong: "unavailable" };
    const key = this.keys.keys.get(head.kid);
    const message = new TextEncoder().encode(`${parts[0]}.${parts[1]}`);
    if (!key || !(await this.edge.verify(key, signature, message))) return { wrong: "bad-credential" };
    const pass = parsed(claims) ?? {};
    const now = this.now();
    const holds =
      pass.typ === "onsale-pass" && pass.iss === "onsale" && typeof pass.sub === "string" &&
      Number.isFinite(pass.exp) && now <= pass.exp + LEEWAY_S && Number.isFinite(pass.nbf) && pass.nbf <= now + LEEWAY_S;
    if (!holds) return { wrong: "bad-credential" };
    return pass.aud === this.settings.eventId ? { holder: pass.sub } : { wrong: "wrong-event" };
  }

  /** Whether everybody passes because the waiting room is away, which this asks its public keys. */
  async #open() {
    const { onOutage, openForS } = this.settings;
    if (onOutage !== "open") return false;
    await this.keys.refresh(openForS);
    const outageS = this.keys.outageS();
    return outageS !== null && outageS < openForS;
  }

  #exempt(asked) {
    const { method } = asked.request;
    if (method === "OPTIONS") {
      const own = [...this.settings.sites, this.settings.waitingRoom];
      return asked.header("access-control-request-method") !== null && own.includes(asked.header("origin") ?? "");
    }
    if (method !== "GET" && method !== "HEAD") return false;
    const { path } = asked;
    const plain = PLAIN_PATH.test(path) && !path.includes("//") && !path.includes("/.") && !path.includes("..");
    return plain && this.settings.letThrough.some((pattern) => matches(pattern, path));
  }

  /** The part after `#` reaches no server: it says where the fan comes from, and from which browser. */
  async #toTheRoom(asked) {
    const gateId = asked.gateId ?? base64url(crypto.getRandomValues(new Uint8Array(18))).slice(0, 22);
    const comesBack = asked.request.method === "GET" || asked.request.method === "HEAD";
    const back = comesBack ? asked.site + asked.uriWithoutCode : `${asked.site}/`;
    const digest = await crypto.subtle.digest("SHA-256", new TextEncoder().encode(`onsale gate ${gateId}`));
    const gate = base64url(new Uint8Array(digest).slice(0, 18));
    const known = this.settings.sites.includes(asked.site) && back.length <= RETURN_CHARS_MAX;
    const fragment = known ? `#${new URLSearchParams({ return_to: back, gate })}` : "";
    const secure = asked.secure ? "; Secure" : "";
    const cookie = `${asked.gateCookie}=${gateId}; Path=/; Max-Age=${GATE_COOKIE_S}; HttpOnly; SameSite=Lax${secure}`;
    return redirect(this.room + fragment, asked.gateId ? null : cookie);
  }

  /** Has the gateway exchange the code for the pass's cookie. A browser that keeps no cookies is not sent in circles. */
  async #redeem(asked) {
    if (!asked.gateId) return redirect(this.room);
    const here = asked.uriWithoutCode.startsWith("//") ? `/.${asked.uriWithoutCode}` : asked.uriWithoutCode;
    try {
      const url = `${this.settings.gateway}/gate/traefik/check?event=${this.settings.eventId}`;
      const headers = {
        cookie: `${asked.gateCookie}=${asked.gateId}`, "sec-fetch-mode": "navigate", "x-forwarded-method": "GET",
        "x-forwarded-uri": asked.uri, "x-forwarded-host": asked.site.split("//")[1],
        "x-forwarded-proto": asked.secure ? "https" : "http",
      };
      const answer = await this.edge.fetchRedirect(url, { headers });
      const cookie = answer.headers.get("set-cookie");
      return redirect(here, answer.status === 303 && cookie?.startsWith(`${asked.passCookie}=`) ? cookie : null);
    } catch (error) {
      console.warn(`onsale: a code was not redeemed: ${error}`);
      return redirect(here);
    }
  }

  #problem(slug) {
    const [status, title] = PROBLEMS[slug];
    const members = { type: `/problems/${slug}`, title, status, detail: title, waiting_room: this.room };
    const headers = { "content-type": "application/problem+json", "cache-control": "no-store" };
    if (status === 503) headers["retry-after"] = "5";
    return { answer: new Response(JSON.stringify(members), { status, headers }) };
  }
}

/** @param {string} location @param {string | null} [cookie] */
function redirect(location, cookie) {
  const headers = new Headers({ location, "cache-control": "no-store" });
  if (cookie) headers.set("set-cookie", cookie);
  return { answer: new Response(null, { status: 303, headers }) };
}

/** Whether the path matches the pattern, in which `*` stands for any characters; linear in the path. */
function matches(pattern, path) {
  const [first, ...rest] = pattern.split("*");
  if (!rest.length) return path === first;
  const last = rest.pop();
  if (!path.startsWith(first) || !path.endsWith(last)) return false;
  let at = first.length;
  const end = path.length - last.length;
  for (const part of rest) {
    const found = path.indexOf(part, at);
    if (found < 0 || found + part.length > end) return false;
    at = found + part.length;
  }
  return at <= end;
}

function parsed(bytes) {
  try {
    const found = JSON.parse(new TextDecoder().decode(bytes));
    return typeof found === "object" && !Array.isArray(found) ? found : null;
  } catch {
    return null;
  }
}

function base64url(bytes) {
  return btoa(String.fromCharCode(...bytes)).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
}

/** The bytes of base64url without padding; undefined for anything else: a pass has one spelling. */
function canonicalBytes(text) {
  if (typeof text !== "string" || !/^[A-Za-z0-9_-]*$/.test(text) || text.length % 4 === 1) return undefined;
  const bytes = Uint8Array.from(atob(text.replaceAll("-", "+").replaceAll("_", "/")), (char) => char.charCodeAt(0));
  return base64url(bytes) === text ? bytes : undefined;
}
