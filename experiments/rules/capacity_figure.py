"""Linear attention holds d keys, relu² ⅔d², softmax e^(d/2)

Against d and ‖q‖: other keys at SNR = 1, keys ~ N(0, I); dashed: average over rows

Left: against the dimension, with the query of unit length along the needle, for softmax and its top
8 of the length √d/2. Right: against the length of the query, at d = 16; homogeneous weights hold
the same whatever it is. Dashed: n = a*²/E a². Lines of softmax and identity: the n at which SNR > 1
in half of the rows, by the exact law of softmax and of χ². Points: the number of keys at which the
noise of half of 4096 drawn rows outweighs their needle; their 95 % error bars are smaller than the
markers. Half of E Σa² of softmax is in weights that the median row does not meet at ‖q‖ = √d/2, and
nearly all of it beyond: a longer query holds more, up to ln ½/ln Φ(√d) (dotted), where the needle
is the largest of all with chance ½. Below: keys held over that bound, which is one of every weight
that rises with the score; maps by threshold or rank have points alone, as no law of theirs is
known.

Alt text: Four line charts. Top left, keys held against dimension from 4 to 36, both axes
logarithmic: identity rises to 36, squared ReLU to 864, the fourth power to 15996 and softmax beyond
100 million, twice its dashed line; Monte Carlo points lie on the lines of softmax and identity. Top
right, keys held at 16 dimensions against the length of the query from a quarter to 4: flat lines
for identity, squared ReLU and the fourth power; softmax's dashed line rises to 2981 at 2 and falls
to 1 at 4, and its full line rises on to 17 thousand, towards a dotted line. Below, the same over
the dotted line, which is 1: points of sparsemax are highest, those of softmax's top 8 near 0.4 at
every dimension, above softmax's line, and those of entmax 1.5 fall from 0.8 to 0.3; all rise
towards 1 with the length of the query.
"""

from __future__ import annotations

import functools
import math
from dataclasses import replace

import numpy as np
from scipy.special import log_ndtr
from scipy.stats import chi2

from experiments.rules.first_passage import sample_capacity
from sparsity import plotting
from sparsity.exact_law.exact import exact
from sparsity.limit.long_rows import needle_capacity
from sparsity.report.figures.figure import Canvas, Context, Data, Figure
from sparsity.rows.row import Row
from sparsity.rows.steps import Needle
from sparsity.series import Point, Series

KERNELS = {"exp": "softmax", "power4": "s⁴", "relu2": "relu²", "identity": "identity"}
DIMS = np.unique(np.round(np.geomspace(4, 36, 13)).astype(int))
DRAWN_DIMS = (8, 12, 16, 20)
QUERIES = np.geomspace(0.25, 4.0, 17)  # beyond, the exact law is not resolved to 1e-3
DRAWN_QUERIES = (0.5, 1.0, 2.0, 3.0, 4.0)
MAPS = {"sparsemax": "sparsemax", "entmax1.5": "entmax 1.5", "topk:8": "top 8"}
MAP_DIMS = (4, 8, 16, 36)
AT = 16  # the dimension at the right
ROWS = 4096  # drawn for a point: its standard error is then 0.4 % to 2.5 %
BOUND = "ln ½/ln Φ(√d)"


def _query(kernel: str, dim: int) -> float:
    """Return the length of the query at the left: the best one for softmax."""
    return math.sqrt(dim) / 2 if kernel in ("exp", "topk:8") else 1.0


def _log_most(dim: float) -> float:
    """Return ln of the n at which the needle has the largest score with chance ½, Φ(√d)^n."""
    # Its score is √d standard deviations of the others'.
    return math.log(math.log(2)) - math.log(-float(log_ndtr(math.sqrt(dim))))


