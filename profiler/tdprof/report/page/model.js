// The profile: columns as Python packed them, and what the page adds up from them for the event that gives the width.

async function readDocument() {
  const holder = byId("data");
  const text = atob(holder.textContent);
  holder.remove();
  const bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  const buffer = await new Response(stream).arrayBuffer();
  const length = new DataView(buffer).getUint32(0, true);
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, length)));
  const types = { Uint8Array, Uint16Array, Uint32Array, Float32Array, Float64Array };
  const columns = {};
  for (const [name, [type, at, count]] of Object.entries(header.columns)) {
    const packed = new Uint8Array(buffer, 4 + length + at, count * types[type].BYTES_PER_ELEMENT);
    columns[name] = new types[type](inOrder(packed, count).buffer);
  }
  return new Model(header, columns);
}

// First bytes of all elements, then all second ones, become elements again; every browser is little-endian.
function inOrder(packed, count) {
  const bytes = new Uint8Array(packed.length);
  const size = packed.length / count || 0;
  for (let plane = 0, from = 0; plane < size; plane++) {
    for (let to = plane; to < bytes.length; to += size) bytes[to] = packed[from++];
  }
  return bytes;
}

// As page/functions.py numbers them.
const KINDS = ["kernel", "native", "runtime", "unknown"];

class Model {
  constructor(header, columns) {
    this.header = header;
    this.columns = columns;
    this.events = header.events;
    const { names, modules, module, files, file, kind, mark, marks } = header.functions;
    this.functionCount = names.length;
    this.modules = modules;
    this.isUnknown = (f) => KINDS[kind[f]] === "unknown";
    // Numbers beyond the functions': processes, then the unknown code of each file that has several pieces of it.
    this.firstProcess = names.length;
    this.firstGroup = this.firstProcess + header.processes.length;
    this.names = [...names, ...header.processes];
    this.shownAs = Int32Array.from(this.names, (_, id) => id);
    this.groups = this.groupUnknown(module, mark);
    this.ids = this.names.length;
    const first = (id) => (id >= this.firstGroup ? this.groups[id - this.firstGroup].members[0] : id);
    this.module = (id) => (this.isProcess(id) ? "" : modules[module[first(id)]]);
    this.file = (id) => (id < this.functionCount ? files[file[id]] : "");
    this.moduleIndex = (id) => module[first(id)];
    this.kind = (id) => (this.isProcess(id) ? "process" : KINDS[kind[first(id)]]);
    this.mark = (id) => (this.isProcess(id) ? "" : marks[mark[first(id)]]);
    this.labels = new Labels(this.names);
    this.nodes = columns.parentStep.length + 1;
    this.functionOf = columns.function;
    this.parent = new Int32Array(this.nodes).fill(-1);
    for (let node = 1, parent = -1; node < this.nodes; node++) {
      parent += columns.parentStep[node - 1];
      this.parent[node] = parent;
    }
    // Children of a node stand together, since the parents never fall.
    this.firstChild = new Uint32Array(this.nodes + 1).fill(this.nodes);
    for (let node = this.nodes - 1; node > 0; node--) this.firstChild[this.parent[node]] = node;
    for (let node = this.nodes - 1; node >= 0; node--) {
      if (this.firstChild[node] > this.firstChild[node + 1]) this.firstChild[node] = this.firstChild[node + 1];
    }
    this.isOutermost = this.findOutermost((node) => this.functionOf[node]);
    this.isOutermostShown = this.findOutermost((node) => this.shownAs[this.functionOf[node]]);
    this.ofWhole = {
      findings: header.findings ? new Metrics(this) : null,
      change: header.change ? new Change(this) : null,
      spe: header.spe ?? null,
    };
    this.placeNode = this.findPlaceNodes();
    this.times = header.time ? new Times(this) : null;
    this.metricsOfTime = header.findings?.byTime ? new MetricsOfTime(this) : null;
    this.chooseTime(null, header.firstEvent);
  }

