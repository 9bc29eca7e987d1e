// The pages of settings and of health.
"use strict";

const MOST_COLUMNS = 12;
const settingsPage = {only: true, filter: "", answer: null, asked: ""};

async function showSettings() {
  const runs = chosenRuns().slice(0, MOST_COLUMNS);
  const asked = idsOf(runs);
  if (asked !== settingsPage.asked) {
    showLoading(document.getElementById("settings"));
    settingsPage.answer = await (await ask("/api/settings", {runs: asked})).json();
    settingsPage.asked = asked;
    buildSettings(runs);
  }
  fillSettings(runs);
}

function buildSettings(runs) {
  const only = create("input", {type: "checkbox", id: "settings-only",
    onchange: event => { settingsPage.only = event.target.checked; fillSettings(runs); }});
  only.checked = settingsPage.only;
  const filter = create("input", {type: "search", placeholder: "Filter keys", "aria-label": "Filter keys",
    oninput: event => { settingsPage.filter = event.target.value; fillSettings(runs); }});
  filter.value = settingsPage.filter;
  const hidden = chosenRuns().length - runs.length;
  document.getElementById("settings").replaceChildren(
    create("div", {class: "controls"}, filter, create("label", {}, only, "only what differs"),
      create("span", {class: "dim"}, hidden > 0 ? `first ${MOST_COLUMNS} of the chosen runs` : "")),
    frame("Settings", create("table", {class: "grid", id: "settings-table"})));
}

/** A row a key; marked where the runs differ, coloured where a run leaves the default. */
function fillSettings(runs) {
  const {defaults, runs: found} = settingsPage.answer;
  const keys = [...new Set([...Object.keys(defaults), ...runs.flatMap(r => Object.keys(found[r.id] || {}))])];
  const rows = [];
  for (const key of keys) {
    const values = runs.map(run => (found[run.id] || {})[key]);
    const differ = new Set(values.map(value => value ?? defaults[key])).size > 1;
    const changed = values.some(value => value !== undefined && value !== defaults[key]);
    if (settingsPage.only && key === "logdir") continue; // Differs always.
    if (settingsPage.only && !(runs.length > 1 ? differ : changed)) continue;
    if (!key.includes(settingsPage.filter)) continue;
    rows.push(create("tr", {class: differ ? "diff" : ""}, create("td", {}, key),
      create("td", {class: "dim"}, defaults[key] ?? "–"),
      ...values.map(value => create("td", {class: value === defaults[key] ? "dim" : "set"}, value ?? "–"))));
  }
  const head = create("tr", {}, ...["key", "default", ...runs.map(r => r.name)].map(t => create("th", {}, t)));
  const empty = create("tr", {}, create("td", {class: "dim", colspan: runs.length + 2}, "No differences."));
  document.getElementById("settings-table").replaceChildren(head, ...(rows.length ? rows : [empty]));
}

/** A table that can be scrolled, also by keyboard. */
function frame(label, table) {
  return create("div", {class: "frame", role: "region", tabindex: "0", "aria-label": label}, table);
}

async function showHealth() {
  const runs = chosenRuns();
  showLoading(document.getElementById("health"));
  const found = await (await ask("/api/health", {runs: idsOf(runs)})).json();
  const rates = [...new Set(Object.values(found).flatMap(h => Object.keys(h.rates)))].sort();
  const names = ["run", "step", "last write", ...rates, "restarts", "processes"];
  const rows = runs.filter(run => found[run.id]).map(run => healthRow(run, found[run.id], rates));
  const table = create("table", {class: "grid"}, create("tr", {}, ...names.map(n => create("th", {}, n))), ...rows);
  document.getElementById("health").replaceChildren(rows.length ? frame("Health", table)
    : create("p", {class: "empty"}, "No runs chosen."));
}

function healthRow(run, health, rates) {
  const {roles} = health;
  const alive = roles.some(role => role.alive);
  const restarts = roles.reduce((sum, role) => sum + role.restarts, 0);
  const cells = roles.map(role => create("span", {class: "role", title: `pid ${role.pid}`},
    create("i", {class: `dot ${role.alive ? "on" : alive ? "off" : ""}`, role: "img",
      "aria-label": role.alive ? "running" : "ended"}), role.name,
    role.restarts ? create("b", {}, `↻${role.restarts}`) : null));
  const note = roles.length ? (alive ? null : create("span", {class: "dim"}, "ended: "))
    : create("span", {class: "dim"}, "one process, or on another machine");
  const bottleneck = health.bottleneck ? create("div", {class: "dim"}, health.bottleneck) : null;
  return create("tr", {},
    create("td", {}, create("i", {class: `dot ${run.active ? "on" : ""}`, role: "img",
      "aria-label": run.active ? "active" : "not active"}), " ", run.name,
    run.error ? create("div", {class: "error"}, `⚠ ${run.error}`) : null),
    create("td", {class: "number"}, run.step.toLocaleString("en")),
    create("td", {class: "number"}, health.silent === null ? "–" : `${duration(health.silent)} ago`),
    ...rates.map(key => create("td", {class: "number"}, short(health.rates[key]))),
    create("td", {class: "number"}, roles.length ? String(restarts) : "–"),
    create("td", {}, note, ...cells, bottleneck));
}
