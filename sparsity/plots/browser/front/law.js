// The law of rows of n independent weights f(s), s ~ N(β, γ²), in a browser: what `evaluate` and
// `exact` of the package compute, by the same formulas and fewer nodes.
//
//   log S  = log E|f| − ½ log E f², by a closed form where there is one, else by quadrature;
//   n_eff  = ∫ [n m2 φ^(n−1) + n(n−1) m1² φ^(n−2)] du / P(row ≠ 0), x = e^u f²,
//            φ = E e^(−x), m1 = E √x e^(−x), m2 = E x e^(−x).
//
// A number is shown only where two sets of nodes agree: see `checkedTokens` and `checkedLogS`.

const LN2 = Math.LN2, LOG_TAU = Math.log(2 * Math.PI);
const NODES_OF_PANEL = 16;
// How far log f² may vary over a panel, in e-folds; the width of a panel at a zero of f that is left
// out; where in a step of u the grids begin; and below which x powers stand for e^(−x). φ is analytic
// in log x in a strip of π/2: a rule of 16 nodes is off by about 1e−10 where log f² varies by 3.5, by
// 1e−8 at 4.5; a step of ln 2 in u by 1e−5, of half of it by 1e−10. S is
// an integral over z to `reach`: where it has mass beyond, two of them differ. A number is of the FINE set, and
// is shown where the COARSE one has it too; what is drawn need be right to a pixel only.
const FINE = { variation: 3.5, sliver: 1e-11, shifts: [0, 0.5], light: 1e-6, reach: 14 };
const COARSE = { variation: 4.5, sliver: 1e-11, shifts: [0], light: 1e-6, reach: 10 };
const DRAWN = { variation: 6, sliver: 1e-6, shifts: [0], light: 1e-3, reach: 10 };
const SAME = 1e-7; // relative, of the two sets: the finer one is off by far less
const SAME_STEP = 1e-4; // of a step of ln 2 in u and half of it, whose error is the square of that
const MOST_NODES = 20000, MOST_STEPS = 20000; // milliseconds of work; what takes more is not resolved

function gaussRule(count) {
  const nodes = [], weights = [];
  for (let k = 0; k < count; k++) {
    let x = Math.cos(Math.PI * (k + 0.75) / (count + 0.5)), slope = 1;
    for (let round = 0; round < 20; round++) { // Newton's method on the Legendre polynomial
      let [last, now] = [1, x];
      for (let j = 2; j <= count; j++) [last, now] = [now, ((2 * j - 1) * x * now - (j - 1) * last) / j];
      slope = count * (x * now - last) / (x * x - 1);
      x -= now / slope;
    }
    nodes.push(x);
    weights.push(2 / ((1 - x * x) * slope * slope));
  }
  return { nodes, weights };
}
const RULE = gaussRule(NODES_OF_PANEL);

// erf by its series of positive terms, erfc by its continued fraction from 2 on.
function erf(x) {
  const a = Math.abs(x);
  if (a >= 2) return Math.sign(x) * (1 - erfc(a));
  let term = a, sum = a;
  for (let k = 1; term > 1e-17 * sum; k++) sum += term *= 2 * a * a / (2 * k + 1);
  return Math.sign(x) * sum * 2 / Math.sqrt(Math.PI) * Math.exp(-a * a);
}
function erfc(x) {
  if (x < 2) return 1 - erf(x);
  let fraction = x;
  for (let k = 60; k >= 1; k--) fraction = x + k / 2 / fraction;
  return Math.exp(-x * x) / Math.sqrt(Math.PI) / fraction;
}
const erfcOfMinus = (x) => erfc(-x);

