// The pre-queue's lottery in a sentence: what is decided, when the rest will be, and where to verify it.
import { announce, byId, element, show, trouble, write } from "./dom.js";
import { moment } from "./format.js";
import { fill } from "./words.js";

const ASK_AGAIN_MS = 30_000;

export class Lottery {
  #told = null;
  #askedMs = 0;
  #asking = false;

  constructor({ eventId, line, ask }) {
    Object.assign(this, { line, ask, path: `/events/${eventId}/queue/lottery` });
    line.addEventListener("change", () => this.render());
    byId("lottery-check").addEventListener("click", () => this.#check());
  }

  /** In a new tab: the waiting page goes on. */
  async #check() {
    if (!window.crypto?.subtle) return trouble(texts.lottery_needs_https);
    try {
      const [told, { check }] = await Promise.all([this.ask("GET", this.path), import(LOTTERY_CHECK)]);
      const checks = await check(told, this.line.place);
      byId("lottery-checks").replaceChildren(...checks.map((one) => checkLine(one, this.line.zone)));
      show("lottery-checks");
      const broken = checks.filter(([, holds]) => holds === false).length;
      return announce(broken ? fill(texts.checks_failed, { n: broken }) : texts.checks_hold);
    } catch (problem) {
      return trouble(problem.message);
    }
  }

  render() {
    const stage = this.line.frame?.lottery;
    show("lottery", Boolean(stage) && this.line.place?.status !== "completed");
    if (!stage) return;
    this.#lookUp(stage);
    byId("lottery-link").href = this.path;
    write("lottery-text", this.#text(stage));
  }

  #text(stage) {
    const { place } = this.line;
    const late = place && this.#told?.entrants?.[place.lane] && place.join_seq > this.#told.entrants[place.lane].n;
    if (late) return texts.lottery_late;
    if (stage === "drawn") {
      const value = this.#told?.public_value;
      const drawn = value ? fill(texts.lottery_drawn_with, { value }) : texts.lottery_drawn;
      return place?.rank ? `${drawn} ${fill(texts.lottery_rank, { number: place.join_seq, rank: place.rank })}` : drawn;
    }
    const what = this.#told?.rules.public_value;
    const by = what ? fill(texts.lottery_value, { what: what.what, moment: moment(what.known_at, this.line.zone) }) : "";
    if (stage === "closed") return `${texts.lottery_entry_closed} ${by}`.trim();
    const closes = this.#told && moment(this.#told.rules.entry_closes_at, this.line.zone);
    return `${closes ? fill(texts.lottery_until, { moment: closes }) : texts.lottery_open} ${by}`.trim();
  }

  /** The document changes with the stage; requested after a random delay, so that a crowd spreads out. */
  #lookUp(stage) {
    const known = this.#told?.stage === stage;
    if (known || this.#asking || Date.now() - this.#askedMs < (this.#told ? ASK_AGAIN_MS / 10 : 1000)) return;
    this.#asking = true;
    setTimeout(() => this.#look(), this.#told ? Math.random() * ASK_AGAIN_MS : 0);
  }

  async #look() {
    try {
      this.#told = await this.ask("GET", this.path);
    } catch {
      // the sentence stays as general as it is; the next change of the line asks again
    }
    this.#askedMs = Date.now();
    this.#asking = false;
    this.render();
  }
}

const SIGNS = new Map([[true, ["✓", texts.check_holds]], [false, ["✗", texts.check_broken]], [null, ["–", texts.check_open]]]);

const A_TIME = /^\d{4}-\d\d-\d\dT/;

function checkLine([what, holds, detail], zone) {
  const [sign, told] = SIGNS.get(holds);
  const seenFrom = A_TIME.test(detail) ? moment(detail, zone) : (detail ?? "");
  return element(
    "li",
    { "data-holds": String(holds) },
    element("span", { "aria-hidden": "true" }, sign),
    element("span", {}, element("strong", {}, what), element("span", { class: "unseen" }, ` ${told}`), ` ${seenFrom}`),
  );
}
