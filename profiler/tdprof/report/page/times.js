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
    const { placeNodeStep } = model.columns;
    this.node = new Uint32Array(placeNodeStep.length);
    for (let place = 0, node = 0; place < placeNodeStep.length; place++) {
      node += placeNodeStep[place];
      this.node[place] = node;
    }
    this.span = null; // {first, last}: the chosen bins, the last one not among them; null is all
    this.rates = new Map();
  }

  has(event) {
    return this.events.includes(event);
  }

  // Calls visit(place, count, bin) for all that an event has in some bins.
  visit(event, { first, last }, visit) {
    const { timeStart, timeStep, timeCount } = this.model.columns;
    const row = this.events.indexOf(event) * this.bins;
    for (let bin = first; bin < last && row >= 0; bin++) {
      const to = timeStart[row + bin + 1];
      for (let i = timeStart[row + bin], place = 0; i < to; i++) {
        place += timeStep[i];
        visit(place, timeCount[i], bin);
      }
    }
  }

  // What an event has a second in each bin.
  rate(event) {
    if (!this.rates.has(event)) {
      const rate = new Float64Array(this.bins);
      const weightOf = this.model.weightsOf(event);
      this.visit(event, { first: 0, last: this.bins }, (place, count, bin) => {
        rate[bin] += count * weightOf[this.node[place]];
      });
      for (let bin = 0; bin < this.bins; bin++) rate[bin] /= Math.max(this.end[bin] - this.begin[bin], 1e-9);
      this.rates.set(event, rate);
    }
    return this.rates.get(event);
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
