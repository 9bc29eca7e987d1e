// The page of curves: a card a metric, or a metric and task.
"use strict";

const curveCards = new Map();
const wideCards = new Set();
const hiddenNote = create("p", {class: "about note", hidden: ""});
const visible = new IntersectionObserver(entries => {
  for (const entry of entries) {
    entry.target.card.seen = entry.isIntersecting;
    if (entry.isIntersecting) entry.target.card.update();
  }
}, {rootMargin: "200px"});

class CurveCard {
  constructor(key, task) {
    this.key = key;
    this.task = task;
    this.seen = false;
    this.asked = "";
    this.answer = null;
    const act = (label, text, onclick) => create("button", {title: label, "aria-label": `${label}: ${key}`, onclick}, text);
    const close = act("Remove", "✕", () => toggleKey(key));
    this.wide = act("Larger", "⤢", () => this.widen());
    this.about = create("p", {class: "about"});
    const name = create("span", {class: "name", title: key}, key);
    this.node = create("article", {class: "card", "data-key": key},
      create("h3", {}, name, create("small", {}, task || ""), this.wide, close), this.about);
    this.node.card = this;
    this.chart = new Chart(this.node, zoom => zoomAll(zoom));
    this.chart.set([], {note: "loading …"});
    this.node.setAttribute("aria-busy", "true");
    this.explain();
    this.node.classList.toggle("wide", wideCards.has(this.id));
    visible.observe(this.node);
  }

  explain() {
    this.about.textContent = this.about.title = meanings[this.key] || "";
  }

  get id() { return `${this.key} ${this.task || ""}`; }

  widen() {
    this.node.classList.toggle("wide");
    if (this.node.classList.contains("wide")) wideCards.add(this.id);
    else wideCards.delete(this.id);
  }

  runs() {
    return chosenRuns().filter(run => this.task === null || run.task === this.task);
  }

  /** Ask for what is missing, if the card can be seen; draw what is there. */
  async update() {
    if (!this.seen && !this.node.hidden) return; // A hidden one is never seen.
    const runs = this.runs();
    const query = {key: this.key, x: state.axis, runs: idsOf(runs)};
    query.amount = runs.length > 16 ? 300 : 600;
    if (state.zoom) [query.low, query.high] = state.zoom;
    const asked = JSON.stringify([query, known.version]);
    if (asked !== this.asked) {
      this.asked = asked;
      try {
        const answer = decode(await (await ask("/api/curves", query)).arrayBuffer());
        if (this.asked !== asked) return;
        this.answer = answer;
      } catch (error) {
        this.asked = "";
        showError(error);
        return;
      }
    }
    this.draw();
  }

  draw() {
    if (!this.answer) return;
    const runs = this.runs().filter(run => (this.answer.runs.get(run.id) || {x: []}).x.length);
    const colors = colorsOf(runs);
    const curves = runs.map(run => {
      const {x, mean, low, high} = this.answer.runs.get(run.id);
      const y = smooth(mean, state.smooth);
      return {run, name: run.name, color: colors.get(run.id), x, y,
        faint: state.smooth && runs.length <= 12 ? mean : null, least: low, most: high};
    });
    this.node.setAttribute("aria-busy", "false");
    this.node.hidden = !known.busy && !curves.some(curve => curve.y.some(isFinite));
    noteHidden();
    this.chart.view = state.zoom;
    this.chart.set(state.mode === "mean" ? this.groups(curves) : curves, {
      axis: state.axis, log: state.log, title: this.key,
      note: known.busy ? "reading …" : state.log ? "no positive values" : "no values",
    });
    this.node.dataset.points = curves.reduce((sum, curve) => sum + curve.x.length, 0);
  }

  groups(curves) {
    const groups = new Map();
    for (const curve of curves) {
      const name = groupOf(curve.run);
      groups.set(name, [...(groups.get(name) || []), curve]);
    }
    return [...groups].map(([name, members]) => {
      const alone = members.length === 1;
      const {x, y, low, high, deviation} = band(members, this.answer.low, this.answer.high, 200);
      return {
        name: `${name} (${members.length} ${alone ? "seed" : "seeds"})`, color: members[0].color,
        x, y, ...(alone ? {} : {low, high, deviation}),
      };
    });
  }
}

/** Name the metrics without a chart, as these runs have no values of them. */
function noteHidden() {
  const hidden = [...curveCards.values()].filter(card => card.node.hidden);
  const names = [...new Set(hidden.map(card => card.key))].filter(
    key => [...curveCards.values()].every(card => card.key !== key || card.node.hidden));
  const why = state.axis === "time" ? "No values, or no times, of these runs" : "No values of these runs";
  hiddenNote.textContent = names.length ? `${why}: ${names.join(", ")}` : "";
  hiddenNote.hidden = !names.length;
}

function zoomAll(zoom) {
  state.zoom = zoom;
  for (const card of curveCards.values()) {
    card.chart.view = zoom;
    card.chart.draw();
    card.update();
  }
  document.getElementById("unzoom").hidden = !zoom;
}

function toggleKey(key) {
  const keys = chosenKeys();
  state.keys = keys.includes(key) ? keys.filter(other => other !== key) : [...keys, key];
  refreshPage();
}

function showCurves() {
  const root = document.getElementById("curves");
  const tasks = splitting() ? [...new Set(chosenRuns().map(run => run.task))].sort() : [null];
  const wanted = [];
  for (const key of chosenKeys()) {
    for (const task of tasks) {
      const id = `${key} ${task || ""}`;
      if (!curveCards.has(id)) curveCards.set(id, new CurveCard(key, task));
      wanted.push(curveCards.get(id));
    }
  }
  for (const [id, card] of curveCards) {
    if (!wanted.includes(card)) {
      visible.unobserve(card.node);
      card.node.remove();
      curveCards.delete(id);
    }
  }
  const nodes = [...wanted.map(card => card.node), hiddenNote];
  const same = nodes.length === root.children.length && nodes.every((node, i) => root.children[i] === node);
  if (!same) root.replaceChildren(...nodes);
  if (!wanted.length) {
    const text = known.runs.length ? "Choose a metric on the left." : "No runs here yet.";
    root.replaceChildren(create("p", {class: "empty"}, text));
  }
  noteHidden();
  for (const card of wanted) card.update();
}
