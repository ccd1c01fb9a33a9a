// Ties the parts together. What is shown stands in the page's address, so that the back button and links work.

const READ = (hash) => {
  const words = new URLSearchParams(hash.replace(/^#/, ""));
  return {
    f: words.get("f"), // the chosen function's name; `n` counts functions of one name
    n: Number(words.get("n")) || 0,
    v: words.get("v") ?? "", // the graph: "up" is inverted, "sandwich" has the chosen function in its middle
    z: words.get("z"), // what is zoomed to, as the graph calls it
    e: words.get("e"), // the event that gives the width
    c: words.get("c"), // the colour
    s: words.get("s"), // "total": the colour is of functions with all they call
    q: words.get("q") ?? "", // the search
    t: words.get("t"), // the time, in seconds since the start
    o: words.get("o"), // what else the strip of time shows
  };
};

const VIEWS = {
  "": { title: "Flame graph", hint: "Callers above what they call." },
  up: { title: "Inverted graph", hint: "Functions with samples of their own on top, below them who called them." },
  sandwich: { title: "Callers and callees", hint: "A function in the middle, its callers above, what it calls below." },
};

class Page {
  constructor(model) {
    this.model = model;
    this.choices = colourings(model);
    this.draft = {}; // of what the address says, while a pointer is down
    const on = {
      select: (node) => this.go(this.nameOf(this.graph.id[node])),
      zoom: (node) => this.zoom(node),
      hover: (node, event) => this.tooltip(node, event),
    };
    this.on = {
      select: (f) => this.go(this.nameOf(f)),
      zoom: (node) => this.go({ v: null, z: node }),
      sandwich: (f) => this.go({ ...this.nameOf(f), v: "sandwich", z: null }),
      colour: (key) => this.go({ c: key }),
    };
    this.flame = new Flame(model, on);
    this.table = new FunctionTable(model, (f) => this.go(this.nameOf(f), { isFromTable: true }));
    this.strip = model.times ? new Strip(model, (span, isDraft) => this.go({ t: model.times.addressOf(span) }, { isDraft }), (o) => this.go({ o })) : null;
    this.byName = new Map();
    model.names.forEach((name, f) => {
      if (!this.byName.has(name)) this.byName.set(name, []);
      this.byName.get(name).push(f);
    });
    drawHead(model);
    this.drawControls();
    addEventListener("popstate", () => {
      this.draft = {};
      this.show();
    });
    this.show();
  }

  drawControls() {
    const { model } = this;
    byId("event").append(...model.events.map((event, i) => el("option", { value: String(i) }, event.name)));
    byId("event").addEventListener("change", (event) => this.go({ e: model.events[event.target.value].name, z: null }));
    byId("view").addEventListener("change", (event) => this.go({ v: event.target.value, z: null }));
    const groups = new Map();
    for (const choice of this.choices) {
      if (!groups.has(choice.group)) groups.set(choice.group, el("optgroup", { label: choice.group }));
      groups.get(choice.group).append(el("option", { value: choice.key }, choice.label));
    }
    byId("colour").append(...groups.values());
    byId("colour").addEventListener("change", (event) => this.go({ c: event.target.value }));
    byId("scope").addEventListener("change", (event) => this.go({ s: event.target.value === "total" ? "total" : null }));
    byId("search").addEventListener("input", (event) => this.go({ q: event.target.value }, { isReplaced: true }));
    addEventListener("keydown", (event) => {
      const { target } = event;
      if (event.key !== "/" || (target instanceof Element && target.matches("input, select, textarea"))) return;
      event.preventDefault();
      byId("search").focus();
    });
    this.flame.box.addEventListener("blur", () => this.flame.requestDraw());
  }

  // In a sandwich there is nothing to zoom to: what is asked for goes to its middle.
  zoom(node) {
    const { graph } = this;
    if (graph.view !== "sandwich") this.go({ z: graph.addressOf(node) });
    else if (node > 0) this.go(this.nameOf(graph.id[node]));
  }

  // The graph of a view; a sandwich without a chosen function is of the one with most samples of its own.
  graphOf(view) {
    const { model } = this;
    const f = view === "sandwich" ? (this.selected >= 0 ? this.selected : (model.hottest()[0]?.[0] ?? -1)) : -1;
    const key = `${view} ${f} ${model.event} ${this.time}`;
    if (key !== this.graphKey) {
      this.graph = new CallGraph(model, view === "sandwich" && f < 0 ? "" : view, f);
      this.graphKey = key;
    }
    return this.graph;
  }

  nameOf(f) {
    if (f < 0) return { f: null, n: 0 };
    const name = this.model.names[f];
    return { f: name, n: this.byName.get(name).indexOf(f) };
  }

  // A draft is shown, and stands in the address only once it is none any more.
  go(change, { isReplaced = false, isFromTable = false, isDraft = false } = {}) {
    this.draft = isDraft ? change : {};
    if (isDraft) {
      this.show();
      return;
    }
    const next = { ...READ(location.hash), ...change };
    const words = new URLSearchParams();
    for (const [key, value] of Object.entries(next)) if (value) words.set(key, value);
    const hash = `#${words}`;
    if (hash === (location.hash || "#")) {
      this.show();
      return;
    }
    history[isReplaced ? "replaceState" : "pushState"](null, "", hash);
    this.show();
    if (change.f) byId("status").textContent = `Details of ${change.f} are shown`;
    // On a narrow screen the details stand elsewhere.
    if (change.f && matchMedia("(max-width: 1099px)").matches && isFromTable) byId("details").scrollIntoView();
  }

  show() {
    const { model } = this;
    const wanted = { ...READ(location.hash), ...this.draft };
    const named = model.events.findIndex((event) => event.name === wanted.e);
    const span = model.times?.find(wanted.t) ?? null;
    const isByTime = (event) => !span || model.times.has(event);
    const event = named >= 0 && isByTime(named) ? named : isByTime(model.header.firstEvent) ? model.header.firstEvent : model.times.events[0];
    for (const option of byId("event").options) option.disabled = !isByTime(Number(option.value));
    this.time = span ? `${span.first}-${span.last}` : "";
    if (event !== model.event || this.time !== this.shownTime) {
      model.chooseTime(span, event);
      this.shownTime = this.time;
      this.strip?.show();
      drawOverview(model.findings);
    }
    this.strip?.add(wanted.o);
    byId("event").value = String(event);
    this.selected = wanted.f === null ? -1 : ((this.byName.get(wanted.f) ?? [])[wanted.n] ?? -1);
    const isThere = (choice) => !span || (choice.key !== "change" && (choice.metric ? choice.metric.source === "pmu" && model.findings : choice.key !== "bottleneck" || model.findings));
    const choice = this.choices.find((each) => each.key === wanted.c && isThere(each)) ?? this.choices.find(isThere);
    byId("colour").value = choice.key;
    for (const each of this.choices) byId("colour").querySelector(`option[value="${CSS.escape(each.key)}"]`).disabled = !isThere(each);
    this.scope = wanted.s === "total" ? "total" : "self";
    byId("scope").value = this.scope;
    byId("scope-label").hidden = !choice.metric && choice.key !== "change";
    const key = `${choice.key} ${event} ${this.scope} ${this.time}`;
    if (key !== this.colouringKey) {
      this.colouring = makeColouring(model, choice, this.scope);
      this.colouringKey = key;
      byId("legend").replaceChildren(...drawLegend(this.colouring.legend).filter(Boolean));
    }
    this.choice = choice;
    this.search(wanted.q);
    const view = wanted.v in VIEWS ? wanted.v : "";
    const graph = this.graphOf(view);
    byId("view").value = view;
    byId("graph-heading").textContent = VIEWS[view].title;
    byId("view-hint").textContent = VIEWS[view].hint;
    const zoomed = graph.find(wanted.z);
    this.drawPath(zoomed);
    const { selected, matches, colouring, scope } = this;
    this.flame.show({ graph, zoomed, selected, matches, colourOf: (id) => colouring.of(id) });
    drawDetails(model, selected, this.on);
    // The rest is below the fold: the first picture does not wait for it.
    cancelAnimationFrame(this.pending);
    this.pending = requestAnimationFrame(() => {
      this.pending = requestAnimationFrame(() => {
        this.table.show({ selected, matches, choice, colouring, scope });
        drawTree(model, selected < model.functionCount ? selected : -1, this.on);
        document.documentElement.dataset.ready = "true";
      });
    });
  }

  search(text) {
    const box = byId("search");
    if (box.value !== text) box.value = text;
    const { model } = this;
    const query = `${text.toLowerCase()}\n${model.event}\n${this.time}`;
    if (query === this.query) return;
    this.query = query;
    if (!text) {
      this.matches = null;
      byId("matches").textContent = "";
      return;
    }
    const wanted = text.toLowerCase();
    const inModule = model.modules.map((module) => baseName(module).toLowerCase().includes(wanted));
    this.matches = Uint8Array.from(model.names, (name, f) =>
      name.toLowerCase().includes(wanted) || model.mark(f).includes(wanted) || inModule[model.moduleIndex(f)] ? 1 : 0);
    const count = this.matches.subarray(0, model.functionCount).reduce((sum, each) => sum + each, 0);
    byId("matches").textContent = `${plural(count, "function")}, ${showShare(model.shareWith(this.matches))}`;
  }

  drawPath(zoomed) {
    const { model, graph } = this;
    const nodes = [];
    for (let node = zoomed; node > 0; node = graph.parent[node]) nodes.unshift(node);
    const kept = nodes.length > 4 ? [nodes[0], null, ...nodes.slice(-3)] : nodes;
    const items = [button("all", () => this.zoom(0), { class: "link", "aria-current": zoomed ? null : "true" })];
    for (const node of kept) {
      items.push(el("span", { "aria-hidden": "true" }, "›"));
      if (node === null) items.push(el("span", { class: "muted" }, "…"));
      else {
        items.push(button(model.labels.shorten(graph.id[node], 46), () => this.zoom(node),
          { class: "link name", "aria-current": node === zoomed ? "true" : null }));
      }
    }
    byId("path").replaceChildren(...items);
    byId("path").hidden = zoomed === 0;
  }

  tooltip(node, event) {
    const box = byId("tooltip");
    const { model, choice, graph } = this;
    const f = graph.id[node] ?? -1;
    box.hidden = f < 0;
    if (f < 0) return;
    const share = model.share(graph.total[node]);
    const isFunction = f < model.functionCount;
    const found = choice.metric && isFunction ? model.findings.ofFunction(f, choice.metric, this.scope) : null;
    const name = model.names[f];
    const lines = [
      el("strong", { class: "name" }, cutInTheMiddle(name, 300), markOf(model, f)),
      el("span", { class: "muted" }, baseName(model.module(f))),
      el("span", {}, `${showShare(share)} of ${model.events[model.event].name} · ${showAmount(graph.total[node], model.unit)} · ${plural(graph.samples[node], "sample")}`),
      choice.key === "change" && isFunction ? el("span", {}, `${choice.label}: `, changeText(model.change.of(f, this.scope))) : null,
      choice.metric && isFunction ? el("span", {}, `${choice.label}: `, valueText(found), found && !found.isSignificant ? " (too few samples)" : null) : null,
    ];
    box.replaceChildren(...lines.filter(Boolean));
    const { width, height } = box.getBoundingClientRect();
    const left = Math.min(event.clientX + 14, innerWidth - width - 8);
    const top = event.clientY + 18 + height > innerHeight ? event.clientY - height - 10 : event.clientY + 18;
    box.style.left = `${Math.max(8, left)}px`;
    box.style.top = `${Math.max(8, top)}px`;
  }
}

function drawHead(model) {
  const { facts, doubts, version } = model.header;
  const { findings } = model;
  // What is said of the stacks stands at the graph.
  const [[, command], ...others] = facts.filter(([label]) => label !== "stacks");
  byId("command").textContent = command;
  byId("facts").append(...others.map(([label, value]) => el("div", {}, el("dt", {}, label), el("dd", {}, value))));
  const told = [...doubts, ...(findings?.disagreements ?? []), ...(model.header.spe?.notes ?? [])];
  if (told.length) {
    byId("doubts").append(el("details", { open: told.length <= 3 },
      el("summary", {}, `${plural(told.length, "thing")} to know about these numbers`),
      el("ul", {}, told.map((text) => el("li", {}, text)))));
  }
  drawOverview(findings);
  byId("stack-note").textContent = model.header.stacks?.text ?? "";
  byId("footer").textContent = `tdprof ${version}. Intervals are 95 % and cover the chance of sampling alone. This page holds all its data and loads nothing.`;
}

// Stage 1, bottleneck and advice of the program, in the chosen time.
function drawOverview(findings) {
  byId("overview").hidden = !findings?.roots.length;
  if (!findings?.roots.length) return;
  byId("overview-heading").textContent = `Where the ${findings.divided} go`;
  byId("overview-body").replaceChildren(
    ...[stageOneBar(findings, (metric) => findings.program(metric)), stageOneLegend(findings),
      diagnosisText(findings, findings.diagnosis(-1), { whose: "the program" })].filter(Boolean));
}

function followTheme() {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const root = document.documentElement;
  const stored = () => {
    try {
      return localStorage.getItem("tdprof-theme");
    } catch {
      return null; // a page from a file may have no storage
    }
  };
  const apply = (theme) => {
    root.dataset.theme = theme ?? (dark.matches ? "dark" : "light");
    const isDark = root.dataset.theme === "dark";
    byId("theme").textContent = isDark ? "Light" : "Dark";
    byId("theme").setAttribute("aria-label", isDark ? "Switch to light colours" : "Switch to dark colours");
  };
  apply(stored());
  return (redraw) => {
    dark.addEventListener("change", () => {
      apply(stored());
      redraw();
    });
    byId("theme").addEventListener("click", () => {
      const theme = root.dataset.theme === "dark" ? "light" : "dark";
      try {
        localStorage.setItem("tdprof-theme", theme);
      } catch {
        // then it holds for this visit
      }
      apply(theme);
      redraw();
    });
  };
}

async function start() {
  const onTheme = followTheme();
  if (typeof DecompressionStream === "undefined") {
    throw new Error("this browser is too old (Chrome 86, Firefox 113 and Safari 16.4 can)");
  }
  const model = await readDocument();
  byId("main").hidden = false;
  const page = new Page(model);
  onTheme(() => {
    page.flame.requestDraw();
    page.strip?.draw();
  });
  if (!model.whole) fail(model.header.noSamples);
}

function fail(text) {
  byId("failure").textContent = text;
  byId("failure").hidden = false;
}

start().catch((error) => {
  fail(`This page cannot be shown: ${error.message}.`);
  throw error;
});
