// The contracts that brokers hold clients to, to read, and where those of limit services are edited.

import { get } from "/page/api.js";
import { h, right, row, show, table, whole } from "/page/dom.js";
import { refusal } from "/page/lists.js";
import { contractText } from "/page/toml.js";

const MOST = 200;  // of one screen

export function contracts(main) {
  const ofBrokers = h("section", { class: "card" });
  const nodes = h("section", { class: "card" });
  let closed = false;

  async function load(path, place, draw) {
    try {
      const found = await get(path);
      if (!closed) draw(place, found);
    } catch (error) {
      if (!closed) show(place, refusal(error));
    }
  }

  show(main, h("h1", null, "Contracts"), ofBrokers, nodes);
  load("/v1/contracts", ofBrokers, drawContracts);
  load("/v1/limit-nodes", nodes, drawNodes);
  return {
    close() {
      closed = true;
    },
  };
}

function drawContracts(place, all) {
  const here = `--distributor ${location.origin}`;
  const rows = all.slice(0, MOST).map(({ version, counts, ...contract }) => {
    const { namespace, subject, policies, shadow } = contract;
    const each = (cell) => policies.map((policy, at) => h("div", null, cell(policy, counts[at])));
    return row(
      namespace,
      h("td", null, subject, shadow && h("small", null, " shadow")),
      h("td", null, each((policy) => `${policy.name} (${policy.kind})`)),
      right(each((_, count) => whole(count.allowed))),
      right(each((_, count) => whole(count.refused))),
      h("td", null, h("details", null, h("summary", null, "TOML"), h("pre", null, contractText(contract)))),
    );
  });
  show(
    place,
    h("h2", null, "Contracts of brokers"),
    h("p", null, "What clients of all brokers may do. To change one: ", h("code", null, `srtm limit contract set NAMESPACE PATTERN POLICY.rate=50 ${here}`), ". For a whole file: ", h("code", null, `srtm limit contract submit FILE.toml ${here}`), "."),
    table("Contracts that brokers hold clients to", ["Namespace", "Subjects", "Policies", "Allowed", "Refused", "As a file"], rows, "no contract is in force"),
    all.length > MOST && h("p", { class: "note" }, `${whole(MOST)} of ${whole(all.length)}: `, h("code", null, `srtm limit contract show ${here}`), " has them all."),
  );
}

// A node tells where its peers reach it, and not where browsers do: so no link.
function drawNodes(place, clusters) {
  const rows = Object.entries(clusters).flatMap(([cluster, nodes]) =>
    Object.entries(nodes).map(([name, address]) => row(name, address, h("code", null, cluster))));
  show(
    place,
    h("h2", null, "Limit services"),
    h("p", null, "Contracts of a limit service are edited on its own page. Open in the browser the address that ", h("code", null, "srtm limit serve"), " was given as ", h("code", null, "--http-address"), ". Nodes tell here only where their peers reach them."),
    table("Nodes of limit services", ["Node", "For its peers", "Cluster"], rows, "no node finds its peers here (--distributor)"),
  );
}
