// Starts the headless browser that the scripts for pages use.

import puppeteer from "puppeteer-core";

/** Starts the browser at this path with a profile of its own below the directory. */
export function launch(executablePath, directory, options = {}) {
  return puppeteer.launch({
    executablePath,
    headless: true,
    userDataDir: `${directory}/profile`,
    args: ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
      "--disable-component-update", "--disable-sync"],
    ...options,
  });
}
