// The strip of time: events over the recording, on which a stretch is chosen by dragging or with two sliders.

const STRIP_ROW = 34;
const MOST_STRIP_ROWS = 4;
const LEVEL_1_ROW = 44;
const CLICK = 3; // pixels that are no drag

class Strip {
  // choose(span, isDraft): a draft while the pointer is down. ask(name): for a row of another event or metric.
  constructor(model, choose, ask) {
    this.model = model;
    this.times = model.times;
    this.choose = choose;
    this.box = byId("strip");
    this.canvas = byId("strip-canvas");
    this.context = this.canvas.getContext("2d");
    const { begin, end, bins } = this.times;
    this.begin = begin[0];
    this.seconds = end[bins - 1] - begin[0] || 1;
    this.thumbs = ["first", "last"].map((which) => this.makeThumb(which));
    this.box.append(...this.thumbs);
    byId("time").hidden = false;
    byId("time-all").addEventListener("click", () => choose(null, false));
    byId("time-hint").textContent = `Drag to choose a stretch, or move the two sliders with arrows, Page Up and Page Down; Escape shows everything. ${
      this.times.isBySample ? "Every sample has its own time." : "Samples are known by interval, and each interval counts whole."}`;
    this.phases = this.makePhases();
    this.more = this.findMore();
    this.added = null;
    this.offerMore(ask);
    this.box.addEventListener("pointerdown", (event) => this.press(event));
    this.box.addEventListener("pointermove", (event) => this.drag(event));
    this.box.addEventListener("pointerup", () => this.release());
    this.box.addEventListener("pointercancel", () => this.release());
    new ResizeObserver(() => this.draw()).observe(this.box);
  }

  // A button for each phase, which chooses it.
  makePhases() {
    const { times } = this;
    const buttons = times.phases.map(({ begin, end, hottest, share }, row) => {
      const text = hottest === null ? "no samples" : `${showShare(share)} ${hottest}`;
      const title = `${showSeconds(begin)} to ${showSeconds(end)}: ${text}`;
      return button(`Phase ${row + 1}`, () => this.choose(times.spanBetween(begin, end), false), { title });
    });
    byId("phases").append(...buttons);
    byId("phases").hidden = !buttons.length;
    return buttons;
  }

  // What may have a row beside those that are always there: events for which these have no room, and metrics.
  findMore() {
    const { model, times } = this;
    const findings = model.ofWhole.findings;
    const events = times.events.length > MOST_STRIP_ROWS ? times.events : [];
    return [
      ...events.map((event) => ({ kind: "Events", name: model.events[event].name, title: model.events[event].name, event })),
      ...(findings?.overTime ?? []).map(({ name, units }) => ({ kind: "Metrics", name, title: findings.title(name), units })),
    ];
  }

  offerMore(ask) {
    const { more } = this;
    const groups = ["Events", "Metrics"].map((label) =>
      el("optgroup", { label }, more.filter(({ kind }) => kind === label).map(({ name, title }) => el("option", { value: name }, title))));
    byId("strip-more").append(...groups.filter((group) => group.childElementCount));
    byId("strip-more").addEventListener("change", (event) => ask(event.target.value || null));
    byId("strip-more-label").hidden = !more.length;
  }

  add(name) {
    const added = this.more.find((each) => each.name === name) ?? null;
    byId("strip-more").value = added?.name ?? "";
    if (added === this.added) return;
    this.added = added;
    this.draw();
  }

  makeThumb(which) {
    const thumb = el("div", {
      class: "thumb", role: "slider", tabindex: "0", "aria-label": which === "first" ? "Beginning of the time shown" : "End of the time shown",
      "aria-valuemin": "0", "aria-valuemax": String(this.times.bins), "aria-orientation": "horizontal",
    });
    thumb.addEventListener("keydown", (event) => this.key(event, which));
    return thumb;
  }

  key(event, which) {
    const { bins, span } = this.times;
    const moved = { first: span?.first ?? 0, last: span?.last ?? bins };
    const far = Math.max(1, Math.round(bins / 10));
    const steps = { ArrowLeft: -1, ArrowDown: -1, ArrowRight: 1, ArrowUp: 1, PageDown: -far, PageUp: far, Home: -bins, End: bins };
    if (event.key === "Escape") this.choose(null, false);
    else if (event.key in steps) {
      const [least, most] = which === "first" ? [0, moved.last - 1] : [moved.first + 1, bins];
      moved[which] = Math.min(most, Math.max(least, moved[which] + steps[event.key]));
      this.choose(this.times.spanOf(moved.first, moved.last), false);
    } else return;
    event.preventDefault();
  }

