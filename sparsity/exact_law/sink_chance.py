"""The chance that the sinks of one softmax row, or its needle, outweigh all others so many times.

Let N be what the other tokens weigh, and the sinks weigh A. Their share is above ε where A is more
than ε/(1 − ε) times N, which is N < A(1 − ε)/ε = c. For the needle's signal against the noise both
are sums of a², of weights with twice the spread. The distribution function of N is an inverse
Laplace transform,

    P(N < c) = (1/2πi) ∫ e^(sc) Π_j φ_j(s) ds/s,   φ_j(s) = E e^(−s a_j),  a_j = w_j e^(γ_j ε_j),

on a hyperbola through about the saddle point, bent to the left, where e^(sc) falls. The transform
of one weight is integrated along a line of complex scores through its own saddle point, which
Lambert's W gives: there e^(−sa) hardly oscillates. Both rules are trapezoidal; the step along the
hyperbola is halved until that changes nothing but rounding. The bound holds twice the step of
either, the ends, and rounding. A sink whose own score is random is one more sum, over it.

Source of the saddle point: Asmussen, Jensen & Rojas-Nandayapa (2016), "On the Laplace transform of
the lognormal distribution".
"""

from __future__ import annotations

import bisect
import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from sparsity import kernels
from sparsity.errors import RESOLVED, InputError, TooFine, TooRare
from sparsity.exact_law.integration import hyperbola, narrowed
from sparsity.exact_law.maps.gaussian_tail import ROOT_2_PI
from sparsity.quantities.base import Means, clip_to_range
from sparsity.quantities.laws import Exceeds
from sparsity.rows.classes import classify_tokens, refuse_without, rescaled
from sparsity.rows.row import Row
from sparsity.special import lambertw, ndtr

_BEND = math.pi / 8  # of the hyperbola to the left
_NEAR, _FAR = 6.0, 30.0  # of its parameter: how far out it is looked at, and if need be
_STEP, _HALVINGS = 0.24, 4  # of it: of that look, and how often the rule may halve it
# Standard deviations by which the line of scores may leave the saddle point. With 2 the two rules
# differ by 1e-14 where γ = 0.03 to 0.3, with 1.5 by 3e-15.
_MOST_SHIFT = 1.5
_WIDE = 11.0  # standard deviations to either side that are looked at: e^(−60) lies beyond
_LOOK, _POINTS = 89, 161  # points of that look, and of the rule, both odd
_DEPTH = 40.0  # e-folds down to which it counts
_BISECTIONS = 24  # of log s over 691: to 4e-5, as the contour may lie a little beside the saddle
_SINK_STEP, _SINK_REACH = 0.15, 8.0  # of a sink's own score, in standard deviations
_LEAST = 1e-280  # chance that float64 resolves
_RARE = 1e-200  # a chance that is below it may count as 0
_RANGE = 600.0  # e-folds to either side of c in which a weight decides whether N < c
_NEVER, _ALWAYS = 1e-260, 1 - 1e-14  # chances, below and above which they count as 0 and 1
# Tokens that differ: 4 to 8 s of work; and at all scores of a random sink, most of them certain.
_MOST_GROUPS, _MOST_AT_SCORES = 3000, 8000


class Others(NamedTuple):
    """The tokens that are no sinks, in groups of equals.

    Args:
        log_w: ln w of each group.
        gamma: spread of its scores, > 0.
        count: tokens in it.
    """

    log_w: np.ndarray
    gamma: np.ndarray
    count: np.ndarray


