// Who loses what from whom in the whole LAN: what this peer counts itself, and what the other peers report.

import { bounds, count, name, plural } from "/format.js";
import { grade, inbound, outbound } from "/state.js";

/** The losses of each snapshot, computed once. */
const computed = new WeakMap();

/** Returns a loss with the part of it that was sent to the receiver alone. */
function amount(lost, inbox) {
  return inbox ? `${bounds(lost)} and ${count(inbox)} to it alone` : bounds(lost);
}

function ofThisPeer(state, row) {
  return {
    ...inbound(state, row),
    receiver: state.snapshot.status.epoch,
    receiverName: "this peer",
    publisher: row.epoch,
    publisherName: name(row),
    count: amount(row.lost, row.ibx_loss.count),
    repaired: row.repaired.count,
    pending: row.datagrams.pending,
    why: row.verdict,
  };
}

function ofReport(state, peer, row, names) {
  const { status, time } = state.snapshot;
  const isOwn = row.epoch === status.epoch;
  const [lost, repaired] = state.recentOf(row, time);
  return {
    ...grade(row.lostAtLeast, lost, repaired, row.pending),
    receiver: peer.epoch,
    receiverName: name(peer),
    publisher: row.epoch,
    publisherName: isOwn ? "this peer" : (names.get(row.epoch) ?? name(row)),
    count: amount(row.lost, row.inbox_lost),
    repaired: row.repaired,
    pending: row.pending,
    why: "",
  };
}

/** Returns what a peer that does not report has told this peer when it requested messages again. */
function ofReceiver(state, row) {
  return {
    ...outbound(state, row),
    receiver: row.epoch,
    receiverName: name(row),
    publisher: state.snapshot.status.epoch,
    publisherName: "this peer",
    count: amount(row.lost, row.inbox_lost),
    repaired: row.repaired,
    pending: row.pending,
    why: row.overrun ? `${plural(row.overrun, "datagram")} dropped by its kernel` : "",
  };
}

function compute(state) {
  const { peers, loss, outbound: receivers } = state.snapshot;
  const names = new Map(peers.map((peer) => [peer.epoch, name(peer)]));
  const states = new Map(peers.map((peer) => [peer.epoch, peer.state]));
  const pairs = loss.map((row) => ofThisPeer(state, row));
  const unknown = [];
  for (const peer of peers) {
    const report = state.reports.get(peer.epoch);
    if (peer.state === "up" && report?.state === "reported") {
      pairs.push(...[...report.pairs.values()].map((row) => ofReport(state, peer, row, names)));
      continue;
    }
    const row = receivers.find((row) => row.epoch === peer.epoch);
    if (row) pairs.push(ofReceiver(state, row));
    const reasons = { up: report?.reason ?? "it is not asked yet", silent: "nothing is heard of it" };
    const reason = reasons[peer.state];
    if (reason) unknown.push({ epoch: peer.epoch, name: name(peer), reason });
  }
  for (const pair of pairs) {
    const ended = [states.get(pair.publisher), states.get(pair.receiver)].find((now) => now && now !== "up");
    if (ended && pair.state === "good") Object.assign(pair, { state: "idle", text: `complete until it was ${ended}` });
  }
  const byPair = new Map(pairs.map((pair) => [`${pair.receiver} ${pair.publisher}`, pair]));
  return { pairs, unknown, find: (receiver, publisher) => byPair.get(`${receiver} ${publisher}`) };
}

/**
 * Returns the losses in the LAN: `pairs` of a receiver and a publisher, the peers that are up or silent and do not
 * report (`unknown`), and a function that finds a pair by both epochs.
 */
export function lanLosses(state) {
  if (!computed.has(state.snapshot)) computed.set(state.snapshot, compute(state));
  return computed.get(state.snapshot);
}

/** Returns the state of the LAN: a class, a sign, a title and a sentence. */
export function verdict(state) {
  const { health, peers, status } = state.snapshot;
  const broken = health.findings.filter((finding) => finding.severity === "broken");
  if (status.phase !== "running") return { state: "idle", sign: "■", title: "The peer is stopping", text: "" };
  if (broken.length) return { state: "bad", sign: "✕", title: "The network does not work", text: broken[0].found };
  const ups = peers.filter((peer) => peer.state === "up").length;
  const { pairs, unknown } = lanLosses(state);
  const sum = (isHere, field) =>
    pairs.reduce((total, pair) => total + ((pair.receiver === status.epoch) === isHere ? pair[field] : 0), 0);
  const both = (isHere) => ({ lost: sum(isHere, "lost"), recent: sum(isHere, "recent") });
  const [here, elsewhere] = [both(true), both(false)];
  const missing = unknown.length
    ? ` What ${plural(unknown.length, "other peer")} may lose is not known: no report comes.`
    : "";
  if (here.recent + elsewhere.recent > 0) {
    const text = `Here: ${count(here.recent)} in the last minute, ${count(here.lost)} since the start. At other peers:
      ${count(elsewhere.recent)} in the last minute, ${count(elsewhere.lost)} since their start.${missing}`;
    return { state: "bad", sign: "✕", title: "Messages are being lost", text };
  }
  const past = here.lost + elsewhere.lost;
  if (pairs.some((pair) => pair.text === "repairing")) {
    const text = `Lost earlier: ${count(past)}.${missing}`;
    return { state: "warn", sign: "↻", title: "Missing messages are being repaired", text };
  }
  if (ups === 0) {
    return { state: "idle", sign: "○", title: "No other peer is here", text: "Nothing can be lost or received yet." };
  }
  if (past > 0) {
    const text = `Earlier ${count(here.lost)} were lost here, and ${count(elsewhere.lost)} at other peers.${missing}`;
    return { state: "warn", sign: "!", title: "All messages arrive now", text };
  }
  if (missing) return { state: "good", sign: "✓", title: "All messages arrive here", text: missing.trim() };
  const text = "No peer has lost anything since its start.";
  return { state: "good", sign: "✓", title: "All messages arrive", text };
}
