"""What is measured on request: quantities of rows by their own definitions, shapes of logits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from sparsity import quantities
from sparsity.arguments import several
from sparsity.attention.measurement import rows, shapes
from sparsity.attention.measurement.sources import Logits, Source, width
from sparsity.errors import InputError
from sparsity.quantities import Quantity, RowSums

SHAPE = ("skew", "kurtosis", "distance")  # of logits: also "_rest" and "_others", without sinks
ALWAYS = ("S", "n_eff", "entropy", "sink_mass")  # quantities that every measurement has


def names(of: str | Sequence[str]) -> tuple[str, ...]:
    """What was asked for beside what is always measured, each once.

    Raises:
        InputError: neither a quantity nor one of `SHAPE`.
    """
    listed = (
        (of,) if isinstance(of, (str, Quantity)) else several("of", of, "give names of quantities")
    )
    try:
        found = [
            x if isinstance(x, str) and x in SHAPE else quantities.named(x).name for x in listed
        ]
    except InputError as error:
        fix = f"{error.fix}; and, of logits, {', '.join(SHAPE)}"
        raise InputError("of", error.value, fix) from None
    return tuple(name for name in dict.fromkeys(found) if name not in ALWAYS)


def block(
    source: Source, sink: Any, of: Sequence[str], heads: slice, start: int, stop: int
) -> dict[str, np.ndarray]:
    """What was asked for, of some rows, by name [heads, rows]; quantities in double precision."""
    own: Any = source.part(heads)
    x, seen = own.block(start, stop, width(source, stop, sink))
    sink = sink if isinstance(sink, int) else own.first[:, start:stop]
    logits, found = isinstance(own, Logits), shape(x, seen, of, sink)
    wanted = [quantities.named(name) for name in of if name not in SHAPE]
    if wanted:
        weights, seen, unit = np.abs(np.asarray(x, np.float64)), np.asarray(seen), None
        if logits:
            weights, top = _softmax(np.asarray(x, np.float64), seen)
            if own.units is not None:  # beyond e^600 it takes all there is
                unit = np.exp(np.minimum(own.units[:, None] - top, 600.0))
        found |= of_weights(weights, seen, sink, wanted, shares=logits, unit=unit)
    return found


def shape(x: Any, seen: Any, of: Sequence[str], sink: Any = 0) -> dict[str, np.ndarray]:
    """What of `SHAPE` was asked for, of logits; "_rest" is without the key at `sink`."""
    if not any(name in SHAPE for name in of):
        return {}
    found = shapes.shape(rows.split(x, seen, sink))
    return {k: np.asarray(v) for k, v in found.items() if k.removesuffix("_rest") in of}


def _softmax(s: np.ndarray, seen: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """e^s over the largest, 0 for what is not seen, and the largest s, 0 for none."""
    s = np.where(seen, s, -np.inf)
    top = s.max(-1)
    top = np.where(np.isfinite(top), top, 0.0)
    with np.errstate(under="ignore"):
        return np.exp(s - top[..., None]), top


def _alike(seen: np.ndarray) -> Iterator[tuple[slice, slice, np.ndarray]]:
    """Heads, rows and the keys that all of these see, [1 or heads, rows, keys]."""
    for head, own in enumerate(seen):
        heads = slice(None) if len(seen) == 1 else slice(head, head + 1)
        cuts = np.flatnonzero((own[1:] != own[:-1]).any(-1)) + 1
        for a, b in zip([0, *cuts], [*cuts, len(own)], strict=True):
            yield heads, slice(a, b), np.flatnonzero(own[a])


def of_weights(
    weights: np.ndarray,
    seen: np.ndarray,
    sink: Any,
    wanted: Sequence[Quantity],
    shares: bool,
    unit: np.ndarray | None = None,
) -> dict[str, np.ndarray]:
    """Quantities of rows of weights, each by its own definition on the keys that a row sees.

    Args:
        weights: |a|, double precision, [heads, rows, keys].
        seen: which keys a row sees, [1 or heads, rows, keys].
        sink: position of the sink; else it is the first key in sight.
        wanted: the quantities.
        shares: whether only the ratios of the weights of a row mean something.
        unit: weights of learned sinks beside the keys, [heads, rows]; None for none.

    Returns:
        By name, [heads, rows]; NaN for rows that are all zero.
    """
    found = {each.name: np.full(weights.shape[:2], np.nan) for each in wanted}
    for heads, block_rows, keys in _alike(seen):
        own = weights[heads, block_rows][..., keys]
        most = own.max(-1, initial=0.0)
        known = most > 0
        if not known.any():
            continue
        most = np.where(known, most, 1.0)
        own = np.where(known[..., None], own / most[..., None], 1.0)
        of_sink = own[..., keys == (sink if isinstance(sink, int) else keys[0])].sum(-1)
        one = None if shares else 1 / most
        beside = np.zeros(most.shape) if unit is None else unit[heads, block_rows] / most
        sums = own.sum(-1), (own * own).sum(-1), of_sink + beside, beside
        row = RowSums(float(len(keys)), *sums, own, one)
        with np.errstate(under="ignore", invalid="ignore", divide="ignore"):
            for each in wanted:
                value = np.where(known, each.of(row), np.nan)
                found[each.name][heads, block_rows] = value
    return found
