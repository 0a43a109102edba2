// One fan's way through one on-sale, as a state machine: which step may follow which, and what starts each. What only
// fans with a place need, `inside.js`, is loaded while they wait.
import { Problem, ask } from "./api.js";
import { Basket } from "./basket.js";
import { Called } from "./called.js";
import { announce, byId, paint, show, styled, trouble, write } from "./dom.js";
import { Ended } from "./ended.js";
import { Feed } from "./feed.js";
import { clockTime, date, ownTime, time } from "./format.js";
import { limitWords } from "./limits.js";
import { Line } from "./line.js";
import { Lobby, describe } from "./lobby.js";
import { browser } from "./memory.js";
import { heldByForm, scriptsAreOn } from "./plain.js";
import { mayRing } from "./ring.js";
import { Sections } from "./sections.js";
import "./shared.js";
import { Stock } from "./stock.js";
import { Waiting } from "./waiting.js";
import { goBack, noteWayBack } from "./way_back.js";
import { fill } from "./words.js";

const MAY_FOLLOW = {
  loading: ["lobby", "waiting", "called", "choosing", "held", "ended"],
  lobby: ["waiting", "called", "ended"],
  waiting: ["lobby", "called", "ended"],
  called: ["waiting", "choosing", "held", "lobby", "ended"],
  choosing: ["waiting", "held", "lobby", "ended"],
  held: ["choosing", "lobby", "ended"],
  ended: ["waiting", "called", "lobby"],
};
const WITH_HALL = new Set(["waiting", "choosing"]);
/** Room states in which no waiting fan will be called. */
const OVER = new Set(["sold_out", "closed"]);
/** Room states that waiting fans must know of; others are shown with the estimate. */
const ROOM_TOLD = { draining: texts.draining_notice };
const ENDED_BY = { "sold-out": "sold_out", "room-closed": "closed" };
const BEYOND_THE_CALL = new Set(["called", "choosing", "held"]);
const CONNECTION = {
  live: texts.connection_live,
  degraded: texts.connection_degraded,
  reconnecting: texts.connection_reconnecting,
  polling: texts.connection_polling,
  crowded: texts.connection_crowded,
};

/** A map of one standing area would show nothing. */
const hasHall = ({ map_hash: hash, sections }) => Boolean(hash) && (sections.length > 1 || sections[0]?.kind === "seated");

/** Whether a ticket may be bought at several prices; whether there are places for wheelchair users. */
const hasTypes = ({ price_types: types = [] }) => types.length > 0;
const isAccessible = ({ sections }) => sections.some(({ traits = [] }) => traits.includes("wheelchair"));

class Journey {
  step = "loading";
  /** Whether only places for wheelchair users are shown, in the map and the lists. */
  filter = Object.assign(new EventTarget(), { on: false });

  constructor(fact) {
    const eventId = fact.event_id;
    Object.assign(this, { eventId, fact, line: new Line(eventId), stock: new Stock(eventId) });
    this.stock.describe(fact);
    this.line.zone = fact.timezone;
    this.basket = new Basket(fact.limits.tickets_per_order);
    this.prices = fact.prices;
    const { line, stock, basket, prices, filter } = this;
    const join = (code) => this.join(code);
    this.sections = new Sections({ stock, basket, prices, filter, open: (sectionId) => this.steps.choosing.open(sectionId) });
    this.feed = new Feed({ eventId, line, stock, noticed: (...news) => this.noticed(...news), changed: connection });
    this.steps = {
      lobby: new Lobby({ line, join }),
      waiting: new Waiting({ line, stock, prices, showName: fact.name }),
      called: new Called({ line, showName: fact.name, rings: () => this.feed.tabs.leads, claim: () => this.claim() }),
      ended: new Ended({ eventId, line, join }),
    };
    this.sections.render();
    show("show-hall", hasHall(fact));
    byId("show-hall").addEventListener("click", () => this.showHall());
    line.addEventListener("change", () => this.follow());
    line.addEventListener("change", () => this.explainLottery());
  }

  async start() {
    await Promise.allSettled([this.line.look(), this.stock.look()]);
    const place = await this.line.check().catch(() => null);
    if (!place) this.go("lobby");
  }