def _log_transform(s: np.ndarray, gamma: float) -> tuple[np.ndarray, np.ndarray]:
    """Return log E e^(−s e^(γε)) for complex s, and the same by every other point of the rule.

    With W e^W = sγ² the exponent −se^(γε) − ε²/2 has its saddle point at ε = −W/γ. The line of
    scores is parallel to the real axis, ε = x − (W + iτ)/γ, on which the first term is
    −(W e^(−iτ)/γ²) e^(γx). At τ = 0 it runs through the saddle point, but to the right of it that
    term oscillates, and grows where Re W < 0. So the argument of W is taken away, τ = arg W, as
    long as the line stays within one and a half widths γ/√(1 + |W|) of the saddle's hump.
    """
    w: Any = lambertw(s * gamma**2)
    most = _MOST_SHIFT * gamma / np.sqrt(1 + np.abs(w))
    shift = np.clip(np.angle(w), -most, most)
    turned = w * np.exp(-1j * shift) / gamma**2
    modulus = np.abs(turned)
    sets_in, turned = -np.log(modulus) / gamma, (turned / modulus)[:, None]
    line = ((w + 1j * shift) / gamma)[:, None]

    def along(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the real and the imaginary part of the exponent at x along the lines."""
        rise = np.exp(np.minimum(gamma * (x - sets_in[:, None]), 600.0))
        return x * line.real - 0.5 * x * x - turned.real * rise, x * line.imag - turned.imag * rise

    # Each s has its own hump along the line; one look cuts the range to it.
    ends = np.full(len(s), -_WIDE), np.full(len(s), _WIDE)
    low, high = narrowed(*ends, lambda x: along(x)[0], depth=_DEPTH, points=_LOOK, looks=1)
    # The normal density asks for points at a part of its spread, and e^(γx) where it sets in, at
    # x₀, at a part of 1/γ: so x = x₀ + r sinh v, r the shorter of both. In x itself the two rules
    # differed by 2e-9 at γ = 2 and 1e-3 at γ = 8; here by less than 2e-14 up to γ = 16.
    start, short = np.clip(sets_in, low, high), min(1.0, 1 / gamma)
    low, high = np.arcsinh((low - start) / short), np.arcsinh((high - start) / short)
    step = (high - low) / (_POINTS - 1)
    v = low[:, None] + step[:, None] * np.arange(_POINTS)
    size, phase = along(start[:, None] + short * np.sinh(v))
    top = size.max(axis=1)
    size = np.cosh(v) * np.exp(size - top[:, None])
    fine, coarse = 0j, 0j
    for part, unit in ((size * np.cos(phase), 1), (size * np.sin(phase), 1j)):
        fine = fine + unit * part.sum(axis=1)
        coarse = coarse + unit * 2 * part[:, ::2].sum(axis=1)
    outside = top - 0.5 * line[:, 0] ** 2 + np.log(short * step / ROOT_2_PI)
    return outside + np.log(fine), outside + np.log(coarse)


def _saddle(others: Others, log_c: float) -> tuple[float, float]:
    """Return about where s + Σ ln φ(s) − ln s is least in units of 1/c, and the width of that."""
    # ln s is the coordinate: the saddle may be anywhere from 1/e to e^690, the end of float64.
    square, scale = others.gamma**2, others.log_w - log_c

    def known(u: float) -> np.ndarray:
        """Return W of each group: −s d ln φ/ds is about W/γ²."""
        x = np.exp(np.minimum(u + scale, 690.0)) * square
        w: Any = lambertw(x)
        return w.real

    # −φ′/φ at s is about W/(γ²s) for one weight: the slope of the exponent is known without any
    # transform, and roughly is enough for a contour.
    low, high = -1.0, 690.0
    for _ in range(_BISECTIONS):
        middle = 0.5 * (low + high)
        rest = 1 + (others.count * known(middle) / square).sum()
        low, high = (middle, high) if math.exp(middle) < rest else (low, middle)
    w = known(low)
    curvature = 1 + (others.count * w * w / ((1 + w) * square)).sum()
    return math.exp(low), math.exp(low) / math.sqrt(curvature)


def below(others: Others, log_c: float) -> tuple[float, float]:
    """Return P(N < c), and a bound on its absolute error.

    Args:
        others: whose weights N adds up.
        log_c: ln c.
    """
    # Where a weight is e^600 times c, or all are e^(−600) times, no contour is needed.
    gap = others.log_w - log_c
    if gap.max() > _RANGE:  # N < c only if each weight is
        return 0.0, max(float(ndtr(-gap / others.gamma).min()), _LEAST)
    if gap.max() < -_RANGE:  # N < c at least if all are below c over their number
        beyond = ndtr((gap + math.log(others.count.sum())) / others.gamma)
        return 1.0, float(others.count @ beyond) + 1e-15
    saddle, width = _saddle(others, log_c)

    def along_contour(u: np.ndarray) -> np.ndarray:
        """Return the integrand over u: of the rule for scores, and of every other point of it."""
        along, turn = hyperbola(_BEND, u)
        s = saddle + width * along
        fine, coarse = s.copy(), s.copy()
        for log_w, gamma, count in zip(*others, strict=True):
            one, other = _log_transform(s * math.exp(log_w - log_c), float(gamma))
            fine, coarse = fine + count * one, coarse + count * other
        with np.errstate(all="ignore"):
            return np.stack([np.exp(x) / s * (turn * width / math.pi) for x in (fine, coarse)])

    # How far out the contour has to go is not known beforehand: Π φ_j falls by itself, and the
    # fewer tokens there are the slower. A rough look tells; of many tokens a short one.
    step = _STEP
    for reach in (_NEAR, _FAR):
        points = along_contour(np.arange(0.0, reach, step))
        size = np.abs(points[0])
        known = np.nan_to_num(size)
        live = np.flatnonzero(known > math.exp(-_DEPTH) * known.max())
        if live.size and live[-1] < len(size) - 1:
            break
    at_saddle = float(size[0])
    if at_saddle <= _LEAST:  # P(N < c) ≤ E e^(s(c − N)), at the saddle
        return 0.0, 2 * math.pi * _LEAST * saddle / width / math.cos(_BEND)
    if math.isnan(at_saddle) or not live.size:
        return 0.0, math.inf
    points = points[:, : live[-1] + 2]
    # Of rounding: of the exponents, each of about as many units as its size. With 4e-16 three of
    # 70,000 random chances were off by up to 1.15 times their bound.
    units = 1e-15 * (20 + float(others.count.sum()) + saddle + abs(math.log(at_saddle)))
    for _ in range(_HALVINGS):
        # The points of half the step are those before, and new ones between them.
        step /= 2
        between = step * np.arange(-1, 2 * points.shape[1] - 1, 2).clip(0)  # a contour begins at 0
        new = along_contour(between)[:, 1:]
        body, rough = points = np.insert(points, np.arange(1, points.shape[1]), new, axis=1)
        value, size = float(body.real.sum()) * step, float(np.abs(body).sum()) * step
        off = abs(value - 2 * step * float(body.real[::2].sum()))
        if off <= units * size:
            break
    off += abs(value - step * float(rough.real.sum())) + 10 * float(np.abs(body[-1]))
    return value, off + units * size


def exceeded(others: Others, fixed: float, log_c: float) -> tuple[float, float]:
    """Return P(N + F < c), and a bound on its absolute error.

    Args:
        others: whose weights N adds up.
        fixed: ln F, of others that weigh always the same.
        log_c: ln c.
    """
    if log_c <= fixed or not others.count.size:
        return float(log_c > fixed), 0.0
    return below(others, log_c + math.log1p(-math.exp(fixed - log_c)))


def split_others_from_sinks(
    row: Row, n: int, of: Exceeds
) -> tuple[Others, float, float, list[tuple[float, float]]]:
    """Return the random others; ln of the weight of fixed others, of fixed sinks; random sinks.

    "Sinks" are the needle where it is asked for, and weights are their powers.
    """
    # The quantity is a chance about one random sum N of independent weights. Fixed weights only
    # move c, and a sink of a random score is one more sum outside: so the four are told apart here.
    given = classify_tokens(row, n) if of.units else rescaled(classify_tokens(row, n), units=False)
    refuse_without(row, of.whose, given.of(of.whose))
    gamma = of.power * np.array([c[2] for c in given.classes])[given.member]
    if any(c[3] for c in given.classes):
        raise InputError("row", row, "its scores are not Gaussian; use estimate")
    sink, fixed = given.of(of.whose) > 0, gamma == 0
    log_w = of.power * given.log_w
    log_weight = log_w + np.log(given.count)
    free = ~sink & ~fixed
    # Equal tokens are one group: those before and behind a needle are of two classes.
    (log_w_of, gamma_of), group = np.unique(
        np.stack([log_w[free], gamma[free]]), axis=1, return_inverse=True
    )
    others = Others(log_w_of, gamma_of, np.bincount(group, given.count[free], len(gamma_of)))
    moving = np.flatnonzero(sink & ~fixed)
    if given.count[moving].sum() > 1:
        raise InputError(
            "row", row, f"has more than one {of.whose} of a random score; use estimate"
        )
    held, by_sinks = (
        float(np.logaddexp.reduce(log_weight[fixed & who], initial=-math.inf))
        for who in (~sink, sink)
    )
    return others, held, by_sinks, [(float(log_w[i]), float(gamma[i])) for i in moving]


def chance(row: Row, n: int, of: Exceeds) -> tuple[float, float]:
    """Return the chance in rows of n, and a bound on its absolute error."""
    others, fixed, by_sinks, moving = split_others_from_sinks(row, n, of)
    log_odds = -math.log(of.odds)
    half, step = 0, 0.0  # points to either side of a random sink's mean score
    if moving:
        # The chance as a function of ε turns within 1/γ of the sink's spread.
        step = min(_SINK_STEP, 0.5 / moving[0][1])
        half = math.ceil(_SINK_REACH / step)
    scores = 2 * half + 1
    most = _MOST_AT_SCORES // scores if moving else _MOST_GROUPS
    if len(others.count) > most:
        sink = f" beside a sink with {scores} scores to sum over" if scores > 1 else ""
        fix = f"its exact law is computed for at most {most} tokens that differ{sink}; use estimate"
        raise TooFine("length", n, fix)

    if not moving:
        return exceeded(others, fixed, log_odds + by_sinks)
    ((log_w, gamma),) = moving
    x = step * np.arange(-half, half + 1)
    weights = np.exp(-0.5 * x * x) * step / ROOT_2_PI
    sinks = log_odds + np.logaddexp(by_sinks, log_w + gamma * x)
    chances = _rising(lambda i: exceeded(others, fixed, float(sinks[i])), scores)
    value = float(weights @ chances[:, 0])
    other = slice(half % 2, None, 2)  # every other point, the mean score among them
    gap = abs(value - 2 * float(weights[other] @ chances[other, 0]))
    return value, gap + float(weights @ chances[:, 1]) + 1e-15


def _rising(chance_at: Callable[[int], tuple[float, float]], count: int) -> np.ndarray:
    """Return chances that rise from 0 to 1, and bounds on their errors, [count, 2].

    Where one is 0 or 1, all before or behind are, and are not computed: beside a sink of a wide
    score that is most of them.
    """
    known = functools.cache(chance_at)
    first = bisect.bisect_left(range(count), True, key=lambda i: sum(known(i)) > _NEVER)
    last = bisect.bisect_left(range(first, count), True, key=lambda i: known(i)[0] > _ALWAYS)
    low = [(0.0, sum(known(first - 1)))] * first if first else []
    high = []
    if first + last < count:
        value, off = known(first + last)
        high = [(1.0, 1 - value + off)] * (count - first - last)
    return np.array([*low, *(known(i) for i in range(first, first + last)), *high])


def has_law(kernel: kernels.Kernel) -> bool:
    """Return whether the kernel is exp, whose transform of one weight is known on the contour."""
    return kernel.weight == kernels.exp.weight


def refuse_other_kernels(row: Row, name: str) -> None:
    """Refuse all kernels but exp."""
    if not has_law(row.function):
        fix = f"the law of {name} is known for exp; use estimate"
        raise InputError("kernel", row.kernel.name, fix)


def chances_by_length(row: Row, of: Exceeds, length: np.ndarray, name: str) -> Means:
    """Return P(A > odds·N) in rows of n, 1 (no row is all zero), and relative error bounds.

    Args:
        row: of the kernel exp, with what is asked for; scores of their own β_j and γ_j.
        of: whose weights A are, and the odds.
        length: row lengths n ≥ 1, [lengths].
        name: of the quantity, as errors say it.

    Raises:
        InputError: another kernel, no sink or needle, tokens on a sphere or too many that differ,
            or a chance that is not resolved.
    """
    refuse_other_kernels(row, name)
    # Errors here are absolute, of a chance; quantities have relative ones.
    chances = np.array([chance(row, int(n), of) for n in length.tolist()]).reshape(-1, 2)
    value, off = chances.T
    with np.errstate(divide="ignore", invalid="ignore"):  # a chance that is certainly 0 is exact
        error = np.where(off > 0, off / np.abs(value), 0.0)
    open_ = ~(error < RESOLVED)
    if open_.any():
        rare = chances[open_].sum(axis=1) < _RARE
        if rare.all():
            fix = "the chance is too small to be resolved in float64; ask for less, or use estimate"
            raise TooRare("of", name, fix)
        raise InputError("of", name, "the chance is not resolved here; use estimate")
    return Means(clip_to_range(value, error, (0.0, 1.0)), np.ones(len(value)), error)
