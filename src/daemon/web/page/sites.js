// The view of the link to other sites, and of what was lost on the way from them.

import { make, makeTable, setText } from "/dom.js";
import { bounds, clockOf, count } from "/format.js";
import { makeTiles } from "/lan.js";
import { lowest } from "/state.js";

/** Returns the link of the peer, or null if it is no gateway. */
function linkOf({ snapshot }) {
  return snapshot.status.link;
}

/** Returns the state of the link in words, with its class. */
function linkState(link) {
  if (!link) return { state: "idle", sign: "○", title: "This peer is no gateway", text: "" };
  if (link.conflict) return { state: "bad", sign: "✕", title: "The name of the site is in use", text: link.conflict };
  if (link.state === "connected") {
    const text = link.fault ? `The cluster refuses: ${link.fault}` : `Servers: ${link.hubs.join(", ")}`;
    return { state: link.fault ? "warn" : "good", sign: link.fault ? "!" : "✓", title: "Connected", text };
  }
  const title = link.state === "failed" ? "The link has failed" : "Not connected with the cluster";
  return { state: "bad", sign: "✕", title, text: link.fault ?? `No server answers: ${link.hubs.join(", ")}` };
}

function makeLinkState() {
  const [sign, title, text] = [make("span", { class: "sign", "aria-hidden": "true" }), make("strong"), make("p")];
  const element = make(
    "div",
    { class: "verdict" },
    sign,
    make("div", {}, make("div", { role: "status" }, title), text),
  );
  const update = (state) => {
    const now = linkState(linkOf(state));
    element.className = `verdict ${now.state}`;
    setText(sign, now.sign);
    setText(title, now.title);
    setText(text, now.text);
  };
  return { element, update };
}

function makeLinkTiles() {
  const field = (name) => (state) => count(linkOf(state)?.[name]);
  const patterns = (name) => (state) => linkOf(state)?.[name]?.join(", ") ?? "";
  return makeTiles([
    ["Site", (state) => linkOf(state)?.site ?? "–"],
    ["Shares of the subjects", (state) => (linkOf(state) ? `${linkOf(state).shares} of 16` : "–")],
    ["Exported", field("exported"), patterns("exports")],
    ["Imported", (state) => count(linkOf(state)?.sites.reduce((sum, row) => sum + row.imported, 0)), patterns("imports")],
    ["Not exported", field("unsent"), () => "cluster too slow or away"],
    ["Dropped on import", field("unread"), () => "LAN too slow"],
    ["Refused", field("refused"), () => "too large or not permitted"],
  ]);
}

function makeSiteTable() {
  return makeTable(
    "Other sites",
    [
      { title: "Site", text: (row) => row.site },
      { title: "Imported", number: true, text: (row) => count(row.imported) },
      { title: "Repeated", number: true, text: (row) => count(row.repeated) },
      {
        title: "Lost on the way",
        number: true,
        text: (row) => bounds(row.lost_min === row.lost_max ? row.lost_min : { min: row.lost_min, max: row.lost_max }),
        state: (row) => (row.lost_max === 0 ? "" : "bad"),
      },
      { title: "Tails", number: true, text: (row) => count(row.tails), state: (row) => (row.tails ? "bad" : "") },
    ],
    (row) => row.site,
    "Nothing has come from another site over this peer.",
  );
}

/** Returns what a row of losses counts, in words. */
function subjectAtSite(row) {
  const words = { other_subjects: "further subjects", tail: "behind the last known message" };
  return row.subject ?? words[row.kind] ?? row.kind;
}

/** Makes the table of the messages of other sites that were lost on the way. */
export function makeSiteLossTable() {
  const table = makeTable(
    "What was lost on the way from other sites",
    [
      { title: "Site", text: (row) => row.site },
      { title: "Publisher", text: (row) => row.publisher ?? row.epoch ?? "unknown" },
      { title: "Subject", text: subjectAtSite },
      { title: "Lost", number: true, text: (row) => bounds(row.lost), state: (row) => (lowest(row.lost) ? "bad" : "") },
      { title: "Tails", number: true, text: (row) => count(row.tails), state: (row) => (row.tails ? "bad" : "") },
      { title: "Last loss", text: (row) => clockOf(row.time_ns) },
    ],
    (row) => `${row.site} ${row.epoch} ${row.kind} ${row.subject}`,
    "No gateway of this LAN has reported a loss.",
  );
  const update = ({ snapshot }) => table.update(snapshot.loss_by_subject_sites ?? []);
  return { element: make("section", { class: "card" }, table.element), update };
}

/** Makes the view. */
export function makeSites() {
  const [link, tiles, sites, losses] = [makeLinkState(), makeLinkTiles(), makeSiteTable(), makeSiteLossTable()];
  const element = make(
    "div",
    {},
    make("h2", {}, "Sites"),
    link.element,
    tiles.element,
    make("section", { class: "card" }, sites.element),
    losses.element,
  );
  const update = (state) => {
    [link, tiles, losses].forEach((part) => part.update(state));
    sites.update(linkOf(state)?.sites ?? []);
  };
  return { title: "Sites", element, update };
}
