// Makes elements. Texts are always text nodes: nothing that a topic is named becomes markup.

const SVG = "http://www.w3.org/2000/svg";

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  add(element, children);
  return element;
}

function add(element, children) {
  for (const child of children) {
    if (child === null || child === undefined || child === false) continue;
    if (Array.isArray(child)) add(element, child);
    else element.append(child instanceof Node ? child : String(child));
  }
}

export const h = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);

export const s = (tag, attributes, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);

// Puts `children` in the place of what is in `element`. What is focused or unfolded there, and comes again, stays so.
export function show(element, ...children) {
  const focused = element.contains(document.activeElement) ? document.activeElement : null;
  const unfolded = new Set([...element.querySelectorAll("details[open]")].map((one) => one.textContent));
  element.replaceChildren();
  add(element, children);
  for (const one of element.querySelectorAll("details")) if (unfolded.has(one.textContent)) one.open = true;
  if (!focused || focused === element) return;
  const same = (one) => one === focused || (focused.textContent && one.textContent === focused.textContent);
  const again = [...element.querySelectorAll(focused.tagName)].find(same);
  if (again) again.focus({ preventScroll: true });
}

const DIGITS = new Intl.NumberFormat("en", { maximumSignificantDigits: 4 });

export const number = (value) => (value === null || value === undefined ? "–" : DIGITS.format(value));

export const whole = (value) => (value === null || value === undefined ? "–" : Math.round(value).toLocaleString("en"));

export function milliseconds(value) {
  if (value === null || value === undefined) return "–";
  if (value >= 10000) return `${number(value / 1000)} s`;
  return value < 1 && value > 0 ? `${number(value * 1000)} µs` : `${number(value)} ms`;
}

// The 99th percentile of delays; of no message there is none.
export const p99 = (delays) => (delays.count ? milliseconds(delays.p99_ms) : "–");

export const ago = (seconds) => (seconds === null || seconds === undefined ? "–" : `${seconds < 10 ? seconds.toFixed(1) : whole(seconds)} s ago`);

// The time of day; before it the date, where that is not today's.
export function clock(utc) {
  const at = new Date(utc);
  const isToday = at.toDateString() === new Date().toDateString();
  return h("time", { datetime: utc, title: utc }, isToday ? at.toLocaleTimeString() : at.toLocaleString());
}

const SIGNS = {
  kept: "✓", live: "✓", broken: "✕", dead: "✕", unknown: "?", silent: "!", draining: "↷", drained: "–", expected: "…",
  connected: "✓", away: "–",
};

// A word with its sign: colour alone says nothing to many people.
export const word = (state) =>
  h("span", { class: `word ${state}` }, h("span", { "aria-hidden": "true" }, SIGNS[state] || "·"), ` ${state}`);

// A bar of `part` of 1, with `mark` where a limit is.
export function bar(part, label, kind = "") {
  const width = Math.max(0, Math.min(100, part * 100));
  return s(
    "svg",
    { class: `gauge ${kind}`, viewBox: "0 0 100 8", preserveAspectRatio: "none", role: "img", "aria-label": label },
    s("rect", { class: "all", width: 100, height: 8 }),
    s("rect", { class: "part", width, height: 8 }),
  );
}

// A sentence in which commands stand between backticks.
export const prose = (text) => text.split("`").map((part, at) => (at % 2 ? h("code", null, part) : part));

// Names and values, for figures that no table needs.
export const facts = (pairs) =>
  h(
    "dl",
    { class: "facts" },
    pairs.filter(Boolean).map(([name, value]) => h("div", null, h("dt", null, name), h("dd", null, value))),
  );

export function table(caption, heads, rows, empty = "none") {
  const isRight = (at) => rows.length > 0 && rows[0].children[at] && rows[0].children[at].classList.contains("right");
  const body = rows.length ? rows : [h("tr", null, h("td", { colspan: heads.length, class: "none" }, empty))];
  return h(
    "div",
    { class: "scroll", tabindex: 0, role: "region", "aria-label": caption },
    h(
      "table",
      null,
      h("caption", null, caption),
      h("thead", null, h("tr", null, heads.map((head, at) => (head instanceof Node ? head : h("th", { scope: "col", class: isRight(at) ? "right" : null }, head))))),
      h("tbody", null, body),
    ),
  );
}

export const row = (...cells) =>
  h("tr", null, cells.flat().map((cell) => (cell instanceof Node && cell.nodeName === "TD" ? cell : h("td", null, cell))));

export const right = (value) => h("td", { class: "right" }, value);

// Moves over a list of `total` rows, `screen` at a time; nothing where they fit on one. `go(offset)`: shows another.
export function pager(offset, screen, total, go) {
  if (total <= screen) return null;
  const end = Math.min(offset + screen, total);
  const move = (to, text, isThere) => h("button", { type: "button", disabled: !isThere, onclick: () => go(Math.max(0, to)) }, text);
  return h(
    "div",
    { class: "pager" },
    move(offset - screen, "Back", offset > 0),
    ` ${whole(offset + 1)} to ${whole(end)} of ${whole(total)} `,
    move(offset + screen, "On", end < total),
  );
}
