// The LAN as a picture: this peer in the middle, the others on a circle, and between them who loses what from whom.

import { make, setText } from "/dom.js";
import { bounds, name } from "/format.js";
import { inbound, outbound } from "/state.js";

const SVG = "http://www.w3.org/2000/svg";
const [WIDTH, HEIGHT] = [760, 500];
const RADIUS = 26;
/** Distance of an edge from the straight line between its nodes. */
const BEND = 44;
/** Maximum number of peers in the picture; the table has all. */
const NODES_MAX = 40;
const SIGNS = { up: "●", silent: "?", left: "–", crashed: "✕" };
const NOTHING = { state: "idle", lost: 0, recent: 0, text: "no messages yet" };

function draw(tag, attributes, ...children) {
  const element = document.createElementNS(SVG, tag);
  setAll(element, attributes);
  element.append(...children);
  return element;
}

function setAll(element, attributes) {
  for (const [key, value] of Object.entries(attributes)) {
    if (element.getAttribute(key) !== String(value)) element.setAttribute(key, value);
  }
}

/** Returns a name that fits beside a node. */
function fit(text) {
  return text.length > 20 ? `${text.slice(0, 19)}…` : text;
}

/** Returns the losses between this peer and another one, in both directions. */
function relation(state, peer) {
  const from = state.snapshot.loss.find((row) => row.epoch === peer.epoch);
  const to = state.snapshot.outbound.find((row) => row.epoch === peer.epoch);
  const complete = peer.state === "up" && from ? { ...NOTHING, state: "good", text: "complete" } : NOTHING;
  const soften = (found) =>
    peer.state !== "up" && found.state === "good"
      ? { ...found, state: "idle", text: `complete until it was ${peer.state}` }
      : found;
  return {
    from: { ...(from ? soften(inbound(state, from)) : NOTHING), count: from ? bounds(from.lost) : "0" },
    to: { ...(to ? soften(outbound(state, to)) : complete), count: to ? bounds(to.lost) : "0" },
  };
}

/** Returns the path of an edge, bent to its right, and the place of its label outside of the bend. */
function curve(start, end) {
  const [dx, dy] = [end.x - start.x, end.y - start.y];
  const length = Math.hypot(dx, dy) || 1;
  const [ux, uy] = [dx / length, dy / length];
  const side = { x: -uy, y: ux };
  const shift = (point, along, across) => ({
    x: point.x + ux * along + side.x * across,
    y: point.y + uy * along + side.y * across,
  });
  const [a, b] = [shift(start, RADIUS, 8), shift(end, -RADIUS - 4, 8)];
  const middle = { x: (a.x + b.x) / 2, y: (a.y + b.y) / 2 };
  const [bent, label] = [shift(middle, 0, BEND - 8), shift(middle, 0, BEND / 2 + 4)];
  const anchor = Math.abs(side.x) < 0.4 ? "middle" : side.x > 0 ? "start" : "end";
  const at = ({ x, y }) => `${x.toFixed(1)},${y.toFixed(1)}`;
  return { path: `M${at(a)} Q${at(bent)} ${at(b)}`, label, anchor };
}

function drawEdge(start, end, { state, lost, text, count }, title) {
  const { path, label, anchor } = curve(start, end);
  const line = draw("path", { d: path, class: `edge ${state}`, "marker-end": `url(#arrow-${state})` });
  line.append(draw("title", {}, `${title}: ${text}`));
  if (lost === 0) return [line];
  const place = { x: label.x.toFixed(1), y: (label.y + 4).toFixed(1), class: `label ${state} ${anchor}` };
  return [line, draw("text", place, `${count} lost`)];
}

function drawMarkers() {
  const colours = { good: "var(--good)", warn: "var(--warn)", bad: "var(--bad)", idle: "var(--quiet)" };
  const shape = { viewBox: "0 0 8 8", refX: 5, refY: 4, markerWidth: 9, markerHeight: 9, orient: "auto" };
  const marker = ([state, fill]) =>
    draw(
      "marker",
      { id: `arrow-${state}`, markerUnits: "userSpaceOnUse", ...shape },
      draw("path", { d: "M0,0 8,4 0,8Z", fill }),
    );
  return draw("defs", {}, ...Object.entries(colours).map(marker));
}

