// SPDX-License-Identifier: Apache-2.0
// Drives pages of `tdprof export --to html` in headless Chromium and prints as JSON what was seen.
//   node page.mjs CHROMIUM SCREENSHOT_FOLDER FOLDER_WITH_PAGES
// The folder has topdown.html, plain.html, phases.html, spe.html, diff.html, unknown.html and hostile.html. Nothing is judged here: the Python test does that.
import fs from "node:fs";
import path from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { drag, launch, openGroups, ready } from "./driving.mjs";

const [executablePath, screenshots, pages] = process.argv.slice(2);
const axe = fs.readFileSync(fileURLToPath(new URL("node_modules/axe-core/axe.min.js", import.meta.url)), "utf8");
// The page's own script hides what it is made of.
const scriptOfLabels = fileURLToPath(new URL("../../profiler/tdprof/report/page/labels.js", import.meta.url));
const Labels = new Function(`${fs.readFileSync(scriptOfLabels, "utf8")}; return Labels;`)();
const browser = await launch(executablePath);

const seen = { errors: [] };

async function open(name, { hash = "", ...options } = {}) {
  const context = await browser.newContext({ viewport: { width: 1440, height: 1000 }, ...options });
  context.setDefaultTimeout(120_000); // a machine may be busy with other work
  const page = await context.newPage();
  const address = pathToFileURL(path.join(pages, name)).href;
  page.on("pageerror", (error) => seen.errors.push(`${name}: ${error.stack}`));
  page.on("console", (message) => message.type() === "error" && seen.errors.push(`${name}: ${message.text()}`));
  page.on("dialog", (dialog) => seen.errors.push(`${name}: dialog ${dialog.message()}`) && dialog.dismiss());
  page.on("request", (request) => {
    const url = request.url();
    if (url.split("#")[0] !== address && !url.startsWith("data:")) seen.errors.push(`${name}: request to ${url}`);
  });
  await page.goto(address + hash);
  await ready(page);
  return page;
}

const heading = (page) => page.locator("#details-heading").innerText();
const focused = (page) =>
  page.evaluate(() => document.getElementById(document.activeElement.getAttribute("aria-activedescendant"))?.textContent ?? null);
const shot = (page, name, options = {}) => page.screenshot({ path: path.join(screenshots, `page-${name}.png`), ...options });
const rows = (page) =>
  page.locator("#functions tbody tr").evaluateAll((all) => all.map((row) => [...row.children].map((cell) => cell.innerText.trim())));
const hash = (page) => page.evaluate(() => decodeURIComponent(location.hash).replaceAll("+", " "));

async function press(page, ...keys) {
  for (const key of keys) await page.keyboard.press(key);
  await ready(page);
}

// Serious means that somebody is shut out; moderate findings are told as well.
async function accessibility(page) {
  await page.evaluate(axe);
  const found = await page.evaluate(() => window.axe.run(document, { resultTypes: ["violations"] }));
  return found.violations.map(({ id, impact, nodes }) => ({ id, impact, where: nodes.slice(0, 3).map((node) => node.html.slice(0, 160)) }));
}

// The colour of the canvas at a point of the graph.
const pixel = (page, x, y) =>
  page.evaluate(([x, y]) => {
    const canvas = document.getElementById("flame-canvas");
    const ratio = canvas.width / canvas.clientWidth;
    return [...canvas.getContext("2d").getImageData(x * ratio, y * ratio, 1, 1).data];
  }, [x, y]);

