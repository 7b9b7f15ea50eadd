// One topic: whether its promise is kept and why, its delays over time, its shares, publishers, decisions, changes.

import { ask, get } from "/page/api.js";
import { lines, stacked } from "/page/charts.js";
import { confirmed, failure, field, leave, working } from "/page/forms.js";
import { map } from "/page/map.js";
import {
  ago, bar, clock, facts, h, milliseconds, number, p99, pager, prose, right, row, show, table, whole, word,
} from "/page/dom.js";
import { brokerLink, topicPath } from "/page/paths.js";

const PUBLISHERS = 25;  // of one screen

export function topic(main, name) {
  const parts = Object.fromEntries(
    ["verdict", "charts", "shares", "actions", "decisions", "publishers"].map((part) => [part, h("section", { class: `card ${part}` })]),
  );
  show(main, h("h1", null, "Topic ", name), Object.values(parts));
  const shown = { closed: false };
  let look = null;
  let version = null;
  let form = null;

  async function load() {
    try {
      const [view, why, history] = await Promise.all([
        get(topicPath(name)), get(topicPath(name, "/why")), get(topicPath(name, "/history")),
      ]);
      if (shown.closed) return;
      const decisions = await get(topicPath(name, "/decisions"));
      drawVerdict(parts.verdict, view, why, turned(decisions), (changes) => form.plan(changes));
      drawCharts(parts.charts, view, history);
      drawShares(parts.shares, view);
      drawDecisions(parts.decisions, decisions);
      if (version !== view.placement_version) {
        version = view.placement_version;
        loadPublishers(parts.publishers, name);
      }
      if (!form) form = drawActions(parts.actions, view, load, shown);
    } catch (error) {
      if (!shown.closed) show(parts.verdict, failure(error));
    }
  }

  load();
  return {
    update(news) {
      if (look !== null && news.look !== look && !shown.closed) load();
      look = news.look;
    },
    close() {
      shown.closed = true;
    },
  };
}

// When the decision log said last that the promise turned.
const turned = (decisions) => decisions.find((decision) => decision.lines[0].startsWith("promise "));

// What of a remedy stands in the form below: {field: value}.
function remedyFields({ figures }) {
  const named = { rate: figures.enough_rate, burst: figures.enough_burst };
  const known = Object.entries(named).filter(([, value]) => typeof value === "number");
  return Object.fromEntries(known.map(([name, value]) => [name, Number(value.toPrecision(6))]));
}

function drawVerdict(place, view, why, since, plan) {
  const judged = view.promise_last_60s.verdict === "unknown" ? view.promise_since_start : view.promise_last_60s;
  show(
    place,
    h(
      "p",
      { class: "promise-line" },
      word(view.promise), " ", h("strong", null, `p${view.slo.percentile} within ${milliseconds(view.slo.latency_ms)}`),
      since && since.lines[0].startsWith(`promise ${view.promise}`) && [" since ", clock(since.at)],
    ),
    h("p", null, view.promise_reason),
    why.cause !== "nothing" && h("p", { class: "why-sentence" }, h("strong", null, "Why: "), prose(why.sentence)),
    why.remedy && h("p", { class: "remedy" }, h("strong", null, "What would mend it: "), prose(why.remedy), " ",
      Object.keys(remedyFields(why)).length > 0 && h("button", { type: "button", onclick: () => plan(remedyFields(why)) }, "Plan it")),
    view.state !== "placed" && h("p", { class: "over" }, `${view.state}: ${view.reason}`),
    facts([
      ["Latency", milliseconds(judged.latency_ms)],
      ["Access", milliseconds(judged.access_ms)],
      ["Processing", milliseconds(judged.processing_ms)],
      ["Network", milliseconds(judged.network_ms)],
      ["Consumer wait", milliseconds(judged.consumer_wait_ms)],
      ["Rate r", `${number(view.rate)} msg/s`],
      ["Burst b", `${number(view.burst)}`],
      ["Over it", view.on_excess === "delay" ? "messages wait" : "messages are rejected"],
      ["Shares", `${view.mode}${view.lease === "keep" ? "" : `, lease ${view.lease}`}`],
      ["Publishers", `${whole(view.publishers)}, ${number(view.publishers_rate)} msg/s${view.pinned ? `, ${view.pinned} pinned` : ""}`],
      ["Layout loop", view.layout || "watching"],
      ...Object.entries(view.mqtt_losses).map(([broker, lost]) => [`MQTT lost at ${broker}`, losses(lost)]),
      view.drl_penalty && ["DRL penalty", `${milliseconds(view.drl_penalty.mean_ms)} a message, p99 ${milliseconds(view.drl_penalty.p99_ms)}`],
    ]),
  );
}