// Closed forms of log S; `sparsity/limit/closed_form.py` has where they come from.
function logSofRelu2(z) {
  if (z < -1.5) {
    const x = -z, start = 120;
    let r = 2 * start / (x + Math.sqrt(x * x + 4 * start)), last = [r, r, r, r];
    for (let k = start - 1; k > 0; k--) last = [r = k / (r + x), ...last.slice(0, 3)];
    const [r1, r2, r3, r4] = last;
    return 0.5 * Math.log(r1 / r3 * (r2 / r4) / (r1 + x)) - z * z / 4 - LOG_TAU / 4;
  }
  if (z >= 10) {
    const w = 1 / (z * z);
    return -0.5 * Math.log1p(w * (4 + 2 * w) / (1 + w) ** 2);
  }
  const tail = 0.5 * erfc(Math.abs(z) * Math.SQRT1_2), rest = 1 - tail;
  const [upper, lower] = z < 0 ? [rest, tail] : [tail, rest];
  const zphi = z * Math.exp(-z * z / 2 - LOG_TAU / 2), p = z * z + 1;
  const variance = lower * (4 * z * z + 2 + p * p * upper) + zphi * (3 - z * z + 2 * p * upper - zphi);
  return -0.5 * Math.log1p(variance / (p * lower + zphi) ** 2);
}
function logSofIdentity(z) {
  const a = Math.abs(z);
  const loss = Math.exp(-a * a / 2 - LOG_TAU / 2) - 0.5 * a * erfc(a * Math.SQRT1_2);
  return -0.5 * Math.log1p((1 - 4 * loss * (a + loss)) / (a + 2 * loss) ** 2);
}
const CLOSED = {
  exp: (beta, gamma) => -gamma * gamma / 2,
  relu2: (beta, gamma) => logSofRelu2(beta / gamma),
  identity: (beta, gamma) => logSofIdentity(beta / gamma),
};
function logSofFeatures({ ratio, dim, query }) {
  return -0.5 * Math.log1p((query === "one-hot" ? ratio : ratio / Math.sqrt(dim)) ** 2);
}
function logXCoth(x) {
  if (x >= 1) return Math.log(x / Math.tanh(x));
  let tail = 19;
  for (let odd = 17; odd > 1; odd -= 2) tail = odd + x * x / tail;
  return Math.log1p(x * x / tail);
}
function logSofDecay({ decay, length }) {
  const half = -0.5 * Math.log(decay);
  return 0.5 * (logXCoth(half) - logXCoth(half * length));
}

// Nodes of the score where f ≠ 0: log f², and weights over e^scale; `blind` is the mass where f is so
// small that float64 has no digits of it (`ports.py`). Null where f is beyond float64 or asks for too many.
function nodesOf(kernel, beta, gamma, reach, { variation, sliver }) {
  const { size } = kernel, least = kernel.least ?? -Infinity, l = [], w = [];
  let blind = 0;
  // Where f ≠ 0 between its zeros and kinks: offsets from one of them, in units of γ.
  const regions = kernel.regions.map(([anchor, low, high]) => ({ anchor, low: (low ?? -Infinity) / gamma,
    high: (high ?? Infinity) / gamma, at: (anchor - beta) / gamma }));
  // The nearest z with f ≠ 0: of a law far out the density there is the scale of the weights.
  const nearest = Math.min(...regions.map(({ low, high, at }) =>
    at + low > 0 ? at + low : at + high < 0 ? -at - high : 0));
  const scale = -nearest * nearest / 2, end = Math.sqrt(reach * reach + nearest * nearest);
  for (const { anchor, low, high, at } of regions) {
    const from = Math.max(low, -end - at), to = Math.min(high, end - at);
    if (!(from < to)) continue;
    const most = Math.max(Math.abs(from + at), Math.abs(to + at), 1);
    const width = Math.min(1.5, 5 / gamma, 8 / most) * variation / FINE.variation;
    const count = Math.ceil((to - from) / width), constant = -scale - at * at / 2 - LOG_TAU / 2;
    const todo = [];
    for (let k = 0; k < count; k++)
      todo.push(from + (to - from) * k / count, from + (to - from) * (k + 1) / count);
    while (todo.length) {
      const b = todo.pop(), a = todo.pop(), middle = (a + b) / 2, half = (b - a) / 2;
      // The ends themselves may be zeros or the far side of a jump: a hair inside.
      const left = size(anchor + gamma * (a + 1e-9 * half)), right = size(anchor + gamma * (b - 1e-9 * half));
      const center = size(anchor + gamma * middle);
      const smallest = Math.min(left, center, right), largest = Math.max(left, center, right);
      if (largest < least && b - a < 0.1) {
        blind += (b - a) * Math.exp(constant - middle * (at + middle / 2));
        continue;
      }
      if (!(largest < Infinity)) return null; // or NaN, which `Math.max` hands on
      if (largest - smallest > variation || largest < least) {
        if (b - a < sliver) continue;
        const steep = center - smallest > 2 * variation; // towards a zero
        const cut = a + (b - a) * (!steep ? 0.5 : left < right ? 0.25 : 0.75);
        todo.push(a, cut, cut, b);
        continue;
      }
      for (let k = 0; k < NODES_OF_PANEL; k++) {
        const d = middle + RULE.nodes[k] * half, log = size(anchor + gamma * d);
        if (Number.isNaN(log)) return null;
        if (!(log > -Infinity && log >= least)) continue;
        l.push(log);
        w.push(RULE.weights[k] * half * Math.exp(constant - d * (at + d / 2)));
      }
      if (l.length > MOST_NODES) return null;
    }
  }
  return { l, w, scale, blind };
}

