"""Kernels that users write: `evaluate` on an array of γ against integrators of other libraries.

Everyone computes S = E|f| / √(E f²), s = γε, from the definition. SciPy's and quadax's integrators
are given f in float64, cut at its kink, and the loosest tolerance that reaches 1e−12; quadax, where
it is installed, runs compiled and warm on all γ at once.
"""

from __future__ import annotations

import functools
import importlib.util
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np

from benchmarks.bench.tables import seconds, table
from benchmarks.bench.throughput import OURS
from benchmarks.bench.timing import paired
from benchmarks.bench.user_kernels import KERNELS, UserKernel
from sparsity.limit.evaluation import evaluate

ACCURATE = 1e-12  # |Δ log S| at which a peer counts as equal

_REACH = 10.0  # of ε: beyond it every integrand here is below 1e−17 of its integral
_LOG_ROOT_2PI = 0.25 * math.log(2 * math.pi)
_FEW = 8  # points of a round for mpmath
_COMPILED = 400  # points of a call of quadax, which compiles for each shape; a round of ours


def _log_S(first: Any, second: Any) -> Any:
    """From ∫|f|e^(−t²/2) and ∫f²e^(−t²/2)."""
    return np.log(first) - np.log(second) / 2 - _LOG_ROOT_2PI


def _quad(kernel: UserKernel, gammas: np.ndarray) -> np.ndarray:
    """Point by point with `scipy.integrate.quad`."""
    from scipy.integrate import quad

    f, exp = kernel.scalar, math.exp

    def moment(integrand: Callable[[float], float]) -> float:
        pieces = ((-_REACH, 0.0), (0.0, _REACH))
        return sum(quad(integrand, *piece, epsabs=0, epsrel=1e-8)[0] for piece in pieces)

    return np.array(
        [
            _log_S(
                moment(lambda t, g=g: abs(f(g * t)) * exp(-0.5 * t * t)),
                moment(lambda t, g=g: f(g * t) ** 2 * exp(-0.5 * t * t)),
            )
            for g in gammas.tolist()
        ]
    )


def _quad_vec(kernel: UserKernel, gammas: np.ndarray) -> np.ndarray:
    """All points at once with `quad_vec`; moments of about one, so that its norm is fair to all."""
    from scipy.integrate import quad_vec

    nodes, weights = np.polynomial.hermite_e.hermegauss(64)
    a = np.abs(kernel.vector(np.multiply.outer(nodes, gammas)))
    first, second = weights @ a, weights @ (a * a)

    def integrand(t: float) -> np.ndarray:
        a = np.abs(kernel.vector(gammas * t))
        return math.exp(-0.5 * t * t) * np.stack([a / first, a * a / second])

    found = quad_vec(
        integrand, -_REACH, _REACH, epsabs=0, epsrel=1e-9, norm="max", points=[0.0], limit=1000
    )[0]
    return _log_S(found[0] * first, found[1] * second)


def _mpmath(
    kernel: UserKernel, gammas: np.ndarray, digits: int = 15, pieces: Sequence[float] = ()
) -> list[Any]:
    """Point by point with `mpmath.quad`."""
    import mpmath
    import sympy

    s = sympy.Symbol("s", real=True)
    f = sympy.lambdify(s, kernel.expression(s), "mpmath")
    cuts = pieces or (-_REACH, 0.0, _REACH)
    found = []
    with mpmath.workdps(digits):
        for gamma in gammas.tolist():
            g = mpmath.mpf(gamma)
            m1, m2 = (
                mpmath.quad(lambda t, g=g, p=p: abs(f(g * t)) ** p * mpmath.exp(-t * t / 2), cuts)
                for p in (1, 2)
            )
            found.append(mpmath.log(m1) - mpmath.log(m2) / 2 - mpmath.log(2 * mpmath.pi) / 4)
    return found


def _truth(kernel: UserKernel, gammas: np.ndarray) -> np.ndarray:
    """To 30 digits and more, rounded."""
    found = _mpmath(kernel, gammas, 40, (-16, -6, -2, -0.5, 0, 0.5, 2, 6, 16))
    return np.array([float(x) for x in found])


@functools.cache
def _compiled_quadax(kernel: UserKernel) -> Callable[[Any], Any]:
    import jax
    import jax.numpy as jnp
    import quadax  # pyright: ignore[reportMissingImports]
    import sympy

    s = sympy.Symbol("s", real=True)
    f = sympy.lambdify(s, kernel.expression(s), [{"erf": jax.scipy.special.erf}, "jax"])
    pieces = jnp.array([-_REACH, 0.0, _REACH])

    def integrand(t: Any, gamma: Any, p: int) -> Any:
        return abs(f(gamma * t)) ** p * jnp.exp(-0.5 * t * t)

    def moments(gamma: Any) -> tuple[Any, Any]:
        first, second = (
            quadax.quadgk(integrand, pieces, args=(gamma, p), epsabs=0, epsrel=1e-9)[0]
            for p in (1, 2)
        )
        return first, second

    return jax.jit(jax.vmap(moments))


