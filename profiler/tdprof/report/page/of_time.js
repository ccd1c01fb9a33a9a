// Metrics of a stretch of time: the arithmetic of metrics/estimate.py and plans.py, on the tallies of page/tallies.py.

class MetricsOfTime extends Metrics {
  constructor(model) {
    super(model);
    this.times = null;
    this.hasLines = false;
    this.given = model.header.findings.byTime;
    this.known = this.given.functions.length;
    this.rowOf = new Int32Array(model.functionCount).fill(-1);
    this.given.functions.forEach((f, row) => {
      this.rowOf[f] = row;
    });
  }

  choose(span) {
    this.span = span;
    this.sums = new Map();
    this.found = new Map();
    this.diagnosed = new Map();
    this.findIntervals();
  }

  // Groups that took turns, and one interval of them: no scatter tells what each missed.
  get isOfOneInterval() {
    const { metrics, constants } = this.given;
    return this.intervals === 1 && Object.values(metrics).some(({ seen }) => seen < constants.seenWhole);
  }

  // The interval of each chosen bin: each its own, or, of many, wider ones of equal length.
  findIntervals() {
    const { end, constants } = this.given;
    const { first, last } = this.span;
    const n = last - first;
    const since = (bin) => end[bin] - end[first];
    const most = constants.intervals;
    this.intervals = Math.min(n, most);
    this.intervalOf = Array.from({ length: n }, (_, i) =>
      n <= most ? i : Math.min(most - 1, Math.floor((since(first + i) / since(last - 1)) * most)));
  }

  // The samples of a recorded event in each row: {parts: weight by row and interval, weight, samples, squares}.
  sumsOf(event) {
    if (!this.sums.has(event)) this.sums.set(event, this.addUp(event));
    return this.sums.get(event);
  }

  // Where the tallies of an event's chosen bins stand: begin and end of each.
  *binsOf(event) {
    const { tallyStart } = this.columns;
    const cell = event * this.given.end.length;
    for (let bin = this.span.first; bin < this.span.last; bin++) {
      yield [this.intervalOf[bin - this.span.first], tallyStart[cell + bin], tallyStart[cell + bin + 1]];
    }
  }

  // The least and the largest mean weight of a sample in each interval: its line's period may have changed between them.
  extremesOf(event) {
    const { tallyMean, tallyMeans, tallyCount } = this.columns;
    const least = new Float64Array(this.intervals).fill(Infinity);
    const most = new Float64Array(this.intervals).fill(-Infinity);
    for (const [interval, from, to] of this.binsOf(event)) {
      for (let i = from; i < to; i++) {
        if (!tallyCount[i]) continue;
        const mean = tallyMeans[tallyMean[i]];
        least[interval] = Math.min(least[interval], mean);
        most[interval] = Math.max(most[interval], mean);
      }
    }
    return [least, most];
  }

  addUp(event) {
    const { tallyStep, tallyMean, tallyMeans, tallyCount, tallySpare } = this.columns;
    const { intervals } = this;
    const rows = 1 + 2 * this.known;
    const parts = new Float64Array(rows * intervals);
    const [weight, samples, squares] = Array.from({ length: 3 }, () => new Float64Array(rows));
    const [least, most] = this.extremesOf(event);
    for (const [interval, from, to] of this.binsOf(event)) {
      for (let i = from, row = 0; i < to; i++) {
        row += tallyStep[i];
        const mean = tallyMeans[tallyMean[i]];
        const own = tallyCount[i] * mean;
        parts[row * intervals + interval] += own;
        weight[row] += own;
        samples[row] += tallyCount[i];
        squares[row] += own * mean;
        if (tallySpare[i]) squares[row] += tallySpare[i] * (most[interval] - mean) * (mean - least[interval]);
      }
    }
    return { parts, weight, samples, squares };
  }

