// The views of all other peers, and of one of them: what this peer sees of it, and what it reports of itself.

import { make, makeTable, setText } from "/dom.js";
import { bounds, count, name, rate, span } from "/format.js";
import { makeFindings, makeTiles } from "/lan.js";
import { lanLosses } from "/losses.js";
import { makePlot } from "/plots.js";
import { polled } from "/report.js";
import { inbound } from "/state.js";
import { makeClientTable, makeListenerTable } from "/views.js";

const peerStates = { up: "good", silent: "warn", left: "", crashed: "bad" };

/** Makes the view of all peers. */
export function makePeers() {
  const table = makeTable(
    "Other peers",
    [
      { title: "Peer", text: name, link: (row) => `#/peer/${row.epoch}` },
      { title: "State", text: (row) => row.state, state: (row) => peerStates[row.state] },
      { title: "Address", text: (row) => row.address },
      { title: "Up for", text: (row) => span(row.uptime_ms) },
      { title: "Last heard", text: (row) => `${span(row.last_heard_ms)} ago` },
      { title: "Messages", number: true, text: (row) => count(row.messages_in) },
      { title: "A second", number: true, text: (row) => rate(row.rate) },
      { title: "Lost here", number: true, text: (row) => count(row.lost), state: (row) => (row.lost ? "bad" : "") },
      {
        title: "Lost there",
        number: true,
        text: (row) => (row.there === null ? "not known" : count(row.there)),
        state: (row) => (row.there ? "bad" : ""),
      },
      { title: "Clients", number: true, text: (row) => count(row.summary?.clients) },
      { title: "Health", text: (row) => row.summary?.health ?? "not known", state: healthState },
      { title: "Notes", text: notes, state: (row) => (notes(row) ? "warn" : "") },
    ],
    (row) => row.epoch,
    "No other peer was heard. With a LAN: start a peer on another host, with the same group and port.",
  );
  const element = make("div", {}, make("h2", {}, "Peers"), make("section", { class: "card" }, table.element));
  const update = (state) =>
    table.update(
      state.snapshot.peers.map((row) => {
        const report = state.reports.get(row.epoch);
        const isKnown = row.state === "up" && report?.state === "reported";
        const there = isKnown ? [...report.pairs.values()].reduce((sum, pair) => sum + pair.lostAtLeast, 0) : null;
        const summary = isKnown ? report.summary : null;
        const why = report?.reason ?? "it is not asked yet";
        const reason = row.state === "up" && !isKnown ? `what it loses is not known: ${why}` : "";
        return { ...row, there, summary, reason, rate: state.last(`from ${row.epoch}`) };
      }),
    );
  return { title: "Peers", element, update };
}

function healthState(row) {
  return { ok: "good", warning: "warn", broken: "bad" }[row.summary?.health] ?? "";
}

function notes(row) {
  return [
    row.reason,
    row.multicast_dead && "its multicast does not arrive",
    row.foreign_name && "it announces the name of another host",
    row.duplicate_name && "another peer has its name",
    row.member && row.member !== row.publisher && `a peer of the member ${row.member}`,
    row.flow_exclusion && `excluded from flow control: ${row.flow_exclusion.reason}`,
    row.kernel_drops > 0 && `its kernel dropped ${count(row.kernel_drops)}`,
  ]
    .filter(Boolean)
    .join("; ");
}

