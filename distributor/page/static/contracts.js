// The contracts that brokers hold clients to: their list, one of them to edit; and the nodes of limit services.

import { get } from "/page/api.js";
import { NEW, address, contractEditor } from "/page/contract_editor.js";
import { h, number, right, row, show, table, whole } from "/page/dom.js";
import { failure } from "/page/forms.js";
import { list } from "/page/lists.js";
import { brokerLink } from "/page/paths.js";
import { brief } from "/page/policies.js";

const SERVICE = {
  contracts: "/v1/contracts",
  files: "/v1/contract-files",
  home: "#/contracts",
  kinds: ["bucket", "window", "log"],
  modes: ["local", "replicated"],
  modeLabel: "Held by several brokers",
  untold: "each for itself",
  example: { namespace: "publishers", subject: "*" },
  counted: "Publishes and deliveries",
  inForce: "In force. Brokers have it within a second. Subjects keep what they have used.",
  removed: "Brokers hold nobody to it any more. This is refused while a topic names it.",
  beneath,
};

const HEADS = ["Subject", "Checks (sampled)", "What remains, where least does", "Brokers"];

// The heaviest subjects of a contract, which its brokers are asked for.
function beneath(namespace, pattern) {
  const place = h("section", { class: "card" });
  const left = ({ remaining }) => Object.entries(remaining).map(([policy, tokens]) =>
    h("div", null, `${policy}: `, tokens > 0 ? number(tokens) : h("span", { class: "over" }, "0")));
  const draw = ({ asked, silent, rows }) => show(
    place,
    h("h2", null, "Subjects"),
    table("The most checked subjects", HEADS, rows.map((one) =>
      row(one.subject, right(whole(one.checks)), h("td", null, left(one)), right(whole(one.brokers)))), "none was checked"),
    h("p", { class: "note" },
      asked.length ? ["By a sample, at the brokers that were asked the most: ", asked.map((name, at) => [at > 0 && ", ", brokerLink(name)]), ". "] : "No broker was asked yet. ",
      "Brokers ban nobody: to stop a client, make a contract for its subject alone."),
    Object.entries(silent).map(([name, why]) => h("p", { class: "refusal" }, `${name}: ${why}`)),
  );
  return {
    elements: place,
    async look() {
      if (document.hidden) return;
      try {
        draw(await get(`/v1/contract-subjects/${encodeURIComponent(namespace)}/${encodeURIComponent(pattern)}`));
      } catch (error) {
        show(place, failure(error));
      }
    },
  };
}

const ofEach = (policies, cell) => policies.map((policy, at) => h("div", null, cell(policy, at)));

export function contracts(main) {
  const listed = h("div");
  const nodes = h("section", { class: "card" });
  let closed = false;
  show(main, listed, nodes);
  const shown = list(listed, "Contracts", "/v1/overview/contracts", [
    ["Contract", null, (one) => h("td", null, h("a", { href: address(one) }, `${one.namespace} ${one.subject}`), one.shadow && h("small", null, " shadow"))],
    ["Policies", null, (one) => ofEach(one.policies, (policy) => `${policy.name}: ${brief(policy)}`)],
    ["Allowed", null, (one) => ofEach(one.policies, (_, at) => whole(one.counts[at].allowed)), true],
    ["Refused", null, (one) => ofEach(one.policies, (_, at) => whole(one.counts[at].refused)), true],
  ], { hasEvents: false, more: h("a", { href: NEW }, "+ new contract") });
  get("/v1/limit-nodes").then(
    (found) => closed || drawNodes(nodes, found),
    (error) => closed || show(nodes, failure(error)),
  );
  return {
    update: shown.update,
    close() {
      closed = true;
    },
  };
}

export function contract(main, namespace, subject) {
  const editor = contractEditor(main, SERVICE, namespace, subject);
  const look = () => editor.look().catch(() => {});  // it has said why
  let seen = null;
  look();  // a distributor that stands by sends no news
  return {
    update(news) {
      if (seen !== null && news.look !== seen) look();
      seen = news.look;
    },
  };
}

function drawNodes(place, clusters) {
  const rows = Object.entries(clusters).flatMap(([cluster, nodes]) =>
    Object.entries(nodes).map(([name, node]) =>
      row(name, h("td", null, node.page ? h("a", { href: node.page }, node.page) : "–"), node.address, h("code", null, cluster))));
  show(
    place,
    h("h2", null, "Limit services"),
    h("p", null, "Contracts of a limit service are edited on its own page, at any of its nodes."),
    table("Nodes of limit services", ["Node", "Its page", "For its peers", "Cluster"], rows, "no node finds its peers here (--distributor)"),
    Object.values(clusters).some((nodes) => Object.values(nodes).some((node) => !node.page)) &&
      h("p", { class: "note" }, "A node without a link serves its page to its own machine only, or is of an earlier version."),
  );
}
