// What a page shows: a state, its curves by law.js, and their picture as chart.js takes it.

const SETTING = JSON.parse(document.getElementById("setting").textContent);
SETTING.kernels.forEach((kernel, k) => { kernel.size = SIZES[k]; });
const KERNEL = Object.fromEntries(SETTING.kernels.map((kernel) => [kernel.name, kernel]));
const CONTROL = Object.fromEntries(SETTING.controls.map((control) => [control.name, control]));
const POINTS = 65; // of a line, 2^k + 1; every eighth first, then what lies between
const MOST_KEPT = 300; // lines, of former positions of the sliders

const TO = { linear: (x) => x, log: Math.log10, nines: (x) => -Math.log10(Math.max(1 - x, 1e-300)) };
const BACK = { linear: (t) => t, log: (t) => 10 ** t, nines: (t) => 1 - 10 ** -t };

// Beside what a page starts with: values that one curve has of its own, curves that are not drawn, and
// the curve that the sliders move; "" is all that are checked.
const started = () => ({ ...structuredClone(SETTING.start), own: {}, hidden: [], chosen: "" });
let state = started();
const lines = new Map();

// --- values ------------------------------------------------------------------------------------

// The ends of an axis: that of lengths goes on to the decade of one that was typed.
function endsOf({ name, low, high, most }) {
  const given = state.values[name];
  return [low, given > high ? Math.min(10 ** Math.ceil(Math.log10(given)), most) : high];
}
function marksOf(control) {
  const [low, high] = endsOf(control), marks = [], step = high > 1e9 ? 10 : 5;
  if (high === control.high) return control.marks;
  for (let k = step; 2 ** k <= high; k += step)
    if (2 ** k >= low) marks.push([placeOf(control, 2 ** k), `${2 ** (k % 10)}${["", "K", "M", "G", "T", "P"][Math.floor(k / 10)]}`]);
  return marks;
}
function placeOf(control, x) {
  const [low, high, at] = [...endsOf(control), x].map(TO[control.scale]);
  return (at - low) / (high - low);
}
function valueAt(control, place) {
  const ends = endsOf(control), [low, high] = ends.map(TO[control.scale]);
  let x = BACK[control.scale](low + Math.min(Math.max(place, 0), 1) * (high - low));
  // Few digits: of a decay those that 1 − λ has.
  x = control.scale === "nines" ? 1 - Number((1 - x).toPrecision(3)) : Number(x.toPrecision(3));
  x = Number((control.integer ? Math.round(x) : x).toPrecision(12));
  return Math.min(Math.max(x, ends[0]), ends[1]);
}
// The value at a place as it is: between two stops a curve goes on.
function between(control, u, whole = control.integer) {
  const [low, high] = endsOf(control).map(TO[control.scale]);
  const x = BACK[control.scale](low + u * (high - low));
  return whole ? Math.round(x) : x;
}
const growing = (curve) => curve.grows && curve.kernel.law === "score";

// What a curve depends on, and nothing else.
function usedBy(curve) {
  const { law, closed } = curve.kernel;
  if (law === "features") return ["ratio", "dim", ...(state.y === "n_eff" ? ["length"] : [])];
  if (law === "position") return ["decay", "length"];
  return [...(closed === "exp" ? [] : ["beta"]), "gamma", "length", ...(growing(curve) ? ["dim"] : [])];
}
const spreadOf = (curve, v) => v.gamma * (growing(curve) ? Math.sqrt(v.dim) : 1);

// log S of long rows and n_eff of rows of n at one place; NaN where it is not resolved, null where
// there is none. Unchecked they are good enough to be drawn.
function known(curve, v, checked) {
  const { kernel } = curve;
  if (kernel.law === "features") return { log: logSofFeatures({ ...v, query: curve.query }), tokens: null };
  if (kernel.law === "position") return { log: null, tokens: v.length * Math.exp(2 * logSofDecay(v)) };
  const at = [kernel, v.beta, spreadOf(curve, v)];
  if (checked) return { log: checkedLogS(...at), tokens: checkedTokens(...at, v.length) };
  return { log: drawnLogS(...at), tokens: tokensOf(transforms(...at, v.length, v.length, DRAWN), v.length).value };
}
function shown({ log, tokens }, n) {
  const limit = log === null ? null : state.y === "n_eff" ? n * Math.exp(2 * log) : Math.exp(log);
  const exact = tokens === null ? null : state.y === "n_eff" ? tokens : Math.sqrt(tokens / n);
  return { limit, exact };
}

