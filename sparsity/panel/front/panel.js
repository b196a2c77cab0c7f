// The controls and the conversation: edits out, pictures in, never more than one unanswered.

function h(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (value === true) made.setAttribute(name, "");
    else if (value !== false && value !== undefined) made.setAttribute(name, value);
  }
  made.append(...children);
  return made;
}

function show(value, digits = 5) {
  if (value === null || value === undefined) return "—";
  if (value !== 0 && (Math.abs(value) < 1e-4 || Math.abs(value) >= 1e7)) {
    const [mantissa, power] = value.toExponential(digits - 1).split("e");
    const raised = [...power.replace("+", "")].map((c) => "⁰¹²³⁴⁵⁶⁷⁸⁹"[c] ?? "⁻").join("");
    return `${mantissa}×10${raised}`;
  }
  return String(Number(value.toPrecision(digits))).replace("-", "−");
}

// Dark or light, from the ground that the panel really lies on, whatever the host calls it.
function themeOf(element) {
  for (let at = element; at; at = at.parentElement ?? at.getRootNode().host) {
    const parts = getComputedStyle(at).backgroundColor.match(/[\d.]+/g)?.map(Number) ?? [];
    if (parts.length >= 3 && (parts[3] ?? 1) > 0.5)
      return 0.3 * parts[0] + 0.59 * parts[1] + 0.11 * parts[2] < 128 ? "dark" : "light";
  }
  return "light";
}