  // Some bins of time, null for all, and the event that gives the width. Metrics follow where the page has what they
  // are made of; what is known of the whole alone is hidden while a part is chosen.
  chooseTime(span, event) {
    if (this.times) this.times.span = span;
    const { findings, change, spe } = this.ofWhole;
    if (span) this.metricsOfTime?.choose(span);
    this.findings = span ? this.metricsOfTime : findings;
    this.change = span ? null : change;
    this.spe = span ? null : spe;
    this.setEvent(event);
  }

  isProcess(id) {
    return id >= this.firstProcess && id < this.firstGroup;
  }

  // Pieces of unknown code of one file, which are unknown for one reason, have a number and a name together.
  groupUnknown(module, mark) {
    const found = new Map();
    for (let f = 0; f < this.functionCount; f++) {
      if (!this.isUnknown(f) || !this.modules[module[f]]) continue;
      const key = `${module[f]} ${mark[f]}`;
      if (!found.has(key)) found.set(key, []);
      found.get(key).push(f);
    }
    const groups = [...found.values()].filter((members) => members.length > 1).map((members) => ({ members }));
    for (const { members } of groups) {
      const id = this.names.length;
      this.names.push(baseName(this.modules[module[members[0]]]));
      for (const f of members) this.shownAs[f] = id;
    }
    return groups;
  }

  // The node of each place: a node, a line and who woke it, as samples were found in them.
  findPlaceNodes() {
    const steps = this.columns.placeNodeStep ?? [];
    const found = new Uint32Array(steps.length);
    for (let place = 0, node = 0; place < steps.length; place++) {
      node += steps[place];
      found[place] = node;
    }
    return found;
  }

  // A node is outermost if no caller of it is the same function: a recursion counts once.
  findOutermost(idOf) {
    const result = new Uint8Array(this.nodes);
    const open = new Int32Array(this.ids);
    const pending = [];
    for (let child = this.firstChild[1] - 1, first = this.firstChild[0]; child >= first; child--) pending.push(child);
    while (pending.length) {
      const node = pending.pop();
      if (node < 0) {
        open[idOf(~node)]--;
        continue;
      }
      result[node] = open[idOf(node)]++ === 0 ? 1 : 0;
      pending.push(~node);
      for (let child = this.firstChild[node]; child < this.firstChild[node + 1]; child++) pending.push(child);
    }
    return result;
  }

  // What a sample of an event weighs in each node that has any, but for its bin's scale; kept of the last event that was
  // asked for.
  weightsOf(event) {
    const { columns } = this;
    if (this.weightsKept?.event === event) return this.weightsKept.weights;
    const weights = new Float64Array(this.nodes);
    for (let i = columns.nodeStart[event], node = 0; i < columns.nodeStart[event + 1]; i++) {
      node += columns.nodeStep[i];
      weights[node] = columns.timeWeight[i] * this.events[event].weightOfSample;
    }
    this.weightsKept = { event, weights };
    return weights;
  }

  // Whether an event's samples weigh differently, so that of a part of the time only their number and its sum are exact.
  isScaled(event) {
    const { nodeStart, nodeWeight } = this.columns;
    if (this.times?.isScaled(event)) return true;
    for (let i = nodeStart[event]; i < nodeStart[event + 1]; i++) if (Math.abs(nodeWeight[i] - 1) > 1e-3) return true;
    return false;
  }

  // Calls visit(node, samples, weight) for all that an event has in the chosen time; a node may come more than once.
  visitNodes(event, visit) {
    const { columns, times } = this;
    if (times?.span) {
      const weights = this.weightsOf(event);
      times.visit(event, times.span, (place, count, scaled) => visit(times.node[place], count, scaled * weights[times.node[place]]));
      return;
    }
    for (let i = columns.nodeStart[event], node = 0; i < columns.nodeStart[event + 1]; i++) {
      node += columns.nodeStep[i];
      visit(node, columns.nodeCount[i], columns.nodeCount[i] * columns.nodeWeight[i] * this.events[event].weightOfSample);
    }
  }