// z beyond which less than 1e−13 of a token is left in rows of n.
const reachOf = (n) => Math.sqrt(2 * Math.log(n) + 58);

// φ, m1 and m2 on grids of u of step ln 2 that interleave, for rows from `least` to `most` long.
// From one u to the next x doubles, and 1 − e^(−x) becomes p(2 − p): no exponential is taken, and
// no digit lost.
function transforms(kernel, beta, gamma, least, most, rule) {
  const nodes = nodesOf(kernel, beta, gamma, reachOf(most), rule);
  if (!nodes || !nodes.l.length) return null;
  const order = descending(nodes.l);
  const l = Float64Array.from(order, (i) => nodes.l[i]), w = Float64Array.from(order, (i) => nodes.w[i]);
  const c = Math.exp(nodes.scale), { blind } = nodes, mass = w.reduce((a, b) => a + b), light = lightSums(l, w);
  const [first, second] = [light[0][0], light[1][0]], top = l[0];
  // P(row ≠ 0) over the scale; where the scale is below float64, n times that of one token.
  const rows = (n) => c * n < 1e-17 ? n * mass : -Math.expm1(n * Math.log1p(-Math.min(c * mass, 1))) / c;
  // Below the first u, n m2 + (n m1)² ≤ t(n E f² + (n E|f|)²) is 1e−14 of it.
  const start = (n) => Math.log(1e-14 * rows(n) / (n * second + c * (n * first) ** 2)) - top;
  const u0 = Math.min(start(least), start(most));
  const grids = [];
  for (const shift of rule.shifts) {
    const grid = gridOf(l, w, light, rule.light, u0 + shift * LN2, grids.length ? grids[0].psi.length : MOST_STEPS,
      grids.length ? null : (psi, m1, m2) => integrand(least, c, psi, m1, m2) / rows(least));
    if (!grid) return null;
    grids.push(grid);
  }
    // The share of rows whose tokens are all 0 or too small to be seen, and not all 0.
  const none = Math.max(1 - c * mass, 0);
  const lost = (n) => c * n < 1e-17 ? n * blind : (none ** n - Math.max(none - c * blind, 0) ** n) / c;
  return { grids, c, rows, unseen: (n) => lost(n) / rows(n) };
}

// The places of numbers in descending order, to about 1e−9. Sorting without a function of one's own
// takes a tenth of the time: the place stands in the last bits of the number.
function descending(numbers) {
  const keys = Float64Array.from(numbers, (x) => -x), words = new Uint32Array(keys.buffer);
  for (let j = 0; j < keys.length; j++) words[2 * j] = (words[2 * j] & 0xffff0000) | j; // j < 2^16
  keys.sort();
  return Uint32Array.from(keys, (_, j) => words[2 * j] & 0xffff);
}

// Of each node and those below it, Σ w (f²)^(k/2) over its own, for k from 1 to 4.
function lightSums(l, w) {
  const sums = [1, 2, 3, 4].map(() => new Float64Array(l.length + 1));
  for (let j = l.length - 1; j >= 0; j--) {
    const less = j + 1 < l.length ? Math.exp((l[j + 1] - l[j]) / 2) : 0;
    for (let k = 0, factor = less; k < 4; k++, factor *= less) sums[k][j] = w[j] + sums[k][j + 1] * factor;
  }
  return sums;
}

