// What is seen of the state, and what a reader changes of it. The fragment of the address is the state.

const FIRST_STRIDE = 8, BUDGET = 12; // ms after which the rest of the points waits for the next frame
const PAUSE_BEFORE_LINK = 200; // ms: Chromium refuses more than 200 changes of an address in 30 s

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
const domainOf = ({ low, high, most, integer }) => `${integer ? "a whole number" : "a number"} from ${low} to `
  + (most > high ? "2⁵³, such as 4096 or 128k" : high);

// The number that a text or a stop is, or null.
function numberOf(control, given) {
  const text = String(given).trim().replace("−", "-");
  const tokens = control.name === "length" && /^(\d{1,6})([kKM])$/.exec(text);
  const value = tokens ? tokens[1] * (tokens[2] === "M" ? 2 ** 20 : 2 ** 10)
    : /^[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?$/i.test(text) ? Number(text) : NaN;
  const fits = value >= control.low && value <= control.most && (!control.integer || Number.isInteger(value));
  return fits ? value : null;
}

function change(name, given) {
  if (Object.hasOwn(CONTROL, name)) {
    const value = numberOf(CONTROL[name], given), { field, message } = rows[name];
    field.setAttribute("aria-invalid", String(value === null));
    message.textContent = value === null ? `${CONTROL[name].label}: give ${domainOf(CONTROL[name])}` : "";
    if (value === null) return;
    // The marker on the x-axis is that of all curves.
    if (state.chosen && name !== state.x) (state.own[state.chosen] ??= {})[name] = value;
    else state.values[name] = value;
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
  const png = make("button", { type: "button", onclick: savePng }, "Save PNG");
  const reset = make("button", { type: "button", onclick: () => {
    state = started();
    restored();
    writeLink();
  } }, "Reset");
  root.append(
    make("div", { class: "controls" },
      make("fieldset", {}, make("legend", {}, "Kernels"), make("div", { class: "boxes" }, ...parts.boxes.map((box, k) =>
        make("label", { title: `${SETTING.kernels[k].title}: ${SETTING.kernels[k].formula}` }, box, ` ${box.value}`)))),
      make("fieldset", { class: "parameters" }, make("legend", {}, "Parameters"), select("chosen", "Sliders", []),
        ...SETTING.controls.map(({ name }) => rows[name].row)),
      make("div", { class: "choices" },
        select("y", "y-axis", Object.entries(SETTING.y).map(([name, { title }]) => [name, title])),
        select("x", "x-axis", SETTING.controls.map((c) => [c.name, c.meaning.includes(c.symbol) ? c.meaning : `${c.meaning} ${c.symbol}`])),
        select("grows", "Scores", [["false", "of spread γ, such as q·k/√d"], ["true", "q·k as it is: spread γ√d"]]), query),
      make("div", { class: "buttons" }, parts.copy, png, reset), parts.said),
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
  const began = performance.now(), listed = curvesListed(), theme = root.dataset.theme;
  if (!listed.some(({ id }) => id === state.chosen)) state.chosen = "";
  const curves = curvesShown();
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
  hide();
  fill(listed, theme);
  showState(listed);
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
    + curves.map((curve, k) => `${curve.letter}: ${titleOf(curve)}, ${wordsOf(read[k])}`).join("; ");
  parts.stage.replaceChildren(drawChart({ picture, data, old: new Map(), width, height, theme, label }));
  const key = [["", 2.4, "rows of n, the exact law"], ["6 4", 1.7, "long rows, the limit"], ["1.5 4", 1.6, floorWords(picture)]];
  parts.key.innerHTML = key.map(([dash, thick, text]) => `<span><svg width="27" height="10"><path d="M0,5H26" stroke="currentColor"
    stroke-width="${thick}" stroke-dasharray="${dash}"/></svg>${text}</span>`).join("");
}

function showState(curves) {
  const chosen = curves.find(({ id }) => id === state.chosen);
  const used = new Set([state.x, ...(chosen ? [chosen] : curves.filter(({ pin }) => pin === null)).flatMap(usedBy)]);
  for (const { name, stops } of SETTING.controls) {
    const { row, slider, field, message } = rows[name], value = (chosen ?? state).values[name];
    row.classList.toggle("unused", !used.has(name));
    let best = 0;
    stops.forEach((stop, k) => { if (Math.abs(stop - value) < Math.abs(stops[best] - value)) best = k; });
    slider.value = best;
    slider.setAttribute("aria-valuetext", show(value, 6));
    if (!message.textContent) field.value = String(value);
  }
  parts.chosen.replaceChildren(make("option", { value: "" }, "of all checked kernels"),
    ...curves.map((curve) => make("option", { value: curve.id }, `of ${curve.letter}: ${titleOf(curve)}`)));
  for (const name of ["x", "y", "query", "chosen"]) parts[name].value = state[name];
  parts.grows.value = String(state.grows);
  parts.boxes.forEach((box) => { box.checked = state.shown.includes(box.value); });
  parts.queryRow.hidden = !curves.some(({ kernel, pin }) => kernel.law === "features" && pin === null);
}

function fill(curves, theme) {
  const head = ["", "curve", "S, long rows", "√(n_eff/n), rows of n", "n_eff"];
  const titles = { S: head[2], S_rms: head[3], n_eff: head[4] };
  const cell = (of, value) => make("td", { "data-of": of, "data-title": titles[of], "data-value": value === null ? "" : String(value),
    class: Number.isNaN(value) ? "soft" : undefined, title: Number.isNaN(value)
      ? "two ways to compute it differ here: ask the package" : undefined }, showPositive(value));
  const body = curves.map((curve) => {
    const hidden = state.hidden.includes(curve.id), r = readAt(curve, curve.values);
    const letter = make("th", { scope: "row" }, make("button", { type: "button", class: "letter", "aria-pressed": String(!hidden),
      style: `color:${curve.look[theme]}`, title: hidden ? "show the curve" : "hide the curve",
      "aria-label": `curve ${curve.letter}`, onclick: () => change("hidden",
        hidden ? state.hidden.filter((id) => id !== curve.id) : [...state.hidden, curve.id]) }, curve.letter));
    const notes = [curve.moves ? "" : `does not depend on ${CONTROL[state.x].label}`].filter(Boolean);
    const name = make("td", { class: "name" }, titleOf(curve), ...notes.map((text) => make("div", { class: "soft" }, text)));
    return make("tr", { "data-curve": curve.id, class: hidden ? "hidden" : undefined }, letter, name, cell("S", r.S), cell("S_rms", r.S_rms), cell("n_eff", r.n_eff));
  });
  parts.table.replaceChildren(make("table", {}, make("thead", {}, make("tr", {},
    ...head.map((text) => make("th", { scope: "col" }, text)))), make("tbody", {}, ...body)));
  const shown = curvesShown();
  parts.code.textContent = ["import sparsity", ...shown.map(inPython), ...plotsInPython(shown)].join("\n");
}
// The same chart: the curves of scores in one call for each length, any other curve in its own.
function plotsInPython(curves) {
  const control = CONTROL[state.x], grid = `"${endsOf(control).join(":")}:${POINTS}${control.scale === "log" ? ":log" : ""}"`;
  const calls = new Map(), rows = state.y === "n_eff" ? "n_eff" : "S_rms";
  for (const curve of curves.filter(({ moves }) => moves)) {
    const { kernel, values: v } = curve, name = JSON.stringify(kernel.python);
    const given = { score: state.x === "dim" ? { beta: v.beta, gamma: v.gamma, length: v.length } : { length: v.length },
      position: { decay: v.decay, length: v.length }, features: { ratio: v.ratio, dim: v.dim } }[kernel.law];
    const words = Object.entries({ ...given, [state.x]: grid }).map(([key, value]) => `${key}=${value}`);
    if (kernel.law === "features") words.push(`query=${JSON.stringify(curve.query)}`);
    words.push(`of="${kernel.law === "score" ? rows : state.y === "n_eff" ? "n_eff" : "S"}"`,
      `yscale="${state.y === "S" ? "linear" : "log"}"`);
    const row = kernel.law === "score" && state.x !== "dim", call = `x="${state.x}", ${words.join(", ")}`;
    const key = row ? call : `${name} ${call}`;
    if (!calls.has(key)) calls.set(key, { call, drawn: [] });
    calls.get(key).drawn.push(row ? `sparsity.Row(${name}, beta=${v.beta}, gamma=${spreadOf(curve, v)})` : name);
  }
  return [...calls.values()].map(({ call, drawn }) => `sparsity.plot([\n  ${drawn.join(",\n  ")}],\n  ${call})`);
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
    const cell = (of, value) => make("td", { "data-of": of, "data-value": String(value ?? "") }, showPositive(value));
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
  const { shown: names, values, own, hidden, ...rest } = state;
  const link = new URLSearchParams({ ...rest, ...values });
  if (!rest.chosen) link.delete("chosen");
  hidden.forEach((id) => link.append("hidden", id));
  for (const [id, held] of Object.entries(own))
    for (const [name, value] of Object.entries(held)) link.append(`${name} of ${id}`, value);
  names.forEach((name) => link.append("kernel", name));
  if (!names.length) link.append("kernel", "");
  history.replaceState(null, "", `#${link}`);
}
function readLink() {
  const link = new URLSearchParams(location.hash.slice(1)), wrong = [];
  state = started();
  const choices = { x: Object.keys(CONTROL), y: Object.keys(SETTING.y), query: ["uniform", "one-hot"], grows: ["true", "false"], chosen: IDS };
  for (const [name, value] of link) {
    const number = Object.hasOwn(CONTROL, name) ? numberOf(CONTROL[name], value) : null;
    const [of, id] = name.split(/ of (?=live |pin )/), held = IDS.includes(id) && Object.hasOwn(CONTROL, of) ? numberOf(CONTROL[of], value) : null;
    if (number !== null) state.values[name] = number;
    else if (held !== null) (state.own[id] ??= {})[of] = held;
    else if (name === "hidden" && IDS.includes(value)) state.hidden.push(value);
    else if (Object.hasOwn(choices, name) && choices[name].includes(value)) state[name] = name === "grows" ? value === "true" : value;
    else if (name !== "kernel") wrong.push(`${name}=${value}`);
  }
  if (link.has("kernel")) {
    const names = link.getAll("kernel").filter(Boolean);
    state.shown = names.filter((name) => Object.hasOwn(KERNEL, name));
    wrong.push(...names.filter((name) => !Object.hasOwn(KERNEL, name)).map((name) => `kernel=${name}`));
  }
  restored();
  parts.said.textContent = wrong.length ? `This page cannot show what the link asks for: ${wrong.join(", ").slice(0, 200)}` : "";
}
function restored() {
  parts.said.textContent = "";
  for (const { message, field } of Object.values(rows)) {
    message.textContent = "";
    field.setAttribute("aria-invalid", "false");
  }
  draw();
}
async function savePng() {
  const curves = curvesShown(), { picture, data } = pictureOf(curves, true), label = heights().title;
  const image = new Image(), options = { picture, data, width: 900, height: 500, label };
  const svg = exportChart(options, curves.map((c) => ({ words: `${c.letter}  ${titleOf(c)}`, color: c.look.light })));
  image.src = `data:image/svg+xml,${encodeURIComponent(svg)}`;
  await image.decode();
  const canvas = make("canvas", { width: 2 * image.width, height: 2 * image.height });
  canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
  make("a", { href: canvas.toDataURL("image/png"), download: "sparsity.png" }).click();
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
