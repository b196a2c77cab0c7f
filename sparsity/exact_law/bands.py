"""Pieces of a Laplace transform: e^(−x) by its series and on a band of nodes, and their products.

Nodes are sorted by log|f|. Below the band e^(−x) is its series, above it 0.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator

import numpy as np

from sparsity.quantities.base import LogMoment

_TERMS, _SMALL = 12, -1.5  # of the series of e^(−x); log x below which they are all of it
_LARGE = 5.5  # log x above which e^(−x) counts as zero
_AT_ONCE = 32  # points of u
_MERGED = 16  # times as many where there is no band
_FEW = 4  # laws of a product
_UNSHARED = 2**18  # multiplications in a product up to which OpenBLAS leaves it to one thread
_FEWEST = 8  # columns: one alone would be summed in another order
Orders = tuple[float | LogMoment, ...]


@functools.lru_cache(maxsize=64)
def series(k: Orders) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Powers p, the coefficients of x^p in 1 − e^(−x) and the x^k e^(−x), [1 + k, powers], and
    whether those of a row are times ln x, [1 + k].
    """
    terms, orders = np.arange(_TERMS), [order_of(each) for each in k]
    powers = np.unique(np.add.outer([1.0, *orders], terms))
    term = [(-1.0) ** i / math.factorial(i) for i in terms]
    table = np.zeros((1 + len(k), len(powers)))
    table[0, np.searchsorted(powers, terms + 1)] = term / (terms + 1)
    for row, power in zip(table[1:], orders, strict=True):
        row[np.searchsorted(powers, power + terms)] = term
    return powers, table, np.array([False, *(isinstance(each, LogMoment) for each in k)])


def order_of(k: float | LogMoment) -> float:
    """The power of x in a moment."""
    return k.order if isinstance(k, LogMoment) else k


def _power(x: np.ndarray, order: float) -> np.ndarray | float:
    return 1.0 if order == 0 else x if order == 1 else x**order


def band(log_node: np.ndarray, rise: np.ndarray, k: Orders) -> np.ndarray:
    """1 − e^(−x) and the x^k e^(−x) of x = e^(log_node + rise), [1 + k, nodes, rises].

    A factor ln x besides, where asked.
    """
    band = np.empty((1 + len(k), len(log_node), len(rise)))
    x = np.multiply.outer(np.exp(log_node), np.exp(rise))
    np.expm1(np.negative(x), out=band[0])
    np.negative(band[0], out=band[0])
    less = np.exp(-x)
    for found, each in zip(band[1:], k, strict=True):
        order = order_of(each)
        np.multiply(less, _power(x, order), out=found)
        if isinstance(each, LogMoment):
            found *= log_node[:, None] + rise
    return band


def parts(u: np.ndarray, log: np.ndarray) -> Iterator[tuple[int, int, int, int]]:
    """Points of u a few at a time, from the last: (start, stop, first node of the band, its end).

    Where no node is in the band, between nodes far apart, many points are taken at once.
    """
    stops = np.arange(len(u), 0, -_AT_ONCE)
    starts = np.maximum(stops - _AT_ONCE, 0)
    first = np.searchsorted(log, _SMALL - u[stops - 1]).tolist()
    last = np.searchsorted(log, _LARGE - u[starts]).tolist()
    i = 0
    while i < len(stops):
        j = i + 1
        if first[i] == last[i]:
            while j < min(i + _MERGED, len(stops)) and first[j] == last[j] == first[i]:
                j += 1
        yield int(starts[j - 1]), int(stops[i]), first[i], last[i]
        i = j


def blocks(w: np.ndarray) -> np.ndarray:
    """Weights of any number of laws in blocks of a few, [blocks, few, nodes], filled up with zeros.

    A product with a block has the same bits whatever the number of laws.
    """
    rows = w.reshape(-1, w.shape[-1])
    padding = np.zeros((-len(rows) % _FEW, w.shape[-1]))
    return np.concatenate([rows, padding]).reshape(-1, _FEW, w.shape[-1])


def product(blocks: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """The matrix product, a few columns at a time.

    The whole would be shared out between threads, which wait for each other longer than they work.
    It may differ from this in the last bits.
    """
    rows, width = columns.shape[-2:]
    few = max(_UNSHARED // (_FEW * max(rows, 1)), _FEWEST)
    if width <= few:
        return blocks @ columns
    parts = np.array_split(columns, -(-width // few), axis=-1)
    return np.concatenate([blocks @ part for part in parts], axis=-1)
