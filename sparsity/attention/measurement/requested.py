"""What is measured on request: quantities of rows by their own definitions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from sparsity import quantities
from sparsity.attention.measurement.attention_layers import Layer, LogitLayer
from sparsity.checks import check_several
from sparsity.errors import InputError
from sparsity.quantities import Quantity, RowSums

ALWAYS = ("S", "n_eff", "entropy", "sink_mass")  # quantities that every measurement has


def requested_names(of: str | Sequence[str]) -> tuple[str, ...]:
    """Return what was asked for beside what is always measured, each once.

    Raises:
        InputError: no quantity, or one of which key is the needle or of what a router left out.
    """
    fix = "give names of quantities"
    listed = (of,) if isinstance(of, (str, Quantity)) else check_several("of", of, fix)
    names = dict.fromkeys(quantities.named(x).name for x in listed)
    for quantity in map(quantities.named, names):
        if quantity.pair is not None:
            name = f"sparsity.metric.{quantity.name.partition(':')[0]}"
            raise InputError("of", quantity.name, f"is of two rows; give {name} their weights")
        if quantity.needs == "needle" or quantity is quantities.recall:
            raise InputError(
                "of", quantity.name, "is not told by a measured row; ask for it of a Row"
            )
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
