// One contract: its policies as a form and as TOML side by side, what is asked of it, its heaviest subjects and bans.

import { ask, get } from "/page/api.js";
import { address } from "/page/contracts.js";
import { h, number, right, row, show, table, whole } from "/page/dom.js";
import { confirmed, failure, field, working } from "/page/forms.js";
import { KINDS, fresh } from "/page/policies.js";
import { contractText } from "/page/toml.js";

const HEAVIEST = 10;
const AS_TOLD = "as the service is told";
const MODES = [AS_TOLD, "local", "replicated", "exact", "auto", "store", "counter", "queue"];

const path = (namespace, subject) => `/limit/v1/contracts/${encodeURIComponent(namespace)}/${encodeURIComponent(subject)}`;

const subjectPath = (namespace, subject) => `/limit/v1/subjects/${encodeURIComponent(namespace)}/${encodeURIComponent(subject)}`;

// Whether `subject` is one of a contract's pattern. Another contract with a longer pattern may still count for it.
const isOf = (pattern, subject) => (pattern.endsWith("*") ? subject.startsWith(pattern.slice(0, -1)) : subject === pattern);

// Without names: a new one.
export function contract(main, namespace = null, subject = null) {
  const isNew = namespace === null;
  const form = h("section", { class: "card" });
  const text = h("textarea", { "aria-label": "The contract as TOML", spellcheck: "false" });
  const said = h("div", { role: "status" });
  const wrong = h("div");
  const usage = h("section", { class: "card" });
  const subjects = h("section", { class: "card" });
  const looked = h("div", { role: "status" });
  let model = null;  // the contract as it is edited
  let version = null;  // of the contract that `model` began with
  let reading = null;  // of the text: until it is done, `model` is what it was before
  let before = null;  // counts of the look before, for rates

  show(
    main,
    h("h1", null, isNew ? "New contract" : `Contract ${subject} of ${namespace}`),
    h("div", { class: "editor" }, form, h("section", { class: "card" }, h("h2", null, "As TOML"), text, wrong)),
    !isNew && [usage, subjects],
    !isNew && h("section", { class: "card" }, confirmed({
      title: "Remove this contract", word: subject, button: "Remove",
      note: "Its subjects are not known any more: checks of them are answered with 404.",
      run: async () => { await ask("DELETE", path(namespace, subject)); location.hash = "#/"; },
    })),
  );

  function toText() {
    text.value = contractText(model);
    reading = null;
    show(wrong);
  }

  function take({ version: found, counts, ...document_ }) {
    [model, version] = [document_, found ?? version];
    drawForm();
    toText();
  }

  async function read() {
    const { contracts } = await ask("POST", "/limit/v1/contract-files", { text: text.value });
    if (contracts.length !== 1) throw new Error(`One contract is edited here, and the text has ${contracts.length}.`);
    [model] = contracts;
    drawForm();
  }

  text.addEventListener("change", () => {
    reading = read();
    reading.then(() => show(wrong), (error) => show(wrong, failure(error)));
  });

  function input(target, { name, label, value, list, type }) {
    const made = field(label, { list: list && list.map(String), type, value: target[name] ?? value, step: type === "number" ? "any" : null, min: type === "number" ? 0 : null });
    made.label.addEventListener("input", () => {
      const given = made.value;
      if (type === "number" && given === "") delete target[name];
      else if (type === "number") target[name] = Number(given);
      else if (list && typeof list[0] === "boolean") target[name] = given === "true";
      else target[name] = given === "" || given === AS_TOLD ? null : given;
      toText();
      for (const place of form.querySelectorAll(".means")) place.dispatchEvent(new Event("again"));
    });
    return made.label;
  }

  function policyCard(policy, at) {
    const { fields, optional = [], means } = KINDS[policy.kind];
    const kind = field("Kind", { list: Object.keys(KINDS), value: policy.kind });
    kind.label.addEventListener("change", () => {
      model.policies[at] = fresh(kind.value, policy.name);
      drawForm();
      toText();
    });
    const words = h("p", { class: "note means" }, means(policy));
    words.addEventListener("again", () => show(words, means(policy)));
    return h(
      "fieldset",
      { class: "policy" },
      h("legend", null, `Policy ${at + 1}`),
      h("div", { class: "fields" },
        input(policy, { name: "name", label: "Name", type: "text" }), kind.label,
        fields.map((one) => input(policy, one)), optional.map((one) => input(policy, one)), words,
        model.policies.length > 1 && h("div", { class: "buttons" }, h("button", { type: "button", onclick: () => { model.policies.splice(at, 1); drawForm(); toText(); } }, "Remove policy"))),
    );
  }

  function drawForm() {
    const add = () => {
      const names = new Set(model.policies.map((policy) => policy.name));
      let count = model.policies.length + 1;
      while (names.has(`policy-${count}`)) count += 1;
      model.policies.push(fresh("bucket", `policy-${count}`));
      drawForm();
      toText();
    };
    show(
      form,
      h("h2", null, "Policies"),
      h("p", { class: "note" }, "A check takes its cost from all of them, or from none."),
      h("form", { onsubmit: put },
        h("div", { class: "fields" },
          isNew && input(model, { name: "namespace", label: "Namespace", type: "text" }),
          isNew && input(model, { name: "subject", label: "Subjects, * at the end for all that begin so", type: "text" }),
          input(model, { name: "mode", label: "Held on several nodes", list: MODES, value: AS_TOLD }),
          input(model, { name: "shadow", label: "Shadow: refuses nobody", list: [false, true] }),
          input(model, { name: "starts", label: "New subjects start", list: ["full", "empty"] })),
        h("p", null),
        model.policies.map(policyCard),
        h("div", { class: "buttons" },
          h("button", { type: "button", onclick: add }, "+ new policy"),
          h("button", { type: "submit" }, "Put in force"))),
      said,
    );
  }

  function put(event) {
    event.preventDefault();
    return working(said, async () => {
      await reading;  // a click on the button is what ends the editing of the text
      const { namespace: within, subject: pattern, ...document_ } = model;
      if (!isNew && (within !== namespace || pattern !== subject)) throw new Error(`This is the contract of ${subject} in ${namespace}: make a new one for others.`);
      const headers = version === null ? {} : { "If-Match": `"${version}"` };
      const put_ = await ask("PUT", path(within || "", pattern || ""), document_, headers);
      if (isNew) {
        location.hash = address(put_);
        return;
      }
      take(put_);
      before = null;
      show(said, h("p", { class: "done" }, "In force. Subjects keep what they have used."));
    });
  }

  function drawUsage({ counts }) {
    const now = performance.now();
    const rate = (at, name) => (before === null ? "–" : number(Math.max(0, counts[at][name] - before.counts[at][name]) / ((now - before.now) / 1000)));
    const rows = counts.map((count, at) =>
      row(count.name, right(whole(count.allowed)), right(rate(at, "allowed")), right(whole(count.refused)), right(rate(at, "refused")), right(whole(count.cost))));
    show(usage, h("h2", null, "What is asked of it"),
      table("Checks by policy", ["Policy", "Allowed", "a second", "Refused by it", "a second", "Tokens taken"], rows));
    before = { now, counts };
  }

  const one = h("input", { type: "search", placeholder: subject, "aria-label": "A subject" });
  const lookAt = h("form", { class: "above", onsubmit: (event) => { event.preventDefault(); lookAtOne(one.value.trim()); } },
    h("h2", null, "Subjects"), one, h("button", { type: "submit" }, "Look at it"));

  const act = (method, name, words) => working(looked, async () => {
    await ask(method, subjectPath(namespace, name));
    show(looked, h("p", { class: "done" }, words));
    await drawSubjects();
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

  const HEADS = ["Subject", "Checks (sampled)", "What remains", "Ban"];

  const lookAtOne = (name) => working(looked, async () => {
    show(looked, table("The subject", HEADS, [subjectRow(await get(subjectPath(namespace, name)), null)]));
  });

  const heaviest = h("div");
  const bans = h("div");

  async function drawSubjects() {
    const found = await get(`/limit/v1/subjects/${encodeURIComponent(namespace)}?most=100`);
    const his = found.heaviest.filter((each) => isOf(subject, each.subject)).slice(0, HEAVIEST);
    const views = await Promise.all(his.map((each) => get(subjectPath(namespace, each.subject))));
    show(heaviest, table("The most checked subjects", HEADS, views.map((view, at) => subjectRow(view, his[at].checks)), "none was checked here"),
      h("p", { class: "note" }, `${whole(found.in_memory)} subjects of ${namespace} are in memory.`));
    const banned = found.banned.filter((each) => isOf(subject, each.subject));
    show(bans, banned.length > 0 && table("Banned subjects", HEADS, banned.map((view) => subjectRow(view, null))));
  }

  if (isNew) take({ namespace: "api", subject: "user:*", mode: null, shadow: false, starts: "full", policies: [fresh("bucket", "burst")] });
  else show(subjects, lookAt, looked, bans, heaviest);

  return {
    async look() {
      if (isNew) return;
      try {
        const view = await get(path(namespace, subject));
        if (model === null) take(view);
        drawUsage(view);
      } catch (error) {
        show(usage, failure(error));
        throw error;
      }
      await drawSubjects();
    },
  };
}