@functools.lru_cache(256)  # places that are drawn lie on the line, too
def _log_held(kernel: str, dim: int, query: float) -> float:
    """Return ln of the other keys n at which SNR > 1 in half of the rows."""
    # SNR is the needle's a² over Σa² of the others. Under identity, with a query of length t along
    # the needle, these are t²·d and t²·χ²_n, so that P(SNR > 1) = P(χ²_n < d).

    @functools.cache  # an exact law each, and both ends of the last step are asked twice
    def chance(n: float) -> float:
        if kernel == "identity":
            return float(chi2.cdf(dim, n))
        row = Row("exp", gamma=query, steps=(Needle(query * math.sqrt(dim)),))
        return float(exact(row, length=int(n) + 1, of="needle_snr_above:1").value)

    # Half of the rows hold more than the annealed n of the best query up to this one.
    least = needle_capacity(kernel, dim=dim, query=min(query, math.sqrt(dim) / 2)).value
    low = high = max(1, int(0.8 * least))
    while chance(high) > 0.5:
        low, high = high, high + high // 4 + 1  # by more the chance would be too small to resolve
    # Bisection to 0.4 % of n, and a straight line between: the chance hardly bends over so little.
    while high - low > max(1, low // 2**8):
        middle = (low + high) // 2
        low, high = (middle, high) if chance(middle) > 0.5 else (low, middle)
    above, below = chance(low), chance(high)
    return math.log(low + (above - 0.5) / (above - below) * (high - low))


def _point(context: Context, kernel: str, dim: int, query: float) -> Point:
    seed = context.sampling("capacity", kernel, dim, query).seed
    found = sample_capacity(kernel, dim=dim, query=query, rows=ROWS, seed=seed)
    return Point(found.value, found.stderr, found.rows, found.seed, found.method)


def data(context: Context) -> Data:
    """Compute capacities against d, then t = ‖q‖ at one d; annealed ones, then those of rows."""
    at_dims = [(float(d), int(d), None) for d in DIMS]
    at_queries = [(t, AT, t) for t in QUERIES.tolist()]
    found = []
    for places, drawn in ((at_dims, DRAWN_DIMS), (at_queries, DRAWN_QUERIES)):
        x = [place[0] for place in places]
        end = "d" if drawn is DRAWN_DIMS else "t"  # of a label: what it is against
        for kernel, label in KERNELS.items():
            where = [(d, _query(kernel, d) if t is None else t) for _, d, t in places]
            laws = [needle_capacity(kernel, dim=d, query=t).log_value for d, t in where]
            found.append(Series.line(f"{label}, on the average, {end}", x, laws))
        for kernel in ("exp", "identity"):
            where = [(d, _query(kernel, d) if t is None else t) for _, d, t in places]
            logs = [_log_held(kernel, d, t) for d, t in where]
            line = Series.line(f"{KERNELS[kernel]}, half of the rows, {end}", x, logs)
            points, expected = {}, []
            for place in drawn:
                d, t = (place, _query(kernel, int(place))) if drawn is DRAWN_DIMS else (AT, place)
                points[float(place)] = _point(context, kernel, int(d), float(t))
                expected.append(_log_held(kernel, int(d), float(t)))
            found.append(line.with_points(expected, points))
    # Maps differ by less than their distance to the bound: they are drawn over it, beside softmax.
    softmax = [series for series in found if series.label.startswith("softmax, half of the rows")]
    for held, dims in zip(softmax, (DIMS, [AT] * len(QUERIES)), strict=True):
        lines = held.x[~held.sampled]
        logs = held.log[~held.sampled] - [_log_most(d) for d in dims]
        found.append(Series.line(f"{held.label}, over the bound", lines, logs))
    for name, label in MAPS.items():
        at_dims = {float(d): _point(context, name, d, _query(name, d)) for d in MAP_DIMS}
        at_queries = {t: _point(context, name, AT, t) for t in DRAWN_QUERIES}
        for end, points in (("d", at_dims), ("t", at_queries)):
            shares = {}
            for x, point in points.items():
                most = math.exp(_log_most(x if end == "d" else AT))
                share, stderr = point.estimate / most, point.stderr / most
                shares[x] = point._replace(estimate=share, stderr=stderr)
            named = Series.line(f"{label}, half of the rows, {end}, over the bound", [], [])
            found.append(named.with_points([np.nan] * len(shares), shares))
    ends = QUERIES[[0, -1]]
    return tuple(map(_named, (*found, Series.line(BOUND, ends, [_log_most(AT)] * 2))))


def _named(line: Series) -> Series:
    """Return the curve with the names of its columns, read from its label."""
    kernel, _, rest = line.label.partition(", ")
    if line.label == BOUND:
        return line.named("query", "capacity", "tokens", dim=AT)
    names = {label: name for name, label in (KERNELS | MAPS).items()}
    of = {"kernel": names[kernel], "rows": "average" if "average" in rest else "half"}
    over = "over the bound" in rest
    what = ("capacity/bound", "1") if over else ("capacity", "tokens")
    by_dim = rest.removesuffix(", over the bound").endswith(", d")
    return line.named("dim", *what, **of) if by_dim else line.named("query", *what, dim=AT, **of)


def draw(data: Data, canvas: Canvas) -> None:
    """Draw capacities against the dimension at the left, and against the query at the right."""
    count = len(KERNELS)
    looks = plotting.LOOKS[:count]
    left = plotting.panel(canvas, (0.09, 0.53, 0.37, 0.335), "keys held against dimension d")
    left.set(xscale="log", yscale="log", xlim=(3.6, 39), ylim=(1, 3e8))
    plotting.plain_ticks(left.xaxis, (4, 8, 16, 32))
    plotting.plain_ticks(left.yaxis, (1, 1e2, 1e4, 1e6, 1e8))
    right = plotting.panel(canvas, (0.66, 0.53, 0.23, 0.335), f"against the query, d = {AT}")
    right.set(xscale="log", yscale="log", xlim=(0.23, 4.4), ylim=(1, 1e5))
    plotting.plain_ticks(right.xaxis, (0.25, 0.5, 1, 2, 4))
    plotting.plain_ticks(right.yaxis, (1, 10, 100, 1e3, 1e4))
    for axes, part in ((left, data[:6]), (right, data[6:12])):
        annealed, (softmax, identity) = part[:count], part[count:]
        for series, look in zip(annealed, looks, strict=True):
            axes.plot(series.x, series.theory, color=look.color, lw=1.6, ls=plotting.DASHED)
        plotting.curves(axes, (softmax, identity), [looks[0], looks[-1]])
        named = zip((softmax, *annealed[1:]), KERNELS.values(), strict=True)
        plotting.name_ends(axes, [replace(s, label=name) for s, name in named], looks)
    plotting.key(left, line="half of the rows", loc="upper left")
    most = data[-1]
    right.plot(most.x, most.theory, color=plotting.GREY, lw=1.4, ls=":", zorder=3)
    plotting.inline(right, 0.27, 1.45 * most.theory[0], most.label, plotting.GREY, ha="left")
    _draw_shares(data[12:-1], canvas, looks[0])


def _draw_shares(data: Data, canvas: Canvas, softmax: plotting.Look) -> None:
    """Draw, in the lower row, keys held over their bound: softmax as a line, maps as points."""
    left = plotting.panel(canvas, (0.09, 0.08, 0.37, 0.335), f"keys held over {BOUND}")
    left.set(xscale="log", xlim=(3.6, 39), xlabel="dimension  d")
    plotting.plain_ticks(left.xaxis, (4, 8, 16, 32))
    right = plotting.panel(canvas, (0.66, 0.08, 0.23, 0.335), f"the same, d = {AT}")
    right.set(xscale="log", xlim=(0.23, 4.4), xlabel="query  ‖q‖")
    plotting.plain_ticks(right.xaxis, (0.25, 0.5, 1, 2, 4))
    looks = plotting.LOOKS[4:]
    # Of `data` the first two are lines of softmax, then each map has its points against d and t.
    sides = (
        (left, 0.05, (0.1, 0.2, 0.5, 1), data[0], data[2::2]),
        (right, 0.004, (0.01, 0.1, 0.2, 0.5, 1), data[1], data[3::2]),
    )
    for axes, least, ticks, line, points in sides:
        axes.set(yscale="log", ylim=(least, 1.4))
        plotting.plain_ticks(axes.yaxis, ticks)
        axes.axhline(1.0, color=plotting.GREY, lw=1.4, ls=":")
        plotting.curve(axes, line, softmax)
        plotting.curves(axes, points, looks, line=False)
        plotting.name_ends(axes, [replace(line, label="softmax")], [softmax])
    named = zip(MAPS.values(), looks, strict=True)
    plotting.key(left, line="half of the rows", points=named, loc="lower left")


FIGURE = Figure.from_docstring("capacity", data, draw, __doc__, size=(7.2, 7.4))