// What MQTT's clients lost at one broker since its start.
function losses({ refused, dropped, full }) {
  const sum = (counts) => counts.reduce((all, count) => all + count, 0);
  return [
    [sum(refused), "publishes refused"],
    [sum(dropped), "publishes dropped"],
    [sum(Object.values(full)), "deliveries dropped where sessions or groups were full"],
  ].filter(([count]) => count).map(([count, what]) => `${whole(count)} ${what}`).join(", ");
}

function drawCharts(place, view, history) {
  const columns = history.columns;
  const worst = `p${view.slo.percentile} of each delay at the broker that is latest`;
  show(
    place,
    h("h2", null, "Latency, last 15 minutes"),
    history.why_none && h("p", { class: "none" }, history.why_none),
    stacked(
      history.at_s,
      [
        { name: "access (waits for tokens)", kind: "access", values: columns.access_ms },
        { name: "processing", kind: "processing", values: columns.processing_ms },
        { name: "network", kind: "network", values: columns.network_ms },
        { name: "consumer wait (beside the promise)", kind: "consumer", values: columns.consumer_wait_ms },
      ],
      view.slo.latency_ms,
      `Latency of ${view.name} over time: ${worst}`,
    ),
    h("p", { class: "note" }, `${worst}, over the 5 to 10 s before.`),
    h("h2", null, "Demand and tokens"),
    lines(
      history.at_s,
      [
        { name: "demand, msg/s", kind: "demand", values: columns.demand },
        { name: "tokens in force, msg/s", kind: "tokens", values: columns.rate_in_force },
      ],
      `Demand and tokens of ${view.name} over time`,
    ),
    columns.backlog.some((count) => count > 0) && [
      h("h2", null, "Messages that wait for tokens"),
      lines(history.at_s, [{ name: "waiting", kind: "waiting", values: columns.backlog }], `Messages of ${view.name} that wait for tokens, over time`),
    ],
  );
}

function drawShares(place, view) {
  const rows = view.brokers.map((part) => {
    const rate = part.rate_in_force === null ? part.rate : part.rate_in_force;
    const over = rate ? (part.demand || 0) / rate : 0;
    const report = part.report;
    return row(
      h("td", null, brokerLink(part.broker), part.broker_state !== "live" && [" ", word(part.broker_state || "dead")]),
      h("td", { class: "right" }, `${number(part.demand)} of ${number(rate)}`, bar(over, `demand ${number(part.demand)} of ${number(rate)} msg/s`, over > 1 ? "over" : "")),
      right(number(part.burst_in_force === null ? part.burst : part.burst_in_force)),
      right(`${whole(part.publishers)}${part.rate_astray ? ` (+${number(part.rate_astray)} msg/s astray)` : ""}`),
      right(report ? p99(report.last_60s.access) : "–"),
      right(report ? p99(report.last_60s.processing) : "–"),
      right(report ? whole(report.backlog) : "–"),
      right(part.share_version === part.applied_version ? "in force" : "not acknowledged"),
      right(ago(part.report_s_ago)),
    );
  });
  show(
    place,
    h("h2", null, "Shares"),
    table("Share against demand, by broker", ["Broker", "Demand of share, msg/s", "Burst", "Publishers", "Access p99", "Processing p99", "Waiting", "Share", "Told"], rows, "no broker has a share"),
    view.changes.length > 0 &&
      h(
        "details",
        null,
        h("summary", null, `${view.changes.length} latest changes of shares`),
        view.changes.slice(0, 20).map((change) => h("p", null, clock(change.at), ` ${change.mode}: ${change.reason} `,
          Object.entries(change.shares).map(([broker, share]) => `${broker} ${number(share.rate)} msg/s, ${number(share.burst)}`).join("; "))),
      ),
  );
}

