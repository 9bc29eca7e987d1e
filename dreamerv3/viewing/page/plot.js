// Line charts on a canvas: axes, bands, legend, read-out by pointer or arrows, zoom by dragging.
"use strict";

/**
 * A chart in `root`. Series are {name, color, x, y, low?, high?, faint?}: low and high make a
 * band around the line, faint is the line before smoothing. `onzoom` gets [low, high] or null.
 */
class Chart {
  constructor(root, onzoom) {
    this.canvas = create("canvas", {role: "img", tabindex: "0"});
    this.top = create("canvas", {class: "top", "aria-hidden": "true"});
    this.note = create("div", {class: "note"});
    this.tip = create("div", {class: "tip", hidden: ""});
    this.plot = create("div", {class: "plot"}, this.canvas, this.top, this.note, this.tip);
    this.legend = create("div", {class: "legend", role: "group", "aria-label": "Legend"});
    root.append(this.plot, this.legend);
    this.series = [];
    this.view = null;
    this.strong = null;
    this.onzoom = onzoom || (() => {});
    this.options = {axis: "step", log: false};
    this.top.onpointermove = event => this.move(event);
    this.top.onpointerleave = () => this.leave();
    this.top.onpointerdown = event => this.grab(event);
    this.top.onpointerup = event => this.release(event);
    this.top.ondblclick = () => this.zoom(null);
    this.canvas.onkeydown = event => this.press(event);
    this.canvas.onblur = () => this.leave();
    new ResizeObserver(() => this.draw()).observe(this.plot);
  }

  set(series, options = {}) {
    this.series = series;
    Object.assign(this.options, options);
    this.canvas.setAttribute("aria-label", this.describe());
    this.drawLegend();
    this.draw();
  }

  /** The chart in words: the last value of each line. */
  describe() {
    const shown = this.series.filter(item => item.y.some(isFinite)).slice(0, 24);
    const last = shown.map(item => `${item.name} ${short([...item.y].filter(isFinite).pop(), 4)}`);
    const axis = this.options.axis === "time" ? "time" : "steps";
    return `${this.options.title || "Chart"} over ${axis}. Last values: ${last.join(", ") || "none"}`;
  }

  drawLegend() {
    if (this.options.legend === false) return;
    const many = this.series.length > 24;
    const shown = many ? this.series.slice(0, 24) : this.series;
    this.legend.replaceChildren(...shown.map(item => {
      const key = create("i", {class: "key"});
      key.style.background = item.color;
      const strong = name => () => { this.strong = name; this.draw(); };
      return create("span", {onmouseenter: strong(item.name), onmouseleave: strong(null)},
        key, item.name);
    }));
    if (many) this.legend.append(`and ${this.series.length - shown.length} more`);
  }

  /** Extent of what is visible. */
  extent() {
    let [left, right] = this.view || [Infinity, -Infinity];
    let low = Infinity, high = -Infinity;
    if (!this.view) {
      for (const {x} of this.series) {
        if (x.length) { left = Math.min(left, x[0]); right = Math.max(right, x[x.length - 1]); }
      }
    }
    for (const {x, y, low: l, high: h, faint} of this.series) {
      for (let i = 0; i < x.length; i++) {
        if (x[i] < left || x[i] > right) continue;
        for (const value of [y[i], l ? l[i] : y[i], h ? h[i] : y[i], faint ? faint[i] : y[i]]) {
          if (!isFinite(value) || (this.options.log && value <= 0)) continue;
          if (value < low) low = value;
          if (value > high) high = value;
        }
      }
    }
    if (left > right) [left, right] = [0, 1];
    if (left === right) { const room = Math.abs(left) * 0.1 || 1; left -= room; right += room; }
    return {left, right, ...this.pad(low, high)};
  }

  pad(low, high) {
    if (low > high) return {low: 0, high: 1, empty: true};
    if (this.options.log) return {low: low / 1.2, high: high * 1.2};
    const size = Math.max(Math.abs(low), Math.abs(high));
    const flat = high - low <= size * 1e-6; // Equal but for rounding.
    const margin = flat ? size * 0.1 || 1 : (high - low) * 0.06;
    return {low: low - margin, high: high + margin};
  }

