// Publishers as points where they are, coloured by broker. No tiles: a grid of degrees, and nothing from elsewhere.

import { h, s, whole } from "/page/dom.js";

const MOST = 4000;  // points that are drawn: more make a browser slow, and no picture clearer
const WIDEST = 720;
const TALLEST = 480;
const EDGE = 28;
const COLOURS = 8;  // of the style sheet; the brokers of a topic beyond that share them

const place = (column, at) => (column && column[at] !== null ? column[at] : null);

// Indices of publishers whose place is known, every n-th where there are too many.
function chosen(columns) {
  const known = [];
  for (let at = 0; at < columns.ids.length; at += 1) if (place(columns.latitudes, at) !== null) known.push(at);
  const step = Math.max(1, Math.ceil(known.length / MOST));
  return { known: known.length, drawn: known.filter((_, at) => at % step === 0) };
}

// Bounds of the points with some room around, at least a hundredth of a degree wide.
function bounds(values) {
  let [low, high] = [Infinity, -Infinity];
  for (const value of values) [low, high] = [Math.min(low, value), Math.max(high, value)];
  const room = Math.max((high - low) * 0.05, 0.005);
  return [low - room, high + room];
}

function lines(low, high) {
  const step = [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 45].find((one) => (high - low) / one <= 6) || 90;
  const found = [];
  for (let at = Math.ceil(low / step) * step; at <= high; at += step) found.push(Number(at.toFixed(3)));
  return found;
}

const degrees = (value, plus, minus) => `${Math.abs(value)}° ${value < 0 ? minus : plus}`;

// `columns`: as the distributor lists publishers. null: nobody said where one is.
export function map(columns, brokers) {
  if (!columns.latitudes) return null;
  const { known, drawn } = chosen(columns);
  const width = Math.max(320, Math.min(WIDEST, document.documentElement.clientWidth - 80));  // so that texts keep their size
  const [south, north] = bounds(drawn.map((at) => columns.latitudes[at]));
  const [west, east] = bounds(drawn.map((at) => columns.longitudes[at]));
  // Equirectangular: a degree of longitude is as long as it is at the middle latitude.
  const narrowing = Math.max(0.05, Math.cos((((south + north) / 2) * Math.PI) / 180));
  const scale = Math.min((width - 2 * EDGE) / ((east - west) * narrowing), (TALLEST - 2 * EDGE) / (north - south));
  const height = (north - south) * scale + 2 * EDGE;
  const left = (width - (east - west) * narrowing * scale) / 2;
  const x = (longitude) => left + (longitude - west) * narrowing * scale;
  const y = (latitude) => EDGE + (north - latitude) * scale;
  const colour = new Map(brokers.map((broker, at) => [broker, `broker-${at % COLOURS}`]));
  const kind = (broker) => colour.get(broker) || "broker-none";
  const points = drawn.map((at) =>
    s("circle", { class: `point ${kind(columns.brokers[at])}`, cx: x(columns.longitudes[at]).toFixed(1), cy: y(columns.latitudes[at]).toFixed(1), r: drawn.length > 500 ? 2 : 4 },
      s("title", null, `${columns.ids[at]}, ${columns.brokers[at] || "no broker"}`)));
  const grid = [
    lines(south, north).map((latitude) => [
      s("line", { class: "grid", x1: x(west), x2: x(east), y1: y(latitude), y2: y(latitude) }),
      s("text", { class: "tick", x: x(west) + 3, y: y(latitude) - 3 }, degrees(latitude, "N", "S")),
    ]),
    lines(west, east).map((longitude) => [
      s("line", { class: "grid", x1: x(longitude), x2: x(longitude), y1: y(south), y2: y(north) }),
      s("text", { class: "tick", x: x(longitude), y: height - 8, "text-anchor": "middle" }, degrees(longitude, "E", "W")),
    ]),
  ];
  const keys = [...brokers, ...(columns.brokers.includes(null) ? [null] : [])].map((broker) =>
    h("span", { class: "key" }, s("svg", { class: `swatch ${kind(broker)}`, viewBox: "0 0 10 10" }, s("rect", { width: 10, height: 10 })), ` ${broker || "no broker"}`));
  return h(
    "figure",
    { class: "map" },
    s("svg", { class: "chart", viewBox: `0 0 ${width} ${height.toFixed(0)}`, role: "img", "aria-label": `Where ${whole(known)} publishers are, coloured by broker` }, grid, points),
    h("figcaption", null, keys, h("span", null, `${whole(known)} of ${whole(columns.ids.length)} publishers say where they are`, drawn.length < known ? `; ${whole(drawn.length)} of them are drawn.` : ".")),
  );
}
