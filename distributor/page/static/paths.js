// Where topics and brokers are: in the distributor's interface, and on this page.

import { h } from "/page/dom.js";

export const topicPath = (name, rest = "") => `/v1/topics/${encodeURIComponent(name)}${rest}`;

export const brokerPath = (name, rest = "") => `/v1/brokers/${encodeURIComponent(name)}${rest}`;

export const topicLink = (name) => h("a", { href: `#/topics/${encodeURIComponent(name)}` }, name);

export const brokerLink = (name) => h("a", { href: `#/brokers/${encodeURIComponent(name)}` }, name);
