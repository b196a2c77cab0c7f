// The drawing: a picture and a size go in, an SVG element comes out. It keeps no state.

const SVG = "http://www.w3.org/2000/svg";

// Okabe & Ito's colours, lighter on dark ground. After the first seven each is the farthest in CIELAB
// from all before it that can be read as text on its ground, also for who sees no green.
const LIGHT = ["#0072b2", "#c24e00", "#00785a", "#a2417c", "#8f6200", "#1f2328", "#6a51a3", "#660000",
  "#cc4455", "#440077", "#332255", "#4466dd", "#552222", "#005566", "#884422", "#bb44aa", "#003399",
  "#770044", "#555533", "#0055aa", "#555588", "#552277", "#886655", "#bb4433"];
const DARK = ["#56b4e9", "#ff8a4c", "#2fc79e", "#e29ac4", "#f0b429", "#e6e6e6", "#b7a4ee", "#ffffaa",
  "#998855", "#0088ff", "#ffaa99", "#009999", "#77eeff", "#ddff77", "#559922", "#aa88ff", "#ccffcc",
  "#aabb66", "#bb66bb", "#5588cc", "#449977", "#bb7700", "#99ee77", "#99aacc"];
// The markers of sampled points, and of nothing else.
const MARKS = [
  "M-4,0a4,4 0 1,0 8,0a4,4 0 1,0 -8,0Z",
  "M-3.6,-3.6h7.2v7.2h-7.2Z",
  "M0,-5L5,0L0,5L-5,0Z",
  "M0,-4.8L4.8,3.8H-4.8Z",
  "M0,4.8L4.8,-3.8H-4.8Z",
  "M0,-5L4.8,-1.5L3,4.1H-3L-4.8,-1.5Z",
  "M-4.5,-2.4L-2.4,-4.5L0,-2.1L2.4,-4.5L4.5,-2.4L2.1,0L4.5,2.4L2.4,4.5L0,2.1L-2.4,4.5L-4.5,2.4L-2.1,0Z",
];
// Every pair of a colour and a marker once.
const LOOKS = Array.from({ length: LIGHT.length * MARKS.length }, (_, k) => {
  const color = k % LIGHT.length, round = Math.floor(k / LIGHT.length);
  return { light: LIGHT[color], dark: DARK[color], mark: MARKS[(color + round) % MARKS.length] };
});
const INKS = {
  light: { ink: "#1f2328", soft: "#57606a", rule: "#e3e6ea", ground: "#ffffff", stale: "#9aa1a9" },
  dark: { ink: "#eceff2", soft: "#aab2bb", rule: "#3a4047", ground: "#1b1e22", stale: "#79818a" },
};
const MARGIN = { left: 54, right: 42, top: 12, bottom: 42 };

function node(tag, attributes = {}, ...children) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

function frame(width, height) {
  const { left, right, top, bottom } = MARGIN;
  const w = width - left - right, h = height - top - bottom;
  return { left, top, w, h, x: (u) => left + u * w, y: (v) => top + (1 - v) * h };
}

function trace(line, data, at) {
  const [u0, u1] = line.u, v0 = line.v[0];
  let path = "", pen = "M";
  for (let i = u0; i < u1; i++) {
    const v = data[v0 + i - u0];
    if (Number.isNaN(v)) { pen = "M"; continue; }
    path += pen + at.x(data[i]).toFixed(2) + "," + at.y(v).toFixed(2);
    pen = "L";
  }
  return path;
}

// Heights of the letters at the right end, pushed apart where they would overlap.
function endLetters(ends, low, high) {
  const gap = 13;
  const sorted = [...ends].sort((a, b) => a.y - b.y);
  for (let i = 1; i < sorted.length; i++) sorted[i].y = Math.max(sorted[i].y, sorted[i - 1].y + gap);
  const over = sorted.length ? sorted[sorted.length - 1].y - high : 0;
  if (over > 0) {
    for (let i = sorted.length - 1; i >= 0; i--) {
      const most = i === sorted.length - 1 ? high : sorted[i + 1].y - gap;
      sorted[i].y = Math.min(sorted[i].y, most);
    }
  }
  return sorted;
}

function drawPoint(point, at, color, look, fresh) {
  const [v, low, high] = point.v, x = at.x(point.u);
  const group = node("g", { class: fresh ? "point" : "point stale", "data-value": point.value });
  const bar = `M${x},${at.y(low).toFixed(2)}V${at.y(high).toFixed(2)}`;
  group.append(
    node("path", { d: bar, stroke: color, "stroke-width": 1.6, fill: "none" }),
    node("path", {
      d: look.mark, transform: `translate(${x.toFixed(2)},${at.y(v).toFixed(2)})`,
      fill: point.warning ? "none" : color, stroke: color, "stroke-width": 1.2,
    }),
  );
  group.append(node("title", {}, point.warning ?? `${point.of} = ${point.value} ± ${point.half}, Monte Carlo`));
  return group;
}

