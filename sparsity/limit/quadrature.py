"""Log S of a kernel from its definition alone, with an error bound: the arbiter of other routes.

Moments of scores are integrated panel by panel (`moments`); sums over positions use Gauss rules for
the counting measure.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from sparsity.errors import InputError
from sparsity.kernels.base import Kernel, Law
from sparsity.kernels.lowering import numpy_log_abs
from sparsity.kernels.numeric.definition import definition, period
from sparsity.kernels.numeric.points import EPS
from sparsity.limit import patches
from sparsity.limit.densities import gaussian_law
from sparsity.limit.moments import log_moments
from sparsity.limit.panels import Axis


def _moments(kernel: Kernel, powers: tuple[float, ...], beta: Any, gamma: Any) -> list[np.ndarray]:
    """Return log m_p and bounds on their errors, each of shape [powers, …].

    Patches serve most points; each of the others is integrated by itself.
    """
    f = definition(kernel)
    beta, gamma = np.broadcast_arrays(np.asarray(beta, float), np.asarray(gamma, float))
    b, c = beta.ravel(), gamma.ravel()
    value, error = np.zeros((len(powers), b.size)), np.full((len(powers), b.size), np.inf)
    if period(kernel.weight) is None:  # a wide Gaussian is uniform on one: patches do not know it
        value, error = patches.log_moments(kernel, powers, b, c)
    for i in np.flatnonzero(np.isinf(error[0])):
        law = gaussian_law(kernel, float(b[i]), float(c[i]))
        log, bound = log_moments(Axis(f, law), powers)
        value[:, i], error[:, i] = log + law.log_norm, bound + EPS
    shape = (len(powers), *beta.shape)
    return [value.reshape(shape), error.reshape(shape)]


def moment(kernel: Kernel, p: float, beta: Any, gamma: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return absolute moments of a weight, m_p = E|f(β+γε)|^p with ε ~ N(0, 1), in the log domain.

    Args:
        kernel: a kernel of Law.SCORE.
        p: the order, > 0.
        beta: biases, any real number.
        gamma: spreads, > 0, broadcastable with `beta`.

    Returns:
        log m_p and a bound on its absolute error, both in the broadcast shape.

    Raises:
        InputError: the kernel is not a function of the score, the moment is infinite, or the
            weight is not a finite real number at every score.
    """
    value, error = _moments(kernel, (float(p),), beta, gamma)
    return value[0], error[0]


@functools.lru_cache(maxsize=512)
def _counting_rule(points: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the Gauss rule for Σ over x = 0 … points−1, exact to degree 2·count − 1.

    The recurrence of the discrete Chebyshev (Gram) polynomials, NIST DLMF §18.19.
    """
    if points <= count:
        return np.arange(points, dtype=np.float64), np.ones(points)
    k, size = np.arange(1, count), float(points)
    off = size * k * np.sqrt((1 - (k / size) ** 2) / (16.0 * k**2 - 4))
    nodes, vectors = np.linalg.eigh(np.diag(off, 1) + np.diag(off, -1))
    return nodes + (size - 1) / 2, size * vectors[0] ** 2


def _log_sum(log_weight: Callable[[np.ndarray], np.ndarray], n: int) -> tuple[float, float]:
    """Return log Σ e^(g(m)) over distances m = 0 … n−1 and a bound on its error.

    Stretches that double from both ends inwards are summed by Gauss rules for the counting measure,
    and halved until rules of 8 and 16 nodes agree.
    """
    # What decays does so from one end: stretches that double meet it on its own scale.
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


def log_sparsity(kernel: Kernel, bound: dict[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    """Return log S of a kernel, from its definition only: log E|a| − ½ log E a².

    Args:
        kernel: of scores, any f that is finite and real; or of positions.
        bound: the kernel's parameters, as `Kernel.bind` returns them.

    Returns:
        log S and a bound on |Δ log S|, both in the broadcast shape of the parameters.

    Raises:
        InputError: as for `moment`; weights of features.
    """
    if kernel.law is Law.POSITION:
        return _by_position(kernel, bound)
    if kernel.law is Law.FEATURES:
        fix = "of features the closed form of Σ q_i k_i is known, and no other; leave method out"
        raise InputError("kernel", kernel.name, fix)
    (m1, m2), (e1, e2) = _moments(kernel, (1.0, 2.0), bound["beta"], bound["gamma"])
    return m1 - m2 / 2, e1 + e2 / 2 + 2 * EPS * np.abs(m1)
