// Charts as SVG: stacked delays over time against the promise, and lines over time.

import { h, milliseconds, number, s } from "/page/dom.js";

// As wide as the window lets it be, so that texts keep their size.
let WIDTH = 720;
const HEIGHT = 220;
const LEFT = 56;
const BOTTOM = 22;
const TOP = 10;
const NARROW = 480;  // px below which five times of day do not fit
const SHORT_S = 600;  // below it minutes alone would repeat

// Steps of 1, 2 or 5 times a power of ten, at most `most` of them.
function ticks(top, most = 5) {
  const rough = top / most;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((times) => times * power).find((size) => size >= rough);
  const found = [];
  for (let at = 0; at <= top * 1.0001; at += step) found.push(at);
  return found;
}

const available = () => Math.max(320, Math.min(1400, document.documentElement.clientWidth - 80));

function frame(at, top, label, text) {
  WIDTH = available();
  const x = (index) => LEFT + ((WIDTH - LEFT - 8) * index) / Math.max(1, at.length - 1);
  const y = (value) => TOP + (HEIGHT - TOP - BOTTOM) * (1 - Math.min(value, top) / top);
  const lines = ticks(top).map((value) => [
    s("line", { class: "grid", x1: LEFT, x2: WIDTH - 8, y1: y(value), y2: y(value) }),
    s("text", { class: "tick", x: LEFT - 6, y: y(value) + 4, "text-anchor": "end" }, text(value)),
  ]);
  const parts = WIDTH < NARROW ? [0, 0.5, 1] : [0, 0.25, 0.5, 0.75, 1];
  const style = { hour: "2-digit", minute: "2-digit", second: at[at.length - 1] - at[0] < SHORT_S ? "2-digit" : undefined };
  const times = parts.map((part) => {
    const index = Math.round(part * (at.length - 1));
    const anchor = part === 0 ? "start" : part === 1 ? "end" : "middle";
    const when = new Date(at[index] * 1000).toLocaleTimeString([], style);
    return s("text", { class: "tick", x: x(index), y: HEIGHT - 5, "text-anchor": anchor }, when);
  });
  const root = s("svg", { class: "chart", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": label }, lines, times);
  return { x, y, root };
}

// Runs of indices at which all of `columns` have a value: a gap is a gap.
function runs(columns, length) {
  const found = [];
  let run = null;
  for (let index = 0; index < length; index += 1) {
    if (columns.some((column) => column[index] !== null)) {
      if (!run) found.push((run = []));
      run.push(index);
    } else run = null;
  }
  return found;
}

// `layers`: [{name, values, kind, beside}]; those that are `beside` the promise lie on top.
export function stacked(at, layers, promised_ms, label) {
  if (at.length < 2) return h("p", { class: "none" }, "Figures come every 5 s: a line needs two of them.");
  const sums = at.map((_, index) => layers.reduce((sum, layer) => sum + (layer.values[index] || 0), 0));
  const top = Math.max(promised_ms * 1.25, ...sums) || 1;
  const { x, y, root } = frame(at, top, label, milliseconds);
  let below = at.map(() => 0);
  for (const layer of layers) {
    const above = below.map((value, index) => value + (layer.values[index] || 0));
    for (const run of runs(layers.map((one) => one.values), at.length)) {
      const there = run.map((index) => `${x(index)},${y(above[index])}`);
      const back = run.map((index) => `${x(index)},${y(below[index])}`).reverse();
      root.append(s("polygon", { class: `area ${layer.kind}`, points: [...there, ...back].join(" ") }, s("title", null, layer.name)));
    }
    below = above;
  }
  root.append(
    s("line", { class: "promise", x1: LEFT, x2: WIDTH - 8, y1: y(promised_ms), y2: y(promised_ms) }),
    s("text", { class: "promise-word", x: WIDTH - 12, y: y(promised_ms) - 5, "text-anchor": "end" }, `promised ${milliseconds(promised_ms)}`),
  );
  return h("figure", null, root, legend(layers));
}

export function lines(at, series, label) {
  if (at.length < 2) return h("p", { class: "none" }, "Figures come every 5 s: a line needs two of them.");
  const top = Math.max(...series.flatMap((one) => one.values.map((value) => value || 0))) * 1.1 || 1;
  const { x, y, root } = frame(at, top, label, number);
  for (const one of series) {
    for (const run of runs([one.values], at.length)) {
      const points = run.map((index) => `${x(index)},${y(one.values[index])}`).join(" ");
      root.append(s("polyline", { class: `line ${one.kind}`, points }, s("title", null, one.name)));
    }
  }
  return h("figure", null, root, legend(series));
}

const legend = (parts) =>
  h(
    "figcaption",
    null,
    parts.map((part) => h("span", { class: "key" }, s("svg", { class: `swatch ${part.kind}`, viewBox: "0 0 10 10" }, s("rect", { width: 10, height: 10 })), ` ${part.name}`)),
  );
