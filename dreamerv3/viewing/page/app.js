// The frame of the page: tabs, tools, and asking for news.
"use strict";

const EVERY = 2000; // Milliseconds between questions for news.
const PAGES = {curves: showCurves, media: showMedia, settings: showSettings, health: showHealth};

function showError(error) {
  element("status").textContent = `✕ ${error.message}`;
}

/** Draw the page that is open, after something was chosen or became known. */
function refreshPage() {
  saveState();
  for (const button of element("tabs").children) {
    const selected = button.dataset.tab === state.tab;
    button.setAttribute("aria-selected", String(selected));
    button.tabIndex = selected ? 0 : -1;
    if (selected) element("title").textContent = button.textContent;
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
  if (known.version < 0) showLoading(element(state.tab));
  else Promise.resolve(PAGES[state.tab]()).catch(showError);
}

async function learnMeanings() {
  if (known.keys.every(key => key in meanings)) return;
  meanings = await (await ask("/api/meanings")).json();
  showKeys();
  for (const card of curveCards.values()) card.explain();
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
    await learnMeanings();
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
  element("menu").onclick = event => {
    const open = element("side").classList.toggle("open");
    event.currentTarget.setAttribute("aria-expanded", String(open));
  };
  rove(element("tabs"), false);
  rove(element("runs"), true);
  rove(element("keys"), true);
  document.addEventListener("keydown", event => {
    if (state.tab !== "media" || event.target.matches("input, select, [role=tab]")) return;
    if (event.key === "ArrowLeft") stepMedia(-1);
    if (event.key === "ArrowRight") stepMedia(1);
  });
}

loadState();
if (!(state.tab in PAGES)) state.tab = "curves";
setTheme(matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
wire();
refreshPage();
follow();
