"use strict";
// Tables that sort, and a competition landscape that is computed here. Reads the data block of the page, loads nothing.

const data = JSON.parse(document.getElementById("data").textContent);

// ---- tables ----

const VERDICTS = { holds: "holds", "does not hold": "fails", inconclusive: "open" };

function fill(table, columns, rows) {
  const head = table.createTHead().insertRow();
  columns.forEach((column, i) => {
    const cell = document.createElement("th");
    cell.textContent = column.title;
    cell.tabIndex = 0;
    cell.addEventListener("click", () => sort(table, i));
    cell.addEventListener("keydown", (event) => { if (event.key === "Enter") sort(table, i); });
    head.append(cell);
  });
  const body = table.createTBody();
  for (const row of rows) {
    const line = body.insertRow();
    for (const column of columns) {
      const cell = line.insertCell();
      const value = row[column.name];
      cell.textContent = value === null || value === undefined ? "" : String(value);
      if (column.number) cell.className = "number";
      if (column.name === "verdict") cell.className = VERDICTS[value];
    }
  }
}

function sort(table, index) {
  const heads = table.tHead.rows[0].cells;
  const ascending = heads[index].getAttribute("aria-sort") !== "ascending";
  for (const head of heads) head.removeAttribute("aria-sort");
  heads[index].setAttribute("aria-sort", ascending ? "ascending" : "descending");
  const sign = ascending ? 1 : -1;
  const body = table.tBodies[0];
  const keyed = [...body.rows].map((row) => [row.cells[index].textContent, row]);
  keyed.sort(([a], [b]) => {
    if (a === "" || b === "") return (a === "") - (b === "");  // what is missing comes last, either way
    const numeric = Number(a) - Number(b);
    return sign * (Number.isNaN(numeric) ? a.localeCompare(b) : numeric);
  });
  body.append(...keyed.map(([, row]) => row));
}

fill(document.getElementById("verdicts"), [
  { name: "figure", title: "figure" }, { name: "claim", title: "claim" }, { name: "paper", title: "paper" },
  { name: "ours", title: "ours" }, { name: "p", title: "p", number: true },
  { name: "paired_p", title: "paired p", number: true },
  { name: "effect", title: "effect", number: true }, { name: "verdict", title: "verdict" },
], data.verdicts);

const results = document.getElementById("results");
fill(results, [
  { name: "part", title: "part" }, { name: "function", title: "function" }, { name: "dim", title: "dimension", number: true },
  { name: "rule", title: "rule" }, { name: "fitness", title: "fitness", number: true },
  { name: "novelty", title: "novelty", number: true },
  { name: "novelty_rarefied", title: "novelty at MAP-Elites's slots", number: true },
  { name: "qd", title: "QD score", number: true }, { name: "num_filled", title: "filled", number: true },
], data.table);

const filter = document.getElementById("filter");
function narrow() {
  const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
  let shown = 0;
  for (const row of results.tBodies[0].rows) {
    const cells = [...row.cells].map((cell) => cell.textContent.toLowerCase());
    const keep = words.every((word) => cells.some((text) => text.includes(word)));
    row.hidden = !keep;
    shown += keep;
  }
  document.getElementById("count").textContent = `${shown} of ${results.tBodies[0].rows.length} rows`;
}
filter.addEventListener("input", narrow);
narrow();

// ---- rules ----

function decode(text) {
  const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  return bytes;
}
function floats(text) { return new Float32Array(decode(text).buffer); }

const NEAR = 1e-4, FAR = 16, BLUNTEST = 1e-3, SHARPEST = 1e4, EPSILON = 1e-6;

function linear(x, num, fan_in, weight, bias, offset, fan_out) {
  // x (num, fan_in) times weight[offset ...] (fan_in, fan_out), plus bias
  const out = new Float32Array(num * fan_out);
  for (let i = 0; i < num; i++) {
    for (let o = 0; o < fan_out; o++) {
      let sum = bias ? bias.data[bias.at + o] : 0;
      for (let k = 0; k < fan_in; k++) sum += x[i * fan_in + k] * weight[offset + k * fan_out + o];
      out[i * fan_out + o] = sum;
    }
  }
  return out;
}