// picture.curves[i] has: limit, exact (lines or null), points, stale: {exact, points}, look.
function drawChart({ picture, data, old, width, height, theme, label }) {
  const at = frame(width, height), ink = INKS[theme], axis = picture.axis;
  const svg = node("svg", {
    xmlns: SVG, width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label,
    "font-family": "system-ui, sans-serif", "font-size": 12.5, class: "chart",
    "data-left": at.left, "data-top": at.top, "data-width": at.w, "data-height": at.h,
  });
  const clip = `clip-${Math.random().toString(36).slice(2)}`;
  svg.append(node("clipPath", { id: clip },
    node("rect", { x: at.left, y: at.top - 5, width: at.w, height: at.h + 10 })));
  const text = (x, y, words, more = {}) =>
    svg.append(node("text", { x, y, fill: ink.soft, ...more }, words));
  for (const [v, words] of axis.y_marks) {
    const y = at.y(v);
    svg.append(node("path", { d: `M${at.left},${y}h${at.w}`, stroke: ink.rule, fill: "none" }));
    text(at.left - 8, y + 4, words, { "text-anchor": "end", class: "tick-y" });
  }
  const crowded = at.w / axis.marks.length < 44;
  axis.marks.forEach(([u, words], i) => {
    const x = at.x(u);
    svg.append(node("path", { d: `M${x},${at.top}v${at.h}`, stroke: ink.rule, fill: "none" }));
    if (!crowded || i % 2 === 0) text(x, at.top + at.h + 18, words, { "text-anchor": "middle", class: "tick-x" });
  });
  text(at.left + at.w / 2, height - 6, axis.meaning.includes(axis.symbol)
    ? axis.meaning : `${axis.meaning}  ${axis.symbol}`, { "text-anchor": "middle", fill: ink.ink, class: "title-x" });
  const upright = { "text-anchor": "middle", fill: ink.ink, class: "title-y",
    transform: `translate(13,${at.top + at.h / 2}) rotate(-90)` };
  svg.append(node("text", upright, axis.y_label));

  const plot = node("g", { "clip-path": `url(#${clip})`, fill: "none", "stroke-linejoin": "round" });
  svg.append(plot);
  if (picture.floor) plot.append(node("path", { class: "floor", d: trace(picture.floor, data, at),
    stroke: ink.soft, "stroke-width": 1.6, "stroke-dasharray": "1.5 4", "stroke-linecap": "round" }));
  const mx = at.x(axis.marker);
  plot.append(node("path", { class: "marker", d: `M${mx},${at.top}v${at.h}`, stroke: ink.ink,
    "stroke-width": 1, opacity: 0.55 }));

  const ends = [];
  const pinsFirst = [...picture.curves].sort((a, b) => (a.pin === null) - (b.pin === null));
  pinsFirst.forEach((curve) => {
    const color = curve.look[theme], pinned = curve.pin !== null;
    const stroke = (kind, line, from, more) => plot.append(node("path", {
      class: kind, "data-curve": curve.id, d: trace(line, from, at), stroke: color,
      "stroke-width": (kind.startsWith("limit") ? 1.7 : 2.4) - (pinned ? 0.4 : 0), ...more,
    }));
    const had = old.get(curve.id) ?? {};
    if (curve.limit) stroke("limit", curve.limit, data,
      { "stroke-dasharray": "6 4", ...(curve.limit.whole ? {} : { opacity: 0.75 }) });
    if (curve.exact) stroke("exact", curve.exact, data, curve.exact.whole ? {} : { opacity: 0.75 });
    else if (had.exact) stroke("exact stale", had.exact, had.data, { opacity: 0.25 });
    const last = curve.exact?.whole || !curve.limit ? curve.exact : curve.limit;
    if (last) {
      const v = data[last.v[1] - 1];
      ends.push({ y: at.y(Math.min(Math.max(v, 0), 1)) + 4, color, letter: curve.letter });
    }
  });
  picture.curves.forEach((curve) => {
    const had = old.get(curve.id) ?? {};
    for (const point of had.points ?? []) {
      if (!curve.points.some((p) => Math.abs(p.u - point.u) < 1e-6))
        plot.append(drawPoint(point, at, ink.stale, curve.look, false));
    }
    for (const point of curve.points)
      plot.append(drawPoint(point, at, curve.look[theme], curve.look, true));
  });
  for (const { y, color, letter } of endLetters(ends, at.top, at.top + at.h + 8))
    text(at.left + at.w + 7, y, letter, { class: "end", fill: color, "font-weight": 700 });
  return svg;
}

function floorWords(picture) {
  return picture.axis.y.endsWith("S") ? "1/√n: one token" : "one token";
}

// The same picture to keep: on white, with the curves named below it.
function exportChart(options, lines) {
  const svg = drawChart({ ...options, theme: "light", old: new Map() });
  const { width, height } = options, full = height + 14 + 18 * (lines.length + 1);
  svg.setAttribute("height", full);
  svg.setAttribute("viewBox", `0 0 ${width} ${full}`);
  svg.prepend(node("rect", { width, height: full, fill: "#ffffff" }));
  const floor = options.picture.floor ? ` · dotted: ${floorWords(options.picture)}` : "";
  const points = options.picture.curves.some((curve) => curve.points.length) ? " · points: Monte Carlo ± 95 %" : "";
  const key = `solid: rows of n, exact · dashed: long rows, limit${floor}${points}`;
  [...lines, { words: key, color: INKS.light.soft }].forEach(({ words, color }, i) =>
    svg.append(node("text", { x: MARGIN.left, y: height + 18 + 18 * i, fill: color }, words)));
  return new XMLSerializer().serializeToString(svg);
}
