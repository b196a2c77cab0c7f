// The page: a state of sliders and choices, its curves by law.js, drawn by chart.js; all of it is
// here, and nothing is asked of anybody. The fragment of its address is the state.

const SETTING = JSON.parse(document.getElementById("setting").textContent);
SETTING.kernels.forEach((kernel, k) => { kernel.size = SIZES[k]; });
const KERNEL = Object.fromEntries(SETTING.kernels.map((kernel) => [kernel.name, kernel]));
const CONTROL = Object.fromEntries(SETTING.controls.map((control) => [control.name, control]));
const POINTS = 65; // of a line, 2^k + 1; every fourth first, then what lies between
const FIRST_STRIDE = 4, BUDGET = 15; // ms after which the rest of the points waits for the next frame
const MOST_KEPT = 300; // lines, of former positions of the sliders
const PAUSE_BEFORE_LINK = 200; // ms: Chromium refuses more than 200 changes of an address in 30 s

const TO = { linear: (x) => x, log: Math.log10, nines: (x) => -Math.log10(Math.max(1 - x, 1e-300)) };
const BACK = { linear: (t) => t, log: (t) => 10 ** t, nines: (t) => 1 - 10 ** -t };

let state = structuredClone(SETTING.start);
const lines = new Map();

// --- values ------------------------------------------------------------------------------------

