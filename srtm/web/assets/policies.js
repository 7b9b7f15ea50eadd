// The kinds of policies: which fields each has, and what they mean in words.

import { number } from "/page/dom.js";

const text = (name, label, value) => ({ name, label, value, type: "text" });
const amount = (name, label, value) => ({ name, label, value, type: "number" });
const truth = (name, label, value) => ({ name, label, value, list: [false, true] });

const seconds = (value) => (value < 0.1 ? `${number(value * 1000)} ms` : `${number(value)} s`);

export const KINDS = {
  bucket: {
    fields: [amount("burst", "Tokens at most", 100), amount("rate", "Tokens a second", 10)],
    optional: [amount("max_debt", "Debt at most", "")],
    means: ({ burst, rate }) => `A token comes back each ${seconds(1 / rate)}; an empty bucket is full after ${seconds(burst / rate)}.`,
  },
  window: {
    fields: [amount("quota", "Tokens", 1000), text("window", "Each", "1h"), amount("slices", "Slices", 5), truth("weighted", "Weighted", true), truth("aligned", "Aligned to the clock", false)],
    means: ({ quota, window }) => `At most ${number(quota)} in ${window}.`,
  },
  log: {
    fields: [amount("quota", "Tokens", 100), text("window", "In any", "1m")],
    means: ({ quota, window }) => `At most ${number(quota)} in any ${window}, exactly.`,
  },
  pace: {
    fields: [amount("rate", "Tokens a second", 10), amount("burst", "At once", 1), text("max_wait", "Wait at most", "1s")],
    means: ({ rate, max_wait: wait }) => `One each ${seconds(1 / rate)}; who would wait longer than ${wait} is refused.`,
  },
  concurrency: {
    fields: [amount("quota", "Open at once", 10), text("expires", "Forgotten after", "60s")],
    means: ({ quota, expires }) => `At most ${number(quota)} open at once; one that nobody releases counts for ${expires}.`,
  },
};

export function fresh(kind, name) {
  const fields = KINDS[kind].fields.map((field) => [field.name, field.value]);
  return { name, kind, ...Object.fromEntries(fields) };
}

// One policy in a few words, for a list.
export function brief(policy) {
  const { quota, burst, rate, window } = policy;
  if (policy.kind === "bucket") return `${number(burst)}, ${number(rate)}/s`;
  if (policy.kind === "pace") return `${number(rate)}/s, one after the other`;
  return window ? `${number(quota)} in ${window}` : `${number(quota)} at once`;
}