  // The number of an event's samples in the chosen time; NaN where the page does not have it by time.
  samplesOf(event) {
    if (!this.times?.span) return this.events[event]?.samples ?? 0;
    if (event === this.event) return this.totalSamples[0];
    if (!this.times.has(event)) return NaN;
    let samples = 0;
    this.times.visit(event, this.times.span, (_, count) => {
      samples += count;
    });
    return samples;
  }

  setEvent(event) {
    this.event = event;
    this.unit = this.events[event]?.unit;
    this.effectiveSamples = this.events[event]?.effectiveSamples ?? 0; // 0, too, where hosts are the samples
    if (this.times?.span && this.effectiveSamples) this.effectiveSamples = this.times.effectiveSamples(event, this.times.span);
    this.self = new Float64Array(this.nodes);
    this.samples = new Float64Array(this.nodes);
    if (this.events.length) {
      this.visitNodes(event, (node, count, weight) => {
        this.self[node] += weight;
        this.samples[node] += count;
      });
    }
    this.total = this.self.slice();
    this.totalSamples = this.samples.slice();
    for (let node = this.nodes - 1; node > 0; node--) {
      this.total[this.parent[node]] += this.total[node];
      this.totalSamples[this.parent[node]] += this.totalSamples[node];
    }
    this.whole = this.total[0];
    const functions = { self: 0, samples: 0, total: 0, totalSamples: 0 };
    for (const name of Object.keys(functions)) functions[name] = new Float64Array(this.ids);
    const add = (id, node, isOutermost) => {
      functions.self[id] += this.self[node];
      functions.samples[id] += this.samples[node];
      if (!isOutermost) return;
      functions.total[id] += this.total[node];
      functions.totalSamples[id] += this.totalSamples[node];
    };
    for (let node = 1; node < this.nodes; node++) {
      const f = this.functionOf[node];
      add(f, node, this.isOutermost[node]);
      if (this.shownAs[f] !== f) add(this.shownAs[f], node, this.isOutermostShown[node]);
    }
    this.functions = functions;
  }

  share(weight) {
    return this.whole ? weight / this.whole : NaN;
  }

  // Half of Wilson's 95 % interval of a share of the event's samples; as the report's.
  halfWidth(share) {
    const n = this.effectiveSamples;
    if (!n || Number.isNaN(share)) return NaN;
    const z = this.header.quantile95;
    const spread = Math.sqrt((share * (1 - share)) / n + (z / (2 * n)) ** 2);
    return (z / (1 + z ** 2 / n)) * spread;
  }

  // The share of the event whose stacks hold one of the functions.
  shareWith(isMatch) {
    const covered = new Uint8Array(this.nodes);
    let weight = 0;
    for (let node = 1; node < this.nodes; node++) {
      covered[node] = covered[this.parent[node]] || isMatch[this.functionOf[node]];
      if (covered[node]) weight += this.self[node];
    }
    return this.share(weight);
  }

  // The nodes of a function, a process or unknown code that no node of the same calls.
  outermostOf(id) {
    const found = [];
    const isGroup = id >= this.firstGroup;
    for (let node = 1; node < this.nodes; node++) {
      const f = this.functionOf[node];
      if (isGroup ? this.shownAs[f] === id && this.isOutermostShown[node] : f === id && this.isOutermost[node]) found.push(node);
    }
    return found;
  }

  // [function, weight] of the direct callers and callees of a function, most first.
  neighbours(f) {
    const callers = new Map();
    const callees = new Map();
    const add = (map, key, weight) => weight && map.set(key, (map.get(key) ?? 0) + weight);
    for (let node = 1; node < this.nodes; node++) {
      const parent = this.parent[node];
      if (this.functionOf[node] === f && this.isOutermost[node]) {
        add(callers, parent > 0 ? this.shownAs[this.functionOf[parent]] : -1, this.total[node]);
      } else if (parent > 0 && this.functionOf[parent] === f && this.functionOf[node] !== f) {
        add(callees, this.shownAs[this.functionOf[node]], this.total[node]);
      }
    }
    return { callers: mostFirst(callers), callees: mostFirst(callees) };
  }

