// Shows the newest frame, and sends what the keys and buttons ask for.
"use strict";

const byId = (id) => document.getElementById(id);
const KEYS = {" ": "pause", ArrowRight: "step", "-": "slower", "+": "faster", "=": "faster"};
const RETRY = 1000; // Milliseconds until a server that went away is asked again.

function showState(state) {
  byId("pause").firstChild.textContent = state.paused ? "Play " : "Pause ";
  document.body.dataset.paused = state.paused;
}

function show(frame) {
  showState(frame);
  document.title = byId("title").textContent = frame.title;
  byId("status").classList.toggle("error", "error" in frame);
  if ("error" in frame) {
    byId("status").textContent = frame.error;
    return;
  }
  if (!("image" in frame)) return; // It is paused.
  byId("image").src = "data:image/png;base64," + frame.image;
  document.body.dataset.number = frame.number;
  byId("status").textContent = `Episode ${frame.episode}, step ${frame.step}, ` +
    `reward ${frame.reward.toFixed(2)}, score ${frame.score.toFixed(2)}, ` +
    `${frame.fps.toLocaleString("en")} steps per second`;
  const scores = frame.scores.map((score) => score.toFixed(2)).join(", ");
  byId("scores").textContent = scores ? `Scores of the last episodes: ${scores}` : "";
}

async function watch() {
  for (let number = 0; ; ) {
    try {
      const answer = await fetch(`api/frame?after=${number}`);
      const frame = await answer.json();
      show(frame);
      number = frame.number ?? number;
      if ("error" in frame) return;
    } catch {
      byId("status").textContent = "The command has ended.";
      await new Promise((resolve) => setTimeout(resolve, RETRY));
    }
  }
}

async function control(order) {
  const answer = await fetch(`api/control?order=${order}`);
  showState(await answer.json());
}

for (const order of ["pause", "step", "slower", "faster"]) {
  byId(order).addEventListener("click", () => control(order));
}
document.addEventListener("keydown", (event) => {
  const onButton = event.target instanceof HTMLButtonElement && event.key === " ";
  if (!(event.key in KEYS) || event.ctrlKey || event.metaKey || onButton) return;
  event.preventDefault();
  control(KEYS[event.key]);
});
watch();
