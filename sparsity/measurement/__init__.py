"""Real attention measured, with the exact law of finite rows beside it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from sparsity.errors import InputError
from sparsity.measurement import asked
from sparsity.measurement.asked import SHAPE
from sparsity.measurement.given import of_queries, of_weights
from sparsity.measurement.head_columns import with_head_law
from sparsity.measurement.heads import measure_heads
from sparsity.measurement.labels import dataset, measured, save
from sparsity.measurement.runs import measure_model
from sparsity.measurement.sources import Logits
from sparsity.measurement.tables import summary, text

if TYPE_CHECKING:
    import xarray

__all__ = [
    "SHAPE",
    "measure",
    "measure_heads",
    "measure_model",
    "save",
    "summary",
    "text",
    "with_head_law",
]


def _layers(name: str, value: Any) -> Iterator[Any]:
    """Layers one at a time: of [layers, heads, …], of one layer [heads, …], or of any iterable."""
    axes = getattr(value, "ndim", None)
    if axes is None and not isinstance(value, Iterable):
        raise InputError(name, type(value).__name__, "give an array, or one for each layer")
    return map(_one_text, iter([value] if axes == 3 else value))


def _one_text(layer: Any) -> Any:
    """A layer without the batch axis of PyTorch, [1, heads, …], where it has one."""
    alone = getattr(layer, "ndim", None) == 4 and layer.shape[0] == 1
    return layer[0] if alone else layer


def measure(
    attention: Any = None,
    *,
    queries: Any = None,
    keys: Any = None,
    scale: float | None = None,
    rope: float | None = None,
    pairing: str = "half",
    causal: bool = True,
    mask: Any = None,
    segments: Any = None,
    sink_logits: Any = None,
    sink: int | None = None,
    of: str | Sequence[str] = (),
    progress: Callable[[int, int], None] | None = None,
) -> xarray.Dataset:
    """How focused real attention is, row by row; from queries and keys also what theory says of it.

    S = ‖a‖₁/(√n‖a‖₂) and n_eff = n·S² of every row, over the n keys that it sees. Rows of padding
    see none: they are NaN with n = 0, and count in no mean. From logits
    s = scale·q·k also β̂, γ̂ and the predictions e^(−γ̂²/2) (limit law) and √(E n_eff/n) of n
    Gaussian logits of spread γ̂ (exact law), of the row and of the row without its sink.
    Memory: one block of rows at a time, beside the arrays given and what is returned.

    Args:
        attention: weights, unnormalised or signed ones too: [heads, T, T], [layers, heads, T, T],
            or an iterable of layers, which are taken one at a time; a layer of one text may have
            a batch axis before, as PyTorch gives it.
        queries: instead, [heads, T, d] or as above.
        keys: [kv heads, T, d] or as above, each shared by consecutive query heads.
        scale: of q·k; None for 1/√d.
        rope: base of rotary positions still to be applied; None where they are, or none are.
        pairing: of the rotary planes, "half" (i, i + d/2) or "interleaved" (2i, 2i + 1).
        causal: whether a query sees only itself and the keys before it.
        mask: [T, T] or [heads, T, T]: bool, which keys are seen; or numbers added to the logits,
            where keys 745 below the row's largest, or in rows all ≤ −10⁴, are not seen; of
            weights, these tell alone which keys are seen. Where it hides the key of a token from
            the token itself and from those beside it, the token is padding, if any other sees its
            own, and no `segments` are given: what a mask of keys says of queries.
        segments: which text each token belongs to, [T]: whole numbers, 0 or less for padding, or
            bool. A query sees only its own text, and one of padding nothing; so texts may be
            padded on either side or packed one after the other.
        sink_logits: of learned sinks beside the keys, one number or [heads]: p = e^s/(Σe^s + e^b)
            in entropy, largest, sink_mass, which contains theirs, and in all that `of` names.
        sink: position of the key that is looked at as a sink, and left out in "rest"; None for
            the first key that each row sees.
        of: variables beside those always measured: any quantity, as "gini" or "keys_for_mass:0.9",
            by its definition on a row's weights; and of logits, "skew", "kurtosis" and "distance"
            (`SHAPE`), the last with Lilliefors' test.
        progress: called with (layers done, layers in all; 0 where an iterable does not say).

    Returns:
        A dataset over layer, head and row, each variable with its meaning as `long_name`; sinks by
        layer, head and context. `sparsity.measurement.save` writes it as netCDF.

    Raises:
        InputError: arrays that do not fit, NaN or infinite values, weights where nothing is seen.
    """
    _one_kind(attention, queries, keys, scale, rope, sink_logits)
    also = asked.names(of)
    if attention is not None:
        given, how = attention, {}
        options = {"causal": causal, "mask": mask, "segments": segments}
        sources = (of_weights(a, **options) for a in _layers("attention", attention))
    else:
        given: Any = queries
        options = {"scale": scale, "rope": rope, "pairing": pairing, "causal": causal, "mask": mask}
        options |= {"segments": segments, "sink_logits": sink_logits}
        sources = (of_queries(q, k, **options) for q, k in _pairs(queries, keys))
        how = {"rope": "none" if rope is None else rope, "pairing": pairing}
    done, total = [], _count(given)
    for source in _alike(sources, type(given).__name__):
        if isinstance(source, Logits):
            how["scale"] = source.scale
        done.append(measured(source, sink, also))
        if progress is not None:
            progress(len(done), total)
    how["mask"] = "none" if mask is None else "bool" if np.asarray(mask).dtype == bool else "added"
    of_sink = "the first key that a row sees" if sink is None else int(sink)
    how |= {"title": "attention measured", "sink": of_sink, "causal": int(causal)}
    return dataset(done, how)


def _one_kind(
    attention: Any, queries: Any, keys: Any, scale: Any, rope: Any, sink_logits: Any
) -> None:
    if (attention is None) == (queries is None) or (queries is None) != (keys is None):
        raise InputError("attention", None, "give attention weights, or queries and keys")
    if attention is not None and any(x is not None for x in (scale, rope, sink_logits)):
        fix = "weights have none of them; leave them out"
        raise InputError("scale, rope and sink_logits", "given", fix)


def _alike(sources: Iterable[Any], given: str) -> Iterator[Any]:
    """The layers, one at least, each of the shape of the first."""
    shape: tuple[int, int] | None = None
    for source in sources:
        shape = shape or source.shape
        if source.shape != shape:
            fix = f"every layer must have as many heads and tokens as the first, {shape}"
            raise InputError("layers", source.shape, fix)
        yield source
    if shape is None:
        raise InputError("layers", given, "has no layer; give at least one")


def _count(layers: Any) -> int:
    """How many layers there are, 0 where that is not known."""
    if getattr(layers, "ndim", None) == 3:
        return 1
    return len(layers) if hasattr(layers, "__len__") else 0


def _pairs(queries: Any, keys: Any) -> Iterator[tuple[Any, Any]]:
    """The layers of queries with those of keys."""
    for q, k in itertools.zip_longest(_layers("queries", queries), _layers("keys", keys)):
        if q is None or k is None:
            raise InputError("keys", "layers", "give as many layers of keys as of queries")
        yield q, k
