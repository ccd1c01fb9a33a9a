// SPDX-License-Identifier: Apache-2.0
// Load a profile in speedscope's release in headless Chromium, as a user would, and print as JSON what it shows.
//   node speedscope.mjs CHROMIUM RELEASE_FOLDER PROFILE SCREENSHOT_FOLDER
// Prints {errors, profiles: [{title, rows: [[total, self, name]]}]}: the table of speedscope's sandwich view, which it
// computes from the samples it read.
import fs from "node:fs";
import http from "node:http";
import path from "node:path";
import { chromium } from "playwright-core";

const [executablePath, release, profile, screenshots] = process.argv.slice(2);
const types = { ".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".json": "application/json" };

const server = http.createServer((request, response) => {
  const name = path.basename(new URL(request.url, "http://localhost").pathname);
  const file = name === "profile.json" ? profile : path.join(release, name);
  if (!fs.existsSync(file)) {
    response.writeHead(404).end();
    return;
  }
  response.writeHead(200, { "content-type": types[path.extname(file)] ?? "application/octet-stream" });
  fs.createReadStream(file).pipe(response);
});
await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
const origin = `http://127.0.0.1:${server.address().port}`;

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
try {
  const page = await browser.newPage({ viewport: { width: 1200, height: 700 } });
  const errors = [];
  page.on("pageerror", (error) => errors.push(String(error)));
  page.on("request", (request) => request.url().startsWith(origin) || errors.push(`request to ${request.url()}`));
  await page.goto(`${origin}/index.html#profileURL=${encodeURIComponent(`${origin}/profile.json`)}`);
  await page.getByText("Sandwich").waitFor();
  const count = JSON.parse(fs.readFileSync(profile, "utf8")).profiles.length;
  const shot = (name) => page.screenshot({ path: path.join(screenshots, `speedscope-${name}.png`) });
  const profiles = [];
  for (let i = 0; i < count; i++) {
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
  console.log(JSON.stringify({ errors, profiles }, null, 1));
} finally {
  await browser.close();
  server.close();
}
