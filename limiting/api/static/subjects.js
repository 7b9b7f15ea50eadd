// The subjects of a contract: one that is asked for, the heaviest, the banned; how they are banned and reset.

import { ask, get } from "/page/api.js";
import { h, number, right, row, show, table, whole } from "/page/dom.js";
import { working } from "/page/forms.js";

const HEAVIEST = 10;

const HEADS = ["Subject", "Checks (sampled)", "What remains", "Ban"];

const subjectPath = (namespace, subject) => `/limit/v1/subjects/${encodeURIComponent(namespace)}/${encodeURIComponent(subject)}`;

// Whether `subject` is one of a contract's pattern. Another contract with a longer pattern may still count for it.
const isOf = (pattern, subject) => (pattern.endsWith("*") ? subject.startsWith(pattern.slice(0, -1)) : subject === pattern);

// Of the contract of `pattern`: `{elements, look()}`.
export function subjects(namespace, pattern) {
  const looked = h("div", { role: "status" });
  const heaviest = h("div");
  const bans = h("div");
  const one = h("input", { type: "search", placeholder: pattern, "aria-label": "A subject" });
  const lookAt = h("form", { class: "above", onsubmit: (event) => { event.preventDefault(); lookAtOne(one.value.trim()); } },
    h("h2", null, "Subjects"), one, h("button", { type: "submit" }, "Look at it"));

  const act = (method, name, words) => working(looked, async () => {
    await ask(method, subjectPath(namespace, name));
    show(looked, h("p", { class: "done" }, words));
    await look();
  });

  const subjectRow = (view, checks) =>
    row(
      view.subject,
      right(checks === null ? "–" : whole(checks)),
      h("td", null, view.policies.map((policy) => h("div", null, `${policy.name}: `, policy.remaining > 0 ? number(policy.remaining) : h("span", { class: "over" }, number(policy.remaining)), policy.wait_s > 0 ? `, one more in ${number(policy.wait_s)} s` : ""))),
      h("td", null, h("div", { class: "buttons" },
        h("button", { type: "button", "aria-label": `Ban ${view.subject}`, onclick: () => act("PUT", view.subject, `${view.subject} is banned until time has paid it, or until it is reset.`) }, "Ban"),
        h("button", { type: "button", "aria-label": `Reset ${view.subject}`, onclick: () => act("DELETE", view.subject, `${view.subject} has used nothing now.`) }, "Reset"))),
    );

  const lookAtOne = (name) => working(looked, async () => {
    show(looked, table("The subject", HEADS, [subjectRow(await get(subjectPath(namespace, name)), null)]));
  });

  async function look() {
    const found = await get(`/limit/v1/subjects/${encodeURIComponent(namespace)}?most=100`);
    const his = found.heaviest.filter((each) => isOf(pattern, each.subject)).slice(0, HEAVIEST);
    const views = await Promise.all(his.map((each) => get(subjectPath(namespace, each.subject))));
    show(heaviest, table("The most checked subjects", HEADS, views.map((view, at) => subjectRow(view, his[at].checks)), "none was checked here"),
      h("p", { class: "note" }, `${whole(found.in_memory)} subjects of ${namespace} are in memory.`));
    const banned = found.banned.filter((each) => isOf(pattern, each.subject));
    show(bans, banned.length > 0 && table("Banned subjects", HEADS, banned.map((view) => subjectRow(view, null))));
  }

  return { elements: h("section", { class: "card" }, lookAt, looked, bans, heaviest), look };
}
