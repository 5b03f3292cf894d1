// The other views: subjects, one subject, clients, streams, losses.

import { card, make, makeTable } from "/dom.js";
import { bounds, bytes, clock, clockOf, count, name, rate, span } from "/format.js";
import { makeAdvisories, makeLossPlot, makeLossTable, makeTiles, subjectOf } from "/lan.js";
import { makePlot } from "/plots.js";
import { polled, withRates } from "/report.js";
import { makeSiteLossTable } from "/sites.js";
import { lowest, subjectLine } from "/state.js";

/** Makes the view of all subjects. */
export function makeSubjects() {
  const filter = make("input", { type: "search", id: "subject-filter", autocomplete: "off", spellcheck: "false" });
  const table = makeTable(
    "Subjects with messages",
    [
      { title: "Subject", text: (row) => row.subject, link: (row) => `#/subject/${encodeURIComponent(row.subject)}` },
      { title: "Publisher", text: (row) => (row.epoch ? name(row) : "this peer") },
      { title: "A second", number: true, text: (row) => rate(row.rate) },
      { title: "Messages since", text: (row) => clockOf(row.frame_start_ns) },
      { title: "Count", number: true, text: (row) => count(row.count) },
      { title: "Last number", number: true, text: (row) => row.seq },
    ],
    (row) => row.key,
    "No subject has messages, or none matches the filter.",
  );
  const subscriptions = makeTable(
    "Subscriptions at this peer",
    [
      { title: "Pattern", text: (row) => row.glob ?? row.pattern },
      { title: "Client", text: (row) => row.name || `client ${row.client}` },
      { title: "Queue group", text: (row) => row.queue ?? "–" },
      { title: "Mode", text: (row) => row.mode },
      { title: "Deliveries", number: true, text: (row) => count(row.deliveries) },
    ],
    (row) => `${row.client} ${row.sub}`,
    "No client of this peer subscribes.",
  );
  const before = new Map();
  let [rows, asked] = [[], 0];
  const show = () => table.update(rows.filter((row) => row.subject.includes(filter.value)));
  filter.addEventListener("input", show);
  const element = make(
    "div",
    {},
    make("h2", {}, "Subjects"),
    make(
      "section",
      { class: "card" },
      make("label", { for: "subject-filter" }, "Filter by a part of the subject", filter),
      table.element,
    ),
    make("section", { class: "card" }, subscriptions.element),
  );
  const report = (answer) => {
    const seconds = asked ? (Date.now() - asked) / 1000 : 0;
    asked = Date.now();
    if (before.size > 10000) before.clear();
    rows = withRates(answer.rows, before, seconds);
    show();
  };
  return {
    title: "Subjects",
    element,
    update: (state) => subscriptions.update(state.snapshot.subs),
    ...polled("seqno", report),
  };
}

/** Makes the view of one subject. */
export function makeSubject(subject) {
  const numbers = makeTable(
    "Publishers of this subject",
    [
      {
        title: "Publisher",
        text: (row) => (row.epoch ? name(row) : "this peer"),
        link: (row) => (row.epoch ? `#/peer/${row.epoch}` : "#/"),
      },
      { title: "A second", number: true, text: (row) => rate(row.rate) },
      { title: "Count", number: true, text: (row) => count(row.count) },
      { title: "Messages since", text: (row) => clockOf(row.frame_start_ns) },
      { title: "Last number", number: true, text: (row) => row.seq },
    ],
    (row) => row.key,
    "No messages of this subject are known.",
  );
  const losses = makeTable(
    "Losses of this subject in the last advisories",
    [
      { title: "Time", text: (row) => clockOf(row.time_ns) },
      { title: "Publisher", text: (row) => row.publisher },
      { title: "Lost", number: true, text: (row) => bounds(row.lost), state: () => "bad" },
      { title: "Reason", text: (row) => row.reason },
    ],
    (row) => row.number,
    "No advisory names this subject.",
  );
  const before = new Map();
  let asked = 0;
  const points = { times: [], values: [] };
  const plot = makePlot("Messages a second", {
    format: rate,
    lines: () => [{ label: subject, values: points.values }],
    describe: () => `Now ${rate(points.values.at(-1) ?? null)} a second, from all publishers together.`,
  });
  const lost = makeLossPlot("Lost messages a second, by publisher", "lost", ({ snapshot }) =>
    snapshot.loss_by_subject
      .filter((row) => row.subject === subject)
      .map((row) => ({ label: name(row), line: subjectLine(row) })),
  );
  const element = make(
    "div",
    {},
    make("h2", {}, `Subject ${subject}`),
    make("div", { class: "grid" }, plot.element, lost.element),
    make(
      "div",
      { class: "grid" },
      make("section", { class: "card" }, numbers.element),
      make("section", { class: "card" }, losses.element),
    ),
    card(
      "Listen",
      make("p", {}, make("a", { href: `#/messages/${encodeURIComponent(subject)}` }, "Show its messages as they come")),
    ),
  );
  const report = (answer) => {
    const seconds = asked ? (Date.now() - asked) / 1000 : 0;
    asked = Date.now();
    const rows = withRates(
      answer.rows.filter((row) => row.subject === subject),
      before,
      seconds,
    );
    numbers.update(rows);
    points.times.push(asked / 1000);
    points.values.push(
      rows.some((row) => row.rate !== null) ? rows.reduce((sum, row) => sum + (row.rate ?? 0), 0) : null,
    );
    if (points.times.length > 900) [points.times, points.values].forEach((list) => list.shift());
    plot.update(points);
  };
  const update = (state) => {
    lost.update(state);
    losses.update(
      state.snapshot.advisories
        .filter((advisory) => advisory.content)
        .flatMap((advisory) => {
          const at = Object.keys(advisory.content).find(
            (key) => /^sub\d+$/.test(key) && advisory.content[key] === subject,
          );
          if (!at) return [];
          const { content } = advisory;
          return [
            {
              number: advisory.number,
              time_ns: advisory.time_ns,
              publisher: content.publisher ?? content.user ?? "",
              lost: content[at.replace("sub", "lost")],
              reason: content.reason ?? "",
            },
          ];
        })
        .reverse(),
    );
  };
  return { title: subject, element, update, ...polled("seqno?limit=1000", report) };
}

