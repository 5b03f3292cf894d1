// The view of the LAN: its state in words, its figures, the picture, the losses, and plots over time.

import { card, make, makeTable, setText } from "/dom.js";
import { bounds, bytes, clock, clockOf, count, name, plural, rate, span } from "/format.js";
import { lanLosses, verdict } from "/losses.js";
import { makePicture } from "/picture.js";
import { makePlot } from "/plots.js";
import { subjectLine } from "/state.js";

/** Maximum number of rows in the table of losses: the largest losses. */
const ROWS_MAX = 200;
/** Maximum number of lines in a plot of publishers: those with the most. */
const LINES_MAX = 6;

/** Makes the sentence about a state; `judge` returns its class, sign, title and text. */
export function makeVerdict(judge) {
  const [sign, title, text] = [make("span", { class: "sign", "aria-hidden": "true" }), make("strong"), make("p")];
  // Its title is announced when it changes; the numbers below it are not.
  const element = make(
    "div",
    { class: "verdict" },
    sign,
    make("div", {}, make("div", { role: "status" }, title), text),
  );
  const update = (state) => {
    const now = judge(state);
    element.className = `verdict ${now.state}`;
    setText(sign, now.sign);
    setText(title, now.title);
    setText(text, now.text.replace(/\s+/g, " "));
  };
  return { element, update };
}

/** Makes a list of figures: a title, a function to the value, and one to the small text below it. */
export function makeTiles(tiles) {
  const parts = tiles.map(() => ({ value: make("span"), note: make("small") }));
  const element = make(
    "dl",
    { class: "tiles" },
    tiles.map(([title], index) =>
      make("div", {}, make("dt", {}, title), make("dd", {}, parts[index].value, parts[index].note)),
    ),
  );
  const update = (state) =>
    tiles.forEach(([, value, note], index) => {
      setText(parts[index].value, value(state));
      setText(parts[index].note, note?.(state) ?? "");
    });
  return { element, update };
}

/** Makes the table of the losses between all peers of the LAN. */
export function makeLossTable() {
  const table = makeTable(
    "Who loses what from whom",
    [
      { title: "Receiver", text: (row) => row.receiverName },
      { title: "Publisher", text: (row) => row.publisherName },
      { title: "Now", text: (row) => row.text, state: (row) => row.state },
      { title: "Lost", number: true, text: (row) => row.count, state: (row) => (row.lost ? row.state : "") },
      { title: "Repaired", number: true, text: (row) => count(row.repaired) },
      { title: "Missing now", number: true, text: (row) => count(row.pending) },
      { title: "Explanation", text: (row) => row.why ?? "" },
    ],
    (row) => row.key,
    "No messages have been exchanged with another peer yet.",
  );
  const more = make("p", { class: "quiet" });
  const update = (state) => {
    const { pairs, unknown } = lanLosses(state);
    const rows = pairs.map((pair) => ({ ...pair, key: `${pair.receiver} ${pair.publisher}` }));
    const silent = unknown.map(({ epoch, name, reason }) => ({
      key: epoch,
      receiver: epoch,
      receiverName: name,
      publisherName: "other peers",
      state: "idle",
      text: "not known",
      count: "not known",
      repaired: null,
      pending: null,
      why: reason,
    }));
    const weight = { bad: 0, warn: 1, idle: 2, good: 3 };
    const sorted = [...rows, ...silent].sort(
      (a, b) => weight[a.state] - weight[b.state] || b.lost - a.lost || a.key.localeCompare(b.key),
    );
    table.update(sorted.slice(0, ROWS_MAX));
    const rest = sorted.length - ROWS_MAX;
    setText(more, rest > 0 ? `${plural(rest, "further row")} with smaller losses.` : "");
  };
  return { element: make("section", { class: "card" }, table.element, more), update };
}