  draw() {
    const box = this.plot.getBoundingClientRect();
    if (!box.width || !box.height) return;
    // What can be scrolled has to be in reach of the keyboard.
    this.legend.tabIndex = this.legend.scrollHeight > this.legend.clientHeight ? 0 : -1;
    const ratio = window.devicePixelRatio || 1;
    for (const canvas of [this.canvas, this.top]) {
      canvas.width = Math.round(box.width * ratio);
      canvas.height = Math.round(box.height * ratio);
    }
    const area = this.extent();
    this.note.textContent = area.empty ? this.options.note || "no values" : "";
    this.area = null;
    if (area.empty) return;
    Object.assign(area, {l: 46, t: 6, r: box.width - 8, b: box.height - 18});
    const {log} = this.options;
    const bend = log ? Math.log10 : value => value;
    area.px = x => area.l + (x - area.left) / (area.right - area.left) * (area.r - area.l);
    area.py = y => area.b - (bend(y) - bend(area.low)) / (bend(area.high) - bend(area.low))
      * (area.b - area.t);
    this.area = area;
    const pen = this.canvas.getContext("2d");
    pen.scale(ratio, ratio);
    this.drawAxes(pen, area, log);
    pen.save();
    pen.beginPath();
    pen.rect(area.l, area.t, area.r - area.l, area.b - area.t);
    pen.clip();
    for (const item of this.series) this.drawBand(pen, area, item);
    for (const item of this.series) this.drawLine(pen, area, item);
    pen.restore();
  }

  drawAxes(pen, area, log) {
    const style = getComputedStyle(document.documentElement);
    const dim = style.getPropertyValue("--dim"), grid = style.getPropertyValue("--grid");
    pen.font = "11px system-ui, sans-serif";
    pen.lineWidth = 1;
    pen.fillStyle = dim;
    pen.strokeStyle = grid;
    const time = this.options.axis === "time";
    const columns = Math.max(2, Math.floor((area.r - area.l) / 75));
    const xs = (time ? timeTicks : ticks)(area.left, area.right, columns);
    pen.textAlign = "center";
    pen.textBaseline = "top";
    for (const x of xs) {
      const at = Math.round(area.px(x)) + 0.5;
      pen.beginPath(); pen.moveTo(at, area.t); pen.lineTo(at, area.b); pen.stroke();
      const text = time ? duration(x) : short(x, 4);
      const half = pen.measureText(text).width / 2;
      pen.fillText(text, Math.min(Math.max(at, half), area.r + 8 - half), area.b + 4);
    }
    pen.textAlign = "right";
    pen.textBaseline = "middle";
    const rows = Math.max(2, Math.floor((area.b - area.t) / 38));
    const ys = log ? ticks(Math.log10(area.low), Math.log10(area.high), rows).map(p => 10 ** p)
      : ticks(area.low, area.high, rows);
    for (const y of ys) {
      const at = Math.round(area.py(y)) + 0.5;
      pen.beginPath(); pen.moveTo(area.l, at); pen.lineTo(area.r, at); pen.stroke();
      pen.fillText(short(y), area.l - 5, at);
    }
  }

  drawBand(pen, area, {x, low, high, color, name}) {
    if (!low || !high) return;
    pen.globalAlpha = this.strong && this.strong !== name ? 0.04 : 0.16;
    pen.fillStyle = color;
    pen.beginPath();
    let begun = false;
    for (let i = 0; i < x.length; i++) {
      if (!isFinite(high[i])) continue;
      if (begun) pen.lineTo(area.px(x[i]), area.py(high[i]));
      else pen.moveTo(area.px(x[i]), area.py(high[i]));
      begun = true;
    }
    for (let i = x.length - 1; i >= 0; i--) {
      if (isFinite(low[i])) pen.lineTo(area.px(x[i]), area.py(low[i]));
    }
    pen.fill();
    pen.globalAlpha = 1;
  }

  drawLine(pen, area, {x, y, faint, color, name}) {
    const back = this.strong && this.strong !== name;
    pen.strokeStyle = color;
    pen.lineJoin = "round";
    if (faint) {
      pen.globalAlpha = back ? 0.05 : 0.22;
      pen.lineWidth = 1;
      stroke(pen, area, x, faint);
    }
    pen.globalAlpha = back ? 0.12 : 1;
    pen.lineWidth = this.strong === name ? 2.6 : 1.6;
    stroke(pen, area, x, y);
    pen.globalAlpha = 1;
  }

  // Pointer: read-out, and zoom by dragging.

  move(event) {
    const box = this.top.getBoundingClientRect();
    this.point(event.clientX - box.left, event.clientY - box.top, box);
  }

  /** Arrow keys move the read-out. */
  press(event) {
    const {area} = this;
    const change = {ArrowLeft: -1, ArrowRight: 1}[event.key];
    if (!area || !change) return;
    event.preventDefault();
    event.stopPropagation(); // It has a meaning of its own on the page of videos.
    const from = this.at ?? (change > 0 ? area.l : area.r);
    const at = Math.max(area.l, Math.min(area.r, from + change * (area.r - area.l) / 40));
    this.point(at, area.t, this.top.getBoundingClientRect());
    this.at = at;
    this.canvas.setAttribute("aria-label", `${this.describe()}. ${this.tip.innerText}`);
  }