function drawDecisions(place, decisions) {
  show(
    place,
    h("h2", null, "Decisions"),
    h("ol", { class: "log" }, decisions.slice(0, 50).map((decision) =>
      h("li", null, clock(decision.at), " ", decision.lines[0],
        decision.lines.length > 1 && h("details", null, h("summary", null, "reasons"), decision.lines.slice(1).map((line) => h("div", null, line)))))),
  );
}

async function loadPublishers(place, name) {
  try {
    drawPublishers(place, await get(topicPath(name, "/publishers")));
  } catch (error) {
    show(place, h("h2", null, "Publishers"), failure(error));
  }
}

function drawPublishers(place, columns) {
  const brokers = [...new Set(columns.brokers)].filter((one) => one !== null).sort();
  const groups = new Map();
  for (const group of columns.groups) if (group) groups.set(group, (groups.get(group) || 0) + 1);
  const found = h("div");
  let from = 0;
  let wanted = "";

  function draw() {
    const keep = [];
    for (let at = 0; at < columns.ids.length; at += 1) if (columns.ids[at].includes(wanted) || columns.groups[at].includes(wanted)) keep.push(at);
    const rows = keep.slice(from, from + PUBLISHERS).map((at) =>
      row(columns.ids[at], h("td", null, columns.brokers[at] === null ? "no broker" : brokerLink(columns.brokers[at]), columns.pinned[at] && h("small", null, " pinned")),
        columns.groups[at] || "–", right(number(columns.rates[at])), `${columns.processes[at]}${columns.batches[at] > 1 ? `, ${columns.batches[at]} at once` : ""}`));
    show(
      found,
      table("Publishers", ["Publisher", "Broker", "Group", "msg/s", "Process"], rows, "no match"),
      pager(from, PUBLISHERS, keep.length, (offset) => { from = offset; draw(); }),
    );
  }

  draw();
  const search = h("input", { type: "search", placeholder: "Find a publisher or group", "aria-label": "Find a publisher or group", oninput: () => { wanted = search.value.trim(); from = 0; draw(); } });
  show(
    place,
    h("h2", null, "Publishers"),
    facts(brokers.map((broker) => [broker, `${whole(columns.brokers.filter((one) => one === broker).length)} publishers`])),
    map(columns, brokers),
    groups.size > 0 && h("p", { class: "note" }, `${whole(groups.size)} groups; publishers of a group send together.`),
    search,
    found,
  );
}

function drawActions(place, view, again, shown) {
  const said = h("div", { role: "status" });
  const rate = field("Rate r, msg/s", { type: "number", step: "any", min: 0, value: view.rate, required: true });
  const burst = field("Burst b, or auto", { type: "text", value: view.burst, required: true });
  const percentile = field("Percentile", { list: [50, 90, 95, 99, 99.9], value: view.slo.percentile });
  const latency = field("Latency, ms", { type: "number", step: "any", min: 0, value: view.slo.latency_ms, required: true });
  const excess = field("Over it", { list: ["delay", "reject"], value: view.on_excess });
  const mode = field("Shares", { list: ["fitted", "proportional", "static", "central", "gdrl"], value: view.mode });

  async function changed() {
    const document_ = await get(topicPath(view.name, "/document"));
    const size = burst.value.trim();
    return {
      ...document_, rate: Number(rate.value), burst: size === "auto" || size === "paper" ? size : Number(size),
      slo: { percentile: Number(percentile.value), latency_ms: Number(latency.value) }, on_excess: excess.value, mode: mode.value,
    };
  }

  const plan = () => working(said, async () => {
    const planned = await ask("POST", topicPath(view.name, "/plan"), await changed());
    const now = await get(topicPath(view.name));
    show(said, h("h3", null, "What it would do"), planLines(planned), beside(now, planned));
  });
  const submit = (event) => {
    event.preventDefault();
    return working(said, async () => {
      await ask("PUT", topicPath(view.name), await changed());
      show(said, h("p", { class: "done" }, "Changed."));
      again();
    });
  };
  show(
    place,
    h("h2", null, "Change"),
    h("form", { class: "fields", onsubmit: submit }, rate.label, burst.label, percentile.label, latency.label, excess.label, mode.label,
      h("div", { class: "buttons" }, h("button", { type: "button", onclick: plan }, "Plan"), h("button", { type: "submit" }, "Change"))),
    said,
    confirmed({
      title: "Remove this topic", word: view.name, button: "Remove",
      note: "Its publishers lose their place and its buckets go. Messages in queues stay.",
      run: () => leave(shown, () => ask("DELETE", topicPath(view.name)), "#/"),
    }),
  );
  return {
    // Fills the fields with `changes`, and shows what that would do.
    plan(changes) {
      if (changes.rate !== undefined) rate.value = changes.rate;
      if (changes.burst !== undefined) burst.value = changes.burst;
      place.scrollIntoView({ block: "start" });
      return plan();
    },
  };
}

