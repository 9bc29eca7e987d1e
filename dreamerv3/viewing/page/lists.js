// The lists of runs and metrics: rows are buttons, and arrow keys move along them.
"use strict";

const GROUPS = ["episode", "eval", "epstats", "train", "report", "fps", "replay"]; // Listed first.

/** Fill a list anew; the row that had the focus keeps it. */
function fillList(list, rows) {
  const focused = list.contains(document.activeElement) ? document.activeElement.dataset.row : null;
  list.replaceChildren(...rows);
  const buttons = [...list.querySelectorAll("button")];
  const current = buttons.find(button => button.dataset.row === list.dataset.current) || buttons[0];
  for (const button of buttons) button.tabIndex = button === current ? 0 : -1;
  if (focused !== null) (buttons.find(button => button.dataset.row === focused) || current)?.focus();
}

/** One stop of the Tab key for a whole list or row of tabs; arrows, Home and End move inside. */
function rove(root, vertical) {
  const [back, on] = vertical ? ["ArrowUp", "ArrowDown"] : ["ArrowLeft", "ArrowRight"];
  root.addEventListener("keydown", event => {
    const buttons = [...root.querySelectorAll("button")];
    const at = buttons.indexOf(document.activeElement);
    const place = {[back]: at - 1, [on]: at + 1, Home: 0, End: buttons.length - 1}[event.key];
    if (at < 0 || place === undefined) return;
    event.preventDefault();
    const next = buttons[Math.max(0, Math.min(buttons.length - 1, place))];
    for (const button of buttons) button.tabIndex = button === next ? 0 : -1;
    root.dataset.current = next.dataset.row;
    next.focus();
  });
}

function showRuns() {
  const colors = colorsOf(known.runs);
  const rows = known.runs.filter(matches).map(run => runRow(run, colors.get(run.id)));
  fillList(element("runs"), rows.length ? rows : [create("li", {class: "none"}, emptyNote())]);
}

function emptyNote() {
  if (known.version < 0) return "loading …";
  return known.runs.length ? "No run matches the filter." : "No runs here yet.";
}

function runRow(run, color) {
  const swatch = create("i", {class: "swatch"});
  swatch.style.background = swatch.style.borderColor = color;
  const shown = !state.hidden.has(run.id);
  const about = `${run.path}\n${run.task} ${run.method} seed ${run.seed}\nstep ${run.step}, ${run.points} values`;
  const value = (label, text) => create("span", {class: "value"}, create("span", {class: "unseen"}, label), text);
  const button = create("button", {class: "row", "aria-pressed": String(shown), title: about, "data-row": run.id,
    onclick: event => clickRun(run, event)},
  swatch, create("span", {class: "name end"}, create("bdi", {}, run.name)),
  run.active ? create("i", {class: "dot on", role: "img", "aria-label": "active", title: "active"}) : null,
  value(" step ", short(run.step)),
  run.score === null ? null : value(" score ", `⌀ ${short(run.score)}`),
  run.error ? create("span", {class: "error"}, `⚠ ${run.error}`) : null);
  return create("li", {class: shown ? "" : "out", "data-run": run.id}, button);
}

/** Show or hide a run; with Shift or Ctrl only this one. */
function clickRun(run, event) {
  if (event.shiftKey || event.ctrlKey || event.metaKey) {
    state.hidden = new Set(known.runs.filter(other => other !== run).map(other => other.id));
  } else if (!state.hidden.delete(run.id)) {
    state.hidden.add(run.id);
  }
  element("runs").dataset.current = run.id;
  refreshPage();
}

function showKeys() {
  const words = element("key-filter").value.toLowerCase().split(/\s+/);
  const chosen = chosenKeys();
  const found = known.keys.filter(key => words.every(word => key.toLowerCase().includes(word)));
  const place = key => (GROUPS.indexOf(key.split("/")[0]) + GROUPS.length + 1) % (GROUPS.length + 1);
  const rows = [];
  let group = null;
  for (const key of found.sort((a, b) => place(a) - place(b))) {
    const [head, ...rest] = key.split("/");
    if (rest.length && head !== group) rows.push(create("li", {class: "head"}, head));
    group = rest.length ? head : group;
    rows.push(keyRow(key, rest.length ? rest.join("/") : key, chosen.includes(key)));
  }
  fillList(element("keys"), rows);
}

function keyRow(key, name, on) {
  const head = key.slice(0, key.length - name.length);
  const button = create("button", {class: "row", "aria-pressed": String(on), "data-row": key,
    title: `${key}\n${meanings[key] || ""}`.trim(), onclick: () => toggleKey(key)},
  create("span", {class: "name"}, create("span", {class: "unseen"}, head), name));
  return create("li", {class: on ? "on" : "", "data-key": key}, button);
}
