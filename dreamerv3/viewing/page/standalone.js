// Draws the charts of a page that is one file.
"use strict";

const dark = matchMedia("(prefers-color-scheme: dark)");
document.documentElement.dataset.theme = dark.matches ? "dark" : "light";
const charts = JSON.parse(document.getElementById("data").textContent);
for (const root of document.querySelectorAll("[data-chart]")) {
  const {title, series, axis} = charts[root.dataset.chart];
  const toNumbers = values => values && values.map(value => value === null ? NaN : value);
  new Chart(root).set(series.map((item, index) => ({
    ...item, color: colorOf(item.color ?? index), x: toNumbers(item.x), y: toNumbers(item.y),
    low: toNumbers(item.low), high: toNumbers(item.high), deviation: toNumbers(item.deviation),
    faint: toNumbers(item.faint),
  })), {axis, title, legend: series.length > 1});
}