function show(value, digits = 7) {
  if (value === null) return "—";
  if (Number.isNaN(value)) return "not resolved";
  if (value !== 0 && (Math.abs(value) < 1e-4 || Math.abs(value) >= 1e7)) {
    const [mantissa, power] = value.toExponential(digits - 1).split("e");
    const raised = [...power.replace("+", "")].map((c) => "⁰¹²³⁴⁵⁶⁷⁸⁹"[c] ?? "⁻").join("");
    return `${Number(mantissa)}×10${raised}`.replace("-", "−");
  }
  return String(Number(value.toPrecision(digits))).replace("-", "−");
}
// No quantity here is 0: what is below float64 is said to be.
const showPositive = (value) => value !== null && value < 1e-307 ? "below 10⁻³⁰⁷" : show(value);

// --- curves ------------------------------------------------------------------------------------

const IDS = [...SETTING.kernels.map(({ name }) => `live ${name}`), ...SETTING.pins.map((_, k) => `pin ${k}`)];
function curvesListed() {
  const live = SETTING.kernels.filter(({ name }) => state.shown.includes(name)).map((kernel) =>
    ({ id: `live ${kernel.name}`, kernel, values: state.values, query: state.query, grows: state.grows, pin: null }));
  const pins = SETTING.pins.map((pin, k) => ({ id: `pin ${k}`, kernel: KERNEL[pin.kernel], query: pin.query,
    values: { ...SETTING.start.values, ...pin.values }, grows: pin.grows, pin: k }));
  return [...live, ...pins].map((curve, k) => ({ ...curve, look: LOOKS[k], letter: String.fromCharCode(65 + k),
    values: { ...curve.values, ...state.own[curve.id], [state.x]: state.values[state.x] },
    moves: usedBy(curve).includes(state.x) }));
}
const curvesShown = () => curvesListed().filter(({ id }) => !state.hidden.includes(id));
function titleOf(curve) {
  const words = usedBy(curve).map((name) => `${CONTROL[name].symbol} = ${show(curve.values[name], 6)}`);
  const scores = growing(curve) ? ["scores q·k of spread γ√d"] : [];
  const query = curve.kernel.law === "features" ? [`${curve.query} query`] : [];
  return [curve.kernel.name, ...words, ...scores, ...query].join(", ");
}

// What is known of the two lines of a curve, kept until something that they depend on changes.
function recordOf(curve) {
  const held = usedBy(curve).filter((name) => name !== state.x).map((name) => curve.values[name]);
  const key = JSON.stringify([curve.kernel.name, state.x, state.y === "n_eff", curve.query, growing(curve), ...endsOf(CONTROL[state.x]), ...held]);
  if (!lines.has(key)) lines.set(key, { points: new Array(curve.moves ? POINTS : 1) });
  return lines.get(key);
}

// Compute every `stride`-th point of a curve, where it is not there yet.
function fillIn(curve, stride) {
  const { kernel, values } = curve, record = recordOf(curve), control = CONTROL[state.x];
  for (let k = 0; k < record.points.length; k += stride) {
    if (record.points[k]) continue;
    const v = curve.moves ? { ...values, [state.x]: between(control, k / (POINTS - 1)) } : values;
    let found;
    if (kernel.law === "score" && state.x === "length" && curve.moves) {
      // Rows of all lengths share their transforms, and their limit.
      record.law ??= { found: transforms(kernel, v.beta, spreadOf(curve, v), ...endsOf(control), DRAWN),
        log: drawnLogS(kernel, v.beta, spreadOf(curve, v)) };
      found = { log: record.law.log, tokens: tokensOf(record.law.found, v.length).value };
    } else found = known(curve, v, false);
    record.points[k] = { u: placeOf(control, v[state.x]), n: v.length, ...found };
  }
}

