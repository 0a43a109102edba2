// <onsale-button event="arena-2026" lang="de">: the way to an on-sale from any other site. It shows the live state and
// opens the pages in a window of their own; on phones, and where windows are blocked, it is a link. Without this script the
// element shows what is inside it. It works under a strict policy: no inline style, no eval, no frame, no cookies.
const SCRIPT = /** @type {HTMLScriptElement} */ (document.currentScript ?? document.querySelector('script[src$="/embed.js"]'));
const ORIGIN = new URL(SCRIPT.src).origin;
const COLOUR = /^#[0-9a-f]{6}$/i;
const FAILED_S = 60;
const LOOK_MS = 500;
const SIZE = { width: 480, height: 860 };
const SHEET = new CSSStyleSheet();
SHEET.replaceSync(`
:host { display: inline-block; max-width: 100%; }
:host([hidden]) { display: none; }
a {
  display: inline-flex; align-items: center; justify-content: center; box-sizing: border-box; min-height: 2.75em; padding: .5em 1.5em;
  border-radius: .7em; background: var(--onsale-accent, var(--light)); color: var(--onsale-on-accent, #fff); font-weight: 650;
  text-decoration: none; overflow-wrap: anywhere;
}
@supports (color: light-dark(red, red)) {
  a {
    background: var(--onsale-accent, light-dark(var(--light), var(--dark)));
    color: var(--onsale-on-accent, light-dark(#fff, #15152b));
  }
}
a:hover { filter: brightness(1.1); }
a:focus-visible { outline: 3px solid; outline-color: Highlight; outline-offset: 3px; }
p { margin: .4em 0 0; font-size: .875em; }
p:empty { display: none; }
.unseen { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); white-space: nowrap; }
@media (forced-colors: active) { a { border: 1px solid; } }
`);

class OnsaleButton extends HTMLElement {
  static observedAttributes = ["event", "lang"];
  #link = document.createElement("a");
  #label = document.createElement("span");
  #window = document.createElement("span");
  #status = document.createElement("p");
  #timer = 0;
  #opened = null;

  constructor() {
    super();
    const root = this.attachShadow({ mode: "open" });
    root.adoptedStyleSheets = [SHEET];
    this.#status.id = "status";
    this.#window.className = "unseen";
    this.#link.setAttribute("aria-describedby", "status");
    this.#link.setAttribute("part", "button");
    this.#status.setAttribute("part", "status");
    this.#paint("#4240b8", "#a9a8ff");
    this.#link.append(this.#label, this.#window);
    this.#link.addEventListener("click", (click) => this.#open(click));
    root.append(this.#link, this.#status);
  }

  connectedCallback() {
    this.#look();
  }

  disconnectedCallback() {
    clearTimeout(this.#timer);
  }

  attributeChangedCallback() {
    if (this.isConnected) this.#look();
  }

  get #page() {
    const lang = this.getAttribute("lang");
    return `${ORIGIN}/e/${encodeURIComponent(this.getAttribute("event") ?? "")}${lang ? `?lang=${encodeURIComponent(lang)}` : ""}`;
  }

  /** A failure is told to nobody: the link works, and an old state is not shown. */
  async #look() {
    clearTimeout(this.#timer);
    this.#link.href = this.#page;
    this.#label.textContent = this.textContent.trim() || "🎟️";
    const [page, lang = ""] = this.#page.split("?");
    const facts = document.hidden ? null : await fetch(`${page}/button.json?${lang}`, { credentials: "omit" })
      .then((answer) => (answer.ok ? answer.json() : null)).catch(() => null);
    if (!this.isConnected) return;
    if (facts) this.#show(facts);
    else if (!document.hidden) this.#status.textContent = "";
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#look(), (facts?.poll_after_s ?? FAILED_S) * 1000 * (0.8 + Math.random() * 0.4));
  }

  #show(facts) {
    this.dataset.state = facts.state ?? "";
    this.#label.textContent = this.textContent.trim() || facts.label;
    this.#window.textContent = inWindow() ? ` (${facts.window})` : "";
    this.#status.textContent = facts.at ? facts.status.replace("{moment}", moment(facts.at, this.lang || undefined)) : facts.status;
    this.#status.dir = facts.direction;
    if (facts.accent) this.#paint(facts.accent, facts.accent_dark);
  }

  #paint(light, dark) {
    if (!COLOUR.test(light) || !COLOUR.test(dark)) return;
    this.#link.style.setProperty("--light", light);
    this.#link.style.setProperty("--dark", dark);
  }

  /** The window does not know who opened it. A second click brings it to the front. */
  #open(click) {
    if (click.button || click.ctrlKey || click.metaKey || click.shiftKey || click.altKey || !inWindow()) return;
    if (this.#opened && !this.#opened.closed) {
      click.preventDefault();
      this.#opened.focus();
      return;
    }
    const left = Math.max(0, screenX + (outerWidth - SIZE.width) / 2);
    const opened = open("", "", `popup,width=${SIZE.width},height=${SIZE.height},left=${left},top=${screenY}`);
    if (!opened) return;
    click.preventDefault();
    opened.opener = null;
    opened.location.href = this.#page;
    this.#opened = opened;
    this.#tell("onsale:opened");
    const watch = setInterval(() => {
      if (!opened.closed) return;
      clearInterval(watch);
      this.#tell("onsale:closed");
      this.#look();
    }, LOOK_MS);
  }

  #tell(what) {
    this.dispatchEvent(new CustomEvent(what, { bubbles: true, detail: { event: this.getAttribute("event") } }));
  }
}

/** Phones show one window at a time: there the link is better. */
const inWindow = () => matchMedia("(min-width: 40rem) and (any-pointer: fine)").matches;

function moment(iso, language) {
  const style = /** @type {Intl.DateTimeFormatOptions} */ ({
    weekday: "short", day: "numeric", month: "short", hour: "numeric", minute: "2-digit", timeZoneName: "short",
  });
  return new Date(iso).toLocaleString(language, style);
}

if (!customElements.get("onsale-button")) customElements.define("onsale-button", OnsaleButton);
