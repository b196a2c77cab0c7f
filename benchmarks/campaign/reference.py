"""Log S of a kernel under a Gaussian score to 30 digits, from SymPy's tree alone, by Arb.

The library that is judged takes no part in it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from flint import arb, ctx

from benchmarks.campaign import structure
from benchmarks.campaign.balls import on_stretches
from benchmarks.campaign.limits import DEADLINE, Infinite, NoReference, NotReal
from benchmarks.campaign.moments import SPARE, Weight, moment, reach
from benchmarks.campaign.numeric import limited, numeric_log_s
from benchmarks.campaign.shape import Node, nodes, polynomial
from benchmarks.campaign.smooth import Stretch, Undecided, smooth
from benchmarks.campaign.tree import Unknown, convert

__all__ = ["Reference", "log_s"]

RADIUS = 1e-30  # of a reference, absolute
FIRST_BITS, LAST_BITS = 256, 2048


@dataclass(frozen=True)
class Reference:
    """A reference value: `log_S` is None where there is none, and `method` says why."""

    log_S: str | None
    method: str
    seconds: float


def features(tree: Node) -> list[float]:
    """Scores at which a straight line inside the kernel vanishes: where its features sit."""
    found = {0.0}
    for node in {x for x in nodes(tree) if isinstance(x, tuple)}:
        line = polynomial(node)
        if line is not None and line.degree() == 1:
            found.add(float(-arb(line[0]) / arb(line[1])))
    return sorted(found)


def _log_sizes(tree: Node, p: int, weight: Weight) -> Callable[[np.ndarray], np.ndarray]:
    f = on_stretches(tree)

    def at(scores: np.ndarray) -> np.ndarray:
        out = np.full(len(scores), -np.inf)
        for i, score in enumerate(scores):
            x = arb(float(score))
            size = abs(f(x)) ** p * weight.most(x)
            if size.is_finite() and size > 0:
                out[i] = float(size.log())
        return out

    return at


def rough_scale(tree: Node, p: int, weight: Weight) -> float:
    """The logarithm of a moment, roughly: a scan that climbs to the highest peaks it meets."""
    beta, gamma = float(weight.beta), float(weight.gamma)
    far = np.geomspace(1e-13, 1e4, 120)
    t = np.concatenate([np.linspace(-40, 40, 321), np.geomspace(40, 1e7, 100)])
    if weight.period is None:
        parts = [beta + gamma * np.concatenate([t, -t])]
    else:
        parts = [float(weight.period) * np.linspace(0, 1, 400)]
    parts += [c + np.concatenate([-far, [0.0], far]) for c in features(tree)[:12]]
    scores = np.unique(np.concatenate(parts))
    at = _log_sizes(tree, p, weight)
    height = at(scores)
    for _ in range(12):
        top = int(np.argmax(height))
        near = scores[max(top - 1, 0) : top + 2]
        new = np.setdiff1d(np.linspace(near[0], near[-1], 15), scores)
        if not len(new) or np.ptp(height[max(top - 1, 0) : top + 2]) < 1:
            break
        scores, order = np.unique(np.concatenate([scores, new]), return_index=True)
        height = np.concatenate([height, at(new)])[order]
    if np.max(height) > 1e17:
        raise Infinite(f"the moment of order {p} grows without end")
    logs = np.maximum(height[1:], height[:-1]) + np.log(np.diff(scores))
    if not np.any(np.isfinite(logs)):
        raise NoReference("vanishes wherever it was sampled")
    top = float(np.max(logs))
    return top + math.log(float(np.sum(np.exp(logs - top))))


def _weight(tree: Node, beta: arb, gamma: arb) -> Weight:
    length = structure.period(tree)
    if length is not None and gamma > 3 * length:
        return Weight(beta, gamma, arb(length.mid()))
    return Weight(beta, gamma)


def _moment(tree: Node, p: int, weight: Weight, scale: arb) -> arb:
    if weight.period is not None:
        return moment(tree, p, weight, scale, [arb(0), weight.period])
    if 60 < structure.plateau_count(tree, 28 * weight.gamma) < 3e5:
        left, right, rest = reach(tree, p, weight, scale * arb(2) ** -SPARE)
        found = structure.plateaus(tree, p, weight.beta, weight.gamma, left, right)
        return found + arb(0).union(arb(rest.upper()))
    points = {float(c) for c in features(tree)} | {float(weight.beta)}
    return moment(tree, p, weight, scale, [arb(c) for c in sorted(points)])


def log_mean(tree: Node, p: int, beta: float, gamma: float, scale: arb | None) -> tuple[arb, arb]:
    """Log E|f|^p, and the size of what was integrated, for a next try."""
    rest, mean, log = structure.tilted(tree, arb(beta), arb(gamma), p)
    weight = _weight(rest, mean, arb(gamma))
    if scale is None:
        scale = arb(rough_scale(rest, p, weight)).exp()
    found = _moment(rest, p, weight, scale)
    whole = weight.gamma * (2 * arb.pi()).sqrt() if weight.period is None else weight.period
    return log + (found / whole).log(), arb(found.mid()) if found > 0 else scale


def check_real(tree: Node, beta: float, gamma: float) -> None:
    """Raise NotReal where the kernel is not real at one of a few scores within reach."""
    for t in (-6, -2.1, -0.6, 0, 0.5, 1.9, 6):
        score = arb(beta + gamma * t)
        try:
            smooth(tree, Stretch(score, score))
        except Undecided:
            continue


def _by_arb(tree: Node, beta: float, gamma: float) -> arb:
    """A ball of log S with a radius of at most `RADIUS`."""
    check_real(tree, beta, gamma)
    log_S, bits = arb.nan(), FIRST_BITS
    scales: list[arb | None] = [None, None]
    while bits <= LAST_BITS:
        with ctx.workprec(bits):
            first, scales[0] = log_mean(tree, 1, beta, gamma, scales[0])
            second, scales[1] = log_mean(tree, 2, beta, gamma, scales[1])
            log_S = first - second / 2
        if log_S.is_finite() and float(log_S.rad()) < RADIUS:
            return log_S
        bits *= 2
    raise NoReference(f"no convergence: radius {log_S.rad()}")


def digits(log_S: arb) -> str:
    """A ball's midpoint in decimal, to 31 places after the point."""
    size = max(0, math.ceil(math.log10(max(1.0, abs(float(log_S.mid()))))))
    with ctx.workprec(1024):
        return arb(log_S.mid()).str(32 + size, radius=False)


def log_s(expression: Any, beta: float, gamma: float, limit: float = 20.0) -> Reference:
    """Log S with the method that found it.

    Args:
        expression: f(s), a SymPy expression of one symbol.
        beta, gamma: the scores' mean and standard deviation, exact as they are.
        limit: seconds for Arb, and again for the method in its place.

    Returns:
        The reference. Its `method` is "Arb", "mpmath", "infinite", "not real" or "none: reason".
    """
    start = time.process_time()
    value, method = None, "Arb"
    try:
        DEADLINE.set(limit)
        value = digits(_by_arb(convert(expression), beta, gamma))
    except Infinite:
        method = "infinite"
    except NotReal:
        method = "not real"
    except (NoReference, TimeoutError, Unknown, OverflowError) as reason:
        try:
            with limited(limit):
                value, method = numeric_log_s(expression, beta, gamma), "mpmath"
        except (NoReference, TimeoutError, OverflowError) as second:
            method = f"none: {reason or 'time'}; {second or 'time'}"
    return Reference(value, method, round(time.process_time() - start, 2))
