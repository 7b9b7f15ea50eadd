// Asks for a token where the service needs one.

import { session, signIn, signOut } from "/page/api.js";
import { h, show } from "/page/dom.js";

// Whether somebody is signed in, or need not be; the frame says who. Else the form is shown by `signOff`. Where the
// service does not answer, `begin` is called again.
export async function isSignedIn(main, service, signOff, begin) {
  try {
    const here = await session();
    if (here.needed && here.name === null) {
      signOff();
      return false;
    }
    const out = document.getElementById("sign-out");
    out.hidden = !here.needed;
    out.title = here.needed ? `signed in as ${here.name}` : "";
    return true;
  } catch (error) {
    show(main, h("p", { class: "refusal", role: "alert" }, `The ${service} does not answer: ${error.message}`));
    setTimeout(begin, 5000);
    return false;
  }
}

// Has `signOff` called where the button of the frame is pressed, or the token is refused.
export function onSignOut(signOff) {
  document.getElementById("sign-out").addEventListener("click", async () => {
    await signOut();
    signOff();
  });
  window.addEventListener("signed-out", () => signOff("The token is not valid any more."));
}

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
