// The rules that the page can compute. One function that needs nothing from outside, as workers get its text.

function makeRules() {
  const NEAR = 1e-4, FAR = 16, BLUNTEST = 1e-3, SHARPEST = 1e4, EPSILON = 1e-6;

  function floats(text) {
    return new Float32Array(Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0)).buffer);
  }

  // exp(-x) from a table: the background takes a thousand million of them. Errors are below 1e-6; beyond 24 it is 0.
  const PER_UNIT = 512, LAST = 24;
  const TABLE = Float64Array.from({ length: LAST * PER_UNIT + 2 }, (_, k) => Math.exp(-k / PER_UNIT));
  function decay(x) {
    if (x >= LAST) return 0;
    const at = x * PER_UNIT, low = at | 0;
    return TABLE[low] + (at - low) * (TABLE[low + 1] - TABLE[low]);
  }

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
  function gelu(x) { return x / (1 + Math.exp(-2 * Math.sqrt(2 / Math.PI) * (x + 0.044715 * x * x * x))); }

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

    // The network of feature recipe 2: see lqd/rules/learned/recipe2.py. Inside, the fittest comes first.
    scores(fitness, first, second) {
      const num = fitness.length, { width, hidden, heads } = this;
      const order = [...fitness.keys()].sort((a, b) => fitness[b] - fitness[a] || a - b);
      const sorted = [fitness, first, second].map((values) => order.map((i) => values[i]));
      const { squared, least, tokens } = this.features(...sorted);
      let x = linear(tokens, num, 4, this.weights["embed.weight"].data, null, 0, width);
      for (let layer = 0; layer < this.layers; layer++) {
        const value = this.linear("layers.value", layer, this.norm("layers.norm_attention", layer, x, num), num, width, width);
        const { mixed, density } = this.attention(layer, num, value, squared, least);
        const dense = this.linear("layers.density", layer, density, num, 2 * heads, width);
        const out = this.linear("layers.out", layer, mixed, num, width, width);
        for (let k = 0; k < x.length; k++) x[k] += dense[k] + out[k];
        const up = this.linear("layers.up", layer, this.norm("layers.norm_mlp", layer, x, num), num, width, hidden);
        for (let k = 0; k < up.length; k++) up[k] = gelu(up[k]);
        const down = this.linear("layers.down", layer, up, num, hidden, width);
        for (let k = 0; k < x.length; k++) x[k] += down[k];
      }
      const found = this.linear("score", 0, this.norm("norm", 0, x, num), num, width, 1);
      const scores = new Float32Array(num);
      order.forEach((i, k) => { scores[i] = found[k]; });
      return scores;
    }

    features(fitness, first, second) {
      const num = fitness.length, [relative] = standardised([fitness]), place = standardised([first, second]);
      const squared = new Float32Array(num * num), tokens = new Float32Array(num * 4);
      const least = [new Float32Array(num).fill(Infinity), new Float32Array(num).fill(Infinity)];  // of all, of fitter ones
      for (let i = 0; i < num; i++) {
        for (let j = 0; j < i; j++) {
          const d = Math.fround((place[0][i] - place[0][j]) ** 2 + (place[1][i] - place[1][j]) ** 2 + NEAR);
          squared[i * num + j] = squared[j * num + i] = d;
          if (d < least[0][i]) least[0][i] = d;
          if (d < least[0][j]) least[0][j] = d;
          if (d < least[1][i]) least[1][i] = d;
        }
      }
      for (const array of least) for (let i = 0; i < num; i++) if (array[i] === Infinity) array[i] = FAR;
      for (let i = 0; i < num; i++) {
        let above = i, not_below = i + 1;
        while (above > 0 && fitness[above - 1] === fitness[i]) above--;
        while (not_below < num && fitness[not_below] === fitness[i]) not_below++;
        const rank = (2 * num - above - not_below) / num - 1;
        tokens.set([relative[i], rank, logarithm(least[0][i]), logarithm(least[1][i])], i * 4);
      }
      return { squared, least, tokens };
    }

    attention(layer, num, value, squared, least) {
      const { heads, width } = this, size = width / heads, sums = new Float64Array(size);
      const mixed = new Float32Array(num * width), density = new Float32Array(num * 2 * heads);
      for (let head = 0; head < heads; head++) {
        const only_fitter = head % 4 >= 2, nearest = least[only_fitter ? 1 : 0];
        const sharp = Math.exp(this.weights["layers.sharpness"].data[layer * heads + head]);
        for (let i = 0; i < num; i++) {
          const a = Math.min(Math.max(sharp / (head % 2 ? nearest[i] : 1), BLUNTEST), SHARPEST);
          const end = only_fitter ? i : num, away = a * nearest[i];
          let total = 0;
          sums.fill(0);
          for (let j = 0; j < end; j++) {
            if (i === j) continue;
            const weight = decay(a * squared[i * num + j] - away);
            if (weight === 0) continue;
            total += weight;
            for (let c = 0, at = j * width + head * size; c < size; c++) sums[c] += weight * value[at + c];
          }
          const alone = total === 0;
          if (alone) total = 1;
          for (let c = 0; c < size; c++) mixed[i * width + head * size + c] = sums[c] / total;
          const number = Math.log(total);
          density[i * 2 * heads + head] = number;
          density[i * 2 * heads + heads + head] = logarithm(alone ? FAR : nearest[i] - number / a);
        }
      }
      return { mixed, density };
    }
  }

  function meanNearest(fitness, first, second, dominated) {
    const num = fitness.length, out = new Float32Array(num), K = 3;
    for (let i = 0; i < num; i++) {
      const nearest = [];
      for (let j = 0; j < num; j++) {
        if (i === j || (dominated && fitness[j] <= fitness[i])) continue;
        const distance = Math.hypot(first[i] - first[j], second[i] - second[j]);
        if (nearest.length === K && distance >= nearest[K - 1]) continue;
        nearest.push(distance);
        nearest.sort((a, b) => a - b);
        nearest.length = Math.min(nearest.length, K);
      }
      out[i] = nearest.length ? nearest.reduce((a, b) => a + b, 0) / nearest.length : dominated ? Infinity : 0;
    }
    return out;
  }

  function all(networks) {
    const learned = Object.entries(networks).map(([name, given]) => [name, new Network(given)]);
    return {
      ...Object.fromEntries(learned.map(([name, one]) => [name, one.scores.bind(one)])),
      dns: (f, a, b) => meanNearest(f, a, b, true),
      ns: (f, a, b) => meanNearest(f, a, b, false),
      ga: (f) => Float32Array.from(f),
    };
  }

  function median(values) {
    const sorted = [...values].sort((a, b) => a - b), half = sorted.length / 2;
    return sorted.length % 2 ? sorted[Math.floor(half)] : (sorted[half - 1] + sorted[half]) / 2;
  }

  // The share of the population that a newcomer of median fitness outranks, at each of these places.
  function shares(rule, { fitness, first, second }, places) {
    const order = [...fitness.keys()].sort((a, b) => fitness[b] - fitness[a]);  // sorting again is quick then
    const [f, x, y] = [fitness, first, second].map((values) => order.map((i) => values[i]));
    const middle = median(f);
    return places.map((place) => {
      const found = rule([...f, middle], [...x, place[0]], [...y, place[1]]), last = found[found.length - 1];
      let beaten = 0;
      for (let i = 0; i < found.length - 1; i++) beaten += found[i] < last;
      return beaten / (found.length - 1);
    });
  }

  return { all, floats, shares };
}
