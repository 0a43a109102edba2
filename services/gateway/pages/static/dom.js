// Elements: found by id, made from plain text. Nothing here or elsewhere parses HTML, so what a server says stays text.

export const byId = (id) => document.getElementById(id);

export function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== null && value !== undefined && value !== false) made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

/** Writes only what changed: an untouched text node costs no layout and wakes no screen reader. */
export function write(target, text) {
  const node = typeof target === "string" ? byId(target) : target;
  if (node.textContent !== String(text)) node.textContent = text;
}

export function show(target, visible = true) {
  const node = typeof target === "string" ? byId(target) : target;
  if (node.hidden === visible) node.hidden = !visible;
}

/** Greyed out but still reachable, so that a screen reader can say why. */
export function disable(node, disabled = true) {
  if (disabled) node.setAttribute("aria-disabled", "true");
  else node.removeAttribute("aria-disabled");
}

const SPEAK_AFTER_MS = 50;
const SAID_MS = 8_000;
let speaking = [];

/** Says something once to people who listen rather than look, also what was said before; then it is gone, so that nobody
 * finds old news when they read on. */
export function announce(text) {
  speaking.forEach(clearTimeout);
  write("announcer", "");
  speaking = [setTimeout(() => write("announcer", text), SPEAK_AFTER_MS), setTimeout(() => write("announcer", ""), SAID_MS)];
}

/** What is wrong with a field, beside it and tied to it; nothing when it is right again. */
export function fault(field, text) {
  byId(field).setAttribute("aria-invalid", String(Boolean(text)));
  write(`${field}-error`, text ?? "");
  show(`${field}-error`, Boolean(text));
  if (text) announce(text);
}

/** One place for what went wrong; it stays until the next action or until it is dismissed. */
export function trouble(text, tone = "bad") {
  byId("trouble").dataset.tone = tone;
  write("trouble-text", text ?? "");
  show("trouble", Boolean(text));
}

/** Gives every show a colour of its own, always the same one, between teal and red: in the evening half of the wheel. */
export function paint(node, name) {
  let hue = 0;
  for (const letter of name) hue = (hue * 31 + letter.codePointAt(0)) % 360;
  node.style.setProperty("--hue", 190 + (hue % 175));
}
