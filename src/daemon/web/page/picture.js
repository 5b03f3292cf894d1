// The LAN as a picture: all peers on a circle, and between them who loses what from whom.

import { make, setText } from "/dom.js";
import { count, name, plural } from "/format.js";
import { lanLosses } from "/losses.js";

const SVG = "http://www.w3.org/2000/svg";
const [WIDTH, HEIGHT] = [760, 500];
const RADIUS = 26;
/** Distance of an edge from the straight line between its nodes. */
const BEND = 44;
/** Maximum number of peers in the picture; the table has all. */
const NODES_MAX = 40;
/** Maximum number of peers between which all edges are drawn. Among more of them only losses and repairs are. */
const MESH_MAX = 12;
const SIGNS = { up: "●", silent: "?", left: "–", crashed: "✕" };

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

/** Returns the edges between the shown peers, from the publisher to the receiver. */
function edgesOf(state, epochs) {
  const { pairs, unknown, find } = lanLosses(state);
  const shown = new Set(epochs);
  const isMesh = epochs.length <= MESH_MAX;
  const drawn = isMesh ? ["bad", "warn", "good"] : ["bad", "warn"];
  const known = pairs.filter(
    (pair) => drawn.includes(pair.state) && shown.has(pair.receiver) && shown.has(pair.publisher),
  );
  if (!isMesh) return known;
  const isOpen = (receiver, publisher) => receiver !== publisher && !find(receiver, publisher);
  const open = unknown
    .filter(({ epoch }) => shown.has(epoch))
    .flatMap(({ epoch, reason }) =>
      epochs
        .filter((publisher) => isOpen(epoch, publisher))
        .map((publisher) => ({
          receiver: epoch,
          publisher,
          state: "unknown",
          lost: 0,
          text: `not known: ${reason}`,
        })),
    );
  return [...open, ...known];
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
  const bent = shift(middle, 0, BEND - 8);
  // Opposite edges cross in their middles, so labels are nearer to the receivers.
  const label = shift(middle, length / 8, BEND / 2 + 4);
  const anchor = Math.abs(side.x) < 0.4 ? "middle" : side.x > 0 ? "start" : "end";
  const at = ({ x, y }) => `${x.toFixed(1)},${y.toFixed(1)}`;
  return { path: `M${at(a)} Q${at(bent)} ${at(b)}`, label, anchor };
}

function drawEdge(start, end, { state, lost, text }, title) {
  const { path, label, anchor } = curve(start, end);
  const line = draw("path", { d: path, class: `edge ${state}`, "marker-end": `url(#arrow-${state})` });
  line.append(draw("title", {}, `${title}: ${text}`));
  if (lost === 0) return [line];
  const place = { x: label.x.toFixed(1), y: (label.y + 4).toFixed(1), class: `label ${state} ${anchor}` };
  return [line, draw("text", place, `${count(lost)} lost`)];
}

function drawMarkers() {
  const colours = { good: "var(--good)", warn: "var(--warn)", bad: "var(--bad)", unknown: "var(--quiet)" };
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
  const [circle, sign, text, note] = [
    draw("circle", { r: RADIUS }),
    draw("text", { "aria-hidden": "true" }),
    draw("text", {}),
    draw("text", { class: "remark" }),
  ];
  const link = draw("a", {}, circle, sign, text, note);
  const update = ({ point, label, mark, href, kind, description, isAbove, remark }) => {
    setAll(link, { href, "aria-label": description });
    setAll(circle, { cx: point.x, cy: point.y, class: `node ${kind}` });
    setAll(sign, { x: point.x, y: point.y + 5 });
    const line = isAbove ? point.y - RADIUS - (remark ? 22 : 8) : point.y + RADIUS + 17;
    setAll(text, { x: point.x, y: line, class: "name" });
    setAll(note, { x: point.x, y: line + 14 });
    setText(note, remark);
    setText(sign, mark);
    setText(text, fit(label));
  };
  return { link, update };
}