function normed(x, num, width, scale, bias, at) {
  const out = new Float32Array(num * width);
  for (let i = 0; i < num; i++) {
    let mean = 0, variance = 0;
    for (let c = 0; c < width; c++) mean += x[i * width + c] / width;
    for (let c = 0; c < width; c++) variance += (x[i * width + c] - mean) ** 2 / width;
    const inverse = 1 / Math.sqrt(variance + EPSILON);
    for (let c = 0; c < width; c++) out[i * width + c] = (x[i * width + c] - mean) * inverse * scale[at + c] + bias[at + c];
  }
  return out;
}

function standardised(columns) {
  // Mean 0 each, and one common scale; constant columns are 0.
  const num = columns[0].length;
  const centred = columns.map((column) => {
    const mean = column.reduce((a, b) => a + b, 0) / num;
    const constant = column.every((value) => value === column[0]);
    return column.map((value) => (constant ? 0 : value - mean));
  });
  let total = 0;
  for (const column of centred) for (const value of column) total += value * value / num;
  const deviation = Math.sqrt(total) || 1;
  return centred.map((column) => column.map((value) => value / deviation));
}

function logarithm(squared) { return 1 + Math.log(Math.min(Math.max(squared, NEAR), FAR)) / 4; }
function gelu(x) { return 0.5 * x * (1 + Math.tanh(Math.sqrt(2 / Math.PI) * (x + 0.044715 * x ** 3))); }

class Network {
  constructor(given) {
    this.heads = given.num_heads;
    this.weights = {};
    for (const [name, array] of Object.entries(given.weights)) {
      this.weights[name] = { data: floats(array.data), shape: array.shape };
    }
    this.layers = this.weights["layers.sharpness"].shape[0];
    this.width = this.weights["embed.weight"].shape[1];
    this.hidden = this.weights["layers.up.weight"].shape[2];
  }

  linear(name, layer, x, num, fan_in, fan_out) {
    const weight = this.weights[`${name}.weight`].data;
    const bias = this.weights[`${name}.bias`];
    return linear(x, num, fan_in, weight, bias && { data: bias.data, at: layer * fan_out }, layer * fan_in * fan_out, fan_out);
  }

  norm(name, layer, x, num) {
    const { width } = this;
    return normed(x, num, width, this.weights[`${name}.scale`].data, this.weights[`${name}.bias`].data, layer * width);
  }

