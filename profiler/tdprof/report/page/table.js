// The table of functions: sorted by any column, filtered by the search, a page of rows at a time.

const ROWS = 50;

/**
 * value sorts and, without a writer of its own, is shown; change and of give what stands behind it.
 * @typedef {{key: string, title: string, text?: boolean, minor?: boolean, value?: (f: number) => number,
 *   change?: (f: number) => any, of?: (f: number) => any}} Column
 */

class FunctionTable {
  constructor(model, onSelect) {
    this.model = model;
    this.onSelect = onSelect;
    this.sortKey = "self";
    this.isDescending = true;
    this.most = ROWS;
    this.selected = -1;
    this.matches = this.choice = this.colouring = this.scope = null;
    this.table = byId("functions");
    byId("more").addEventListener("click", () => {
      this.most += 4 * ROWS;
      this.draw();
    });
  }

  show({ selected, matches, choice, colouring, scope }) {
    if (matches !== this.matches) this.most = ROWS;
    this.selected = selected;
    this.matches = matches;
    this.choice = choice;
    this.colouring = colouring;
    this.scope = scope;
    this.draw();
  }

  get columns() {
    const { model } = this;
    const { functions, findings } = model;
    /** @type {Column[]} */
    const columns = [
      { key: "name", title: "Function", text: true },
      { key: "self", title: "Self ± 95 %", value: (f) => functions.self[f] },
      { key: "total", title: "Total", value: (f) => functions.total[f] },
      { key: "samples", title: "Samples", value: (f) => functions.samples[f], minor: true },
    ];
    if (findings?.roots.length) columns.push({ key: "stage1", title: "Stage 1", minor: true, value: null });
    if (this.choice?.key === "change") {
      const of = (f) => model.change.of(f, this.scope);
      columns.push({ key: "metric", title: `Change, points${this.scope === "total" ? " (total)" : ""}`, value: (f) => of(f)?.value ?? -Infinity, change: of });
    }
    if (this.choice?.metric) {
      const of = (f) => findings.ofFunction(f, this.choice.metric, this.scope);
      columns.push({ key: "metric", title: this.choice.label + (this.scope === "total" ? " (total)" : ""), value: (f) => of(f)?.isSignificant ? of(f).value : -Infinity, of });
    }
    return columns;
  }

  rows(columns) {
    const { model, matches } = this;
    const found = [];
    for (let f = 0; f < model.functionCount; f++) {
      if (model.functions.total[f] > 0 && (!matches || matches[f])) found.push(f);
    }
    const column = columns.find((each) => each.key === this.sortKey && each.value !== null) ?? columns[1];
    const sign = this.isDescending ? -1 : 1;
    const byName = (a, b) => (model.names[a] < model.names[b] ? -1 : model.names[a] > model.names[b] ? 1 : 0);
    if (column.text) return found.sort((a, b) => sign * byName(a, b));
    const { total } = model.functions;
    return found.sort((a, b) => sign * (column.value(a) - column.value(b)) || total[b] - total[a] || byName(a, b));
  }

  sortBy(column) {
    this.isDescending = this.sortKey === column.key ? !this.isDescending : !column.text;
    this.sortKey = column.key;
    this.draw();
    /** @type {HTMLElement} */ (this.table.querySelector(`[data-key="${column.key}"]`)).focus();
  }

  draw() {
    const { model } = this;
    const columns = this.columns;
    const rows = this.rows(columns);
    const shown = rows.slice(0, this.most);
    const widest = Math.max(...shown.map((f) => this.reach(f)), 1e-9);
    const tops = { self: widest, metric: this.colouring?.legend.top };
    this.table.replaceChildren(
      el("caption", { class: "hidden" }, `Functions by ${model.events[model.event]?.name ?? "samples"}; headings sort`),
      el("thead", {}, el("tr", {}, columns.map((column) => this.heading(column)))),
      el("tbody", {}, shown.map((f) => this.row(f, columns, tops))));
    byId("function-count").textContent = this.matches
      ? `${rows.length.toLocaleString("en")} of ${plural(model.functionCount, "function")} match`
      : plural(rows.length, "function");
    const more = byId("more");
    more.hidden = rows.length <= shown.length;
    more.textContent = `Show more (${(rows.length - shown.length).toLocaleString("en")} left)`;
  }

  reach(f) {
    const share = this.model.share(this.model.functions.self[f]);
    return share + (this.model.halfWidth(share) || 0);
  }

  heading(column) {
    const isSorted = column.key === this.sortKey;
    const sort = isSorted ? (this.isDescending ? "descending" : "ascending") : "none";
    const kind = `${column.minor ? "minor " : ""}${column.key}`;
    if (column.value === null) return el("th", { scope: "col", class: kind }, column.title);
    return el("th", { scope: "col", class: kind, "aria-sort": sort },
      button(column.title, () => this.sortBy(column), { class: "sort", "data-key": column.key }));
  }

  row(f, columns, tops) {
    const isSelected = f === this.selected;
    return el("tr", { class: isSelected ? "selected" : "", "aria-current": isSelected ? "true" : null, onclick: () => this.onSelect(f) },
      columns.map((column) => el(column.text ? "th" : "td", { class: `${column.minor ? "minor " : ""}${column.key}`, scope: column.text ? "row" : null },
        this.cell(f, column, tops))));
  }

  cell(f, column, tops) {
    const { model } = this;
    const { functions, findings } = model;
    const share = model.share(functions[column.key === "total" ? "total" : "self"][f]);
    switch (column.key) {
      case "name":
        return [button(nameSpans(model.names[f]), () => {}, { class: "name link", title: model.names[f] }),
          el("span", { class: "module" }, baseName(model.module(f)), markOf(model, f))];
      case "self": {
        const half = model.halfWidth(share);
        const shown = showShareValue(share, half);
        return [bar({ value: share, halfWidth: half, top: tops.self }),
          el("span", { class: "figure" }, shown.value, shown.halfWidth ? el("span", { class: "plusminus" }, ` ± ${shown.halfWidth}`) : null)];
      }
      case "total":
        return showShare(share);
      case "samples":
        return functions.samples[f].toLocaleString("en");
      case "stage1":
        return stageOneBar(findings, (metric) => findings.ofFunction(f, metric), { isSmall: true });
      default: {
        if (column.change) return changeText(column.change(f));
        const found = column.of(f);
        return [bar({ value: found?.value ?? NaN, halfWidth: found?.halfWidth ?? NaN, top: tops.metric ?? 100,
          mark: findings.program(this.choice.metric)?.value ?? NaN, isDoubtful: found ? !found.isSignificant : false }), valueText(found)];
      }
    }
  }
}