/** Makes a node, which is a link to its view. */
function makeNode() {
  const [circle, sign, text] = [
    draw("circle", { r: RADIUS }),
    draw("text", { "aria-hidden": "true" }),
    draw("text", {}),
  ];
  const link = draw("a", {}, circle, sign, text);
  const update = ({ point, label, mark, href, kind, description, isAbove }) => {
    setAll(link, { href, "aria-label": description });
    setAll(circle, { cx: point.x, cy: point.y, class: `node ${kind}` });
    setAll(sign, { x: point.x, y: point.y + 5 });
    setAll(text, { x: point.x, y: isAbove ? point.y - RADIUS - 8 : point.y + RADIUS + 17, class: "name" });
    setText(sign, mark);
    setText(text, fit(label));
  };
  return { link, update };
}

/** Returns the place of a node on the circle. */
function place(index, total, middle) {
  const angle = (index / total) * 2 * Math.PI - Math.PI / 2 + (total === 2 ? Math.PI / 2 : 0);
  const [x, y] = [middle.x + Math.cos(angle) * (WIDTH / 2 - 100), middle.y + Math.sin(angle) * (HEIGHT / 2 - 60)];
  return { x: Math.round(x), y: Math.round(y) };
}

function describe(peer, { from, to }) {
  return (
    `${name(peer)}, ${peer.state}. Lost here of its messages: ${from.count}, ${from.text}. ` +
    `Lost there of the messages from here: ${to.count}, ${to.text}.`
  );
}

/** Makes the picture. */
export function makePicture() {
  const [edges, links] = [draw("g", { "aria-hidden": "true" }), draw("g", {})];
  const view = { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "group", "aria-label": "Picture of the LAN" };
  const svg = draw("svg", view, drawMarkers(), edges, links);
  const sample = (state) =>
    draw("svg", { viewBox: "0 0 34 8", "aria-hidden": "true" }, draw("path", { d: "M0,4H34", class: `edge ${state}` }));
  const legend = (state, text) => make("li", {}, sample(state), text);
  const key = make(
    "ul",
    { class: "legend" },
    legend("good", "complete"),
    legend("warn", "repairing, or lost earlier"),
    legend("bad", "losing now"),
    legend("idle", "no messages"),
  );
  const note = make("p", { class: "quiet" });
  const nodes = new Map();
  let order = null;
  let drawn = "";

  const nodeOf = (id) => {
    if (!nodes.has(id)) nodes.set(id, makeNode());
    return nodes.get(id);
  };
  const update = (state) => {
    const { status, peers } = state.snapshot;
    const shown = peers.slice(0, NODES_MAX);
    const middle = { x: WIDTH / 2, y: HEIGHT / 2 };
    const relations = shown.map((peer) => relation(state, peer));
    const points = shown.map((_, index) => place(index, shown.length, middle));
    shown.forEach((peer, index) => {
      nodeOf(peer.epoch).update({
        point: points[index],
        label: name(peer),
        mark: SIGNS[peer.state] ?? "?",
        href: `#/peer/${peer.epoch}`,
        kind: peer.state === "up" ? "" : "gone",
        description: describe(peer, relations[index]),
        isAbove: points[index].y < middle.y,
      });
    });
    nodeOf("").update({
      point: middle,
      label: status.name,
      mark: "",
      href: "#/clients",
      kind: "self",
      description: `${status.name}, this peer: its clients`,
      isAbove: false,
    });
    // Nodes stay the same elements while their peers stay, so that the focus stays on them.
    const ids = [...shown.map((peer) => peer.epoch), ""];
    if (ids.join() !== order) {
      order = ids.join();
      links.replaceChildren(...ids.map((id) => nodes.get(id).link));
      for (const id of nodes.keys()) if (!ids.includes(id)) nodes.delete(id);
    }
    const now = JSON.stringify([points, relations]);
    if (now !== drawn) {
      drawn = now;
      const both = (peer, index) => [
        ...drawEdge(points[index], middle, relations[index].from, `Here from ${name(peer)}`),
        ...drawEdge(middle, points[index], relations[index].to, `At ${name(peer)} from here`),
      ];
      edges.replaceChildren(...shown.flatMap(both));
    }
    const more = peers.length - shown.length;
    setText(note, more > 0 ? `${more} more peers are in the table of peers.` : "");
  };
  const title = make("h3", {}, "The LAN, as this peer sees it");
  return { element: make("section", { class: "card picture" }, title, svg, key, note), update };
}
