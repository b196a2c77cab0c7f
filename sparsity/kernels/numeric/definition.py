"""A kernel's definition as numbers: at points with an error, on segments and boxes as bounds.

All numerical routes start here; it knows the definition and nothing else. Scores are given as an
anchor and an offset, s = a + x, so that f keeps its digits close to a zero, a kink or a bias.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import mpmath
import numpy as np
import sympy
from sympy.core.relational import Relational

from sparsity.kernels.base import Kernel, check_scored
from sparsity.kernels.numeric.boxes import ComplexBox
from sparsity.kernels.numeric.intervals import Interval
from sparsity.kernels.numeric.points import EPS, Approx
from sparsity.kernels.numeric.program import Branches, evaluate
from sparsity.kernels.numeric.split import Split
from sparsity.kernels.symbols import s as score

_MOST_ANCHORS = 64  # more cost time, fewer lose digits beside the zeros and kinks that are left out
# Of the slow evaluation, until two in turn agree: more reach deeper cancellations, and cost time.
_DIGITS = (30, 60, 120, 240, 480, 960)
_MOST_SLOW = 5_000  # points that one call evaluates slowly: about a second
_MOST_BITS = 4000  # of an argument that the slow evaluation reduces by π or log 2
_COSTLY = (sympy.tanh, sympy.sinh, sympy.cosh, sympy.erf, sympy.erfc)  # 4 to 10 times a sum
# Waves, and their periods in units of π.
_WAVES = {sympy.sin: 2, sympy.cos: 2, sympy.tan: 1}
_COARSEST_PERIOD = 1000  # of a common period, in periods of one part


class Values(NamedTuple):
    """|f| at points.

    Args:
        log: log|f|, −∞ where f is exactly zero, NaN where it is no real number.
        error: bound on the error of `log`, ∞ where no digit is known.
        most: log of the largest value that |f| can have.
        side: a number that changes where a branch of f, or its sign, does.
    """

    log: np.ndarray
    error: np.ndarray
    most: np.ndarray
    side: np.ndarray


def _roots(expression: Any) -> set[float]:
    """Return the scores at which a polynomial part of degree 1 or 2 of an expression vanishes."""
    scores = {0.0}  # offsets from 0 are the scores themselves
    for part in sympy.preorder_traversal(expression):
        whole: Any = part
        # Kinks and zeros of f sit where a linear or quadratic part vanishes, or two sides meet.
        if not isinstance(part, (Relational, sympy.Add)) or not whole.has(score):
            continue
        whole = whole.lhs - whole.rhs if isinstance(part, Relational) else whole
        whole = whole.replace(sympy.Abs, lambda x: x)
        if not whole.is_polynomial(score):
            continue
        powers = [float(c) for c in sympy.Poly(whole, score).all_coeffs() if c.is_real]
        if 2 <= len(powers) <= 3:
            roots = np.roots(powers)
            scores |= {float(x.real) for x in roots if x.imag == 0 and abs(x) < 1e300}
        if len(scores) >= _MOST_ANCHORS:
            break
    return scores


def _gaussian_factor(weight: Any) -> tuple[tuple[float, float, float], Any]:
    """Return (c₀, c₁, c₂) and g with f = e^(c₀ + c₁s + c₂s²)·g, as far as f shows it."""
    tilt: Any = sympy.S.Zero
    rest: Any = sympy.S.One
    for factor in sympy.Mul.make_args(weight):
        base, power = factor.as_base_exp()
        if base == sympy.E:  # as_base_exp of e^x
            for term in sympy.Add.make_args(power):
                if term.is_polynomial(score) and sympy.Poly(term, score).degree() <= 2:
                    tilt += sympy.expand(term)
                else:
                    rest *= sympy.exp(term)
        else:
            rest *= factor
    c = [float(tilt.coeff(score, power)) for power in range(3)] if tilt != 0 else [0.0] * 3
    return (c[0], c[1], c[2]), rest


def _cost(part: Any) -> int:
    """Return how long bounds on a part of an expression take, in those on a sum or a product."""
    if part.is_Pow and part.exp.is_Integer:  # by repeated squares
        return 2 * int(abs(part.exp)).bit_length()
    return 8 if isinstance(part, _COSTLY) else 1


def _own_period(part: Any) -> Any:
    """Return the period of a wave of a linear score, None for anything else."""
    if part.func not in _WAVES:
        return None
    slope = part.args[0].diff(score)
    if not slope.is_number or not slope.is_real or slope == 0:
        return None
    return _WAVES[part.func] * sympy.pi / abs(slope)


@functools.lru_cache(maxsize=128)
def period(weight: Any) -> float | None:
    """Return a period P > 0 of f, f(s + P) = f(s), or None where the expression shows none."""
    parts = sympy.preorder_traversal(weight)
    periods = {part: length for part in parts if (length := _own_period(part))}
    if not periods or weight.subs({part: sympy.Dummy() for part in periods}).has(score):
        return None
    # The common period is the least common multiple of those of the parts, in units of the first:
    # p/q of it fits into p of the first. SymPy knows ratios such as √2 to be irrational.
    first, *others = periods.values()
    common = 1
    for other in others:
        ratio = other / first
        if not ratio.is_Rational or ratio.q > _COARSEST_PERIOD:
            return None
        common = math.lcm(common, int(ratio.p))
    return float(common * first) if common <= _COARSEST_PERIOD else None


def _of_moderate(name: str) -> Callable[[Any], Any]:
    """Return a function of mpmath that refuses arguments with too many bits to reduce by π.

    exp(exp(100)) would otherwise reduce a number of 10⁴³ digits.
    """

    def function(x: Any) -> Any:
        if mpmath.mag(x) > _MOST_BITS:
            raise OverflowError
        return getattr(mpmath, name)(x)

    return function


_NAMES_REDUCED = ("exp", "sin", "cos", "sinh", "cosh", "tanh")
_MPMATH = [{name: _of_moderate(name) for name in _NAMES_REDUCED}, "mpmath"]
# What mpmath raises where a value has no digits within reach.
_OUT_OF_REACH = (OverflowError, ValueError, TypeError, MemoryError)


class Definition:
    """|f(s)| of a kernel of Law.SCORE.

    `tilt` is (c₀, c₁, c₂) of a factor e^(c₀ + c₁s + c₂s²) of f, whose bounds are best taken
    together with those of a density. `roots` are scores next to which f needs all digits of the
    offset; `size` is the work of one evaluation, in sums.

    Args:
        kernel: the kernel.

    Raises:
        InputError: the kernel is not a function of the score, or uses a function that cannot be
            evaluated.
    """

    def __init__(self, kernel: Kernel) -> None:
        """Find the anchors and the tilt of the definition."""
        self.kernel = check_scored(kernel)
        weight = kernel.weight
        self._f = weight if weight.is_nonnegative else sympy.Abs(weight, evaluate=False)
        self.tilt, rest = _gaussian_factor(weight)
        self._rest = rest if rest.is_nonnegative else sympy.Abs(rest, evaluate=False)
        self.roots = tuple(sorted(_roots(weight)))
        self.size = sum(_cost(part) for part in sympy.preorder_traversal(weight))
        self.slow = sympy.lambdify([score], weight, _MPMATH)

    def _run(self, anchor: Any, x: Any, branches: Branches, tilted: bool = False) -> Any:
        """Return |f(a + x)| in the arithmetic of x."""
        with np.errstate(all="ignore"):
            start = Split(np.asarray(anchor, dtype=np.float64), x).settled()
            return evaluate(self._rest if tilted else self._f, start, branches).whole()

    def values_at(self, anchor: Any, x: Approx, fixed: bool = False) -> Values:
        """Return |f(a + x)| at points.

        Args:
            anchor: a, broadcastable with x.
            x: offsets.
            fixed: whether they are fixed scores, at which a jump of f has the value of f itself.
        """
        branches = Branches(fixed=fixed)
        weight = self._run(anchor, x, branches)
        shape = np.broadcast_shapes(np.shape(anchor), np.shape(x.m))
        with np.errstate(all="ignore"):
            value, error = weight.log_abs()
            error = np.where(np.isnan(error), np.inf, error)  # NaN: no digit is known
            most = weight.k + np.log(np.abs(weight.m) + weight.e)
            # One number for all signs: steps of 1 and odd parts keep two sets of signs apart.
            side = sum(sign * (i + 1.37) for i, sign in enumerate(branches.taken))
        return Values(*(np.broadcast_to(y, shape) for y in (value, error, most, side)))

    def bounds_on_segments(
        self, anchor: Any, x: Interval, tilted: bool
    ) -> tuple[Any, Any, list[Any]]:
        """Return bounds on log|f(a + x)| over segments, and the branches taken there.

        Args:
            anchor: a.
            x: segments of offsets.
            tilted: whether to leave out the factor of `tilt`.
        """
        branches = Branches()
        weight = self._run(anchor, x, branches, tilted)
        with np.errstate(all="ignore"):
            low, high = weight.log_range()
        shape = np.shape(x.lo.m)
        return np.broadcast_to(low, shape), np.broadcast_to(high, shape), branches.taken

    def bounds_on_boxes(
        self, anchor: Any, x: ComplexBox, taken: list[Any], tilted: bool
    ) -> tuple[np.ndarray, ...]:
        """Return bounds on the continuation of |f(a + x)| to boxes around segments.

        Args:
            anchor: a.
            x: boxes of offsets.
            taken: the branches taken on the segments inside, from `bounds_on_segments`.
            tilted: whether to leave out the factor of `tilt`.

        Returns:
            log of the least and of the largest |f|, and the largest |arg f|; NaN where it may not
            be analytic, and, for the first and the last, where it may vanish.
        """
        weight = self._run(anchor, x, Branches(taken), tilted)
        with np.errstate(all="ignore"):
            bounds = weight.log_bounds()
        return tuple(np.broadcast_to(y, np.shape(x.lo)) for y in bounds)

    def slowly(self, anchor: np.ndarray, offset: Sequence[Any]) -> np.ndarray:
        """Return log|f(a + x)| in high precision, NaN where its digits cannot be had.

        Args:
            anchor: a, one for each offset.
            offset: x, mpmath numbers.
        """
        logs = np.full(len(offset), np.nan)
        for i in range(min(len(offset), _MOST_SLOW)):
            logs[i] = self._slowly_at(float(anchor[i]), offset[i])
        return logs

    def _slowly_at(self, anchor: float, x: Any) -> float:
        """Double the digits until two values in turn agree to an eighth of a rounding error."""
        last = mpmath.nan
        for digits in _DIGITS:
            with mpmath.workdps(digits + 20):
                try:
                    value = self.slow(mpmath.mpf(anchor) + x)
                    value = mpmath.log(abs(value)) if value != 0 else mpmath.nan
                except (ZeroDivisionError, *_OUT_OF_REACH):
                    return np.nan
                if abs(value - last) <= EPS / 8 * (1 + abs(value)):
                    return float(value)
                last = value
        return np.nan

    def real_at(self, score: float) -> bool:
        """Say whether f is a finite real number at a score, as far as high precision can tell."""
        with mpmath.workdps(50):
            try:
                value = self.slow(mpmath.mpf(score))
            except ZeroDivisionError:
                return False
            except _OUT_OF_REACH:
                return True
            return bool(mpmath.isfinite(value)) and mpmath.im(value) == 0


@functools.lru_cache(maxsize=128)
def definition(kernel: Kernel) -> Definition:
    """Return the (cached) numerical definition of a kernel of Law.SCORE."""
    return Definition(kernel)
