"""The search of `design`: the roots in the range of a free number.

    FreeNumber ──> a grid over its range ──> extremes between looks ──> each change of sign: brentq
    known_trend ──> bisection on the same grid: one root, and a reach that is known beforehand
    sink_logit  ──> the log odds of a sink's mass, without a grid

What turns twice between two looks is not found; the answer says how many looks there were, and over
which range.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Unpack

import numpy as np
from scipy.optimize import brentq, minimize_scalar

from sparsity.checks import check_number
from sparsity.design_search.answer import Reach
from sparsity.design_search.free_numbers import (
    ALIKE_TEMPERATURES,
    BETA,
    GAMMA,
    LOGIT,
    SHARPENING,
    THRESHOLD,
    FreeNumber,
)
from sparsity.errors import InputError, TooRare
from sparsity.exact_law import engine
from sparsity.exact_law.exact import exact
from sparsity.kernels import Kernel, decayed, exp, identity, relu2
from sparsity.kernels.parameters import LENGTH, One, Several, names_parameters
from sparsity.limit.long_rows import log_sums
from sparsity.quantities import Quantity, n_eff, sink_mass
from sparsity.rows.classes import classed
from sparsity.rows.row import OfRows, Row, row_of
from sparsity.rows.steps import SinkLogit

_LOOKS_AT_AN_EXTREME = 25  # at most; the search then knows its place to 1e-4 of a step of the grid
_LOG_OF_NOTHING = -700.0  # the logarithm of what is about 0, near the end of float64
_ROUNDING_OF_LOG = 1e-11  # differences of a logarithm that are below are rounding
# How far from where a sink begins to matter its logit is looked for: e^(−1e4) is 0 in float64.
_FARTHEST_LOGIT = 1e4
# Whether a quantity rises (+1) or falls (−1) as softmax gets sharper. A larger γ raises every
# p_j = e^(γx_j)/Σ to the same power > 1, up to the sum: the new p majorizes the old one, in every
# row. S, n_eff and entropy are Schur-concave, and the others Schur-convex (Marshall & Olkin).
BY_SHARPNESS = {
    **{"S": -1, "n_eff": -1, "entropy": -1, "participation": 1, "max_weight": 1, "gini": 1},
    **{"hoyer": 1, "top_k_mass": 1},  # of a family all
}


class Trend(NamedTuple):
    """How a quantity is known to go with a free number, and all that it can be.

    Args:
        sign: +1 where it rises, −1 where it falls.
        reach: what it can be, on and off the grid.
        ends: the range of x that is looked at.
    """

    sign: int
    reach: Reach
    ends: tuple[float, float]


class Solutions(NamedTuple):
    """Where a quantity is what is wanted, at one length.

    Args:
        values: the numbers that give the wanted value, ascending.
        reach: what the quantity can be.
        looks: how many numbers were looked at; 0 where the quantity is known to rise or fall.
    """

    values: tuple[float, ...]
    reach: Reach
    looks: int


def sharpness(quantity: Quantity) -> int:
    """Return 1 for what rises as softmax gets sharper, −1 for what falls, 0 where neither."""
    return BY_SHARPNESS.get(quantity.name.partition(":")[0], 0)


def known_trend(row: Row, free: FreeNumber, quantity: Quantity, n: int) -> Trend | None:
    """Return how the quantity goes with what is free; None where it may turn."""
    kernel, ends = row.kernel, free.ends(row, n)
    if free is THRESHOLD:
        highest = free.asked(quantity, free.number(ends[0]))
        top = float(exact(row, length=n, of=highest).value)
        bottom = 0.0
        with contextlib.suppress(InputError):  # not resolved: as good as 0; weights of 0 lie below
            lowest = free.asked(quantity, free.number(ends[1]))
            bottom = float(exact(row, length=n, of=lowest).value)
        why = f"{bottom:.6g} at {free.number(ends[1]):.3g}, {top:.6g} at {free.number(ends[0]):.3g}"
        return Trend(-1, Reach(bottom, top, False, True, why), ends)
    if kernel is exp and free in SHARPENING and sharpness(quantity):
        return _trend_of_temperature(row, free, quantity, n)
    if row.steps or not isinstance(kernel, Kernel):
        return None
    if kernel is exp and free is GAMMA and sharpness(quantity):
        sign = sharpness(quantity)
        least, most = quantity.ends(n)
        uniform, one_hot = (least, most)[::sign]
        why = f"{one_hot:.6g} for γ → ∞, {uniform:.6g} for γ → 0"
        return Trend(sign, Reach(least, most, False, False, why), ends)
    if quantity is not n_eff:
        return None
    if kernel is decayed:
        why = "1 for λ → 0, all of them at λ = 1"
        return Trend(1, Reach(1.0, n, False, True, why), ends)
    if kernel not in (relu2, identity) or free not in (BETA, GAMMA):
        return None
    # A power of the score is homogeneous: γ is a factor on every weight, and only β/γ counts.
    centre = float(exact(kernel, length=n, gamma=1.0, beta=0.0).value)
    floor = f"S ≥ √(2/π) whatever the bias, a floor of {centre:.7g} tokens (2n/π in long rows)"
    if free is BETA:
        if kernel is identity:
            return Trend(1, Reach(centre, n, True, False, floor), (0.0, ends[1]))
        why = "1 for β/γ → −∞, all of them for β/γ → ∞"
        return Trend(1, Reach(1.0, n, False, False, why), ends)
    if row.beta == 0:  # it does not depend on γ at all
        return None
    about = math.log(abs(row.beta))
    ends = about - math.log(1e3), about + math.log(1e3)
    if kernel is relu2 and row.beta < 0:
        why = f"1 for γ → 0, with this bias at most {centre:.7g} tokens, for γ → ∞"
        return Trend(1, Reach(1.0, centre, False, False, why), ends)
    why = floor if kernel is identity else f"without a negative bias a floor of {centre:.7g} tokens"
    return Trend(-1, Reach(centre, n, False, False, why), ends)


def _trend_of_temperature(row: Row, free: FreeNumber, quantity: Quantity, n: int) -> Trend | None:
    """Return how the quantity goes with the slope or the scale of a temperature.

    The far end of its range is a row of one token, whose law takes seconds: it is not looked at.
    """
    ends = free.ends(row, n)
    low, high = (free.set_in(row, free.value(row, x)) for x in ends)
    factors = [low.tokens(n).gamma[0], high.tokens(n).gamma[0]]
    alike = all(isinstance(step, ALIKE_TEMPERATURES) for step in row.steps)
    if not alike or factors[0] == factors[1]:  # a FloorLog changes nothing in short rows
        return None
    sign, (least, most) = sharpness(quantity), quantity.ends(n)
    start, one_hot = float(exact(low, length=n, of=quantity).value), most if sign > 0 else least
    why = f"{one_hot:.6g} for {free.name} → ∞, {start:.6g} at {free.value(row, ends[0]):.3g}"
    bottom, top = sorted((start, one_hot))
    return Trend(sign, Reach(bottom, top, sign > 0, sign < 0, why), ends)


def solve_lengths(
    row: Row,
    free: FreeNumber,
    quantity: Quantity,
    wanted: float,
    lengths: Sequence[int],
    progress: Callable[[int, int], None] | None = None,
) -> list[Solutions]:
    """Solve for the wanted value at each length.

    Args:
        row: the row.
        free: what is free in it.
        quantity: the quantity.
        wanted: its value.
        lengths: all n.
        progress: called with (looks done, looks in all as far as is known), for each range anew.

    Raises:
        InputError: the row has no exact law anywhere on the grid of some length.
    """
    if free is LOGIT and quantity is sink_mass:
        return [_solve_sink_mass(free.without(row), n, wanted) for n in lengths]
    solved: dict[int, Solutions] = {}
    trends = {n: known_trend(row, free, quantity, n) for n in lengths}
    ranges = {n: trend.ends if trend else free.ends(row, n) for n, trend in trends.items()}
    for ends in dict.fromkeys(ranges.values()):  # lengths of one range are looked at together
        together = [n for n, range_ in ranges.items() if range_ == ends]
        looks = _Looks(row, free, quantity, together, free.grid(ends).tolist(), progress)
        for n in together:
            trend = trends[n]
            search = _Search(looks, n, wanted)
            solved[n] = search.by_grid() if trend is None else search.by_trend(trend)
    return [solved[n] for n in lengths]


class _Looks:
    """The logarithm of a quantity at values of a free number, on the grid for all lengths at once.

    Args:
        row: the row.
        free: what is free in it.
        quantity: the quantity.
        lengths: all n.
        grid: the values of x that are looked at.
        progress: told how many looks were taken, and how many the grid has at least.
    """

    def __init__(
        self,
        row: Row,
        free: FreeNumber,
        quantity: Quantity,
        lengths: Sequence[int],
        grid: list[float],
        progress: Callable[[int, int], None] | None,
    ) -> None:
        self.row, self.free, self.quantity, self.lengths = row, free, quantity, lengths
        self.grid, self.progress, self.taken = grid, progress, 0
        self.refusals: dict[int, InputError] = {}  # the first of each length
        self._on_grid: dict[float, dict[int, float]] = {}

    def value(self, x: float) -> float:
        """Return the free number at x."""
        return self.free.value(self.row, x)

    def log_at(self, x: float, n: int) -> float:
        """Return the logarithm at one length; NaN where there is no law."""
        if x not in self.grid:
            return self._logs(x, [n])[0]
        if x not in self._on_grid:
            logs = self._logs(x, self.lengths)
            self._on_grid[x] = dict(zip(self.lengths, logs, strict=True))
        return self._on_grid[x][n]

    def _logs(self, x: float, lengths: Sequence[int]) -> list[float]:
        # One call for all lengths, which share the transforms of a token: they cost little more
        # than one. Rows too rare to have a mean count as about 0.
        value = self.value(x)
        row, quantity = self.free.set_in(self.row, value), self.free.asked(self.quantity, value)
        if self.progress is not None:
            self.progress(self.taken, max(self.taken, len(self.grid)))
            self.taken += 1
        try:
            law = exact(row, length=np.array(lengths), of=quantity)
            return np.maximum(law.log_value, _LOG_OF_NOTHING).tolist()
        except InputError as error:
            if len(lengths) > 1:  # of one of them; each then speaks for itself
                return [self._logs(x, [n])[0] for n in lengths]
            self.refusals.setdefault(lengths[0], error)
            return [_LOG_OF_NOTHING if isinstance(error, TooRare) else math.nan]


class _Search:
    """The search at one length.

    Args:
        looks: the quantity.
        n: the length.
        wanted: the wanted value.
    """

    def __init__(self, looks: _Looks, n: int, wanted: float) -> None:
        self.looks, self.n, self.wanted, self.log_wanted = looks, n, wanted, math.log(wanted)
        self.seen: dict[float, float] = {}  # x -> the logarithm less the wanted one

    def excess(self, x: float) -> float:
        """Return the logarithm less the wanted one; NaN where there is no law."""
        if x not in self.seen:
            self.seen[x] = self.looks.log_at(x, self.n) - self.log_wanted
        return self.seen[x]

    def by_trend(self, trend: Trend) -> Solutions:
        """Solve by one root, in the cell of the grid that bisection finds."""
        reach, grid = trend.reach, self.looks.grid
        if self.wanted not in reach:
            return Solutions((), reach, 0)
        if self.wanted in (reach.low, reach.high):  # which is attained, at an end of the grid
            end = grid[0 if (self.wanted == reach.low) == (trend.sign > 0) else -1]
            return Solutions((self.looks.value(end),), reach, 0)
        low, high = 0, len(grid) - 1
        while high - low > 1:
            middle = (low + high) // 2
            # What is not resolved, NaN, lies at the upper end.
            below = trend.sign * self.excess(grid[middle]) < 0
            low, high = (middle, high) if below else (low, middle)
        for x in grid[low], grid[high]:  # the ends, which bisection did not look at
            self.excess(x)
        return Solutions(self._roots(), reach, 0)

    def by_grid(self) -> Solutions:
        """Solve between all looks, with further ones where the grid shows an extreme."""
        for x in self.looks.grid:
            self.excess(x)
        if not self._known():
            raise self.looks.refusals[self.n]
        if not self.looks.free.whole:  # whole numbers are few enough for bisection
            self._look_at_extremes()
        known = self._known()
        first, last = self.looks.value(min(known)), self.looks.value(max(known))
        why = f"for {self.looks.free.name} from {first:.3g} to {last:.3g}"
        low, high = (math.exp(end(known.values()) + self.log_wanted) for end in (min, max))
        reach = Reach(low, high, True, True, f"{why} ({len(known)} values tried)")
        return Solutions(self._roots(), reach, len(known))

    def _known(self) -> dict[float, float]:
        """Return what was seen where there is a law, ascending in x."""
        return {x: self.seen[x] for x in sorted(self.seen) if math.isfinite(self.seen[x])}

    def _look_at_extremes(self) -> None:
        """Look where two crossings may hide: at a minimum above what is wanted, a maximum below."""
        known = list(self._known().items())
        for (left, y), (_, here), (right, z) in zip(known, known[1:], known[2:], strict=False):
            sign = math.copysign(1.0, here)
            nearest, farthest = sorted((sign * y, sign * z))
            if not sign * here <= nearest or farthest - sign * here < _ROUNDING_OF_LOG:
                continue

            def height(x: float, sign: float = sign) -> float:
                off = sign * self.excess(float(x))
                return off if math.isfinite(off) else math.inf

            # Every look is kept in `seen`: the result of the search itself is not needed.
            options = {"maxiter": _LOOKS_AT_AN_EXTREME}
            minimize_scalar(height, bounds=(left, right), method="bounded", options=options)

    def _roots(self) -> tuple[float, ...]:
        """Return the numbers that give the wanted value: those between two looks of other sign."""
        roots, known = set(), list(self._known().items())
        between = _nearest_whole if self.looks.free.whole else _root
        for (low, y), (high, z) in itertools.pairwise(known):
            hits = [x for x, off in ((low, y), (high, z)) if abs(off) <= _ROUNDING_OF_LOG]
            if len(hits) == 2:  # a plateau at the wanted value: nothing is to be solved
                continue
            if hits:
                roots.update(hits)
            elif (y > 0) != (z > 0):
                roots.add(between(self.excess, low, high))
        return tuple(self.looks.value(x) for x in sorted(roots) if math.isfinite(x))


def _root(excess: Callable[[float], float], low: float, high: float) -> float:
    """Return the crossing between two looks; NaN where there is no law, or a jump in it."""
    try:
        root: Any = brentq(excess, low, high, xtol=1e-13)
    except ValueError:  # a refusal between them
        return math.nan
    # Brent's method ends at a jump as well, where the value is not the wanted one.
    return float(root) if abs(excess(float(root))) < 1e-6 else math.nan


def _nearest_whole(excess: Callable[[float], float], low: float, high: float) -> float:
    """Return the log of the whole number between two at which the excess is smallest.

    Bisection over whole numbers: a crossing in between has no number, and the nearer side is taken.
    """
    first, last = round(math.exp(low)), round(math.exp(high))
    above = excess(low) >= 0
    while last - first > 1:
        middle = (first + last) // 2
        inside = (excess(math.log(middle)) >= 0) == above
        first, last = (middle, last) if inside else (first, middle)
    return min(math.log(first), math.log(last), key=lambda x: abs(excess(x)))


def _solve_sink_mass(row: Row, n: int, wanted: float) -> Solutions:
    """Solve for the logit of a sink: it takes any share that zero rows and other sinks leave."""
    check_number("sink_mass", wanted, "must be between 0 and 1", lambda x: 0 < x < 1)
    # A logit of −∞ still takes the rows that are all zero besides, and other sinks keep theirs.
    taken = 0.0
    with contextlib.suppress(InputError):  # no other sink
        taken = float(exact(row, length=n, of=sink_mass).value)
    low = 1 - float(exact(row, length=n).p_nonzero) * (1 - taken)
    reach = Reach(low, 1.0, False, False, "for logit from −∞ to ∞")
    try:
        return Solutions((float(sink_logit(wanted, row, length=n)),), reach, 0)
    except InputError as error:
        if error.argument != "mass":  # else it is out of reach
            raise
        return Solutions((), reach, 0)


def _typical_total(row: Row, n: int) -> tuple[float, float]:
    """Return about the log of a typical row's total weight, and how far to look from it, ≥ 1.

    It is log E Σ − ½(g − √(2 ln n))₊², that of log-normal weights: beyond g = √(2 ln n) the few
    largest are all there is, and E Σ is that of rows which never occur. The largest, and with it
    the total, then varies by about g/√(2 ln n).
    """
    (first, _), (second, _) = log_sums(classed(row, n), (1, 2))
    spread = math.sqrt(max(second - 2 * first + math.log(n), 0.0))
    edge = math.sqrt(2 * math.log(n))
    return first - max(spread - edge, 0.0) ** 2 / 2, max(spread / max(edge, 1.0), 1.0)


def _solve_sink_logit(mass: float, row: Row, n: int) -> float:
    """Return the logit at one length; what rises in it are the log odds of the mass."""
    odds = math.log(mass) - math.log1p(-mass)

    @functools.cache
    def excess(b: float) -> float:
        (sinks, _), (others, _) = engine.shares(row.then(SinkLogit(b)), n)
        # Log odds are nearly linear in b, where the mass itself is flat at either end.
        with np.errstate(divide="ignore"):
            return float(np.log(sinks) - np.log(others)) - odds

    # About the logit that would do if every row were typical, doubling steps bracket the root.
    total, step = _typical_total(row, n)
    while step <= _FARTHEST_LOGIT:
        low, high = total + odds - step, total + odds + step
        if excess(low) <= 0 <= excess(high):  # not where one is NaN: both shares are 0 there
            root: Any = brentq(excess, low, high, xtol=1e-13)
            return float(root)
        step *= 2
    # All-zero rows and other sinks leave a larger share at every logit.
    raise InputError("mass", mass, "no logit gives it, as far as float64 goes; give another mass")


@names_parameters()
def sink_logit(
    mass: float, kernel: str | Kernel | Row, *, length: Several, **parameters: Unpack[OfRows[One]]
) -> np.ndarray:
    """Return the logit b of a `SinkLogit` that takes a given mean mass.

    For exp in long rows it is about ln n + γ²/2 + the log odds of the mass.

    Args:
        mass: the wanted mean mass, in (0, 1).
        kernel: what the sink logit is added to, a `Row`, a built-in kernel's name, or a `Kernel`;
            other sinks of a row take their share of the mass.
        length: row lengths n, whole numbers ≥ 1, any shape.
        **parameters: of a kernel given without a row.

    Returns:
        b, in the shape of `length`, to about 1e−12: the odds of the mass are solved for.

    Raises:
        InputError: a mass outside (0, 1) or out of reach, or a row without an exact law.
    """
    mass = check_number("mass", mass, "must be between 0 and 1", lambda x: 0 < x < 1)
    row, n = row_of(kernel, parameters).scored(), LENGTH.check(length)
    if not n.size:
        raise InputError("length", length, "give at least one")
    with np.errstate(over="ignore", invalid="ignore"):  # far out in the tails, where nothing falls
        logits = [_solve_sink_logit(mass, row, int(m)) for m in n.flat]
    return np.array(logits, dtype=np.float64).reshape(n.shape)[()]
