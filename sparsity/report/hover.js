// Values on hover. The numbers are the rows of the CSV that a figure's link saves; where they lie is
// said by `data-places`, as sparsity/report/figures/figure.py writes it. Without this script a figure is a
// picture, and the link is there all the same.

(() => {
  const NEAR = 40; // points from a curve, beyond which none is meant

  function rowsOf(figure) {
    const code = figure.querySelector("a[href^='data:text/csv']").href.split("base64,")[1];
    const text = new TextDecoder().decode(Uint8Array.from(atob(code), (c) => c.charCodeAt(0)));
    const cells = (line) => [...line.matchAll(/("(?:[^"]|"")*"|[^,]*)(?:,|$)/g)]
      .map(([, cell]) => (cell[0] === '"' ? cell.slice(1, -1).replaceAll('""', '"') : cell));
    const [head, ...rows] = text.trim().split(/\r?\n/).map(cells);
    return rows.map((row) => Object.fromEntries(head.map((name, i) => [name, row[i]])));
  }

  // A row of the line where a sample's row has the same x says nothing more.
  const counts = (row, i, all) => row.estimate
    || ![all[i - 1], all[i + 1]].some((other) => other?.estimate && other.x === row.x);

  function along([scale, low, high], value) {
    const at = scale === "log" ? Math.log : (x) => x;
    return value === "" ? NaN : (at(Number(value)) - at(low)) / (at(high) - at(low));
  }

  // Every point of every curve: where it lies in the drawing, and what it says.
  function pointsOf(figure) {
    const rows = rowsOf(figure);
    return JSON.parse(figure.dataset.places).flatMap(({ box: [left, top, width, height], name, x, y, curves }) =>
      curves.map(([first, count, color, lying]) => rows.slice(first, first + count).filter(counts).map((row) => {
        const drawn = row.theory || row.estimate; // of a map that has no law
        const u = along(x, lying ? drawn : row.x), v = along(y, lying ? row.x : drawn);
        return { row, name, color, at: [left + u * width, top + (1 - v) * height],
          inside: u >= -0.01 && u <= 1.01 && v >= -0.01 && v <= 1.01 };
      }).filter((point) => point.inside)));
  }

  function show(value, digits = 5) {
    const [mantissa, power] = Number(value).toPrecision(digits).split("e");
    const plain = String(Number(mantissa)).replace("-", "−");
    const raised = [...(power ?? "").replace("+", "")].map((c) => "⁰¹²³⁴⁵⁶⁷⁸⁹"[c] ?? "⁻").join("");
    return power ? `${plain} × 10${raised}` : plain;
  }

  function words({ row, name }) {
    const lines = [row.series, `${name.replace(/\s+/g, " ")}: ${show(row.x)}`];
    if (row.theory) lines.push(`theory: ${show(row.theory)}`);
    if (row.estimate) lines.push(`Monte Carlo: ${show(row.estimate)} ± ${show(1.959964 * row.stderr, 2)} (95 %)`);
    return lines;
  }

  for (const figure of document.querySelectorAll("figure[data-places]")) {
    const plate = figure.querySelector(".plate"), drawing = plate.querySelector("img");
    let curves, shown; // shown: [number of the curve, number of the point]
    const spot = document.createElement("span"), values = document.createElement("div");
    [spot.className, values.className] = ["spot", "values"];
    values.setAttribute("role", "status");
    spot.hidden = values.hidden = true;
    plate.append(spot, values);
    plate.setAttribute("aria-label", `${plate.getAttribute("aria-label")}; arrow keys read its values`);

    const scale = () => drawing.getBoundingClientRect().width / (0.75 * drawing.naturalWidth); // pixels a point
    const read = () => { curves ??= pointsOf(figure).filter((curve) => curve.length); };
    const hide = () => { spot.hidden = values.hidden = true; };

    function tell(curve, point) {
      shown = [curve, point];
      const found = curves[curve][point], k = scale();
      const frame = plate.getBoundingClientRect(), box = drawing.getBoundingClientRect();
      const left = box.left - frame.left - plate.clientLeft + plate.scrollLeft + found.at[0] * k;
      const top = box.top - frame.top - plate.clientTop + found.at[1] * k;
      spot.hidden = values.hidden = false;
      Object.assign(spot.style, { left: `${left}px`, top: `${top}px`, borderColor: found.color });
      values.replaceChildren(...words(found).map((line) => {
        const made = document.createElement("div");
        made.textContent = line;
        return made;
      }));
      const last = plate.scrollLeft + plate.clientWidth - values.offsetWidth - 4;
      const under = top + 14 + values.offsetHeight < plate.clientHeight;
      values.style.left = `${Math.max(plate.scrollLeft, Math.min(left + 10, last))}px`;
      values.style.top = `${under ? top + 14 : Math.max(top - 14 - values.offsetHeight, 0)}px`;
    }

    function point(event) {
      read();
      const box = drawing.getBoundingClientRect(), k = scale();
      const at = [(event.clientX - box.left) / k, (event.clientY - box.top) / k];
      let best = NEAR;
      let found;
      curves.forEach((curve, i) => curve.forEach((each, j) => {
        const sample = each.row.estimate ? 4 : 0; // which is meant where one is near
        const away = Math.hypot(each.at[0] - at[0], each.at[1] - at[1]) - sample;
        if (away < best) [best, found] = [away, [i, j]];
      }));
      if (found) tell(...found);
      else hide();
    }

    function step(event) {
      const by = { ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowDown: [1, 0], ArrowUp: [-1, 0] }[event.key];
      if (event.key === "Escape") hide();
      if (!by || event.target !== plate) return;
      event.preventDefault();
      read();
      const within = (i, list) => Math.min(Math.max(i, 0), list.length - 1);
      if (!shown) tell(0, 0);
      else if (by[1]) tell(shown[0], within(shown[1] + by[1], curves[shown[0]]));
      else {
        const next = within(shown[0] + by[0], curves), before = curves[shown[0]][shown[1]].at[0];
        const apart = curves[next].map(({ at }) => Math.abs(at[0] - before));
        tell(next, apart.indexOf(Math.min(...apart)));
      }
    }

    plate.addEventListener("pointermove", point);
    plate.addEventListener("pointerdown", point);
    plate.addEventListener("pointerleave", hide);
    plate.addEventListener("keydown", step);
    plate.addEventListener("blur", hide);
  }
})();