// A line through points (u, v) as more of them: cubic between two, and nowhere beyond both (Fritsch
// and Carlson). What is not resolved is a gap.
function smooth(points) {
  const at = points.filter(([u], k) => k === 0 || u > points[k - 1][0]), out = [];
  const rise = at.slice(1).map(([u, v], k) => (v - at[k][1]) / (u - at[k][0]));
  const slope = at.map((_, k) => {
    const [left, right] = [rise[k - 1] ?? rise[k], rise[k] ?? rise[k - 1]];
    return left * right > 0 ? 2 / (1 / left + 1 / right) : 0;
  });
  at.forEach(([u, v], k) => {
    out.push([u, v]);
    if (k + 1 === at.length) return;
    const [next, then] = at[k + 1], width = next - u;
    for (const t of [0.25, 0.5, 0.75]) {
      const far = t * t * (3 - 2 * t);
      const known = [slope[k], slope[k + 1]].every(Number.isFinite);
      const bend = known ? width * t * (1 - t) * ((1 - t) * slope[k] - t * slope[k + 1]) : 0;
      out.push([u + t * width, known ? v * (1 - far) + then * far + bend : v + t * (then - v)]);
    }
  });
  return out;
}

// The numbers of a curve at one place, checked.
function readAt(curve, v) {
  const { log, tokens } = known(curve, v, true), position = curve.kernel.law === "position";
  return {
    S: position ? Math.sqrt(tokens / v.length) : Math.exp(log),
    S_rms: tokens === null ? null : Math.sqrt(tokens / v.length), n_eff: tokens,
    ...shown({ log, tokens }, v.length),
  };
}
const wordsOf = ({ limit, exact }) => [exact === null ? "" : `${showPositive(exact)} in rows of n`,
  limit === null ? "" : `${showPositive(limit)} in long rows`].filter(Boolean).join(", ");

// --- the picture, as chart.js takes it ------------------------------------------------------------

function heights() {
  const most = state.x === "length" ? endsOf(CONTROL.length)[1] : state.values.length;
  const y = SETTING.y[state.y], scale = y.scales[most <= 1e6 ? 0 : most <= 1e12 ? 1 : 2];
  const to = scale.log ? (v) => Math.log(v / scale.low) / Math.log(scale.high / scale.low)
    : (v) => (v - scale.low) / (scale.high - scale.low);
  const place = (v) => Number.isFinite(v) ? Math.min(Math.max(to(v), -1), 2) : NaN;
  return { place, marks: scale.ticks.map(([v, words]) => [place(v), words]), label: y.label, title: y.title };
}

function pictureOf(curves, whole) {
  const control = CONTROL[state.x], y = heights(), data = [];
  const pack = (numbers) => { const start = data.length; data.push(...numbers); return [start, data.length]; };
  const line = (points, whole = true) => ({ whole, u: pack(points.map(([u]) => u)), v: pack(points.map(([, v]) => v)) });
  const one = Array.from({ length: POINTS }, (_, k) => {
    const u = k / (POINTS - 1), n = state.x === "length" ? between(control, u, false) : state.values.length;
    return [u, y.place(state.y === "n_eff" ? 1 : 1 / Math.sqrt(n))];
  });
  const lineOf = (curve, kind) => {
    const points = recordOf(curve).points.filter(Boolean);
    const heights = points.map((point) => [point.u, shown(point, point.n)[kind]]);
    if (heights[0][1] === null) return null;
    while (heights.length > 1 && Number.isNaN(heights.at(-1)[1])) heights.pop(); // the letter is at its end
    const level = curve.moves ? heights : [[0, heights[0][1]], [1, heights[0][1]]];
    if (Number.isNaN(level.at(-1)[1])) return null;
    return line(smooth(level.map(([u, v]) => [u, y.place(v)])), whole);
  };
  const picture = {
    axis: { x: state.x, symbol: control.symbol, meaning: control.meaning, marks: marksOf(control),
      marker: placeOf(control, state.values[state.x]), y: state.y, y_marks: y.marks, y_label: y.label },
    floor: line(one),
    curves: curves.map((curve) => ({ ...curve, limit: lineOf(curve, "limit"), exact: lineOf(curve, "exact"), points: [] })),
  };
  return { picture, data };
}
