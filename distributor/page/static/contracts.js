// Where contracts are edited: the nodes of limit services that find each other at this distributor.

import { get } from "/page/api.js";
import { h, row, show, table } from "/page/dom.js";
import { refusal } from "/page/lists.js";

export function contracts(main) {
  const nodes = h("section", { class: "card" });
  let closed = false;

  async function load() {
    try {
      const clusters = await get("/v1/limit-nodes");
      if (!closed) drawNodes(nodes, clusters);
    } catch (error) {
      if (!closed) show(nodes, refusal(error));
    }
  }

  show(main, h("h1", null, "Contracts"), nodes);
  load();
  return {
    close() {
      closed = true;
    },
  };
}

// A node tells where its peers reach it, and not where browsers do: so no link.
function drawNodes(place, clusters) {
  const rows = Object.entries(clusters).flatMap(([cluster, nodes]) =>
    Object.entries(nodes).map(([name, address]) => row(name, address, h("code", null, cluster))));
  show(
    place,
    h("h2", null, "Limit services"),
    h("p", null, "Contracts of a limit service are edited on its own page. Open in the browser ", h("code", null, "http://ADDRESS/"), ": the address that ", h("code", null, "srtm limit serve"), " was given as ", h("code", null, "--http-address"), ". Nodes tell here only where their peers reach them."),
    table("Nodes of limit services", ["Node", "For its peers", "Cluster"], rows, "no node finds its peers here (--distributor)"),
  );
}
