"""The needle's rank and what is read out of its value: exact laws of rows of n tokens.

**The largest weight.** Given the needle's weight a*, the other keys are below it independently, so

    P(a* is the largest) = E Π_j P(|f(s_j)| < a*/w_j),

one integral over the needle's score, or none where that is fixed. |f| < c is an interval of scores
for the weights e^(cs) and for those of one degree, c₊s^p above 0 and c₋|s|^p below.

**Recall** (`quantities.marked`) is a function R of the row's SNR, and for softmax the chance that
the SNR exceeds x is an inverse Laplace transform (`sink_chance`). By parts

    E R(SNR) = R(0) + ∫ R′(x) P(SNR > x) dx.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from sparsity.errors import InputError, TooFine
from sparsity.exact_law import sink_chance
from sparsity.exact_law.integration import (
    clenshaw_curtis,
    gauss_panels,
    log_complement,
    refuse_slow,
)
from sparsity.kernels import Kernel
from sparsity.kernels.formulas import symmetry
from sparsity.kernels.lowering import numpy_log_abs
from sparsity.quantities import Quantity
from sparsity.quantities.base import Means, clip_to_range
from sparsity.quantities.laws import Exceeds, NeedleLaw
from sparsity.quantities.marked import recall, recall_slope
from sparsity.rows.classes import classify_tokens, refuse_without, rescaled
from sparsity.rows.row import Row
from sparsity.special import ndtr

_FAR = 9.0  # standard deviations of the needle's score beyond which it never is: 1e-19
_PANEL = 0.5  # of it, over the smallest spread of any key: Φ^n changes over γ/√(2 ln n) at least
_POINTS = (16, 12)  # of a panel: of the value, and of what bounds its error
_PANEL_COST = 3e-6  # seconds of a panel and a group of keys, measured
_NODES = 128  # of the rule for recall; the one of half as many bounds its error
_SETTLED = 1e-8  # relative difference of these two beyond which twice as many nodes are taken
_NOTHING = 1e-11  # a chance or a √V·SNR that counts for nothing
_EDGE = 0.25  # of ln c: how well the two places are known between which its chance falls
_MOST_GROUPS = 40  # of tokens that differ: 9 s of work for the 270 chances of one recall
_SCORE_STEP = 0.1  # of the rule for the needle's score; half of where recall rises, in ln c
_SCORE_COST = 3e-8  # seconds of a score of the needle at which recall does not change; measured
_CHANGES = (-28.0, 3.7)  # of ln c: below it recall is 1/V to 1e-12, above it 1, up to V = 10⁶
_ULP = 4e-16  # of a value, with the operations that led to it
_LEAST = -700.0  # log of a chance that float64 has with all its digits


def scores_below(kernel: Kernel) -> Callable[[Any], tuple[np.ndarray, np.ndarray]]:
    """Return the function log c -> the ends of the scores at which |f| < c.

    A largest weight needs the law of each weight only, and that is the normal law of an interval.

    For f(1) e^(rate·(s − 1)) all scores to one side of a place, for f(1) s^power above 0 and
    f(−1)|s|^power below it those between two places.

    Raises:
        InputError: a kernel for which |f| < c is no interval that is known.
    """
    rise, degree = symmetry(kernel.weight)
    log_right, log_left = numpy_log_abs(kernel)(np.array([1.0, -1.0])).tolist()

    def of_exp(log_c: Any) -> tuple[np.ndarray, np.ndarray]:
        place = 1 + (np.asarray(log_c) - log_right) / (rise or 1.0)
        never = np.full(place.shape, np.inf)
        return (-never, place) if (rise or 1.0) > 0 else (place, never)

    def of_power(log_c: Any) -> tuple[np.ndarray, np.ndarray]:
        right, left = (
            np.full(np.shape(log_c), np.inf)
            if log_side == -np.inf
            else np.exp((np.asarray(log_c) - log_side) / (degree or 1.0))
            for log_side in (log_right, log_left)
        )
        return -left, right

    if rise is not None and rise != 0:
        return of_exp
    if has_law(kernel, NeedleLaw()):
        return of_power
    fix = "the law of the largest weight is known for exp and powers of the score; use estimate"
    raise InputError("kernel", kernel.name, fix)


def log_chance_between(ends: tuple[Any, Any], beta: float, gamma: float) -> np.ndarray:
    """Return log P(low < s < high) of s ~ N(β, γ²); of s = β, which may be an end, where γ is 0."""
    low, high = ends
    if gamma == 0:
        return np.log(((low <= beta) & (beta <= high)).astype(float))
    low, high = (low - beta) / gamma, (high - beta) / gamma
    # Above the mean both chances are about 1, and their difference has no digits: mirrored it has.
    low, high = np.where(low > 0, (-high, -low), (low, high))
    return log_complement(ndtr(-high) + ndtr(low), np.maximum(ndtr(high) - ndtr(low), 0.0))


def _chance_of_largest(row: Row, n: int) -> tuple[float, float, float]:
    """Return the chance in rows of n, P(row ≠ 0), and a bound on the relative error."""
    given = rescaled(classify_tokens(row, n), units=False)
    refuse_without(row, "needle", given.needle)
    if any(c[3] for c in given.classes):
        raise InputError("row", row, "its scores are not Gaussian; use estimate")
    kernel = given.classes[0][0]
    beta, gamma = np.array([c[1:3] for c in given.classes])[given.member].T
    mine, log_f, below = given.needle > 0, numpy_log_abs(kernel), scores_below(kernel)
    (m,), (spread,), (log_w,) = (x[mine] for x in (beta, gamma, given.log_w))
    others = list(
        zip(given.log_w[~mine], beta[~mine], gamma[~mine], given.count[~mine], strict=True)
    )

    def log_chance(log_weight: np.ndarray) -> np.ndarray:
        """Return the log of the chance, given ln of the needle's weight."""
        total = np.zeros(log_weight.shape)
        for own_w, own_beta, own_gamma, count in others:
            one = log_chance_between(below(log_weight - own_w), own_beta, own_gamma)
            total = total + count * one
        return np.where(log_weight > -np.inf, total, -np.inf)

    # Π P(|f| = 0) of all tokens: of an even power it is 0, of max(s, 0)^p it is Φ(−β/γ).
    zero = below(np.array(-np.inf))
    none = [
        count * float(log_chance_between(zero, own_beta, own_gamma)) if own_gamma else -math.inf
        for _, own_beta, own_gamma, count in [*others, (0.0, m, spread, 1.0)]
    ]
    p_row = -math.expm1(sum(none))
    # Of the arguments of Φ, which its log has up to 80 times, and of the logs of the weights.
    scale = 100 + 10 * float(np.abs(given.log_w).max()) / float(gamma[gamma > 0].min(initial=1.0))
    if spread == 0:
        log_value = float(log_chance(log_f(np.array([m]))[0] + log_w))
        error = _ULP * (16 - scale * max(log_value, _LEAST))
        # Of a fixed score that is above the needle's the chance is 0 itself.
        unresolved = -math.inf < log_value < _LEAST
        return math.exp(log_value), p_row, math.inf if unresolved else error
    width = _PANEL * float(min(gamma[gamma > 0].min(), spread))
    panels = math.ceil(2 * _FAR * spread / width)
    refuse_slow("row", row, _PANEL_COST * panels * len(others))
    edges = np.linspace(m - _FAR * spread, m + _FAR * spread, panels)
    # The chance jumps where f bends, and where the needle weighs as much as a fixed score.
    fixed = [(w, b) for w, b, g, _ in others if g == 0]
    jumps = [below(log_f(np.array([b]))[0] + w - log_w) for w, b in fixed]
    jumps = np.unique([0.0, *(float(x) for pair in jumps for x in pair)])
    edges = np.unique([*edges, *jumps[(edges[0] < jumps) & (jumps < edges[-1])]])
    integrals = []
    for points in _POINTS:
        score, weight = gauss_panels(edges, points)
        z = (score - m) / spread
        density = np.exp(-0.5 * z * z) / (math.sqrt(2 * math.pi) * spread)
        log_weight = log_f(score.ravel()).reshape(score.shape) + log_w
        integrals.append(float((np.exp(log_chance(log_weight)) * density * weight).sum()))
    value, other = integrals
    off = abs(value - other) + 1e-18 + _ULP * (16 + 40 * scale) * value  # e^−40 is nothing
    value = value / p_row
    return value, p_row, off / p_row / value if value > 0 else math.inf


