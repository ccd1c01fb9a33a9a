// What is known of one function, or of the whole program while no function is chosen.

function drawDetails(model, f, on) {
  const { findings } = model;
  if (f >= model.functionCount) {
    byId("details").replaceChildren(...partDetails(model, f, on).filter(Boolean));
    return;
  }
  const sections = f < 0 ? programDetails(model, on) : functionDetails(model, f, on);
  if (findings) sections.push(...explorationOf(findings, f));
  if (f >= 0) {
    const spe = model.spe ? speDetails(model, f) : null;
    const changed = model.change ? changeDetails(model, f) : null;
    sections.splice(3, 0, changed);
    sections.push(spe, wakersOf(model, f), linesOf(model, f), neighboursOf(model, f, on), eventsOf(model, f));
  }
  if (f < 0 && model.change) sections.push(goneDetails(model));
  byId("details").replaceChildren(...sections.filter(Boolean));
}

// A process, or unknown code of one file: what takes most in it.
function partDetails(model, id, on) {
  const isProcess = model.isProcess(id);
  const most = model.hottest(id);
  return [
    headOf(model, id, on),
    sharesOf(model, id),
    sparkline(model, id),
    el("section", { "aria-label": "Hot functions" },
      el("h3", {}, isProcess ? "Its hot functions" : `Its ${plural(model.groups[id - model.firstGroup].members.length, "place")} without a name`),
      most.length ? functionList(model, most, on.select, 20) : el("p", { class: "muted" }, "no samples of this event")),
    wakersOf(model, id),
  ];
}

function hotFunctions(model, on) {
  const most = model.hottest();
  if (!most.length) return null;
  return el("section", { "aria-label": "Hot functions" }, el("h3", {}, "Hot functions, their own samples"), functionList(model, most, on.select, 10));
}

// Who ended sleeps, each with the call stack in which it ended most.
function wakersOf(model, id) {
  const found = model.wakers(id);
  if (!found.length) return null;
  const { names, stacks } = model.header.wakers;
  const whole = found.reduce((sum, [, weight]) => sum + weight, 0);
  const most = 12;
  const rows = found.slice(0, most).map(([waker, weight]) => {
    const name = el("span", { class: "name", title: names[waker] }, names[waker]);
    const stack = stacks[waker].map((f) => el("li", { class: "name" }, f < 0 ? "no call stack" : model.names[f]));
    return el("li", {},
      stack.length ? el("details", { class: "waker" }, el("summary", {}, name), el("ol", {}, stack)) : name,
      bar({ value: weight, halfWidth: NaN, top: found[0][1] }),
      el("span", { class: "number" }, showShare(weight / whole)));
  });
  return el("section", { "aria-label": "Who ended sleeps" },
    el("h3", {}, id < 0 ? "Who ended the sleeps" : "Who ended its sleeps, and those of all it calls"),
    el("ul", { class: "functions-list" }, rows),
    found.length > most ? el("p", { class: "hint" }, `and ${found.length - most} more`) : null);
}

// How far call stacks reach, and why they end where they do.
function stackQuality(model) {
  const { stacks } = model.header;
  if (!stacks?.ends.length || model.times?.span) return null;
  const rows = stacks.ends.map(({ word, meaning, samples }) =>
    el("tr", { title: plural(samples, "sample") },
      el("th", { scope: "row" }, word, el("span", { class: "units" }, meaning)),
      el("td", { class: "meter-cell" }, bar({ value: samples, halfWidth: NaN, top: stacks.samples })),
      el("td", { class: "number" }, showShare(samples / stacks.samples))));
  return el("section", { "aria-label": "Call stacks" },
    el("h3", {}, "How call stacks end"),
    el("table", { class: "metrics" },
      el("caption", {}, "Ends of user call stacks"),
      el("thead", {}, el("tr", {}, el("th", { scope: "col" }, "end"), el("td", {}), el("th", { scope: "col", class: "number" }, "samples"))),
      el("tbody", {}, rows)),
    stacks.guessed ? el("p", { class: "hint" }, `In ${showShare(stacks.guessed / stacks.samples)} some callers are guessed along frame pointers.`) : null);
}

