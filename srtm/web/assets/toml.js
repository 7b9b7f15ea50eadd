// A contract as the text of a contract file. Texts, numbers and truths are written in TOML as in JSON.

const value = (one) =>
  one !== null && typeof one === "object"
    ? `{ ${Object.entries(one).filter(([, part]) => part !== null).map(([name, part]) => `${name} = ${value(part)}`).join(", ")} }`
    : JSON.stringify(one);

export function contractText({ policies, ...rest }) {
  const lines = Object.entries(rest).filter(([, one]) => one !== null).map(([name, one]) => `${name} = ${value(one)}`);
  return ["[[contracts]]", ...lines, "policies = [", ...policies.map((policy) => `  ${value(policy)},`), "]", ""].join("\n");
}