def _mean_over_score(
    function: Callable[[np.ndarray], np.ndarray], log_c: np.ndarray, spread: float
) -> np.ndarray:
    """Return E f(e^(ln c + spread·y)) over y ~ N(0, 1), by a rule and by every other point of it.

    Args:
        function: f, of an array of positive numbers.
        log_c: ln c, [points].
        spread: 0 or more.

    Returns:
        [2, points].
    """
    if spread == 0:
        return np.stack([function(np.exp(log_c))] * 2)
    # Trapezoidal. Recall rises within about 0.2 of ln c, which is 0.2/spread of y.
    half = math.ceil(_FAR / min(_SCORE_STEP, _SCORE_STEP / spread))
    y = np.linspace(-_FAR, _FAR, 2 * half + 1)
    density = np.exp(-0.5 * y * y)

    # Point by point, as `function` holds a rule of its own for each number; of a wide spread most
    # are where it is one number.
    def means(x: float) -> tuple[float, float]:
        log = (x + spread * y).clip(*_CHANGES)
        places, place = np.unique(log, return_inverse=True) if spread > 1 else (log, slice(None))
        terms = density * function(np.exp(places))[place]
        return terms.sum() / density.sum(), terms[::2].sum() / density[::2].sum()

    return np.transpose([means(x) for x in log_c.tolist()])