function programDetails(model, on) {
  const { findings } = model;
  const head = el("div", { class: "details-head" },
    el("h2", { id: "details-heading" }, "Whole program"),
    el("p", { class: "muted" }, "Choose a function, in the graph or the table, to see its own numbers here."));
  const ground = [hotFunctions(model, on), wakersOf(model, -1), stackQuality(model)];
  // Its bar and diagnosis stand above the graph.
  if (!findings?.roots.length) return [head, ...ground, eventsTable(model)];
  return [head, el("section", { "aria-label": "Stage 1" }, el("h3", {}, `Stage 1: where its ${findings.divided} go`), stageOneTable(findings, (metric) => findings.program(metric), null)), ...ground];
}

function functionDetails(model, f, on) {
  const { findings } = model;
  const sections = [headOf(model, f, on), sharesOf(model, f), sparkline(model, f)];
  if (!findings) return sections;
  const diagnosis = findings.rowOf[f] < 0 ? null : findings.diagnosis(f);
  if (!findings.roots.length) return sections;
  const table = tableOf(findings, f);
  const own = stageOneBar(findings, (metric) => findings.ofFunction(f, metric));
  const all = stageOneBar(findings, (metric) => findings.ofFunction(f, metric, "total"));
  return [
    ...sections,
    el("section", { "aria-label": "Stage 1" },
      el("h3", {}, `Stage 1: where its ${findings.divided} go`),
      own ? el("div", { class: "labelled" }, el("span", {}, "its own instructions"), own) : null,
      all ? el("div", { class: "labelled" }, el("span", {}, "it and all it calls"), all) : null,
      own || all
        ? stageOneTable(findings, (metric) => findings.ofFunction(f, metric, table), (metric) => findings.program(metric), SCOPES[table])
        : null,
      diagnosisText(findings, diagnosis, { whose: "its own instructions" })),
  ];
}

function headOf(model, id, on) {
  const where = [model.module(id), model.file(id)].filter(Boolean).join(" · ");
  return el("div", { class: "details-head" },
    el("h2", { id: "details-heading", class: "name" }, model.names[id]),
    el("p", { class: "muted path" }, where || (model.isProcess(id) ? "process" : "no module known"), markOf(model, id)),
    el("p", { class: "actions" },
      button("Zoom to it", () => on.zoom(model.widestNode(id))),
      button("Callers and callees", () => on.sandwich(id)),
      button("Whole program", () => on.select(-1))));
}

function sharesOf(model, id) {
  const { functions } = model;
  const share = model.share(functions.self[id]);
  const shown = showShareValue(share, model.halfWidth(share));
  return el("dl", { class: "figures" },
    figure("self", `${shown.value} %`, shown.halfWidth ? `± ${shown.halfWidth}` : ""),
    figure("total", showShare(model.share(functions.total[id])), ""),
    figure("samples", functions.samples[id].toLocaleString("en"), ""));
}

const SCOPES = { self: "its own", total: "with calls" };

// Of a function that mostly calls others, what its calls do says more than its own few instructions.
function tableOf(findings, f) {
  const known = (table) => findings.roots.filter((metric) => findings.ofFunction(f, metric, table)?.isSignificant).length;
  return known("total") > known("self") ? "total" : "self";
}

const figure = (label, value, doubt) =>
  el("div", {}, el("dt", {}, label), el("dd", {}, value, doubt ? el("span", { class: "plusminus" }, ` ${doubt}`) : null));

function stageOneTable(findings, valueFor, program, heading) {
  const { roots } = findings;
  const rows = roots.map((metric) => {
    const found = valueFor(metric);
    return metricRow(findings, metric, found, program ? program(metric) : found, levelOneColour(metric.name, roots).fill);
  });
  return metricTable("Stage 1, with 95 % intervals", rows, Boolean(program), heading);
}

