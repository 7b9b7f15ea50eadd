// Asks for a token where the service needs one.

import { signIn } from "/page/api.js";
import { h, show } from "/page/dom.js";

// Shows the form in `main`. `whose`: of whose token file. `done`: after a token was taken.
export function askForToken(main, whose, why, done) {
  const field = h("input", { type: "password", id: "token", autocomplete: "current-password", required: true });
  const said = h("p", { class: "refusal", role: "alert" }, why || "");
  const enter = async (event) => {
    event.preventDefault();
    try {
      await signIn(field.value.trim());
      await done();
    } catch (error) {
      show(said, error.message);
    }
  };
  show(
    main,
    h(
      "form",
      { class: "card sign-in", onsubmit: enter },
      h("h1", null, "Sign in"),
      h("p", null, `The token of an operator, from the ${whose}'s token file.`),
      h("label", { for: "token" }, "Token"),
      field,
      said,
      h("button", { type: "submit" }, "Sign in"),
    ),
  );
  field.focus();
}
