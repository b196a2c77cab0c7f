"""One layer, measured in blocks of rows: never more than a block of its T × T is in memory."""

from __future__ import annotations

import functools
import itertools
import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from sparsity.errors import InputError
from sparsity.measurement import rows
from sparsity.measurement.sources import Logits, Source

BLOCK = 2**18  # entries of a block, in the cache with what is made of them
_WORKERS = 8  # at most, each with a block
TOP = (1, 4, 16, 64)  # of the k largest weights


def contexts(length: int) -> tuple[int, ...]:
    """The context lengths at which sinks are looked for: 64, 128, 256 … and T itself."""
    powers = [2**k for k in range(6, 40) if 2**k < length]
    return (*powers, length)


def _blocks(heads: int, length: int, at: Sequence[int]) -> list[tuple[int, int]]:
    """Rows from, to: none across a context length, none with much above the diagonal."""
    most = max(1, min(BLOCK // (heads * length), length // 8))
    cuts = [np.arange(a, b, most) for a, b in itertools.pairwise([0, *at])]
    starts = np.concatenate(cuts)
    return list(zip(starts.tolist(), [*starts[1:].tolist(), length], strict=True))


def _block(source: Source, sink: int, start: int, stop: int) -> tuple[dict[str, Any], Any, Any]:
    """Statistics of some rows; what keys receive from them, and from the last; who sees them."""
    heads, length = source.shape
    step = -(-length // 8)  # few different widths: each is compiled once
    width = min(-(-max(stop, sink + 1) // step) * step, length) if source.causal else length
    x, seen = source.block(start, stop, width)
    xp = x.__array_namespace__()
    parts = rows.split(x, seen, sink)
    found: dict[str, Any] = {}
    if isinstance(source, Logits):
        found = rows.shape(parts)
        parts = rows.softmax(parts)
    focused, p, n = rows.focus(parts, TOP)
    found |= focused | {"length": xp.broadcast_to(n, (heads, stop - start))}
    own = focused["sink_mass"][..., None]
    some = ~xp.isnan(own)  # rows that see nothing, or are all zero, give nothing and do not count
    weights = xp.concat([p[..., :sink], xp.where(some, own, 0.0), p[..., sink:]], axis=-1)
    received, last = weights.sum(-2), weights[:, -1]
    return found, (received, last), (seen & some).sum(-2)


def _in_order(
    work: Callable[..., Any], items: Sequence[tuple[int, int]]
) -> Iterator[tuple[tuple[int, int], Any]]:
    """Each item with its result, on all cores, no more than a few ahead of who asks."""
    workers, waiting = min(os.cpu_count() or 1, _WORKERS), deque()
    pool = ThreadPoolExecutor(workers)
    try:
        for item in items:
            waiting.append((item, pool.submit(work, *item)))
            if len(waiting) > 2 * workers:
                first, future = waiting.popleft()
                yield first, future.result()
        for item, future in waiting:
            yield item, future.result()
    finally:
        pool.shutdown(cancel_futures=True)


def measure_layer(source: Source, sink: int = 0) -> dict[str, np.ndarray]:
    """Every row of every head of a layer.

    Args:
        source: the layer.
        sink: position of the key looked at as a sink.

    Returns:
        By name, single precision: the statistics of `rows` [heads, T] (top_mass: [heads, T, k]);
        length, the keys in sight [heads, T]; and by context length, [heads, contexts]:
        importance of the sink, the mean of what the rows that see it give it, NaN where none does;
        top_importance, the largest of any key that at least a quarter of the rows see, and top_key,
        its position; rows of zeros count for neither. key_importance, that mean of every key over
        all rows, NaN where less than a quarter see it; last_row, the last query's p [heads, T].

    Raises:
        InputError: no such key as `sink`, or weights that are not what they are said to be.
    """
    heads, length = source.shape
    if isinstance(sink, bool) or not isinstance(sink, int | np.integer) or not 0 <= sink < length:
        raise InputError("sink", sink, f"must be a position from 0 to {length - 1}")
    sink = int(sink)
    at = contexts(length) if source.causal else (length,)
    blocks = _blocks(heads, length, at)
    names: dict[str, list[np.ndarray]] = {}
    received, seen = np.zeros((2, heads, length))
    sinks: list[tuple[np.ndarray, ...]] = []
    last = np.empty(0)
    for (_, stop), result in _in_order(functools.partial(_block, source, sink), blocks):
        found, (got, last), visible = result
        for name, value in found.items():
            names.setdefault(name, []).append(np.asarray(value, np.float32))
        width = got.shape[-1]
        received[:, :width] += np.asarray(got)
        seen[:, :width] += np.asarray(visible)
        if stop in at:
            sinks.append(_sinks(received, seen, sink, stop))
    by_row = {name: np.concatenate(values, axis=1) for name, values in names.items()}
    columns = (np.stack(column, axis=1) for column in zip(*sinks, strict=True))
    by_context = dict(zip(("importance", "top_importance", "top_key"), columns, strict=True))
    by_key = {"key_importance": _importance(received, seen, length).astype(np.float32)}
    return by_row | by_context | by_key | {"last_row": np.asarray(last, np.float32)}


def _importance(received: np.ndarray, seen: np.ndarray, stop: int) -> np.ndarray:
    """Of keys that a quarter of the rows see, the mean of what these give them; else NaN."""
    often = (4 * seen >= stop) & (seen > 0)
    return np.where(often, received / np.maximum(seen, 1), np.nan)


def _sinks(received: np.ndarray, seen: np.ndarray, sink: int, stop: int) -> tuple[np.ndarray, ...]:
    with np.errstate(divide="ignore", invalid="ignore"):
        alpha = received[:, sink] / seen[:, sink]
    often = _importance(received, seen, stop)
    top = np.where(np.isnan(often), -1.0, often).argmax(-1)
    best = np.take_along_axis(often, top[:, None], axis=-1)[:, 0]
    return alpha.astype(np.float32), best.astype(np.float32), top.astype(np.int32)
