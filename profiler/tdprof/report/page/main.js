// Ties the parts together. What is shown stands in the page's address, so that the back button and links work.

const READ = (hash) => {
  const words = new URLSearchParams(hash.replace(/^#/, ""));
  return {
    f: words.get("f"), // the chosen function's name; `n` counts functions of one name
    n: Number(words.get("n")) || 0,
    z: Number(words.get("z")) || 0, // the node zoomed to
    e: words.get("e"), // the event that gives the width
    c: words.get("c"), // the colour
    s: words.get("s"), // "total": the colour is of functions with all they call
    q: words.get("q") ?? "", // the search
  };
};

class Page {
  constructor(model) {
    this.model = model;
    this.choices = colourings(model);
    const on = {
      select: (node) => this.go({ ...this.nameOf(node > 0 ? model.functionOf[node] : -1) }),
      zoom: (node) => this.go({ z: node }),
      hover: (node, event) => this.tooltip(node, event),
    };
    this.on = { select: (f) => this.go(this.nameOf(f)), zoom: (node) => this.go({ z: node }), colour: (key) => this.go({ c: key }) };
    this.flame = new Flame(model, on);
    this.table = new FunctionTable(model, (f) => this.go(this.nameOf(f), { isFromTable: true }));
    this.byName = new Map();
    model.names.forEach((name, f) => {
      if (!this.byName.has(name)) this.byName.set(name, []);
      this.byName.get(name).push(f);
    });
    drawHead(model);
    this.drawControls();
    addEventListener("popstate", () => this.show());
    this.show();
  }

  drawControls() {
    const { model } = this;
    byId("event").append(...model.events.map((event, i) => el("option", { value: String(i) }, event.name)));
    byId("event").addEventListener("change", (event) => this.go({ e: model.events[event.target.value].name, z: 0 }));
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

  nameOf(f) {
    if (f < 0) return { f: null, n: 0 };
    const name = this.model.names[f];
    return { f: name, n: this.byName.get(name).indexOf(f) };
  }

  go(change, { isReplaced = false, isFromTable = false } = {}) {
    const next = { ...READ(location.hash), ...change };
    const words = new URLSearchParams();
    for (const [key, value] of Object.entries(next)) if (value) words.set(key, value);
    const hash = `#${words}`;
    if (hash === (location.hash || "#")) return;
    history[isReplaced ? "replaceState" : "pushState"](null, "", hash);
    this.show();
    if (change.f) byId("status").textContent = `Details of ${change.f} are shown`;
    // On a narrow screen the details stand elsewhere.
    if (change.f && matchMedia("(max-width: 1099px)").matches && isFromTable) byId("details").scrollIntoView();
  }

  show() {
    const { model } = this;
    const wanted = READ(location.hash);
    const named = model.events.findIndex((event) => event.name === wanted.e);
    const event = named < 0 ? model.header.firstEvent : named;
    if (event !== model.event) model.setEvent(event);
    byId("event").value = String(event);
    this.selected = wanted.f === null ? -1 : ((this.byName.get(wanted.f) ?? [])[wanted.n] ?? -1);
    const choice = this.choices.find((each) => each.key === wanted.c) ?? this.choices[0];
    byId("colour").value = choice.key;
    this.scope = wanted.s === "total" ? "total" : "self";
    byId("scope").value = this.scope;
    byId("scope-label").hidden = !choice.metric && choice.key !== "change";
    const key = `${choice.key} ${event} ${this.scope}`;
    if (key !== this.colouringKey) {
      this.colouring = makeColouring(model, choice, this.scope);
      this.colouringKey = key;
      byId("legend").replaceChildren(...drawLegend(this.colouring.legend).filter(Boolean));
    }
    this.choice = choice;
    this.search(wanted.q);
    const zoomed = Number.isInteger(wanted.z) && wanted.z > 0 && wanted.z < model.nodes && model.total[wanted.z] > 0 ? wanted.z : 0;
    this.drawPath(zoomed);
    const { selected, matches, colouring, scope } = this;
    const colourOf = (node) => colouring.of(model.functionOf[node]);
    this.flame.show({ zoomed, selected, matches, colourOf });
    drawDetails(model, selected, this.on);
    // The rest is below the fold: the first picture does not wait for it.
    cancelAnimationFrame(this.pending);
    this.pending = requestAnimationFrame(() => {
      this.pending = requestAnimationFrame(() => {
        this.table.show({ selected, matches, choice, colouring, scope });
        drawTree(model, selected, this.on);
        document.documentElement.dataset.ready = "true";
      });
    });
  }

  search(text) {
    const box = byId("search");
    if (box.value !== text) box.value = text;
    const { model } = this;
    const query = `${text.toLowerCase()}\n${model.event}`;
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
      name.toLowerCase().includes(wanted) || inModule[model.moduleIndex(f)] ? 1 : 0);
    const count = this.matches.reduce((sum, each) => sum + each, 0);
    byId("matches").textContent = `${plural(count, "function")}, ${showShare(model.shareWith(this.matches))}`;
  }

  drawPath(zoomed) {
    const { model } = this;
    const nodes = [];
    for (let node = zoomed; node > 0; node = model.parent[node]) nodes.unshift(node);
    const kept = nodes.length > 4 ? [nodes[0], null, ...nodes.slice(-3)] : nodes;
    const items = [button("all", () => this.on.zoom(0), { class: "link", "aria-current": zoomed ? null : "true" })];
    for (const node of kept) {
      items.push(el("span", { "aria-hidden": "true" }, "›"));
      if (node === null) items.push(el("span", { class: "muted" }, "…"));
      else {
        items.push(button(model.names[model.functionOf[node]], () => this.on.zoom(node),
          { class: "link name", "aria-current": node === zoomed ? "true" : null }));
      }
    }
    byId("path").replaceChildren(...items);
    byId("path").hidden = zoomed === 0;
  }

  tooltip(node, event) {
    const box = byId("tooltip");
    box.hidden = node <= 0;
    if (node <= 0) return;
    const { model, choice } = this;
    const f = model.functionOf[node];
    const share = model.share(model.total[node]);
    const found = choice.metric ? model.findings.ofFunction(f, choice.metric, this.scope) : null;
    const name = model.names[f];
    const lines = [
      el("strong", { class: "name" }, name.length > 200 ? `${name.slice(0, 200)}…` : name),
      el("span", { class: "muted" }, baseName(model.module(f))),
      el("span", {}, `${showShare(share)} of ${model.events[model.event].name} · ${showAmount(model.total[node], model.unit)} · ${plural(model.totalSamples[node], "sample")}`),
      choice.key === "change" ? el("span", {}, `${choice.label}: `, changeText(model.change.of(f, this.scope))) : null,
      choice.metric ? el("span", {}, `${choice.label}: `, valueText(found), found && !found.isSignificant ? " (too few samples)" : null) : null,
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
  const [[, command], ...others] = facts;
  byId("command").textContent = command;
  byId("facts").append(...others.map(([label, value]) => el("div", {}, el("dt", {}, label), el("dd", {}, value))));
  const told = [...doubts, ...(findings?.disagreements ?? []), ...(model.header.spe?.notes ?? [])];
  if (told.length) {
    byId("doubts").append(el("details", { open: told.length <= 3 },
      el("summary", {}, `${plural(told.length, "thing")} to know about these numbers`),
      el("ul", {}, told.map((text) => el("li", {}, text)))));
  }
  if (findings?.roots.length) {
    byId("overview").hidden = false;
    byId("overview-heading").textContent = `Where the ${findings.divided} go`;
    byId("overview-body").append(
      ...[stageOneBar(findings, (metric) => findings.program(metric)), stageOneLegend(findings),
        diagnosisText(findings, findings.diagnosis(-1), { whose: "the program" })].filter(Boolean));
  }
  byId("footer").textContent = `tdprof ${version}. Intervals are 95 % and cover the chance of sampling alone. This page holds all its data and loads nothing.`;
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
    throw new Error("this browser is too old (Chrome 80, Firefox 113 and Safari 16.4 can)");
  }
  const model = await readDocument();
  byId("main").hidden = false;
  const page = new Page(model);
  onTheme(() => page.flame.requestDraw());
  if (!model.whole) fail("No samples: the command ran too briefly, or never ran on a CPU that was measured.");
}

function fail(text) {
  byId("failure").textContent = text;
  byId("failure").hidden = false;
}

start().catch((error) => {
  fail(`This page cannot be shown: ${error.message}.`);
  throw error;
});