// The sums at u, u + ln 2, …: `count` of them, or until what `density` makes of them has come and gone.
function gridOf(l, w, [half, one, threeHalves, two], light, u, count, density) {
  const x = new Float64Array(l.length), root = new Float64Array(l.length), p = new Float64Array(l.length);
  const grid = { psi: [], m1: [], m2: [] }, lightest = Math.log(light);
  let head = 0, tail = 0, full = 0, total = 0;
  for (let step = 0; step < count; step++, u += LN2) {
    for (; tail < l.length && u + l[tail] > lightest; tail++) {
      x[tail] = Math.exp(u + l[tail]);
      root[tail] = Math.sqrt(x[tail]);
      p[tail] = -Math.expm1(-x[tail]);
    }
    for (; head < tail && x[head] > 45; head++) full += w[head]; // 1 − e^(−x) is 1
    let psi = full, m1 = 0, m2 = 0;
    for (let j = head; j < tail; j++) {
      const q = p[j], left = w[j] * (1 - q);
      psi += w[j] * q;
      m1 += root[j] * left;
      m2 += x[j] * left;
      p[j] = q * (2 - q);
      x[j] *= 2;
      root[j] *= Math.SQRT2;
    }
    if (tail < l.length) { // e^(−x) = 1 − x
      const y = Math.exp(u + l[tail]), r = Math.sqrt(y);
      psi += y * (one[tail] - y * two[tail] / 2);
      m1 += r * (half[tail] - y * threeHalves[tail]);
      m2 += y * (one[tail] - y * two[tail]);
    }
    grid.psi.push(psi);
    grid.m1.push(m1);
    grid.m2.push(m2);
    if (!density) continue;
    const body = density(psi, m1, m2) * LN2;
    total += body;
    if (total > 0.5 && body < 1e-14 * total) return grid;
  }
  return density ? null : grid;
}

function integrand(n, c, psi, m1, m2) {
  const log = Math.log(Math.max(1 - c * psi, 1e-300));
  const exact = c * psi < 0.5 ? Math.log1p(-c * psi) : log;
  return n * Math.exp((n - 2) * exact) * (m2 * Math.exp(exact) + c * (n - 1) * m1 * m1);
}

// n_eff of rows of n, and the same by the first grid of u alone.
function tokensOf(found, n) {
  if (!found) return { value: NaN, first: NaN };
  const sums = found.grids.map(({ psi, m1, m2 }) => {
    let sum = 0;
    for (let k = 0; k < psi.length; k++) sum += integrand(n, found.c, psi[k], m1[k], m2[k]);
    return sum * LN2 / found.rows(n);
  });
  const value = sums.reduce((a, b) => a + b) / sums.length;
  return { value: Math.min(Math.max(value, 1), n), first: sums[0], unseen: found.unseen(n) };
}

// n_eff where it is resolved, else NaN: two sets of nodes agree, and so do two steps of u.
function checkedTokens(kernel, beta, gamma, n) {
  if (n === 1) return 1;
  const [fine, coarse] = [FINE, COARSE].map((rule) => tokensOf(transforms(kernel, beta, gamma, n, n, rule), n));
  const nodes = Math.abs(fine.first - coarse.first), step = Math.abs(fine.first - fine.value);
  // Rows whose tokens float64 does not see are not in the mean.
  const seen = fine.unseen * n < SAME && Number.isFinite(fine.value);
  return seen && nodes <= SAME * fine.value && step <= SAME_STEP * fine.value ? fine.value : NaN;
}

// log S by quadrature. E f² of a weight that grows like e^s has its mass about z = 2γ.
function quadratureLogS(kernel, beta, gamma, rule) {
  const grows = [1, -1].some((sign) => kernel.size(60 * sign) - kernel.size(30 * sign) > 40);
  const nodes = nodesOf(kernel, beta, gamma, rule.reach + (grows ? 2 * gamma : 0), rule);
  if (!nodes || !nodes.l.length) return NaN;
  let first = 0, second = 0;
  const top = nodes.l.reduce((a, b) => Math.max(a, b));
  nodes.l.forEach((log, j) => {
    const root = Math.exp((log - top) / 2);
    first += nodes.w[j] * root;
    second += nodes.w[j] * root * root;
  });
  return Math.log(first) - 0.5 * Math.log(second) + nodes.scale / 2;
}
function drawnLogS(kernel, beta, gamma) {
  return kernel.closed ? CLOSED[kernel.closed](beta, gamma) : quadratureLogS(kernel, beta, gamma, DRAWN);
}
function checkedLogS(kernel, beta, gamma) {
  if (kernel.closed) return CLOSED[kernel.closed](beta, gamma);
  const [fine, coarse] = [FINE, COARSE].map((rule) => quadratureLogS(kernel, beta, gamma, rule));
  return Math.abs(fine - coarse) <= SAME ? fine : NaN;
}