/** Makes the table of the clients of a peer. */
export function makeClientTable() {
  return makeTable(
    "Clients of this peer",
    [
      { title: "Client", text: (row) => row.name || `client ${row.client}` },
      { title: "Listener", text: (row) => row.listener ?? "local" },
      { title: "Address", text: (row) => row.address ?? (row.pid ? `process ${row.pid}` : "–") },
      { title: "Account", text: (row) => row.account ?? "–" },
      { title: "Connected", text: (row) => span(row.connected_ms) },
      { title: "Published", number: true, text: (row) => count(row.published) },
      { title: "Delivered", number: true, text: (row) => count(row.delivered) },
      {
        title: "Queued",
        number: true,
        text: (row) => `${count(row.queued)} (${bytes(row.queued_bytes)})`,
        state: (row) => (row.queued > 1000 ? "warn" : ""),
      },
      { title: "Dropped", number: true, text: (row) => count(row.dropped), state: (row) => (row.dropped ? "bad" : "") },
    ],
    (row) => row.client,
    "No client is connected.",
  );
}

// Returns who may use a listener.
function listenerAccess(row) {
  if (row.accounts) return "accounts";
  return row.tls === "verify" ? "certificates" : "anyone";
}

/** Makes the table of the listeners of a peer, from its status. */
export function makeListenerTable() {
  const table = makeTable(
    "Listeners",
    [
      { title: "Listener", text: (row) => row.listener },
      { title: "Address", text: (row) => row.address },
      { title: "Access", text: (row) => `${listenerAccess(row)}${row.tls ? `, TLS ${row.tls}` : ""}` },
      { title: "Clients", number: true, text: (row) => count(row.clients) },
      { title: "Accepted", number: true, text: (row) => count(row.accepted) },
      {
        title: "Refused",
        number: true,
        text: (row) => count(row.refused),
        state: (row) => (row.refused ? "warn" : ""),
      },
      {
        title: "Unauthorized",
        number: true,
        text: (row) => count(row.unauthorized),
        state: (row) => (row.unauthorized ? "warn" : ""),
      },
      {
        title: "Denied",
        number: true,
        text: (row) => count(row.denied),
        state: (row) => (row.denied ? "warn" : ""),
      },
      { title: "Slow", number: true, text: (row) => count(row.slow), state: (row) => (row.slow ? "warn" : "") },
    ],
    (row) => row.listener,
    "No listener is open.",
  );
  const update = (status) =>
    table.update([...status.listeners, status.streams, status.http].filter(Boolean));
  return { element: table.element, update };
}

/** Makes the view of clients and listeners. */
export function makeClients() {
  const [clients, listeners] = [makeClientTable(), makeListenerTable()];
  const element = make(
    "div",
    {},
    make("h2", {}, "Clients"),
    make("section", { class: "card" }, clients.element),
    make("section", { class: "card" }, listeners.element),
  );
  const update = ({ snapshot }) => {
    clients.update(snapshot.clients);
    listeners.update(snapshot.status);
  };
  return { title: "Clients", element, update };
}

