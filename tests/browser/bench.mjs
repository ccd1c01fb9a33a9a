// SPDX-License-Identifier: Apache-2.0
// How long a page takes to be seen, in a Chromium of its own; for tools/bench/page.
//   node bench.mjs CHROMIUM URL KIND
// Prints {"first paint", "graph drawn"}: milliseconds from the navigation. The graph of speedscope is drawn when its
// tool bar shows the profile's views.
import { chromium } from "playwright-core";

const [executablePath, url, kind] = process.argv.slice(2);
const browser = await chromium.launch({
  executablePath,
  args: ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"],
});
try {
  const page = await browser.newPage({ viewport: { width: 1440, height: 1000 } });
  await page.goto(url);
  if (kind === "speedscope") {
    await page.getByText("Sandwich").waitFor({ timeout: 120_000 });
    await page.evaluate(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))));
    await page.evaluate(() => performance.mark("tdprof-drawn"));
  } else {
    await page.waitForFunction(() => performance.getEntriesByName("tdprof-drawn").length > 0, null, { timeout: 120_000 });
  }
  const times = await page.evaluate(() => ({
    "first paint": performance.getEntriesByName("first-paint")[0].startTime,
    "graph drawn": performance.getEntriesByName("tdprof-drawn")[0].startTime,
  }));
  console.log(JSON.stringify(times));
} finally {
  await browser.close();
}
