// A population over its competition landscape: to be dragged, with the mouse, by touch and by keyboard.

const VIRIDIS = ["#440154", "#482878", "#3e4989", "#31688e", "#26828e", "#1f9e89", "#35b779", "#6ece58", "#b5de2b", "#fde725"];
const MAGMA = [[0, 0, 4], [28, 16, 68], [79, 18, 123], [129, 37, 129], [181, 54, 122], [229, 80, 100], [251, 135, 97], [254, 194, 135], [252, 253, 191]];
const REACH = { mouse: 22, touch: 26 };  // pixels around an individual that count as touching it
const STEP = 0.02;  // of the half width of the map, for each press of an arrow key; five times as far with Shift
const PAUSE_MS = 400;  // after the last press, before the background is computed

function magma(share) {
  const at = Math.min(Math.max(share, 0), 1) * (MAGMA.length - 1), low = Math.min(Math.floor(at), MAGMA.length - 2);
  return MAGMA[low].map((value, c) => Math.round(value + (at - low) * (MAGMA[low + 1][c] - value)));
}

function ranks(values) {
  // 0 for the lowest, 1 for the highest
  const order = [...values.keys()].sort((a, b) => values[a] - values[b]), out = new Array(order.length);
  order.forEach((i, k) => { out[i] = k / Math.max(order.length - 1, 1); });
  return out;
}

// A canvas as fine as the screen; drawn on in pixels of the page.
function sharp(canvas) {
  const ratio = window.devicePixelRatio || 1, width = canvas.clientWidth, height = canvas.clientHeight;
  if (canvas.width !== Math.round(width * ratio)) canvas.width = Math.round(width * ratio);
  if (canvas.height !== Math.round(height * ratio)) canvas.height = Math.round(height * ratio);
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  return { context, width, height };
}

class Explorer {
  constructor(given) {
    this.given = given;
    this.background = makeBackground(given.networks);
    this.populations = {};
    const { floats } = makeRules();
    for (const [name, one] of Object.entries(given.populations)) {
      const share = Uint8Array.from(atob(one.share), (letter) => letter.charCodeAt(0));
      this.populations[name] = { ...one, fitness: floats(one.fitness), descriptor: floats(one.descriptor), share };
    }
    this.known = new Map();  // backgrounds of populations as they were evolved
    this.state = { fitness: [], first: [], second: [], home: [], scores: [], selected: null, held: null, dragging: false, heat: null, computing: null, end: 1 };
    this.map = document.getElementById("map");
    this.chart = document.getElementById("scores");
    for (const [id, names] of [["population", Object.keys(this.populations)], ["rule", Object.keys(this.background.rules)]]) {
      for (const name of names) this.choose(id).append(new Option(given.titles[name] || name, name));
    }
    const last = Object.values(this.populations)[0].generation.length - 1;
    this.choose("generation").max = last;
    this.choose("generation").value = last;
    this.listen();
    this.load();
  }

  choose(id) { return document.getElementById(id); }
  get rule() { return this.choose("rule").value; }
  title(rule) { return this.given.titles[rule] || rule; }

  // ---- what is shown ----

  load() {
    const { state } = this, name = this.choose("population").value, one = this.populations[name], slider = this.choose("generation");
    slider.max = one.generation.length - 1;
    const frame = Math.min(Number(slider.value), one.generation.length - 1);
    this.choose("generation-label").textContent = one.generation[frame].toLocaleString("en");
    Object.assign(state, { fitness: [], first: [], second: [], home: [], selected: null, held: null, dragging: false, end: one.end });
    for (let i = 0; i < one.num; i++) {
      const k = frame * one.num + i;
      if (!Number.isFinite(one.fitness[k])) continue;
      state.fitness.push(one.fitness[k]);
      state.first.push(one.descriptor[2 * k]);
      state.second.push(one.descriptor[2 * k + 1]);
      state.home.push([one.descriptor[2 * k], one.descriptor[2 * k + 1]]);
    }
    if (state.heat && state.heat.population !== name) state.heat = null;  // another square
    const size = one.resolution ** 2, share = one.share.subarray(frame * size, (frame + 1) * size);
    this.where = { population: name, frame };
    this.known.set(`${name}/${frame}/${name}`, Float32Array.from(share, (value) => value / 255));
    this.score();
    this.compute();
  }