  /** Joins again with the same code, which is stored nowhere else. */
  async join(code = this.code) {
    mayRing();
    try {
      await this.line.join(code);
      this.code = code;
    } catch (problem) {
      if (problem.slug?.startsWith("code-")) this.code = undefined;
      throw problem;
    }
  }

  /** What few lines need comes when the line says so; after a failure its next change asks again. */
  async explainLottery() {
    if (this.explained || !this.line.frame?.lottery) return;
    this.explained = true;
    const { Lottery } = await import(LOTTERY).catch(() => ({}));
    this.explained = Boolean(Lottery);
    if (Lottery) new Lottery({ eventId: this.eventId, line: this.line, ask }).render();
  }

  /** The hall comes with a place, or to those who ask for it; without it the list has all there is. */
  async showHall(detail) {
    if (!hasHall(this.fact)) return;
    const { feed, stock, basket, prices, filter, fact } = this;
    byId("journey").toggleAttribute("data-hall-coming", !this.hall);
    this.hall ??= import(HALL_SCRIPT).then(({ openHall }) => openHall({ feed, stock, basket, prices, filter, fact, choosing: () => this.steps.choosing }));
    const { step } = this;
    const hall = await this.hall.catch(() => (this.hall = null));
    byId("journey").removeAttribute("data-hall-coming");
    show("show-hall", !hall);
    if (step === this.step) hall?.enter(step, detail);
  }

  /** The server's status decides the step, except between the fan's own actions. */
  follow() {
    this.notice();
    const status = this.line.place?.status;
    if (!status) return this.step === "loading" ? null : this.backToTheDoor();
    if (status === "waiting" || status === "prequeue") return this.keepWaiting(this.line.frame?.state);
    if (status === "ready") return this.go("called");
    if (status === "admitted") return BEYOND_THE_CALL.has(this.step) ? null : this.go("called");
    return this.go("ended", { reason: status, why: this.line.place.why });
  }

  backToTheDoor() {
    this.go("lobby");
    if (this.line.unkept) trouble(this.line.unkept);
    this.line.unkept = null;
  }

  keepWaiting(state) {
    return OVER.has(state) ? this.go("ended", { reason: state }) : this.go("waiting");
  }

  /** Loads the steps of choosing and paying, once; after a failure the next call tries again. */
  async loadInside() {
    if (this.steps.choosing) return;
    const { eventId, fact, line, stock, basket, prices, filter, sections } = this;
    const typed = hasTypes(fact) || isAccessible(fact) || fact.code_opens_places;
    const parts = [import(INSIDE_SCRIPT), typed ? import(TYPES_SCRIPT) : {}, styled(SEATS_STYLE)];
    const [{ Best, Choosing, Hold }, { Types, Accessible, Code }] = await Promise.all(parts).catch(() => {
      throw new Problem({ title: texts.problem_no_connection });
    });
    if (this.steps.choosing) return;
    const types = hasTypes(fact) ? new Types({ fact, line, stock, basket, prices, sections }) : undefined;
    if (!types && fact.code_opens_places) new Code({ fact, basket }, byId("best"));
    const held = (reservation) => this.go("held", reservation);
    const accessible = () => new Accessible({ fact, prices, basket, types });
    new Best({ eventId, stock, prices, basket, types, accessible: isAccessible(fact) && accessible, held });
    const timeUp = () => line.nudge();
    this.steps.choosing = new Choosing({ eventId, stock, basket, prices, filter, sections, types, held, timeUp });
    this.steps.held = new Hold({ eventId, stock, types, event: this.fact, shown: (reservation) => this.showHall(reservation), over: (reason) => this.chooseAgain(reason) });
  }

  /** Called: claims the pass, and restores a reservation that exists already. */
  async claim() {
    try {
      await this.loadInside();
      const pass = await this.line.claim();
      if (await goBack(this.eventId)) return;
      const reservation = await this.reservation();
      if (this.step !== "called") return;
      this.pass = pass;
      this.go(reservation ? "held" : "choosing", reservation ?? pass);
    } catch (problem) {
      this.notLetIn(problem);
    }
  }

  notLetIn(problem) {
    if (problem.slug === "not-admitted") {
      this.line.place = { ...this.line.place, status: "waiting" };
      return this.go("waiting");
    }
    const { place, why } = problem.members;
    if (problem.status === 410) return this.go("ended", { reason: place ?? ENDED_BY[problem.slug], why, text: problem.message });
    trouble(problem.message);
    return setTimeout(() => this.step === "called" && this.claim(), 3000);
  }

