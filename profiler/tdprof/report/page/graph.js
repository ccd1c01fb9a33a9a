// What the graph shows, as a tree: calls from the root down, from the leaves up, or both around one function. Unknown code
// of one file that stands side by side is one node. A node's calls are found when somebody looks: few ever are.

const DOWN = 1;
const UP = -1;

class CallGraph {
  /**
   * @param model the profile
   * @param {"" | "up" | "sandwich"} view
   * @param {number} f the function in the middle of a sandwich
   */
  constructor(model, view, f = -1) {
    this.model = model;
    this.view = view;
    this.id = [-1]; // function, process, or unknown code of a file
    this.parent = [-1];
    this.depth = [0]; // below 0: callers above the middle
    this.way = [view === "up" ? UP : DOWN];
    this.total = [0];
    this.samples = [0];
    this.entries = [this.beginning(f)];
    this.calls = [null];
    this.callers = null;
    for (const { weight, count } of this.entries[0]) {
      this.total[0] += weight;
      this.samples[0] += count;
    }
    if (view === "sandwich") this.id[0] = f;
  }

  // Where the calls of node 0 start: {at, origin, weight, count}, where `at` walks the profile's tree and `origin` stays.
  beginning(f) {
    const { model } = this;
    const found = [];
    const add = (node, weight, count) => weight > 0 && found.push({ at: node, origin: node, weight, count });
    if (this.view === "") add(0, model.total[0], model.totalSamples[0]);
    else if (this.view === "up") for (let node = 1; node < model.nodes; node++) add(node, model.self[node], model.samples[node]);
    else for (const node of model.outermostOf(f)) add(node, model.total[node], model.totalSamples[node]);
    return found;
  }

  callsOf(node) {
    this.calls[node] ??= this.expand(node, this.way[node]);
    return this.calls[node];
  }

  // Of a sandwich's middle alone; its callers' callers are their calls.
  callersOf(node) {
    if (node !== 0 || this.view !== "sandwich") return [];
    this.callers ??= this.expand(0, UP);
    return this.callers;
  }

  expand(node, way) {
    const { model } = this;
    const groups = new Map();
    const add = (at, origin, weight, count) => {
      const id = model.shownAs[model.functionOf[at]];
      if (!groups.has(id)) groups.set(id, { id, total: 0, samples: 0, entries: [] });
      const group = groups.get(id);
      group.total += weight;
      group.samples += count;
      group.entries.push({ at, origin, weight, count });
    };
    const isLeaves = node === 0 && this.view === "up";
    for (const { at, origin, weight, count } of this.entries[node]) {
      if (isLeaves) add(at, origin, weight, count);
      else if (way === UP) model.parent[at] > 0 && add(model.parent[at], origin, weight, count);
      else {
        for (let child = model.firstChild[at]; child < model.firstChild[at + 1]; child++) {
          if (model.total[child] > 0) add(child, child, model.total[child], model.totalSamples[child]);
        }
      }
    }
    return [...groups.values()].map((group) => this.addNode(node, way, group));
  }

  addNode(parent, way, { id, total, samples, entries }) {
    const node = this.id.length;
    this.id.push(id);
    this.parent.push(parent);
    this.depth.push(this.depth[parent] + (this.view === "sandwich" ? way : 1));
    this.way.push(way);
    this.total.push(total);
    this.samples.push(samples);
    this.entries.push(entries);
    this.calls.push(null);
    return node;
  }

  // The weight that ends in a node, and goes on to no call.
  selfOf(node) {
    const rest = this.callsOf(node).reduce((sum, call) => sum - this.total[call], this.total[node]);
    return rest > this.total[node] * 1e-9 ? rest : 0;
  }

  hasCalls(node) {
    return this.callsOf(node).length > 0 || this.callersOf(node).length > 0;
  }

  // A node's name for the page's address: a node of the profile's tree, and how far up from it.
  addressOf(node) {
    if (node <= 0) return null;
    const { origin } = this.entries[node][0];
    return this.view === "up" ? `${origin}.${this.depth[node]}` : String(origin);
  }

  // The node of an address; 0 for nonsense.
  find(address) {
    const { model } = this;
    const [origin, steps] = String(address ?? "").split(".").map(Number);
    if (!Number.isInteger(origin) || origin <= 0 || origin >= model.nodes || this.view === "sandwich") return 0;
    const path = [];
    for (let at = origin; at > 0; at = model.parent[at]) path.push(model.shownAs[model.functionOf[at]]);
    let node = 0;
    for (const id of this.view === "up" ? path.slice(0, steps || 0) : path.reverse()) {
      const next = this.callsOf(node).find((call) => this.id[call] === id);
      if (next === undefined) return 0;
      node = next;
    }
    return node;
  }
}
