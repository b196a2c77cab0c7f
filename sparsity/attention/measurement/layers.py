"""One layer, measured in blocks of rows: never more than a block of its T × T is in memory.

Beside what is always measured, quantities that are asked for, by their own definitions.
"""

from __future__ import annotations

import functools
import itertools
import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from sparsity import quantities
from sparsity.attention.measurement import logit_blocks, row_focus
from sparsity.attention.measurement.attention_layers import Layer, LogitLayer, WeightLayer
from sparsity.attention.streaming.sums import Sums
from sparsity.checks import check_several
from sparsity.errors import InputError
from sparsity.quantities import Quantity, RowSums

# Entries of a block of weights: 1 MiB in single precision, so that what is made of a block stays in
# a core's cache. More leave it; fewer pay Python's cost of a call more often.
MAX_ENTRIES = 2**18
ALWAYS = ("S", "n_eff", "entropy", "sink_mass")  # quantities that every measurement has
MAX_WORKERS = 8  # threads, each of which holds a block: more take more memory
# Tokens of a text from which on sinks are looked for. Of fewer than 45 a key of uniform rows has
# more than `sinks.MIN_SINK_WEIGHT`.
MIN_CONTEXT = 64

Block = tuple[slice, int, int]  # heads, the first row, the row after the last


def measure_layer(
    layer: Layer, sink: int | None = None, of: Sequence[str] = ()
) -> dict[str, np.ndarray]:
    """Measure every row of every head of a layer.

    Args:
        layer: the layer.
        sink: position of the key looked at as a sink; None for the first that each row sees.
        of: what else, as `requested_names` has it.

    Returns:
        By name, in the precision of the layer: the statistics of `row_focus`, and those asked for,
        [heads, T]; length, the keys in sight [heads, T]; and by context length, [heads, contexts]:
        importance of the sink key, the mean of what the rows that see it give it, NaN where none
        does; top_importance, the largest of any key that at least a quarter of the rows see, and
        top_key, its position; rows of zeros count for neither. key_importance, that mean of every
        key over all rows, NaN where less than a quarter see it. Rows that see none, as those of
        padding, are NaN and count nowhere.

    Raises:
        InputError: no such key as `sink`, or weights that are not what they are said to be.
    """
    heads, length = layer.shape
    keys = layer.key_count
    if sink is not None and not 0 <= sink < keys:
        raise InputError("sink", sink, f"must be a position from 0 to {keys - 1}")
    sink = layer.first if sink is None else int(sink)
    # Up to these lengths importance is reported. Only causal rows of one text have shorter contexts
    # in them.
    cuts = contexts(length) if layer.causal and keys == length else (length,)
    # Blocks of logits are compiled passes that return sums; statistics follow from the sums of the
    # whole layer at once, in double precision. Blocks of weights return their statistics directly.
    row_blocks = _plan_blocks(heads, heads, layer.rows_per_block(MAX_ENTRIES), cuts)
    if isinstance(layer, LogitLayer):
        held = logit_blocks.place_on_device(layer)
        work = functools.partial(logit_blocks.sum_block, held, layer, sink)
        together = held.plan.groups * held.q.shape[1]  # query heads of so many key heads
        blocks = _plan_blocks(heads, together, held.plan.rows, cuts)
    else:
        work, blocks = functools.partial(_measure_weights, layer, sink), row_blocks
    statistics: dict[str, np.ndarray] = {}
    received, counts = np.zeros((2, heads, keys))  # what each gets, and by how many rows
    importance = ContextImportance(sink)
    for block, (of_rows, given, seen_by) in _run_in_order(work, blocks):
        _store(statistics, of_rows, layer.shape, block)
        some_heads, _, stop = block
        reached = given.shape[-1]
        received[some_heads, :reached] += given
        counts[some_heads, :reached] += seen_by
        # Blocks come in order of rows and none crosses a context length, so that at the end of one
        # `received` holds what keys get within that context and nothing from beyond it. The heads
        # of some rows may come in several blocks, those of the last heads at the end.
        if stop in cuts and some_heads.stop == heads:
            importance.close(stop, received, counts, layer.count_active(stop))
    if isinstance(layer, LogitLayer):
        sums = {name: x.astype(np.float64) for name, x in statistics.items()}
        of_sink, learned = sums.pop(logit_blocks.SINK), layer.learned_sinks
        learned = None if learned is None else learned[:, None]
        statistics = row_focus.measure_logit_sums(Sums(**sums), of_sink, learned)
        statistics["length"] = sums["count"] + np.isfinite(of_sink)
    statistics |= importance.statistics(statistics)
    if of:
        work = functools.partial(measure_requested, layer, sink, of)
        for block, more in _run_in_order(work, row_blocks):
            _store(statistics, more, layer.shape, block)
    kind = np.float64 if layer.dtype == np.float64 else np.float32
    return {name: x if x.dtype == np.int32 else x.astype(kind) for name, x in statistics.items()}


