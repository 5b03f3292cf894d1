// A NATS client over WebSocket in a headless browser: the library nats.ws, in a page of a listed site and in one of
// another site. Prints a JSON object for each.
//
// Arguments: the browser, a directory for its profile, the server, and the port of the listed site.

import { readFile } from "node:fs/promises";
import { createServer } from "node:http";
import { launch } from "./browser.mjs";

const [browserPath, directory, server, listedPort] = process.argv.slice(2);
const files = {
  "/": ["text/html", "<!doctype html><p>A page"],
  "/nats.js": ["text/javascript", await readFile(new URL("node_modules/nats.ws/esm/nats.js", import.meta.url))],
  "/exercise.js": ["text/javascript", await readFile(new URL("nats_exercise.mjs", import.meta.url))],
};

function serve(port) {
  const site = createServer((request, answer) => {
    const [type, content] = files[request.url] ?? ["text/plain", ""];
    answer.setHeader("content-type", type).end(content);
  });
  return new Promise((done) => site.listen(port, "127.0.0.1", () => done(site)));
}

const sites = { listed: await serve(Number(listedPort)), foreign: await serve(0) };
const browser = await launch(browserPath, directory);
try {
  for (const [name, site] of Object.entries(sites)) {
    const page = await browser.newPage();
    await page.goto(`http://127.0.0.1:${site.address().port}/`);
    const report = await page.evaluate(async (servers) => {
      const [library, { exercise }] = await Promise.all([import("/nats.js"), import("/exercise.js")]);
      return exercise(library, { servers });
    }, server);
    console.log(JSON.stringify({ site: name, ...report }));
    await page.close();
  }
} finally {
  await browser.close();
  for (const site of Object.values(sites)) site.close();
}