  secondsAt(event) {
    const { left, width } = this.box.getBoundingClientRect();
    return this.begin + (Math.min(1, Math.max(0, (event.clientX - left) / width))) * this.seconds;
  }

  press(event) {
    if (event.button !== 0) return;
    this.anchor = { x: event.clientX, at: this.secondsAt(event), isDragged: false };
    this.box.setPointerCapture(event.pointerId);
    event.preventDefault();
  }

  drag(event) {
    const { anchor } = this;
    if (!anchor || (!anchor.isDragged && Math.abs(event.clientX - anchor.x) < CLICK)) return;
    this.to = this.secondsAt(event);
    anchor.isDragged = true;
    if (!this.pending) {
      this.pending = requestAnimationFrame(() => {
        this.pending = 0;
        if (this.anchor) this.choose(this.times.spanBetween(this.anchor.at, this.to), true);
      });
    }
  }

  release() {
    const { anchor } = this;
    this.anchor = null;
    if (!anchor) return;
    if (anchor.isDragged) this.choose(this.times.spanBetween(anchor.at, this.to), false);
    else if (this.times.span) this.choose(null, false);
  }

  show() {
    const { times, model } = this;
    const { bins, span } = times;
    const first = span?.first ?? 0;
    const last = span?.last ?? bins;
    const left = (times.begin[first] - this.begin) / this.seconds;
    const right = (times.end[last - 1] - this.begin) / this.seconds;
    const texts = [showSeconds(times.begin[first]), showSeconds(times.end[last - 1])];
    [left, right].forEach((at, i) => {
      this.thumbs[i].style.left = `${100 * at}%`;
      this.thumbs[i].setAttribute("aria-valuenow", String(i ? last : first));
      this.thumbs[i].setAttribute("aria-valuetext", texts[i]);
    });
    this.box.style.setProperty("--from", `${100 * left}%`);
    this.box.style.setProperty("--to", `${100 * right}%`);
    const samples = model.totalSamples[0];
    const whole = model.events[model.event]?.samples ?? 0;
    byId("time-chosen").textContent = span
      ? `${texts[0]} to ${texts[1]}: ${plural(samples, "sample")} of ${model.events[model.event].name} (${showShare(samples / whole)})`
      : `all of ${texts[0]} to ${texts[1]}`;
    byId("time-all").hidden = !span;
    this.phases.forEach((each, row) => {
      const { begin, end } = times.phases[row];
      const own = times.spanBetween(begin, end);
      each.setAttribute("aria-pressed", String(Boolean(span && own && own.first === span.first && own.last === span.last)));
    });
    const notes = [
      ...this.notesOnMetrics(),
      model.isScaled(model.event) ? "Samples are counted, and an interval's amount is exact; what a stack has of it is scaled by what its samples weigh on average." : "",
    ];
    byId("time-note").textContent = span ? notes.filter(Boolean).join(" ") : "";
    if (this.drawn !== model.event) this.draw();
  }

  // Which metrics follow the chosen time, and what is hidden meanwhile, and why.
  notesOnMetrics() {
    const { findings, change, spe } = this.model.ofWhole;
    const followed = this.model.metricsOfTime;
    const hasSpe = spe || findings?.metrics.self.some(({ source }) => source === "spe");
    const hidden = [
      findings?.metrics.self.some(({ source }) => source === "pmu") && !followed ? "metrics, which this page does not have by time," : "",
      hasSpe ? "SPE's measurements" : "",
      change ? "changes" : "",
    ].filter(Boolean);
    return [
      followed
        ? `Metrics are of this time, from its samples alone, for the program and the ${plural(followed.known, "function")} with most samples; lines have none.`
        : "",
      followed?.isOfOneInterval
        ? "Of one interval ± is of sampling alone: it does not tell how the turns of the counter groups scatter."
        : "",
      hidden.length ? `Of the whole recording, and hidden meanwhile: ${hidden.join(" and ")}.`.replace(",.", ".") : "",
    ];
  }