def contexts(length: int) -> tuple[int, ...]:
    """Return the context lengths at which sinks are looked for: 64, 128, 256 … and T itself."""
    doublings = itertools.count(MIN_CONTEXT.bit_length() - 1)
    return (*itertools.takewhile(lambda n: n < length, (2**k for k in doublings)), length)


def _plan_blocks(heads: int, together: int, rows: int, cuts: Sequence[int]) -> list[Block]:
    """Return blocks of `together` heads by at most `rows` rows, row by row, none across a cut."""
    return [
        (slice(first, first + together), start, min(start + rows, b))
        for a, b in itertools.pairwise([0, *cuts])
        for start in range(a, b, rows)
        for first in range(0, heads, together)
    ]


def _measure_weights(layer: WeightLayer, sink: Any, heads: slice, start: int, stop: int) -> Any:
    """Return the statistics of rows of weights, and of each key as `sum_block` does."""
    x, seen = layer.block(start, stop, layer.key_width(stop, sink))
    xp = x.__array_namespace__()
    at = sink if isinstance(sink, int) else xp.asarray(layer.first[:, start:stop])
    statistics, p, n = row_focus.measure_weights(row_focus.set_sink_apart(x, seen, at))
    mass = statistics["sink_mass"][..., None]
    # `p` is without the sink key: its share goes back to its place, to give [rows, keys] again.
    some = ~xp.isnan(mass)  # rows that see nothing, or are all zero, give nothing and do not count
    given = xp.where(some, mass, 0.0)
    if isinstance(at, int):
        weights = xp.concat([p[..., :at], given, p[..., at:]], axis=-1)
    else:
        weights = xp.where(xp.arange(x.shape[-1]) == at[..., None], given, p)
    statistics |= {"length": xp.broadcast_to(n, mass.shape[:-1])}
    by_key = weights.sum(-2), (seen & some).sum(-2)
    return {k: np.asarray(v) for k, v in statistics.items()}, *map(np.asarray, by_key)


def _run_in_order(work: Callable[..., Any], blocks: Sequence[Block]) -> Iterator[tuple[Block, Any]]:
    """Yield each block with its result, on all cores, no more than a few ahead of who asks."""
    # A queue of futures, not `pool.map`, which would start all blocks at once: their results would
    # fill the memory where the caller is slower than the workers.
    workers, waiting = min(os.cpu_count() or 1, MAX_WORKERS), deque()
    pool = ThreadPoolExecutor(workers)
    try:
        for block in blocks:
            waiting.append((block, pool.submit(work, *block)))
            if len(waiting) > 2 * workers:
                first, future = waiting.popleft()
                yield first, future.result()
        for block, future in waiting:
            yield block, future.result()
    finally:
        pool.shutdown(cancel_futures=True)


def _store(
    whole: dict[str, np.ndarray], more: dict[str, np.ndarray], shape: tuple[int, int], block: Block
) -> None:
    """Write what was found for some rows into the arrays of the whole layer."""
    heads, start, stop = block
    for name, value in more.items():
        if name not in whole:
            whole[name] = np.empty(shape, np.asarray(value).dtype)
        whole[name][heads, start:stop] = value


def _divide(sums: np.ndarray, count: np.ndarray) -> np.ndarray:
    return sums / np.where(count > 0, count, np.nan)


