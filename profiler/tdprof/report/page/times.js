// The samples by time, in bins: how much of each event was when, and what of it is chosen.

class Times {
  constructor(model) {
    const { begin, end, isBySample, events, phases } = model.header.time;
    this.model = model;
    this.begin = begin;
    this.end = end;
    this.isBySample = isBySample;
    this.phases = phases; // none where the profile has one only
    this.bins = begin.length;
    this.events = events; // others have no place on this page
    this.node = model.placeNode;
    this.span = null; // {first, last}: the chosen bins, the last one not among them; null is all
    this.rates = new Map();
    this.ratesWithin = new Map();
  }

  has(event) {
    return this.events.includes(event);
  }

  // Calls visit(place, count, scaled, bin) for all that an event has in some bins; scaled are as many of their
  // node's usual weight.
  visit(event, { first, last }, visit) {
    const { timeStart, timeStep, timeCount, timeScale } = this.model.columns;
    const row = this.events.indexOf(event) * this.bins;
    for (let bin = first; bin < last && row >= 0; bin++) {
      const to = timeStart[row + bin + 1];
      for (let i = timeStart[row + bin], place = 0; i < to; i++) {
        place += timeStep[i];
        visit(place, timeCount[i], timeCount[i] * timeScale[row + bin], bin);
      }
    }
  }

  // Whether its samples weigh more in some bins than in others.
  isScaled(event) {
    const row = this.events.indexOf(event) * this.bins;
    return this.has(event) && this.model.columns.timeScale.subarray(row, row + this.bins).some((each) => Math.abs(each - 1) > 1e-3);
  }

  // Kish's effective number of an event's samples in some bins, as of the whole in the header's events.
  effectiveSamples(event, { first, last }) {
    const { timeStart, timeCount, timeEffective } = this.model.columns;
    const row = this.events.indexOf(event) * this.bins;
    const rate = this.rate(event);
    let weight = 0;
    let squares = 0;
    for (let bin = first; bin < last && row >= 0; bin++) {
      let samples = 0;
      for (let i = timeStart[row + bin]; i < timeStart[row + bin + 1]; i++) samples += timeCount[i];
      if (!samples) continue;
      const own = rate[bin] * this.seconds(bin);
      weight += own;
      squares += own ** 2 / (samples * timeEffective[row + bin]);
    }
    return squares ? weight ** 2 / squares : 0;
  }

  seconds(bin) {
    return Math.max(this.end[bin] - this.begin[bin], 1e-9);
  }

  // What an event has a second in each bin.
  rate(event) {
    if (!this.rates.has(event)) this.rates.set(event, this.rateWhere(event, null));
    return this.rates.get(event);
  }

  // The same of a function with all it calls, of a process or of unknown code.
  rateWithin(event, id) {
    const key = `${event} ${id}`;
    if (!this.ratesWithin.has(key)) this.ratesWithin.set(key, this.rateWhere(event, this.model.within(id)));
    return this.ratesWithin.get(key);
  }

  rateWhere(event, isCounted) {
    const rate = new Float64Array(this.bins);
    const weightOf = this.model.weightsOf(event);
    this.visit(event, { first: 0, last: this.bins }, (place, _, scaled, bin) => {
      const node = this.node[place];
      if (!isCounted || isCounted[node]) rate[bin] += scaled * weightOf[node];
    });
    for (let bin = 0; bin < this.bins; bin++) rate[bin] /= this.seconds(bin);
    return rate;
  }

  // The bins whose middle is between two moments; the one that holds them where there is none; null for all of them.
  spanBetween(from, to) {
    const [low, high] = from <= to ? [from, to] : [to, from];
    const middle = (bin) => (this.begin[bin] + this.end[bin]) / 2;
    let first = 0;
    while (first < this.bins && middle(first) < low) first++;
    let last = first;
    while (last < this.bins && middle(last) <= high) last++;
    if (first === last) {
      first = 0;
      while (first < this.bins - 1 && this.end[first] <= low) first++;
      last = first + 1;
    }
    return this.spanOf(first, last);
  }

  spanOf(first, last) {
    return first <= 0 && last >= this.bins ? null : { first: Math.max(0, first), last: Math.min(this.bins, last) };
  }

  // As the page's address has it: seconds since the recording's start.
  addressOf(span) {
    return span ? `${this.begin[span.first]}-${this.end[span.last - 1]}` : null;
  }

  find(address) {
    const found = /^([0-9.]+)-([0-9.]+)$/.exec(address ?? "");
    return found ? this.spanBetween(Number(found[1]), Number(found[2])) : null;
  }
}

const showSeconds = (seconds) => `${seconds.toFixed(seconds < 10 ? 3 : 2)} s`;

// When a function, a process or unknown code had how much of the event that gives the width; null where that is not known.
function sparkline(model, id) {
  const { times, event, unit } = model;
  if (!times?.has(event)) return null;
  const rate = times.rateWithin(event, id);
  const most = rate.reduce((a, b) => Math.max(a, b), 0);
  if (!most) return null;
  const whole = times.end[times.bins - 1] - times.begin[0] || 1;
  const across = (seconds) => (((seconds - times.begin[0]) / whole) * 600).toFixed(1);
  const steps = Array.from(rate, (value, bin) => {
    const y = (30 - (30 * value) / most).toFixed(1);
    return `V30H${across(times.begin[bin])}V${y}H${across(times.end[bin])}`;
  });
  const at = rate.indexOf(most);
  const said = `at most ${showAmount(most, unit)} a second, from ${showSeconds(times.begin[at])} to ${showSeconds(times.end[at])}`;
  const make = (name, properties) => {
    const node = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(properties)) node.setAttribute(key, value);
    return node;
  };
  const picture = make("svg", { viewBox: "0 0 600 30", preserveAspectRatio: "none", role: "img", "aria-label": `Over time: ${said}` });
  picture.append(make("path", { d: `M0 30${steps.join("")}V30Z` }));
  return el("figure", { class: "spark" }, picture, el("figcaption", { class: "muted" }, `With all it calls, ${said}`));
}
