"""S by quadrature of the definition alone, with an error bound: the arbiter between other routes.

Moments m_p = E|a|^p are integrated in the log domain, in coordinates anchored at the kinks of f,
by adaptive bisection with the 15-point Kronrod rule; sums over positions by its discrete analogue,
Gauss quadrature for the counting measure. The bound adds |fine − coarse| of every panel and the
rounding of every node (its exponent may reach 10¹², so this is not a formality). It is an honest
estimate, not an enclosure: a spike of f much narrower than the first mesh (half a score, a tenth of
a standard deviation) goes unseen unless the definition names it as a kink.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from sparsity.definition import EPS, GAUSS7, KRONROD15, NODES15, Axis
from sparsity.errors import InputError
from sparsity.kernels import nonnegative, queries
from sparsity.kernels.base import Kernel, Law
from sparsity.kernels.lowering import numpy_log_abs

__all__ = ["log_integral", "log_sparsity", "moment"]

_DEPTH = 60  # largest drop of the log-integrand below its peak that is still refined
_DIVERGED = 1e-3  # relative error at which an integral is said not to converge
_ROUNDS, _PANELS = 80, 40_000  # limits of the bisection; what is left over enters the bound
_FAR = np.concatenate([np.geomspace(1e-9, 1e11, 121), np.arange(0.25, 12.0, 0.25)])
_SCORES = np.arange(-60.0, 60.25, 0.5)  # where formulas of order one have their features


class _Integrand:
    """g(t) = p·log|f(s(t))| + log density on an axis: p·log|f(β + γt)| − t²/2 for Gaussian keys."""

    def __init__(self, axis: Axis, p: float) -> None:
        """Keep the axis and the order."""
        self.axis, self.p = axis, p

    def __call__(self, a: np.ndarray, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """G and its rounding error (without that of the score) at offsets x from anchors a."""
        value, error = self.axis.log_abs(a, x)
        t = self.axis.t[a] + x
        error = self.p * error + 2 * EPS * t * t + np.abs(t) * self.axis.shift[a]
        return self.p * value + self.axis.log_density(t), error


def _peaks(g: Callable[[np.ndarray], np.ndarray], x: np.ndarray) -> np.ndarray:
    """Mesh points that resolve the highest local maxima of g between the scanned points x."""
    value = g(x)
    inner = value[1:-1]
    tops = np.flatnonzero((inner >= value[:-2]) & (inner >= value[2:]) & np.isfinite(inner)) + 1
    found = [np.empty(0)]
    for top in tops[np.argsort(value[tops])[-8:]]:
        low, high = x[top - 1], x[top + 1]
        near = value[top - 1 : top + 2]
        for _ in range(40):
            if np.ptp(near) < 1 or high - low < 8 * EPS * max(abs(low), abs(high)):
                break
            fine = np.linspace(low, high, 17)
            near = g(fine)
            best = int(np.clip(np.argmax(near), 1, 15))
            low, high, near = fine[best - 1], fine[best + 1], near[best - 1 : best + 2]
        width = (high - low) / 2
        if width > 0:
            reach = np.geomspace(width, max(x[top + 1] - x[top - 1], 2 * width), 40)
            found.append((low + high) / 2 + np.concatenate([-reach, [0.0], reach]))
    return np.concatenate(found)


def _mesh(f: _Integrand) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Panels (anchor, left, right) covering every scale on which the integrand may live."""
    axis = f.axis
    scan = np.concatenate([-_FAR, [0.0], _FAR])
    scores = (_SCORES - axis.s[0]) / axis.gamma + axis.t[0]
    everywhere = np.concatenate([scores, axis.t, *(axis.t[:, None] + scan)])
    panels = []
    for a, x in axis.meshes(
        lambda a: np.concatenate([everywhere - axis.t[a], scan, scan / axis.gamma])
    ):
        of_x = lambda y, a=a: f(np.full(y.shape, a), y)[0]  # noqa: E731
        x = np.unique(np.concatenate([x, np.clip(_peaks(of_x, x), x[0], x[-1])]))
        panels.append((np.full(len(x) - 1, a), x[:-1], x[1:], of_x(x)))
    top = max(float(value.max()) for *_, value in panels)
    if top == -np.inf:
        raise InputError("weight", axis.f.kernel.weight, "vanishes in float64 wherever keys fall")
    last = panels[-1][3][-1], panels[0][3][0]
    if max(last) >= top - _DEPTH:
        fix = f"E|a|^{f.p:g} is infinite: the weight must grow slower than exp(s²/(2γ²))"
        raise InputError("weight", axis.f.kernel.weight, fix)
    kept = []
    for a, left, right, value in panels:
        # Steep neighbours of the peak matter too: keep a margin of one panel on each side.
        live = value >= top - 2 * _DEPTH
        live = live | np.append(live[1:], False) | np.append(False, live[:-1])
        near = live[1:] | live[:-1]
        kept.append((a[near], left[near], right[near]))
    return tuple(np.concatenate(part) for part in zip(*kept, strict=True))  # type: ignore[return-value]


