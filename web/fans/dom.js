// Elements by id, and elements made of plain text. No page parses HTML from data, so server texts stay text.

export const byId = (id) => document.getElementById(id);

export function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== null && value !== undefined && value !== false) made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

const styles = new Map();

/** Loads a style sheet, once; without it what it styles would be nothing that fans can use. */
export function styled(href) {
  const loaded = (resolve, reject) => {
    const link = element("link", { rel: "stylesheet", href });
    link.onload = resolve;
    link.onerror = () => {
      styles.delete(href);
      reject(link.remove());
    };
    document.head.append(link);
  };
  if (!styles.has(href)) styles.set(href, new Promise(loaded));
  return styles.get(href);
}

/** Writes only changes: an unchanged text node costs no layout and triggers no screen reader. */
export function write(target, text) {
  const node = typeof target === "string" ? byId(target) : target;
  if (node.textContent !== String(text)) node.textContent = text;
}

export function show(target, visible = true) {
  const node = typeof target === "string" ? byId(target) : target;
  if (node.hidden === visible) node.hidden = !visible;
}

/** Disables a control but keeps it focusable, so that a screen reader can give the reason. */
export function disable(node, disabled = true) {
  if (disabled) node.setAttribute("aria-disabled", "true");
  else node.removeAttribute("aria-disabled");
}

const SPEAK_AFTER_MS = 50;
const SAID_MS = 8_000;
let speaking = [];

/** Announces a text once to screen readers, also a repeated one; then removes it, so that nobody
 * finds an outdated text later. */
export function announce(text) {
  speaking.forEach(clearTimeout);
  write("announcer", "");
  speaking = [setTimeout(() => write("announcer", text), SPEAK_AFTER_MS), setTimeout(() => write("announcer", ""), SAID_MS)];
}

/** Shows the error of a field beside it and links the two; without an error removes it. */
export function fault(field, text) {
  byId(field).setAttribute("aria-invalid", String(Boolean(text)));
  write(`${field}-error`, text ?? "");
  show(`${field}-error`, Boolean(text));
  if (text) announce(text);
}

/** The single place for error messages; one stays until the next action or until it is dismissed. */
export function trouble(text, tone = "bad") {
  byId("trouble").dataset.tone = tone;
  write("trouble-text", text ?? "");
  show("trouble", Boolean(text));
}

/** Gives each event a colour of its own, always the same one, in the half of the wheel between teal and red. */
export function paint(node, name) {
  let hue = 0;
  for (const letter of name) hue = (hue * 31 + letter.codePointAt(0)) % 360;
  node.style.setProperty("--hue", 190 + (hue % 175));
}