function placeOf(control, x) {
  const [low, high, at] = [control.low, control.high, x].map(TO[control.scale]);
  return (at - low) / (high - low);
}
function valueAt(control, place) {
  const [low, high] = [control.low, control.high].map(TO[control.scale]);
  let x = BACK[control.scale](low + Math.min(Math.max(place, 0), 1) * (high - low));
  // Few digits: of a decay those that 1 − λ has.
  x = control.scale === "nines" ? 1 - Number((1 - x).toPrecision(3)) : Number(x.toPrecision(3));
  x = Number((control.integer ? Math.round(x) : x).toPrecision(12));
  return Math.min(Math.max(x, control.low), control.high);
}
// The value at a place as it is: between two stops a curve goes on.
function between(control, u) {
  const [low, high] = [control.low, control.high].map(TO[control.scale]);
  const x = BACK[control.scale](low + u * (high - low));
  return control.integer ? Math.round(x) : x;
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

// --- curves ------------------------------------------------------------------------------------

function curvesShown() {
  const live = SETTING.kernels.filter(({ name }) => state.shown.includes(name)).map((kernel) =>
    ({ id: `live ${kernel.name}`, kernel, values: state.values, query: state.query, grows: state.grows, pin: null }));
  const pins = SETTING.pins.map((pin, k) => ({ id: `pin ${k}`, kernel: KERNEL[pin.kernel], query: pin.query,
    values: { ...SETTING.start.values, ...pin.values }, grows: pin.grows, pin: k }));
  return [...live, ...pins].map((curve, k) => ({ ...curve, look: LOOKS[k], letter: String.fromCharCode(65 + k),
    moves: usedBy(curve).includes(state.x) }));
}
function titleOf(curve, without) {
  const own = usedBy(curve).filter((name) => name !== without && (name !== "dim" || curve.kernel.law === "features"));
  const scores = growing(curve) ? ["scores q·k, spread γ√d", ...(without === "dim" ? [] : [`d = ${curve.values.dim}`])] : [];
  const query = curve.kernel.law === "features" ? [`${curve.query} query`] : [];
  const words = own.map((name) => `${CONTROL[name].symbol} = ${show(curve.values[name], 6)}`);
  return [curve.kernel.name, ...words, ...scores, ...query].join(", ");
}

// What is known of the two lines of a curve, kept until something that they depend on changes.
function recordOf(curve) {
  const held = usedBy(curve).filter((name) => name !== state.x).map((name) => curve.values[name]);
  const key = JSON.stringify([curve.kernel.name, state.x, state.y === "n_eff", curve.query, growing(curve), ...held]);
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
      record.law ??= { found: transforms(kernel, v.beta, spreadOf(curve, v), control.low, control.high, DRAWN),
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

// --- the picture, as chart.js takes it ------------------------------------------------------------

function heights() {
  const most = state.x === "length" ? CONTROL.length.high : state.values.length;
  const y = SETTING.y[state.y], scale = y.scales[most <= 1e6 ? 0 : 1];
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
    const u = k / (POINTS - 1), n = state.x === "length" ? between(control, u) : state.values.length;
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
    axis: { x: state.x, symbol: control.symbol, meaning: control.meaning, marks: control.marks,
      marker: placeOf(control, state.values[state.x]), y: state.y, y_marks: y.marks, y_label: y.label },
    floor: line(one),
    curves: curves.map((curve) => ({ ...curve, limit: lineOf(curve, "limit"), exact: lineOf(curve, "exact"), points: [] })),
  };
  return { picture, data };
}

// --- what is seen --------------------------------------------------------------------------------

function make(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (value === true) made.setAttribute(name, "");
    else if (value !== false && value !== undefined) made.setAttribute(name, value);
  }
  made.append(...children);
  return made;
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

const root = document.getElementById("page"), parts = {};
const rows = {};

function rowOf(control) {
  const named = `${control.label}: ${control.meaning}`;
  const slider = make("input", { type: "range", min: 0, max: control.stops.length - 1, step: 1,
    "aria-label": `${named}, slider`, "data-name": control.name,
    oninput: () => change(control.name, control.stops[slider.value]) });
  const field = make("input", { type: "text", inputmode: "decimal", autocomplete: "off", maxlength: 40,
    spellcheck: "false", "aria-label": `${named}, number`, "data-name": control.name,
    onchange: () => change(control.name, field.value) });
  const message = make("div", { class: "message", role: "alert" });
  const row = make("div", { class: "parameter", title: `${control.meaning}, ${domainOf(control)}` },
    make("label", {}, control.label), slider, field, message);
  return { row, slider, field, message };
}
const domainOf = ({ low, high, integer }) => `${integer ? "a whole number " : ""}from ${low} to ${high}`;

// The number that a text or a stop is, or null.
function numberOf(control, given) {
  const text = String(given).trim().replace("−", "-");
  const value = /^[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?$/i.test(text) ? Number(text) : NaN;
  const fits = value >= control.low && value <= control.high && (!control.integer || Number.isInteger(value));
  return fits ? value : null;
}

function change(name, given) {
  if (name in CONTROL) {
    const value = numberOf(CONTROL[name], given), { field, message } = rows[name];
    field.setAttribute("aria-invalid", String(value === null));
    message.textContent = value === null ? `give a number ${domainOf(CONTROL[name])}` : "";
    if (value === null) return;
    state.values[name] = value;
  } else state[name] = given;
  draw();
  clearTimeout(change.later);
  change.later = setTimeout(writeLink, PAUSE_BEFORE_LINK);
}

function build() {
  const select = (name, words, options) => {
    const made = make("select", { "data-name": name, onchange: () => change(name, name === "grows"
      ? made.value === "true" : made.value) }, ...options.map(([value, text]) => make("option", { value }, text)));
    parts[name] = made;
    return make("label", { class: "choice" }, make("span", {}, words), made);
  };
  parts.boxes = SETTING.kernels.map(({ name }) => make("input", { type: "checkbox", value: name,
    onchange: () => change("shown", parts.boxes.filter((box) => box.checked).map((box) => box.value)) }));
  for (const control of SETTING.controls) rows[control.name] = rowOf(control);
  const query = select("query", "Query", [["uniform", "uniform"], ["one-hot", "one-hot"]]);
  parts.queryRow = query;
  parts.stage = make("div", { class: "plot" });
  parts.tip = make("div", { class: "tip", role: "tooltip", hidden: true });
  parts.table = make("div", { class: "numbers", role: "region", tabindex: 0, "aria-label": "Numbers at the marker" });
  parts.code = make("pre", { class: "code", tabindex: 0, "aria-label": "The same in Python" });
  parts.said = make("div", { class: "message", role: "status" });
  parts.key = make("div", { class: "key", "aria-hidden": "true" });
  parts.copy = make("button", { type: "button", onclick: copyLink }, "Copy the link to this view");
  const reset = make("button", { type: "button", onclick: () => {
    state = structuredClone(SETTING.start);
    restored();
    writeLink();
  } }, "Reset");
  root.append(
    make("div", { class: "controls" },
      make("fieldset", {}, make("legend", {}, "Kernels"), make("div", { class: "boxes" }, ...parts.boxes.map((box, k) =>
        make("label", { title: `${SETTING.kernels[k].title}: ${SETTING.kernels[k].formula}` }, box, ` ${box.value}`)))),
      make("fieldset", { class: "parameters" }, make("legend", {}, "Parameters"),
        ...SETTING.controls.map(({ name }) => rows[name].row)),
      make("div", { class: "choices" },
        select("y", "y-axis", Object.entries(SETTING.y).map(([name, { title }]) => [name, title])),
        select("x", "x-axis", SETTING.controls.map((c) => [c.name, c.meaning.includes(c.symbol) ? c.meaning : `${c.meaning} ${c.symbol}`])),
        select("grows", "Scores", [["false", "of spread γ, such as q·k/√d"], ["true", "q·k as it is: spread γ√d"]]), query),
      make("div", { class: "buttons" }, parts.copy, reset), parts.said),
    make("div", { class: "stage" },
      make("div", { class: "picture" }, parts.stage, parts.tip, parts.key), parts.table, parts.code));
  parts.stage.addEventListener("pointermove", hover);
  parts.stage.addEventListener("pointerdown", hover);
  parts.stage.addEventListener("pointerleave", (event) => { if (event.pointerType !== "touch") hide(); });
  // The place that the values stand for: a click has whole pixels only.
  parts.stage.addEventListener("pointerup", (event) => change(state.x, valueUnder(event)));
  const scheme = matchMedia("(prefers-color-scheme: dark)");
  const themed = () => { root.dataset.theme = scheme.matches ? "dark" : "light"; draw(); };
  scheme.addEventListener("change", themed);
  window.addEventListener("hashchange", readLink);
  let width = 0;
  new ResizeObserver(() => { // not where the height alone has changed
    if (parts.stage.clientWidth !== width) {
      width = parts.stage.clientWidth;
      draw();
    }
  }).observe(root);
  root.dataset.theme = scheme.matches ? "dark" : "light";
  readLink();
}

function draw() {
  const began = performance.now(), curves = curvesShown(), theme = root.dataset.theme;
  const read = curves.map((curve) => readAt(curve, curve.values));
  if (lines.size > MOST_KEPT) lines.clear();
  let stride = FIRST_STRIDE;
  curves.forEach((curve) => fillIn(curve, stride));
  while (stride > 1 && performance.now() - began < BUDGET) {
    stride /= 2;
    curves.forEach((curve) => fillIn(curve, stride));
  }
  clearTimeout(draw.rest);
  if (stride > 1) draw.rest = setTimeout(drawRest, 0, curves, stride / 2);
  drawPicture(curves, read, stride === 1);
  fill(curves, read, theme);
  showState(curves);
}
// The points that are left, a curve at a time, so that a slider is never kept waiting for long.
function drawRest(curves, stride, k = 0) {
  fillIn(curves[k], stride);
  if (k + 1 < curves.length) draw.rest = setTimeout(drawRest, 0, curves, stride, k + 1);
  else if (stride > 1) draw.rest = setTimeout(drawRest, 0, curves, stride / 2);
  else drawPicture(curves, curves.map((curve) => readAt(curve, curve.values)), true);
}

function drawPicture(curves, read, whole) {
  const theme = root.dataset.theme, { picture, data } = pictureOf(curves, whole);
  const width = Math.max(Math.floor(parts.stage.clientWidth), 260);
  const height = Math.round(Math.min(Math.max(width * 0.56, 250), 430));
  const label = `${heights().title} against ${picture.axis.meaning}. `
    + curves.map((curve, k) => `${curve.letter}: ${titleOf(curve)}, ${words(curve, read[k])}`).join("; ");
  hide();
  parts.stage.replaceChildren(drawChart({ picture, data, old: new Map(), width, height, theme, label }));
  const key = [["", 2.4, "rows of n, the exact law"], ["6 4", 1.7, "long rows, the limit"], ["1.5 4", 1.6, floorWords(picture)]];
  parts.key.innerHTML = key.map(([dash, thick, text]) => `<span><svg width="27" height="10"><path d="M0,5H26" stroke="currentColor"
    stroke-width="${thick}" stroke-dasharray="${dash}"/></svg>${text}</span>`).join("");
}

function showState(curves) {
  const used = new Set([state.x, ...curves.filter(({ pin }) => pin === null).flatMap(usedBy)]);
  for (const { name, stops } of SETTING.controls) {
    const { row, slider, field, message } = rows[name], value = state.values[name];
    row.classList.toggle("unused", !used.has(name));
    let best = 0;
    stops.forEach((stop, k) => { if (Math.abs(stop - value) < Math.abs(stops[best] - value)) best = k; });
    slider.value = best;
    slider.setAttribute("aria-valuetext", show(value, 6));
    if (!message.textContent) field.value = String(value);
  }
  for (const name of ["x", "y", "query"]) parts[name].value = state[name];
  parts.grows.value = String(state.grows);
  parts.boxes.forEach((box) => { box.checked = state.shown.includes(box.value); });
  parts.queryRow.hidden = !curves.some(({ kernel, pin }) => kernel.law === "features" && pin === null);
}

// The numbers of a curve at one place, checked.
function readAt(curve, v) {
  const { log, tokens } = known(curve, v, true), position = curve.kernel.law === "position";
  return {
    S: position ? Math.sqrt(tokens / v.length) : Math.exp(log),
    S_rms: tokens === null ? null : Math.sqrt(tokens / v.length), n_eff: tokens, n: v.length,
    ...shown({ log, tokens }, v.length),
  };
}
const words = ({ kernel }, { limit, exact }) => [exact === null ? "" : `${show(exact)} in rows of n`,
  limit === null ? "" : `${show(limit)} in long rows`].filter(Boolean).join(", ");

function fill(curves, read, theme) {
  const head = ["", "curve", "S, long rows", "√(n_eff/n), rows of n", "n_eff"];
  const cell = (of, value) => make("td", { "data-of": of, "data-value": value === null ? "" : String(value),
    class: Number.isNaN(value) ? "soft" : undefined, title: Number.isNaN(value)
      ? "two ways to compute it differ here: ask the package" : undefined }, show(value));
  const body = curves.map((curve, k) => {
    const r = read[k], letter = make("th", { scope: "row", style: `color:${curve.look[theme]}` }, curve.letter);
    const notes = [curve.moves ? "" : `does not depend on ${CONTROL[state.x].label}`].filter(Boolean);
    const name = make("td", { class: "name" }, titleOf(curve), ...notes.map((text) => make("div", { class: "soft" }, text)));
    return make("tr", { "data-curve": curve.id }, letter, name, cell("S", r.S), cell("S_rms", r.S_rms), cell("n_eff", r.n_eff));
  });
  parts.table.replaceChildren(make("table", {}, make("thead", {}, make("tr", {},
    ...head.map((text) => make("th", { scope: "col" }, text)))), make("tbody", {}, ...body)));
  parts.code.textContent = ["import sparsity", ...curves.map(inPython)].join("\n");
}
function inPython(curve) {
  const { kernel, values: v } = curve, name = JSON.stringify(kernel.python);
  if (kernel.law === "position") return `sparsity.exact(${name}, decay=${v.decay}, length=${v.length}).value  # n_eff`;
  if (kernel.law === "features")
    return `sparsity.evaluate(${name}, ratio=${v.ratio}, dim=${v.dim}, query=${JSON.stringify(curve.query)}).S`;
  return `sparsity.exact(${name}, beta=${v.beta}, gamma=${spreadOf(curve, v)}, length=${v.length}).value  # n_eff`;
}

// --- hover ---------------------------------------------------------------------------------------

function valueUnder(event) {
  const box = parts.stage.firstChild.getBoundingClientRect(), at = frame(box.width, box.height);
  return valueAt(CONTROL[state.x], (event.clientX - box.left - at.left) / at.w);
}
function hide() {
  parts.tip.hidden = true;
  parts.stage.querySelector(".hair")?.remove();
}
function hover(event) {
  cancelAnimationFrame(hover.next);
  hover.next = requestAnimationFrame(() => {
    const svg = parts.stage.firstChild, box = svg.getBoundingClientRect(), at = frame(box.width, box.height);
    const x = valueUnder(event), control = CONTROL[state.x], place = at.x(placeOf(control, x));
    const curves = curvesShown(), theme = root.dataset.theme;
    parts.stage.querySelector(".hair")?.remove();
    svg.append(node("path", { class: "hair", d: `M${place},${at.top}v${at.h}`, stroke: INKS[theme].soft, "stroke-dasharray": "2 3" }));
    const seen = curves.map((curve) => [curve, readAt(curve, { ...curve.values, [state.x]: x })]);
    const cell = (of, value) => make("td", { "data-of": of, "data-value": String(value ?? "") }, show(value));
    parts.tip.replaceChildren(make("table", { "data-x": x }, make("tr", {}, ...[["", ""], [`${control.symbol} = ${show(x, 6)}`, "x"],
      ["rows of n", ""], ["long rows", ""]].map(([text, kind]) => make("th", { scope: "col", class: kind }, text))),
    ...seen.map(([curve, r]) => make("tr", { "data-curve": curve.id },
      make("th", { scope: "row", style: `color:${curve.look[theme]}` }, curve.letter), make("td", { class: "name" }, curve.kernel.name),
      cell("exact", r.exact), cell("limit", r.limit)))));
    parts.tip.hidden = false;
    const room = parts.stage.clientWidth - parts.tip.offsetWidth;
    const side = place + 14 > room && place - 14 - parts.tip.offsetWidth > 0 ? place - 14 - parts.tip.offsetWidth : place + 14;
    parts.tip.style.left = `${Math.max(0, Math.min(side, room))}px`;
  });
}

// --- the link --------------------------------------------------------------------------------------

function writeLink() {
  const { shown: names, values, ...rest } = state;
  const link = new URLSearchParams({ ...rest, ...values });
  names.forEach((name) => link.append("kernel", name));
  if (!names.length) link.append("kernel", "");
  history.replaceState(null, "", `#${link}`);
}
function readLink() {
  const link = new URLSearchParams(location.hash.slice(1)), wrong = [];
  state = structuredClone(SETTING.start);
  const choices = { x: Object.keys(CONTROL), y: Object.keys(SETTING.y), query: ["uniform", "one-hot"], grows: ["true", "false"] };
  for (const [name, value] of link) {
    const number = name in CONTROL ? numberOf(CONTROL[name], value) : null;
    if (number !== null) state.values[name] = number;
    else if (choices[name]?.includes(value)) state[name] = name === "grows" ? value === "true" : value;
    else if (name !== "kernel") wrong.push(`${name}=${value}`);
  }
  if (link.has("kernel")) {
    const names = link.getAll("kernel").filter(Boolean);
    state.shown = names.filter((name) => name in KERNEL);
    wrong.push(...names.filter((name) => !(name in KERNEL)).map((name) => `kernel=${name}`));
  }
  restored();
  parts.said.textContent = wrong.length ? `The link has what this page cannot show: ${wrong.join(", ").slice(0, 200)}` : "";
}
function restored() {
  parts.said.textContent = "";
  for (const { message, field } of Object.values(rows)) {
    message.textContent = "";
    field.setAttribute("aria-invalid", "false");
  }
  draw();
}
async function copyLink() {
  writeLink();
  try {
    await navigator.clipboard.writeText(location.href);
    parts.copy.textContent = "Copied";
  } catch { // a page that may not write to the clipboard
    parts.copy.textContent = "Copy it from the address bar";
  }
  setTimeout(() => { parts.copy.textContent = "Copy the link to this view"; }, 3000);
}

build();
