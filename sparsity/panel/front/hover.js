// The values of a curve under the pointer: a picture and a place go in, words come out.

const REACH = 36; // pixels from a curve, beyond which none is meant

// What stands at a place of an axis, 0 at its low end and 1 at its high one.
function valueAt(scale, [low, high], place) {
  if (scale === "log") return low * (high / low) ** place;
  if (scale === "nines") return 1 - (1 - low) * ((1 - high) / (1 - low)) ** place;
  return low + place * (high - low);
}

// Every place with a value of a curve: the nodes of its lines, and its sampled points.
function placesOf(curve, data, u) {
  const found = curve.points.map((point) => ({ kind: "sample", u: point.u, v: point.v[0], point }));
  for (const kind of ["exact", "limit"]) {
    const line = curve[kind];
    if (!line) continue;
    const at = (name, i) => data[line[name][0] + i], last = line.u[1] - line.u[0] - 1;
    if (last === 1) { // a level line, which has a value everywhere
      found.push({ kind, u, v: at("v", 0), bound: at("bound", 0) });
      continue;
    }
    for (let i = 0; i <= last; i++)
      found.push({ kind, u: at("u", i), v: at("v", i), bound: at("bound", i) });
  }
  return found.filter(({ v }) => v >= 0 && v <= 1);
}

// The place nearest to the pointer; null where no curve is near. Where several are, a sample is
// meant before the exact law, and that before the limit: pixels that count as nearer.
const FAVOURED = { sample: 10, exact: 6, limit: 0 };

function nearestPlace(picture, data, at, x, y) {
  let best = REACH, found = null;
  for (const curve of picture.curves)
    for (const place of placesOf(curve, data, Math.min(Math.max((x - at.left) / at.w, 0), 1))) {
      const away = Math.hypot(at.x(place.u) - x, at.y(place.v) - y) - FAVOURED[place.kind];
      if (away < best) [best, found] = [away, { ...place, curve }];
    }
  return found;
}

// The place after a step along a curve (by ±1), or on the next curve at about the same x.
function steppedPlace(picture, data, now, along, across) {
  const curves = picture.curves.filter((curve) => placesOf(curve, data, 0.5).length);
  if (!curves.length) return null;
  const within = (i, list) => Math.min(Math.max(i, 0), list.length - 1);
  const before = curves.findIndex((curve) => curve.id === now?.curve.id);
  const curve = curves[within((before < 0 ? 0 : before) + across, curves)];
  // One kind at a time: the exact law where there is one.
  const places = placesOf(curve, data, now?.u ?? 0.5), kind = places.some((p) => p.kind === "exact") ? "exact" : places[0].kind;
  const line = places.filter((place) => place.kind === kind);
  const apart = line.map(({ u }) => Math.abs(u - (now?.u ?? picture.axis.marker)));
  const here = apart.indexOf(Math.min(...apart));
  return { ...line[within(here + (now ? along : 0), line)], curve };
}

// What is said of a place: the curve, x, and the value with its bound or its error bar.
function placeWords({ axis }, { curve, kind, u, v, bound, point }) {
  const x = point ? point.x : valueAt(axis.scale, axis.ends, u);
  const value = point ? point.value : valueAt(axis.y_scale, axis.y_ends, v);
  const words = [`${curve.letter}  ${curve.title}`, `${axis.label} = ${show(x)}`];
  if (point) {
    words.push(`${point.of} = ${show(value)}${point.half === null ? "" : ` ± ${show(point.half, 2)}`}`,
      point.warning ?? `Monte Carlo, 95 %, ${show(point.samples, 3)} samples`);
    return words;
  }
  const exact = kind === "exact";
  words.push(`${exact ? axis.drawn : axis.long} = ${show(value)}`,
    exact ? "rows of n, exact law" : "long rows, the limit",
    !(bound >= 0) ? "error not known yet" :
    exact ? `relative error ${show(bound, 2)}, estimated` : `relative error ≤ ${show(bound, 2)}`);
  return words;
}