/** Returns the place of a node on the circle. */
function place(index, total) {
  const middle = { x: WIDTH / 2, y: HEIGHT / 2 };
  if (total === 1) return middle;
  const angle = (index / total) * 2 * Math.PI - Math.PI / 2 + (total === 2 ? Math.PI / 2 : 0);
  const [x, y] = [middle.x + Math.cos(angle) * (WIDTH / 2 - 120), middle.y + Math.sin(angle) * (HEIGHT / 2 - 66)];
  return { x: Math.round(x), y: Math.round(y) };
}

/** Describes a peer for those who do not see the picture. */
function describe(state, peer, unreported) {
  const { pairs, find } = lanLosses(state);
  const { epoch } = state.snapshot.status;
  const part = (pair, none) => (pair ? `${pair.count}, ${pair.text}` : none);
  const noMessages = unreported ? "not known" : "no messages yet";
  const losing = pairs.filter((pair) => pair.receiver === peer.epoch && pair.state === "bad").length;
  return [
    `${name(peer)}, ${peer.state}.`,
    `Lost here of its messages: ${part(find(epoch, peer.epoch), "no messages yet")}.`,
    `Lost there of the messages from here: ${part(find(peer.epoch, epoch), noMessages)}.`,
    unreported ? `It reports nothing: ${unreported.reason}.` : "",
    losing ? `It is losing messages of ${plural(losing, "peer")}.` : "",
  ]
    .filter(Boolean)
    .join(" ");
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
    legend("unknown", "not known: the receiver reports nothing"),
    make("li", {}, "no line: no messages"),
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
    const shown = peers.slice(0, NODES_MAX - 1);
    const ids = [status.epoch, ...shown.map((peer) => peer.epoch)];
    const points = new Map(ids.map((id, index) => [id, place(index, ids.length)]));
    const { unknown } = lanLosses(state);
    const node = (id) => ({ point: points.get(id), isAbove: points.get(id).y < HEIGHT / 2 });
    shown.forEach((peer) => {
      const unreported = unknown.find(({ epoch }) => epoch === peer.epoch);
      nodeOf(peer.epoch).update({
        ...node(peer.epoch),
        label: name(peer),
        mark: SIGNS[peer.state] ?? "?",
        href: `#/peer/${peer.epoch}`,
        kind: peer.state === "up" ? "" : "gone",
        description: describe(state, peer, unreported),
        remark: unreported ? "reports nothing" : "",
      });
    });
    nodeOf(status.epoch).update({
      ...node(status.epoch),
      label: status.name,
      mark: "",
      href: "#/clients",
      kind: "self",
      description: `${status.name}, this peer: its clients`,
      remark: "",
    });
    // Nodes stay the same elements while their peers stay, so that the focus stays on them.
    if (ids.join() !== order) {
      order = ids.join();
      links.replaceChildren(...ids.map((id) => nodes.get(id).link));
      for (const id of nodes.keys()) if (!ids.includes(id)) nodes.delete(id);
    }
    const lines = edgesOf(state, ids).map(({ receiver, publisher, state, lost, text }) => ({
      receiver,
      publisher,
      state,
      lost,
      text,
    }));
    const now = JSON.stringify([ids, lines]);
    if (now !== drawn) {
      drawn = now;
      const labels = new Map([[status.epoch, status.name], ...shown.map((peer) => [peer.epoch, name(peer)])]);
      const line = (edge) => {
        const title = `At ${labels.get(edge.receiver)} from ${labels.get(edge.publisher)}`;
        return drawEdge(points.get(edge.publisher), points.get(edge.receiver), edge, title);
      };
      edges.replaceChildren(...lines.flatMap(line));
    }
    const notes = [
      peers.length > shown.length && `${plural(peers.length - shown.length, "more peer")} in the table of peers.`,
      ids.length > MESH_MAX && "Among so many peers, only losses and repairs are drawn.",
    ];
    setText(note, notes.filter(Boolean).join(" "));
  };
  const title = make("h3", {}, "All peers");
  return { element: make("section", { class: "card picture" }, title, svg, key, note), update };
}
