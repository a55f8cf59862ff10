// The background of the map: for every point of a square, the share of the population that a newcomer outranks there.
// Workers compute it, as many as there are processors; where a browser has none for this page, the page itself does,
// a little at a time.

const PIECE = 16;  // points at a time

function makeBackground(networks) {
  const source = `
    const rules = (${makeRules})(), known = {};
    onmessage = ({ data }) => {
      if (data.networks) Object.assign(known, rules.all(data.networks));
      else postMessage({ job: data.job, begin: data.begin, shares: rules.shares(known[data.rule], data.population, data.places) });
    };`;
  const own = makeRules(), rules = own.all(networks);
  let helpers = null, current = null, num_jobs = 0;

  function here() {
    // stands in for a worker
    const helper = { postMessage: (data) => setTimeout(() => {
      const shares = data.job === num_jobs ? own.shares(rules[data.rule], data.population, data.places) : [];
      helper.onmessage({ data: { job: data.job, begin: data.begin, shares } });
    }, 0) };
    helper.onmessage = ({ data }) => take(helper, data);
    return helper;
  }

  function begin() {
    const url = URL.createObjectURL(new Blob([source], { type: "text/javascript" }));
    const num = Math.min(Math.max((navigator.hardwareConcurrency || 2) - 1, 1), 8);
    try {
      helpers = Array.from({ length: num }, () => new Worker(url));
    } catch {
      helpers = [here()];
      return;
    }
    for (const one of helpers) {
      one.postMessage({ networks });
      one.onmessage = ({ data }) => take(one, data);
      one.onerror = alone;
    }
  }

  function alone() {
    // there are workers, but they may not run here
    for (const one of helpers) { one.onmessage = one.onerror = null; one.terminate(); }
    helpers = [here()];
    if (!current) return;
    Object.assign(current, { next: 0, left: current.values.length });
    send(helpers[0]);
  }

  function send(helper) {
    if (!current || current.next >= current.values.length) return;
    const begin = current.next, places = [];
    for (let k = begin; k < Math.min(begin + PIECE, current.values.length); k++) places.push(current.place(k));
    current.next = begin + places.length;
    helper.postMessage({ job: current.job, begin, rule: current.rule, population: current.population, places });
    helper.busy = true;
  }

  function take(helper, { job, begin, shares }) {
    helper.busy = false;
    if (current && job === current.job) {
      current.values.set(shares, begin);
      current.left -= shares.length;
      const { values, done, progress } = current;
      if (current.left === 0) { current = null; done(values); } else progress(1 - current.left / values.length);
    }
    send(helper);
  }

  return {
    rules,
    // side x side points from -end to end; rows are the second descriptor
    compute(rule, population, side, end, progress, done) {
      if (!helpers) begin();
      const axis = (i) => (side > 1 ? end * (2 * i / (side - 1) - 1) : 0);
      const place = (k) => [axis(k % side), axis(Math.floor(k / side))];
      const values = new Float32Array(side * side);
      current = { job: ++num_jobs, rule, population, place, values, next: 0, left: values.length, progress, done };
      for (const one of helpers) if (!one.busy) send(one);
    },
    cancel() { current = null; num_jobs++; },
  };
}