/** Makes a plot of losses or repairs. `rows` returns the lines, each with its label and the name of its values. */
export function makeLossPlot(title, noun, rows) {
  const lines = (state) =>
    rows(state)
      .map(({ label, line }) => ({ label, values: state.values(line), sum: state.risen(line, 900) }))
      .sort((a, b) => b.sum - a.sum || a.label.localeCompare(b.label));
  return makePlot(title, {
    format: rate,
    lines: (state) => {
      const most = lines(state).slice(0, LINES_MAX);
      return most.length ? most : [{ label: "none", values: state.values("none") }];
    },
    describe: (state) => {
      const all = lines(state).filter((line) => line.sum > 0);
      if (all.length === 0) return `No message was ${noun} in the last 15 minutes.`;
      const most = all.slice(0, LINES_MAX).map((line) => `${count(line.sum)} from ${line.label}`);
      const more = all.length - most.length;
      return `In the last 15 minutes ${noun}: ${most.join(", ")}${more > 0 ? ` and more of ${count(more)}` : ""}.`;
    },
  });
}

/** Makes a plot with a line for each publisher. */
function makePublisherPlot(title, line, noun) {
  const rows = ({ snapshot }) => snapshot.loss.map((row) => ({ label: name(row), line: `${line} ${row.epoch}` }));
  return makeLossPlot(title, noun, rows);
}

/** Returns what a row of losses counts, in words. */
export function subjectOf(row) {
  const words = { other_subjects: "other subjects", inbox: "to this peer alone", unknown_subject: "unknown subjects" };
  return row.subject ?? words[row.kind] ?? row.kind;
}

/** Makes a plot with a line for each of the subjects and publishers of which most messages are lost. */
function makeSubjectPlot() {
  const rows = ({ snapshot }) =>
    snapshot.loss_by_subject.map((row) => ({ label: `${name(row)}: ${subjectOf(row)}`, line: subjectLine(row) }));
  return makeLossPlot("Lost messages a second, by subject and publisher", "lost", rows);
}

function makeMeters() {
  const list = make("div", { class: "meters" });
  const rows = new Map();
  const update = (state) => {
    const { windows, history_totals: history } = state.snapshot;
    const names = { pub: "Published subjects", sub: "Subscribed subjects" };
    const all = windows.map((row) => [
      names[row.window] ?? row.window,
      row.bytes,
      row.bytes_max,
      plural(row.subjects, "subject"),
    ]);
    if (history) all.push(["History", history.bytes, history.bytes_max, plural(history.events, "message")]);
    for (const [title, value, max, note] of all) {
      if (!rows.has(title)) {
        const meter = make("meter", { min: 0, max: 1, high: 0.9, "aria-label": `${title}, fill` });
        const text = make("span", { class: "quiet" });
        rows.set(title, { meter, text });
        list.append(make("span", {}, title), meter, text);
      }
      const { meter, text } = rows.get(title);
      meter.value = max ? value / max : 0;
      setText(text, `${bytes(value)} of ${bytes(max)}, ${note}`);
    }
  };
  return { element: card("Windows and history", list), update };
}

/** Makes the list of health findings. */
export function makeFindings() {
  const list = make("ul", { class: "findings" });
  const none = make("p", { class: "empty" }, "The checks of this host and its network find nothing.");
  let shown = "";
  const update = (state) => {
    const { findings } = state.snapshot.health;
    none.hidden = findings.length > 0;
    if (JSON.stringify(findings) === shown) return;
    shown = JSON.stringify(findings);
    const classes = { broken: "bad", warning: "warn", notice: "idle" };
    list.replaceChildren(
      ...findings.map((finding) =>
        make(
          "li",
          { class: classes[finding.severity] ?? "idle" },
          make("p", {}, make("strong", {}, `${finding.severity}: `), finding.found),
          make("p", { class: "quiet" }, finding.effect),
          make("p", {}, "Remedy: ", make("code", {}, finding.fix)),
          make("p", { class: "quiet" }, `since ${clock(finding.since)}`),
        ),
      ),
    );
  };
  return { element: card("Health", none, list), update };
}

/** Returns the site that an advisory is about, with the publisher if it is known; null if it is about this LAN. */
function ofSite({ site, publisher, epoch }) {
  const name = publisher ?? epoch;
  return site ? (name ? `${name} of site ${site}` : `site ${site}`) : null;
}

