// The frame: signs in, listens to the stream of news, and shows the page that the address names.

import { broker } from "/page/broker.js";
import { contract, contracts } from "/page/contracts.js";
import { show } from "/page/dom.js";
import { brokers, topics } from "/page/lists.js";
import { askForToken, isSignedIn, onSignOut } from "/page/sign_in.js";
import { submit } from "/page/submit.js";
import { topic } from "/page/topic.js";

const main = document.getElementById("main");
const live = document.getElementById("live");
const events = [];  // newest first
let stream = null;
let shown = null;  // the page that is shown: {update(news), close()}
let latest = null;  // the latest news

const PAGES = [
  [/^#\/topics\/([^/]+)$/, (found) => topic(main, decodeURIComponent(found[1]))],
  [/^#\/brokers\/([^/]+)$/, (found) => broker(main, decodeURIComponent(found[1]))],
  [/^#\/brokers$/, () => brokers(main)],
  [/^#\/contracts\/new$/, () => contract(main)],
  [/^#\/contracts\/([^/]+)\/(.+)$/, (found) => contract(main, decodeURIComponent(found[1]), decodeURIComponent(found[2]))],
  [/^#\/contracts$/, () => contracts(main)],
  [/^#\/submit$/, () => submit(main)],
  [/^/, () => topics(main)],
];

function route() {
  if (shown && shown.close) shown.close();
  for (const [pattern, open] of PAGES) {
    const found = pattern.exec(location.hash);
    if (!found) continue;
    shown = open(found);
    break;
  }
  for (const link of document.querySelectorAll(".bar nav a")) {
    const here = link.getAttribute("href") === (location.hash || "#/");
    if (here) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  if (latest && shown.update) shown.update(latest, events);
}

function listen() {
  if (stream) stream.close();
  stream = new EventSource("/v1/events");
  stream.onopen = () => show(live, "live");
  stream.onmessage = (message) => {
    latest = JSON.parse(message.data);
    events.unshift(...latest.events.reverse());
    events.length = Math.min(events.length, 200);
    show(live, "live");
    live.className = "live on";
    if (shown && shown.update) shown.update(latest, events);
  };
  stream.onerror = () => {
    show(live, "not connected");
    live.className = "live off";
    if (stream.readyState === EventSource.CLOSED) setTimeout(begin, 5000);
  };
}

function signOff(why) {
  if (stream) stream.close();
  if (shown && shown.close) shown.close();
  shown = null;
  document.getElementById("sign-out").hidden = true;
  askForToken(main, "distributor", why, begin);
}

async function begin() {
  if (!(await isSignedIn(main, "distributor", signOff, begin))) return;
  listen();
  route();
}

onSignOut(signOff);
window.addEventListener("hashchange", () => {
  route();
  main.focus();
});
begin();