  // The network of feature recipe 2: see lqd/rules/learned/recipe2.py.
  scores(fitness, first, second) {
    const num = fitness.length, { heads, width, hidden } = this;
    const [relative] = standardised([[...fitness]]);
    const place = standardised([[...first], [...second]]);
    const squared = new Float32Array(num * num), fitter = new Uint8Array(num * num);
    const least = [new Float32Array(num).fill(Infinity), new Float32Array(num).fill(Infinity)];
    const rank = new Float32Array(num);
    for (let i = 0; i < num; i++) {
      let below = 0, not_above = 0;
      for (let j = 0; j < num; j++) {
        below += fitness[j] < fitness[i];
        not_above += fitness[j] <= fitness[i];
        if (i === j) continue;
        const d = (place[0][i] - place[0][j]) ** 2 + (place[1][i] - place[1][j]) ** 2 + NEAR;
        squared[i * num + j] = d;
        const better = relative[j] > relative[i] || (relative[j] === relative[i] && j < i);
        fitter[i * num + j] = better;
        least[0][i] = Math.min(least[0][i], d);
        if (better) least[1][i] = Math.min(least[1][i], d);
      }
      rank[i] = (below + not_above) / num - 1;
    }
    for (const array of least) for (let i = 0; i < num; i++) if (array[i] === Infinity) array[i] = FAR;
    const tokens = new Float32Array(num * 4);
    for (let i = 0; i < num; i++) {
      tokens.set([relative[i], rank[i], logarithm(least[0][i]), logarithm(least[1][i])], i * 4);
    }
    let x = linear(tokens, num, 4, this.weights["embed.weight"].data, null, 0, width);
    const size = width / heads;
    for (let layer = 0; layer < this.layers; layer++) {
      const value = this.linear("layers.value", layer, this.norm("layers.norm_attention", layer, x, num), num, width, width);
      const mixed = new Float32Array(num * width), density = new Float32Array(num * 2 * heads);
      for (let head = 0; head < heads; head++) {
        const kind = head % 4, only_fitter = kind >= 2, nearest = least[only_fitter ? 1 : 0];
        const sharp = Math.exp(this.weights["layers.sharpness"].data[layer * heads + head]);
        for (let i = 0; i < num; i++) {
          const a = Math.min(Math.max(sharp / (kind % 2 ? nearest[i] : 1), BLUNTEST), SHARPEST);
          let total = 0;
          const sums = new Float64Array(size);
          for (let j = 0; j < num; j++) {
            if (i === j || (only_fitter && !fitter[i * num + j])) continue;
            const weight = Math.exp(-a * (squared[i * num + j] - nearest[i]));
            total += weight;
            for (let c = 0; c < size; c++) sums[c] += weight * value[j * width + head * size + c];
          }
          const alone = total === 0;
          if (alone) total = 1;
          for (let c = 0; c < size; c++) mixed[i * width + head * size + c] = sums[c] / total;
          const number = Math.log(total);
          density[i * 2 * heads + head] = number;
          density[i * 2 * heads + heads + head] = logarithm(alone ? FAR : nearest[i] - number / a);
        }
      }
      const dense = this.linear("layers.density", layer, density, num, 2 * heads, width);
      const out = this.linear("layers.out", layer, mixed, num, width, width);
      for (let k = 0; k < x.length; k++) x[k] += dense[k] + out[k];
      const up = this.linear("layers.up", layer, this.norm("layers.norm_mlp", layer, x, num), num, width, hidden);
      const down = this.linear("layers.down", layer, up.map(gelu), num, hidden, width);
      for (let k = 0; k < x.length; k++) x[k] += down[k];
    }
    return this.linear("score", 0, this.norm("norm", 0, x, num), num, width, 1);
  }
}

function meanNearest(fitness, first, second, dominated) {
  const num = fitness.length, out = new Float32Array(num);
  for (let i = 0; i < num; i++) {
    const distances = [];
    for (let j = 0; j < num; j++) {
      if (i !== j && (!dominated || fitness[j] > fitness[i])) distances.push(Math.hypot(first[i] - first[j], second[i] - second[j]));
    }
    distances.sort((a, b) => a - b);
    const nearest = distances.slice(0, 3);
    out[i] = nearest.length ? nearest.reduce((a, b) => a + b, 0) / nearest.length : dominated ? Infinity : 0;
  }
  return out;
}

// ---- the explorer ----

const VIRIDIS = ["#440154", "#482878", "#3e4989", "#31688e", "#26828e", "#1f9e89", "#35b779", "#6ece58", "#b5de2b", "#fde725"];
const MAGMA = [[0, 0, 4], [28, 16, 68], [79, 18, 123], [129, 37, 129], [181, 54, 122], [229, 80, 100], [251, 135, 97], [254, 194, 135], [252, 253, 191]];

function magma(share) {
  const at = Math.min(Math.max(share, 0), 1) * (MAGMA.length - 1), low = Math.min(Math.floor(at), MAGMA.length - 2);
  return MAGMA[low].map((value, c) => Math.round(value + (at - low) * (MAGMA[low + 1][c] - value)));
}

