// SPDX-License-Identifier: Apache-2.0
// How long a page takes to be seen, in a Chromium of its own; for tools/bench/page.
//   node bench.mjs CHROMIUM URL KIND
// Prints {"first paint", "graph drawn"}, of the page by time also how fast it follows: milliseconds from the navigation. The graph of speedscope is drawn when its
// tool bar shows the profile's views.
import { launch } from "./driving.mjs";

// Milliseconds from a movement on the strip of time until the graph of what it chooses is drawn: the median, and the most.
async function brush(page) {
  const { x, y, width } = await page.locator("#strip").boundingBox();
  await page.evaluate(() => {
    window.waits = [];
    document.getElementById("strip").addEventListener("pointermove", () => {
      const began = performance.now();
      requestAnimationFrame(() => requestAnimationFrame(() => window.waits.push(performance.now() - began)));
    });
  });
  await page.mouse.move(x + 0.1 * width, y + 20);
  await page.mouse.down();
  for (let step = 1; step <= 20; step++) {
    await page.mouse.move(x + (0.1 + step * 0.04) * width, y + 20);
    await page.waitForTimeout(300);
  }
  await page.mouse.up();
  const waits = (await page.evaluate(() => window.waits)).slice(1).sort((a, b) => a - b);
  return { "brush answers": waits[waits.length >> 1], "brush at most": waits[waits.length - 1] };
}

const [executablePath, url, kind] = process.argv.slice(2);
const browser = await launch(executablePath);
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
  const brushed = kind.endsWith("by time") ? await brush(page) : {};
  const times = await page.evaluate(() => ({
    "first paint": performance.getEntriesByName("first-paint")[0].startTime,
    "graph drawn": performance.getEntriesByName("tdprof-drawn")[0].startTime,
  }));
  console.log(JSON.stringify({ ...times, ...brushed }));
} finally {
  await browser.close();
}