// Stage 2: the groups that the diagnosis leads to stand open, the others closed, and empty until somebody opens them: they
// are most of what would have to be made anew for each movement on the strip of time.
function explorationOf(findings, f) {
  const table = f < 0 ? "program" : tableOf(findings, f);
  // SPE's records have no call stack: what it measures is of a function's own instructions.
  const valueFor = (metric) =>
    f < 0 ? findings.program(metric) : findings.ofFunction(f, metric, metric.source === "spe" ? "self" : table);
  const diagnosis = f < 0 || findings.rowOf[f] >= 0 ? findings.diagnosis(f) : null;
  const first = diagnosis?.groups ?? [];
  const roots = new Set(findings.catalog.roots);
  const names = Object.keys(findings.catalog.groups);
  const order = [...first, ...names.filter((name) => !first.includes(name))];
  const measured = findings.metrics[table];
  const open = [];
  const closed = [];
  for (const name of order) {
    const group = findings.catalog.groups[name];
    const metrics = measured.filter((metric) => group?.metrics.includes(metric.name) && !roots.has(metric.name));
    if (!metrics.some(valueFor)) continue;
    const isFirst = first.includes(name);
    const holder = el("details", { open: isFirst }, el("summary", {}, group.title));
    const fill = () => {
      const known = metrics.map((metric) => [metric, valueFor(metric)]).filter(([, found]) => found);
      const rows = known.map(([metric, found]) => metricRow(findings, metric, found, f < 0 ? found : findings.program(metric)));
      holder.append(metricTable(group.title, rows, f >= 0, SCOPES[table]));
    };
    if (isFirst) fill();
    else holder.addEventListener("toggle", fill, { once: true });
    (isFirst ? open : closed).push(holder);
  }
  if (!open.length && !closed.length) return [];
  return [el("section", { class: "stage-two", "aria-label": "Stage 2" }, el("h3", {}, "Stage 2: why"), open,
    closed.length ? el("p", { class: "hint" }, open.length ? "Other groups:" : "Groups:") : null, closed)];
}

function linesOf(model, f) {
  const findings = model.findings?.hasLines ? model.findings : null;
  const lines = model.lines(f);
  if (!lines.some((each) => each.line)) return null;
  const most = 12;
  const top = model.share(lines[0].weight) + model.halfWidth(model.share(lines[0].weight));
  const rows = lines.slice(0, most).map(({ line, file, weight, samples }) => {
    const other = model.lineFile(file);
    const share = model.share(weight);
    return el("tr", { title: plural(samples, "sample") },
      el("th", { scope: "row", class: "number" }, line ? `${other && `${other}:`}${line}` : "?"),
      el("td", { class: "meter-cell" }, bar({ value: share, halfWidth: model.halfWidth(share), top })),
      el("td", { class: "number" }, showShare(share)),
      findings ? el("td", {}, stageOneBar(findings, (metric) => findings.ofLine(f, file, line, metric), { isSmall: true })) : null);
  });
  const file = model.file(f);
  return el("section", { "aria-label": "Lines" },
    el("h3", {}, "Its lines"),
    el("table", { class: "metrics lines" },
      el("caption", {}, file || "source lines"),
      el("thead", {}, el("tr", {}, el("th", { scope: "col", class: "number" }, "line"), el("td", {}), el("th", { scope: "col", class: "number" }, "self"), findings ? el("th", { scope: "col" }, "Stage 1") : null)),
      el("tbody", {}, rows)),
    lines.length > most ? el("p", { class: "hint" }, `and ${plural(lines.length - most, "more line")}`) : null);
}

function neighboursOf(model, f, on) {
  const { callers, callees } = model.neighbours(f);
  const select = (other) => on.select(other);
  return el("section", { "aria-label": "Callers and callees" },
    el("h3", {}, "Called by"), callers.length ? functionList(model, callers, select) : el("p", { class: "muted" }, "no samples of this event"),
    el("h3", {}, "Calls"), callees.length ? functionList(model, callees, select) : el("p", { class: "muted" }, "nothing that was sampled"));
}

