// One contract: its policies as a form and as TOML side by side, what is asked of it, and how it is removed.

import { ask, get } from "/page/api.js";
import { h, number, right, row, show, table, whole } from "/page/dom.js";
import { confirmed, failure, field, working } from "/page/forms.js";
import { KINDS, fresh } from "/page/policies.js";
import { contractText } from "/page/toml.js";

export const address = (one) => `#/contracts/${encodeURIComponent(one.namespace)}/${encodeURIComponent(one.subject)}`;

export const NEW = "#/contracts/new";

const documentOf = ({ version, counts, ...document_ }) => document_;

// Without names: a new one. `service` says of whom it is:
// * `contracts`, `files`: the routes; `home`: the address of the list;
// * `kinds` of policies; `modes` under `modeLabel`, and `untold`: what holds where none is named;
// * `example`: namespace and subject of a new one; `counted`: what its counts are of; `inForce`, `removed`: sentences;
// * `beneath(namespace, subject)`: more of it, as `{elements, look()}`.
export function contractEditor(main, service, namespace = null, subject = null) {
  const isNew = namespace === null;
  const path = (within, pattern) => `${service.contracts}/${encodeURIComponent(within)}/${encodeURIComponent(pattern)}`;
  const form = h("section", { class: "card" });
  const text = h("textarea", { "aria-label": "The contract as TOML", spellcheck: "false" });
  const said = h("div", { role: "status" });
  const news = h("div");  // what somebody else did to it
  const wrong = h("div");
  const usage = h("section", { class: "card" });
  const beneath = isNew ? null : service.beneath(namespace, subject);
  let model = null;  // the contract as it is edited
  let version = null;  // of the contract that `model` began with; null: there is none
  let begun = "";  // its text
  let met = null;  // the version of somebody else that was told of
  let reading = null;  // of the text: until it is done, `model` is what it was before
  let before = null;  // counts of the look before, for rates
  let puts = 0;  // grows when one begins, and when it ends: what was read meanwhile may be either contract

  const condition = () => (version === null ? { "If-None-Match": "*" } : { "If-Match": `"${version}"` });

  show(
    main,
    h("h1", null, isNew ? "New contract" : `Contract ${subject} of ${namespace}`),
    h("div", { class: "editor" }, form, h("section", { class: "card" }, h("h2", null, "As TOML"), text, wrong)),
    !isNew && [usage, beneath.elements],
    !isNew && h("section", { class: "card" }, confirmed({
      title: "Remove this contract", word: subject, button: "Remove", note: service.removed,
      run: async () => {
        await ask("DELETE", path(namespace, subject), undefined, condition());
        location.hash = service.home;
      },
    })),
  );

  function toText() {
    text.value = contractText(model);
    reading = null;
    show(wrong);
  }

  function take(view) {
    const found = view.version ?? null;
    [model, version, met, before] = [documentOf(view), found, found, null];
    drawForm();
    toText();
    begun = text.value;
    show(news);
  }

  // Somebody else has put `theirs` in force. What is edited here is not lost, nor put over theirs unasked.
  function meet(theirs) {
    if (theirs.version === met) return;
    const mine = text.value !== begun;
    if (!mine) take(theirs);
    met = theirs.version;
    const keep = () => {
      version = theirs.version;
      show(news, h("p", { class: "note" }, "Put in force replaces what somebody else has put."));
    };
    show(news,
      h("p", { class: "refusal", role: "alert" }, "Somebody else has changed this contract meanwhile. ", mine ? "What you edit began with the version before, and is not in force." : "This is theirs."),
      mine && h("details", null, h("summary", null, "Theirs"), h("pre", null, contractText(documentOf(theirs)))),
      mine && h("div", { class: "buttons" },
        h("button", { type: "button", onclick: () => take(theirs) }, "Take theirs"),
        h("button", { type: "button", onclick: keep }, "Keep mine")));
  }

  function missed() {
    if (met === null) return;
    [version, met] = [null, null];
    show(usage);
    show(news, h("p", { class: "refusal", role: "alert" }, "Somebody has removed this contract. Put in force makes it anew."));
  }

  async function read() {
    const { contracts } = await ask("POST", service.files, { text: text.value });
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
      else target[name] = given === "" || given === service.untold ? null : given;
      toText();
      for (const place of form.querySelectorAll(".means")) place.dispatchEvent(new Event("again"));
    });
    return made.label;
  }

  function policyCard(policy, at) {
    const { fields, optional = [], means } = KINDS[policy.kind];
    const kind = field("Kind", { list: service.kinds, value: policy.kind });
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
          input(model, { name: "mode", label: service.modeLabel, list: [service.untold, ...service.modes], value: service.untold }),
          input(model, { name: "shadow", label: "Shadow: refuses nobody", list: [false, true] }),
          input(model, { name: "starts", label: "New subjects start", list: ["full", "empty"] })),
        h("p", null),
        model.policies.map(policyCard),
        h("div", { class: "buttons" },
          h("button", { type: "button", onclick: add }, "+ new policy"),
          h("button", { type: "submit" }, "Put in force"))),
      news,
      said,
    );
  }

  function put(event) {
    event.preventDefault();
    return working(said, async () => {
      await reading;  // a click on the button is what ends the editing of the text
      const { namespace: within, subject: pattern, ...document_ } = model;
      if (!isNew && (within !== namespace || pattern !== subject)) throw new Error(`This is the contract of ${subject} in ${namespace}: make a new one for others.`);
      const put_ = await putOrMeet(within || "", pattern || "", document_);
      if (put_ === null) {
        show(said);
      } else if (isNew) {
        location.hash = address(put_);
      } else {
        take(put_);
        show(said, h("p", { class: "done" }, service.inForce));
      }
    });
  }

  // Null: somebody else has changed or removed it since it was read, which is said.
  async function putOrMeet(within, pattern, document_) {
    puts += 1;
    try {
      return await ask("PUT", path(within, pattern), document_, condition());
    } catch (error) {
      if (isNew || error.status !== 409) throw error;
    } finally {
      puts += 1;
    }
    met = undefined;  // it is said again
    await followed();
    return null;
  }

  // Reads the contract, and says where it is another than was begun with. Null: it is not known now.
  async function followed() {
    const turn = puts;
    try {
      const view = await get(path(namespace, subject));
      if (turn !== puts) return null;
      if (model === null) take(view);
      else meet(view);
      return view;
    } catch (error) {
      if (error.status !== 404 || model === null) throw error;
      missed();
      return null;
    }
  }

  function drawUsage({ policies, counts }) {
    const now = performance.now();
    const isSame = before !== null && before.counts.length === counts.length;
    const rate = (at, name) => (isSame ? number(Math.max(0, counts[at][name] - before.counts[at][name]) / ((now - before.now) / 1000)) : "–");
    const rows = counts.map((count, at) =>
      row(policies[at].name, right(whole(count.allowed)), right(rate(at, "allowed")), right(whole(count.refused)), right(rate(at, "refused")), right(whole(count.cost))));
    show(usage, h("h2", null, "What is asked of it"),
      table(`${service.counted} by policy`, ["Policy", "Allowed", "a second", "Refused by it", "a second", "Tokens taken"], rows));
    before = { now, counts };
  }

  if (isNew) take({ ...service.example, mode: null, shadow: false, starts: "full", policies: [fresh("bucket", "burst")] });

  return {
    async look() {
      if (isNew) return;
      try {
        const view = await followed();
        if (view === null) return;
        drawUsage(view);
      } catch (error) {
        show(usage, failure(error));
        throw error;
      }
      await beneath.look();
    },
  };
}