function explore(given) {
  const map = document.getElementById("map"), picture = map.getContext("2d");
  const chart = document.getElementById("scores"), bars = chart.getContext("2d");
  const choose = (id) => document.getElementById(id);
  const networks = Object.fromEntries(Object.entries(given.networks).map(([name, one]) => [name, new Network(one)]));
  const rules = {
    ...Object.fromEntries(Object.entries(networks).map(([name, one]) => [name, one.scores.bind(one)])),
    dns: (f, a, b) => meanNearest(f, a, b, true),
    ns: (f, a, b) => meanNearest(f, a, b, false),
    ga: (f) => Float32Array.from(f),
  };
  const populations = {};
  for (const [name, one] of Object.entries(given.populations)) {
    populations[name] = { ...one, fitness: floats(one.fitness), descriptor: floats(one.descriptor), share: decode(one.share) };
  }
  const state = { fitness: [], first: [], second: [], scores: [], selected: null, moved: false, heat: null, job: 0 };

  function options(select, names) {
    for (const name of names) {
      const option = document.createElement("option");
      option.value = name;
      option.textContent = given.titles[name] || name;
      select.append(option);
    }
  }
  options(choose("population"), Object.keys(populations));
  options(choose("rule"), Object.keys(rules));

  function load() {
    const one = populations[choose("population").value], slider = choose("generation");
    slider.max = one.generation.length - 1;
    const frame = Math.min(Number(slider.value), one.generation.length - 1);
    choose("generation-label").textContent = one.generation[frame];
    Object.assign(state, { fitness: [], first: [], second: [], selected: null, moved: false, end: one.end });
    for (let i = 0; i < one.num; i++) {
      const k = frame * one.num + i;
      if (!Number.isFinite(one.fitness[k])) continue;
      state.fitness.push(one.fitness[k]);
      state.first.push(one.descriptor[2 * k]);
      state.second.push(one.descriptor[2 * k + 1]);
    }
    if (choose("rule").value === choose("population").value) {
      const size = one.resolution ** 2;
      state.heat = { n: one.resolution, values: Float32Array.from(one.share.subarray(frame * size, (frame + 1) * size), (v) => v / 255) };
      state.job++;
      choose("status").textContent = "";
      score();
    } else {
      state.heat = null;
      score();
      recompute();
    }
  }

  function score() {
    state.scores = rules[choose("rule").value](state.fitness, state.first, state.second);
    draw();
  }

  function median() {
    const sorted = [...state.fitness].sort((a, b) => a - b), half = sorted.length / 2;
    return sorted.length % 2 ? sorted[Math.floor(half)] : (sorted[half - 1] + sorted[half]) / 2;
  }

  // Share of the population that a newcomer of median fitness outranks, at n x n points, a few at a time.
  function recompute() {
    const job = ++state.job, n = 18, values = new Float32Array(n * n).fill(NaN), rule = rules[choose("rule").value];
    const newcomer = median(), places = [...values.keys()].sort((a, b) => ((a * 97) % (n * n)) - ((b * 97) % (n * n)));
    let done = 0;
    function more() {
      if (job !== state.job) return;
      const until = performance.now() + 30;
      while (done < places.length && performance.now() < until) {
        const k = places[done++], x = axis(k % n, n), y = axis(Math.floor(k / n), n);
        const found = rule([...state.fitness, newcomer], [...state.first, x], [...state.second, y]);
        const last = found[found.length - 1];
        let beaten = 0;
        for (let i = 0; i < found.length - 1; i++) beaten += found[i] < last;
        values[k] = beaten / (found.length - 1);
      }
      state.heat = { n, values };
      draw();
      choose("status").textContent = done < places.length ? `computing the background: ${Math.round(100 * done / places.length)} %` : "";
      if (done < places.length) setTimeout(more, 0);
    }
    more();
  }

  function axis(i, n) { return state.end * (2 * i / (n - 1) - 1); }
  const toX = (value) => (value / state.end + 1) / 2 * map.width;
  const toY = (value) => (1 - value / state.end) / 2 * map.height;

  function places() {
    // 0 for the highest score
    const order = [...state.scores.keys()].sort((a, b) => state.scores[b] - state.scores[a]);
    const place = new Array(order.length);
    order.forEach((i, k) => { place[i] = k; });
    return { order, place };
  }

  function draw() {
    picture.fillStyle = "#eeeeee";
    picture.fillRect(0, 0, map.width, map.height);
    if (state.heat) {
      const { n, values } = state.heat, small = document.createElement("canvas");
      small.width = small.height = n;
      const context = small.getContext("2d"), image = context.createImageData(n, n);
      for (let row = 0; row < n; row++) {
        for (let column = 0; column < n; column++) {
          const value = values[row * n + column], at = 4 * ((n - 1 - row) * n + column);
          image.data.set(Number.isNaN(value) ? [238, 238, 238, 255] : [...magma(value), 255], at);
        }
      }
      context.putImageData(image, 0, 0);
      picture.imageSmoothingEnabled = true;
      picture.drawImage(small, 0, 0, map.width, map.height);
    }
    const { order, place } = places(), num = order.length;
    const values = choose("colour").value === "score" ? place.map((k) => 1 - k / Math.max(num - 1, 1)) : ranks(state.fitness);
    for (const i of [...order].reverse()) {
      picture.beginPath();
      picture.arc(toX(state.first[i]), toY(state.second[i]), i === state.selected ? 8 : 5, 0, 2 * Math.PI);
      picture.fillStyle = VIRIDIS[Math.round(values[i] * (VIRIDIS.length - 1))];
      picture.fill();
      picture.lineWidth = i === state.selected ? 3 : 1;
      picture.strokeStyle = "#ffffff";
      picture.stroke();
    }
    drawScores(order);
    const i = state.selected;
    choose("selected").textContent = i === null ? "Drag a point." :
      `individual ${i + 1}: fitness ${state.fitness[i].toPrecision(4)}, score ${Number(state.scores[i]).toPrecision(4)}, place ${place[i] + 1} of ${num}`;
    map.dataset.selected = i === null ? "" : String(i);
    map.dataset.place = i === null ? "" : String(place[i] + 1);
  }

  function ranks(values) {
    const order = [...values.keys()].sort((a, b) => values[a] - values[b]), out = new Array(order.length);
    order.forEach((i, k) => { out[i] = k / Math.max(order.length - 1, 1); });
    return out;
  }

  function drawScores(order) {
    const finite = [...state.scores].filter(Number.isFinite), low = Math.min(...finite), high = Math.max(...finite);
    bars.clearRect(0, 0, chart.width, chart.height);
    order.forEach((i, k) => {
      const value = Math.min(Math.max(state.scores[i], low), high), width = chart.width / order.length;
      const height = (value - low) / (high - low || 1) * (chart.height - 8) + 4;
      bars.fillStyle = i === state.selected ? "#D55E00" : "#0072B2";
      bars.fillRect(k * width, chart.height - height, Math.max(width - 0.6, 0.6), height);
    });
  }

  function pointer(event) {
    const box = map.getBoundingClientRect();
    const x = (event.clientX - box.left) / box.width, y = (event.clientY - box.top) / box.height;
    return [(2 * x - 1) * state.end, (1 - 2 * y) * state.end];
  }
  map.addEventListener("pointerdown", (event) => {
    const [x, y] = pointer(event);
    let nearest = null, least = Infinity;
    for (let i = 0; i < state.first.length; i++) {
      const distance = Math.hypot(state.first[i] - x, state.second[i] - y);
      if (distance < least) { least = distance; nearest = i; }
    }
    if (least > 0.08 * state.end) { state.selected = null; draw(); return; }
    state.selected = nearest;
    state.dragging = true;
    map.setPointerCapture(event.pointerId);
    draw();
  });
  map.addEventListener("pointermove", (event) => {
    if (!state.dragging) return;
    [state.first[state.selected], state.second[state.selected]] = pointer(event);
    state.moved = true;
    score();
  });
  map.addEventListener("pointerup", () => {
    if (!state.dragging) return;
    state.dragging = false;
    if (state.moved) recompute();
  });
  choose("generation").addEventListener("input", load);
  choose("population").addEventListener("change", () => {
    if (rules[choose("population").value]) choose("rule").value = choose("population").value;
    load();
  });
  choose("rule").addEventListener("change", load);
  choose("colour").addEventListener("change", draw);
  choose("reset").addEventListener("click", load);
  choose("generation").value = Object.values(populations)[0].generation.length - 1;
  choose("generation").max = choose("generation").value;
  choose("generation").value = choose("generation").max;
  load();
  return state;
}

// For the tests of this page, and for whoever opens the console.
window.lqd = { data, Network, state: data.landscape ? explore(data.landscape) : null };
if (!data.landscape) for (const one of document.querySelectorAll("#landscape, a[href='#landscape']")) one.hidden = true;
