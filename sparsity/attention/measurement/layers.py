"""One layer, measured in blocks of rows: never more than a block of its T × T is in memory."""

from __future__ import annotations

import functools
import itertools
import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np

from sparsity.attention.measurement import asked, passes, rows
from sparsity.attention.measurement.sources import Logits, Source, Weights, at_once, width
from sparsity.attention.streaming.sums import Sums
from sparsity.errors import InputError

BLOCK = 2**18  # entries of a block, in the cache with what is made of them
_WORKERS = 8  # at most, each with a block


def contexts(length: int) -> tuple[int, ...]:
    """The context lengths at which sinks are looked for: 64, 128, 256 … and T itself."""
    powers = [2**k for k in range(6, 40) if 2**k < length]
    return (*powers, length)


Piece = tuple[slice, int, int]  # heads, the first row, the row after the last


def _blocks(source: Source, cuts: Sequence[int]) -> list[Piece]:
    """All heads, rows from, to: none across a cut, none with much above the diagonal."""
    heads, length = source.shape
    most = at_once((heads, source.reach), BLOCK)
    starts = np.concatenate([np.arange(a, b, most) for a, b in itertools.pairwise([0, *cuts])])
    ends = [*starts[1:].tolist(), length]
    return [(slice(0, heads), a, b) for a, b in zip(starts.tolist(), ends, strict=True)]


_SINK = "logit of the sink"


class Given(NamedTuple):
    """What a block of rows comes to.

    Args:
        found: statistics by name, or sums and the sink's logit, [heads, rows].
        received: what each key receives from them, [heads, keys].
        counts: how many of them see each key, [1 or heads, keys].
        last: the weights of the last of them, [heads, keys].
    """

    found: dict[str, np.ndarray]
    received: np.ndarray
    counts: np.ndarray
    last: np.ndarray


def _of_weights(source: Weights, sink: Any, heads: slice, start: int, stop: int) -> Given:
    x, seen = source.block(start, stop, width(source, stop, sink))
    xp = x.__array_namespace__()
    at = sink if isinstance(sink, int) else xp.asarray(source.first[:, start:stop])
    focused, p, n = rows.focus(rows.split(x, seen, at))
    own = focused["sink_mass"][..., None]
    some = ~xp.isnan(own)  # rows that see nothing, or are all zero, give nothing and do not count
    given = xp.where(some, own, 0.0)
    if isinstance(at, int):
        weights = xp.concat([p[..., :at], given, p[..., at:]], axis=-1)
    else:
        weights = xp.where(xp.arange(x.shape[-1]) == at[..., None], given, p)
    found = focused | {"length": xp.broadcast_to(n, own.shape[:-1])}
    received, counts, last = weights.sum(-2), (seen & some).sum(-2), weights[:, -1]
    return Given(
        {k: np.asarray(v) for k, v in found.items()}, *map(np.asarray, (received, counts, last))
    )


def _of_logits(
    source: Logits, held: passes.Arrays, sink: Any, heads: slice, start: int, stop: int
) -> Given:
    (rest, own, received, last), counts = passes.run(held, source, sink, heads, start, stop)
    sums = {name: x for name, x in rest._asdict().items() if x is not None}
    return Given(sums | {_SINK: own}, received, np.atleast_2d(counts), last)


def _statistics(found: dict[str, np.ndarray], units: Any) -> dict[str, np.ndarray]:
    """Of the rows of a layer, from the sums of each; `units` are the logits of learned sinks."""
    sums = {name: x.astype(np.float64) for name, x in found.items()}
    own, unit = sums.pop(_SINK), None if units is None else units[:, None]
    return rows.of_sums(Sums(**sums), own, unit) | {"length": sums["count"] + np.isfinite(own)}


def _in_order(work: Callable[..., Any], items: Sequence[Piece]) -> Iterator[tuple[Piece, Any]]:
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