// What a plan says, or a submission with its view around it.
export function planLines(answer) {
  const plan = answer.explanation || answer;
  return h(
    "div",
    { class: "plan" },
    plan.promise && h("p", null, h("strong", null, promised(plan.promise))),
    plan.reasons.map((line) => h("p", null, line)),
    h("details", null, h("summary", null, "all of it"), h("pre", null, JSON.stringify(plan, null, 1))),
  );
}

const PERCENTILES = { 50: "p50_ms", 95: "p95_ms", 99: "p99_ms", 99.9: "p999_ms" };  // those that brokers report

// A plan beside what is: a line for the topic, and one for each broker that has a part of it now or would have one.
function beside(view, plan) {
  const { percentile } = view.slo;
  const judged = view.promise_last_60s.verdict === "unknown" ? view.promise_since_start : view.promise_last_60s;
  const measured = ({ report }) => (report && report.last_60s.total.count ? report.last_60s.total[PERCENTILES[percentile]] : null);
  const now = new Map(view.brokers.map((part) => [part.broker, { ...part, ms: measured(part) }]));
  const then = new Map(plan.brokers.map((part) => [part.broker, { ...part, ms: part.total_ms }]));
  const rows = [...new Set([...now.keys(), ...then.keys()])].sort().map((name) =>
    row(brokerLink(name), nowAndThen(now.get(name), then.get(name))));
  const all = row("all", nowAndThen({ ...view, ms: judged.latency_ms }, { ...plan, ms: plan.predicted.total_ms }));
  const promise = ({ slo }) => `p${slo.percentile} within ${milliseconds(slo.latency_ms)}`;
  return [
    h("p", null, plan.moves === 0 ? "No publisher goes" : `${whole(plan.moves)} ${plan.moves === 1 ? "publisher goes" : "publishers go"}`, " to another broker."),
    h("p", null, `The promise is now ${promise(view)}, `, word(view.promise), `; then ${promise(plan)}.`),
    table("The plan beside what is",
      ["Broker", "Publishers now", "then", "Rate now, msg/s", "then", "Burst now", "then", `p${percentile} measured`, `p${plan.slo.percentile} predicted`],
      [all, ...rows]),
  ];
}

const NO_PART = { publishers: 0, rate: 0, burst: 0, ms: null };

// Cells in pairs; what changes is bold.
function nowAndThen(now = NO_PART, then = NO_PART) {
  const pairs = [["publishers", whole], ["rate", number], ["burst", number], ["ms", milliseconds]];
  return pairs.flatMap(([key, text]) => {
    const [before, after] = [text(now[key]), text(then[key])];
    return [right(before), right(before === after || key === "ms" ? after : h("strong", null, after))];
  });
}

function promised({ predicted, kept, confidence }) {
  if (!kept) return predicted ? "The promise: nobody publishes yet." : "The promise: nobody has a place.";
  const [chance, low, high] = [kept.chance, kept.low, kept.high].map((part) => number(Math.round(100 * part)));
  const minutes = `${chance} of 100 minutes (${low} to ${high})`;
  return `The promise is kept in ${minutes}${predicted ? "." : `: fewer than the ${number(confidence)} asked for.`}`;
}
