// Colours that the colour-blind can tell apart, chosen in OKLab, where equal steps look equal.

function oklab(lightness, a, b) {
  const l = (lightness + 0.3963377774 * a + 0.2158037573 * b) ** 3;
  const m = (lightness - 0.1055613458 * a - 0.0638541728 * b) ** 3;
  const s = (lightness - 0.0894841775 * a - 1.291485548 * b) ** 3;
  const linear = [
    4.0767416621 * l - 3.3077115913 * m + 0.2309699292 * s,
    -1.2684380046 * l + 2.6097574011 * m - 0.3413193965 * s,
    -0.0041960863 * l - 0.7034186147 * m + 1.707614701 * s,
  ];
  return linear.map((each) => {
    const value = Math.min(1, Math.max(0, each));
    return Math.round(255 * (value <= 0.0031308 ? 12.92 * value : 1.055 * value ** (1 / 2.4) - 0.055));
  });
}

const STEPS = 64;
const mix = (from, to, part) => from.map((value, i) => value + (to[i] - value) * part);

function scaleOf(stops) {
  return Array.from({ length: STEPS }, (_, step) => {
    const at = (step / (STEPS - 1)) * (stops.length - 1);
    const low = Math.min(stops.length - 2, Math.floor(at));
    return paint(oklab(...mix(stops[low], stops[low + 1], at - low)));
  });
}

// A fill, and black or white, which contrasts more: 4.58 to 1 at least (WCAG's relative luminance).
function paint(/** @type {number[]} */ [red, green, blue]) {
  const part = (value) => (value / 255 <= 0.04045 ? value / 255 / 12.92 : ((value / 255 + 0.055) / 1.055) ** 2.4);
  const luminance = 0.2126 * part(red) + 0.7152 * part(green) + 0.0722 * part(blue);
  return { fill: `rgb(${red} ${green} ${blue})`, ink: luminance > 0.179 ? "#000000" : "#ffffff" };
}

// From dark blue over grey to yellow, as cividis: lightness rises all the way, so that it also works without any hue.
const SEQUENTIAL = scaleOf([[0.33, -0.01, -0.11], [0.62, 0.0, 0.0], [0.93, -0.03, 0.15]]);
const CATEGORIES = [
  [86, 180, 233],
  [230, 159, 0],
  [60, 190, 145],
  [214, 140, 180],
  [240, 228, 66],
  [120, 150, 210],
  [222, 125, 70],
].map(paint);
// Less in blue, more in orange, nothing in between.
const DIVERGING = scaleOf([[0.42, -0.03, -0.15], [0.72, -0.03, -0.07], [0.95, 0, 0], [0.74, 0.06, 0.11], [0.5, 0.12, 0.11]]);
const UNCHANGED = paint([214, 217, 221]);
const OTHER = paint([186, 190, 196]);
const UNKNOWN = { fill: "hatched", ink: "#101214" };

const LEVEL_ONE = {
  frontend_bound: 0,
  backend_bound: 1,
  retiring: 2,
  bad_speculation: 3,
  frontend_stalled_cycles: 0, // of cores that do not count slots
  backend_stalled_cycles: 1,
};
const LEVEL_ONE_SPARE = [4, 5, 6];
function levelOneColour(name, roots) {
  if (name in LEVEL_ONE) return CATEGORIES[LEVEL_ONE[name]];
  const others = roots.map((metric) => metric.name).filter((each) => !(each in LEVEL_ONE));
  return CATEGORIES[LEVEL_ONE_SPARE[others.indexOf(name) % LEVEL_ONE_SPARE.length]] ?? OTHER;
}

// The ways to colour: {key, label, group}. A key stands in the page's address.
function colourings(model) {
  const found = [];
  const { findings } = model;
  if (findings?.roots.length) found.push({ key: "bottleneck", label: "Bottleneck (level 1)", group: "Code" });
  found.push({ key: "kind", label: "Kind of code", group: "Code" }, { key: "module", label: "Module", group: "Code" }, { key: "self", label: "Self share", group: "Code" });
  if (model.change) found.unshift({ key: "change", label: `Change since ${model.change.since}`, group: "Comparison" });
  for (const metric of findings?.metrics.self ?? []) {
    const stage = findings.catalog.metrics[metric.name]?.stage;
    found.push({
      key: metric.source === "pmu" ? metric.name : `${metric.name}@${metric.source}`,
      label: findings.title(metric.name) + (metric.source === "pmu" ? "" : ` (${metric.source.toUpperCase()})`),
      group: stage ? `Stage ${stage} metrics` : "Other metrics",
      metric,
    });
  }
  return found;
}

// How functions are coloured, by their own instructions ("self") or with all they call ("total"):
// {of(function) -> paint, legend}.
function makeColouring(model, choice, scope) {
  const { of, legend } = colouringOfFunctions(model, choice, scope);
  const isOfCode = choice.key === "kind" || choice.key === "module";
  // Of unknown code and processes no metric is known; unknown code is in a module all the same.
  const ofOthers = (id) => (model.isProcess(id) ? OTHER : isOfCode ? of(model.groups[id - model.firstGroup].members[0]) : UNKNOWN);
  return { of: (id) => (id < model.functionCount ? of(id) : ofOthers(id)), legend };
}

function colouringOfFunctions(model, choice, scope) {
  if (choice.key === "kind") return byKind(model);
  if (choice.key === "bottleneck") return byBottleneck(model);
  if (choice.key === "module") return byModule(model);
  if (choice.key === "change") return byChange(model, scope);
  const valueFor =
    choice.key === "self"
      ? (f) => ({ value: 100 * model.share(model.functions.self[f]), isSignificant: true })
      : (f) => model.findings.ofFunction(f, choice.metric, scope);
  return byValue(model, choice, valueFor);
}

