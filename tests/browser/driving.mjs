// SPDX-License-Identifier: Apache-2.0
// What all that drive a page have in common.
import { chromium } from "playwright-core";

export function launch(executablePath) {
  return chromium.launch({
    executablePath,
    args: ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"],
  });
}

// What is shown follows the address by two frames.
export async function ready(page) {
  await page.locator("html[data-ready]").waitFor();
  await page.evaluate(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => requestAnimationFrame(done)))));
}

// Over the strip of time; in parts of its width.
export async function drag(page, from, to) {
  await page.locator("#strip").scrollIntoViewIfNeeded();
  const { x, y, width } = await page.locator("#strip").boundingBox();
  await page.mouse.move(x + from * width, y + 20);
  await page.mouse.down();
  await page.mouse.move(x + ((from + to) / 2) * width, y + 20);
  await page.mouse.move(x + to * width, y + 20);
  await page.mouse.up();
  await ready(page);
}

// Opens the groups of metrics in the panel, which have no rows before.
export async function openGroups(page) {
  await page.locator("#details .stage-two details:not([open])").evaluateAll((all) => all.forEach((group) => (group.open = true)));
  await page.waitForFunction(() => !document.querySelector("#details .stage-two details:not(:has(table))"));
}
