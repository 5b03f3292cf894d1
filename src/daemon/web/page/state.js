// The snapshots of the peer, one a second, the summaries of other peers, and the rates between them.

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

/** Returns the name of the line of a subject and its publisher. */
export function subjectLine(row) {
  return `subject ${row.epoch} ${row.kind} ${row.subject}`;
}

/** Returns a row of a summary with its rises within the last minute. `before` are the rows of the summary before. */
function risenPair(row, time, before) {
  const lostAtLeast = lowest(row.lost) + row.inbox_lost;
  const last = before.get(row.epoch);
  const rises = (last?.rises ?? []).filter((rise) => time - rise.time < RECENT * 1000);
  if (last && (lostAtLeast > last.lostAtLeast || row.repaired > last.repaired)) {
    const rise = (now, past) => Math.max(now - past, 0);
    rises.push({ time, lost: rise(lostAtLeast, last.lostAtLeast), repaired: rise(row.repaired, last.repaired) });
  }
  return { ...row, lostAtLeast, rises };
}

/** What the page knows. */
export class State {
  constructor() {
    this.snapshot = null;
    this.times = [];
    this.series = new Map();
    /** The summaries of other peers, by epoch. */
    this.reports = new Map();
  }

  /** Takes summaries that other peers give, or the reasons why they give none. */
  takeReports(reports) {
    for (const report of reports) {
      const before = this.reports.get(report.epoch)?.pairs ?? new Map();
      const rows = report.rows?.map((row) => [row.epoch, risenPair(row, report.time, before)]);
      // A peer that does not answer for a while may continue where it was.
      this.reports.set(report.epoch, { ...report, pairs: rows ? new Map(rows) : before });
    }
  }

  /** Takes a snapshot. */
  take(snapshot) {
    this.takeReports(snapshot.reports);
    const known = new Set(snapshot.peers.map((peer) => peer.epoch));
    for (const epoch of this.reports.keys()) if (!known.has(epoch)) this.reports.delete(epoch);
    const seconds = this.snapshot ? (snapshot.time - this.snapshot.time) / 1000 : 0;
    if (this.snapshot && this.snapshot.status.epoch !== snapshot.status.epoch) this.series.clear();
    this.times.push(snapshot.time / 1000);
    const counts = new Map();
    for (const [name, counter] of Object.entries(COUNTED)) counts.set(name, snapshot.counters[counter] ?? 0);
    for (const row of snapshot.loss) {
      counts.set(`lost ${row.epoch}`, row.msg_loss.count + row.ibx_loss.count);
      counts.set(`repaired ${row.epoch}`, row.repaired.count);
    }
    for (const row of snapshot.loss_by_subject) counts.set(subjectLine(row), lowest(row.lost));
    for (const row of snapshot.peers) counts.set(`from ${row.epoch}`, row.messages_in);
    for (const row of snapshot.outbound) counts.set(`outbound ${row.epoch}`, lowest(row.lost) + row.inbox_lost);
    for (const [name, current] of counts) {
      if (!this.series.has(name)) this.series.set(name, new Series(this.times.length - 1));
      this.series.get(name).append(current, seconds);
    }
    for (const [name, series] of this.series) {
      if (!counts.has(name)) {
        series.values.push(null);
        series.before = null;
      }
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

  /** Returns the messages that a receiver lately lost and repaired, by its own reports. */
  recentOf(pair, time) {
    const recent = pair.rises.filter((rise) => time - rise.time < RECENT * 1000);
    return ["lost", "repaired"].map((field) => recent.reduce((sum, rise) => sum + rise[field], 0));
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
  return grade(lowest(row.lost) + row.inbox_lost, state.risen(`outbound ${row.epoch}`), 0, row.pending);
}

/** Returns a class and a few words for a loss. */
export function grade(lost, recent, repaired, pending) {
  if (recent > 0) return { state: "bad", lost, recent, text: `losing: ${recent} in the last minute` };
  if (repaired > 0 || pending > 0) return { state: "warn", lost, recent, text: "repairing" };
  if (lost > 0) return { state: "warn", lost, recent, text: "lost earlier" };
  return { state: "good", lost, recent, text: "complete" };
}