function byValue(model, choice, valueFor) {
  const values = new Float64Array(model.functionCount).fill(NaN);
  let highest = 0;
  for (let f = 0; f < model.functionCount; f++) {
    const found = valueFor(f);
    if (!found?.isSignificant) continue;
    values[f] = found.value;
    if (found.value > highest) highest = found.value;
  }
  const units = choice.metric ? choice.metric.units : "percent of the event";
  // What few samples make of more than the whole must not set the scale for all others.
  const top = units.startsWith("percent") ? Math.min(100, roundUp(highest)) : roundUp(highest);
  const paints = Array.from(values, (value) =>
    Number.isNaN(value) ? UNKNOWN : SEQUENTIAL[Math.min(STEPS - 1, Math.max(0, Math.round((value / top) * (STEPS - 1))))],
  );
  const program = choice.metric ? model.findings.program(choice.metric) : null;
  return { of: (f) => paints[f], legend: { kind: "scale", top, units, average: program?.value, hasUnknown: Boolean(choice.metric) } };
}

function byChange(model, scope) {
  const found = Array.from({ length: model.functionCount }, (_, f) => model.change.of(f, scope));
  const most = found.reduce((top, each) => (each?.isSignificant ? Math.max(top, Math.abs(each.value)) : top), 0);
  const top = roundUp(most);
  const paints = found.map((each) => {
    if (!each) return UNKNOWN;
    if (!each.isSignificant) return UNCHANGED;
    return DIVERGING[Math.round(((each.value / top + 1) / 2) * (STEPS - 1))];
  });
  return { of: (f) => paints[f], legend: { kind: "change", top, units: model.change.units } };
}

function byBottleneck(model) {
  const { findings } = model;
  const { roots } = findings;
  const paints = Array.from({ length: model.functionCount }, (_, f) => {
    const found = findings.rowOf[f] < 0 ? null : findings.bottleneck(f);
    return found ? levelOneColour(found, roots) : UNKNOWN;
  });
  const entries = roots.map((metric) => [findings.title(metric.name), levelOneColour(metric.name, roots)]);
  return { of: (f) => paints[f], legend: { kind: "categories", entries, hasUnknown: true } };
}

// The same colours on every page: what the kernel ran, what a file holds, what was made at run time, and what is unknown.
const KIND_COLOURS = { kernel: CATEGORIES[1], native: CATEGORIES[0], runtime: CATEGORIES[2], unknown: UNKNOWN };
const KIND_TITLES = { kernel: "kernel", native: "program and libraries", runtime: "made at run time", unknown: "no name known" };

function byKind(model) {
  const seen = new Set(Array.from({ length: model.functionCount }, (_, f) => model.kind(f)));
  const entries = Object.keys(KIND_COLOURS).filter((kind) => seen.has(kind)).map((kind) => [KIND_TITLES[kind], KIND_COLOURS[kind]]);
  return { of: (f) => KIND_COLOURS[model.kind(f)], legend: { kind: "categories", entries } };
}

function byModule(model) {
  const weight = new Float64Array(model.modules.length);
  for (let f = 0; f < model.functionCount; f++) weight[model.moduleIndex(f)] += model.functions.self[f];
  const order = [...weight.keys()].filter((i) => model.modules[i]).sort((a, b) => weight[b] - weight[a]);
  const paints = model.modules.map(() => OTHER);
  for (const [rank, row] of order.slice(0, CATEGORIES.length).entries()) paints[row] = CATEGORIES[rank];
  const entries = order.slice(0, CATEGORIES.length).map((row) => [baseName(model.modules[row]), paints[row]]);
  if (paints.includes(OTHER)) entries.push(["others", OTHER]);
  return { of: (f) => paints[model.moduleIndex(f)], legend: { kind: "categories", entries } };
}

// A round number, not below the value.
function roundUp(value) {
  if (!(value > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10].map((step) => step * power).find((step) => step >= value * 0.9999);
}

function drawLegend(legend) {
  const swatch = (fill, text) =>
    el("span", { class: "swatch" },
      el("i", { class: fill === "hatched" ? "hatched" : "", style: fill === "hatched" ? {} : { background: fill } }),
      text);
  if (legend.kind === "categories") {
    return [
      ...legend.entries.map(([text, colour]) => swatch(colour.fill, text)),
      legend.hasUnknown ? swatch("hatched", "too few samples") : null,
    ];
  }
  if (legend.kind === "change") {
    const steps = DIVERGING.map((colour) => colour.fill).join(",");
    return [
      el("span", { class: "scale" },
        el("span", {}, `\u2212${legend.top}`),
        el("span", { class: "ramp", style: { background: `linear-gradient(90deg,${steps})` } }),
        el("span", {}, `+${legend.top} ${legend.units}`)),
      swatch(UNCHANGED.fill, "no change of its own"),
    ];
  }
  const steps = SEQUENTIAL.map((colour) => colour.fill).join(",");
  const average = legend.average;
  const isShown = average !== undefined && average >= 0 && average <= legend.top;
  return [
    el("span", { class: "scale" },
      el("span", {}, "0"),
      el("span", { class: "ramp", style: { background: `linear-gradient(90deg,${steps})` } },
        isShown ? el("i", { class: "mark", style: { left: percentOf(average / legend.top) } }) : null),
      el("span", {}, `${legend.top.toLocaleString("en")} ${legend.units}`)),
    isShown ? el("span", { class: "average" }, `▲ program: ${showValue(average, NaN).value}`) : null,
    legend.hasUnknown ? swatch("hatched", "too few samples") : null,
  ];
}