  async reservation() {
    const id = browser(`reservation:${this.eventId}`) ?? heldByForm(this.eventId);
    const known = id && (await ask("GET", `/events/${this.eventId}/reservations/${id}`).catch(() => null));
    if (known?.status === "pending_payment") return known;
    browser(`reservation:${this.eventId}`, null);
    return null;
  }

  chooseAgain(reason) {
    this.go("choosing", this.pass);
    trouble(reason, "calm");
    this.line.nudge();
  }

  go(step, detail) {
    if (step === this.step || !MAY_FOLLOW[this.step].includes(step)) return;
    const first = this.step === "loading";
    this.steps[this.step]?.leave();
    this.step = step;
    byId("journey").dataset.step = step;
    for (const name of Object.keys(this.steps)) show(name, name === step);
    if (step === "held" || step === "ended" || step === "lobby") this.basket.clear();
    if (step === "lobby" || step === "ended") this.rest();
    else this.attend();
    if (step === "lobby") document.title = `${this.fact.name} · Onsale`;
    show("loading", false);
    this.notice();
    this.steps[step].enter(detail);
    if (step !== "held" && (this.hall || WITH_HALL.has(step))) this.showHall();
    if (first) return;
    trouble(null);
    byId(step).querySelector("h2").focus();
  }

  attend() {
    this.loadInside().catch(() => {});
    this.feed.listen();
    this.line.watch();
  }

  rest() {
    this.feed.hush();
    this.line.rest();
  }

  /** An interruption is shown until it ends; the end is only announced. */
  noticed(text, { over }) {
    this.interruption = over ? "" : text;
    if (over && text) announce(text);
    this.notice();
  }

  /** The operator's message has priority. */
  notice() {
    const waits = this.step === "waiting" && ROOM_TOLD[this.line.frame?.state];
    const text = this.line.frame?.message || this.line.place?.message || this.interruption || waits || "";
    write("notice", text);
    show("notice", Boolean(text));
  }
}

/** Old figures stay readable, but look old, with their age. */
function connection(state, heardMs) {
  const old = state === "offline" ? fill(texts.offline_as_of, { time: clockTime(heardMs) }) : "";
  const told = old || CONNECTION[state];
  show("connection", Boolean(told));
  byId("connection").dataset.state = state ?? "";
  write("connection-text", told ?? "");
  document.body.toggleAttribute("data-old", Boolean(old));
  for (const id of ["line-as-of", "stock-as-of"]) {
    write(id, old && `${old} ${texts.offline_asks_again}`);
    show(id, Boolean(old));
  }
}

function introduce(fact) {
  document.title = `${fact.name} · Onsale`;
  paint(byId("poster"), fact.event_id);
  write("event-name", fact.name);
  write("event-venue", fact.venue);
  write("event-date", fill(texts.date_then, { date: date(fact.starts_at, fact.timezone) }));
  write("event-time", time(fact.starts_at, fact.timezone));
  write("event-own", ownTime(fact.starts_at, fact.timezone));
  byId("event-date").dateTime = fact.starts_at;
  tellPrices(fact);
  fact.prices.addEventListener("change", () => tellPrices(fact));
  write("event-limit", limitWords(fact.limits));
}

/** The lowest price of a ticket and what it includes, before anybody joins the line. */
function tellPrices({ prices, sections }) {
  const least = Math.min(...sections.map((section) => section.price_minor));
  write("event-from", sections.length > 0 ? fill(texts.price_from, { price: prices.one(least) }) : "");
  const once = prices.perOrder ? ` ${texts.fee_once}` : "";
  write("on-top", prices.contents ? `${fill(texts.price_contents, { contents: prices.contents })}${once}` : "");
  show("on-top", Boolean(prices.contents));
}

scriptsAreOn();
byId("trouble-close").addEventListener("click", () => trouble(null));
const eventId = decodeURIComponent(location.pathname.split("/")[2] ?? "");
noteWayBack(eventId);
try {
  const fact = await describe(encodeURIComponent(eventId));
  introduce(fact);
  await new Journey(fact).start();
} catch (problem) {
  show("journey", false);
  show("lost");
  write("event-name", problem.status === 404 ? texts.no_such_event : texts.page_not_loaded);
  write("lost-text", problem.message);
}
