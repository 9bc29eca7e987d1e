// The page of videos: one key, the runs beside each other, a slider over the steps.
"use strict";

const mediaPage = {found: {}, key: null, index: null, playing: true, nodes: new Map(), built: false};
const mediaMeanings = {};

async function showMedia() {
  const runs = chosenRuns();
  showLoading(document.getElementById("media"));
  mediaPage.found = await (await ask("/api/media", {runs: idsOf(runs)})).json();
  const keys = [...new Set(Object.values(mediaPage.found).flatMap(Object.keys))].sort();
  const root = document.getElementById("media");
  if (!keys.length) {
    mediaPage.built = false;
    root.replaceChildren(create("p", {class: "empty"}, "No videos, images or texts in these runs yet."));
    return;
  }
  if (!keys.includes(state.media)) {
    state.media = ["report/openloop", "openloop", ""].map(part => keys.find(key => key.includes(part))).find(Boolean);
    mediaPage.index = null;
  }
  if (!mediaPage.built) buildMedia(root);
  const select = document.getElementById("media-key");
  const before = [...select.options].map(option => option.value);
  if (before.join() !== keys.join()) { // Not while it is open without need.
    select.replaceChildren(...keys.map(key => create("option", {value: key}, key)));
  }
  select.value = state.media;
  explainMedia(state.media).catch(showError);
  stepMedia(0);
}

function buildMedia(root) {
  const change = event => { state.media = event.target.value; mediaPage.index = null; refreshPage(); };
  root.replaceChildren(
    create("div", {class: "controls"},
      create("select", {id: "media-key", onchange: change, "aria-label": "What to show"}),
      create("button", {id: "media-back", title: "Earlier step", "aria-label": "Earlier step", onclick: () => stepMedia(-1)}, "◀"),
      create("input", {id: "media-step", type: "range", min: 0, value: 0, "aria-label": "Step",
        oninput: event => { mediaPage.index = Number(event.target.value); stepMedia(0); }}),
      create("button", {id: "media-next", title: "Later step", "aria-label": "Later step", onclick: () => stepMedia(1)}, "▶"),
      create("output", {id: "media-label"}),
      create("button", {id: "media-play", onclick: () => playMedia(!mediaPage.playing)}, "Pause"),
      create("button", {title: "One frame back", onclick: () => stepFrame(-1)}, "frame −"),
      create("button", {id: "frame-next", title: "One frame on", onclick: () => stepFrame(1)}, "frame +")),
    create("div", {class: "media", id: "media-cards"}), create("p", {class: "about", id: "media-about"}));
  mediaPage.nodes.clear();
  mediaPage.built = true;
}

/** What is seen, in a sentence below it. */
async function explainMedia(key) {
  if (!(key in mediaMeanings)) Object.assign(mediaMeanings, await (await ask("/api/meanings", {key})).json());
  if (key === state.media) document.getElementById("media-about").textContent = mediaMeanings[key];
}

function mediaSteps() {
  const every = Object.values(mediaPage.found).flatMap(keys => (keys[state.media] || []).map(m => m[0]));
  return [...new Set(every)].sort((a, b) => a - b);
}

/** Move along the steps; without a place of its own the slider follows the newest. */
function stepMedia(change) {
  const steps = mediaSteps();
  const last = steps.length - 1;
  const current = mediaPage.index === null ? last : Math.min(mediaPage.index, last);
  const index = Math.max(0, Math.min(last, current + change));
  mediaPage.index = index === last ? null : index;
  const slider = document.getElementById("media-step");
  slider.max = last;
  slider.value = index;
  document.getElementById("media-label").textContent =
    `step ${steps[index].toLocaleString("en")} (${index + 1} of ${steps.length})`;
  const cards = chosenRuns().map(run => mediaCard(run, steps[index])).filter(Boolean);
  const root = document.getElementById("media-cards");
  const same = cards.length === root.children.length && cards.every((c, i) => root.children[i] === c);
  if (!same) root.replaceChildren(...cards);
}

/** The newest of a run's media up to a step. */
function mediaCard(run, step) {
  const all = (mediaPage.found[run.id] || {})[state.media] || [];
  const medium = all.filter(m => m[0] <= step).pop();
  if (!medium) return null;
  const [own, file, kind] = medium;
  const address = `/media/${run.id}/${state.media.split("/").map(encodeURIComponent).join("/")}/${file}`;
  const before = mediaPage.nodes.get(run.id);
  if (before && before.dataset.address === address) return before;
  const swatch = create("i", {class: "key"});
  swatch.style.background = colorsOf([run]).get(run.id);
  const node = create("article", {class: "card", "data-address": address, "data-step": own},
    create("h3", {}, swatch, create("span", {class: "name", title: run.path}, run.name),
      create("small", {}, `step ${own.toLocaleString("en")}`)),
    mediaElement(address, kind, `${state.media} of ${run.name}, step ${own}`));
  mediaPage.nodes.set(run.id, node);
  return node;
}

function mediaElement(address, kind, label) {
  if (kind === "video") {
    const video = create("video", {src: address, loop: "", playsinline: "", "aria-label": label});
    video.muted = true;
    video.autoplay = mediaPage.playing;
    return video;
  }
  if (kind === "image") return create("img", {src: address, alt: label});
  const text = create("pre", {tabindex: "0", role: "region", "aria-label": label});
  ask(address).then(answer => answer.text()).then(content => { text.textContent = content; }, showError);
  return text;
}

function playMedia(playing) {
  mediaPage.playing = playing;
  document.getElementById("media-play").textContent = playing ? "Pause" : "Play";
  for (const video of document.querySelectorAll("#media video")) {
    if (playing) video.play().catch(showError); else video.pause();
  }
}

function stepFrame(change) {
  playMedia(false);
  const frame = 1 / 15;
  for (const video of document.querySelectorAll("#media video")) {
    const length = video.duration || frame;
    video.currentTime = (video.currentTime + change * frame + length) % length;
  }
}
