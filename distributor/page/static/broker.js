// One broker: its load and machine, its topics, channels and MQTT sessions, and how it is taken out of service.

import { ask, get } from "/page/api.js";
import { confirmed, failure, leave, working } from "/page/forms.js";
import { ago, bar, facts, h, number, p99, right, row, show, table, whole, word } from "/page/dom.js";
import { brokerPath, topicLink } from "/page/paths.js";
import { sessions } from "/page/sessions.js";

export function broker(main, name) {
  const figures = h("section", { class: "card" });
  const topics = h("section", { class: "card" });
  const clients = h("section", { class: "card", hidden: true });
  const actions = h("section", { class: "card" });
  const said = h("div", { role: "status" });  // of the last action
  show(main, h("h1", null, "Broker ", name), figures, topics, clients, actions);
  const listed = sessions(clients, name);
  let look = null;
  const shown = { closed: false };
  let state = null;

  async function load() {
    try {
      const view = await get(brokerPath(name));
      if (shown.closed) return;
      drawFigures(figures, view);
      drawTopics(topics, view);
      clients.hidden = !(view.mqtt_address || view.mqtt_sessions > 0);
      if (!clients.hidden) listed.load();
      if (state !== view.state) drawActions(actions, view, said, load, shown);
      state = view.state;
    } catch (error) {
      if (!shown.closed) show(figures, failure(error));
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

function drawFigures(place, view) {
  const part = view.mcap ? view.allocated / view.mcap : 0;
  const machine = view.machine || {};
  const held = view.drain && view.drain.left;
  show(
    place,
    h("p", { class: "promise-line" }, word(view.state), view.accepting ? "" : " takes no new publishers"),
    h("p", null, `Load: ${number(view.allocated)} of ${number(view.mcap)} msg/s${view.mcap_assumed ? " (assumed: nobody stated or measured it)" : ""}`),
    bar(part, `load ${Math.round(part * 100)} per cent`, part > 0.95 ? "over" : ""),
    held && h("p", null, "Still to deliver: ", Object.entries(held).map(([what, count]) => `${whole(count)} ${what.replace("_", " ")}`).join(", ")),
    heldBack(view.throttling).map((sentence) => h("p", { class: "over" }, sentence)),
    facts([
      ["NSQ", view.tcp_address],
      ["HTTP", view.http_address],
      view.mqtt_address && ["MQTT", view.mqtt_address],
      ["Connections", whole(view.connections)],
      (view.mqtt_address || view.mqtt_sessions > 0) && ["MQTT sessions", whole(view.mqtt_sessions)],
      ["Version", view.srtm_version],
      ["Heard", view.last_sync_s_ago === null ? "not by this distributor" : ago(view.last_sync_s_ago)],
      ...Object.entries(machine).map(([what, value]) => [what.replaceAll("_", " "), typeof value === "number" ? number(value) : String(value)]),
    ]),
  );
}

// Why the processor did not give the broker the time that it asked for, over the last 10 s.
function heldBack(throttling) {
  const percent = (part) => `${(100 * part).toFixed(1)} %`;
  const { throttled_share: quota, steal_share: steal, quota_cores: cores } = throttling || {};
  return [
    quota > 0.005 && `Its control group's quota of ${number(cores)} processors was used up in ${percent(quota)} of its periods.`,
    steal > 0.005 && `The host gave ${percent(steal)} of the processor time to other virtual machines.`,
  ].filter(Boolean);
}

function drawTopics(place, view) {
  const rows = view.reports.map((report) =>
    row(
      report.share_version ? topicLink(report.topic) : report.topic,  // the distributor knows only topics with a limit
      right(number(report.rate)),
      right(whole(report.received)),
      right(whole(report.backlog)),
      right(p99(report.last_60s.access)),
      right(p99(report.last_60s.processing)),
      right(p99(report.last_60s.consumer_wait)),
      h("td", null, report.channels.map((channel) => {
        const queue = report.queues.find((one) => one.channel === channel);
        return h("div", null, channel, consumers(report, channel),
          queue && h("small", null, `, ${whole(queue.depth)} waiting, ${whole(queue.in_flight)} in flight`));
      })),
    ));
  show(
    place,
    h("h2", null, "Topics and channels"),
    table("Topics at this broker, last 60 s", ["Topic", "Tokens, msg/s", "Received", "Waiting", "Access p99", "Processing p99", "Consumer wait p99", "Channels"], rows, "it reports no topic"),
  );
}

// How many clients consume a channel. A broker of an earlier version says only whether some do.
function consumers(report, channel) {
  const at = report.consumed.indexOf(channel);
  if (at < 0) return h("small", { class: "over" }, " no consumer");
  const count = report.consumers[at];
  return h("small", null, count === undefined ? " consumed" : ` ${whole(count)} ${count === 1 ? "consumer" : "consumers"}`);
}

function drawActions(place, view, said, again, shown) {
  const path = (rest) => brokerPath(view.name, rest);
  const leaves = view.state === "draining" || view.state === "drained";
  show(said);
  show(
    place,
    h("h2", null, "Service"),
    leaves &&
      h("button", { type: "button", onclick: () => working(said, async () => {
        await ask("POST", path("/undrain"));
        await again();
        show(said, h("p", { class: "done" }, "Back in service once it is started."));
      }) }, "Undrain"),
    said,
    view.state === "live" && confirmed({
      title: "Drain", word: view.name, button: "Drain",
      note: "Publishers and tokens go to the other brokers. It delivers what it has, and ends.",
      run: async () => { await ask("POST", path("/drain")); again(); },
    }),
    view.state !== "live" && view.state !== "dead" && confirmed({
      title: "Declare dead", word: view.name, button: "Declare dead",
      note: "Its tokens go to others at once. Only if its process has certainly ended: else the limit can be exceeded.",
      run: async () => { await ask("POST", path("/dead"), { incarnation: view.incarnation }); again(); },
    }),
    (view.state === "dead" || view.state === "drained") && confirmed({
      title: "Forget", word: view.name, button: "Forget",
      note: "It leaves the lists. A broker of this name may come again.",
      run: () => leave(shown, () => ask("DELETE", path("")), "#/brokers"),
    }),
  );
}
