"""Laplace transforms of a weight's law: E[1 − e^(−x)] and E[x^k e^(−x)] of x = t|f|^c, any t > 0.

The exact law of finite rows is made of them. The inner integral over the score is done on nodes
sorted by log|f| (`nodes`): at each t only the band of nodes where e^(−x) is neither its series nor
0 is evaluated, the rest are running sums. Laws that share their nodes (`shared_nodes`) differ in
the weights alone: their transforms are one product of matrices.
"""

from __future__ import annotations

import copy
import functools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from sparsity.exact_law.transforms.nodes import too_wide
from sparsity.exact_law.transforms.shared_nodes import LawNodes, nodes_of_law, tilt
from sparsity.kernels.base import Kernel
from sparsity.quantities.laws import LogMoment

Orders = tuple[float | LogMoment, ...]

# Where a node is below the band, e^(−x) is its series: at log x = −1.5 the first term left out,
# x^12/12!, is 3e-17 of the first. Above the band, at log x = 5.5, e^(−x) is e^(−245). A band that
# were narrower would save nodes, and need more terms at each point.
_TERMS, _SMALL = 12, -1.5
_LARGE = 5.5
# Points of u that share a band. The band has to hold the nodes of all of them, so more of them
# waste nodes at its ends, and fewer waste calls.
_POINTS_PER_BAND = 32
_MERGED = 16  # times as many points where no node is in the band
_MOST_POINTS = 1_000_000  # of u, that one law may be asked for: seconds of work
_BLOCK = 4  # laws of a product of matrices
_UNSHARED = 2**18  # multiplications in a product up to which OpenBLAS leaves it to one thread
_FEWEST_COLUMNS = 8  # of a product: one alone would be summed in another order


def order_of(k: float | LogMoment) -> float:
    """Return the power of x in a moment."""
    return k.order if isinstance(k, LogMoment) else k


def log_power_of(k: float | LogMoment) -> int:
    """Return the power of ln x in a moment."""
    return k.power if isinstance(k, LogMoment) else 0