def _against(whole: np.ndarray, halves: np.ndarray) -> np.ndarray:
    """Half the gap between each panel's parent and its two halves, lefts first; 0 at the start."""
    if not len(whole):
        return np.zeros_like(halves)
    left, right = np.split(halves, 2)
    return np.tile(np.abs(whole - left - right) / 2, 2)


def _log_integral(f: _Integrand) -> tuple[float, float]:
    """Log ∫ e^g dt and a bound on its error."""
    a, left, right = _mesh(f)
    top = -np.inf
    done: list[np.ndarray] = []  # rows (log scale is common): integral, error, left, right, anchor
    whole = np.empty(0)
    for round_ in range(_ROUNDS):
        half = (right - left) / 2
        x = (left + right)[:, None] / 2 + half[:, None] * NODES15
        anchor = np.broadcast_to(a[:, None], x.shape)
        g, rounding = f(anchor, x)
        if round_ == 0:
            top = float(g.max())
        with np.errstate(under="ignore"):
            mass = half[:, None] * np.exp(np.minimum(g - top, 700.0))
        fine = mass @ KRONROD15
        # Two rules may agree by chance at a kink that nobody announced: a panel must also agree
        # with the panel it came from.
        error = np.maximum(np.abs(fine - mass @ GAUSS7), _against(whole, fine))
        noise = (mass * rounding) @ KRONROD15
        total = sum(part[0].sum() for part in done) + fine.sum()
        small = np.maximum(6e-17 * total, 2 * EPS * fine + noise)
        split = error > small
        error = np.maximum(error, small)  # below that nothing is known
        split |= (round_ == 0) & (fine > 1e-20 * total)  # every panel that counts is halved once
        stuck = half < 4 * EPS * np.maximum(np.abs(left), np.abs(right))
        split &= ~stuck
        if round_ == _ROUNDS - 1 or len(fine) + sum(len(p[0]) for p in done) > _PANELS:
            split[:] = False
        keep = ~split
        done.append(np.array([fine[keep], error[keep], left[keep], right[keep], a[keep]]))
        if not split.any():
            break
        middle, whole = (left + right)[split] / 2, fine[split]
        left = np.concatenate([left[split], middle])
        right = np.concatenate([middle, right[split]])
        a = np.concatenate([a[split], a[split]])
    fine, error, left, right, a = np.concatenate(done, axis=1)
    a, half = a.astype(int), (right - left) / 2
    heavy = fine > 1e-18 * fine.sum() / max(len(fine), 1)
    a, half, middle = a[heavy], half[heavy, None], (left + right)[heavy, None] / 2
    x = middle + half * NODES15
    anchor = np.broadcast_to(a[:, None], x.shape)
    g, rounding = f(anchor, x)
    mass = half * np.exp(g - top)
    noise = (mass * (rounding + f.p * f.axis.score_rounding(anchor, x) + 4 * EPS)) @ KRONROD15
    total = math.fsum(fine)
    if not error.sum() < _DIVERGED * total + 4 * (mass * rounding).sum():
        fix = f"the integral of |a|^{f.p:g} does not converge: is the moment infinite?"
        raise InputError("weight", f.axis.f.kernel.weight, fix)
    # Dropped panels lie e^(−2·_DEPTH) below the peak.
    bound = (error.sum() + noise.sum()) / total + 1e-25
    return top + math.log(total), bound + EPS * abs(top) + 2 * EPS


def log_integral(axis: Axis, p: float) -> tuple[float, float]:
    """Log of the integral of |f|^p over an axis, density relative to its peak; and its error."""
    return _log_integral(_Integrand(axis, p))


def moment(kernel: Kernel, p: float, beta: Any, gamma: Any) -> tuple[np.ndarray, np.ndarray]:
    """Absolute moments of a weight, m_p = E|f(β+γε)|^p with ε ~ N(0, 1), in the log domain.

    Args:
        kernel: a kernel of Law.SCORE.
        p: the order, > 0.
        beta: biases, any real number.
        gamma: spreads, > 0, broadcastable with `beta`.

    Returns:
        log m_p and a bound on its absolute error, both in the broadcast shape.

    Raises:
        InputError: the kernel is not a function of the score, p ≤ 0, the moment is infinite, or
            the weight is not a finite real number where keys fall.
    """
    if not p > 0:
        raise InputError("p", p, "must be > 0")
    beta, gamma = np.broadcast_arrays(np.asarray(beta, float), np.asarray(gamma, float))
    cells = [
        _log_integral(_Integrand(Axis(kernel, float(b), float(c)), p))
        for b, c in zip(beta.ravel(), gamma.ravel(), strict=True)
    ]
    value, bound = np.array(cells, dtype=np.float64).reshape(-1, 2).T
    return value.reshape(beta.shape) - 0.5 * math.log(2 * math.pi), bound.reshape(beta.shape)