async function topdown() {
  const page = await open("topdown.html");
  const result = { title: await page.title(), facts: await page.locator("#facts").innerText(), doubts: await page.locator("#doubts").textContent() };
  result.rows = await rows(page);
  result.program = await page.locator("#overview-body .stack").getAttribute("aria-label");
  result.advice = await page.locator("#overview-body .advice").innerText();
  result.tree = await page.locator("#tree").innerText();
  result.heading = await heading(page);
  await shot(page, "light", { fullPage: true });
  result.lightProblems = await accessibility(page);

  // Click: the third row of the graph is a function that main calls.
  const box = await page.locator("#flame").boundingBox();
  await page.mouse.click(box.x + 30, box.y + 50);
  await ready(page);
  result.clicked = { heading: await heading(page), hash: await hash(page), text: await page.locator("#details").innerText() };
  result.rowMarked = await page.locator('#functions tr[aria-current="true"] .name').first().innerText();
  await shot(page, "function");

  // Colour by a metric, own and with calls; too few samples have stripes.
  await page.locator("#colour").selectOption("backend_bound");
  await ready(page);
  result.ramp = await page.locator("#legend .ramp").evaluate((ramp) => getComputedStyle(ramp).backgroundImage);
  result.coloured = { legend: await page.locator("#legend").innerText(), pixel: await pixel(page, 200, 55), hash: await hash(page) };
  await page.locator("#scope").selectOption("total");
  await ready(page);
  result.colouredTotal = { pixel: await pixel(page, 200, 30) };
  await shot(page, "metric");

  // Zoom with a double click, out by the trail, back and forward with the browser's buttons.
  await page.mouse.dblclick(box.x + 30, (await page.locator("#flame").boundingBox()).y + 50);
  await ready(page);
  result.zoomed = { path: await page.locator("#path").innerText(), hash: await hash(page) };
  await page.goBack();
  await ready(page);
  result.back = { path: await page.locator("#path").innerText(), hash: await hash(page), scope: await page.locator("#scope").inputValue() };
  await page.goForward();
  await ready(page);
  result.forward = await hash(page);
  await page.locator("#path button").first().click();
  await ready(page);
  result.zoomedOut = await hash(page);

  // Search: a share, fewer rows, the graph dimmed.
  await page.locator("#search").fill(result.rows[0][0].split("\n")[0]);
  await ready(page);
  result.search = { text: await page.locator("#matches").innerText(), count: await page.locator("#function-count").innerText(), rows: await rows(page) };
  await shot(page, "search");
  await page.locator("#search").fill("no such function");
  await ready(page);
  result.noMatch = { text: await page.locator("#matches").innerText(), rows: await rows(page) };
  await page.locator("#search").fill("");
  await ready(page);

  // Sorting.
  await page.getByRole("button", { name: "Function", exact: true }).click();
  result.byName = { rows: await rows(page), sort: await page.locator("th.name").first().getAttribute("aria-sort") };
  await page.context().close();
  return result;
}

// Of a function with a metric that is not known, one that no sample showed, and one that the program lacks.
async function unknown() {
  const page = await open("unknown.html", { hash: "#f=chase&c=frontend_bound" });
  const result = { rows: await rows(page), legend: await page.locator("#legend").innerText() };
  const table = page.locator("#details table").first();
  result.stage1 = await table.locator("tbody tr").evaluateAll((all) => all.map((row) => [...row.children].map((cell) => cell.innerText.trim())));
  result.tree = await page.locator("#tree .node").evaluateAll((all) => all.map((node) => [...node.children].map((part) => part.textContent).join("\n")));
  result.closed = await page.locator("#details .stage-two details:not([open])").evaluateAll((all) => all.map((group) => group.querySelectorAll("tr").length));
  await openGroups(page);
  result.unseen = await page.locator("#details .stage-two").evaluate((part) => part.textContent);
  await page.context().close();
  return result;
}

async function keyboard() {
  const page = await open("topdown.html");
  const result = {};
  for (let i = 0; i < 20 && (await page.evaluate(() => document.activeElement.id)) !== "flame"; i++) await page.keyboard.press("Tab");
  result.focus = await page.evaluate(() => document.activeElement.id);
  result.first = await focused(page);
  await press(page, "ArrowDown", "ArrowDown");
  result.down = await focused(page);
  await press(page, "ArrowRight");
  result.right = await focused(page);
  await press(page, "ArrowLeft", "Enter");
  result.entered = { heading: await heading(page), status: await page.locator("#status").innerText(), focused: await focused(page) };
  await press(page, "z");
  result.zoomed = await page.locator("#path").innerText();
  await shot(page, "keyboard");
  await press(page, "Escape");
  result.escaped = await hash(page);
  await press(page, "ArrowUp", "ArrowUp", "ArrowUp");
  result.top = await focused(page);
  await press(page, "/");
  await page.keyboard.type("work");
  await ready(page);
  result.typed = await page.locator("#search").inputValue();
  await press(page, "Tab");
  result.visibleFocus = await page.evaluate(() => getComputedStyle(document.activeElement).outlineStyle);
  await page.context().close();
  return result;
}

