// What changed since an older capture, in points: percent of all that the older one had of the event.

class Change {
  constructor(model) {
    const { since, basis, events, gone } = model.header.change;
    this.since = since;
    this.basis = basis;
    this.events = events;
    this.gone = gone;
    this.model = model;
  }

  // {a, b, low, high, isSignificant} of a function's own samples ("self") or with all it calls ("total"); null if unknown.
  of(f, scope) {
    const { columns, events, event, functionCount } = this.model;
    const column = this.events.indexOf(events[event]?.name);
    if (column < 0) return null;
    const table = scope === "total" ? "changeTotal" : "changeSelf";
    const get = (what) => columns[table + what][column * functionCount + f];
    const [a, b, low, high] = ["A", "B", "Low", "High"].map(get);
    if (Number.isNaN(a) || Number.isNaN(b)) return null;
    return { a, b, low, high, value: b - a, halfWidth: (high - low) / 2, isSignificant: get("IsSignificant") === 1 };
  }

  // What an older share is a share of.
  get units() {
    return this.basis === "run" ? "percent of the older run" : "percent of samples";
  }

  // [name, share in percent] of functions that only the older capture has, most first.
  goneFunctions() {
    const column = this.events.indexOf(this.model.events[this.model.event]?.name);
    const found = this.gone.map(({ name, shares }) => [name, column < 0 ? NaN : shares[column]]);
    return found.filter(([, share]) => share > 0).sort((a, b) => b[1] - a[1]);
  }
}

const signed = (text) => (text.startsWith("-") ? text.replace("-", "\u2212") : `+${text}`);

function changeText(found) {
  if (!found) return el("span", { class: "value muted" }, "not compared");
  const shown = showValue(found.value, found.halfWidth, 2);
  return el("span", { class: found.isSignificant ? "value" : "value muted" }, signed(shown.value),
    shown.halfWidth ? el("span", { class: "plusminus" }, ` ± ${shown.halfWidth}`) : null,
    found.isSignificant ? null : hiddenText(", not significant"));
}

// A function before and after, its own samples and with all it calls.
function changeDetails(model, f) {
  const { change } = model;
  const points = (value) => `${showValue(value, NaN, 2).value} %`;
  const rows = [["its own", "self"], ["with calls", "total"]].map(([title, scope]) => [title, change.of(f, scope)]).filter(([, found]) => found);
  if (!rows.length) return null;
  return el("section", { "aria-label": "Change" },
    el("h3", {}, `Since ${change.since}`),
    el("table", { class: "metrics latencies" },
      el("caption", {}, `Change, in ${change.units}`),
      el("thead", {}, el("tr", {}, ["", "before", "after", "change"].map((text, i) => el(i ? "th" : "td", i ? { scope: "col", class: "number" } : {}, text)))),
      el("tbody", {}, rows.map(([title, found]) => el("tr", {},
        el("th", { scope: "row" }, title),
        el("td", { class: "number" }, points(found.a)),
        el("td", { class: "number" }, points(found.b)),
        el("td", { class: "number" }, changeText(found)))))),
    el("p", { class: "hint" }, `In ${change.units}. ${rows.some(([, found]) => found.isSignificant) ? "" : "What there is lies within chance, or is what all functions have in common."}`));
}

function goneDetails(model) {
  const { since } = model.change;
  const gone = model.change.goneFunctions();
  if (!gone.length) return null;
  const top = gone[0][1];
  return el("section", { "aria-label": "Gone" },
    el("h3", {}, `Only in ${since}`),
    el("ul", { class: "functions-list" }, gone.slice(0, 12).map(([name, share]) =>
      el("li", {}, el("span", { class: "name" }, name), bar({ value: share, halfWidth: NaN, top }), el("span", { class: "number" }, showShare(share / 100))))),
    gone.length > 12 ? el("p", { class: "hint" }, `and ${plural(gone.length - 12, "more function")}`) : null);
}
