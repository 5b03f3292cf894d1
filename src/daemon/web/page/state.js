// The snapshots of the peer, one a second, and the rates between them.

/** Number of points that are kept: a quarter of an hour. A tab that stays open for days keeps no more. */
const POINTS_MAX = 900;
/** Time for which a loss counts as recent, in seconds. */
export const RECENT = 60;

const COUNTED = { in: "messages_delivered", out: "messages_published", bytesIn: "bytes_in", bytesOut: "bytes_out" };

/** The points of one line of a plot, in step with the times. */
class Series {
  constructor(length) {
    this.values = new Array(length).fill(null);
    this.before = null;
  }

  /** Appends the rate since the last count; nothing after a pause or a restart. */
  append(current, seconds) {
    const rises = this.before !== null && seconds > 0 && seconds < 30 && current >= this.before;
    this.values.push(rises ? (current - this.before) / seconds : null);
    this.before = current;
  }
}

/** What the page knows. */
export class State {
  constructor() {
    this.snapshot = null;
    this.times = [];
    this.series = new Map();
  }

  /** Takes a snapshot. */
  take(snapshot) {
    const seconds = this.snapshot ? (snapshot.time - this.snapshot.time) / 1000 : 0;
    if (this.snapshot && this.snapshot.status.epoch !== snapshot.status.epoch) this.series.clear();
    this.times.push(snapshot.time / 1000);
    const counts = new Map();
    for (const [name, counter] of Object.entries(COUNTED)) counts.set(name, snapshot.counters[counter] ?? 0);
    for (const row of snapshot.loss) {
      counts.set(`lost ${row.epoch}`, row.msg_loss.count + row.ibx_loss.count);
      counts.set(`repaired ${row.epoch}`, row.repaired.count);
    }
    for (const row of snapshot.peers) counts.set(`from ${row.epoch}`, row.messages_in);
    for (const row of snapshot.outbound) counts.set(`outbound ${row.epoch}`, lowest(row.lost));
    for (const [name, current] of counts) {
      if (!this.series.has(name)) this.series.set(name, new Series(this.times.length - 1));
      this.series.get(name).append(current, seconds);
    }
    for (const [name, series] of this.series) {
      if (!counts.has(name)) series.values.push(null);
      if (this.times.length > POINTS_MAX) series.values.shift();
      if (series.values.every((value) => value === null) && !counts.has(name)) this.series.delete(name);
    }
    if (this.times.length > POINTS_MAX) this.times.shift();
    this.snapshot = snapshot;
  }

  /** Returns the values of a line. */
  values(name) {
    return this.series.get(name)?.values ?? new Array(this.times.length).fill(null);
  }

  /** Returns the last rate of a line. */
  last(name) {
    return this.values(name).at(-1) ?? null;
  }

  /** Returns by how much a line rose within the last seconds. */
  risen(name, seconds = RECENT) {
    const values = this.values(name);
    let sum = 0;
    for (let at = values.length - 1; at > 0 && this.times[at] > this.times.at(-1) - seconds; at -= 1) {
      sum += (values[at] ?? 0) * (this.times[at] - this.times[at - 1]);
    }
    return Math.round(sum);
  }
}

/** Returns the lower bound of a count. */
export function lowest(count) {
  return count !== null && typeof count === "object" ? count.min : (count ?? 0);
}

/** Returns what this peer lost from a publisher: its class, numbers, and a few words. */
export function inbound(state, row) {
  const lost = row.msg_loss.count + row.ibx_loss.count;
  return grade(lost, state.risen(`lost ${row.epoch}`), state.risen(`repaired ${row.epoch}`), row.datagrams.pending);
}

/** Returns what a receiver lost from this peer. */
export function outbound(state, row) {
  return grade(lowest(row.lost), state.risen(`outbound ${row.epoch}`), 0, row.pending);
}

function grade(lost, recent, repaired, pending) {
  if (recent > 0) return { state: "bad", lost, recent, text: `losing: ${recent} in the last minute` };
  if (repaired > 0 || pending > 0) return { state: "warn", lost, recent, text: "repairing" };
  if (lost > 0) return { state: "warn", lost, recent, text: "lost earlier" };
  return { state: "good", lost, recent, text: "complete" };
}

/** Returns the state of the LAN as this peer sees it: a class, a sign, a title and a sentence. */
export function verdict(state) {
  const { health, loss, outbound: receivers, peers, status } = state.snapshot;
  const broken = health.findings.filter((finding) => finding.severity === "broken");
  if (status.phase !== "running") return { state: "idle", sign: "■", title: "The peer is stopping", text: "" };
  if (broken.length) return { state: "bad", sign: "✕", title: "The network does not work", text: broken[0].found };
  const ups = peers.filter((peer) => peer.state === "up").length;
  const rows = loss.map((row) => ({ row, ...inbound(state, row) }));
  const recent = rows.reduce((sum, row) => sum + row.recent, 0);
  const lost = rows.reduce((sum, row) => sum + row.lost, 0);
  const others = receivers.map((row) => outbound(state, row));
  const othersRecent = others.reduce((sum, row) => sum + row.recent, 0);
  const othersLost = others.reduce((sum, row) => sum + row.lost, 0);
  if (recent + othersRecent > 0) {
    const text = `Here: ${recent} in the last minute, ${lost} since the start. Other peers lost ${othersRecent} of the
      messages from here in the last minute, ${othersLost} since the start.`;
    return { state: "bad", sign: "✕", title: "Messages are being lost", text };
  }
  if (rows.some((row) => row.text === "repairing")) {
    return {
      state: "warn",
      sign: "↻",
      title: "Missing messages are being repaired",
      text: `Lost since the start: ${lost}.`,
    };
  }
  if (ups === 0) {
    return { state: "idle", sign: "○", title: "No other peer is here", text: "Nothing can be lost or received yet." };
  }
  const past = lost + othersLost;
  if (past > 0) {
    const text = `Earlier ${lost} were lost here, and ${othersLost} of the messages from here at other peers.`;
    return { state: "warn", sign: "!", title: "All messages arrive now", text };
  }
  return {
    state: "good",
    sign: "✓",
    title: "All messages arrive",
    text: `Nothing was lost since the start of this peer.`,
  };
}