  // [function, weight] of what has samples of its own, most first: of all, of a process, or of unknown code.
  hottest(id = -1) {
    const found = new Map();
    if (id < 0) {
      for (let f = 0; f < this.ids; f++) if (this.functions.self[f] && (this.shownAs[f] ?? f) === f) found.set(f, this.functions.self[f]);
      return mostFirst(found);
    }
    const isWithin = this.within(id);
    for (let node = 1; node < this.nodes; node++) {
      const f = this.functionOf[node];
      const isCounted = id >= this.firstGroup ? this.shownAs[f] === id : isWithin[node];
      if (!isCounted || !this.self[node]) continue;
      const key = id >= this.firstGroup ? f : this.shownAs[f];
      found.set(key, (found.get(key) ?? 0) + this.self[node]);
    }
    return mostFirst(found);
  }

  // 1 for each node of a function, a process or unknown code that no node of the same calls, and of what they call.
  within(id) {
    const isWithin = new Uint8Array(this.nodes);
    for (let node = 1; node < this.nodes; node++) {
      const f = this.functionOf[node];
      isWithin[node] = isWithin[this.parent[node]] || f === id || this.shownAs[f] === id ? 1 : 0;
    }
    return isWithin;
  }

  // A function's own share of each event.
  selfShares(f) {
    return this.events.map((_, event) => {
      let own = 0;
      let whole = 0;
      this.visitNodes(event, (node, _count, weight) => {
        whole += weight;
        if (node > 0 && this.functionOf[node] === f) own += weight;
      });
      return whole ? own / whole : NaN;
    });
  }

  // [waker, weight] of who ended the sleeps of a function with all it calls, of a process, of unknown code, or below 0 of
  // all, most first; nobody where the event that gives the width is no sleep, or nobody asked for them.
  wakers(id) {
    const { columns, event, times, header } = this;
    if (event !== header.wakers?.event) return [];
    const isWithin = id < 0 ? null : this.within(id);
    const found = new Map();
    const add = (place, weight) => {
      if (isWithin && !isWithin[this.placeNode[place]]) return;
      const waker = columns.placeWaker[place];
      found.set(waker, (found.get(waker) ?? 0) + weight);
    };
    if (times?.span) {
      const weights = this.weightsOf(event);
      times.visit(event, times.span, (place, _, scaled) => add(place, scaled * weights[this.placeNode[place]]));
    } else {
      const { wakerPlaceStart, wakerPlaceStep, wakerPlaceCount, wakerPlaceWeight } = columns;
      for (let i = wakerPlaceStart[event], place = 0; i < wakerPlaceStart[event + 1]; i++) {
        place += wakerPlaceStep[i];
        add(place, wakerPlaceCount[i] * wakerPlaceWeight[i] * this.events[event].weightOfSample);
      }
    }
    return mostFirst(found);
  }

  widestNode(id) {
    let best = 0;
    for (let node = 1; node < this.nodes; node++) {
      const f = this.functionOf[node];
      if ((f === id || this.shownAs[f] === id) && (!best || this.total[node] > this.total[best])) best = node;
    }
    return best;
  }

  placeOfLine(row) {
    const { lineNumber, lineFile } = this.columns;
    return { line: lineNumber[row], file: lineFile ? lineFile[row] : 0 };
  }

  // The name of a line's source file; "" where it is the one that the function stands in.
  lineFile(file) {
    return file ? this.header.functions.lineFiles[file - 1].split("/").pop() || "?" : "";
  }

  // {line, file, weight, samples} of a function's own lines, most first.
  lines(f) {
    const { columns, event, times } = this;
    const found = [];
    if (times?.span) {
      const weights = this.weightsOf(event);
      const rows = new Map();
      times.visit(event, times.span, (place, samples, scaled) => {
        const row = columns.placeLine[place];
        if (columns.lineFunction[row] !== f) return;
        if (!rows.has(row)) rows.set(row, { ...this.placeOfLine(row), weight: 0, samples: 0 });
        rows.get(row).samples += samples;
        rows.get(row).weight += scaled * weights[times.node[place]];
      });
      return [...rows.values()].sort((a, b) => b.weight - a.weight);
    }
    for (let i = columns.lineStart[event], row = 0; i < columns.lineStart[event + 1]; i++) {
      row += columns.lineStep[i];
      if (columns.lineFunction[row] === f) {
        const weight = columns.lineCount[i] * columns.lineWeight[i] * this.events[event].weightOfSample;
        found.push({ ...this.placeOfLine(row), weight, samples: columns.lineCount[i] });
      }
    }
    return found.sort((a, b) => b.weight - a.weight);
  }
}

