// The other views: peers, one peer, subjects, one subject, clients, streams, losses.

import { card, make, makeTable, setText } from "/dom.js";
import { bounds, bytes, clock, clockOf, count, name, rate, span } from "/format.js";
import { makeAdvisories, makeLossTable, makeTiles } from "/lan.js";
import { makePlot } from "/plots.js";
import { inbound, outbound } from "/state.js";

/** Interval between two requests for a report that is not in the snapshots, in milliseconds. */
const REPORT_INTERVAL = 5000;

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
      { title: "Lost", number: true, text: (row) => count(row.lost), state: (row) => (row.lost ? "bad" : "") },
      { title: "Notes", text: notes, state: (row) => (notes(row) ? "warn" : "") },
    ],
    (row) => row.epoch,
    "No other peer was heard. With a LAN: start a peer on another host, with the same group and port.",
  );
  const element = make("div", {}, make("h2", {}, "Peers"), make("section", { class: "card" }, table.element));
  const update = (state) =>
    table.update(state.snapshot.peers.map((row) => ({ ...row, rate: state.last(`from ${row.epoch}`) })));
  return { title: "Peers", element, update };
}

function notes(row) {
  return [
    row.multicast_dead && "its multicast does not arrive",
    row.duplicate_name && "another peer has its name",
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
      of("outbound", (row) => bounds(row.lost)),
      of("outbound", (row, state) => outbound(state, row).text),
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
  return { title: "Peer", element: make("div", {}, heading, gone, found), update, ...polled("interest", report) };
}

/** Polls a report while the view is shown. */
function polled(path, take) {
  let timer = null;
  const ask = async () => {
    try {
      const response = await fetch(`/api/v1/${path}`);
      if (response.ok) take(await response.json());
    } catch {
      // The header says that the connection is lost.
    }
  };
  return {
    open: () => {
      ask();
      timer = setInterval(ask, REPORT_INTERVAL);
    },
    close: () => clearInterval(timer),
  };
}

/** Returns the rows of numbers with their rates since the rows before. */
function withRates(rows, before, seconds) {
  return rows.map((row) => {
    const key = `${row.epoch ?? ""} ${row.subject}`;
    const last = before.get(key);
    const rises = last && last.frame === row.frame && row.count >= last.count;
    before.set(key, row);
    return { ...row, key, rate: rises && seconds > 0 ? (row.count - last.count) / seconds : null };
  });
}

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
  const element = make(
    "div",
    {},
    make("h2", {}, `Subject ${subject}`),
    plot.element,
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
  const update = (state) =>
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
  return { title: subject, element, update, ...polled("seqno?limit=1000", report) };
}

/** Makes the view of clients and listeners. */
export function makeClients() {
  const clients = makeTable(
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
  const listeners = makeTable(
    "Listeners",
    [
      { title: "Listener", text: (row) => row.listener },
      { title: "Address", text: (row) => row.address },
      { title: "Access", text: (row) => `${row.accounts ? "accounts" : "anyone"}${row.tls ? `, TLS ${row.tls}` : ""}` },
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
      { title: "Slow", number: true, text: (row) => count(row.slow), state: (row) => (row.slow ? "warn" : "") },
    ],
    (row) => row.listener,
    "No listener is open.",
  );
  const element = make(
    "div",
    {},
    make("h2", {}, "Clients"),
    make("section", { class: "card" }, clients.element),
    make("section", { class: "card" }, listeners.element),
  );
  const update = ({ snapshot }) => {
    clients.update(snapshot.clients);
    listeners.update([...snapshot.status.listeners, snapshot.status.streams, snapshot.status.http].filter(Boolean));
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

/** Makes the view of losses and advisories. */
export function makeLosses() {
  const [losses, advisories] = [makeLossTable(), makeAdvisories(100)];
  const element = make("div", {}, make("h2", {}, "Losses"), losses.element, advisories.element);
  const update = (state) => [losses, advisories].forEach((part) => part.update(state));
  return { title: "Losses", element, update };
}
