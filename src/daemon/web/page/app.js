// The page: it follows the snapshots of the peer and shows the view that the address names.

import { make, setText } from "/dom.js";
import { makeLan } from "/lan.js";
import { makeMessages } from "/messages.js";
import { makePeer, makePeers } from "/peer.js";
import { makeSites } from "/sites.js";
import { State } from "/state.js";
import { makeClients, makeLosses, makeStreams, makeSubject, makeSubjects } from "/views.js";

/** Pause before the page connects again, in milliseconds. */
const RETRY = 3000;
/** Time without a snapshot after which the numbers count as old, in milliseconds. */
const STALE = 4000;

const VIEWS = [
  ["", "LAN", makeLan],
  ["peers", "Peers", makePeers, "peer"],
  ["losses", "Losses", makeLosses],
  ["subjects", "Subjects", makeSubjects, "subject"],
  ["clients", "Clients", makeClients],
  ["streams", "Streams", makeStreams],
  ["sites", "Sites", makeSites],
  ["messages", "Messages", makeMessages, "messages"],
];
const SINGLE = { peer: makePeer, subject: makeSubject, messages: makeMessages };

const state = new State();
const content = document.getElementById("content");
const connection = document.getElementById("connection");
let view = null;
let current = [];
let staleTimer = null;

/** Returns the parts of the address behind #/. */
function route() {
  const parts = location.hash.replace(/^#\/?/, "").split("/");
  return parts.map((part) => {
    try {
      return decodeURIComponent(part);
    } catch {
      return part;
    }
  });
}

function makeView([first, second]) {
  if (SINGLE[first] && second) return SINGLE[first](second);
  const [, , maker] = VIEWS.find(([path]) => path === first) ?? VIEWS[0];
  return maker();
}

function showView(focus) {
  view?.close?.();
  current = route();
  view = makeView(current);
  content.replaceChildren(view.element);
  for (const link of document.querySelectorAll("#views a")) {
    const [path, , , single] = VIEWS[link.dataset.index];
    const isCurrent = path === current[0] || (single && single === current[0]);
    if (isCurrent) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  view.open?.();
  refresh();
  if (focus) content.focus();
}

function refresh() {
  if (!state.snapshot) return;
  const { status } = state.snapshot;
  view.update(state);
  setText(document.getElementById("peer-name"), status.name);
  document.getElementById("open").hidden = !status.open_to_network;
  setText(
    document.getElementById("identity"),
    `group ${status.group} port ${status.port}, ${status.interface} ${status.address}`,
  );
  document.title = `${view.title} – ${status.name} – seqcast`;
}

function setConnection(name, text) {
  connection.dataset.state = name;
  setText(connection, text);
  content.classList.toggle("stale", name === "lost");
}

/** Follows the snapshots. The browser connects again by itself after an error, unless the server refuses. */
function follow() {
  const source = new EventSource("/api/v1/live");
  const lose = (text) => setConnection("lost", text);
  source.addEventListener("reports", (event) => state.takeReports(JSON.parse(event.data)));
  source.addEventListener("snapshot", (event) => {
    state.take(JSON.parse(event.data));
    setConnection("live", "Live");
    clearTimeout(staleTimer);
    staleTimer = setTimeout(() => lose("No answer from the peer; the numbers are old"), STALE);
    refresh();
  });
  source.addEventListener("error", () => {
    lose("The connection to the peer is lost; the numbers are old");
    if (source.readyState !== EventSource.CLOSED) return;
    source.close();
    setTimeout(follow, RETRY);
  });
}

document
  .getElementById("views")
  .append(
    ...VIEWS.map(([path, title], index) =>
      make("li", {}, make("a", { href: `#/${path}`, "data-index": index }, title)),
    ),
  );
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault();
  content.focus();
});
addEventListener("hashchange", () => showView(true));
showView(false);
follow();