// What is known of why: metrics with their doubt of the program, of functions and of lines.
class Metrics {
  constructor(model) {
    const { columns, header } = model;
    const { core, metrics, catalog, diagnoses, programDiagnosis, disagreements, times } = header.findings;
    this.core = core;
    this.metrics = metrics;
    this.catalog = catalog;
    this.diagnoses = diagnoses;
    this.programDiagnosis = programDiagnosis;
    this.disagreements = disagreements;
    this.times = times;
    this.hasLines = true;
    this.columns = columns;
    this.rows = columns.metricFunction.length;
    this.rowOf = new Int32Array(model.functionCount).fill(-1);
    columns.metricFunction.forEach((f, row) => {
      this.rowOf[f] = row;
    });
    this.lineRows = new Map();
    columns.metricLineFunction.forEach((f, row) => {
      this.lineRows.set(`${f}:${columns.metricLineFile?.[row] ?? 0}:${columns.metricLineNumber[row]}`, row);
    });
  }

  title(name) {
    return this.catalog.metrics[name]?.title ?? name;
  }

  // {value, halfWidth, …}, or null where nothing is known.
  at(table, column, row, rows) {
    if (column < 0 || row < 0) return null;
    const i = column * rows + row;
    const get = (what) => this.columns[`${table}${what}`][i];
    if (Number.isNaN(get("Value"))) return null;
    const metric = this.metrics[table][column];
    return {
      ...metric,
      value: get("Value"),
      halfWidth: get("HalfWidth"),
      samples: get("Samples"),
      isSignificant: get("IsSignificant") === 1,
    };
  }

  column(table, metric) {
    return this.metrics[table].findIndex((each) => sameMetric(each, metric));
  }

  program(metric) {
    return this.at("program", this.column("program", metric), 0, 1);
  }

  // Of a function: its own instructions ("self") or with all it called ("total").
  ofFunction(f, metric, table = "self") {
    return this.at(table, this.column(table, metric), this.rowOf[f], this.rows);
  }

  ofLine(f, file, line, metric) {
    const row = this.lineRows.get(`${f}:${file}:${line}`) ?? -1;
    return this.at("line", this.column("line", metric), row, this.columns.metricLineFunction.length);
  }

  // The level-1 metric that leads; null where none does.
  bottleneck(f) {
    return this.diagnosis(f)?.path[0] ?? null;
  }

  diagnosis(f) {
    const number = f < 0 ? this.programDiagnosis : this.columns.diagnosis[this.rowOf[f]];
    return this.diagnoses[number] ?? null;
  }

  // The program's level 1 over time: {begin, end, values by metric}; null where there is none.
  levelOneTimes() {
    return this.roots.length ? this.times : null;
  }

  // Other metrics that are known of some stretch of time.
  get overTime() {
    const { roots, times } = this;
    return this.metrics.program.filter(({ name, source }) =>
      source === "pmu" && times?.values[name] && !roots.some((root) => root.name === name));
  }

  // What level 1 divides: "slots", or "cycles" on cores that do not count slots.
  get divided() {
    return this.roots[0].units.replace("percent of ", "");
  }

  // The level-1 metrics that the recording has.
  get roots() {
    return this.catalog.roots
      .map((name) => this.metrics.program.find((metric) => metric.name === name && metric.source === "pmu"))
      .filter(Boolean);
  }
}

const mostFirst = (weights) => [...weights].sort((a, b) => b[1] - a[1]);
const sameMetric = (a, b) => a.name === b.name && a.source === b.source;
