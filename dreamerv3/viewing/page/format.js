// Colours, numbers, durations and ticks for people; and making elements.
"use strict";

const PALETTE = ["#3b78e7", "#e8710a", "#12a37f", "#c4449d", "#8b5cf6", "#c99700",
  "#0fa3b1", "#dd4b4b", "#7a8b2a", "#a05a2c", "#5a6fb0", "#6b7280"];

/** A colour for the n-th of many things. */
function colorOf(index) {
  if (index < PALETTE.length) return PALETTE[index];
  return `hsl(${Math.round(index * 137.5) % 360} 58% 52%)`;
}

/** Round numbers at which an axis gets its lines. */
function ticks(low, high, amount) {
  const rough = (high - low) / Math.max(1, amount);
  if (!(rough > 0) || !isFinite(rough)) return [low];
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map(f => f * power).find(s => s >= rough * 0.999);
  const result = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; i++) {
    result.push(i * step);
  }
  return result;
}

/** A number for people: 1234567 as 1.23M. */
function short(value, digits = 3) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  const size = Math.abs(value);
  if (size === 0) return "0";
  for (const [limit, unit] of [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e4, "k"]]) {
    if (size >= limit) {
      const scale = unit === "k" ? 1e3 : limit;
      return `${trim((value / scale).toPrecision(digits))}${unit}`;
    }
  }
  if (size < 1e-3) return value.toExponential(Math.max(0, digits - 2));
  return trim(value.toPrecision(Math.max(digits, size >= 1000 ? 4 : digits)));
}

function trim(text) {
  return text.includes(".") && !text.includes("e") ? text.replace(/\.?0+$/, "") : text;
}

/** Seconds for people. */
function duration(seconds) {
  const size = Math.abs(seconds);
  if (size < 120) return `${trim(seconds.toFixed(size < 10 ? 1 : 0))} s`;
  if (size < 7200) return `${trim((seconds / 60).toFixed(1))} min`;
  if (size < 48 * 3600) return `${trim((seconds / 3600).toFixed(1))} h`;
  return `${trim((seconds / 86400).toFixed(1))} d`;
}

/** Units for ticks of seconds, so that they fall on round minutes or hours. */
function timeTicks(low, high, amount) {
  const span = high - low;
  const unit = span > 3 * 86400 ? 86400 : span > 2 * 3600 ? 3600 : span > 120 ? 60 : 1;
  return ticks(low / unit, high / unit, amount).map(value => value * unit);
}

/** Index of the value nearest to x in an ascending array. */
function nearest(array, x) {
  let low = 0, high = array.length - 1;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (array[middle] < x) low = middle; else high = middle;
  }
  return Math.abs(array[low] - x) <= Math.abs(array[high] - x) ? low : high;
}

function create(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "class") node.className = value;
    else if (name.startsWith("on")) node[name] = value;
    else if (value !== undefined && value !== false) node.setAttribute(name, value);
  }
  node.append(...children.filter(child => child !== null && child !== undefined));
  return node;
}
