// The graph: where its calls begin on top, width by the event, drawn on a canvas; only what is wide enough to be seen is
// laid out.

const ROW = 20;
const NARROWEST = 0.5; // pixels
const MANY = -1; // stands for calls too narrow to be drawn one by one

class Flame {
  // on: {select(node), zoom(node), hover(node, event)}; a node of MANY is never given.
  constructor(model, on) {
    this.model = model;
    this.graph = new CallGraph(model, "");
    this.on = on;
    this.zoomed = this.cursor = this.hovered = 0;
    this.selected = -1;
    this.matches = null;
    this.box = byId("flame");
    this.canvas = byId("flame-canvas");
    this.context = this.canvas.getContext("2d");
    this.colourOf = (_node) => OTHER;
    this.rows = [];
    this.box.addEventListener("scroll", () => this.requestDraw());
    this.box.addEventListener("pointermove", (event) => this.hover(this.nodeAt(event), event));
    this.box.addEventListener("pointerleave", (event) => this.hover(0, event));
    this.box.addEventListener("click", (event) => this.pick(event, (node) => on.select(node)));
    this.box.addEventListener("dblclick", (event) => this.pick(event, (node) => on.zoom(node)));
    this.box.addEventListener("keydown", (event) => this.key(event));
    this.box.addEventListener("focus", () => this.announce());
    new ResizeObserver(() => this.layout()).observe(this.box);
  }

  pick(event, act) {
    const node = this.nodeAt(event);
    if (node < 0) return;
    this.cursor = node;
    act(node);
  }

  hover(node, event) {
    if (node !== this.hovered) {
      this.hovered = node;
      this.requestDraw();
    }
    this.on.hover(node, event);
  }

  show({ graph, zoomed, selected, matches, colourOf }) {
    const isMoved = zoomed !== this.zoomed || graph !== this.graph;
    this.graph = graph;
    this.zoomed = zoomed;
    this.selected = selected;
    this.matches = matches;
    this.colourOf = colourOf;
    if (isMoved) {
      this.cursor = zoomed;
      this.hovered = 0;
    }
    this.layout();
    if (isMoved) this.box.scrollTop = this.rowOfRoot ? (this.rowOfRoot + 0.5) * ROW - this.box.clientHeight / 2 : 0;
    this.announce();
  }

  // Rows of {node, left, width} in pixels, left to right: what leads to the zoomed node at full width, then its calls.
  // A sandwich has its callers above, the nearest lowest.
  layout() {
    const width = this.box.clientWidth;
    const { graph } = this;
    this.rows = [];
    for (let node = this.zoomed; node >= 0; node = graph.parent[node]) {
      this.rows.unshift({ node: [node], left: [0], width: [width] });
    }
    const scale = width / graph.total[this.zoomed];
    const middle = this.rows[this.rows.length - 1];
    this.rows.push(...this.layoutRows(middle, scale, (node) => graph.callsOf(node)));
    const callers = this.layoutRows(middle, scale, (node) => (node === 0 ? graph.callersOf(0) : graph.callsOf(node)), graph.view === "sandwich");
    this.rows.unshift(...callers.reverse());
    this.rowOfRoot = callers.length;
    this.rowOfCursor = this.findRow(this.cursor);
    byId("flame-height").style.height = `${this.rows.length * ROW + 4}px`;
    this.requestDraw();
  }

  layoutRows(first, scale, callsOf, isWanted = true) {
    const rows = [];
    for (let row = first; isWanted && row.node.length && scale < Infinity; ) {
      const next = { node: [], left: [], width: [] };
      row.node.forEach((node, i) => node >= 0 && this.layoutCalls(callsOf(node), row.left[i], scale, next));
      if (next.node.length) rows.push(next);
      row = next;
    }
    return rows;
  }

  layoutCalls(calls, left, scale, next) {
    const { total } = this.graph;
    const wide = [];
    let narrow = 0;
    for (const child of calls) {
      if (total[child] * scale >= NARROWEST) wide.push(child);
      else narrow += total[child] * scale;
    }
    wide.sort((a, b) => total[b] - total[a] || a - b);
    for (const child of wide) {
      next.node.push(child);
      next.left.push(left);
      next.width.push(total[child] * scale);
      left += total[child] * scale;
    }
    if (narrow >= 1) {
      next.node.push(MANY);
      next.left.push(left);
      next.width.push(narrow);
    }
  }