class ContextImportance:
    """What keys receive from the rows of each context.

    Args:
        sink: position of the sink key; else it is not the same in all rows.
    """

    def __init__(self, sink: Any) -> None:
        self.sink = sink
        self.stops: list[int] = []
        self.tops: list[tuple[np.ndarray, np.ndarray]] = []
        self.of_sink: list[np.ndarray] = []

    def close(self, stop: int, received: np.ndarray, counts: np.ndarray, rows: Any) -> None:
        """Keep what keys received from the rows before `stop`, where a context ends.

        Args:
            stop: the row after the last.
            received: by each key, [heads, keys].
            counts: how many rows see it.
            rows: how many there are that see any key.
        """
        # The last keys of causal rows are seen by few queries, near to themselves, whose large
        # weights would pass for sinks: a quarter of the rows have to see a key.
        often = (4 * counts >= rows) & (counts > 0)
        self.by_key = np.where(often, received / np.maximum(counts, 1), np.nan)
        top_key = np.where(np.isnan(self.by_key), -1.0, self.by_key).argmax(-1)
        top = np.take_along_axis(self.by_key, top_key[:, None], axis=-1)[:, 0]
        self.stops.append(stop)
        self.tops.append((top, top_key.astype(np.int32)))
        if isinstance(self.sink, int):
            self.of_sink.append(_divide(received[:, self.sink], counts[:, self.sink]))

    def statistics(
        self, rows: dict[str, np.ndarray], first_context: int = 0
    ) -> dict[str, np.ndarray]:
        """Return importance by context, from the first one asked for, and by key.

        Args:
            rows: the statistics of the rows.
            first_context: its place; −1 for the longest alone.
        """
        # Where the sink key differs from row to row (packed texts), its importance is no entry of
        # `received`: it is the mean of the rows' own sink mass, less the learned sink's part.
        of_sink = self.of_sink
        if not isinstance(self.sink, int):
            of_keys = rows["sink_mass"] - rows.get("learned_sink_mass", 0.0)
            masses = (of_keys[:, :stop] for stop in self.stops)
            of_sink = [_divide(np.nansum(x, -1), np.isfinite(x).sum(-1)) for x in masses]
        columns = of_sink, *zip(*self.tops, strict=True)
        names = ("importance", "top_importance", "top_key")
        by_context = (np.stack(x[first_context:], axis=1) for x in columns)
        return dict(zip(names, by_context, strict=True)) | {"key_importance": self.by_key}


def requested_names(of: str | Sequence[str]) -> tuple[str, ...]:
    """Return what was asked for beside what is always measured, each once.

    Raises:
        InputError: no quantity, or one of which key is the needle or of what a router left out.
    """
    listed = [of] if isinstance(of, (str, Quantity)) else of
    listed = check_several("of", listed, "give names of quantities")
    names = dict.fromkeys(quantities.named(x).name for x in listed)
    for quantity in map(quantities.named, names):
        if quantity.pair is not None:
            name = f"sparsity.metric.{quantity.name.partition(':')[0]}"
            raise InputError("of", quantity.name, f"is of two rows; give {name} their weights")
        if quantity.needs == "needle" or quantity is quantities.recall:
            fix = "is not told by a measured row; ask for it of a Row"
            raise InputError("of", quantity.name, fix)
    return tuple(name for name in names if name not in ALWAYS)


def measure_requested(
    layer: Layer, sink: Any, of: Sequence[str], heads: slice, start: int, stop: int
) -> dict[str, np.ndarray]:
    """Return what was asked for of some rows of all heads, by name; NaN for rows all zero.

    Each quantity is computed by its definition on the keys that a row sees, in double precision.
    """
    x, seen = layer.block(start, stop, layer.key_width(stop, sink))
    seen = np.asarray(seen)
    weights, learned = layer.to_weights(x, seen)
    # Only the ratios of the weights that logits make in a row mean something.
    scaled, wanted = isinstance(layer, LogitLayer), [quantities.named(name) for name in of]
    # Definitions of quantities take rows of the keys in sight, and no mask. Rows that see the same
    # keys go together: a whole block where nothing is causal or masked, else mostly one by one.
    arrays = {quantity.name: np.full(weights.shape[:2], np.nan) for quantity in wanted}
    for some, rows, keys in _rows_of_same_keys(seen):
        kept = weights[some, rows][..., keys]
        most = kept.max(-1, initial=0.0)
        known = most > 0
        if not known.any():
            continue
        most = np.where(known, most, 1.0)
        kept = np.where(known[..., None], kept / most[..., None], 1.0)
        of_sink = kept[..., keys == (sink if isinstance(sink, int) else keys[0])].sum(-1)
        beside = learned[some, rows] / most
        sums = kept.sum(-1), (kept * kept).sum(-1), of_sink + beside, beside
        # The row was divided by its largest weight. Some quantities take weights as shares of 1,
        # which is 1/most in that unit; softmax weights are made relative, and are shares of none.
        row = RowSums(float(len(keys)), *sums, kept, None if scaled else 1 / most)
        with np.errstate(under="ignore", invalid="ignore", divide="ignore"):
            for quantity in wanted:
                arrays[quantity.name][some, rows] = np.where(known, quantity.of(row), np.nan)
    return arrays


def _rows_of_same_keys(seen: np.ndarray) -> Iterator[tuple[slice, slice, np.ndarray]]:
    """Yield heads, rows, and the keys that all of these see, of [1 or heads, rows, keys]."""
    for head, of_head in enumerate(seen):
        heads = slice(None) if len(seen) == 1 else slice(head, head + 1)
        cuts = np.flatnonzero((of_head[1:] != of_head[:-1]).any(-1)) + 1
        for a, b in zip([0, *cuts], [*cuts, len(of_head)], strict=True):
            yield heads, slice(a, b), np.flatnonzero(of_head[a])