// A function's share of every event: counts of all of them are asked of the model one by one, so only on demand.
function eventsOf(model, f) {
  if (model.events.length < 2) return null;
  const body = el("tbody");
  const holder = el("details", {}, el("summary", {}, "Its share of every event"),
    el("table", { class: "metrics" }, el("caption", {}, "Shares by event"),
      el("thead", {}, el("tr", {}, el("th", { scope: "col" }, "event"), el("td", {}), el("th", { scope: "col", class: "number" }, "self"))), body));
  holder.addEventListener("toggle", () => {
    if (!holder.open || body.childElementCount) return;
    const shares = model.selfShares(f);
    const top = Math.max(...shares.filter((share) => !Number.isNaN(share)), 1e-9);
    body.append(...model.events.map((event, i) => el("tr", {},
      el("th", { scope: "row" }, event.name),
      el("td", { class: "meter-cell" }, bar({ value: shares[i], halfWidth: NaN, top })),
      el("td", { class: "number" }, showShare(shares[i])))));
  });
  return el("section", { "aria-label": "Events" }, holder);
}

function eventsTable(model) {
  return el("section", { "aria-label": "Events" },
    el("h3", {}, "Events"),
    el("table", { class: "metrics" }, el("caption", {}, "What was sampled and what the kernel counted"),
      el("thead", {}, el("tr", {}, ["event", "samples", "counted"].map((text, i) => el("th", { scope: "col", class: i ? "number" : "" }, text)))),
      el("tbody", {}, model.events.map((event, i) => el("tr", { title: model.times?.span ? "" : event.notes.join(", ") },
        el("th", { scope: "row" }, event.name, el("span", { class: "units" }, event.asked)),
        el("td", { class: "number" }, Number.isNaN(model.samplesOf(i)) ? "unknown" : model.samplesOf(i).toLocaleString("en")),
        el("td", { class: "number" }, (model.times?.span ? null : event.counted) ?? "unknown"))))));
}

function speDetails(model, f) {
  const { spe } = model;
  const row = spe.functions.indexOf(f);
  const section = (...content) => el("section", { "aria-label": "SPE" }, el("h3", {}, "SPE: its sampled operations"), ...content);
  if (row < 0) return section(el("p", { class: "muted" }, "None fell into it."));
  const levels = spe.levels.map(({ name, count }) => [name, count[row]]).filter(([, count]) => count);
  const served = levels.reduce((sum, [, count]) => sum + count, 0);
  const top = Math.max(...levels.map(([, count]) => count), 1);
  const cycles = (value) => (value === null ? "unknown" : value.toFixed(value < 10 ? 1 : 0));
  const columns = ["mean", "p50", "p90", "p99"];
  const heads = columns.map((text) => el("th", { scope: "col", class: "number" }, text));
  return section(
    el("p", { class: "muted" }, `${plural(spe.operations[row], "operation")}, ${plural(spe.loads[row], "load")} of them`),
    el("table", { class: "metrics latencies" },
      el("caption", {}, "Latency in cycles"),
      el("thead", {}, el("tr", {}, el("th", { scope: "col" }, "latency, cycles"), heads)),
      el("tbody", {}, spe.latencies.filter((latency) => latency.mean[row] !== null).map((latency) =>
        el("tr", {}, el("th", { scope: "row" }, latency.title), columns.map((name) => el("td", { class: "number" }, cycles(latency[name][row]))))))),
    levels.length
      ? el("table", { class: "metrics" },
          el("caption", {}, "What its loads were served from"),
          el("thead", {}, el("tr", {}, el("th", { scope: "col" }, "loads served from"), el("td", {}), el("th", { scope: "col", class: "number" }, "share"))),
          el("tbody", {}, levels.map(([name, count]) =>
            el("tr", { title: plural(count, "load") },
              el("th", { scope: "row" }, name),
              el("td", { class: "meter-cell" }, bar({ value: count, halfWidth: NaN, top })),
              el("td", { class: "number" }, showShare(count / served))))))
      : null);
}