  requestDraw() {
    if (this.isDue) return;
    this.isDue = true;
    requestAnimationFrame(() => {
      this.isDue = false;
      this.draw();
    });
  }

  draw() {
    const ratio = window.devicePixelRatio || 1;
    const width = this.box.clientWidth;
    const height = this.box.clientHeight;
    if (this.canvas.width !== Math.round(width * ratio) || this.canvas.height !== Math.round(height * ratio)) {
      this.canvas.width = Math.round(width * ratio);
      this.canvas.height = Math.round(height * ratio);
      this.canvas.style.width = `${width}px`;
      this.canvas.style.height = `${height}px`;
    }
    // Only what is in view is drawn: a stack of 10,000 calls is taller than any canvas may be.
    this.canvas.style.top = `${this.box.scrollTop}px`;
    const { context: c } = this;
    const style = getComputedStyle(this.box);
    this.look = {
      surface: style.getPropertyValue("--surface"),
      accent: style.getPropertyValue("--accent"),
      ink: style.getPropertyValue("--ink"),
      hatched: hatching(c, style),
    };
    c.setTransform(ratio, 0, 0, ratio, 0, 0);
    c.clearRect(0, 0, width, height);
    c.font = `12px ${style.getPropertyValue("--mono")}`;
    c.textBaseline = "middle";
    c.direction = "ltr";
    this.letter = c.measureText("m").width;
    const top = this.box.scrollTop;
    const first = Math.max(0, Math.floor(top / ROW));
    const last = Math.min(this.rows.length, Math.ceil((top + height) / ROW));
    for (let depth = first; depth < last; depth++) this.drawRow(this.rows[depth], depth * ROW - top);
    if (!performance.getEntriesByName("tdprof-drawn").length) performance.mark("tdprof-drawn"); // for tools/bench/page
  }

  drawRow(row, y) {
    const { context: c, model, graph, look } = this;
    for (let i = 0; i < row.node.length; i++) {
      const node = row.node[i];
      const left = row.left[i];
      const width = Math.max(row.width[i] - (row.width[i] > 3 ? 1 : 0), 0.5);
      const f = node === MANY ? -1 : graph.id[node];
      const colour = node === MANY ? UNKNOWN : f < 0 ? OTHER : this.colourOf(f);
      const isDim = this.matches && !(f >= 0 && this.matches[f]);
      c.globalAlpha = isDim ? 0.22 : 1;
      c.fillStyle = colour.fill === "hatched" ? look.hatched : colour.fill;
      c.fillRect(left, y, width, ROW - 1);
      if (f >= 0 && width > 8 && colour.fill !== "hatched" && model.kind(f) === "unknown") {
        c.fillStyle = look.hatched;
        c.fillRect(left, y, 4, ROW - 1);
      }
      c.globalAlpha = 1;
      const ink = isDim || colour.fill === "hatched" ? look.ink : colour.ink;
      if (row.width[i] > 26) this.label(node, left, y, width, ink);
      if (node === MANY) continue;
      if (f >= 0 && f === this.selected && width > 4) this.outline(left, y, width, ink, 2);
      if (node === this.hovered && f >= 0) this.outline(left, y, width, ink, 1);
      if (node === this.cursor && document.activeElement === this.box) this.outline(left, y, width, look.accent, 3);
    }
  }

  outline(left, y, width, colour, thickness) {
    const { context: c } = this;
    c.strokeStyle = colour;
    c.lineWidth = thickness;
    c.strokeRect(left + thickness / 2, y + thickness / 2, Math.max(width - thickness, 1), ROW - 1 - thickness);
  }

  label(node, left, y, width, ink) {
    const { context: c, model, graph } = this;
    if (node === MANY) return;
    const room = width - 8;
    const most = Math.floor(room / this.letter);
    const text = graph.id[node] < 0 ? "all" : model.labels.shorten(graph.id[node], most);
    if (!text) return;
    c.fillStyle = ink;
    // Letters wider than most (CJK, emoji) are squeezed rather than let out of their frame.
    c.fillText(text, left + 4, y + ROW / 2, room);
  }

