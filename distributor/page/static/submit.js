// Submits a topic file: TOML or JSON, with the CSV files that it names.

import { ask } from "/page/api.js";
import { h, show } from "/page/dom.js";
import { working } from "/page/forms.js";
import { topicLink } from "/page/paths.js";
import { planLines } from "/page/topic.js";

const EXAMPLE = `name = "cars"
rate = 1100
burst = "auto"
slo = { percentile = 99, latency_ms = 5 }

[[publishers]]
count = 100
rate = 10
group_size = 5
id_prefix = "car-"
`;

export function submit(main) {
  const text = h("textarea", { id: "text", rows: 16, spellcheck: "false" });
  text.value = EXAMPLE;
  const said = h("div", { role: "status" });
  const csv = {};
  const files = h("input", { type: "file", id: "files", multiple: true, accept: ".toml,.json,.csv", onchange: async () => {
    for (const file of files.files) {
      if (file.name.endsWith(".csv")) csv[file.name] = await file.text();
      else text.value = await file.text();
    }
    show(said, Object.keys(csv).length > 0 && h("p", null, `With ${Object.keys(csv).join(", ")}.`));
  } });
  const document_ = () => ask("POST", "/v1/topic-files", { text: text.value, csv });
  const plan = () => working(said, async () => {
    const planned = await ask("POST", "/v1/plan", await document_());
    show(said, h("h2", null, "What it would do"), planLines(planned));
  });
  const go = (event) => {
    event.preventDefault();
    return working(said, async () => {
      const made = await ask("POST", "/v1/topics", await document_());
      show(said, h("p", { class: "done" }, "Submitted: ", topicLink(made.name)), planLines(made));
    });
  };
  show(
    main,
    h("h1", null, "Submit a topic"),
    h(
      "form",
      { class: "card", onsubmit: go },
      h("label", { for: "files" }, "A topic file, and the CSV files that it names"),
      files,
      h("label", { for: "text" }, "or its text"),
      text,
      h("div", { class: "buttons" }, h("button", { type: "button", onclick: plan }, "Plan"), h("button", { type: "submit" }, "Submit")),
      said,
    ),
  );
  return {};
}