async function appearance() {
  const result = {};
  const dark = await open("topdown.html", { colorScheme: "dark", reducedMotion: "reduce" });
  const background = (page) => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  result.dark = await background(dark);
  result.reducedMotion = await dark.evaluate(() => getComputedStyle(document.documentElement).scrollBehavior);
  await shot(dark, "dark", { fullPage: true });
  result.darkProblems = await accessibility(dark);
  await dark.locator("#theme").click();
  result.toggled = await background(dark);
  await dark.context().close();
  result.overflow = {};
  for (const [width, height] of [[360, 740], [768, 1024], [1280, 800], [2560, 1440]]) {
    const page = await open("topdown.html", { viewport: { width, height }, hash: "#c=backend_bound" });
    const measure = () => page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
    result.overflow[width] = await measure();
    if (width === 360 || width === 2560) await shot(page, `${width}-wide`);
    await page.locator("#functions tbody .name.link").first().click();
    await ready(page);
    if (width === 360) await shot(page, `${width}-wide-function`);
    // What is folded takes its room, too.
    await page.evaluate(() => document.querySelectorAll("details").forEach((each) => (each.open = true)));
    result.overflow[width] = Math.max(result.overflow[width], await measure());
    if (width === 360) result.narrowProblems = await accessibility(page);
    await page.context().close();
  }
  return result;
}

async function links(name) {
  const result = {};
  let page = await open("topdown.html", { hash: `#f=${encodeURIComponent(name)}&c=module` });
  result.linked = { heading: await heading(page), colour: await page.locator("#colour").inputValue(), text: await page.locator("#details").innerText() };
  await page.context().close();
  page = await open("topdown.html", { hash: "#f=nobody&z=999999999&e=nothing&c=__proto__&n=-3" });
  result.nonsense = await heading(page);
  await page.context().close();
  return result;
}

async function plain() {
  const page = await open("plain.html");
  const result = { rows: await rows(page), legend: await page.locator("#legend").innerText(), events: await page.locator("#event option").allInnerTexts() };
  result.hasStageOne = (await page.getByText("Stage 1").count()) > 0;
  result.isMethodologyShown = await page.locator("#methodology").isVisible();
  await shot(page, "plain", { fullPage: true });
  await page.locator("#event").selectOption("1");
  await ready(page);
  result.otherEvent = { rows: await rows(page), hash: await hash(page) };
  result.problems = await accessibility(page);
  await page.context().close();
  return result;
}