  get moved() {
    const { home, first, second } = this.state;
    return home.some(([x, y], i) => x !== first[i] || y !== second[i]);
  }

  score() {
    const { state } = this;
    state.scores = this.background.rules[this.rule](state.fitness, state.first, state.second);
    this.draw();
  }

  // The background of what is shown now. The one before stays until it is done, and is as fine.
  compute() {
    const { state, rule } = this, { population, frame } = this.where, side = this.populations[population].resolution;
    clearTimeout(this.waiting);
    this.background.cancel();
    this.stale = false;
    const key = this.moved ? null : `${population}/${frame}/${rule}`;
    const show = (values) => {
      if (key) this.known.set(key, values);
      Object.assign(state, { heat: { n: side, values, rule, population }, computing: null });
      this.draw();
    };
    if (this.known.has(key)) { show(this.known.get(key)); return; }
    const now = { fitness: [...state.fitness], first: [...state.first], second: [...state.second] };
    state.computing = { rule, share: 0 };
    const progress = (share) => { state.computing.share = share; this.tell(); };
    this.background.compute(rule, now, side, state.end, progress, show);
    this.draw();
  }

  // Individuals moved: the background is of before, until they rest.
  move(i, x, y) {
    const { state } = this, inside = (value) => Math.min(Math.max(value, -state.end), state.end);
    [state.first[i], state.second[i]] = [inside(x), inside(y)];
    this.background.cancel();
    this.stale = true;
    state.computing = { rule: this.rule, share: 0 };
    this.score();
  }

  toX(value, width) { return (value / this.state.end + 1) / 2 * width; }
  toY(value, height) { return (1 - value / this.state.end) / 2 * height; }

  draw() {
    const { state } = this, { context, width, height } = sharp(this.map);
    context.fillStyle = "#eeeeee";
    context.fillRect(0, 0, width, height);
    if (state.heat) this.drawHeat(context, width, height);
    const place = this.places(), num = place.length, by_score = this.choose("colour").value === "score";
    const values = by_score ? place.map((k) => 1 - k / Math.max(num - 1, 1)) : ranks(state.fitness);
    for (const i of [...place.keys()].sort((a, b) => place[b] - place[a])) if (i !== state.selected) this.dot(context, i, values[i], width, height);
    if (state.selected !== null) this.dot(context, state.selected, values[state.selected], width, height);
    this.drawScores();
    this.axes();
    this.choose("shown").textContent = `Evolved under ${this.title(this.where.population)}, generation ` +
      `${this.choose("generation-label").textContent}; scored by ${this.title(this.rule)}.`;
    this.tell();
    this.choose("points-title").textContent = `Points: ${by_score ? "score" : "fitness"}, by rank`;
    this.choose("selected").textContent = state.selected === null ? "No individual is selected." : this.about(state.selected);
    this.map.dataset.selected = state.selected === null ? "" : String(state.selected);
    this.map.dataset.place = state.selected === null ? "" : String(place[state.selected] + 1);
  }

  drawHeat(context, width, height) {
    const { n, values } = this.state.heat, small = document.createElement("canvas");
    small.width = small.height = n;
    const on = small.getContext("2d"), image = on.createImageData(n, n);
    for (let row = 0; row < n; row++) {
      for (let column = 0; column < n; column++) {
        image.data.set([...magma(values[row * n + column]), 255], 4 * ((n - 1 - row) * n + column));
      }
    }
    on.putImageData(image, 0, 0);
    context.imageSmoothingEnabled = true;
    context.drawImage(small, 0.5, 0.5, n - 1, n - 1, 0, 0, width, height);  // the outer points are on the edges
  }

