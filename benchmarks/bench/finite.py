"""The exact law at finite length: a curve over lengths, and many biases at one length.

The peer is SciPy's adaptive quadrature, in itself: E n_eff = ∫ E[(Σ|a|)² e^(−tΣa²)] dt, whose
expectation is made of the moments E[|a|^k e^(−ta²)] of one weight, k = 0, 1, 2.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import Any

import numpy as np

from benchmarks.bench.tables import seconds, table
from benchmarks.bench.theory import weight
from benchmarks.bench.timing import paired
from sparsity import kernels
from sparsity.exact_law.exact import exact
from sparsity.kernels import Kernel
from sparsity.sweeps.curves import sweep

KERNELS = (kernels.exp, kernels.relu2, kernels.identity)
PEER = "quad_vec"
LAW: dict[str, float] = {"beta": 0.5, "gamma": 1.1}

_NUDGE = 1e-6  # between rounds: no law is asked for twice
_AT = 1024  # the one length of many biases
_REACH, _FROM, _TO = 12.0, -50.0, 90.0  # of ε, and of ln t
_TARGET, _TINY = 1e-8, 1e-13  # relative error that the peer is asked for, and absolute within


def lengths(count: int) -> np.ndarray:
    """So many different ones from 4 to 4096, about even in log n.

    Raises:
        ValueError: there are not so many.
    """
    for points in range(count, count + 20):
        found = np.unique(np.geomspace(4, 4096, points).round().astype(int))
        if len(found) == count:
            return found
    raise ValueError(f"no even grid of {count} lengths from 4 to 4096")


def by_quad_vec(kernel: Kernel, n: np.ndarray, beta: float, gamma: float) -> np.ndarray:
    """E n_eff of rows of n tokens; of rows that have a weight other than 0."""
    from scipy.integrate import quad_vec
    from scipy.special import ndtr

    f, root = weight(kernel.name, math.exp), -beta / gamma
    near = root + np.outer([-1, 1], _REACH * 8.0 ** -np.arange(9)).ravel()  # where |a| may be tiny
    breaks = () if kernel is kernels.exp else (root, *near[np.abs(near) < _REACH])

    def moments(t: float) -> np.ndarray:
        """E[(√t |a|)^k e^(−ta²)], k = 0, 1, 2."""

        def integrand(x: float) -> np.ndarray:
            y = math.sqrt(t) * f(beta + gamma * x)
            return np.array([1, y, y * y]) * math.exp(-0.5 * x * x - min(y * y, 745.0))

        found = quad_vec(integrand, -_REACH, _REACH, epsabs=_TINY, epsrel=_TARGET, points=breaks)[0]
        return found / math.sqrt(2 * math.pi)

    def density(u: float) -> np.ndarray:
        m0, m1, m2 = moments(math.exp(u))
        return n * m0 ** (n - 2) * (m2 * m0 + (n - 1) * m1 * m1)

    found = quad_vec(density, _FROM, _TO, epsabs=0.0, epsrel=_TARGET, norm="max")[0]
    empty = ndtr(root) ** n if kernel is kernels.relu2 else 0.0
    return found / (1 - empty)


def timed(kernel: Kernel, points: int, biases: int, rounds: int) -> dict[str, Any]:
    """Seconds of a curve of so many lengths at a law not seen before, and of so many biases.

    Args:
        kernel: exp, relu2 or identity.
        points: lengths of the curve.
        biases: at one length.
        rounds: timings of each.

    Returns:
        Seconds, the largest error bound, the largest relative difference from the peer, and
        whether it is within the bound and what the peer was asked for.
    """
    n = lengths(points)

    def law(round_: int) -> dict[str, Any]:
        return {name: x * (1 + _NUDGE * (round_ + 1)) for name, x in LAW.items()}

    def many(round_: int) -> Any:
        # No two that differ in sign alone: those are one law to |s|.
        beta = np.linspace(-2, 3, biases) * (1 + _NUDGE * (round_ + 1))
        return sweep(kernel, beta=beta, gamma=law(round_)["gamma"], length=_AT, of="n_eff")

    exact(kernel, length=n, **law(10_000))
    ours = paired({"curve": lambda r: exact(kernel, length=n, **law(r)), "biases": many}, rounds)
    peers = paired({PEER: lambda r: by_quad_vec(kernel, n, **law(r))}, 1)
    curve, theirs = ours.results["curve"][0], peers.results[PEER][0]
    bound, off = float(np.max(curve.error_bound)), float(np.abs(curve.value / theirs - 1).max())
    return {
        "kernel": kernel.name,
        "lengths": points,
        "biases": biases,
        "curve_seconds": median(ours.seconds["curve"]),
        "biases_seconds": median(ours.seconds["biases"]),
        "largest_bound": bound,
        "peer_seconds": peers.seconds[PEER][0],
        "difference": off,
        "agrees": bool(off <= bound + _TARGET),
        "ratio": peers.seconds[PEER][0] / median(ours.seconds["curve"]),
    }


def rows(count: int, points: int, biases: int, rounds: int) -> Iterator[dict[str, Any]]:
    """A row for each of the first `count` kernels."""
    for kernel in KERNELS[:count]:
        yield timed(kernel, points, biases, rounds)


def text(section: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """The table for readers."""
    points, biases = section[0]["lengths"], section[0]["biases"]
    yield f"Exact law, E n_eff: {points} lengths at a new law; {biases} biases at n = {_AT}"
    shown: list[Sequence[str]] = [
        ("", "lengths", "bound", PEER, "differs by", "ratio", f"{biases} biases")
    ]
    for row in section:
        own, theirs = seconds(row["curve_seconds"]), seconds(row["peer_seconds"])
        bound = f"{row['largest_bound']:.0e}"
        off = f"{row['difference']:.0e}" + "!" * (not row["agrees"])
        ends = (f"{row['ratio']:.3g}", seconds(row["biases_seconds"]))
        shown.append((row["kernel"], own, bound, theirs, off, *ends))
    yield from table(shown)
    yield f"{PEER}: scipy.integrate.quad_vec within scipy.integrate.quad_vec, asked for {_TARGET:g}"
