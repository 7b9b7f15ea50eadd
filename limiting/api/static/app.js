// The frame of the limit service's page: signs in, and shows what the address names, anew each two seconds.

import { contractEditor } from "/page/contract_editor.js";
import { contracts } from "/page/contracts.js";
import { show } from "/page/dom.js";
import { KINDS } from "/page/policies.js";
import { askForToken, isSignedIn, onSignOut } from "/page/sign_in.js";
import { subjects } from "/page/subjects.js";

const LOOK_MS = 2000;

const main = document.getElementById("main");
const live = document.getElementById("live");
let shown = null;  // the page that is shown: {look()}

const SERVICE = {
  contracts: "/limit/v1/contracts",
  files: "/limit/v1/contract-files",
  home: "#/",
  kinds: Object.keys(KINDS),
  modes: ["local", "replicated", "exact", "auto", "store", "counter", "queue"],
  modeLabel: "Held on several nodes",
  untold: "as --mode says",
  example: { namespace: "api", subject: "user:*" },
  counted: "Checks",
  inForce: "In force. Subjects keep what they have used.",
  removed: "Its subjects are not known any more: checks of them are answered with 404.",
  beneath: subjects,
};

const PAGES = [
  [/^#\/contracts\/([^/]+)\/(.+)$/, (found) => contractEditor(main, SERVICE, decodeURIComponent(found[1]), decodeURIComponent(found[2]))],
  [/^#\/contracts\/new$/, () => contractEditor(main, SERVICE)],
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
  if (!(await isSignedIn(main, "limit service", signOff, begin))) return;
  route();
}

onSignOut(signOff);
window.addEventListener("hashchange", () => {
  if (shown !== null) route();
  main.focus();
});
setInterval(look, LOOK_MS);
begin();