  dot(context, i, value, width, height) {
    const { state } = this, chosen = i === state.selected, radius = chosen ? 8 : 5;
    context.beginPath();
    context.arc(this.toX(state.first[i], width), this.toY(state.second[i], height), radius, 0, 2 * Math.PI);
    context.fillStyle = VIRIDIS[Math.round(value * (VIRIDIS.length - 1))];
    context.fill();
    for (const [line, colour] of chosen ? [[6, "#000000"], [3, "#ffffff"]] : [[1, "#ffffff"]]) {
      context.lineWidth = line;
      context.strokeStyle = colour;
      context.stroke();
    }
  }

  // Of each individual: 0 for the highest score.
  places() {
    const { scores } = this.state, place = new Array(scores.length);
    [...scores.keys()].sort((a, b) => scores[b] - scores[a]).forEach((i, k) => { place[i] = k; });
    return place;
  }

  about(i) {
    const { state } = this;
    return `Individual ${i + 1}: fitness ${people(state.fitness[i])}, score ${people(state.scores[i])}, place ${this.places()[i] + 1} of ${state.scores.length}`;
  }

  drawScores() {
    const { state } = this, { context, width, height } = sharp(this.chart), place = this.places();
    const finite = [...state.scores].filter(Number.isFinite), low = Math.min(...finite), high = Math.max(...finite);
    context.clearRect(0, 0, width, height);
    const one = width / place.length;
    place.forEach((k, i) => {
      const value = Math.min(Math.max(state.scores[i], low), high), tall = (value - low) / (high - low || 1) * (height - 14) + 4;
      if (i === state.selected) {
        context.fillStyle = "#ffd54f";
        context.fillRect(k * one - 2, 0, Math.max(one, 1) + 4, height);
      }
      context.fillStyle = this.given.colours[this.rule];
      context.fillRect(k * one, height - tall, Math.max(one - 0.6, 0.6), tall);
    });
    this.choose("score-high").textContent = people(high);
    this.choose("score-low").textContent = people(low);
  }

  axes() {
    const { end } = this.state;
    if (this.marked === end) return;
    this.marked = end;
    const rough = end / 2, power = 10 ** Math.floor(Math.log10(rough)), step = [5, 2, 1].find((one) => one * power <= rough) * power;
    for (const [id, side] of [["ticks-x", "left"], ["ticks-y", "bottom"]]) {
      this.choose(id).replaceChildren(...[-2, -1, 0, 1, 2].filter((k) => Math.abs(k * step) <= end).map((k) => {
        const mark = document.createElement("span");
        mark.textContent = people(k * step);
        mark.style[side] = `${50 * (k * step / end + 1)}%`;
        return mark;
      }));
    }
  }

  tell() {
    const { computing, heat, held, dragging } = this.state, status = this.choose("status");
    this.map.classList.toggle("held", held !== null || dragging);
    if (!computing) {
      status.textContent = heat ? `The background is that of ${this.title(heat.rule)}.` : "";
      return;
    }
    const which = heat ? `The background is the earlier one. The new one, of ${this.title(computing.rule)},` :
      `The background, of ${this.title(computing.rule)},`;
    const waits = this.stale && (held !== null || dragging);
    status.textContent = waits ? `${which} follows when the individual rests.` :
      `${which} is being computed: ${Math.round(100 * computing.share)} %`;
  }

  say(text) { this.choose("said").textContent = text; }

  // ---- what is done to it ----

  select(i) { this.state.selected = i; this.draw(); }

  drop() {
    Object.assign(this.state, { held: null, dragging: false });
    if (this.stale) this.compute(); else this.tell();
  }

  distance(event, i) {
    const { first, second } = this.state, box = this.map.getBoundingClientRect();
    return Math.hypot(event.clientX - box.left - this.toX(first[i], box.width), event.clientY - box.top - this.toY(second[i], box.height));
  }

  nearest(event, reach) {
    const distances = this.state.first.map((_, i) => this.distance(event, i)), least = Math.min(...distances);
    return least < reach ? distances.indexOf(least) : null;
  }

