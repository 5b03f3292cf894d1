// The view of the link to other sites, and of what was lost on the way from them.

import { make, makeTable } from "/dom.js";
import { bounds, bytes, clockOf, count } from "/format.js";
import { makeTiles, makeVerdict } from "/lan.js";
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
    if (!link.fault && link.durable?.fault) {
      return { state: "warn", sign: "!", title: "Durable messages have a fault", text: link.durable.fault };
    }
    const text = link.fault ? `The cluster refuses: ${link.fault}` : `Servers: ${link.hubs.join(", ")}`;
    return { state: link.fault ? "warn" : "good", sign: link.fault ? "!" : "✓", title: "Connected", text };
  }
  const title = link.state === "failed" ? "The link has failed" : "Not connected with the cluster";
  return { state: "bad", sign: "✕", title, text: link.fault ?? `No server answers: ${link.hubs.join(", ")}` };
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

/** Makes the tiles of what passes beside live messages: requests, events and durable messages. */
function makeFurtherTiles() {
  const of = (part, name) => (state) => count(part(linkOf(state))?.[name]);
  const [requests, events, durable] = [(link) => link, (link) => link?.events, (link) => link?.durable];
  return makeTiles([
    ["Requests sent", of(requests, "requests_sent"), () => "once for each other site"],
    ["Requests delivered", of(requests, "requests_delivered"), () => "of other sites and clients"],
    ["No responders", of(requests, "no_responders"), () => "answered with 503"],
    ["Requests dropped", of(requests, "requests_dropped"), () => "no room, or a reply subject that is not allowed"],
    ["Events exported", of(events, "exported")],
    ["Events imported", of(events, "imported")],
    ["Durable messages waiting", of(durable, "waiting"), (state) => bytes(durable(linkOf(state))?.waiting_bytes)],
    ["Durable messages stored", of(durable, "stored"), (state) => durable(linkOf(state))?.stream ?? ""],
    ["Durable messages imported", of(durable, "imported")],
    ["Durable messages not stored", of(durable, "unstored"), () => "no room, or refused by the stream"],
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
  const [link, tiles, further] = [makeVerdict((state) => linkState(linkOf(state))), makeLinkTiles(), makeFurtherTiles()];
  const [sites, losses] = [makeSiteTable(), makeSiteLossTable()];
  const element = make(
    "div",
    {},
    make("h2", {}, "Sites"),
    link.element,
    tiles.element,
    further.element,
    make("section", { class: "card" }, sites.element),
    losses.element,
  );
  const update = (state) => {
    [link, tiles, further, losses].forEach((part) => part.update(state));
    sites.update(linkOf(state)?.sites ?? []);
  };
  return { title: "Sites", element, update };
}