function save(name, kind, content) {
  const url = URL.createObjectURL(new Blob([content], { type: kind }));
  const link = h("a", { href: url, download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
}

async function copyText(words, area) {
  try {
    await navigator.clipboard.writeText(words);
    return true;
  } catch {
    const range = document.createRange();
    range.selectNodeContents(area);
    getSelection().removeAllRanges();
    getSelection().addRange(range);
    return document.execCommand("copy");
  }
}

// Edits that ask something else: what answered the former question goes at once (panel.css).
const QUESTIONS = new Set(["rows", "query", "x", "y", "argument", "reset"]);

class Conversation {
  // Sends edits; while one message is unanswered, later edits of one control replace earlier ones.
  constructor(model, view, onState) {
    Object.assign(this, { model, view, onState, waiting: 0, seq: 0, edits: [], sent: [], extra: {} });
  }
  edit(name, value) {
    if (name !== "pin" && name !== "unpin")
      this.edits = this.edits.filter(([other]) => other !== name);
    this.edits.push([name, value]);
    this.flush();
  }
  ask(extra) { Object.assign(this.extra, extra); this.flush(); }
  // Whether a control is ahead of the kernel, which must not pull it back then.
  has(name) { return [...this.edits, ...this.sent].some(([other]) => other === name); }
  flush() {
    if (this.waiting || !(this.edits.length || Object.keys(this.extra).length)) return;
    this.waiting = ++this.seq;
    this.model.send({ view: this.view, seq: this.seq, edits: this.edits, ...this.extra });
    [this.sent, this.edits, this.extra] = [this.edits, [], {}];
    clearTimeout(this.timer);
    this.onState("asked");
    this.nudge(3);
    this.timer = setTimeout(() => this.onState("late"), 3000);
  }
  // Jupyter's server writes the answer right after a "busy", and TCP holds back a second small
  // write until the first is acknowledged, which receivers put off by 40 ms. Whatever we send
  // carries that acknowledgement.
  nudge(left) {
    clearTimeout(this.nudging);
    this.nudging = setTimeout(() => {
      this.model.send({ nudge: true });
      if (left > 1) this.nudge(left - 1);
    }, 12);
  }
  answered(message) {
    if (message.to !== this.view || message.seq !== this.waiting) return false;
    [this.waiting, this.sent] = [0, []];
    clearTimeout(this.timer);
    clearTimeout(this.nudging);
    this.onState("answered");
    this.flush();
    return true;
  }
}

function parameterRow(control, talk, id) {
  const stops = { list: control.stops };
  const named = `${control.label}: ${control.meaning}`;
  const slider = h("input", { type: "range", min: 0, step: 1, "aria-label": `${named}, slider`,
    "data-name": control.name,
    oninput: () => talk.edit(control.name, stops.list[slider.value]) });
  const field = h("input", { type: "text", inputmode: "decimal", autocomplete: "off", maxlength: 40,
    spellcheck: "false", "aria-label": `${named}, number`, "aria-describedby": `${id}-${control.name}`,
    "data-name": control.name,
    oninput: () => { field.dataset.typing = "yes"; }, // which no answer may overwrite
    onchange: () => {
      delete field.dataset.typing;
      talk.edit(control.name, field.value);
    },
    onkeydown: (event) => {
      event.stopPropagation(); // the notebook has keys of its own
      const step = { ArrowUp: 1, ArrowDown: -1 }[event.key];
      if (!step) return;
      event.preventDefault();
      const next = Math.min(Math.max(Number(slider.value) + step, 0), stops.list.length - 1);
      delete field.dataset.typing;
      talk.edit(control.name, stops.list[next]);
      field.value = stops.list[next];
    } });
  slider.addEventListener("keydown", (event) => event.stopPropagation());
  const message = h("div", { class: "message", id: `${id}-${control.name}`, role: "alert" });
  const row = h("div", { class: "parameter", title: `${control.meaning}, ${control.domain}` },
    h("label", {}, control.label), slider, field, message);
  const nearest = (value) => {
    let best = 0;
    stops.list.forEach((stop, i) => {
      if (Math.abs(stop - value) < Math.abs(stops.list[best] - value)) best = i;
    });
    return best;
  };
  return {
    row,
    set(value, list, used, hidden) {
      stops.list = list ?? control.stops;
      slider.max = stops.list.length - 1;
      if (!talk.has(control.name)) {
        slider.value = nearest(value);
        slider.setAttribute("aria-valuetext", show(value, 6));
        if (!field.dataset.typing && !message.textContent) field.value = String(value);
      }
      row.classList.toggle("unused", !used);
      row.hidden = hidden;
    },
    say(words) {
      message.textContent = words ?? "";
      field.setAttribute("aria-invalid", String(Boolean(words)));
    },
    stops, slider, field,
  };
}

// The number of a quantity that takes one, such as the k of the top-k mass.
function argumentField(talk, id) {
  const words = h("span", {}), field = h("input", { type: "text", autocomplete: "off", maxlength: 40,
    spellcheck: "false", "aria-describedby": `${id}-argument`, "data-name": "argument",
    oninput: () => { field.dataset.typing = "yes"; },
    onchange: () => { delete field.dataset.typing; talk.edit("argument", field.value); },
    onkeydown: (event) => event.stopPropagation() });
  const message = h("div", { class: "message", id: `${id}-argument`, role: "alert" });
  const row = h("label", { class: "choice argument" }, words, field, message);
  let symbol;
  return {
    row,
    set(given) {
      row.hidden = !given;
      if (!given) return;
      if (symbol !== given.meaning) { delete field.dataset.typing; message.textContent = ""; }
      symbol = given.meaning;
      words.textContent = given.symbol;
      row.title = `${given.meaning}; ${given.domain}`;
      field.setAttribute("aria-label", `${given.symbol}: ${given.meaning}`);
      if (!talk.has("argument") && !field.dataset.typing && !message.textContent) field.value = given.text;
    },
    say(text) {
      message.textContent = text ?? "";
      field.setAttribute("aria-invalid", String(Boolean(text)));
    },
  };
}

function build(root, setting, talk, id) {
  const select = (name, words, options) => {
    const made = h("select", { "data-name": name, onchange: () => talk.edit(name, made.value),
      onkeydown: (event) => event.stopPropagation() },
      ...options.map(([value, words, title]) => h("option", { value, title }, words)));
    return { made, row: h("label", { class: "choice" }, h("span", {}, words), made) };
  };
  const boxes = [], boxed = h("div", { class: "boxes" });
  const offer = (kernels) => { // boxes are made anew only where the kernels on offer are others
    if (kernels.map((k) => k.name).join("\n") === boxes.map((b) => b.value).join("\n")) return;
    boxes.splice(0, boxes.length, ...kernels.map((kernel) => h("input", { type: "checkbox",
      value: kernel.name, onchange: () =>
        talk.edit("shown", boxes.filter((b) => b.checked).map((b) => b.value)) })));
    boxed.replaceChildren(...boxes.map((box, i) =>
      h("label", { title: kernels[i].title }, box, ` ${kernels[i].name}`)));
  };
  const formula = h("input", { type: "text", autocomplete: "off", autocapitalize: "off",
    spellcheck: "false", maxlength: 500, placeholder: "another: log(1 + exp(s))",
    "aria-label": "A kernel of your own: a formula of the score s", "aria-describedby": `${id}-formula`,
    title: "A formula of the score s; Enter adds its curve", "data-name": "formula",
    onkeydown: (event) => event.stopPropagation(),
    onchange: () => { if (formula.value.trim()) talk.edit("formula", formula.value); } });
  const mistake = h("div", { class: "message caret", id: `${id}-formula`, role: "alert" });
  const rows = select("rows", "Row law", setting.rows.map((r) => [r.name, r.title]));
  const query = select("query", "Query", setting.queries.map((q) => [q, q]));
  const x = select("x", "x-axis", setting.controls.map((c) => [c.name,
    c.meaning.includes(c.symbol) ? c.meaning : `${c.meaning} ${c.symbol}`]));
  const y = select("y", "y-axis", setting.y.map((each) => [each.name, each.words, each.title]));
  const argument = argumentField(talk, id);
  const parameters = Object.fromEntries(
    setting.controls.map((control) => [control.name, parameterRow(control, talk, id)]));
  const sampling = h("input", { type: "checkbox",
    onchange: () => talk.edit("sampling", sampling.checked) });
  const button = (words, title, act) => h("button", { type: "button", title, onclick: act }, words);
  const parts = {
    boxes, offer, formula, mistake, rows, query, x, y, argument, parameters, sampling,
    general: h("div", { class: "message", role: "alert" }),
    stage: h("div", { class: "plot", tabindex: 0, role: "group",
      "aria-label": "Chart: arrow keys read its curves, a click sets the marker" }),
    spot: h("span", { class: "spot", hidden: true }),
    told: h("div", { class: "told", hidden: true }),
    key: h("div", { class: "key", "aria-hidden": "true" }),
    status: h("div", { class: "status" }),
    spoken: h("div", { class: "spoken", role: "status", "aria-live": "polite" }),
    table: h("div", { class: "numbers", role: "region", tabindex: 0, "aria-label": "Numbers at the marker" }),
    formulas: h("div", { class: "formulas", role: "region", tabindex: 0, "aria-label": "Formulas" }),
    code: h("pre", { class: "code", tabindex: 0, "aria-label": "The Python call" }),
    chart: h("pre", { class: "code", tabindex: 0, "aria-label": "The call that draws this chart" }),
  };
  parts.copy = button("Copy the Python call",
    "The calls that compute these numbers and draw this chart", async () => {
    const done = await copyText(parts.whole(), parts.codes);
    parts.spoken.textContent = parts.copied.textContent = done ? "copied" : "select it and copy";
    clearTimeout(parts.forget); // of an earlier copy
    parts.forget = setTimeout(() => { parts.copied.textContent = ""; }, 3000);
  });
  parts.copied = h("span", { class: "soft" });
  parts.codes = h("div", {}, parts.code, parts.chart);
  parts.pin = button("Pin these curves", "Keep them for comparison", () => talk.edit("pin", true));
  parts.reset = button("Reset", "Back to the start; unpins all", () => {
    Object.values(parameters).forEach((p) => p.say(""));
    formula.value = mistake.textContent = "";
    formula.setAttribute("aria-invalid", "false");
    argument.say("");
    talk.edit("reset", true);
  });
  parts.svg = button("Save SVG", "The figure as a vector file", () => parts.saveSVG());
  parts.csv = button("Save CSV", "Everything drawn, as numbers", () => talk.ask({ csv: true }));
  const kernels = h("fieldset", {}, h("legend", {}, "Kernels"),
    boxed, h("div", { class: "formula-field" }, formula, mistake));
  root.append(
    h("div", { class: "controls" }, kernels,
      h("fieldset", { class: "parameters" }, h("legend", {}, "Parameters"),
        ...Object.values(parameters).map((p) => p.row)),
      h("div", { class: "choices" }, y.row, argument.row, x.row, rows.row, query.row),
      h("label", { class: "boxes" }, sampling, " Monte Carlo when at rest"),
      h("div", { class: "buttons" }, parts.pin, parts.reset), parts.general),
    h("div", { class: "stage" },
      h("div", { class: "picture" }, parts.stage, parts.key, parts.status),
      parts.table, parts.formulas,
      parts.codes, h("div", { class: "buttons" }, parts.copy, parts.svg, parts.csv, parts.copied),
      parts.spoken));
  return parts;
}

function fillTable(parts, picture, theme, talk) {
  const head = ["", "curve", ...picture.columns.map((column) => column.title), "Monte Carlo"];
  const body = picture.curves.map((curve) => {
    const r = curve.read, mc = r.sampled;
    const color = curve.look[theme];  // with the marker of its points, where it has any
    const shape = curve.points.length ? `d="${curve.look.mark}" fill="${color}"`
      : `d="M-6,0H6" stroke="${color}" stroke-width="2.4"`;
    const swatch = `<svg width="14" height="14" viewBox="-7 -7 14 14" aria-hidden="true"><path ${
      shape}/></svg>`;
    const letter = h("th", { scope: "row", style: `color:${color}` }, curve.letter);
    letter.insertAdjacentHTML("afterbegin", swatch);
    const name = h("td", { class: "name" }, curve.full);
    if (curve.pin !== null) name.append(" ", h("button", { type: "button", class: "small",
      "aria-label": `Unpin ${curve.full}`, onclick: () => talk.edit("unpin", curve.pin) }, "unpin"));
    const sampled = mc ? `${mc.of} = ${show(mc.value)} ± ${show(mc.half, 2)}` : "—";
    const mark = h("td", { "data-title": head.at(-1),
      ...(mc?.warning ? { class: "doubtful", title: mc.warning } : {}) }, h("span", {}, sampled));
    if (mc?.warning) mark.append(h("div", { class: "soft" }, "error bar not to be trusted"));
    const numbers = picture.columns.map(({ of, title }) => {
      const cell = h("td", { "data-of": of, "data-value": r[of] ?? "", "data-title": title },
        show(r[of]));
      if (of === "n_eff" && r.n_eff !== null) cell.append(h("span", { class: "soft of" }, ` of ${show(r.n, 7)}`));
      return cell;
    });
    const row = h("tr", { "data-curve": curve.id }, letter, name, ...numbers, mark);
    const notes = h("td", { colspan: head.length - 1, class: "soft" }, curve.notes.join("; "));
    return curve.notes.length ? [row, h("tr", { class: "notes" }, h("td"), notes)] : [row];
  });
  const made = h("table", {}, h("thead", {}, h("tr", {},
    ...head.map((words) => h("th", { scope: "col" }, words)))), h("tbody", {}, ...body.flat()));
  // A button that has the focus keeps it, although the table is new.
  const focused = parts.table.contains(document.activeElement)
    ? document.activeElement.getAttribute("aria-label") : null;
  parts.table.replaceChildren(made);
  if (focused) parts.table.querySelector(`[aria-label="${CSS.escape(focused)}"]`)?.focus();
}

function render({ model, el }) {
  const view = Math.random().toString(36).slice(2), id = `sparsity-${view}`;
  const root = h("div", { class: "sparsity-panel", id });
  const holder = h("div", { class: "sparsity-holder" }, root);
  root.append(h("p", { class: "soft waiting" }, "waiting for the kernel …"));
  el.append(holder);
  let parts, setting, picture, data, formulas = {}, newest = 0, spoken, dragging = false;
  const old = new Map(), looks = new Map();
  const talk = new Conversation(model, view, (what) => {
    if (what === "asked") root.dataset.waiting = "true";
    if (what === "asked" && talk.sent.some(([name]) => QUESTIONS.has(name))) root.dataset.question = "new";
    if (what === "answered") ["waiting", "question"].forEach((name) => delete root.dataset[name]);
    if (parts && what === "late")
      parts.status.textContent = "The kernel is busy, or gone: if it was restarted, run the cell again.";
  });

  // A curve keeps its look as long as it is there; a kernel takes its own where that is free.
  function lookOf(curve) {
    if (!looks.has(curve.id)) {
      const kernel = picture.state.kernels.findIndex((k) => k.name === curve.kernel);
      const own = LOOKS[kernel % LOOKS.length], taken = new Set(looks.values());
      const free = LOOKS.find((look) => !taken.has(look)); // there are as many as curves can be
      looks.set(curve.id, curve.pin === null && !taken.has(own) ? own : free);
    }
    return looks.get(curve.id);
  }

  const words = () => {
    const [long, rows] = picture.columns;
    const said = ({ read }) => read[rows.of] === null
      ? `${long.short} = ${show(read[long.of], 4)}` : `${rows.short} = ${show(read[rows.of], 4)}`;
    return `${picture.axis.y_title} against ${picture.axis.meaning}. `
      + picture.curves.map((c) => `${c.letter}: ${c.full}, ${said(c)}`).join("; ");
  };

  function options() {
    const width = Math.max(Math.floor(parts.stage.clientWidth), 260);
    const height = Math.round(Math.min(Math.max(width * 0.56, 250), 430));
    return { picture, data, old, width, height, theme: root.dataset.theme, label: words() };
  }

  function draw() {
    if (!picture || !parts.stage.isConnected) return;
    const theme = (root.dataset.theme = themeOf(holder));
    for (const [key] of looks) if (!picture.curves.some((c) => c.id === key)) looks.delete(key);
    for (const curve of picture.curves) curve.look = lookOf(curve);
    parts.stage.replaceChildren(drawChart(options()), parts.spot, parts.told);
    parts.retell();
    const shown = `${picture.floor ? floorWords(picture) : ""} ${picture.state.sampling}`;
    if (parts.key.dataset.shown !== shown) parts.legend();
    parts.key.dataset.shown = shown;
    fillTable(parts, picture, theme, talk);
    root.dataset.number = picture.number;
  }

  // What was known of a curve stays, greyed, until it is known anew: the same question at another
  // value, never another question.
  function remember(next) {
    const axis = ({ axis: a }) => JSON.stringify([a.x, a.y, a.y_label, a.ends, a.y_marks]);
    const same = picture && axis(picture) === axis(next);
    for (const id of [...old.keys()]) if (!next.curves.some((c) => c.id === id)) old.delete(id);
    for (const curve of next.curves) {
      const asked = ({ id, question }) => JSON.stringify([id, question]);
      const before = same ? picture.curves.find((c) => asked(c) === asked(curve)) : undefined;
      const kept = before ? { ...old.get(curve.id) } : {};
      if (before?.exact) Object.assign(kept, { exact: before.exact, data });
      if (before?.points.length) {
        const apart = (p) => !before.points.some((q) => Math.abs(q.u - p.u) < 1e-6);
        kept.points = [...before.points, ...(kept.points ?? []).filter(apart)];
      }
      if (!next.working) delete kept.exact;
      if (!next.working || !next.state.sampling) delete kept.points;
      old.set(curve.id, kept);
    }
  }

  function apply(state) {
    parts.offer(state.kernels);
    if (!talk.has("shown"))
      for (const box of parts.boxes) box.checked = state.shown.includes(box.value);
    for (const name of ["rows", "query", "x", "y"])
      if (!talk.has(name)) parts[name].made.value = state[name];
    for (const option of parts.y.made.options) {
      const why = state.refused[option.value];
      option.disabled = Boolean(why);
      option.title = why ?? setting.y.find((each) => each.name === option.value).title;
    }
    parts.y.made.title = picture.axis.y_title;
    parts.argument.set(state.argument);
    if (!talk.has("sampling")) parts.sampling.checked = state.sampling;
    for (const [name, parameter] of Object.entries(parts.parameters)) {
      const used = state.uses.includes(name);
      parameter.set(state.values[name], state.stops[name], used, !used && setting.own.includes(name));
    }
    parts.query.row.hidden = !state.shown.includes("nonnegative");
  }

  function tellErrors(errors, asked) {
    const left = { ...errors };
    if (asked.includes("formula")) {
      parts.mistake.textContent = errors.formula ?? "";
      parts.formula.setAttribute("aria-invalid", String(Boolean(errors.formula)));
      if (!errors.formula) parts.formula.value = "";
    }
    delete left.formula;
    parts.argument.say(errors.argument);
    delete left.argument;
    for (const [name, parameter] of Object.entries(parts.parameters)) {
      if (errors[name]) parameter.say(errors[name]);
      else parameter.say("");
      delete left[name];
    }
    parts.general.textContent = Object.values(left).join("; ");
  }

  function onMessage(message, buffers) {
    if (message.kind === "formulas") {
      formulas = { ...formulas, ...message.formulas };
      return showFormulas();
    }
    if (message.kind === "csv") {
      if (message.to === view) save("sparsity.csv", "text/csv", message.text);
      return;
    }
    const asked = talk.sent.map(([name]) => name), mine = talk.answered(message);
    if (message.setting && !parts) {
      setting = message.setting;
      formulas = message.formulas;
      root.replaceChildren();
      parts = build(root, setting, talk, id);
      connect();
    }
    if (!parts) return;
    if (mine) tellErrors(message.errors ?? {}, asked);
    if (message.kind !== "picture" || message.number <= newest) return;
    newest = message.number;
    const bytes = buffers[0];
    const next = new Float32Array(bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.byteLength));
    remember(message);
    [picture, data] = [message, next];
    apply(picture.state);
    parts.code.textContent = picture.python;
    clearTimeout(parts.writing); // while a slider moves, layout of a long text would hold up curves
    parts.writing = setTimeout(() => { parts.chart.textContent = picture.plot; }, 100);
    if (!talk.waiting) parts.status.textContent = picture.working ? `${picture.working} …` : "";
    showFormulas();
    draw();
    if (mine || !picture.working) { // told once the hand rests, and once all is known
      clearTimeout(spoken);
      spoken = setTimeout(() => { parts.spoken.textContent = words(); }, 700);
    }
  }

  function showFormulas() {
    const wanted = picture ? picture.curves.filter((curve) => curve.pin === null) : [];
    const key = wanted.map((c) => `${c.kernel}:${c.formula}:${formulas[c.kernel] ? 1 : 0}`).join();
    if (!parts || parts.formulas.dataset.key === key) return;
    parts.formulas.dataset.key = key;
    parts.formulas.replaceChildren(...wanted.map(({ kernel, formula }) => {
      const line = h("div", { class: "formula" }, h("span", { class: "soft" }, kernel));
      const [weight, S] = formulas[kernel] ?? ["<span class='soft'>deriving …</span>", ""];
      line.insertAdjacentHTML("beforeend", weight);
      const own = h("span", { class: "own" },
        h("span", { class: "soft" }, formula ? `${formula}:` : "no formula of this curve"));
      if (formula) own.insertAdjacentHTML("beforeend", S);
      if (S) line.append(own);
      return line;
    }));
  }

  function connect() {
    parts.legend = () => { parts.key.innerHTML = [
      ["M0,5H26", "", 2.4, "rows of n, exact"], ["M0,5H26", "6 4", 1.7, "long rows, the limit"],
      ...(picture.floor ? [["M1,5H26", "1.5 4", 1.8, floorWords(picture)]] : []),
      ...(picture.state.sampling ? [["M13,-2V12M9.5,5a3.5,3.5 0 1,0 7,0a3.5,3.5 0 1,0 -7,0Z", "", 1.4,
        "Monte Carlo ± 95 %: grey when stale, hollow where its error bar is not known"]] : []),
    ].map(([d, dash, width, title]) => `<span><svg width="27" height="10" viewBox="0 0 27 10"><path d="${
      d}" fill="${title.startsWith("M") ? "currentColor" : "none"}" stroke="currentColor" stroke-width="${width}" stroke-dasharray="${
      dash}"/></svg>${title}</span>`).join(""); };
    parts.whole = () => `${picture.python}\n\n${picture.plot}`;
    parts.saveSVG = () => {
      const lines = picture.curves.map((c) => ({
        words: `${c.letter}  ${c.title}`, color: c.look.light }));
      save("sparsity.svg", "image/svg+xml", exportChart(options(), lines));
    };
    let place = null, pointer = null; // what is told of, and where the pointer is
    const hide = () => { place = null; parts.spot.hidden = parts.told.hidden = true; };
    const tell = (found, aloud = false) => {
      if (!found) return hide();
      place = found;
      const box = parts.stage.firstChild.getBoundingClientRect(), at = frame(box.width, box.height);
      const x = at.x(place.u), y = at.y(place.v), words = placeWords(picture, place);
      parts.told.replaceChildren(...words.map((line) => h("div", {}, line)));
      parts.spot.hidden = parts.told.hidden = false;
      Object.assign(parts.spot.style, { left: `${x}px`, top: `${y}px`,
        borderColor: place.curve.look[root.dataset.theme] });
      const { offsetWidth: w, offsetHeight: high } = parts.told;
      parts.told.style.left = `${Math.max(Math.min(x + 12, box.width - w), 0)}px`;
      parts.told.style.top = `${y + 14 + high < box.height ? y + 14 : Math.max(y - 14 - high, 0)}px`;
      if (aloud) parts.spoken.textContent = words.join(", ");
    };
    const hover = () => {
      const box = parts.stage.firstChild.getBoundingClientRect(), at = frame(box.width, box.height);
      tell(nearestPlace(picture, data, at, pointer.x - box.left, pointer.y - box.top));
    };
    parts.retell = () => { // of the new picture
      if (dragging || !place) return hide();
      if (pointer) return hover();
      const curve = picture.curves.find(({ id }) => id === place.curve.id);
      tell(curve ? steppedPlace(picture, data, { ...place, curve }, 0, 0) : null);
    };
    parts.stage.addEventListener("keydown", (event) => {
      const [along, across] = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowDown: [0, 1],
        ArrowUp: [0, -1] }[event.key] ?? [];
      if (event.key === "Escape") hide();
      if (along === undefined) return;
      event.preventDefault();
      event.stopPropagation(); // the notebook has keys of its own
      pointer = null;
      tell(steppedPlace(picture, data, place, along, across), true);
    });
    parts.stage.addEventListener("blur", hide);
    parts.stage.addEventListener("pointerleave", () => { pointer = null; hide(); });
    const toValue = (event) => {
      const box = parts.stage.firstChild.getBoundingClientRect(), at = frame(box.width, box.height);
      const u = Math.min(Math.max((event.clientX - box.left - at.left) / at.w, 0), 1);
      const apart = [...data.slice(...picture.axis.stops)].map((place) => Math.abs(place - u));
      return parts.parameters[picture.axis.x].stops.list[apart.indexOf(Math.min(...apart))];
    };
    const move = (event) => {
      pointer = { x: event.clientX, y: event.clientY };
      if (!dragging) return hover();
      hide();
      talk.edit(picture.axis.x, toValue(event));
    };
    parts.stage.addEventListener("pointerdown", (event) => {
      dragging = true;
      parts.stage.setPointerCapture(event.pointerId);
      move(event);
    });
    parts.stage.addEventListener("pointermove", move);
    for (const end of ["pointerup", "pointercancel"])
      parts.stage.addEventListener(end, () => { dragging = false; });
  }

  let width = 0;
  const resized = new ResizeObserver(() => {
    if (parts && parts.stage.clientWidth !== width) {
      width = parts.stage.clientWidth;
      draw();
    }
  });
  resized.observe(holder);
  const repaint = () => setTimeout(draw, 50);
  const themed = new MutationObserver(repaint);
  for (const each of [document.documentElement, document.body])
    themed.observe(each, { attributes: true });
  const scheme = matchMedia("(prefers-color-scheme: dark)");
  scheme.addEventListener("change", repaint);
  const listen = (message, buffers) => {
    try {
      onMessage(message, buffers);
    } catch (error) { // hosts swallow it: say it where it is seen
      console.error(error);
      (parts?.status ?? root).textContent = `The panel could not draw this: ${error}`;
    }
  };
  model.on("msg:custom", listen);
  talk.ask({ hello: true });
  return () => {
    model.off("msg:custom", listen);
    resized.disconnect();
    themed.disconnect();
    scheme.removeEventListener("change", repaint);
  };
}

export default { render };
