// What can be seen of a page, for the tests that judge it: texts, controls, marks, what a focus draws, and what does not fit.
(() => {
  const TAKEN = ["#seats .seat"];
  const CONTROLS = "button, a.button, input, select";
  const HOLDERS = "button, .button, .card, .poster, .notice, li, .ticket, .basket-in > *, .trouble, .event-card, .state, .hall";
  const INK = document.createElement("canvas").getContext("2d", { willReadFrequently: true });

  /** Any colour CSS knows, as it is painted: [r, g, b, alpha]. */
  const rgba = (colour) => {
    INK.clearRect(0, 0, 1, 1);
    INK.fillStyle = colour;
    INK.fillRect(0, 0, 1, 1);
    const [r, g, b, a] = INK.getImageData(0, 0, 1, 1).data;
    return [r, g, b, a / 255];
  };
  const ancestors = function* (node) {
    for (let one = node; one && one !== document.documentElement; one = one.parentElement) yield one;
  };
  const hides = (style) => style.visibility !== "visible" || style.clipPath !== "none" || style.opacity === "0";
  const seen = (node) => node.checkVisibility() && ![...ancestors(node)].some((one) => hides(getComputedStyle(one)));
  const opacity = (node) => [...ancestors(node)].reduce((all, one) => all * Number(getComputedStyle(one).opacity), 1);
  const widthOf = (text, node) => {
    INK.font = getComputedStyle(node).font;
    return INK.measureText(text).width;
  };
  const inner = (node) => {
    const { left, top, width, height } = node.getBoundingClientRect();
    return { left: left + width / 4, top: top + height / 4, right: left + (width * 3) / 4, bottom: top + (height * 3) / 4 };
  };
  const box = ({ left, top, right, bottom }) => ({ left, top, right, bottom });
  const named = (node) => `${node.tagName.toLowerCase()}${node.id ? `#${node.id}` : node.className ? `.${String(node.className).split(" ")[0]}` : ""}`;
  const floats = (node) => [...ancestors(node)].some((one) => getComputedStyle(one).position === "fixed" || one.matches(".dock"));
  const few = (nodes) => nodes.filter((node) => !TAKEN.some((some) => node.matches(`${some}:not(:nth-child(2))`)));

  function texts() {
    const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    const found = [];
    for (let node = walker.nextNode(); node; node = walker.nextNode()) {
      const parent = node.parentElement;
      if (!node.textContent.trim() || parent.closest("script, style, noscript, option") || !seen(parent)) continue;
      const range = document.createRange();
      range.selectNodeContents(node);
      const rects = [...range.getClientRects()].filter((rect) => rect.width > 1 && rect.height > 1).map(box);
      if (rects.length > 0) found.push({ node: parent, text: node.textContent.trim().slice(0, 50), rects });
    }
    for (const node of document.querySelectorAll("select")) {
      if (!seen(node)) continue;
      const { left, top, bottom } = node.getBoundingClientRect();
      const from = left + Number.parseFloat(getComputedStyle(node).paddingLeft);
      const text = node.selectedOptions[0]?.text ?? "";
      found.push({ node, text, rects: [{ left: from, top: top + 8, right: from + widthOf(text, node), bottom: bottom - 8 }], field: true });
    }
    return found;
  }

  /** As far as it is not scrolled away. */
  const inView = ({ node, rects }) => {
    const around = [...ancestors(node)].find((one) => scrolls(getComputedStyle(one)))?.getBoundingClientRect();
    return around ? rects.map((rect) => cut(rect, around)).filter((rect) => rect.right - rect.left > 3 && rect.bottom - rect.top > 3) : rects;
  };

  const style = ({ node, text, rects }) => {
    const { color, fontSize, fontWeight } = getComputedStyle(node);
    return { who: named(node), text, rects, colour: rgba(color), opacity: opacity(node), size: Number.parseFloat(fontSize), weight: Number(fontWeight) };
  };

  /** Signs that a style sheet draws. */
  function marks() {
    const drawn = [];
    for (const node of few([...document.querySelectorAll(".verdict, .seat")])) {
      for (const side of ["::before", "::after"]) {
        const { content, color } = getComputedStyle(node, side);
        if (/^"\S+"$/.test(content) && seen(node)) drawn.push({ who: named(node), text: content, rects: [inner(node)], colour: rgba(color), opacity: opacity(node) });
      }
    }
    return drawn;
  }

  function controls() {
    const all = few([...document.querySelectorAll(`${CONTROLS}, .dot`)]).filter(seen);
    const framed = all.filter((node) => {
      const { borderTopStyle, borderTopWidth, backgroundColor } = getComputedStyle(node);
      const bare = (borderTopStyle === "none" || borderTopWidth === "0px") && rgba(backgroundColor)[3] === 0;
      return !bare && !node.disabled && node.ariaDisabled !== "true" && rgba(getComputedStyle(node).borderTopColor)[3] > 0;
    });
    return framed.map((node) => ({ who: named(node), text: node.textContent.trim().slice(0, 30), rect: box(node.getBoundingClientRect()) }));
  }

  const bars = () =>
    [...document.querySelectorAll("progress[value]")]
      .filter((bar) => seen(bar) && bar.value > 0.1 && bar.value < 0.9)
      .map((bar) => ({ who: named(bar), rect: box(bar.getBoundingClientRect()) }));

  /** After a key was pressed, as the browser shows a focus only then. */
  function focuses() {
    const before = document.activeElement;
    const reached = few([...document.querySelectorAll("a[href], button, input, select, [tabindex='0']")]).filter((node) => seen(node) && !node.disabled && node.tabIndex >= 0);
    const told = reached.map((node) => {
      node.focus({ preventScroll: true });
      const { outlineColor, outlineStyle, outlineWidth, outlineOffset } = getComputedStyle(node);
      return {
        who: named(node), text: node.textContent.trim().slice(0, 30), rect: box(node.getBoundingClientRect()), style: outlineStyle,
        colour: rgba(outlineColor), width: Number.parseFloat(outlineWidth), offset: Number.parseFloat(outlineOffset),
      };
    });
    before?.focus({ preventScroll: true });
    return told;
  }

  const meets = (a, b) => Math.min(a.right, b.right) - Math.max(a.left, b.left) > 3 && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 0.4 * Math.min(a.bottom - a.top, b.bottom - b.top);
  const cut = (rect, by) => ({ left: Math.max(rect.left, by.left), top: Math.max(rect.top, by.top), right: Math.min(rect.right, by.right), bottom: Math.min(rect.bottom, by.bottom) });
  const scrolls = ({ overflowX, overflowY }) => [overflowX, overflowY].some((way) => way === "auto" || way === "scroll");
  const clips = ({ overflowX, overflowY }) => [overflowX, overflowY].some((way) => way === "hidden" || way === "clip");
  const beyond = (rect, by) => rect.left < by.left - 2 || rect.right > by.right + 2 || rect.top < by.top - 2 || rect.bottom > by.bottom + 2;

  /** What of this can be seen once everything that scrolls is where it is; and what cuts it or lets it stick out. */
  function fits({ node, text, rects }, wrong) {
    for (const one of ancestors(node)) {
      const how = getComputedStyle(one);
      const by = one.getBoundingClientRect();
      if (scrolls(how)) break;
      if ((clips(how) || one.matches(HOLDERS)) && rects.some((rect) => beyond(rect, by))) wrong.push(`“${text}” does not fit into ${named(one)}`);
    }
    return inView({ node, rects });
  }

  function field({ node, text }, wrong) {
    const { paddingLeft, paddingRight } = getComputedStyle(node);
    const room = node.clientWidth - Number.parseFloat(paddingLeft) - Number.parseFloat(paddingRight) - 16;
    if (widthOf(text, node) > room) wrong.push(`“${text}” is cut in ${named(node)}`);
  }

  /** Sentences about what does not fit. */
  function misfits() {
    const wrong = [];
    const root = document.documentElement;
    if (root.scrollWidth > innerWidth + 1) wrong.push(`the page is ${root.scrollWidth} wide in ${innerWidth}`);
    scrollTo(0, root.scrollHeight);
    const shown = texts();
    shown.filter((one) => one.field).forEach((one) => field(one, wrong));
    const parts = shown.filter((one) => !one.field).map((one) => ({ ...one, rects: fits(one, wrong), floats: floats(one.node) }));
    for (const node of few([...document.querySelectorAll(CONTROLS)]).filter(seen)) {
      const part = { node, text: node.id || node.textContent.trim(), rects: [box(node.getBoundingClientRect())], floats: floats(node), control: true };
      parts.push({ ...part, rects: fits({ ...part, text: `the box of ${part.text}` }, []) });
    }
    parts.forEach((a, n) => {
      for (const b of parts.slice(n + 1)) {
        if (a.node.contains(b.node) || b.node.contains(a.node)) continue;
        if (a.rects.some((one) => b.rects.some((other) => meets(one, other)))) wrong.push(`“${a.text}” and “${b.text}” overlap`);
      }
    });
    scrollTo(0, 0);
    return [...new Set(wrong)];
  }

  window.looks = { focuses, misfits, seen: () => ({ texts: texts().map((text) => style({ ...text, rects: inView(text) })).filter(({ colour, rects }) => colour[3] > 0 && rects.length > 0), marks: marks(), controls: controls(), bars: bars() }) };
})();
