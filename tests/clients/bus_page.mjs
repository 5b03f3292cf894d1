// Uses the bus by HTTP in a headless browser: in the page of the peer, in a page of a listed site, and in a page of
// another site. Prints a JSON object for each step.
//
// Arguments: the browser, a directory for its profile, the address of the peer, and the port of the listed site.

import { createServer } from "node:http";
import { launch } from "./browser.mjs";

const [browserPath, directory, peer, listedPort] = process.argv.slice(2);
const report = (site, steps) => console.log(JSON.stringify({ site, ...steps }));

/** Serves an empty page at a port. */
function serve(port) {
  const server = createServer((_, answer) => answer.setHeader("content-type", "text/html").end("<!doctype html><p>A page"));
  return new Promise((done) => server.listen(port, "127.0.0.1", () => done(server)));
}

/** Runs in the page: subscribes in both ways, publishes, and returns what came. */
async function useBus(peer) {
  const patience = 20000;
  const inTime = (what) => Promise.race([what, new Promise((done) => setTimeout(() => done("nothing"), patience))]);
  const opened = (source) => new Promise((done) => {
    source.onopen = () => done("open");
    source.onerror = () => done("error");
  });
  const first = (source) => new Promise((done) => { source.onmessage = ({ data }) => done(JSON.parse(data)); });
  const events = new EventSource(`${peer}/sub/plant.%3E`);
  const socket = new WebSocket(`${peer.replace("http", "ws")}/sub/plant.%3E`);
  const began = await Promise.all([opened(events), opened(socket)].map(inTime));
  const messages = [first(events), first(socket)];
  const headers = { "Seqcast-Header-Unit": "m/s", "Content-Type": "text/plain" };
  const publish = (options) => fetch(`${peer}/pub/plant.a`, { method: "POST", body: "17.5", ...options })
    .then((answer) => answer.status, () => "refused");
  const published = await publish({ headers });
  // A request that the browser sends without asking the peer first.
  const blind = began[0] === "error" ? await publish({ mode: "no-cors" }) : null;
  const received = began[0] === "open" ? await Promise.all(messages.map(inTime)) : [];
  events.close();
  socket.close();
  return { began, published, blind, received };
}

const listed = await serve(Number(listedPort));
const foreign = await serve(0);
const browser = await launch(browserPath, directory);
try {
  const sites = { own: `${peer}/healthz`, listed: `http://127.0.0.1:${listedPort}/`, foreign: `http://127.0.0.1:${foreign.address().port}/` };
  for (const [site, address] of Object.entries(sites)) {
    const page = await browser.newPage();
    await page.goto(address);
    report(site, await page.evaluate(useBus, peer));
    if (site === "foreign") {
      // A form needs no permission, and leads to the answer.
      await page.evaluate((peer) => {
        const form = document.body.appendChild(document.createElement("form"));
        Object.assign(form, { method: "post", action: `${peer}/pub/plant.a`, enctype: "text/plain" });
        form.submit();
      }, peer);
      await page.waitForFunction((peer) => location.href.startsWith(peer), {}, peer);
      report("form", { text: await page.evaluate(() => document.body.textContent) });
    }
    await page.close();
  }
} finally {
  await browser.close();
  listed.close();
  foreign.close();
}
