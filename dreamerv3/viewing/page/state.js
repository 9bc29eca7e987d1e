// What is selected, kept in the address so that it can be bookmarked; and requests.
"use strict";

const PREFERRED = ["episode/score", "eval/episode/score", "episode/length", "train/loss/total",
  "fps/policy", "fps/train", "train/loss/image", "train/ret", "train/rew", "replay/items"];

const state = {
  tab: "curves", axis: "step", mode: "seeds", smooth: 0.5, split: null, log: false,
  keys: null, hidden: new Set(), filter: "", zoom: null, media: null,
};
let meanings = {}; // Of metrics, a line each.
let known = {version: -1, runs: [], keys: [], busy: true, progress: 0};

function loadState() {
  const saved = new URLSearchParams(location.hash.slice(1));
  for (const name of ["tab", "axis", "mode", "filter", "media"]) {
    if (saved.has(name)) state[name] = saved.get(name);
  }
  if (saved.has("smooth")) state.smooth = Math.min(0.99, Number(saved.get("smooth")) || 0);
  if (saved.has("split")) state.split = saved.get("split") === "1";
  state.log = saved.get("log") === "1";
  if (saved.has("keys")) state.keys = saved.get("keys").split(",").filter(Boolean);
  if (saved.has("hidden")) state.hidden = new Set(saved.get("hidden").split(","));
}

function saveState() {
  const saved = new URLSearchParams();
  for (const name of ["tab", "axis", "mode", "filter", "media"]) {
    if (state[name]) saved.set(name, state[name]);
  }
  saved.set("smooth", state.smooth);
  if (state.split !== null) saved.set("split", state.split ? "1" : "0");
  if (state.log) saved.set("log", "1");
  if (state.keys) saved.set("keys", state.keys.join(","));
  if (state.hidden.size) saved.set("hidden", [...state.hidden].join(","));
  history.replaceState(null, "", `#${saved}`);
}

/** Whether every word of the filter is in the run's name, task, method or seed. */
function matches(run) {
  const text = `${run.name} ${run.task} ${run.method} seed${run.seed}`.toLowerCase();
  return state.filter.toLowerCase().split(/\s+/).every(word => text.includes(word));
}

function chosenRuns() {
  return known.runs.filter(run => matches(run) && !state.hidden.has(run.id));
}

function chosenKeys() {
  if (state.keys) return state.keys;
  const found = PREFERRED.filter(key => known.keys.includes(key)).slice(0, 6);
  return found.length ? found : known.keys.slice(0, 6);
}

function splitting() {
  if (state.split !== null) return state.split;
  return new Set(known.runs.map(run => run.task)).size > 1;
}

/** Runs that are averaged together. */
function groupOf(run) {
  const method = run.method || "no method";
  const several = new Set(known.runs.map(other => other.task)).size > 1;
  return several && !splitting() ? `${run.task} ${method}`.trim() : method;
}

/** By run as long as colours can be told apart, else by group. */
function colorsOf(runs) {
  const groups = [...new Set(known.runs.map(groupOf))];
  const own = state.mode === "seeds" && known.runs.length <= PALETTE.length;
  return new Map(runs.map(run => [
    run.id, colorOf(own ? known.runs.indexOf(run) : groups.indexOf(groupOf(run))),
  ]));
}

async function ask(path, query = {}) {
  const answer = await fetch(`${path}?${new URLSearchParams(query)}`);
  if (!answer.ok) throw new Error(`${path}: ${answer.status} ${await answer.text()}`);
  return answer;
}

const element = id => document.getElementById(id);

/** Say that an answer is awaited, where there is nothing else to see yet. */
function showLoading(root) {
  if (!root.children.length) root.append(create("p", {class: "empty"}, "Loading …"));
}

function idsOf(runs) {
  return runs.map(run => run.id).join(",");
}