  // The event that gives the width first, then others, each on a scale of its own.
  rows() {
    const { event, events } = this.model;
    const all = [event, ...events.keys()].filter((each) => this.times.has(each));
    const always = [...new Set(all)].slice(0, MOST_STRIP_ROWS);
    const added = this.added?.event;
    return added === undefined || always.includes(added) ? always : [...always, added];
  }

  // The chosen stretch is a background of its own: only another event, width or theme asks for the bars again.
  draw() {
    this.drawn = this.model.event;
    const rows = this.rows();
    const ratio = window.devicePixelRatio || 1;
    const width = this.box.clientWidth;
    const { findings } = this.model.ofWhole;
    const level1 = findings?.levelOneTimes();
    const metric = this.added?.kind === "Metrics" ? this.added : null;
    const below = (rows.length + (metric ? 1 : 0)) * STRIP_ROW;
    const height = below + (level1 ? LEVEL_1_ROW : 0);
    this.box.style.height = `${height}px`;
    this.canvas.width = Math.round(width * ratio);
    this.canvas.height = Math.round(height * ratio);
    const { context: c, times } = this;
    const style = getComputedStyle(this.box);
    c.setTransform(ratio, 0, 0, ratio, 0, 0);
    c.font = `11px ${style.getPropertyValue("--mono")}`;
    rows.forEach((event, row) => {
      const { name, unit } = this.model.events[event];
      this.drawRow(row, times, times.rate(event), (most) => `${name}, at most ${showAmount(most, unit)} a second`, width, style);
    });
    if (metric) {
      const { title, units } = metric;
      const values = findings.times.values[metric.name].map((value) => value ?? NaN);
      this.drawRow(rows.length, findings.times, values, (most) => `${title}, of all: at most ${showValue(most, NaN).value} ${units}`, width, style);
    }
    if (level1) this.drawLevelOne(findings, level1, below, width, style);
  }

  // Where a moment is on a strip of this width.
  across(seconds, width) {
    return ((seconds - this.begin) / this.seconds) * width;
  }

  // Bars on a scale of their own, none where nothing is known; the borders of phases; say(most) above.
  drawRow(row, { begin, end }, values, say, width, style) {
    const { context: c } = this;
    const most = values.reduce((a, b) => (b > a ? b : a), 0);
    const bottom = (row + 1) * STRIP_ROW - 1;
    c.fillStyle = style.getPropertyValue("--fill");
    for (let bin = 0; bin < values.length && most; bin++) {
      const from = this.across(begin[bin], width);
      const to = this.across(end[bin], width);
      const tall = (values[bin] / most) * (STRIP_ROW - 14);
      if (tall > 0) c.fillRect(from, bottom - tall, Math.max(1, to - from - (to - from > 4 ? 1 : 0)), tall);
    }
    c.fillStyle = style.getPropertyValue("--muted");
    for (const phase of this.times.phases.slice(1)) c.fillRect(Math.round(this.across(phase.begin, width)), row * STRIP_ROW, 1, STRIP_ROW);
    c.fillText(say(most), 2, row * STRIP_ROW + 10);
  }

  // The program's level 1 in each stretch, its parts above each other as in its bar; nothing where it is not known well.
  drawLevelOne(findings, { begin, end, values }, top, width, style) {
    const { context: c } = this;
    const { roots } = findings;
    const tall = LEVEL_1_ROW - 14;
    begin.forEach((from, bin) => {
      const parts = roots.map((metric) => values[metric.name]?.[bin] ?? NaN);
      if (parts.some(Number.isNaN)) return;
      const sum = Math.max(100, parts.reduce((all, part) => all + Math.max(0, part), 0));
      let bottom = top + LEVEL_1_ROW - 1;
      parts.forEach((part, row) => {
        const height = (Math.max(0, part) / sum) * tall;
        bottom -= height;
        c.fillStyle = levelOneColour(roots[row].name, roots).fill;
        const left = this.across(from, width);
        c.fillRect(left, bottom, Math.max(1, this.across(end[bin], width) - left), height);
      });
    });
    c.fillStyle = style.getPropertyValue("--muted");
    c.fillText(`Stage 1, of all ${findings.divided}: ${roots.map((metric) => rootTitle(findings, metric)).join(", ")}, from below`, 2, top + 10);
  }
}
