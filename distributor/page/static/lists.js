// The lists of topics and brokers: a screen at a time, searched and sorted by the distributor.

import { get } from "/page/api.js";
import {
  ago, bar, clock, h, milliseconds, number, pager, prose, right, row, show, table, whole, word,
} from "/page/dom.js";
import { failure } from "/page/forms.js";
import { brokerLink, topicLink } from "/page/paths.js";

const SCREEN = 50;
const EXTRA = ["Publishers", "Brokers"];  // columns that make room for why a promise is broken; a topic's page has both

// A list at `path`. `columns`: [heading, order or null, cell(row), is a number]. `more`: links beside its heading.
export function list(main, what, path, columns, { kinds = [], first = "", hasEvents = true, more = null }) {
  const asked = { offset: 0, sort: first, descending: false, search: "", only: "" };
  const counts = h("div", { class: "chips", role: "group", "aria-label": `${what} by state` });
  const place = h("div", { class: "list" });
  const happened = h("section", { class: "card events", "aria-label": "Events" });
  const search = h("input", {
    type: "search", placeholder: `Find ${what}`, "aria-label": `Find ${what}`,
    oninput: () => again({ search: search.value.trim(), offset: 0 }),
  });
  show(
    main,
    h("div", { class: "above" }, h("h1", null, what), search, counts, more),
    hasEvents ? h("div", { class: "columns" }, place, happened) : place,
  );
  let number_ = 0;
  let look = -1;

  function again(changes) {
    Object.assign(asked, changes);
    load();
  }

  async function load() {
    const turn = (number_ += 1);
    const query = new URLSearchParams({ limit: SCREEN });
    for (const [name, value] of Object.entries(asked)) if (value !== "" && value !== false) query.set(name, value);
    try {
      const found = await get(`${path}?${query}`);
      if (turn === number_) draw(found);
    } catch (error) {
      if (turn === number_) show(place, failure(error));
    }
  }

  function head([name, order, , isNumber]) {
    const scope = { scope: "col", class: `${isNumber ? "right" : ""} ${EXTRA.includes(name) ? "extra" : ""}` };
    if (!order) return h("th", scope, name);
    const here = asked.sort === order;
    if (here) scope["aria-sort"] = asked.descending ? "descending" : "ascending";
    const turn = () => again({ sort: order, descending: here ? !asked.descending : Boolean(isNumber), offset: 0 });
    const sign = here ? (asked.descending ? " ▾" : " ▴") : "";
    return h("th", scope, h("button", { type: "button", class: "plain", onclick: turn }, name, sign));
  }

  function draw(found) {
    const chip = (kind) =>
      h(
        "button",
        {
          type: "button", class: "chip", "aria-pressed": asked.only === kind ? "true" : "false",
          onclick: () => again({ only: asked.only === kind ? "" : kind, offset: 0 }),
        },
        word(kind), " ", whole(found.counts[kind] || 0),
      );
    show(counts, kinds.filter((kind) => found.counts[kind] || kind === kinds[0] || asked.only === kind).map(chip));
    const rows = found.rows.map((one) =>
      h("tr", { class: one.promise || one.state }, columns.map(([name, , cell, isNumber]) => {
        const made = cell(one);
        const td = made instanceof Node && made.nodeName === "TD" ? made : h("td", { class: isNumber ? "right" : null }, made);
        td.dataset.name = name;  // what a phone shows in front of it
        if (EXTRA.includes(name)) td.classList.add("extra");
        return td;
      })),
    );
    show(
      place,
      table(what, columns.map(head), rows, found.all ? "no match" : `no ${what.toLowerCase()} yet`),
      pager(asked.offset, SCREEN, found.total, (offset) => again({ offset })),
    );
  }

  load();
  return {
    update(news, events) {
      if (news.look !== look) load();
      look = news.look;
      drawEvents(happened, events, news.gone);
    },
  };
}

// What is `gone` has no page any more, so no link.
function drawEvents(place, events, gone) {
  const whose = ({ topic, broker }) => {
    if (topic) return gone.topics.includes(topic) ? topic : topicLink(topic);
    return gone.brokers.includes(broker) ? broker : brokerLink(broker);
  };
  show(
    place,
    h("h2", null, "Events"),
    events.length === 0 && h("p", { class: "none" }, "Nothing has happened since this distributor leads."),
    h(
      "ol",
      null,
      events.slice(0, 60).map((event) =>
        h(
          "li",
          null,
          clock(event.at), " ",
          whose(event), " ",
          event.lines[0],
          event.lines.length > 1 &&
            h("details", null, h("summary", null, `${event.lines.length - 1} more`), event.lines.slice(1).map((line) => h("div", null, line))),
        )),
    ),
  );
}

function latency(one) {
  const over = one.latency_ms !== null && one.latency_ms > one.slo_ms;
  return h("td", { class: `right ${over ? "over" : ""}`, title: `p${one.percentile}, promised ${one.slo_ms} ms` },
    milliseconds(one.latency_ms), h("small", null, ` of ${milliseconds(one.slo_ms)}`));
}

function used(one) {
  const part = one.rate ? one.demand / one.rate : 0;
  const text = `${number(one.demand)} of ${number(one.rate)}`;
  return h("td", { class: "right" }, text, bar(part, `demand ${text} msg/s`, part > 1 ? "over" : ""));
}

export const topics = (main) =>
  list(main, "Topics", "/v1/overview/topics", [
    ["Topic", "name", (one) => h("td", null, topicLink(one.name), one.state !== "placed" && h("small", { class: "over" }, ` ${one.state}`))],
    ["Promise", "promise", (one) => h("td", null, word(one.promise), one.since && h("small", { class: "since" }, "since ", clock(one.since)))],
    ["Latency", "latency", latency, true],
    ["Demand, msg/s", "demand", used, true],
    ["Waiting", "backlog", (one) => whole(one.backlog), true],
    ["Publishers", "publishers", (one) => whole(one.publishers), true],
    ["Brokers", "brokers", (one) => whole(one.brokers), true],
    ["Why", null, (one) => h("td", { class: "why" }, prose(one.reason), one.remedy && h("span", { class: "remedy" }, h("strong", null, "Mend: "), prose(one.remedy)))],
  ], { kinds: ["broken", "unknown", "kept"], first: "promise" });

function load(one) {
  const part = one.mcap ? one.allocated / one.mcap : 0;
  const text = `${number(one.allocated)} of ${number(one.mcap)}`;
  return h("td", { class: "right", title: one.mcap_assumed ? "the capacity is assumed: nobody stated or measured it" : null },
    text, one.mcap_assumed && h("small", null, " assumed"), bar(part, `load ${text} msg/s`, part > 0.95 ? "over" : ""));
}

export const brokers = (main) =>
  list(main, "Brokers", "/v1/overview/brokers", [
    ["Broker", "name", (one) => brokerLink(one.name)],
    ["State", "state", (one) => word(one.state)],
    ["Load, msg/s", "load", load, true],
    ["Topics", "topics", (one) => whole(one.topics), true],
    ["Breaks", "broken", (one) => (one.broken ? h("strong", { class: "over" }, whole(one.broken)) : "0"), true],
    ["Waiting", "backlog", (one) => whole(one.backlog), true],
    ["Address", null, (one) => one.address],
    ["Heard", null, (one) => (ago(one.last_sync_s_ago)), true],
  ], { kinds: ["dead", "silent", "draining", "drained", "expected", "live"], first: "state" });
