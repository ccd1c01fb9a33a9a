// SPDX-License-Identifier: Apache-2.0
// Look at what `tdprof view` serves in headless Chromium, as a user would, and print as JSON what it shows.
//   node speedscope.mjs CHROMIUM SCREENSHOT_FOLDER SPEEDSCOPE_URL PAGE_URL EVENTS
// Prints {errors, profiles: [{title, rows: [[total, self, name]]}], page}: the table of speedscope's sandwich view, which
// it computes from the samples it read, and what the page next to it says.
import path from "node:path";
import { chromium } from "playwright-core";

const [executablePath, screenshots, speedscope, pageUrl, events] = process.argv.slice(2);
const { origin } = new URL(speedscope);

// Playwright gives each launch a profile folder of its own and removes it.
const browser = await chromium.launch({
  executablePath,
  args: [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
  ],
});
const errors = [];
try {
  const page = await browser.newPage({ viewport: { width: 1200, height: 700 } });
  page.setDefaultTimeout(120_000); // a machine may be busy with other work
  page.on("pageerror", (error) => errors.push(String(error)));
  page.on("console", (message) => message.type() === "error" && errors.push(message.text()));
  page.on("request", (request) => {
    const url = request.url();
    if (!url.startsWith(origin) && !url.startsWith("data:") && !url.startsWith("blob:")) errors.push(`request to ${url}`);
  });
  await page.goto(speedscope);
  await page.getByText("Sandwich").waitFor();
  const shot = (name) => page.screenshot({ path: path.join(screenshots, `speedscope-${name}.png`) });
  const profiles = [];
  for (let i = 0; i < Number(events); i++) {
    await page.keyboard.press("1");
    await page.waitForTimeout(300); // the canvas is drawn on the next animation frames, which no selector tells
    await shot(`${i}-time-order`);
    await page.keyboard.press("3");
    await page.locator("tr:visible td").first().waitFor();
    const rows = await page.locator("tr:visible").evaluateAll((all) =>
      all.map((row) => [...row.querySelectorAll("td")].map((cell) => cell.innerText.trim())),
    );
    await shot(`${i}-sandwich`);
    profiles.push({ title: await page.title(), rows });
    await page.keyboard.press("n");
    await page.waitForTimeout(100);
  }
  await page.goto(pageUrl);
  await page.locator("html[data-ready]").waitFor();
  const heading = await page.locator("#details-heading").innerText();
  const functions = await page.locator("#functions tbody tr").count();
  console.log(JSON.stringify({ errors, profiles, page: { heading, functions } }, null, 1));
} catch (error) {
  console.error(errors.join("\n"));
  throw error;
} finally {
  await browser.close();
}
