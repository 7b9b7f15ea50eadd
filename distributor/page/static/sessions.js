// The MQTT sessions of a broker: a screen at a time, searched by the distributor; one of them whole, and how it is ended.

import { ask, get } from "/page/api.js";
import { confirmed, failure } from "/page/forms.js";
import { facts, h, pager, right, row, show, table, whole, word } from "/page/dom.js";
import { brokerPath } from "/page/paths.js";

const SCREEN = 50;

const COLUMNS = ["Client", "State", "Address", "Stays", "Subscriptions", "Waiting", "In flight", "Dropped"];
const UNITS = [["d", 86400], ["h", 3600], ["min", 60]];

function lasting(seconds) {
  const [unit, length] = UNITS.find(([, each]) => seconds >= 2 * each) || ["s", 1];
  return `${whole(seconds / length)} ${unit}`;
}

const stays = (one) => (one.expiry_s === null ? "for ever" : one.expiry_s === 0 ? "no longer than its connection" : lasting(one.expiry_s));

const state = (one) => [
  word(one.connected ? "connected" : "away"),
  !one.connected && one.ends_in_s !== null && h("small", null, ` ends in ${lasting(one.ends_in_s)}`),
];

// `{load()}`: reads the list again.
export function sessions(place, broker) {
  const asked = { offset: 0, search: "" };
  const list = h("div", { class: "list" });
  const one = h("div");
  const search = h("input", {
    type: "search", placeholder: "Find a client", "aria-label": "Find a client",
    oninput: () => again({ search: search.value.trim(), offset: 0 }),
  });
  let turn = 0;
  show(place, h("h2", null, "MQTT sessions"), search, list, one);

  function again(changes) {
    Object.assign(asked, changes);
    return load();
  }

  async function load() {
    const number = (turn += 1);
    try {
      const found = await get(brokerPath(broker, `/mqtt/sessions?${new URLSearchParams({ limit: SCREEN, ...asked })}`));
      if (number === turn) draw(found);
    } catch (error) {
      if (number === turn) show(list, failure(error));
    }
  }

  function draw(found) {
    const rows = found.rows.map((session) =>
      row(
        h("td", { class: "client" }, h("button", { type: "button", class: "plain", onclick: () => open(session.client_id) }, session.client_id)),
        h("td", null, state(session)),
        session.address || "–",
        stays(session),
        right(whole(session.subscriptions)),
        right(whole(session.queued)),
        right(whole(session.in_flight)),
        right(whole(session.dropped)),
      ));
    for (const made of rows) [...made.children].forEach((cell, at) => { cell.dataset.name = COLUMNS[at]; });  // on a phone
    show(
      list,
      table("MQTT sessions at this broker", COLUMNS, rows, found.all ? "no match" : "no session"),
      pager(asked.offset, SCREEN, found.total, (offset) => again({ offset })),
      found.looked_at < found.all &&
        h("p", { class: "note" }, `${whole(found.looked_at)} of ${whole(found.all)} sessions are searched: a client that is not listed is found by its whole name.`),
    );
  }

  async function open(client) {
    const path = brokerPath(broker, `/mqtt/session?client=${encodeURIComponent(client)}`);
    try {
      const session = await get(path);
      show(
        one,
        h("h3", { tabindex: -1 }, "Session of ", client),
        facts([
          ["State", state(session)],
          ["Version", session.version ? `MQTT ${session.version}` : "–"],
          ["Address", session.address || "–"],
          ["Stays without a connection", stays(session)],
          ["Waiting", whole(session.queued)],
          ["In flight", whole(session.in_flight)],
          ["Dropped for want of room", whole(session.dropped)],
          ["Will", session.has_will ? "yes" : "none"],
        ]),
        h("p", null, "Subscriptions: ", session.filters.length ? session.filters.map((filter, at) => [at > 0 && ", ", h("code", null, filter)]) : "none"),
        confirmed({
          title: "End this session", word: client, button: "End it",
          note: "Its connection ends, what waits for it is dropped, and its will is published. The client may come again.",
          run: async () => {
            await ask("DELETE", path);
            show(one, h("p", { class: "done", role: "status" }, `The session of ${client} has ended.`));
            await load();
          },
        }),
      );
      one.querySelector("h3").focus();
    } catch (error) {
      show(one, failure(error));
    }
  }

  return { load };
}
