// The methodology tree with the program's values, and beside them those of the chosen function.

function drawTree(model, f, on) {
  const { findings } = model;
  byId("methodology").hidden = !findings?.roots.length;
  if (!findings?.roots.length) return;
  byId("methodology-hint").textContent =
    `${findings.core}: follow the largest value of each level; the groups at its end say what to look at next. A metric's name colours the graph by it.`;
  const trail = new Set((f < 0 ? findings.diagnosis(-1) : findings.rowOf[f] < 0 ? null : findings.diagnosis(f))?.path ?? []);
  const groupsDrawn = new Set();
  const branch = (name) => {
    const group = findings.catalog.groups[name];
    if (group) return groupItem(model, f, name, group, groupsDrawn, on);
    const calls = findings.catalog.tree[name] ?? [];
    return el("li", {},
      treeRow(model, f, name, trail.has(name), on),
      calls.length ? el("ul", {}, calls.map(branch)) : null);
  };
  byId("tree").replaceChildren(
    el("p", { class: "tree-head", "aria-hidden": "true" }, el("span", {}, "metric"), el("span", { class: "number" }, "program"), f < 0 ? null : el("span", { class: "number" }, "this function")),
    el("ul", { class: f < 0 ? "tree" : "tree two" }, findings.catalog.roots.map(branch)));
}

function treeRow(model, f, name, isOnTrail, on) {
  const { findings } = model;
  const metric = findings.metrics.program.find((each) => each.name === name && each.source === "pmu");
  const title = findings.title(name);
  const program = metric ? findings.program(metric) : null;
  const found = metric && f >= 0 ? findings.ofFunction(f, metric) : null;
  return el("div", { class: isOnTrail ? "node trail" : "node" },
    el("span", { class: "metric" },
      metric ? button(title, () => on.colour(name), { class: "link", title: `Colour by ${title}` }) : el("span", { class: "muted" }, title),
      el("span", { class: "units" }, metric?.units ?? ""),
      isOnTrail ? el("span", { class: "tag" }, "largest") : null),
    cellOf(program, metric, "program"),
    f < 0 ? null : cellOf(found, metric, "this function"));
}

function cellOf(found, metric, whose) {
  const isPercent = metric?.units.startsWith("percent");
  return el("span", { class: "tree-value" }, hiddenText(`${whose}: `),
    found && isPercent ? bar({ value: found.value, halfWidth: found.halfWidth, top: 100, isDoubtful: !found.isSignificant }) : el("span", { class: "meter none", "aria-hidden": "true" }),
    valueText(found));
}

// A group's metrics stand where the tree first leads to it; later only its name does.
function groupItem(model, f, name, group, drawn, on) {
  if (drawn.has(name)) return el("li", { class: "group" }, el("span", { class: "muted" }, `${group.title} (above)`));
  drawn.add(name);
  return el("li", { class: "group" }, el("details", {},
    el("summary", {}, group.title),
    el("ul", {}, group.metrics.map((metric) => el("li", {}, treeRow(model, f, metric, false, on))))));
}