  point(at, height, box) {
    if (!this.area) return;
    const pen = this.top.getContext("2d");
    pen.setTransform(1, 0, 0, 1, 0, 0);
    pen.clearRect(0, 0, this.top.width, this.top.height);
    const ratio = window.devicePixelRatio || 1;
    pen.scale(ratio, ratio);
    const {area} = this;
    const color = getComputedStyle(document.documentElement).getPropertyValue("--dim");
    if (this.from !== undefined) {
      pen.fillStyle = color;
      pen.globalAlpha = 0.2;
      pen.fillRect(Math.min(this.from, at), area.t, Math.abs(at - this.from), area.b - area.t);
      pen.globalAlpha = 1;
    }
    const x = area.left + (at - area.l) / (area.r - area.l) * (area.right - area.left);
    pen.strokeStyle = color;
    pen.beginPath(); pen.moveTo(at, area.t); pen.lineTo(at, area.b); pen.stroke();
    this.readOut(pen, x, at, height, box);
  }

  readOut(pen, x, at, height, box) {
    const {area} = this;
    const found = [];
    for (const item of this.series) {
      if (!item.x.length) continue;
      const i = nearest(item.x, x);
      if (!isFinite(item.y[i]) || Math.abs(area.px(item.x[i]) - at) > 60) continue;
      found.push({item, i, y: item.y[i]});
      pen.fillStyle = item.color;
      pen.beginPath();
      pen.arc(area.px(item.x[i]), area.py(item.y[i]), 3, 0, 7);
      pen.fill();
    }
    if (!found.length) { this.tip.hidden = true; return; }
    found.sort((a, b) => Math.abs(area.py(a.y) - height) - Math.abs(area.py(b.y) - height));
    const shown = found.slice(0, 10).sort((a, b) => b.y - a.y);
    const where = shown.length === 1 ? shown[0].item.x[shown[0].i] : x;
    const time = this.options.axis === "time";
    const head = time ? duration(where) : `step ${Math.round(where).toLocaleString("en")}`;
    const rows = shown.map(({item, i, y}) => {
      const key = create("i", {class: "key"});
      key.style.background = item.color;
      const spread = item.deviation ? ` ± ${short(item.deviation[i])}` : "";
      return create("tr", {}, create("td", {}, key), create("td", {}, item.name),
        create("td", {}, short(y, 4) + spread));
    });
    const more = found.length - shown.length;
    this.tip.replaceChildren(head, create("table", {}, ...rows), more ? `${more} more` : "");
    this.tip.hidden = false;
    const right = at > box.width / 2;
    this.tip.style.left = right ? "" : `${at + 14}px`;
    this.tip.style.right = right ? `${box.width - at + 14}px` : "";
    this.tip.style.top = `${Math.max(0, Math.min(height - 10, box.height - this.tip.offsetHeight))}px`;
  }

  leave() {
    if (this.from !== undefined) return;
    this.at = undefined;
    this.tip.hidden = true;
    const pen = this.top.getContext("2d");
    pen.setTransform(1, 0, 0, 1, 0, 0);
    pen.clearRect(0, 0, this.top.width, this.top.height);
  }

  grab(event) {
    if (event.button !== 0) return;
    this.from = event.clientX - this.top.getBoundingClientRect().left;
    this.top.setPointerCapture(event.pointerId);
  }

  release(event) {
    const to = event.clientX - this.top.getBoundingClientRect().left;
    const from = this.from;
    this.from = undefined;
    if (from === undefined || Math.abs(to - from) < 5 || !this.area) return;
    const {area} = this;
    const at = pixel => area.left
      + (Math.min(Math.max(pixel, area.l), area.r) - area.l) / (area.r - area.l) * (area.right - area.left);
    this.zoom([at(Math.min(from, to)), at(Math.max(from, to))]);
  }

  zoom(view) {
    this.view = view;
    this.draw();
    this.leave();
    this.onzoom(view);
  }
}

function stroke(pen, area, x, y) {
  pen.beginPath();
  let begun = false;
  for (let i = 0; i < x.length; i++) {
    if (!isFinite(y[i])) { begun = false; continue; }
    if (begun) pen.lineTo(area.px(x[i]), area.py(y[i]));
    else pen.moveTo(area.px(x[i]), area.py(y[i]));
    begun = true;
  }
  pen.stroke();
  if (x.length === 1 && isFinite(y[0])) {
    pen.fillStyle = pen.strokeStyle;
    pen.beginPath();
    pen.arc(area.px(x[0]), area.py(y[0]), 3, 0, 7);
    pen.fill();
  }
}
