// The frame of the page: tabs, run list, metric list, and asking for news.
"use strict";

const EVERY = 2000; // Milliseconds between questions for news.
const PAGES = {curves: showCurves, media: showMedia, settings: showSettings, health: showHealth};
const GROUPS = ["episode", "eval", "epstats", "train", "report", "fps", "replay"]; // Listed first.
const element = id => document.getElementById(id);

function showError(error) {
  element("status").textContent = `✕ ${error.message}`;
}

/** Draw the page that is open, after something was chosen or became known. */
function refreshPage() {
  saveState();
  for (const button of element("tabs").children) {
    button.setAttribute("aria-selected", String(button.dataset.tab === state.tab));
  }
  for (const name of Object.keys(PAGES)) element(name).hidden = name !== state.tab;
  for (const node of document.querySelectorAll("[data-for]")) node.hidden = node.dataset.for !== state.tab;
  for (const name of ["axis", "mode"]) {
    for (const button of element(name).children) {
      button.setAttribute("aria-pressed", String(button.dataset.value === state[name]));
    }
  }
  element("smooth-value").textContent = state.smooth.toFixed(2);
  element("split").checked = splitting();
  showRuns();
  showKeys();
  Promise.resolve(PAGES[state.tab]()).catch(showError);
}

function showRuns() {
  const colors = colorsOf(known.runs);
  element("runs").replaceChildren(...known.runs.filter(matches).map(run => {
    const swatch = create("i", {class: "swatch"});
    swatch.style.background = swatch.style.borderColor = colors.get(run.id);
    const out = state.hidden.has(run.id);
    const about = `${run.path}\n${run.task} ${run.method} seed ${run.seed}\nstep ${run.step}, ${run.points} values`
      + (run.bad ? `\n${run.bad} lines cannot be read` : "");
    return create("li", {class: out ? "out" : "", title: about, "data-run": run.id,
      onclick: event => clickRun(run, event)},
    swatch, create("span", {class: "name end"}, create("bdi", {}, run.name)),
    run.active ? create("i", {class: "dot on", title: "writing"}) : null,
    create("span", {class: "value"}, short(run.step)),
    create("span", {class: "value"}, run.score === null ? "" : `⌀ ${short(run.score)}`));
  }));
}

/** Show or hide a run; with Shift or Ctrl only this one. */
function clickRun(run, event) {
  if (event.shiftKey || event.ctrlKey || event.metaKey) {
    state.hidden = new Set(known.runs.filter(other => other !== run).map(other => other.id));
  } else if (!state.hidden.delete(run.id)) {
    state.hidden.add(run.id);
  }
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
    rows.push(create("li", {class: chosen.includes(key) ? "on" : "", title: key, "data-key": key,
      onclick: () => toggleKey(key)}, create("span", {class: "name"}, rest.length ? rest.join("/") : key)));
  }
  element("keys").replaceChildren(...rows);
}

/** Ask what is new, forever; while the page is hidden only once it is seen again. */
async function follow() {
  try {
    const answer = await (await ask("/api/state")).json();
    const news = answer.version !== known.version || answer.busy !== known.busy;
    known = answer;
    const active = known.runs.filter(run => run.active).length;
    element("status").textContent = known.busy ? `reading ${Math.round(known.progress * 100)} %`
      : `${known.runs.length} ${known.runs.length === 1 ? "run" : "runs"}${active ? `, ${active} active` : ""}`;
    if (news || state.tab === "health") refreshPage();
    document.documentElement.dataset.version = known.version;
  } catch (error) {
    element("status").textContent = "✕ the server does not answer";
  }
  setTimeout(() => {
    if (document.hidden) document.addEventListener("visibilitychange", follow, {once: true});
    else follow();
  }, known.busy ? EVERY / 4 : EVERY);
}

function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  for (const card of curveCards.values()) card.chart.draw();
}

function wire() {
  for (const button of element("tabs").children) {
    button.setAttribute("role", "tab");
    button.onclick = () => { state.tab = button.dataset.tab; refreshPage(); };
  }
  for (const name of ["axis", "mode"]) {
    for (const button of element(name).children) {
      button.onclick = () => {
        if (name === "axis" && state.axis !== button.dataset.value) zoomAll(null);
        state[name] = button.dataset.value;
        refreshPage();
      };
    }
  }
  element("smooth").value = state.smooth;
  element("smooth").oninput = event => { state.smooth = Number(event.target.value); refreshPage(); };
  element("split").onchange = event => { state.split = event.target.checked; refreshPage(); };
  element("log").checked = state.log;
  element("log").onchange = event => { state.log = event.target.checked; refreshPage(); };
  element("unzoom").onclick = () => zoomAll(null);
  element("run-filter").value = state.filter;
  element("run-filter").oninput = event => { state.filter = event.target.value; refreshPage(); };
  element("key-filter").oninput = showKeys;
  element("keys-none").onclick = () => { state.keys = []; refreshPage(); };
  element("all").onclick = () => { known.runs.filter(matches).forEach(run => state.hidden.delete(run.id)); refreshPage(); };
  element("none").onclick = () => { known.runs.filter(matches).forEach(run => state.hidden.add(run.id)); refreshPage(); };
  element("theme").onclick = () => setTheme(document.documentElement.dataset.theme === "dark" ? "light" : "dark");
  document.addEventListener("keydown", event => {
    if (state.tab !== "media" || event.target.matches("input, select")) return;
    if (event.key === "ArrowLeft") stepMedia(-1);
    if (event.key === "ArrowRight") stepMedia(1);
  });
}

loadState();
if (!(state.tab in PAGES)) state.tab = "curves";
setTheme(matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
wire();
follow();