  // An event's count in a row: {value, variance, independent, unseen, samples, scale, each}; independent is the variance if
  // the total were not known, each what a sample stands for.
  term(event, row) {
    const { constants, threads } = this.given;
    const all = { samples: 0, weight: 0, squares: 0 };
    const own = { samples: 0, weight: 0, squares: 0 };
    event.rows.forEach((recorded) => {
      const sums = this.sumsOf(recorded);
      for (const name of ["samples", "weight", "squares"]) {
        own[name] += sums[name][row];
        all[name] += sums[name][0];
      }
    });
    const { scale: given, unseen: total, mean: usual } = event;
    const isCounted = given !== null;
    if (!all.weight) {
      // In all this time no sample: there may have been so many events for all that.
      const unseen = usual === null ? total : Math.min(total, constants.unseenSamples * usual * given);
      return { value: isCounted ? 0 : NaN, variance: 0, independent: 0, unseen: isCounted ? unseen : 0, samples: 0, scale: 0, each: 0 };
    }
    const scale = isCounted ? given : 1;
    const share = own.weight / all.weight;
    const mean = all.weight / all.samples;
    const edges = Math.min(Math.max(1, (threads * event.rows.length) / 4), Math.max(1, all.samples));
    const apart = (1 - share) ** 2 * own.squares + share ** 2 * (Math.max(all.squares - own.squares, 0) + edges * mean ** 2);
    const variance = isCounted ? Math.max(apart, share * (1 - share) * all.squares) : own.squares;
    const bound = constants.unseenSamples * mean * scale;
    const unseen = isCounted ? Math.min(bound, all.weight * scale) : bound;
    const [ofSampling, independent] = [variance, own.squares].map((each) => each * scale ** 2);
    return {
      value: own.weight * scale,
      variance: ofSampling,
      independent,
      unseen: own.samples ? 0 : unseen,
      samples: own.samples,
      scale,
      each: mean * scale,
    };
  }

  // {value, halfWidth, samples, isSignificant} of a metric in a row; null where it is not known.
  estimate(metric, row) {
    if (metric.source !== "pmu") return null; // SPE's may have the same name
    const key = `${metric.name} ${row}`;
    if (!this.found.has(key)) this.found.set(key, this.makeEstimate(metric, row));
    return this.found.get(key);
  }

  makeEstimate(metric, row) {
    const plan = this.given.metrics[metric.name];
    if (!plan || row < 0) return null;
    const { constants } = this.given;
    const [z] = constants.student;
    const names = Object.keys(plan.events);
    const terms = new Map(names.map((name) => [name, this.term(plan.events[name], row)]));
    const { value, gradient } = evaluateFormula(plan.formula, (name) => terms.get(name).value);
    if (Number.isNaN(value)) return null;
    const doubts = names.map((name) => gradient[name] ** 2 * (terms.get(name).variance + (terms.get(name).unseen / z) ** 2));
    let variance = doubts.reduce((sum, each) => sum + each, 0);
    const scarce = names.filter((_, i) => doubts[i] >= constants.minorVariance * variance).map((name) => terms.get(name).samples);
    const samples = scarce.length ? Math.min(...scarce) : 0;
    let half = z * Math.sqrt(variance);
    if (samples >= constants.minSamples && this.intervals > 1) {
      const ofAll = (add) => names.reduce((sum, name) => sum + gradient[name] ** 2 * add(terms.get(name)), 0);
      const scatter = scatterOf(this.partsOf(plan, terms, gradient, row));
      variance = ofEvenSamples(variance, scatter, ofAll((term) => term.each ** 2), constants);
      half = z * Math.sqrt(variance);
      if (plan.seen < constants.seenWhole) {
        half = withTurns(variance, ofAll((term) => term.independent), scatter, 1 - plan.seen, constants);
      }
    }
    const halfWidth = half < constants.rounding * Math.abs(value) ? 0 : half;
    const enough = metric.units.startsWith("percent") ? Math.max(Math.abs(value), constants.informativePoints) : Math.abs(value);
    return { ...metric, value, halfWidth, samples, isSignificant: samples >= constants.minSamples && halfWidth <= enough };
  }

  // What each interval adds to a metric in a row.
  partsOf(plan, terms, gradient, row) {
    const parts = new Float64Array(this.intervals);
    for (const [name, event] of Object.entries(plan.events)) {
      const factor = gradient[name] * terms.get(name).scale;
      for (const recorded of event.rows) {
        const own = this.sums.get(recorded).parts;
        for (let at = 0; at < parts.length; at++) parts[at] += factor * own[row * parts.length + at];
      }
    }
    return parts;
  }

  program(metric) {
    return this.estimate(metric, 0);
  }

  ofFunction(f, metric, table = "self") {
    const row = this.rowOf[f] ?? -1;
    return row < 0 ? null : this.estimate(metric, 1 + row + (table === "total" ? this.known : 0));
  }

  ofLine() {
    return null;
  }

  // The level-1 metric that leads, without the way below it; null where none does.
  bottleneck(f) {
    return this.winner(this.catalog.roots, f) || null;
  }