@functools.lru_cache(maxsize=512)
def _counting_rule(points: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Gauss rule for Σ over x = 0 … points−1: `count` real nodes, exact to degree 2·count − 1.

    The recurrence of the discrete Chebyshev (Gram) polynomials, NIST DLMF §18.19.
    """
    if points <= count:
        return np.arange(points, dtype=np.float64), np.ones(points)
    k, size = np.arange(1, count), float(points)
    off = size * k * np.sqrt((1 - (k / size) ** 2) / (16.0 * k**2 - 4))
    nodes, vectors = np.linalg.eigh(np.diag(off, 1) + np.diag(off, -1))
    return nodes + (size - 1) / 2, size * vectors[0] ** 2


def _log_sum(log_weight: Callable[[np.ndarray], np.ndarray], n: int) -> tuple[float, float]:
    """Log Σ e^(g(m)) over distances m = 0 … n−1 and a bound on its error."""
    edges = {0, n} | {2**k for k in range(5, n.bit_length())}
    ends = sorted(edges | {n - edge for edge in edges})
    todo = list(itertools.pairwise(ends))
    probes = np.array([x for low, high in todo for x in (low, (low + high) // 2, high - 1)])
    top = float(np.max(log_weight(probes.astype(np.float64))))
    if not np.isfinite(top):
        raise InputError("weight", top, "must be finite and not vanish at every position")
    terms, errors = [], []
    while todo:
        low, high = todo.pop()
        sums = []
        for count in (8, 16):
            nodes, weights = _counting_rule(high - low, count)
            g = log_weight(low + nodes)
            mass = weights * np.exp(np.minimum(g - top, 700.0))
            sums.append(math.fsum(mass))
        error = abs(sums[1] - sums[0]) if high - low > 16 else 0.0  # else summed term by term
        noise = 4 * EPS * float(mass @ (1 + np.abs(g)))
        if error > max(noise, 1e-25):
            middle = (low + high) // 2
            todo += [(low, middle), (middle, high)]
            continue
        terms.append(sums[1])
        errors.append(error + noise)
    total = math.fsum(terms)
    return top + math.log(total), math.fsum(errors) / total + 2 * EPS * (1 + abs(top))


def _by_score(kernel: Kernel, bound: dict[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    m1, e1 = moment(kernel, 1, bound["beta"], bound["gamma"])
    m2, e2 = moment(kernel, 2, bound["beta"], bound["gamma"])
    return m1 - m2 / 2, e1 + e2 / 2 + 2 * EPS * np.abs(m1)


def _by_position(kernel: Kernel, bound: dict[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    log_weight = numpy_log_abs(kernel)
    shape = np.broadcast_shapes(*(np.shape(value) for value in bound.values()))
    columns = [np.broadcast_to(value, shape).ravel() for value in bound.values()]
    lengths = np.broadcast_to(bound["length"], shape).ravel()
    cells = []
    for n, *parameters in zip(lengths, *columns, strict=True):
        m1, e1 = _log_sum(lambda m, x=parameters: log_weight(m, *x), int(n))
        m2, e2 = _log_sum(lambda m, x=parameters: 2 * log_weight(m, *x), int(n))
        cells.append((m1 - m2 / 2 - math.log(n) / 2, e1 + e2 / 2 + 2 * EPS * math.log(n)))
    value, error = np.array(cells, dtype=np.float64).reshape(-1, 2).T
    return value.reshape(shape), error.reshape(shape)


@functools.lru_cache(maxsize=256)
def _query_sums(name: str, dim: int) -> tuple[float, float]:
    q = queries.named(name).vector(dim)
    return math.fsum(q), math.fsum(q * q)


def _by_feature(kernel: Kernel, bound: dict[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    """E a = Σ q_i and E a² = Σ_ij q_i q_j (1 + r² δ_ij), for i.i.d. features of mean 1, s.d. r."""
    if kernel.weight != nonnegative.weight:
        raise InputError("weight", kernel.weight, "only the bilinear weight Σ q_i k_i is known")
    ratio, dim = np.broadcast_arrays(bound["ratio"], bound["dim"])
    sums = [_query_sums(bound["query"], int(n)) for n in dim.ravel()]
    first, squares = np.array(sums, dtype=np.float64).reshape(-1, 2).T
    first, squares = first.reshape(dim.shape), squares.reshape(dim.shape)
    # Scaled by the larger of 1 and r, so that r² cannot overflow.
    scale = np.maximum(ratio, 1.0)
    log_m2 = 2 * np.log(scale) + np.log((first / scale) ** 2 + (ratio / scale) ** 2 * squares)
    log_m1 = np.log(first)
    return log_m1 - log_m2 / 2, 8 * EPS * (1 + np.abs(log_m1) + np.abs(log_m2))


def log_sparsity(kernel: Kernel, bound: dict[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    """Log S of a kernel, from its definition only: log E|a| − ½ log E a².

    Args:
        kernel: any kernel; for Law.SCORE any f that is finite and real.
        bound: the kernel's parameters, as `Kernel.bind` returns them.

    Returns:
        log S and a bound on |Δ log S|, both in the broadcast shape of the parameters.

    Raises:
        InputError: as for `moment`; a bilinear weight of another form.
    """
    routes = {Law.SCORE: _by_score, Law.POSITION: _by_position, Law.FEATURES: _by_feature}
    return routes[kernel.law](kernel, bound)
