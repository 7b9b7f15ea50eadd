// The frame of the limit service's page: signs in, and shows what the address names, anew each two seconds.

import { session, signOut } from "/page/api.js";
import { contract } from "/page/contract.js";
import { contracts } from "/page/contracts.js";
import { h, show } from "/page/dom.js";
import { askForToken } from "/page/sign_in.js";

const LOOK_MS = 2000;

const main = document.getElementById("main");
const live = document.getElementById("live");
let shown = null;  // the page that is shown: {look()}

const PAGES = [
  [/^#\/contracts\/([^/]+)\/(.+)$/, (found) => contract(main, decodeURIComponent(found[1]), decodeURIComponent(found[2]))],
  [/^#\/new$/, () => contract(main)],
  [/^/, () => contracts(main)],
];

function route() {
  const [found, open] = PAGES.map(([pattern, open_]) => [pattern.exec(location.hash), open_]).find(([match]) => match);
  shown = open(found);
  for (const link of document.querySelectorAll(".bar nav a")) {
    if (link.getAttribute("href") === (location.hash || "#/")) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  look();
}

async function look() {
  const page = shown;
  if (page === null || document.hidden) return;
  try {
    await page.look();
    show(live, "live");
    live.className = "live on";
  } catch (error) {
    show(live, "not connected");
    live.className = "live off";
  }
}

function signOff(why) {
  shown = null;
  document.getElementById("sign-out").hidden = true;
  askForToken(main, "limit service", why, begin);
}

async function begin() {
  try {
    const here = await session();
    if (here.needed && here.name === null) return signOff();
    const out = document.getElementById("sign-out");
    out.hidden = !here.needed;
    out.title = here.needed ? `signed in as ${here.name}` : "";
  } catch (error) {
    show(main, h("p", { class: "refusal", role: "alert" }, `The limit service does not answer: ${error.message}`));
    setTimeout(begin, 5000);
    return undefined;
  }
  route();
  return undefined;
}

document.getElementById("sign-out").addEventListener("click", async () => {
  await signOut();
  signOff();
});
window.addEventListener("signed-out", () => signOff("The token is not valid any more."));
window.addEventListener("hashchange", () => {
  if (shown !== null) route();
  main.focus();
});
setInterval(look, LOOK_MS);
begin();
