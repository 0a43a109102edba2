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

/** Says something once to people who listen rather than look. */
export function announce(text) {
  write("announcer", text);
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