/** Makes the table of the last advisories, the newest first. */
export function makeAdvisories(limit) {
  const table = makeTable(
    "Last advisories",
    [
      { title: "Time", text: (row) => clockOf(row.time_ns) },
      { title: "Advisory", text: (row) => row.name },
      { title: "About", text: (row) => row.about },
      { title: "Lost", number: true, text: (row) => bounds(row.lost), state: (row) => (row.lost ? "bad" : "") },
      { title: "Subjects", text: (row) => row.subjects },
      { title: "Reason", text: (row) => row.reason },
    ],
    (row) => row.number,
    "No advisory since this peer started.",
  );
  const update = (state) =>
    table.update(
      state.snapshot.advisories
        .slice(-limit)
        .reverse()
        .map((advisory) => {
          const content = advisory.content ?? {};
          const subjects = Object.keys(content)
            .filter((key) => /^sub\d+$/.test(key))
            .slice(0, 4)
            .map((key) => content[key]);
          const more = (content.sub_cnt ?? 0) - subjects.length;
          return {
            number: advisory.number,
            time_ns: advisory.time_ns,
            name: content.ADV_NAME ?? advisory.subject,
            about: ofSite(content) ?? content.publisher ?? content.user ?? content.stream ?? "",
            lost: content.lost,
            subjects: subjects.join(", ") + (more > 0 ? ` and ${more} more` : ""),
            reason: [content.reason, content.cause].filter(Boolean).join(", "),
          };
        }),
    );
  return { element: make("section", { class: "card" }, table.element), update };
}

/** Returns the number of peers that report their losses. */
function reporting(state) {
  return [...state.reports.values()].filter((report) => report.state === "reported").length;
}

/** Makes the view. */
export function makeLan() {
  const sum = (rows, field) => rows.reduce((total, row) => total + field(row), 0);
  const tiles = makeTiles([
    [
      "Other peers up",
      ({ snapshot }) => count(snapshot.peers.filter((peer) => peer.state === "up").length),
      (state) => `${count(state.snapshot.peers.length)} known, ${count(reporting(state))} report`,
    ],
    ["Received a second", (state) => rate(state.last("in")), (state) => `${bytes(state.last("bytesIn") ?? 0)}/s`],
    ["Published a second", (state) => rate(state.last("out")), (state) => `${bytes(state.last("bytesOut") ?? 0)}/s`],
    [
      "Lost here",
      ({ snapshot }) => count(sum(snapshot.loss, (row) => row.msg_loss.count + row.ibx_loss.count)),
      () => "since the start",
    ],
    [
      "Repaired here",
      ({ snapshot }) => count(sum(snapshot.loss, (row) => row.repaired.count)),
      () => "since the start",
    ],
    [
      "Clients",
      ({ snapshot }) => count(snapshot.status.clients),
      ({ snapshot }) => `${bytes(sum(snapshot.clients, (row) => row.queued_bytes))} queued`,
    ],
    [
      "Up for",
      ({ snapshot }) => span(snapshot.status.uptime_ms),
      ({ snapshot }) => `version ${snapshot.status.version}`,
    ],
  ]);
  const rates = makePlot("Messages a second", {
    format: rate,
    lines: (state) => [
      { label: "received", values: state.values("in") },
      { label: "published", values: state.values("out") },
    ],
    describe: (state) => `Now ${rate(state.last("in"))} received and ${rate(state.last("out"))} published a second.`,
  });
  const parts = {
    verdict: makeVerdict(verdict),
    tiles,
    picture: makePicture(),
    losses: makeLossTable(),
    findings: makeFindings(),
    lost: makePublisherPlot("Lost messages a second, by publisher", "lost", "lost"),
    repaired: makePublisherPlot("Repaired messages a second, by publisher", "repaired", "repaired"),
    subjects: makeSubjectPlot(),
    rates,
    meters: makeMeters(),
    advisories: makeAdvisories(8),
  };
  const element = make(
    "div",
    {},
    make("h2", {}, "LAN"),
    parts.verdict.element,
    parts.tiles.element,
    make("div", { class: "grid" }, parts.picture.element, make("div", {}, parts.findings.element, parts.rates.element)),
    parts.losses.element,
    make("div", { class: "grid" }, parts.lost.element, parts.repaired.element),
    parts.subjects.element,
    parts.advisories.element,
    parts.meters.element,
  );
  return { title: "LAN", element, update: (state) => Object.values(parts).forEach((part) => part.update(state)) };
}