// Who ended sleeps: of the program, of a function, and of a part of the time.
async function woken() {
  const page = await open("woken.html", { hash: "#e=off-cpu" });
  const section = page.getByLabel("Who ended sleeps", { exact: true });
  const result = { whole: await section.innerText() };
  await section.locator("summary", { hasText: "push of feeder" }).click();
  result.stack = await section.locator("details[open] li").allInnerTexts();
  result.problems = await accessibility(page);
  await shot(page, "woken");
  await page.locator("#functions tbody .name.link", { hasText: /^wait$/ }).click();
  await ready(page);
  result.ofWait = await section.innerText();
  await page.goto(page.url().replace(/#.*/, "#e=off-cpu&f=wait&t=1-2"));
  await ready(page);
  result.later = await section.innerText();
  await page.locator("#event").selectOption("0");
  await ready(page);
  result.onCpu = await section.count();
  await page.context().close();
  return result;
}

// Two programs with code of every kind: the three graphs, read by keyboard as a screen reader would, and what is beside them.
async function processes() {
  const page = await open("processes.html");
  const walk = async (...keys) => {
    await page.locator("#flame").focus();
    const texts = [await focused(page)];
    for (const key of keys) {
      await press(page, key);
      texts.push(await focused(page));
    }
    return texts;
  };
  const result = { colour: await page.locator("#colour").inputValue(), legend: await page.locator("#legend").innerText() };
  result.panel = await page.locator("#details").innerText();
  result.note = await page.locator("#stack-note").innerText();
  result.facts = await page.locator("#facts").innerText();
  result.table = (await rows(page)).join("\n");
  result.problems = await accessibility(page);
  // Rows are all, the programs, main, then what it calls: of node made code, the kernel's; of pack what has no name.
  const { width } = await page.locator("#flame").boundingBox();
  const at = async (share, row) => (await pixel(page, width * share, row * 20 + 3)).slice(0, 3);
  result.colours = { native: await at(0.2, 2), runtime: await at(0.2, 3), kernel: await at(0.5, 3) };
  result.down = await walk("ArrowDown", "ArrowRight", "ArrowDown", "ArrowDown", "ArrowDown");
  await shot(page, "processes");
  const names = await page.locator("#functions .name.link").evaluateAll((all) => all.map((each) => each.title));
  const labels = new Labels(names);
  const long = names.map((name, id) => [name, id]).filter(([name]) => name.startsWith("std::map"));
  result.labels = Object.fromEntries([80, 40, 12, 4].map((most) => [most, long.map(([, id]) => labels.shorten(id, most))]));
  const placed = new Labels(["JS:load /srv/app/lib/a.js:10:4", "JS:load node:internal/modules/b:2:14", "JS:save /srv/app/lib/a.js:3:1"]);
  result.placed = [24, 18, 12].map((most) => placed.names.map((_, id) => placed.shorten(id, most)));
  await page.locator("#view").selectOption("up");
  await ready(page);
  result.up = await walk("ArrowDown", "ArrowDown", "ArrowDown", "ArrowDown");
  await shot(page, "inverted");
  await press(page, "ArrowUp", "z");
  result.upZoomed = await page.locator("#path").innerText();
  await page.reload();
  await ready(page);
  result.upReloaded = await page.locator("#path").innerText();
  await page.context().close();

  const second = await open("processes.html", { hash: "#f=main&v=sandwich" });
  await second.locator("#flame").focus();
  result.sandwich = [await focused(second)];
  for (const key of ["ArrowUp", "ArrowDown", "ArrowDown"]) {
    await press(second, key);
    result.sandwich.push(await focused(second));
  }
  await shot(second, "sandwich");
  await press(second, "z");
  result.sandwichMoved = await heading(second);
  await second.context().close();

  for (const [key, name] of [["unknown", "libz.so.1"], ["process", "node (9)"]]) {
    const third = await open("processes.html", { hash: `#f=${encodeURIComponent(name)}` });
    result[key] = await third.locator("#details").innerText();
    await third.context().close();
  }
  return result;
}

async function spe() {
  const page = await open("spe.html", { hash: "#f=work" });
  const details = () => page.locator("#details").innerText();
  const result = { details: await details(), problems: await accessibility(page) };
  await shot(page, "spe", { fullPage: true });
  await page.locator("#strip").scrollIntoViewIfNeeded();
  await drag(page, 0.25, 0.75);
  result.ofTime = {
    details: await details(), chosen: await page.locator("#time-chosen").innerText(),
    note: await page.locator("#time-note").innerText(), problems: await accessibility(page),
  };
  await page.locator("#time-all").click();
  await ready(page);
  result.back = await details();
  await page.context().close();
  return result;
}

async function diff() {
  const page = await open("diff.html");
  const result = { gone: await page.locator("#details").innerText(), colour: await page.locator("#colour").inputValue() };
  result.legend = await page.locator("#legend").innerText();
  result.rows = await rows(page);
  const flame = await page.locator("#flame").boundingBox();
  // The second row of the graph is main, of which nothing has changed, the fourth has chase, then sort, which takes more.
  result.pixels = { main: await pixel(page, flame.width / 2, 35), changed: await pixel(page, flame.width * 0.45, 72) };
  await page.locator("#functions tbody .name.link", { hasText: "sort" }).click();
  await ready(page);
  result.details = await page.locator("#details").innerText();
  await shot(page, "diff");
  result.problems = await accessibility(page);
  await page.context().close();
  return result;
}

// Samples that weigh more later on, in stretches of time.
async function adapted() {
  const result = {};
  for (const [from, to] of [[0, 5], [2.5, 7.5], [5, 10]]) {
    const page = await open("adapted.html", { hash: `#t=${from}-${to}` });
    result[`${from}s-${to}s`] = await rows(page);
    await page.locator("#functions tbody .name.link", { hasText: "steady" }).click();
    await ready(page);
    result.spark = await page.locator("#details .spark svg").getAttribute("aria-label");
    await page.context().close();
  }
  return result;
}

// The strip of time: dragged over, moved by keys, linked to, and left again.
async function phases() {
  const page = await open("phases.html");
  const strip = page.locator("#strip");
  const chosen = () => page.locator("#time-chosen").innerText();
  const state = async () => ({
    chosen: await chosen(), rows: await rows(page), hash: await hash(page), details: await page.locator("#details").innerText(),
  });
  const result = { whole: await state(), problems: await accessibility(page) };
  const { x, y } = await strip.boundingBox();
  await drag(page, 0.001, 0.5);
  result.first = await state();
  await shot(page, "time", { fullPage: true });
  result.chosenProblems = await accessibility(page);
  await page.goBack();
  await ready(page);
  result.back = await chosen();
  await drag(page, 0.999, 0.5);
  result.second = await state();
  await page.locator("#functions tbody .name.link", { hasText: "sort" }).click();
  await ready(page);
  result.ofSort = await page.locator("#details").innerText();
  result.spark = await page.locator("#details .spark svg").getAttribute("aria-label");
  result.sparkPath = await page.locator("#details .spark path").getAttribute("d");
  await page.mouse.click(x + 5, y + 20);
  await ready(page);
  result.clicked = await chosen();
  const offered = page.locator("#phases button");
  result.offered = await offered.evaluateAll((buttons) => buttons.map((each) => each.title));
  await offered.nth(1).click();
  await ready(page);
  result.phase = { ...(await state()), pressed: await offered.nth(1).getAttribute("aria-pressed") };
  await page.locator("#time-all").click();
  await ready(page);
  const [from, to] = await strip.getByRole("slider").all();
  await from.focus();
  await press(page, "ArrowRight", "ArrowRight", "PageUp", "ArrowLeft");
  await to.focus();
  await press(page, "Home", "ArrowRight", "ArrowRight");
  result.keys = { ...(await state()), from: await from.getAttribute("aria-valuetext"), to: await to.getAttribute("aria-valuetext") };
  await press(page, "Escape");
  result.escaped = await chosen();
  await page.context().close();

  const linked = await open("phases.html", { hash: "#t=0-2&f=parse&e=faults" });
  result.linked = { chosen: await linked.locator("#time-chosen").innerText(), details: await linked.locator("#details").innerText() };
  await linked.context().close();
  const metrics = await open("topdown.html", { hash: "#t=0-3&c=backend_bound&f=chase" });
  // The last row of the strip: the colours of its column in the middle, from below, without text.
  result.levelOne = await metrics.evaluate(() => {
    const canvas = /** @type {HTMLCanvasElement} */ (document.getElementById("strip-canvas"));
    const { height, width } = canvas;
    const { data } = canvas.getContext("2d").getImageData(Math.round(width * 0.8), 0, 1, height);
    const ratio = window.devicePixelRatio || 1;
    const found = [];
    for (let y = height - 2; y > height - 28 * ratio; y--) {
      const colour = data[4 * y + 3] ? `rgb(${data[4 * y]} ${data[4 * y + 1]} ${data[4 * y + 2]})` : "none";
      if (colour !== found[found.length - 1]) found.push(colour);
    }
    return found;
  });
  // What else it can show, and what a row of it adds: height, the bars in it and its place in the page's address.
  const stripNow = () => metrics.evaluate(() => {
    const canvas = /** @type {HTMLCanvasElement} */ (document.getElementById("strip-canvas"));
    const fill = document.createElement("canvas").getContext("2d");
    fill.fillStyle = getComputedStyle(canvas.parentElement).getPropertyValue("--fill");
    fill.fillRect(0, 0, 1, 1);
    const [r, g, b] = fill.getImageData(0, 0, 1, 1).data;
    const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
    let bars = 0;
    for (let i = 0; i < data.length; i += 4) if (data[i] === r && data[i + 1] === g && data[i + 2] === b) bars++;
    return { height: canvas.clientHeight, bars };
  });
  const more = metrics.locator("#strip-more");
  result.more = {
    offered: await more.locator("option").allInnerTexts(), before: await stripNow(),
    rows: [],
  };
  for (const group of ["Events", "Metrics"]) {
    const value = await more.locator(`optgroup[label=${group}] option`).last().getAttribute("value");
    await more.selectOption(value);
    await ready(metrics);
    result.more.rows.push({ value, hash: await hash(metrics), ...(await stripNow()) });
  }
  result.more.problems = await accessibility(metrics);
  await shot(metrics, "time-metric");
  await more.selectOption("");
  await ready(metrics);
  result.more.after = await stripNow();
  result.metrics = {
    note: await metrics.locator("#time-note").innerText(), colour: await metrics.locator("#colour").inputValue(),
    overview: await metrics.locator("#overview").isVisible(), details: await metrics.locator("#details").innerText(),
  };
  await metrics.locator("#time-all").click();
  await ready(metrics);
  result.metricsBack = { overview: await metrics.locator("#overview").isVisible(), details: await metrics.locator("#details").innerText() };
  await metrics.context().close();
  return result;
}

async function hostile() {
  const began = Date.now();
  const page = await open("hostile.html");
  const result = { title: await page.title(), command: await page.locator("#command").innerText() };
  result.elements = await page.evaluate(() => [...new Set([...document.querySelectorAll("body *")].map((each) => each.localName))].sort());
  const names = page.locator("#functions tbody .name.link");
  result.names = await names.allTextContents();
  result.headings = [];
  for (let i = 0; i < 18; i++) {
    await names.nth(i).click();
    await ready(page);
    result.headings.push(await page.locator("#details-heading").textContent());
  }
  result.hash = await page.evaluate(() => location.hash.length);
  await page.reload();
  await ready(page);
  result.reloaded = await page.locator("#details-heading").textContent();
  await page.locator("#search").fill("<img");
  await ready(page);
  result.search = await page.locator("#matches").innerText();
  await page.locator("#search").fill("");
  await page.locator("#flame").focus();
  await page.evaluate(() => (document.getElementById("flame").scrollTop = 1e9));
  await ready(page);
  await shot(page, "hostile");
  result.depth = await page.evaluate(() => document.getElementById("flame").scrollHeight);
  const box = await page.locator("#flame").boundingBox();
  await page.mouse.dblclick(box.x + 3, box.y + box.height - 14);
  await ready(page);
  result.deepest = await page.locator("#path").innerText();
  result.attacked = await page.evaluate(() => window.attacked ?? null);
  result.scripts = await page.evaluate(() => document.scripts.length);
  result.seconds = (Date.now() - began) / 1000;
  await page.context().close();
  return result;
}

try {
  // Two at a time, in contexts of their own.
  await Promise.all([
    (async () => {
      seen.topdown = await topdown();
      seen.keyboard = await keyboard();
      seen.links = await links(seen.topdown.rows[0][0].split("\n")[0]);
      seen.spe = await spe();
      seen.unknown = await unknown();
    })(),
    (async () => {
      seen.appearance = await appearance();
      seen.plain = await plain();
      seen.woken = await woken();
      seen.processes = await processes();
      seen.diff = await diff();
      seen.phases = await phases();
      seen.adapted = await adapted();
      seen.hostile = await hostile();
    })(),
  ]);
  console.log(JSON.stringify(seen, null, 1));
} catch (error) {
  console.error(seen.errors.join("\n"));
  throw error;
} finally {
  await browser.close();
}
