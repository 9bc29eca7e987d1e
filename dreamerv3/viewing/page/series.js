// Numbers of curves: what the server sends, smoothing, mean and deviation over seeds.
"use strict";

/** The server's answer: limits, and by run id {x, mean, low, high}. */
function decode(buffer) {
  const size = new DataView(buffer).getUint32(0, true);
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, size)));
  let offset = 4 + size;
  const take = count => {
    const array = new Float64Array(buffer, offset, count);
    offset += 8 * count;
    return array;
  };
  const runs = new Map();
  for (const [id, count] of header.runs) {
    runs.set(id, {x: take(count), mean: take(count), low: take(count), high: take(count)});
  }
  return {low: header.low, high: header.high, runs};
}

/** Moving average that starts at the first value instead of zero. */
function smooth(values, amount) {
  if (!amount) return values;
  const result = new Float64Array(values.length);
  let total = 0, weight = 0;
  for (let i = 0; i < values.length; i++) {
    if (!isFinite(values[i])) { result[i] = NaN; continue; }
    total = total * amount + values[i] * (1 - amount);
    weight = weight * amount + (1 - amount);
    result[i] = total / weight;
  }
  return result;
}

/** Mean of y around each of `amount` points between the limits; NaN outside the curve. */
function onGrid(x, y, low, high, amount) {
  const sum = new Float64Array(amount), count = new Float64Array(amount);
  const scale = (amount - 1) / (high - low || 1);
  for (let i = 0; i < x.length; i++) {
    const place = Math.round((x[i] - low) * scale);
    if (place < 0 || place >= amount || !isFinite(y[i])) continue;
    sum[place] += y[i];
    count[place] += 1;
  }
  const result = new Float64Array(amount).fill(NaN);
  let last = -1;
  for (let i = 0; i < amount; i++) {
    if (!count[i]) continue;
    result[i] = sum[i] / count[i];
    for (let j = last + 1; last >= 0 && j < i; j++) {
      result[j] = result[last] + (result[i] - result[last]) * (j - last) / (i - last);
    }
    last = i;
  }
  return result;
}

/** Mean and standard deviation over curves on a common grid. */
function band(curves, low, high, amount) {
  const rows = curves.map(curve => onGrid(curve.x, curve.y, low, high, amount));
  const x = [], y = [], deviation = [];
  for (let i = 0; i < amount; i++) {
    const values = rows.map(row => row[i]).filter(isFinite);
    if (!values.length) continue;
    const mean = values.reduce((a, b) => a + b, 0) / values.length;
    const spread = values.reduce((a, b) => a + (b - mean) ** 2, 0) / values.length;
    x.push(low + (high - low) * i / (amount - 1));
    y.push(mean);
    deviation.push(Math.sqrt(spread));
  }
  return {
    x, y, deviation,
    low: y.map((mean, i) => mean - deviation[i]),
    high: y.map((mean, i) => mean + deviation[i]),
  };
}