/** Makes the view of one peer. */
export function makePeer(epoch) {
  const heading = make("h2", {}, "Peer");
  const gone = make("p", { class: "empty" }, "This peer is not known, or its run has ended long ago.");
  const find = (state, rows) => state.snapshot[rows].find((row) => row.epoch === epoch);
  const of = (rows, text) => (state) => {
    const row = find(state, rows);
    return row ? text(row, state) : "–";
  };
  const there = (state) => lanLosses(state).find(epoch, state.snapshot.status.epoch);
  const tiles = makeTiles([
    ["State", of("peers", (row) => row.state), of("peers", (row) => `heard ${span(row.last_heard_ms)} ago`)],
    [
      "Messages a second",
      (state) => rate(state.last(`from ${epoch}`)),
      of("peers", (row) => `${count(row.messages_in)} in all`),
    ],
    ["Lost here", of("loss", (row) => bounds(row.lost)), of("loss", (row, state) => inbound(state, row).text)],
    [
      "Repaired here",
      of("loss", (row) => count(row.repaired.count)),
      of("loss", (row) => `${count(row.datagrams.pending)} datagrams missing now`),
    ],
    [
      "Lost there",
      (state) => there(state)?.count ?? "not known",
      (state) => there(state)?.text ?? "of the messages from here",
    ],
    ["Up for", of("peers", (row) => span(row.uptime_ms)), of("peers", (row) => row.address)],
  ]);
  const plot = (title, lines) =>
    makePlot(title, {
      format: rate,
      lines: (state) => lines.map(([line, label]) => ({ label, values: state.values(`${line} ${epoch}`) })),
      describe: (state) => {
        const sums = lines.map(([line, label]) => `${count(state.risen(`${line} ${epoch}`, 900))} ${label}`);
        return `${sums.join(", ")} in the last 15 minutes.`;
      },
    });
  const plots = [
    plot("Messages from it a second", [["from", "received"]]),
    plot("Missing messages of it a second", [
      ["lost", "lost"],
      ["repaired", "repaired"],
    ]),
  ];
  const explanation = make("p");
  const reasons = makeTable(
    "Reports of losses, by reason",
    [
      { title: "Reason", text: ([reason]) => reason },
      { title: "Reports", number: true, text: ([, reports]) => count(reports) },
    ],
    ([reason]) => reason,
    "No loss of this publisher was reported.",
  );
  const wanted = makeTable(
    "Subscriptions of this peer",
    [
      { title: "Pattern", text: (row) => row.glob ?? row.pattern },
      { title: "Queue group", text: (row) => row.queue ?? "–" },
      { title: "Subscriptions", number: true, text: (row) => count(row.subscriptions) },
    ],
    (row) => `${row.pattern} ${row.queue} ${row.glob}`,
    "It has announced no subscription.",
  );
  const own = makeOwnReport(epoch);
  const found = make(
    "div",
    {},
    tiles.element,
    make("section", { class: "card" }, make("h3", {}, "Explanation"), explanation),
    make(
      "div",
      { class: "grid" },
      plots.map((one) => one.element),
    ),
    make(
      "div",
      { class: "grid" },
      make("section", { class: "card" }, reasons.element),
      make("section", { class: "card" }, wanted.element),
    ),
    own.element,
  );
  const update = (state) => {
    const peer = find(state, "peers") ?? find(state, "loss");
    gone.hidden = Boolean(peer);
    found.hidden = !peer;
    if (!peer) return;
    setText(heading, `Peer ${name(peer)}`);
    tiles.update(state);
    plots.forEach((one) => one.update(state));
    const loss = find(state, "loss");
    setText(explanation, loss?.verdict ?? "Nothing of this publisher was missing.");
    reasons.update(Object.entries(loss?.reasons ?? {}));
  };
  const report = (answer) => wanted.update(answer.rows.filter((row) => row.epoch === epoch));
  const polls = [polled("interest", report), own];
  return {
    title: "Peer",
    element: make("div", {}, heading, gone, found),
    update,
    open: () => polls.forEach((one) => one.open()),
    close: () => polls.forEach((one) => one.close()),
  };
}

/** Makes the part of a view that shows what a peer reports of itself. */
function makeOwnReport(epoch) {
  const note = make("p", { class: "empty" }, "The peer is asked for its report.");
  const sum = (rows, field) => rows.reduce((total, row) => total + field(row), 0);
  const tiles = makeTiles([
    ["Health", ({ health }) => String(health.state), ({ status }) => String(status.phase)],
    ["Up for", ({ status }) => span(status.uptime_ms), ({ status }) => `version ${status.version}`],
    [
      "Lost there in all",
      ({ loss }) => count(sum(loss, (row) => row.msg_loss.count + row.ibx_loss.count)),
      ({ loss }) => `${count(sum(loss, (row) => row.repaired.count))} repaired`,
    ],
    [
      "Clients",
      ({ status }) => count(status.clients),
      ({ clients }) => `${count(sum(clients, (row) => row.dropped))} dropped`,
    ],
    ["Interface", ({ status }) => String(status.interface), ({ status }) => String(status.address)],
  ]);
  const losses = makeTable(
    "What it receives",
    [
      { title: "Publisher", text: name },
      {
        title: "Lost",
        number: true,
        text: (row) => bounds(row.lost),
        state: (row) => (row.msg_loss.count ? "bad" : ""),
      },
      { title: "Lost to it alone", number: true, text: (row) => count(row.ibx_loss.count) },
      { title: "Repaired", number: true, text: (row) => count(row.repaired.count) },
      { title: "Missing now", number: true, text: (row) => count(row.datagrams.pending) },
      { title: "Explanation", text: (row) => row.verdict ?? "" },
    ],
    (row) => row.epoch,
    "It has received nothing of other peers yet.",
  );
  const [findings, clients, listeners] = [makeFindings(), makeClientTable(), makeListenerTable()];
  const content = make(
    "div",
    { hidden: true },
    tiles.element,
    make("section", { class: "card" }, losses.element),
    findings.element,
    make("section", { class: "card" }, clients.element),
    make("section", { class: "card" }, listeners.element),
  );
  const fail = (reason) => {
    setText(note, `This peer reports nothing of itself: ${reason}`);
    content.hidden = true;
    note.hidden = false;
  };
  const take = (report) => {
    try {
      tiles.update(report);
      losses.update(report.loss);
      findings.update({ snapshot: report });
      clients.update(report.clients);
      listeners.update(report.status);
    } catch {
      return fail("its report cannot be read, so update the older of both peers.");
    }
    content.hidden = false;
    note.hidden = true;
    return undefined;
  };
  const element = make("section", {}, make("h3", { class: "part" }, "As it reports itself"), note, content);
  return { element, ...polled(`peers/${epoch}`, take, fail) };
}
