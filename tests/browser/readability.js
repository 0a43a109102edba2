// Measures a page for readability.py: visible texts, controls, icons, bars, focus outlines, and texts that do not fit.
(() => {
  const REPEATED = ["#seats .seat"];
  const CONTROLS = "button, a.button, input, select";
  const CONTAINERS = "button, .button, .card, .poster, .notice, li, .ticket, .basket-in > *, .trouble, .event-card, .state, .hall";
  const CANVAS = document.createElement("canvas").getContext("2d", { willReadFrequently: true });

  /** A CSS colour as [r, g, b, alpha]. */
  const rgba = (colour) => {
    CANVAS.clearRect(0, 0, 1, 1);
    CANVAS.fillStyle = colour;
    CANVAS.fillRect(0, 0, 1, 1);
    const [r, g, b, a] = CANVAS.getImageData(0, 0, 1, 1).data;
    return [r, g, b, a / 255];
  };
  const ancestors = function* (node) {
    for (let each = node; each && each !== document.documentElement; each = each.parentElement) yield each;
  };
  const hides = (style) => style.visibility !== "visible" || style.clipPath !== "none" || style.opacity === "0";
  const visible = (node) => node.checkVisibility() && ![...ancestors(node)].some((each) => hides(getComputedStyle(each)));
  const opacity = (node) => [...ancestors(node)].reduce((product, each) => product * Number(getComputedStyle(each).opacity), 1);
  const widthOf = (text, node) => {
    CANVAS.font = getComputedStyle(node).font;
    return CANVAS.measureText(text).width;
  };
  const inner = (node) => {
    const { left, top, width, height } = node.getBoundingClientRect();
    return { left: left + width / 4, top: top + height / 4, right: left + (width * 3) / 4, bottom: top + (height * 3) / 4 };
  };
  const box = ({ left, top, right, bottom }) => ({ left, top, right, bottom });
  const nameOf = (node) => `${node.tagName.toLowerCase()}${node.id ? `#${node.id}` : node.className ? `.${String(node.className).split(" ")[0]}` : ""}`;
  const floats = (node) => [...ancestors(node)].some((each) => getComputedStyle(each).position === "fixed" || each.matches(".dock"));
  const withoutRepeated = (nodes) => nodes.filter((node) => !REPEATED.some((selector) => node.matches(`${selector}:not(:nth-child(2))`)));

  function texts() {
    const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    const nodes = [];
    for (let node = walker.nextNode(); node; node = walker.nextNode()) {
      const parent = node.parentElement;
      if (!node.textContent.trim() || parent.closest("script, style, noscript, option") || !visible(parent)) continue;
      const range = document.createRange();
      range.selectNodeContents(node);
      const rects = [...range.getClientRects()].filter((rect) => rect.width > 1 && rect.height > 1).map(box);
      if (rects.length > 0) nodes.push({ node: parent, text: node.textContent.trim().slice(0, 50), rects });
    }
    for (const node of document.querySelectorAll("select")) {
      if (!visible(node)) continue;
      const { left, top, bottom } = node.getBoundingClientRect();
      const from = left + Number.parseFloat(getComputedStyle(node).paddingLeft);
      const text = node.selectedOptions[0]?.text ?? "";
      nodes.push({ node, text, rects: [{ left: from, top: top + 8, right: from + widthOf(text, node), bottom: bottom - 8 }], field: true });
    }
    return nodes;
  }

  /** The parts of a text that are not scrolled out of view. */
  const inView = ({ node, rects }) => {
    const around = [...ancestors(node)].find((each) => scrolls(getComputedStyle(each)))?.getBoundingClientRect();
    return around ? rects.map((rect) => cut(rect, around)).filter((rect) => rect.right - rect.left > 3 && rect.bottom - rect.top > 3) : rects;
  };

  const style = ({ node, text, rects }) => {
    const { color, fontSize, fontWeight } = getComputedStyle(node);
    return { name: nameOf(node), text, rects, colour: rgba(color), opacity: opacity(node), size: Number.parseFloat(fontSize), weight: Number(fontWeight) };
  };

  /** Icons drawn by style sheets. */
  function marks() {
    const drawn = [];
    for (const node of withoutRepeated([...document.querySelectorAll(".verdict, .seat")])) {
      for (const side of ["::before", "::after"]) {
        const { content, color } = getComputedStyle(node, side);
        if (/^"\S+"$/.test(content) && visible(node)) drawn.push({ name: nameOf(node), text: content, rects: [inner(node)], colour: rgba(color), opacity: opacity(node) });
      }
    }
    return drawn;
  }

  function controls() {
    const all = withoutRepeated([...document.querySelectorAll(`${CONTROLS}, .dot`)]).filter(visible);
    const framed = all.filter((node) => {
      const { borderTopStyle, borderTopWidth, backgroundColor } = getComputedStyle(node);
      const bare = (borderTopStyle === "none" || borderTopWidth === "0px") && rgba(backgroundColor)[3] === 0;
      return !bare && !node.disabled && node.ariaDisabled !== "true" && rgba(getComputedStyle(node).borderTopColor)[3] > 0;
    });
    return framed.map((node) => ({ name: nameOf(node), text: node.textContent.trim().slice(0, 30), rect: box(node.getBoundingClientRect()) }));
  }

  const bars = () =>
    [...document.querySelectorAll("progress[value]")]
      .filter((bar) => visible(bar) && bar.value > 0.1 && bar.value < 0.9)
      .map((bar) => ({ name: nameOf(bar), rect: box(bar.getBoundingClientRect()) }));

  /** Focus outlines; browsers draw them only after a key was pressed. */
  function focuses() {
    const before = document.activeElement;
    const reached = withoutRepeated([...document.querySelectorAll("a[href], button, input, select, [tabindex='0']")]).filter((node) => visible(node) && !node.disabled && node.tabIndex >= 0);
    const outlines = reached.map((node) => {
      node.focus({ preventScroll: true });
      const { outlineColor, outlineStyle, outlineWidth, outlineOffset } = getComputedStyle(node);
      return {
        name: nameOf(node), text: node.textContent.trim().slice(0, 30), rect: box(node.getBoundingClientRect()), style: outlineStyle,
        colour: rgba(outlineColor), width: Number.parseFloat(outlineWidth), offset: Number.parseFloat(outlineOffset),
      };
    });
    before?.focus({ preventScroll: true });
    return outlines;
  }

  const meets = (a, b) => Math.min(a.right, b.right) - Math.max(a.left, b.left) > 3 && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 0.4 * Math.min(a.bottom - a.top, b.bottom - b.top);
  const cut = (rect, by) => ({ left: Math.max(rect.left, by.left), top: Math.max(rect.top, by.top), right: Math.min(rect.right, by.right), bottom: Math.min(rect.bottom, by.bottom) });
  const scrolls = ({ overflowX, overflowY }) => [overflowX, overflowY].some((overflow) => overflow === "auto" || overflow === "scroll");
  const clips = ({ overflowX, overflowY }) => [overflowX, overflowY].some((overflow) => overflow === "hidden" || overflow === "clip");
  const beyond = (rect, by) => rect.left < by.left - 2 || rect.right > by.right + 2 || rect.top < by.top - 2 || rect.bottom > by.bottom + 2;

  /** Reports containers that cut a text or that it sticks out of; returns its parts in view. */
  function fits({ node, text, rects }, problems) {
    for (const each of ancestors(node)) {
      const css = getComputedStyle(each);
      const by = each.getBoundingClientRect();
      if (scrolls(css)) break;
      if ((clips(css) || each.matches(CONTAINERS)) && rects.some((rect) => beyond(rect, by))) problems.push(`“${text}” does not fit into ${nameOf(each)}`);
    }
    return inView({ node, rects });
  }

  function field({ node, text }, problems) {
    const { paddingLeft, paddingRight } = getComputedStyle(node);
    const width = node.clientWidth - Number.parseFloat(paddingLeft) - Number.parseFloat(paddingRight) - 16;
    if (widthOf(text, node) > width) problems.push(`“${text}” is cut in ${nameOf(node)}`);
  }

  /** A message for each text or control that does not fit. */
  function layoutProblems() {
    const problems = [];
    const root = document.documentElement;
    if (root.scrollWidth > innerWidth + 1) problems.push(`the page is ${root.scrollWidth} wide in ${innerWidth}`);
    scrollTo(0, root.scrollHeight);
    const shown = texts();
    shown.filter((text) => text.field).forEach((text) => field(text, problems));
    const parts = shown.filter((text) => !text.field).map((text) => ({ ...text, rects: fits(text, problems), floats: floats(text.node) }));
    for (const node of withoutRepeated([...document.querySelectorAll(CONTROLS)]).filter(visible)) {
      const part = { node, text: node.id || node.textContent.trim(), rects: [box(node.getBoundingClientRect())], floats: floats(node), control: true };
      parts.push({ ...part, rects: fits({ ...part, text: `the box of ${part.text}` }, []) });
    }
    parts.forEach((a, n) => {
      for (const b of parts.slice(n + 1)) {
        if (a.node.contains(b.node) || b.node.contains(a.node)) continue;
        if (a.rects.some((one) => b.rects.some((other) => meets(one, other)))) problems.push(`“${a.text}” and “${b.text}” overlap`);
      }
    });
    scrollTo(0, 0);
    return [...new Set(problems)];
  }

  window.inspection = { focuses, layoutProblems, elements: () => ({ texts: texts().map((text) => style({ ...text, rects: inView(text) })).filter(({ colour, rects }) => colour[3] > 0 && rects.length > 0), marks: marks(), controls: controls(), bars: bars() }) };
})();