  nodeAt(event) {
    const bounds = this.box.getBoundingClientRect();
    const row = this.rows[Math.floor((event.clientY - bounds.top - this.box.clientTop + this.box.scrollTop) / ROW)];
    const x = event.clientX - bounds.left - this.box.clientLeft;
    if (!row) return MANY;
    let low = 0;
    let high = row.left.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (row.left[middle] <= x) low = middle;
      else high = middle - 1;
    }
    return x >= row.left[low] && x < row.left[low] + row.width[low] ? row.node[low] : MANY;
  }

  findRow(node) {
    return this.rowOfRoot + this.graph.depth[node];
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const row = this.rows[this.rowOfCursor];
    const at = row ? row.node.indexOf(this.cursor) : -1;
    const beside = (step) => {
      let to = at + step;
      while (row.node[to] === MANY) to += step;
      return row.node[to] ?? this.cursor;
    };
    // The widest call, or the way back to the middle: whichever lies there.
    const towards = (step) => {
      const { parent } = this.graph;
      const there = this.rows[this.rowOfCursor + step]?.node ?? [];
      return there.find((node) => node >= 0 && (parent[node] === this.cursor || parent[this.cursor] === node)) ?? this.cursor;
    };
    const moves = {
      ArrowLeft: () => beside(-1),
      ArrowRight: () => beside(1),
      ArrowUp: () => towards(-1),
      ArrowDown: () => towards(1),
      Home: () => this.zoomed,
    };
    const acts = {
      Enter: () => this.on.select(this.cursor),
      z: () => this.on.zoom(this.cursor),
      Escape: () => this.on.zoom(0),
    };
    const name = event.key.length === 1 ? event.key.toLowerCase() : event.key;
    if (name in acts) acts[name]();
    else if (name in moves && at >= 0) this.moveTo(moves[name]());
    else if (name in moves) this.moveTo(this.zoomed);
    else return;
    event.preventDefault();
  }

  moveTo(node) {
    this.cursor = node;
    this.rowOfCursor = this.findRow(node);
    const y = this.rowOfCursor * ROW;
    if (y < this.box.scrollTop) this.box.scrollTop = y;
    const bottom = y + ROW + 4 - this.box.clientHeight;
    if (bottom > this.box.scrollTop) this.box.scrollTop = bottom;
    this.announce();
    this.requestDraw();
  }

  // The frame under the cursor as a tree item, anew each time so that a screen reader speaks it.
  announce() {
    const { graph, cursor } = this;
    const id = `frame-${cursor}`;
    const item = el("div", { id, class: "hidden", role: "treeitem" }, this.describe(cursor));
    item.setAttribute("aria-level", Math.abs(graph.depth[cursor]) + 1);
    if (graph.hasCalls(cursor)) item.setAttribute("aria-expanded", "true");
    item.setAttribute("aria-selected", String(graph.id[cursor] >= 0 && graph.id[cursor] === this.selected));
    this.box.querySelector("[role=treeitem]").replaceWith(item);
    this.box.setAttribute("aria-activedescendant", id);
    this.requestDraw();
  }

  describe(node) {
    const { model, graph } = this;
    const share = `${showShare(model.share(graph.total[node]))} of ${model.events[model.event]?.name}`;
    const id = graph.id[node];
    if (id < 0) return `all, ${share}`;
    const own = graph.way[node] === DOWN ? graph.selfOf(node) : 0;
    const mark = model.mark(id) ? ` (${model.mark(id)})` : "";
    return `${model.names[id]}${mark}, ${share}${own ? `, ${showShare(model.share(own))} in itself` : ""}`;
  }
}

// Stripes for what is not known: neither a colour of any scale nor nothing.
function hatching(context, style) {
  const tile = new OffscreenCanvas(8, 8);
  const c = tile.getContext("2d");
  c.fillStyle = style.getPropertyValue("--hatch-ground");
  c.fillRect(0, 0, 8, 8);
  c.strokeStyle = style.getPropertyValue("--hatch-line");
  c.lineWidth = 1.4;
  for (const from of [-8, 0, 8]) {
    c.beginPath();
    c.moveTo(from, 8);
    c.lineTo(from + 8, 0);
    c.stroke();
  }
  return context.createPattern(tile, "repeat");
}