@functools.lru_cache(maxsize=64)
def _series(k: Orders) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return powers p, the coefficients of x^p in 1 − e^(−x) and the x^k e^(−x), [1 + k, powers].

    The third array is the power of ln x that the coefficients of a row are times, [1 + k].
    """
    # All functions share one list of powers, so that one running sum of w x^p serves each of them.
    terms, orders = np.arange(_TERMS), [order_of(order) for order in k]
    powers = np.unique(np.add.outer([1.0, *orders], terms))
    term = [(-1.0) ** i / math.factorial(i) for i in terms]
    table = np.zeros((1 + len(k), len(powers)))
    table[0, np.searchsorted(powers, terms + 1)] = term / (terms + 1)
    for row, power in zip(table[1:], orders, strict=True):
        row[np.searchsorted(powers, power + terms)] = term
    return powers, table, np.array([0, *map(log_power_of, k)])


def _on_band(log_node: np.ndarray, rise: np.ndarray, k: Orders) -> np.ndarray:
    """Return 1 − e^(−x) and the x^k e^(−x) of x = e^(log_node + rise), [1 + k, nodes, rises].

    The orders that are a `LogMoment` have a power of ln x besides.
    """
    # This is the inner loop of the exact laws: x by an outer product is one exponential less of
    # each number than by the sum of logarithms.
    band = np.empty((1 + len(k), len(log_node), len(rise)))
    x = np.multiply.outer(np.exp(log_node), np.exp(rise))
    np.expm1(np.negative(x), out=band[0])
    np.negative(band[0], out=band[0])
    less = np.exp(-x)
    for values, encoded in zip(band[1:], k, strict=True):
        order = order_of(encoded)
        np.multiply(less, 1.0 if order == 0 else x if order == 1 else x**order, out=values)
        for _ in range(log_power_of(encoded)):
            values *= log_node[:, None] + rise
    return band


def _bands(u: np.ndarray, log: np.ndarray) -> Iterator[tuple[int, int, int, int]]:
    """Yield points of u a few at a time, from the last: (start, stop, first node, last node).

    The nodes are the ends of the band. Where no node is in it, between nodes far apart, many points
    are taken at once.
    """
    # As u falls the band moves up through the nodes, and nodes below it are never met again: their
    # powers can be summed once and for all.
    stops = np.arange(len(u), 0, -_POINTS_PER_BAND)
    starts = np.maximum(stops - _POINTS_PER_BAND, 0)
    # A node counts as below the band if it is so at the last u of these, and as above it if it is
    # so at the first one: whatever is in between at any of them is in the band of all.
    first = np.searchsorted(log, _SMALL - u[stops - 1]).tolist()
    last = np.searchsorted(log, _LARGE - u[starts]).tolist()
    i = 0
    while i < len(stops):
        j = i + 1
        # A merged batch is still the same for all its points, as no node enters or leaves.
        if first[i] == last[i]:
            while j < min(i + _MERGED, len(stops)) and first[j] == last[j] == first[i]:
                j += 1
        yield int(starts[j - 1]), int(stops[i]), first[i], last[i]
        i = j


def product(blocks: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """Return the matrix product, a few columns at a time.

    OpenBLAS would share the whole out between threads, which wait for each other longer than they
    work, and would sum in another order: it may differ from this in the last bits.
    """
    rows, width = columns.shape[-2:]
    few = max(_UNSHARED // (_BLOCK * max(rows, 1)), _FEWEST_COLUMNS)
    if width <= few:
        return blocks @ columns
    parts = np.array_split(columns, -(-width // few), axis=-1)
    return np.concatenate([blocks @ part for part in parts], axis=-1)


def _move(sums: np.ndarray, by: float) -> None:
    """Turn sums of w x^i, [i, ...], into those of w(x + by)^i, by the binomial theorem."""
    for i in range(len(sums) - 1, 0, -1):  # the lower ones are still of x
        for j in range(i):
            sums[i] += math.comb(i, j) * by ** (i - j) * sums[j]


def transforms(log: np.ndarray, weights: np.ndarray, k: Orders, u: np.ndarray) -> np.ndarray:
    """Return E[1 − e^(−x)] and the E[x^k e^(−x)] of x = e^(u + log), [1 + k, ..., points].

    Args:
        log: at the nodes, ascending.
        weights: of the nodes, [..., nodes].
        k: the powers of x.
        u: ascending.
    """
    shape, (powers, series, logged) = weights.shape[:-1], _series(k)
    most = int(logged.max())
    # (ln x + since)^m = Σ binomial[i, m] since^lacking[i, m] (ln x)^i, for each order's power m.
    binomial = np.array([[math.comb(m, i) for m in logged.tolist()] for i in range(most + 1)])
    lacking = np.maximum(logged - np.arange(most + 1)[:, None], 0)
    # Laws in blocks of a few, filled up with zeros: a product with a block has the same bits
    # whatever the number of laws.
    rows = weights.reshape(-1, weights.shape[-1])
    w = np.concatenate([rows, np.zeros((-len(rows) % _BLOCK, rows.shape[-1]))])
    w = w.reshape(-1, _BLOCK, rows.shape[-1])
    out = np.empty((*w.shape[:-1], len(series), len(u)))
    # Nodes above the band have 1 − e^(−x) = 1 and no moments: they add their weights to the former.
    above = np.cumsum(w[..., ::-1], axis=-1)[..., ::-1]
    # Running sums of w x^p (ln x)^i over the nodes below the band, at the u before.
    light, done, was = np.zeros((most + 1, *w.shape[:-1], len(powers))), 0, u[-1]
    for start, stop, first, last in _bands(u, log):
        here = u[start:stop]
        high = here[-1]
        # From one u to the next every x^p changes by the same factor, and so do their sums, and ln
        # x grows by high − was.
        _move(light, high - was)
        light *= np.exp((high - was) * powers)
        if done < first:
            at = high + log[done:first]
            fresh, weight = np.exp(np.multiply.outer(at, powers)), w[..., done:first]
            for i, sums in enumerate(light):
                sums += product(weight if i == 0 else weight * at**i, fresh)
        done, was = first, high
        # `light` is at the last point of the batch; the powers of the others are less by rises ≤ 0,
        # which cannot overflow, and are put into the coefficients of the series.
        rise = np.exp(np.multiply.outer(powers, here - high))
        terms = series.T[:, :, None] * rise[:, None]
        if most:
            # At another point ln x is ln x at `high`, plus the rise: the binomial theorem again.
            since = (here - high) ** np.arange(most + 1)[:, None]
            values = np.zeros((*light.shape[1:-1], len(series) * len(here)))
            for sums, m, n in zip(light, binomial, lacking, strict=True):
                values += sums @ (terms * (m[:, None] * since[n])).reshape(len(powers), -1)
        else:
            values = light[0] @ terms.reshape(len(powers), -1)
        out[..., start:stop] = values.reshape(*values.shape[:-1], len(series), -1)
        if first < last:
            band = _on_band(log[first:last] + high, here - high, k)
            inside = product(w[:, None, :, first:last], band)
            out[..., start:stop] += inside.swapaxes(1, 2)
        if last < len(log):
            out[..., 0, start:stop] += above[..., last, None]
    out = out.reshape(-1, *out.shape[2:])[: math.prod(shape)]
    return np.moveaxis(out, 1, 0).reshape(len(series), *shape, len(u))


class Laplace:
    """E[1 − e^(−x)] and E[x^k e^(−x)] of x = e^(u + c·log|f|), for any u; all over e^top.

    Args:
        nodes: the nodes that the laws share.
        beta: bias of one law, or of several.
        gamma: likewise.
        k: the powers of x; a `LogMoment` has a power of ln x besides.

    Attributes:
        top: log of the scale, one for each law.
        p_nonzero: P(f ≠ 0) over e^top, likewise.
        p_zero: P(f = 0), likewise: to all digits, which 1 − P(f ≠ 0) does not have.
    """

    def __init__(self, nodes: LawNodes, beta: Any, gamma: Any, k: Orders) -> None:
        """Weigh the nodes."""
        # Laws that share nodes differ from the reference by a tilt of the density alone.
        self.law_nodes, self.k = nodes, k
        self.gamma = float(np.max(gamma))  # as an error says it
        laws = np.shape(beta)
        by, self.p_zero = np.zeros((*laws, 3)), np.full(laws, nodes.points.p_zero)
        if nodes.shared:
            beta, gamma = np.asarray(beta), np.asarray(gamma)
            by, self.p_zero = tilt(beta, gamma, nodes.near), nodes.mass(beta, gamma)
        log_w = nodes.points.tilted(by)
        # Over e^top, the largest weight, nothing underflows of a law that is nearly always zero.
        self.top = log_w.max(axis=-1)
        self.w = np.exp(log_w - self.top[..., None])
        self.p_nonzero = self.w.sum(axis=-1)

    def joined(self, laws: list[Laplace]) -> Laplace:
        """Return laws that share their nodes as one, each over its own e^top."""
        joined = copy.copy(self)
        joined.w = np.stack([law.w for law in laws])
        return joined

    def range(self, longest: float, shortest: float = 1.0) -> tuple[float, float]:
        """Return the range of u beyond which rows of these lengths have no integrand left."""
        return self.law_nodes.first_u(longest), self.law_nodes.last_u(shortest, longest)

    def at(self, u: np.ndarray) -> tuple[np.ndarray, list[np.ndarray]]:
        """Return E[1 − e^(−x)] and the E[x^k e^(−x)], each [..., len(u)], for ascending u."""
        if len(u) > _MOST_POINTS:
            raise too_wide(self.law_nodes.kernel, self.gamma)
        psi, *moments = transforms(self.law_nodes.c_log_f, self.w, self.k, u)
        return psi, moments


@functools.lru_cache(maxsize=256)
def laplace(
    kernel: Kernel, beta: float, gamma: float, c: int, k: Orders, scores: Any = None
) -> Laplace:
    """Return the (cached) transforms of one law."""
    return Laplace(nodes_of_law(kernel, beta, gamma, scores, c), beta, gamma, k)
