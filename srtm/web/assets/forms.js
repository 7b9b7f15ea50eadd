// Fields with labels, work that may be refused, and actions that a typed name confirms.

import { h, show } from "/page/dom.js";

let count = 0;

// `{label, value}`: an input or, with `list`, a choice.
export function field(text, { list, value, ...rest }) {
  const id = `field-${(count += 1)}`;
  const input = list
    ? h("select", { id }, list.map((one) => h("option", { value: one, selected: String(one) === String(value) }, one)))
    : h("input", { id, value, ...rest });
  const label = h("div", { class: "field" }, h("label", { for: id }, text), input);
  return {
    label,
    get value() {
      return input.value;
    },
    set value(text) {
      input.value = text;
    },
  };
}

export const failure = (error) =>
  h(
    "p",
    { class: "refusal", role: "alert" },
    error.message,
    error.leader && [" ", h("a", { href: error.leader }, `Go to the leader, ${error.leader}`)],
  );

// Runs `work`; says in `place` that it goes on, and why it was refused.
export async function working(place, work) {
  show(place, h("p", { class: "none" }, "…"));
  try {
    await work();
  } catch (error) {
    show(place, failure(error));
  }
}

// Ends the thing that a page shows, and goes to another: nobody asks for what is not there any more.
// `shown.closed`: whether the page is left.
export async function leave(shown, end, hash) {
  shown.closed = true;
  try {
    await end();
  } catch (error) {
    shown.closed = false;
    throw error;
  }
  location.hash = hash;
}

// An action that asks for the name to be typed first.
export function confirmed({ title, word, note, button, run }) {
  const said = h("div", { role: "status" });
  const typed = field(`Type ${word} to confirm`, { type: "text", autocomplete: "off" });
  const go = (event) => {
    event.preventDefault();
    if (typed.value !== word) {
      show(said, h("p", { class: "refusal" }, `That is not ${word}. Nothing was done.`));
      return undefined;
    }
    return working(said, async () => {
      await run();
      show(said, h("p", { class: "done" }, "Done."));
    });
  };
  return h("details", { class: "danger" }, h("summary", null, title),
    h("form", { class: "fields", onsubmit: go }, h("p", null, note), typed.label, h("div", { class: "buttons" }, h("button", { type: "submit", class: "danger" }, button)), said));
}
