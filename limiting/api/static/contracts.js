// The list of contracts, with what was asked of each.

import { get } from "/page/api.js";
import { NEW, address } from "/page/contract_editor.js";
import { h, number, right, row, show, table, whole } from "/page/dom.js";
import { failure } from "/page/forms.js";
import { brief } from "/page/policies.js";

const key = (one) => `${one.namespace} ${one.subject}`;

const MOST = 200;  // of one screen

export function contracts(main) {
  const place = h("div");
  let wanted = "";
  let all = [];
  let before = new Map();
  const search = h("input", { type: "search", placeholder: "Find a contract", "aria-label": "Find a contract", oninput: () => { wanted = search.value.trim(); draw(new Map()); } });
  show(main, h("div", { class: "above" }, h("h1", null, "Contracts"), search, h("a", { href: NEW }, "+ new contract")), place);

  function draw(rates) {
    const found = all.filter((one) => key(one).includes(wanted));
    const rows = found.slice(0, MOST).map((one) => {
      const refused = Math.max(...one.counts.map((count) => count.refused));
      const rate = rates.get(key(one));
      return row(
        one.namespace,
        h("td", null, h("a", { href: address(one) }, one.subject), one.shadow && h("small", null, " shadow")),
        one.policies.map((policy) => `${policy.name}: ${brief(policy)}`).join("; "),
        right(whole(one.counts[0].allowed)),
        right(whole(refused)),
        right(rate === undefined ? "–" : number(rate)),
      );
    });
    show(
      place,
      table("Contracts", ["Namespace", "Subjects", "Policies", "Allowed", "Refused", "Checks a second"], rows, all.length ? "no match" : "no contract is in force"),
      found.length > MOST && h("p", { class: "note" }, `${whole(MOST)} of ${whole(found.length)}: find the others by a part of their names.`),
    );
  }

  return {
    async look() {
      try {
        all = await get("/limit/v1/contracts");
      } catch (error) {
        show(place, failure(error));
        throw error;
      }
      const now = performance.now();
      const checks = new Map(all.map((one) => [key(one), { at: now, count: one.counts[0].allowed + one.counts[0].refused }]));
      const rates = new Map([...checks].filter(([name]) => before.has(name)).map(([name, { at, count }]) =>
        [name, Math.max(0, count - before.get(name).count) / ((at - before.get(name).at) / 1000)]));
      before = checks;
      draw(rates);
    },
  };
}
