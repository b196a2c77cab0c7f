"""The exact law inverted in a free number of a row, which it need not rise in.

A quantity is looked at on a grid of the free number, and where a row of quantiles turns: that has
the features of the kernel, and costs next to nothing. Each extreme of what was seen is searched,
and each crossing of the wanted value is solved. What turns between two looks and in no row of
quantiles is not found; the answer says how many looks there were. The mass of a sink logit is
solved for without a grid.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import brentq, minimize_scalar
from scipy.special import ndtri

from sparsity.arguments import number
from sparsity.design_search.free import GAMMA, LOGIT, Free
from sparsity.design_search.monotone import sink_logit
from sparsity.errors import InputError, TooFine, TooRare
from sparsity.exact_law.exact import exact
from sparsity.kernels.lowering import numpy_log_abs
from sparsity.quantities import Quantity, sink_mass
from sparsity.rows.row import Row

CPU_SECONDS = 7.0  # of this thread until the last look, which may take 3: a call ends within 10
_SHARE_OF_GRID = 0.7  # of them; the rest is for extremes and crossings
_GRID_POINTS = 33  # of the range; an exact law each, and what turns between two of them is missed
_LOG_OF_NOTHING = -700.0  # the logarithm of what is about 0, near the end of float64
_HALVINGS_OF_EDGE = 10  # of one step of the grid: where a law ends is known to a thousandth of it
_SHARE_OF_EDGES = 0.3  # of the time that is left: what is wanted is solved for after that
_ROUNDING_OF_LOG = 1e-11  # differences of a logarithm that are below are rounding
# Turns of n_eff in rows of quantiles: the logarithm turns by at least so much; the largest of these
# are looked at. The rows stand a two-thousandth of the range apart.
_LEAST_TURN, _MOST_TURNS = 1e-3, 32
_ROWS_OF_QUANTILES, _QUANTILES = 2001, 257


class TooLong(InputError):
    """A search that would take longer than it may."""


class Scan(NamedTuple):
    """What a quantity can be, and where it is what is wanted.

    Args:
        values: the numbers that give the wanted value, ascending.
        low: the least value found.
        high: the largest.
        first: the first number that was looked at.
        last: the last one.
        looks: how many numbers were looked at; 0 where the quantity is known to rise.
    """

    values: tuple[float, ...]
    low: float
    high: float
    first: float
    last: float
    looks: int


class _Looks:
    """The logarithm of a quantity at values of a free number, each computed once.

    Args:
        row: the row.
        free: what is free in it.
        quantity: the quantity.
        seconds: CPU time of this thread for all looks.
    """

    def __init__(self, row: Row, free: Free, quantity: Quantity, seconds: float) -> None:
        self.row, self.free, self.quantity = row, free, quantity
        self._begun = time.thread_time()
        self.until = self._begun + _SHARE_OF_GRID * seconds
        self.cut_short: TooLong | None = None  # why the grid ends before the range does
        self._logs: dict[tuple[int, float], float] = {}  # by length and x; NaN without a law
        self._refusals: dict[int, InputError] = {}  # the first of each length

    def log_at(self, x: float, n: int) -> float:
        """Return the logarithm at one length; NaN where there is no law."""
        if (n, x) not in self._logs:
            self.look(x, [n])
        return self._logs[n, x]

    def unknown(self, n: int) -> np.ndarray:
        """Return where a length was looked at and has no law, ascending."""
        return np.array(
            sorted(x for (m, x), y in self._logs.items() if m == n and not math.isfinite(y))
        )

    def known(self, n: int) -> tuple[np.ndarray, np.ndarray]:
        """Return where there is a law of a length, ascending, and its logarithms."""
        found = sorted((x, y) for (m, x), y in self._logs.items() if m == n and math.isfinite(y))
        if not found:
            raise self._refusals[n]
        x, y = np.array(found).T
        return x, y

    def look(self, x: float, lengths: Sequence[int]) -> bool:
        """Evaluate several lengths at one x; return False where the kernel is too fine for any.

        Raises:
            TooLong: there is no time left.
        """
        if time.thread_time() > self.until:
            each = (time.thread_time() - self._begun) / max(len(self._logs), 1)
            fix = f"takes too long to search: one look at {self.quantity.name} takes {each:.2g} s "
            fix += f"of CPU time, and a grid has {_GRID_POINTS} a length; "
            fix += "give a shorter row or no other lengths (max_seconds allows more)"
            raise TooLong("length", ", ".join(map(str, lengths)), fix)
        # One call for all lengths, which share the transforms of a token: they cost little more
        # than one. A refusal is kept as NaN; rows too rare to have a mean count as about 0.
        row = self.free.set_in(self.row, self.free.value(self.row, x))
        try:
            logs = exact(row, length=np.array(lengths), of=self.quantity).log_value
            logs = np.maximum(logs, _LOG_OF_NOTHING).tolist()
        except InputError as error:
            too_fine = isinstance(error, TooFine) and not self.row.steps  # which no length can help
            if len(lengths) > 1 and not too_fine:  # of one of them; each then speaks for itself
                for n in lengths:
                    self.look(x, [n])
                return True
            logs = [_LOG_OF_NOTHING if isinstance(error, TooRare) else math.nan] * len(lengths)
            if not isinstance(error, TooRare):
                self._refusals = dict.fromkeys(lengths, error) | self._refusals
            if too_fine:
                self._logs |= {(n, x): math.nan for n in lengths}
                return False
        self._logs |= {(n, x): value for n, value in zip(lengths, logs, strict=True)}
        return True


def _find_turns(row: Row, free: Free, ends: tuple[float, float], n: int) -> list[float]:
    """Return where n_eff turns in rows whose scores are the quantiles of their law.

    A free number of a step has none: there a quantity rises or falls.
    """
    if free.step is not None or free.field not in ("beta", "gamma"):
        return []
    from scipy.signal import find_peaks  # slow to import

    # Such a row is one sample that has every score once: z on a grid, each as often as the normal
    # density says, up to the score that the largest of n is likely to have. Its n_eff, up to a
    # factor, is two sums, for all values of the free number at once.
    x = np.linspace(*ends, _ROWS_OF_QUANTILES)
    numbers = np.array([free.value(row, each) for each in x.tolist()])
    held = {"beta": row.beta, "gamma": row.gamma} | {free.field: numbers[:, None]}
    farthest = max(-float(ndtri(0.5 / n)), 1.0)
    z = np.linspace(-farthest, farthest, _QUANTILES)
    with np.errstate(all="ignore"):
        log_f = np.asarray(numpy_log_abs(row.function)(held["beta"] + held["gamma"] * z), float)
        log_f = np.broadcast_to(log_f, (_ROWS_OF_QUANTILES, _QUANTILES))
        log_f = log_f - log_f.max(axis=1, keepdims=True)
        f, chance = np.exp(log_f), np.exp(-z * z / 2)
        tokens = 2 * np.log(f @ chance) - np.log(f * f @ chance)
    tokens = np.nan_to_num(tokens, nan=0.0, posinf=0.0, neginf=0.0)
    found = []
    for side in (tokens, -tokens):
        peaks, properties = find_peaks(side, prominence=_LEAST_TURN)
        found += zip(properties["prominences"].tolist(), x[peaks].tolist(), strict=True)
    return [at for _, at in sorted(found, reverse=True)[:_MOST_TURNS]]


def scan_lengths(
    row: Row,
    free: Free,
    lengths: Sequence[int],
    quantity: Quantity,
    wanted: float,
    seconds: float = CPU_SECONDS,
) -> list[Scan]:
    """Look at a quantity over the range of the free number, and solve for each crossing.

    Returns:
        What was found at each length.

    Raises:
        InputError: the row has no exact law anywhere on the grid of some length.
        TooLong: it takes more CPU seconds than it may.
    """
    if free is LOGIT and quantity is sink_mass:
        return [_scan_sink_mass(free.without(row), n, wanted) for n in lengths]
    look = _Looks(row, free, quantity, seconds)
    ranges = [free.ends(row, n) for n in lengths]
    for ends in dict.fromkeys(ranges):  # lengths of one range are looked at together
        own = [n for n, range_ in zip(lengths, ranges, strict=True) if range_ == ends]
        grid = np.linspace(*ends, _GRID_POINTS)
        if free.whole:
            grid = np.log(np.unique(np.round(np.exp(grid))))
        # The rows of quantiles depend on n by the farthest quantile only, about √(2 ln n): the
        # shortest and the longest row stand for all.
        turns = [x for n in {min(own), max(own)} for x in _find_turns(row, free, ends, n)]
        known = False
        for x in sorted({*grid.tolist(), *turns}):
            try:
                too_fine = not look.look(x, own)
            except TooLong as error:
                if not known:
                    raise
                look.cut_short = error
                break
            if too_fine and known and free is GAMMA:  # of a wider law no more is resolved
                break
            known = known or not too_fine
    look.until += (1 - _SHARE_OF_GRID) * seconds
    return [_solve_crossings(look, n, math.log(wanted)) for n in lengths]


def _solve_crossings(look: _Looks, n: int, wanted: float) -> Scan:
    """Solve for the wanted value between looks, with further looks at the extremes."""
    free, row = look.free, look.row

    def excess(x: float) -> float:
        return look.log_at(x, n) - wanted

    if not free.whole:  # whole numbers are few enough for the bisection below
        _search_edges(look, n)
        _search_extremes(look, n, wanted)
    x, seen = look.known(n)
    off = seen - wanted
    values = []
    for i in np.flatnonzero((off[1:] >= 0) != (off[:-1] >= 0)):  # from one look to the next
        # On a plateau at the wanted value rounding changes signs, and there is nothing to solve.
        if max(abs(off[i]), abs(off[i + 1])) > _ROUNDING_OF_LOG:
            between = _nearest_whole if free.whole else _root
            at = between(excess, float(x[i]), float(x[i + 1]))
            if math.isfinite(at):
                values.append(free.value(row, at))
    if look.cut_short is not None and not values:
        raise look.cut_short
    ends = free.value(row, float(x[0])), free.value(row, float(x[-1]))
    low, high = float(np.exp(seen.min())), float(np.exp(seen.max()))
    return Scan(tuple(values), low, high, *ends, len(x))


def _search_edges(look: _Looks, n: int) -> None:
    """Look nearer to where the law ends, if the quantity is at its least or largest there.

    Between the last look with a law and the first without, the range of the law ends somewhere:
    what it reaches is found by halving.
    """
    unknown, begun = look.unknown(n), time.thread_time()
    until = begun + _SHARE_OF_EDGES * (look.until - begun)
    for side in (0, -1):
        x, seen = look.known(n)
        beyond = unknown[unknown < x[0]][-1:] if side == 0 else unknown[unknown > x[-1]][:1]
        if not beyond.size or seen[side] not in (seen.min(), seen.max()):
            continue
        inside, outside = float(x[side]), float(beyond[0])
        for _ in range(_HALVINGS_OF_EDGE):
            if time.thread_time() > until:
                return  # what was found stands, by the looks that there were
            middle = 0.5 * (inside + outside)
            known = math.isfinite(look.log_at(middle, n))
            inside, outside = (middle, outside) if known else (inside, middle)


def _search_extremes(look: _Looks, n: int, wanted: float) -> None:
    """Look where the quantity is extreme between two looks, if that decides anything.

    The least and the largest of all are what a row can have; a minimum above the wanted value, or a
    maximum below, may hide two crossings.
    """
    grid, seen = look.known(n)
    last = len(grid) - 1
    for sign in (1.0, -1.0):  # of minima, and of maxima
        y = sign * seen  # a maximum is a minimum of −y
        for i in range(len(grid)):
            low, high = max(i - 1, 0), min(i + 1, last)
            rise = max(y[low], y[high]) - y[i]
            decides = y[i] > sign * wanted or y[i] - y.min() <= rise
            if y[i] > min(y[low], y[high]) or rise < _ROUNDING_OF_LOG or not decides:
                continue
            if i == last and look.cut_short is not None:
                continue
            # Most extremes lie at an end of the range, and are the end: a search there would spend
            # its looks on nothing, unless the quantity turns before it.
            if i in (0, last):
                middle = float(grid[low] + grid[high]) / 2
                if not sign * look.log_at(middle, n) < y[i]:
                    continue

            def value(x: float, sign: float = sign) -> float:
                found = sign * look.log_at(float(x), n)
                return found if math.isfinite(found) else math.inf

            # Every look is kept in `look`: the result of the search itself is not needed.
            width = float(grid[high] - grid[low])
            bounds, how = (float(grid[low]), float(grid[high])), {"xatol": 1e-6 * width}
            minimize_scalar(value, bounds=bounds, method="bounded", options=how)


def _scan_sink_mass(row: Row, n: int, wanted: float) -> Scan:
    """Solve for the logit of a sink: it takes any share that zero rows and other sinks leave."""
    number("sink_mass", wanted, "must be between 0 and 1", lambda x: 0 < x < 1)
    found: tuple[float, ...] = ()
    try:
        found = (float(sink_logit(wanted, row, length=n)),)
    except InputError as error:
        if error.argument != "mass":  # else it is out of reach
            raise
    # A logit of −∞ still takes the rows that are all zero besides, and other sinks keep theirs.
    taken = 0.0
    with contextlib.suppress(InputError):  # no other sink
        taken = float(exact(row, length=n, of=sink_mass).value)
    low = 1 - float(exact(row, length=n).p_nonzero) * (1 - taken)
    return Scan(found, low, 1.0, -math.inf, math.inf, 0)


def _root(excess: Callable[[float], float], low: float, high: float) -> float:
    """Return the crossing between two looks; NaN where there is no law, or a jump in it."""
    try:
        found: Any = brentq(excess, low, high, xtol=1e-13)
    except ValueError:  # a refusal between them
        return math.nan
    # Brent's method ends at a jump as well, where the value is not the wanted one.
    return float(found) if abs(excess(float(found))) < 1e-6 else math.nan


def _nearest_whole(excess: Callable[[float], float], low: float, high: float) -> float:
    """Return the log of the whole number between two at which the excess is smallest.

    Bisection over whole numbers: a crossing in between has no number, and the nearer side is taken.
    """
    first, last = round(math.exp(low)), round(math.exp(high))
    above = excess(low) >= 0
    while last - first > 1:
        middle = (first + last) // 2
        first, last = (
            (middle, last) if (excess(math.log(middle)) >= 0) == above else (first, middle)
        )
    return min(math.log(first), math.log(last), key=lambda x: abs(excess(x)))
