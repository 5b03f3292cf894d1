// The view of messages: one form subscribes and shows them as they come, another publishes.

import { make, setText } from "/dom.js";
import { bounds, bytes, clock, clockOf, count, name, plural } from "/format.js";

/** Maximum number of rows that are shown; older ones leave. */
const ROWS_MAX = 200;

function field(id, label, input, hint) {
  const note = hint ? make("p", { class: "hint", id: `${id}-hint` }, hint) : null;
  if (hint) input.setAttribute("aria-describedby", `${id}-hint`);
  input.id = id;
  return make("div", { class: "field" }, make("label", { for: id }, label), input, note);
}

/** Returns the cells of a row, and its class. */
function describe(notice) {
  const publisher = name(notice);
  if (notice.type === "loss") {
    const lost = notice.count === null ? "an unknown number of messages" : `${bounds(notice.count)} messages`;
    const text = `LOST: ${lost} (${notice.reason}, ${notice.cause})`;
    return { cells: [clockOf(notice.time_ns), notice.subject ?? "–", publisher, text], kind: "loss" };
  }
  if (notice.type === "omitted") {
    const text = `Not shown: ${plural(notice.count, "message")}. They arrive faster than this page shows them.`;
    return { cells: ["", "", "", text], kind: "note" };
  }
  const missing = notice.missing === null ? "" : `[${bounds(notice.missing)} missing before] `;
  const more = notice.bytes > 1024 ? ` … (${bytes(notice.bytes)})` : "";
  const fields = notice.fields === null ? null : `{${notice.fields}}${more}`;
  const payload = fields !== null ? fields : notice.is_text ? `${notice.payload}${more}` : `binary, ${bytes(notice.bytes)}`;
  const repaired = notice.repaired ? " [repaired]" : "";
  const kind = notice.missing === null ? "" : "loss";
  return { cells: [clockOf(notice.time_ns), notice.subject, publisher, `${missing}${payload}${repaired}`], kind };
}

function makeSubscription(pattern) {
  const input = make("input", {
    type: "text",
    required: true,
    autocomplete: "off",
    spellcheck: "false",
    value: pattern,
  });
  const begin = make("button", { type: "submit" }, "Subscribe");
  const end = make("button", { type: "button", class: "plain", disabled: true }, "Stop");
  const state = make("p", { role: "status", class: "hint" }, "Not subscribed.");
  const body = make("tbody");
  const heads = ["Time", "Subject", "Publisher", "Message"].map((title) => make("th", { scope: "col" }, title));
  const table = make(
    "table",
    { "aria-label": "Messages, the newest first" },
    make("thead", {}, make("tr", {}, heads)),
    body,
  );
  const log = make("div", { class: "log", tabindex: "0", role: "region", "aria-label": "Messages" }, table);
  const form = make(
    "form",
    {},
    field(
      "pattern",
      "Pattern",
      input,
      "A subject such as plant.line1.speed; * is one part of it, > is all further parts.",
    ),
    make("div", { class: "line" }, begin, end),
  );
  let source = null;
  let [shown, lost] = [0, 0];

  const stop = (text) => {
    source?.close();
    source = null;
    end.disabled = true;
    setText(state, text);
  };
  const take = (notice) => {
    if (notice.type === "message") shown += 1;
    if (notice.type === "loss") lost += 1;
    const { cells, kind } = describe(notice);
    body.prepend(
      make(
        "tr",
        { class: kind },
        cells.map((text) => make("td", {}, text)),
      ),
    );
    if (body.children.length > ROWS_MAX) body.lastElementChild.remove();
  };
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    stop("Subscribing.");
    body.replaceChildren();
    [shown, lost] = [0, 0];
    const wanted = input.value.trim();
    const address = `/api/v1/messages?pattern=${encodeURIComponent(wanted)}`;
    const check = await fetch(`${address}&check=1`).catch(() => null);
    if (!check?.ok) return stop(`Not subscribed: ${check ? (await check.text()).trim() : "the peer does not answer"}.`);
    source = new EventSource(address);
    end.disabled = false;
    source.addEventListener("open", () => setText(state, `Subscribed to ${wanted}.`));
    source.addEventListener("notice", (message) => take(JSON.parse(message.data)));
    source.addEventListener("error", () => {
      if (source?.readyState === EventSource.CLOSED)
        stop("The subscription has ended: the peer refused it or is gone.");
      else setText(state, "The connection is lost. The page connects again; messages meanwhile are not shown.");
    });
    return undefined;
  });
  end.addEventListener("click", () =>
    stop(`Stopped after ${plural(shown, "message")} and ${plural(lost, "report")} of losses.`),
  );
  const element = make("section", { class: "card" }, make("h3", {}, "Subscribe"), form, state, log);
  return { element, close: () => stop(`Stopped after ${count(shown)}.`), begin: () => form.requestSubmit() };
}

function makePublication() {
  const subject = make("input", { type: "text", required: true, autocomplete: "off", spellcheck: "false" });
  const payload = make("textarea", { spellcheck: "false" });
  const send = make("button", { type: "submit" }, "Publish");
  const state = make("p", { role: "status", class: "quiet" });
  const form = make(
    "form",
    {},
    field("subject", "Subject", subject),
    field("payload", "Message", payload, "Text, up to 250 kB."),
    make("div", { class: "line" }, send),
    state,
  );
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    send.disabled = true;
    const body = JSON.stringify({ subject: subject.value.trim(), payload: payload.value });
    const headers = { "content-type": "application/json", "x-seqcast": "publish" };
    const response = await fetch("/api/v1/publish", { method: "POST", headers, body }).catch(() => null);
    const text = response && !response.ok ? (await response.text()).trim() : "the peer does not answer";
    setText(
      state,
      response?.ok ? `Published on ${subject.value.trim()} at ${clock(Date.now())}.` : `Not published: ${text}.`,
    );
    send.disabled = false;
  });
  const refused = make(
    "p",
    {},
    "Publishing from the page is off. ",
    make("code", {}, "http-publish: yes"),
    " turns it on.",
  );
  form.hidden = true;
  const element = make("section", { class: "card" }, make("h3", {}, "Publish"), refused, form);
  const open = async () => {
    const answer = await fetch("/api/v1/session").catch(() => null);
    const session = answer?.ok ? await answer.json() : {};
    form.hidden = !session.can_publish;
    refused.hidden = Boolean(session.can_publish);
  };
  return { element, open };
}

/** Makes the view. With a pattern it subscribes at once. */
export function makeMessages(pattern) {
  const [subscription, publication] = [makeSubscription(pattern ?? ""), makePublication()];
  const element = make("div", {}, make("h2", {}, "Messages"), subscription.element, publication.element);
  const open = () => {
    publication.open();
    if (pattern) subscription.begin();
  };
  return { title: "Messages", element, update: () => {}, open, close: subscription.close };
}
