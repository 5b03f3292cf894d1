// Opens the page of several peers in a headless browser, and checks what a person would meet: faults of scripts, names
// and contrasts (axe), the keyboard, and that something is drawn. Prints a JSON object for each finding.
//
// Arguments: the browser, a directory for its profile and the screenshots, and for each LAN its name and its address.

import { readFile, writeFile } from "node:fs/promises";
import { launch } from "./browser.mjs";

const [browserPath, directory, ...lans] = process.argv.slice(2);
const axe = await readFile(new URL("node_modules/axe-core/axe.min.js", import.meta.url), "utf8");
const report = (kind, lan, detail) => console.log(JSON.stringify({ kind, lan, detail }));
/** Maximum time for anything on the page, in milliseconds: less than the test waits for this program, so that it can
 *  report what the page did not do. */
const PATIENCE = 40000;

const browser = await launch(browserPath, directory, { defaultViewport: { width: 1280, height: 900 } });

async function checkAxe(page, lan, view) {
  await page.evaluate(axe);
  const violations = await page.evaluate(async () => {
    const { violations } = await window.axe.run(document, { runOnly: ["wcag2a", "wcag2aa", "wcag21aa", "best-practice"] });
    return violations.map(({ id, nodes }) => `${id}: ${nodes.map((node) => `${node.target} ${node.failureSummary}`).join("; ")}`);
  });
  for (const violation of violations) report("axe", lan, `${view}: ${violation}`);
}

async function checkKeyboard(page, lan) {
  await page.evaluate(() => document.activeElement.blur());
  const seen = [];
  for (let at = 0; at < 12; at += 1) {
    await page.keyboard.press("Tab");
    seen.push(await page.evaluate(() => {
      const { tagName, textContent, ariaLabel } = document.activeElement;
      const { outlineStyle, outlineWidth } = getComputedStyle(document.activeElement);
      return { name: ariaLabel ?? textContent.trim(), tagName, isVisible: outlineStyle !== "none" && parseFloat(outlineWidth) >= 2 };
    }));
  }
  if (seen[0].name !== "Skip to the content") report("keyboard", lan, `the first stop is ${seen[0].name}`);
  for (const stop of seen) if (!stop.isVisible) report("keyboard", lan, `the focus is not visible at ${stop.tagName} ${stop.name}`);
  if (new Set(seen.map((stop) => stop.name)).size < 8) report("keyboard", lan, `only ${JSON.stringify(seen)} can be reached`);
}

async function screenshot(page, lan, name) {
  const image = await page.screenshot({ fullPage: true });
  await writeFile(`${directory}/${lan}-${name}.png`, image);
  report("screenshot", lan, { name, bytes: image.length });
}

async function checkLan(lan, address) {
  const page = await browser.newPage();
  page.setDefaultTimeout(PATIENCE);
  // Where datagrams are lost, another peer may not answer in time, which the browser reports by itself.
  const isLate = (message) => lan === "lossy" && message.text().includes("504 (Gateway Timeout)");
  page.on("console", (message) => ["error", "warn"].includes(message.type()) && !isLate(message) &&
    report("console", lan, message.text()));
  page.on("pageerror", (error) => report("script", lan, String(error)));
  page.on("requestfailed", (request) => !request.url().endsWith("/live") && report("request", lan, request.url()));
  page.on("request", (request) => !request.url().startsWith(address) && report("outside", lan, request.url()));
  await page.goto(address);
  await page.waitForSelector(".verdict strong:not(:empty)");
  const hasLines = (count, state) => page.waitForFunction(
    (count, state) => document.querySelectorAll(`.picture .edge.${state}`).length >= count, {}, count, state);
  if (lan === "lossy") await page.waitForFunction(() => document.querySelector(".verdict strong").textContent.includes("lost"));
  // Each of the four peers reports what it loses from the three others.
  if (lan === "calm") await hasLines(12, "good");
  // One peer refuses its report, which shows once it was asked.
  if (lan === "lossy") await page.waitForFunction(() => [...document.querySelectorAll(".picture a")].some(
    (node) => node.getAttribute("aria-label").includes("remote-reports is 'no'")));
  report("verdict", lan, await page.$eval(".verdict strong", (element) => element.textContent));
  report("nodes", lan, await page.$$eval(".picture a", (nodes) => nodes.map((node) => node.getAttribute("aria-label"))));
  if (lan === "calm") await checkKeyboard(page, lan);
  // Every view has the same parts in each LAN. So the lossy one, which has the most of them, shows all views.
  const links = await page.$$eval("#views a, .picture a", (all) => all.map((link) => link.getAttribute("href")));
  const peer = await page.$$eval(".picture a", (nodes) => nodes.find(
    (node) => !node.textContent.includes("reports nothing") && node.getAttribute("href").startsWith("#/peer/"))?.getAttribute("href"));
  const views = links.filter((href) => !href.startsWith("#/peer/")).slice(0, -1);
  const visits = lan === "lossy" ? [...views, peer, "#/subject/plant.line1.speed"].map((view) => ["light", view]) : [["light", "#/"]];
  if (lan !== "empty") visits.push(["dark", "#/"]);
  for (const [scheme, view] of visits) {
    await page.emulateMediaFeatures([{ name: "prefers-color-scheme", value: scheme }]);
    await page.evaluate((hash) => (location.hash = hash), view);
    await page.waitForFunction((hash) => location.hash === hash && document.querySelector("h2"), {}, view);
    if (view === peer) {
      await page.waitForFunction(() => document.querySelector(".part ~ div:not([hidden]) tbody tr"));
      const titles = await page.$$eval(".part ~ div dt", (all) => all.map((title) => title.textContent));
      report("own report", lan, titles.filter((title) => ["Health", "Clients"].includes(title)).join(" "));
    }
    await checkAxe(page, lan, `${scheme} ${view}`);
    await screenshot(page, lan, `${scheme}${view.replace(/[^a-z]+/g, "-").replace(/-+$/, "")}`);
  }
  // Two peers lose messages of three others. One reports nothing, so this is not known of it, but for messages from here.
  // While a report is late, it is not known of another one either.
  if (lan === "lossy") await hasLines(6, "bad");
  const lines = await page.waitForFunction((isLossy) => {
    const lines = [...document.querySelectorAll("g .edge")].map(
      (line) => ({ state: line.classList[1], title: line.textContent.split(":")[0] }));
    const unknown = lines.filter((line) => line.state === "unknown" && !line.title.includes("line0"));
    return (!isLossy || unknown.length === 2) && lines;
  }, {}, lan === "lossy");
  report("lines", lan, await lines.jsonValue());
  report("content", lan, await page.$eval("main", (main) => main.textContent.length));
  // Closing the page cuts off the requests that are on their way.
  page.removeAllListeners("requestfailed");
  await page.close();
}

try {
  const work = [];
  for (let at = 0; at < lans.length; at += 2) work.push(checkLan(lans[at], lans[at + 1]));
  await Promise.all(work);
  report("done", "", lans.length / 2);
} finally {
  await browser.close();
}