  listen() {
    this.map.addEventListener("pointerdown", (event) => this.press(event));
    // A finger on the selected individual drags it; anywhere else it scrolls the page.
    this.map.addEventListener("touchstart", (event) => { if (this.state.dragging) event.preventDefault(); }, { passive: false });
    this.map.addEventListener("pointermove", (event) => {
      if (!this.state.dragging) return;
      const box = this.map.getBoundingClientRect(), { selected, end } = this.state;
      this.move(selected, (2 * (event.clientX - box.left) / box.width - 1) * end, (1 - 2 * (event.clientY - box.top) / box.height) * end);
    });
    this.map.addEventListener("pointerup", (event) => this.release(event));
    this.map.addEventListener("pointercancel", () => { this.tapped = null; if (this.state.dragging) this.drop(); });
    this.map.addEventListener("keydown", (event) => this.key(event));
    this.map.addEventListener("blur", () => { if (this.state.held !== null) this.drop(); });
    this.choose("generation").addEventListener("input", () => this.load());
    this.choose("population").addEventListener("change", () => {
      const name = this.choose("population").value;
      if (this.background.rules[name]) this.choose("rule").value = name;
      this.load();
    });
    this.choose("rule").addEventListener("change", () => { this.score(); this.compute(); });
    this.choose("colour").addEventListener("change", () => this.draw());
    this.choose("reset").addEventListener("click", () => this.load());
    new ResizeObserver(() => this.draw()).observe(this.map);
  }

  press(event) {
    const { state } = this;
    if (event.button) return;
    this.tapped = null;
    if (event.pointerType === "touch" && !(state.selected !== null && this.distance(event, state.selected) < REACH.touch)) {
      this.tapped = [event.clientX, event.clientY];
      return;
    }
    if (event.pointerType !== "touch") this.select(this.nearest(event, REACH.mouse));
    if (state.selected === null) return;
    Object.assign(state, { dragging: true, held: null });
    this.map.setPointerCapture(event.pointerId);
    this.tell();
  }

  release(event) {
    if (this.tapped && Math.hypot(event.clientX - this.tapped[0], event.clientY - this.tapped[1]) < 10) {
      this.select(this.nearest(event, REACH.touch));
    }
    this.tapped = null;
    if (!this.state.dragging) return;
    this.drop();
    this.say(this.about(this.state.selected));
  }

  key(event) {
    const { state } = this, far = event.shiftKey ? 5 : 1, step = STEP * state.end * far;
    const arrows = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] }, arrow = arrows[event.key];
    if (event.ctrlKey || event.altKey || event.metaKey) return;
    if (arrow && state.held !== null) {
      const i = state.selected;
      this.move(i, state.first[i] + arrow[0] * step, state.second[i] + arrow[1] * step);
      clearTimeout(this.waiting);
      this.waiting = setTimeout(() => this.compute(), PAUSE_MS);
      this.say(this.about(i));
    } else if (arrow || event.key === "Home" || event.key === "End") {
      this.step(event.key);
    } else if ((event.key === "Enter" || event.key === " ") && state.selected !== null) {
      const i = state.selected, picked = state.held === null;
      if (picked) state.held = [state.first[i], state.second[i]]; else this.drop();
      this.draw();
      this.say(`${picked ? "Picked up" : "Dropped"}: ${this.about(i)}`);
    } else if (event.key === "Escape" && state.held !== null) {
      this.move(state.selected, ...state.held);
      this.drop();
      this.say(`Put back: ${this.about(state.selected)}`);
    } else return;
    event.preventDefault();
  }

  // Arrow keys go through the individuals from the highest score to the lowest.
  step(key) {
    const { state } = this, place = this.places(), last = place.length - 1;
    const now = state.selected === null ? -1 : place[state.selected];
    const next = { ArrowRight: now + 1, ArrowDown: now + 1, ArrowLeft: now - 1, ArrowUp: now - 1, Home: 0, End: last }[key];
    this.select(place.indexOf(Math.min(Math.max(next, 0), last)));
    this.say(this.about(state.selected));
  }
}