def _quadax(kernel: UserKernel, gammas: np.ndarray) -> np.ndarray:
    """All points at once with `quadax.quadgk` under vmap and jit."""
    padded = np.resize(gammas, max(_COMPILED, len(gammas)))
    found = _compiled_quadax(kernel)(padded)
    return _log_S(*(np.asarray(moment)[: len(gammas)] for moment in found))


@dataclass(frozen=True)
class Integrator:
    """A peer: all log S of an array of γ, or of a few of them."""

    what: str
    run: Callable[[UserKernel, np.ndarray], Any]
    most: int | None = None


PEERS: Mapping[str, Integrator] = {
    "scipy.quad": Integrator("each γ by itself, cut at 0, relative 1e-8", _quad),
    "quad_vec": Integrator("all γ at once, cut at 0, relative 1e-9", _quad_vec),
    "mpmath.quad": Integrator("each γ by itself, cut at 0, 15 digits", _mpmath, _FEW),
} | (
    {"quadax": Integrator("quadgk, all γ at once in one jit, cut at 0, relative 1e-9", _quadax)}
    if importlib.util.find_spec("quadax")
    else {}
)


def gammas_of_round(points: int, number: int) -> np.ndarray:
    """From 0.1 to 10, no γ twice in all rounds."""
    jitter = np.random.default_rng(number).uniform(-1, 1, points)
    return np.geomspace(0.1, 10, points) * (1 + 1e-3 * jitter)


def timed(kernel: UserKernel, points: int, checked: int, rounds: int) -> dict[str, Any]:
    """One kernel on an array of γ: the first call from the expression, then warm, peers in turns.

    Args:
        kernel: the user's.
        points: of γ in a call.
        checked: points held against mpmath at 40 digits.
        rounds: calls of each, every one at γ of its own.

    Returns:
        A row: seconds of the first call, points per second, the largest bound that ours reports,
        the worst error found, and how many times ours is ahead of each peer.
    """
    own = kernel.fresh()
    works: dict[str, Callable[[int], Any]] = {
        OURS: lambda r: evaluate(own, beta=0.0, gamma=gammas_of_round(points, r))
    }
    counts = {OURS: points}
    for name, peer in PEERS.items():
        counts[name] = min(points, peer.most or points)
        works[name] = lambda r, p=peer, n=counts[name]: p.run(kernel, gammas_of_round(n, r))
    first = paired({OURS: lambda _: works[OURS](rounds)}, 1).seconds[OURS][0]
    if "quadax" in PEERS:
        _quadax(kernel, gammas_of_round(points, rounds))  # compiles
    done = paired(works, rounds)

    places = np.geomspace(0.1, 10, checked)
    truth, ours = _truth(kernel, places), evaluate(own, beta=0.0, gamma=places)
    found = {OURS: ours.log_S} | {name: peer.run(kernel, places) for name, peer in PEERS.items()}
    error = {n: float(np.abs(np.array(x, dtype=float) - truth).max()) for n, x in found.items()}
    each = {name: [t / counts[name] for t in times] for name, times in done.seconds.items()}
    ahead = {
        name: median(a / b for a, b in zip(each[name], each[OURS], strict=True)) for name in PEERS
    }
    equal = [name for name in PEERS if error[name] <= ACCURATE]
    best = min(equal, key=ahead.__getitem__, default=None)
    return {
        "kernel": kernel.name,
        "points": points,
        "first_seconds": first,
        "points_per_second": {name: 1 / median(times) for name, times in each.items()},
        "largest_bound": max(float(x.error_bound.max()) for x in done.results[OURS]),
        "worst_error": error,
        "within_bound": bool(np.all(np.abs(ours.log_S - truth) <= ours.error_bound + 1e-15)),
        "ours_over": ahead,
        "best_peer": best,
        "ratio": ahead[best] if best else math.nan,
    }


def rows(count: int, points: int, checked: int, rounds: int) -> Iterator[dict[str, Any]]:
    """A row for each of the first `count` kernels."""
    for kernel in KERNELS[:count]:
        yield timed(kernel, points, checked, rounds)


def text(section: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """The table for readers."""
    yield f"Kernels of users, {section[0]['points']} points of γ = 0.1…10: points per second"
    head = ("", "first call", OURS, "bound", "error", *(x for n in PEERS for x in (n, "error")))
    shown: list[Sequence[str]] = [(*head, "ratio", "best peer")]
    for row in section:
        speed, error = row["points_per_second"], row["worst_error"]
        mine = f"{error[OURS]:.0e}" + "!" * (not row["within_bound"])
        peers = [x for n in PEERS for x in (f"{speed[n]:.3g}", f"{error[n]:.0e}")]
        first, bound = seconds(row["first_seconds"]), f"{row['largest_bound']:.0e}"
        ends = (f"{row['ratio']:.3g}", row["best_peer"] or "—")
        shown.append((row["kernel"], first, f"{speed[OURS]:.3g}", bound, mine, *peers, *ends))
    yield from table(shown)
    yield "; ".join(f"{name}: {peer.what}" for name, peer in PEERS.items())
    yield f"ratio: to the fastest peer whose error is at most {ACCURATE:g}; ! beyond the bound"