/** Makes the view of streams and their consumers, and of the journal. */
export function makeStreams() {
  const streams = makeTable(
    "Streams",
    [
      { title: "Stream", text: (row) => row.stream },
      { title: "Events", number: true, text: (row) => count(row.events) },
      { title: "Size", number: true, text: (row) => bytes(row.bytes) },
      { title: "Last id", number: true, text: (row) => row.last },
      { title: "Consumers", number: true, text: (row) => count(row.consumers) },
      { title: "Policy", text: (row) => row.policy },
    ],
    (row) => row.stream,
    "This peer serves no event streams.",
  );
  const consumers = makeTable(
    "Consumers",
    [
      { title: "Consumer", text: (row) => `${row.user} ${row.component}` },
      { title: "Stream", text: (row) => row.stream },
      { title: "Lag in events", number: true, text: (row) => count(row.lag), state: (row) => (row.lag ? "warn" : "") },
      { title: "Position", number: true, text: (row) => row.position },
      { title: "Last request", text: (row) => clock(row.last_request) },
      {
        title: "State",
        text: (row) => (row.lapsed ? `lapsed: missed ${count(row.lapsed.count)} events` : "registered"),
        state: (row) => (row.lapsed ? "bad" : ""),
      },
    ],
    (row) => `${row.stream} ${row.user} ${row.component}`,
    "No consumer is registered.",
  );
  const followed = makeTable(
    "Followed servers",
    [
      { title: "Server", text: (row) => String(row.server) },
      { title: "Peer", text: (row) => row.peer ?? "–" },
      {
        title: "State",
        text: (row) => row.state.replace("_", " "),
        state: (row) => (row.state === "live" ? "good" : "warn"),
      },
      { title: "Stored up to session", number: true, text: (row) => count(row.session) },
    ],
    (row) => row.server,
    "No events of other servers are stored here.",
  );
  const journal = makeTiles([
    ["Server number", ({ snapshot }) => String(snapshot.status.events?.server ?? "–")],
    [
      "Journal",
      ({ snapshot }) => (snapshot.status.events ? "open" : "not in use"),
      ({ snapshot }) => snapshot.status.events?.journal ?? "",
    ],
    ["Events registered", ({ snapshot }) => count(snapshot.counters.events_registered)],
    ["Events of others", ({ snapshot }) => count(snapshot.counters.events_followed)],
  ]);
  const element = make(
    "div",
    {},
    make("h2", {}, "Streams and journal"),
    journal.element,
    make("section", { class: "card" }, streams.element),
    make("section", { class: "card" }, consumers.element),
    make("section", { class: "card" }, followed.element),
  );
  const update = (state) => {
    journal.update(state);
    followed.update(state.snapshot.status.events?.followed ?? []);
  };
  const report = (answer) => {
    streams.update(answer.streams);
    consumers.update(answer.consumers);
  };
  return { title: "Streams", element, update, ...polled("streams", report) };
}

/** Makes the table of the losses of this peer, by subject and publisher. */
function makeSubjectLossTable() {
  const table = makeTable(
    "What this peer loses, by subject",
    [
      { title: "Subject", text: subjectOf },
      { title: "Publisher", text: name },
      { title: "Lost", number: true, text: (row) => bounds(row.lost), state: (row) => (lowest(row.lost) ? "bad" : "") },
      { title: "Repaired", number: true, text: (row) => count(row.repaired) },
      { title: "Last loss", text: (row) => clockOf(row.time_ns) },
      { title: "Reason", text: (row) => [row.reason, row.cause].filter(Boolean).join(", ") },
    ],
    subjectLine,
    "This peer has lost and repaired nothing.",
  );
  const polling = polled("loss_by_subject?limit=200", (answer) => table.update(answer.rows));
  return { element: make("section", { class: "card" }, table.element), ...polling };
}

/** Makes the view of losses and advisories. */
export function makeLosses() {
  const [losses, subjects, advisories] = [makeLossTable(), makeSubjectLossTable(), makeAdvisories(100)];
  const sites = makeSiteLossTable();
  const parts = [losses.element, subjects.element, sites.element, advisories.element];
  const element = make("div", {}, make("h2", {}, "Losses"), parts);
  const update = (state) => [losses, sites, advisories].forEach((part) => part.update(state));
  return { title: "Losses", element, update, open: subjects.open, close: subjects.close };
}