def _recall(row: Row, n: int, values: int) -> tuple[float, float]:
    """Return the mean recall in rows of n, and a bound on its relative error.

    R is a function of c = √V·SNR. A needle whose score is random has c = c₀e^(spread·y), c₀ at its
    mean score and y ~ N(0, 1) apart from it: the mean of R over y is the R of c₀, and the chance
    that c₀ is exceeded is one of the other keys alone. It falls from 1 to 0 between two places,
    which are found by halving, and the rule is for ln c₀ between them.
    """
    root = math.sqrt(values)
    of = Exceeds("needle", 1.0, power=2, units=False)
    others, fixed, by_needle, moving = sink_chance.split_others_from_sinks(row, n, of)
    if len(others.count) > _MOST_GROUPS:
        fix = f"its exact law is computed for at most {_MOST_GROUPS} tokens that differ"
        raise TooFine("length", n, f"{fix}; use estimate")
    log_weight, spread = by_needle, 0.0  # of the square of the needle's weight; of its logarithm
    if moving:
        ((log_weight, twice),) = moving
        spread = 0.5 * twice

    refuse_slow("row", row, _SCORE_COST * 2 * _FAR * spread / _SCORE_STEP * 2 * _NODES)

    @functools.cache  # nodes of a rule are among those of the next
    def chance(log_c: float) -> tuple[float, float]:
        return sink_chance.exceeded(others, fixed, log_weight + math.log(values) - 2 * log_c)

    def edge(certain: Callable[[float], bool], low: float, high: float) -> float:
        """Return about the last place, coming from `low`, at which the chance is certain."""
        for _ in range(math.ceil(math.log2((most - least) / _EDGE))):
            middle = 0.5 * (low + high)
            low, high = (middle, high) if certain(chance(middle)[0]) else (low, middle)
        return low

    least = math.log(_NOTHING) - _FAR * spread
    most = math.log(18.0 + math.sqrt(2 * math.log(values))) + _FAR * spread
    low = edge(lambda p: p > 1 - _NOTHING, least, most)
    high = edge(lambda p: p < _NOTHING, most, low)
    starts = _mean_over_score(lambda c: recall(c / root, values), np.array([low]), spread)[:, 0]

    def by_rule(nodes: int) -> tuple[float, float, float]:
        """Return the mean, the difference to half the nodes, and what else may be off."""
        # Clenshaw-Curtis, as the rule of half the nodes is among them: each chance is a contour
        # integral.
        x = low + 0.5 * (high - low) * (1 + np.cos(np.pi * np.arange(nodes + 1) / nodes))
        slopes = _mean_over_score(lambda c: recall_slope(c, values) * c, x, spread)
        rate, other_rate = slopes * 0.5 * (high - low)
        p, off = np.array([chance(log_c) for log_c in x.tolist()]).T
        p = p.clip(0, 1)  # a chance that is not resolved, of a large `off`, may be any number
        rule = clenshaw_curtis(nodes)
        fine, half = rate * rule, rate[::2] * clenshaw_curtis(nodes // 2)
        value = float(starts[0] + fine @ p)
        of_score = abs(value - float(starts[1] + (other_rate * rule) @ p))  # of the rule for y
        return value, abs(float(fine @ p) - float(half @ p[::2])), of_score + float(abs(fine) @ off)

    value, gap, rest = by_rule(_NODES)
    if gap > _SETTLED * value:
        value, gap, rest = by_rule(2 * _NODES)
    # What is certain up to `_NOTHING` may be off by it, below and above, and so may R at c ≈ 0.
    return value, (gap + rest + 4 * _NOTHING) / value


def has_law(kernel: Kernel, of: NeedleLaw) -> bool:
    """Return whether the chance is known for a kernel: its rank by symmetry, recall for exp."""
    if of.values is None:
        rise, degree = symmetry(kernel.weight)
        return bool(rise) or (degree or 0) > 0
    return sink_chance.has_law(kernel)


@np.errstate(all="ignore")  # a weight of 0 has the log −∞, and a chance of 0 too
def chances_by_length(row: Row, quantity: Quantity, length: np.ndarray) -> Means:
    """Return the needle's chance in rows of n, P(row ≠ 0), and relative error bounds.

    Args:
        row: with a needle, of Gaussian scores; for recall of the kernel exp.
        quantity: one with a `NeedleLaw`.
        length: row lengths n ≥ 1, [lengths].

    Raises:
        InputError: another kernel, no needle, other scores, or tokens too many that differ.
    """
    of: NeedleLaw = quantity.needle_law  # type: ignore[assignment]
    if of.values is None:
        triples = [_chance_of_largest(row, int(n)) for n in length]
        means = Means(*np.array(triples).reshape(-1, 3).T)
        return means._replace(value=clip_to_range(means.value, means.error, (0.0, 1.0)))
    sink_chance.refuse_other_kernels(row, quantity.name)
    value, error = np.array([_recall(row, int(n), of.values) for n in length]).reshape(-1, 2).T
    value = clip_to_range(value, error, (1 / of.values, 1.0))
    return Means(value, np.ones(len(length)), error)
