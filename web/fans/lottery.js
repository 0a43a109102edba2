// The pre-queue's lottery in a sentence: what is decided, when the rest will be, and where to verify it.
import { ask } from "./api.js";
import { announce, byId, element, show, trouble, write } from "./dom.js";
import { moment, plural } from "./format.js";
import { count } from "./words.js";

const ASK_AGAIN_MS = 30_000;

export class Lottery {
  #told = null;
  #askedMs = 0;
  #asking = false;

  constructor({ eventId, line }) {
    Object.assign(this, { line, path: `/events/${eventId}/queue/lottery` });
    line.addEventListener("change", () => this.render());
    byId("lottery-check").addEventListener("click", () => this.#check());
  }

  /** In a new tab: the waiting page goes on. */
  async #check() {
    if (!window.crypto?.subtle) return trouble("This browser computes only over HTTPS. The published document has all there is to check.");
    try {
      const [told, { check }] = await Promise.all([ask("GET", this.path), import(LOTTERY_CHECK)]);
      const checks = await check(told, this.line.place);
      byId("lottery-checks").replaceChildren(...checks.map((one) => checkLine(one, this.line.zone)));
      show("lottery-checks");
      const broken = checks.filter(([, holds]) => holds === false).length;
      return announce(broken ? `${plural(broken, "check")} failed.` : "Nothing that can be checked now is wrong.");
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
    if (late) return "Entry to the lottery had closed when you joined: you come after everybody who took part.";
    if (stage === "drawn") {
      const value = this.#told?.public_value;
      const drawn = value ? `The order was drawn with “${value}”.` : "The order was drawn.";
      return place?.rank ? `${drawn} Your number ${count(place.join_seq)} got place ${count(place.rank)}.` : drawn;
    }
    const what = this.#told?.rules.public_value;
    const by = what ? ` It is drawn with ${what.what}, known at ${moment(what.known_at, this.line.zone)}.` : "";
    if (stage === "closed") return `Entry to the lottery has closed.${by}`;
    const until = this.#told ? ` until ${moment(this.#told.rules.entry_closes_at, this.line.zone)}` : "";
    return `The order of this line is drawn by lottery. Whoever joins${until} takes part; being early is no advantage.${by}`;
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
      this.#told = await ask("GET", this.path);
    } catch {
      // the sentence stays as general as it is; the next change of the line asks again
    }
    this.#askedMs = Date.now();
    this.#asking = false;
    this.render();
  }
}

const SIGNS = new Map([[true, ["✓", "Holds"]], [false, ["✗", "Does not hold"]], [null, ["–", "Cannot be told here"]]]);

const A_TIME = /^\d{4}-\d\d-\d\dT/;

function checkLine([what, holds, detail], zone) {
  const [sign, words] = SIGNS.get(holds);
  const seenFrom = A_TIME.test(detail) ? moment(detail, zone) : (detail ?? "");
  return element(
    "li",
    { "data-holds": String(holds) },
    element("span", { "aria-hidden": "true" }, sign),
    element("span", {}, element("strong", {}, `${what}.`), element("span", { class: "unseen" }, ` ${words}.`), ` ${seenFrom}`),
  );
}