def measure_layer(
    source: Source, sink: int | None = None, of: Sequence[str] = ()
) -> dict[str, np.ndarray]:
    """Every row of every head of a layer.

    Args:
        source: the layer.
        sink: position of the key looked at as a sink; None for the first that each row sees.
        of: what else, as `asked.names` has it.

    Returns:
        By name, in the precision of the layer: the statistics of `rows`, and those asked for,
        [heads, T]; length, the keys in sight [heads, T]; and by context length, [heads, contexts]:
        importance of the sink, the mean of what the rows that see it give it, NaN where none does;
        top_importance, the largest of any key that at least a quarter of the rows see, and top_key,
        its position; rows of zeros count for neither. key_importance, that mean of every key over
        all rows, NaN where less than a quarter see it; last_row, p [heads, T] of the last query
        that sees any key. Rows that see none, such as those of padding, are NaN and count nowhere.

    Raises:
        InputError: no such key as `sink`, weights that are not what they are said to be, or the
            shape of logits asked of weights.
    """
    heads, length = source.shape
    reach = source.reach
    if sink is not None and (
        isinstance(sink, bool) or not isinstance(sink, int | np.integer) or not 0 <= sink < reach
    ):
        raise InputError("sink", sink, f"must be a position from 0 to {reach - 1}")
    if isinstance(source, Weights) and any(name in asked.SHAPE for name in of):
        fix = (
            "is of logits, which weights alone do not have; give queries and keys, or leave it out"
        )
        raise InputError("of", next(name for name in of if name in asked.SHAPE), fix)
    sink = source.first if sink is None else int(sink)
    at = contexts(length) if source.causal and reach == length else (length,)
    if isinstance(source, Logits):
        held = passes.arrays(source)
        work, pieces = functools.partial(_of_logits, source, held, sink), passes.blocks(held, at)
    else:
        work, pieces = functools.partial(_of_weights, source, sink), _blocks(source, at)
    found: dict[str, np.ndarray] = {}
    received, seen, last = np.zeros((3, heads, reach))
    sinks: list[tuple[np.ndarray, ...]] = []
    alphas: list[np.ndarray] = []
    for (own, start, stop), given in _in_order(work, pieces):
        _fill(found, given.found, source.shape, own, start, stop)
        reached = given.received.shape[-1]
        received[own, :reached] += given.received
        seen[own, :reached] += given.counts
        last[own, :reached] = given.last
        if stop in at and own.stop == heads:
            sinks.append(_sinks(received, seen, source.counted(stop)))
            if isinstance(sink, int):
                alphas.append(_over(received[:, sink], seen[:, sink]))
    if isinstance(source, Logits):
        found = _statistics(found, source.units)
    if not isinstance(sink, int):
        of_keys = found["sink_mass"] - found.get("learned_sink", 0.0)
        masses = (of_keys[:, :stop] for stop in at)
        alphas = [_over(np.nansum(x, -1), np.isfinite(x).sum(-1)) for x in masses]
    columns = (np.stack(column, axis=1) for column in zip(*sinks, strict=True))
    found |= {"importance": np.stack(alphas, axis=1)}
    found |= dict(zip(("top_importance", "top_key"), columns, strict=True))
    found["key_importance"] = _importance(received, seen, source.counted(length))
    found["last_row"] = last if source.looks is None else _last(source)
    if of:
        work = functools.partial(asked.block, source, sink, of)
        for (own, start, stop), more in _in_order(work, _blocks(source, at)):
            _fill(found, more, source.shape, own, start, stop)
    kind = precision(source.dtype)
    return {name: x if x.dtype == np.int32 else x.astype(kind) for name, x in found.items()}


def precision(dtype: Any) -> Any:
    """Of what is measured: double where the arrays are, else single."""
    return np.float64 if dtype == np.float64 else np.float32


def _last(source: Source) -> np.ndarray:
    """The p of the last query of each head that sees any key, [heads, T]; 0 where none does."""
    heads, length = source.shape
    ends = np.broadcast_to(length - 1 - source.looks[:, ::-1].argmax(-1), (heads,))
    found = np.zeros((heads, source.reach))
    for end in np.unique(ends):
        x, seen = (np.asarray(y)[:, 0] for y in source.block(end, end + 1, source.reach))
        if isinstance(source, Weights):
            a, beside = np.where(seen, np.abs(x), 0.0), 0.0
        else:
            units = np.full(heads, -np.inf) if source.units is None else source.units
            a = np.where(seen, x, -np.inf).astype(np.float64)
            top = np.maximum(a.max(-1), units)
            top = np.where(np.isfinite(top), top, 0.0)
            a, beside = np.exp(a - top[:, None]), np.exp(units - top)
        own = ends == end
        found[own] = _over(a, (a.sum(-1) + beside)[:, None])[own]
    return np.nan_to_num(found)


def _fill(
    found: dict[str, np.ndarray],
    more: dict[str, np.ndarray],
    shape: tuple[int, int],
    heads: slice,
    start: int,
    stop: int,
) -> None:
    """Put what some rows came to into its place."""
    for name, value in more.items():
        if name not in found:
            found[name] = np.empty(shape, np.asarray(value).dtype)
        found[name][heads, start:stop] = value


def _over(sums: np.ndarray, count: np.ndarray) -> np.ndarray:
    with np.errstate(divide="ignore", invalid="ignore"):
        return sums / count


def _importance(received: np.ndarray, seen: np.ndarray, rows: Any) -> np.ndarray:
    """Of keys that a quarter of the rows see, the mean of what these give them; else NaN."""
    often = (4 * seen >= rows) & (seen > 0)
    return np.where(often, received / np.maximum(seen, 1), np.nan)


def _sinks(received: np.ndarray, seen: np.ndarray, rows: Any) -> tuple[np.ndarray, ...]:
    often = _importance(received, seen, rows)
    top = np.where(np.isnan(often), -1.0, often).argmax(-1)
    best = np.take_along_axis(often, top[:, None], axis=-1)[:, 0]
    return best, top.astype(np.int32)