  diagnosis(f) {
    if (!this.diagnosed.has(f)) this.diagnosed.set(f, this.diagnose(f));
    return this.diagnosed.get(f);
  }

  // As metrics/diagnosis.py: on each level the largest, if it is larger than every other by more than their errors.
  diagnose(f) {
    const { catalog } = this;
    const path = [];
    let groups = [];
    for (let name = this.winner(catalog.roots, f); name; name = this.winner(catalog.tree[name] ?? [], f)) {
      const near = (catalog.tree[name] ?? []).filter((each) => each in catalog.groups);
      groups = [...near, ...groups.filter((each) => !near.includes(each))];
      path.push(name);
    }
    const told = path.filter((name) => catalog.metrics[name].advice).pop();
    return { path, groups, advice: told ? `${this.title(told)}: ${catalog.metrics[told].advice}` : "" };
  }

  winner(level, f) {
    const named = level.filter((name) => name in this.catalog.metrics);
    const units = this.catalog.metrics[named[0]]?.units;
    const rivals = named
      .filter((name) => this.catalog.metrics[name].units === units)
      .map((name) => ({ name, units, source: "pmu" }))
      .map((metric) => [metric.name, f < 0 ? this.program(metric) : this.ofFunction(f, metric)]);
    // What was not measured might be the largest.
    if (!rivals.length || rivals.some(([, found]) => !found)) return "";
    const [name, best] = rivals.reduce((a, b) => (b[1].value > a[1].value ? b : a));
    const isAhead = rivals.every(([other, found]) =>
      other === name || best.value - found.value > Math.hypot(best.halfWidth, found.halfWidth));
    return isAhead && best.isSignificant && best.value > 0 ? name : "";
  }
}

// A formula's value and its derivative by each event; NaN where a denominator is zero or a count is not known.
function evaluateFormula(formula, countOf) {
  const combine = (a, byA, b, byB) => {
    const total = {};
    for (const name of Object.keys(a)) total[name] = a[name] * byA;
    for (const name of Object.keys(b)) total[name] = (total[name] ?? 0) + b[name] * byB;
    return total;
  };
  const at = (node) => {
    if (typeof node === "number") return [node, {}];
    if (typeof node === "string") return [countOf(node), { [node]: 1 }];
    const [operator, left, right] = node;
    const [a, byA] = at(left);
    const [b, byB] = at(right);
    if (operator === "+") return [a + b, combine(byA, 1, byB, 1)];
    if (operator === "-") return [a - b, combine(byA, 1, byB, -1)];
    if (operator === "*") return [a * b, combine(byA, b, byB, a)];
    const divisor = b || NaN;
    return [a / divisor, combine(byA, 1 / divisor, byB, -(a / divisor) / divisor)];
  };
  const [value, gradient] = at(formula);
  return { value: Number.isFinite(value) ? value : NaN, gradient };
}

const studentOf = ({ student }, freedom) => student.reduce((sum, term, power) => sum + term / Math.max(1, freedom) ** power, 0);

// The variance of a sum by how neighbours in time differ, and its degrees of freedom.
function scatterOf(parts) {
  const n = parts.length;
  let differences = 0;
  for (let at = 1; at < n; at++) differences += (parts[at] - parts[at - 1]) ** 2;
  const used = Math.max(2, parts.filter((part) => part !== 0).length);
  return { between: ((differences / 2) * n) / (n - 1), freedom: (2 * (used - 1) ** 2) / (3 * used - 4) };
}

// The variance of sampling, of code that was sampled evenly and not by chance.
function ofEvenSamples(sampling, { between, freedom }, least, constants) {
  if (freedom < constants.scatterFreedom) return sampling;
  const told = ((constants.ofLessScatter * studentOf(constants, freedom)) / constants.student[0]) ** 2 * between;
  return Math.min(sampling, Math.max(told, least));
}

// Half of the interval with the variance of the turns in which other groups had the counters.
function withTurns(sampling, independent, { between, freedom }, unseenTime, constants) {
  let square = constants.student[0] ** 2 * sampling;
  const apart = studentOf(constants, freedom) ** 2 * (sampling + unseenTime * between);
  if (between > sampling * (1 + 2 * Math.sqrt(2 / freedom))) {
    const variance = sampling + unseenTime * (between - sampling);
    square = studentOf(constants, freedom * (variance / (unseenTime * between)) ** 2) ** 2 * variance;
  }
  const known = independent > sampling ? (1 - sampling / independent) ** constants.nearlyAll : 0;
  return Math.sqrt((1 - known) * square + known * apart);
}
