// SPDX-License-Identifier: Apache-2.0
// Chooses stretches of time on a page with metrics in headless Chromium, and prints as JSON what is told of each.
//   node of_time.mjs CHROMIUM SCREENSHOT_FOLDER PAGE FUNCTION…
import path from "node:path";
import { pathToFileURL } from "node:url";
import { drag, launch, openGroups, ready } from "./driving.mjs";

const [executablePath, screenshots, file, ...functions] = process.argv.slice(2);
const browser = await launch(executablePath);
const errors = [];
const page = await browser.newPage({ viewport: { width: 1440, height: 1000 } });
page.setDefaultTimeout(120_000); // a machine may be busy with other work
page.on("pageerror", (error) => errors.push(String(error.stack)));

// [title, source, value, whose] of each metric in the panel, also of groups that are closed.
async function metrics() {
  await openGroups(page);
  return page.locator("#details table.metrics").evaluateAll((tables) => tables.flatMap((table) =>
    [...table.querySelectorAll("tbody tr")].filter((row) => row.querySelector(".value")).map((row) => [
      row.querySelector("th").firstChild.textContent,
      row.querySelector("th .tag")?.textContent ?? "PMU",
      row.querySelector(".value").textContent,
      table.querySelector("thead").textContent,
    ])));
}

async function state() {
  const result = {
    chosen: await page.locator("#time-chosen").innerText(), note: await page.locator("#time-note").innerText(),
    overview: await page.locator("#overview-body").textContent(), functions: {}, stageOne: {},
  };
  result.legend = await page.locator("#legend").innerText();
  for (const row of await page.locator("#functions tbody tr").all()) {
    const name = (await row.locator(".name.link").innerText()).trim();
    const bar = row.locator(".stack");
    result.stageOne[name] = (await bar.count()) ? await bar.getAttribute("aria-label") : null;
  }
  result.program = await metrics();
  for (const name of functions) {
    const link = page.locator("#functions tbody .name.link", { hasText: name });
    if (!(await link.count())) continue;
    await link.click();
    await ready(page);
    result.functions[name] = { metrics: await metrics(), advice: await page.locator("#details .advice").textContent() };
  }
  await page.getByRole("button", { name: "Whole program", exact: true }).click();
  await ready(page);
  return result;
}

const { href } = pathToFileURL(file);
await page.goto(`${href}#c=backend_bound`);
await ready(page);
const seen = { errors, whole: await state() };
await drag(page, 0.001, 0.5);
seen.first = await state();
await page.screenshot({ path: path.join(screenshots, "page-metrics-of-time.png"), fullPage: true });
// The pointer on the widest frame below the root, whose colour is a metric.
await page.locator("#flame-canvas").hover({ position: { x: 200, y: 55 } });
seen.tooltip = await page.locator("#tooltip").innerText();
await drag(page, 0.999, 0.5);
seen.second = await state();
await drag(page, 0.51, 0.6);
seen.short = await state();
await page.locator("#time-all").click();
await ready(page);
seen.back = await state();
console.log(JSON.stringify(seen));
await browser.close();
