// Parts that several places show: bars with intervals, the Stage 1 bar, buttons that lead to a function.

// A value's bar from 0 to `top` with its 95 % interval as a line, and `mark` (the program's average) as a tick.
function bar({ value, halfWidth, top, mark = NaN, fill = "", isDoubtful = false }) {
  const at = (x) => percentOf(Math.min(1, Math.max(0, x / top)));
  const low = Math.max(0, value - halfWidth);
  return el("span", { class: "meter", "aria-hidden": "true" },
    Number.isNaN(value)
      ? null
      : el("span", { class: isDoubtful ? "fill hatched" : "fill", style: { width: at(value), ...(fill && !isDoubtful ? { background: fill } : {}) } }),
    Number.isNaN(halfWidth) || Number.isNaN(value)
      ? null
      : el("span", { class: "whisker", style: { left: at(low), width: percentOf(Math.min(1, (value + halfWidth) / top) - Math.min(1, low / top)) } }),
    Number.isNaN(mark) ? null : el("span", { class: "tick", style: { left: at(mark) } }));
}

const rootTitle = (findings, metric) => findings.title(metric.name);

// Level 1 as one bar of 100 parts; valueFor gives a metric's value. Null where there is nothing to show.
function stageOneBar(findings, valueFor, { isSmall = false } = {}) {
  const { roots } = findings;
  const found = roots.map((metric) => [metric, valueFor(metric)]).filter(([, value]) => value);
  if (!found.length) return isSmall ? el("span", { class: "muted" }, "unknown") : null;
  const isDoubtful = found.some(([, value]) => !value.isSignificant);
  const sum = found.reduce((all, [, value]) => all + Math.max(0, value.value), 0);
  const words = found.map(([metric, value]) => {
    const shown = showMetric(value);
    return `${rootTitle(findings, metric)} ${shown.value}${shown.doubt} %`;
  });
  const label = (isDoubtful ? "Too few samples: " : "") + words.join(", ");
  return el("span", { class: `stack${isSmall ? " small" : ""}${isDoubtful ? " doubtful" : ""}`, role: "img", "aria-label": label, title: label },
    found.map(([metric, value]) => {
      const part = Math.max(0, value.value) / Math.max(100, sum);
      const colour = levelOneColour(metric.name, roots);
      return el("span", { style: { width: percentOf(part), background: colour.fill, color: colour.ink } },
        !isSmall && part > 0.09 ? `${value.value.toFixed(0)} %` : null);
    }));
}

function stageOneLegend(findings) {
  const { roots } = findings;
  return el("ul", { class: "legend" }, roots.map((metric) =>
    el("li", { class: "swatch" }, el("i", { style: { background: levelOneColour(metric.name, roots).fill } }), rootTitle(findings, metric))));
}

// A metric with its doubt; "too few samples" where the value must not be acted upon.
function valueText(found) {
  if (!found) return el("span", { class: "value muted" }, "unknown");
  const shown = showMetric(found);
  return el("span", { class: found.isSignificant ? "value" : "value muted" },
    shown.value,
    shown.doubt ? el("span", { class: "plusminus" }, shown.doubt) : null,
    found.isSignificant ? null : hiddenText(", too few samples"));
}

// One metric of a function beside the program's.
function metricRow(findings, metric, found, program, fill = "") {
  const reach = (value) => (value ? value.value + (value.halfWidth || 0) : 0);
  const top = metric.units.startsWith("percent") ? 100 : roundUp(Math.max(reach(found), reach(program)));
  const words = found
    ? `from ${plural(found.samples, "sample")}${found.isSignificant ? "" : ": too few to act upon"}`
    : "no samples that would tell, or not measured";
  const isApart = found?.isSignificant && program && found !== program && Math.abs(found.value - program.value) > Math.hypot(found.halfWidth, program.halfWidth);
  const direction = isApart ? (found.value > program.value ? " above the program's" : " below the program's") : "";
  return el("tr", { title: words },
    el("th", { scope: "row" }, findings.title(metric.name),
      metric.source === "pmu" ? null : el("span", { class: "tag" }, metric.source.toUpperCase()),
      el("span", { class: "units" }, metric.units)),
    el("td", { class: "meter-cell" }, bar({
      value: found?.value ?? NaN, halfWidth: found?.halfWidth ?? NaN, top, fill,
      mark: found === program ? NaN : program?.value ?? NaN, isDoubtful: found ? !found.isSignificant : false })),
    el("td", { class: "number" }, valueText(found),
      isApart ? el("span", { class: "apart", "aria-hidden": "true" }, found.value > program.value ? " ▲" : " ▼") : null,
      direction ? hiddenText(direction) : null),
    found === program ? null : el("td", { class: "number muted" }, program ? showMetric(program).value : "unknown"));
}

function metricTable(caption, rows, hasProgram, heading = "value") {
  return el("table", { class: "metrics" },
    el("caption", {}, caption),
    el("thead", {}, el("tr", {},
      el("th", { scope: "col" }, hiddenText("metric")),
      el("td", {}),
      el("th", { scope: "col", class: "number" }, heading),
      hasProgram ? el("th", { scope: "col", class: "number" }, "program") : null)),
    el("tbody", {}, rows));
}

// A list of [function, weight] as buttons with a bar; -1 is the root.
function functionList(model, entries, onSelect, most = 8) {
  const shown = entries.slice(0, most);
  const top = shown.length ? shown[0][1] : 1;
  return el("ul", { class: "functions-list" }, shown.map(([f, weight]) =>
    el("li", {},
      f < 0 ? el("span", { class: "muted" }, "nobody: outermost") : button([...nameSpans(model.names[f]), f < model.functionCount ? null : markOf(model, f)], () => onSelect(f), { class: f < model.functionCount || model.isProcess(f) ? "name link" : "name link unknown", title: [model.names[f], model.mark(f)].filter(Boolean).join(", ") }),
      bar({ value: weight, halfWidth: NaN, top }),
      el("span", { class: "number" }, showShare(model.share(weight))))),
    entries.length > most ? el("li", { class: "muted" }, `and ${plural(entries.length - most, "more function")}`) : null);
}

function diagnosisText(findings, diagnosis, { whose }) {
  if (!diagnosis?.path.length) {
    return el("p", { class: "advice none" }, `Nothing in ${whose} stands out of the noise: it has too few samples, or its ${findings.roots.length ? findings.divided : "slots"} go to several places alike.`);
  }
  const { roots } = findings;
  // The trail names the metric already.
  const advice = diagnosis.advice.replace(`${findings.title(diagnosis.path[diagnosis.path.length - 1])}: `, "");
  return el("div", { class: "advice", style: { "--edge": levelOneColour(diagnosis.path[0], roots).fill } },
    el("p", { class: "trail" }, diagnosis.path.flatMap((name, i) => [i ? el("span", { "aria-hidden": "true" }, " › ") : null, i ? hiddenText(", then ") : null, findings.title(name)])),
    el("p", {}, advice));
}
