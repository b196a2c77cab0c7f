"""The search of `design`: the roots in the range of a free number.

    FreeNumber ──> a grid over its range ──> extremes between looks ──> each change of sign: brentq
    sink_logit ──> the log odds of a sink's mass, without a grid

What turns twice between two looks is not found; the answer says how many looks there were, and over
which range.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Unpack

import numpy as np
from scipy.optimize import brentq, minimize_scalar

from sparsity.checks import check_number
from sparsity.design_search.answer import Reach
from sparsity.design_search.free_numbers import GAMMA, LOGIT, SCALE, FreeNumber
from sparsity.errors import InputError, TooRare
from sparsity.exact_law import engine
from sparsity.exact_law.exact import exact
from sparsity.kernels import Kernel, exp
from sparsity.kernels.parameters import LENGTH, One, Several, names_parameters
from sparsity.limit.long_rows import log_total
from sparsity.quantities import Quantity, sink_mass
from sparsity.rows.row import OfRows, Row, row_of
from sparsity.rows.steps import SinkLogit

_LOOKS_AT_AN_EXTREME = 25  # at most; the search then knows its place to 1e-4 of a step of the grid
_LOG_OF_NOTHING = -700.0  # the logarithm of what is about 0, near the end of float64
_ROUNDING_OF_LOG = 1e-11  # differences of a logarithm that are below are rounding
# How far from where a sink begins to matter its logit is looked for: e^(−8192) is 0 in float64.
_LOGIT_STEPS = 2.0 ** np.arange(14)
# What only rises, or only falls, as softmax gets sharper. A larger γ raises every p_j = e^(γx_j)/Σ
# to the same power > 1, up to the sum: the new p majorizes the old one, in every row, and these are
# Schur-concave or Schur-convex (Marshall & Olkin).
MONOTONE = ("S", "n_eff", "entropy", "participation", "max_weight", "gini", "hoyer", "top_k_mass")


class Solutions(NamedTuple):
    """Where a quantity is what is wanted, at one length.

    Args:
        values: the numbers that give the wanted value, ascending.
        reach: what the quantity can be.
        looks: how many numbers were looked at; 0 where no grid is needed.
    """

    values: tuple[float, ...]
    reach: Reach
    looks: int


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
    # The scale of log-n scaling, where nothing else changes the row, sharpens it as γ does.
    sharpens = row.kernel is exp and len(row.steps) == {GAMMA: 0, SCALE: 1}.get(free)
    one_root = sharpens and quantity.name.partition(":")[0] in MONOTONE
    ranges = {n: free.ends(row, n) for n in lengths}
    solved: dict[int, Solutions] = {}
    for ends in dict.fromkeys(ranges.values()):  # lengths of one range are looked at together
        together = [n for n, range_ in ranges.items() if range_ == ends]
        looks = together, free.grid(ends).tolist(), progress
        search = _Search(row, free, quantity, math.log(wanted), *looks)
        for n in together:
            search.bisect_grid(n) if one_root else search.look_at_grid(n)
            solved[n] = search.solutions(n)
    return [solved[n] for n in lengths]


@dataclass
class _Search:
    """The search over one range of a free number.

    Args:
        row: the row.
        free: the free number.
        quantity: the quantity.
        log_wanted: the logarithm of its wanted value.
        lengths: all n.
        grid: the values of x that are looked at, each for all lengths at once.
        progress: told how many looks were taken, and how many there are at least.
    """

    row: Row
    free: FreeNumber
    quantity: Quantity
    log_wanted: float
    lengths: Sequence[int]
    grid: list[float]
    progress: Callable[[int, int], None] | None
    taken: int = 0

    def __post_init__(self) -> None:
        # length -> x -> the logarithm of the quantity less the wanted one; NaN where there is no
        # law, of which `refusals` has the first of each length
        self.seen: dict[int, dict[float, float]] = {n: {} for n in self.lengths}
        self.refusals: dict[int, InputError] = {}

    def excess(self, n: int, x: float) -> float:
        """Return the logarithm of the quantity less the wanted one; NaN where there is no law."""
        if x not in self.seen[n]:
            self._look(x, self.lengths if x in self.grid else [n])
        return self.seen[n][x]

    def _look(self, x: float, lengths: Sequence[int]) -> None:
        """Look at all lengths at once: they share the transforms of a token."""
        value = self.free.value(self.row, x)
        row, quantity = self.free.set_in(self.row, value), self.free.asked(self.quantity, value)
        if self.progress is not None:
            self.progress(self.taken, max(self.taken, len(self.grid)))
            self.taken += 1
        try:
            law = exact(row, length=np.array(lengths), of=quantity)
            logs = np.maximum(law.log_value, _LOG_OF_NOTHING).tolist()
        except InputError as error:
            if len(lengths) > 1:  # of one of them; each then speaks for itself
                for n in lengths:
                    self._look(x, [n])
                return
            self.refusals.setdefault(lengths[0], error)
            # Rows too rare to have a mean count as about 0.
            logs = [_LOG_OF_NOTHING if isinstance(error, TooRare) else math.nan]
        for n, log in zip(lengths, logs, strict=True):
            self.seen[n][x] = log - self.log_wanted

    def bisect_grid(self, n: int) -> None:
        """Look at the grid about the one root of a quantity that does not turn."""
        low, high = 0, len(self.grid) - 1
        below = self.excess(n, self.grid[low]) < 0
        while high - low > 1:
            middle = (low + high) // 2
            off = self.excess(n, self.grid[middle])
            # What is not resolved, NaN, lies at the upper end.
            left = math.isfinite(off) and (off < 0) == below
            low, high = (middle, high) if left else (low, middle)
        self.excess(n, self.grid[high])  # the end, which bisection does not look at

    def look_at_grid(self, n: int) -> None:
        """Look at the whole grid, and further where it shows an extreme."""
        for x in self.grid:
            self.excess(n, x)
        if not self.free.whole:  # whole numbers are few enough for bisection
            self._look_at_extremes(n)

    def solutions(self, n: int) -> Solutions:
        """Solve between all looks."""
        known = self._known(n)
        if not known:
            raise self.refusals[n]
        first, last = (self.free.value(self.row, end(known)) for end in (min, max))
        low, high = (math.exp(end(known.values()) + self.log_wanted) for end in (min, max))
        why = f"for {self.free.name} from {first:.3g} to {last:.3g} ({len(known)} values tried)"
        return Solutions(self._roots(n), Reach(low, high, why), len(known))

    def _known(self, n: int) -> dict[float, float]:
        """Return what was seen where there is a law, ascending in x."""
        return {x: log for x, log in sorted(self.seen[n].items()) if math.isfinite(log)}

    def _look_at_extremes(self, n: int) -> None:
        """Look where two crossings may hide: at a minimum above what is wanted, a maximum below."""
        known = list(self._known(n).items())
        for (left, y), (_, here), (right, z) in zip(known, known[1:], known[2:], strict=False):
            sign = math.copysign(1.0, here)
            nearest, farthest = sorted((sign * y, sign * z))
            if not sign * here <= nearest or farthest - sign * here < _ROUNDING_OF_LOG:
                continue

            def height(x: float, sign: float = sign) -> float:
                off = sign * self.excess(n, float(x))
                return off if math.isfinite(off) else math.inf

            # Every look is kept in `seen`: the result of the search itself is not needed.
            options = {"maxiter": _LOOKS_AT_AN_EXTREME}
            minimize_scalar(height, bounds=(left, right), method="bounded", options=options)

    def _roots(self, n: int) -> tuple[float, ...]:
        """Return the numbers that give the wanted value: those between two looks of other sign."""
        known = self._known(n)
        roots = {x for x, off in known.items() if abs(off) <= _ROUNDING_OF_LOG}
        between = _nearest_whole if self.free.whole else _root
        for (low, y), (high, z) in itertools.pairwise(known.items()):
            if not roots & {low, high} and (y > 0) != (z > 0):
                roots.add(between(functools.partial(self.excess, n), low, high))
        return tuple(self.free.value(self.row, x) for x in sorted(roots) if math.isfinite(x))


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
    reach = Reach(low, 1.0, "for logit from −∞ to ∞")
    try:
        return Solutions((float(sink_logit(wanted, row, length=n)),), reach, 0)
    except InputError as error:
        if error.argument != "mass":  # else it is out of reach
            raise
        return Solutions((), reach, 0)


def _solve_sink_logit(mass: float, row: Row, n: int) -> float:
    """Return the logit at one length; what rises in it are the log odds of the mass."""
    odds = math.log(mass) - math.log1p(-mass)

    @functools.cache
    def excess(b: float) -> float:
        (sinks, _), (others, _) = engine.shares(row.then(SinkLogit(b)), n)
        # Log odds are nearly linear in b, where the mass itself is flat at either end.
        with np.errstate(divide="ignore"):
            return float(np.log(sinks) - np.log(others)) - odds

    # From the logit that would do if every row were as the mean. Log odds rise by at most 1 with b,
    # mostly by nearly that: the root is a little farther than they are off, up to 1.5 times where
    # the slope is 2/3 or more. Else, also where they are NaN as both shares are 0, steps double.
    start = log_total(row, n) + odds
    farther = start - 1.5 * excess(start)
    brackets = [(min(start, farther), max(start, farther))] if math.isfinite(farther) else []
    brackets += [(start - step, start + step) for step in _LOGIT_STEPS]
    for low, high in brackets:
        if excess(low) <= 0 <= excess(high):
            root: Any = brentq(excess, low, high, xtol=1e-13)
            return float(root)
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
