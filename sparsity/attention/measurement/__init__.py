"""Real attention measured, with the exact law of finite rows beside it."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from sparsity.arguments import choice, flag, whole
from sparsity.arguments import progress as check_progress
from sparsity.attention.measurement import asked
from sparsity.attention.measurement.asked import SHAPE
from sparsity.attention.measurement.given import of_queries, of_weights
from sparsity.attention.measurement.head_columns import with_head_law
from sparsity.attention.measurement.heads import measure_heads
from sparsity.attention.measurement.labels import dataset, measured, save
from sparsity.attention.measurement.runs import measure_model
from sparsity.attention.measurement.sources import Logits, Source
from sparsity.attention.measurement.tables import summary, text
from sparsity.errors import InputError
from sparsity.rows.rotation import PAIRINGS

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
    return iter([value] if _axes(name, value) == 3 else value)


def _axes(name: str, value: Any) -> int | None:
    """The axes of an array; None for layers in a list or another iterable."""
    axes = value.ndim if hasattr(type(value), "ndim") else None
    no_layers = isinstance(value, (str, bytes, bytearray, memoryview, Mapping))
    if no_layers or not isinstance(value, Iterable) or (axes is not None and axes < 3):
        fix = "give an array [heads, ...], or one for each layer"
        raise InputError(name, f"of type {type(value).__name__}", fix)
    return axes


def _texts(layer: Any) -> list[Any]:
    """The texts of a layer, which may have the batch axis of PyTorch, [texts, heads, …]."""
    return list(layer) if getattr(layer, "ndim", None) == 4 else [layer]


def _of_text(which: int, texts: int, mask: Any, segments: Any) -> dict[str, Any]:
    """The mask and the segments of one of several texts."""
    if texts > 1:
        mask = mask[which] if np.ndim(mask) == 4 and len(mask) == texts else mask
        segments = segments[which] if np.ndim(segments) == 2 else segments
    return {"mask": mask, "segments": segments}


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
        attention: weights, unnormalised or signed ones too: [heads, queries, keys], [layers, heads,
            queries, keys], or an iterable of layers, which are taken one at a time. A layer of it
            may be None, as of hybrids, and is left out; it may be a batch, [texts, heads, queries,
            keys], as PyTorch gives it, and several texts become the axis `text`. Fewer queries
            than keys are the last tokens where `causal`; keys of another text need
            `causal=False`, and a band of keys `mask` as well.
        queries: instead, [heads, T, d] or as above.
        keys: [kv heads, T, d] or as above, each shared by consecutive query heads.
        scale: of q·k; None for 1/√d.
        rope: base of rotary positions still to be applied; None where they are, or none are.
        pairing: of the rotary planes, "half" (i, i + d/2) or "interleaved" (2i, 2i + 1).
        causal: whether a query sees only itself and the keys before it.
        mask: [T, T] or [heads, T, T], or [texts, 1 or heads, T, T] of a batch: bool, which keys
            are seen; or numbers added to the logits, where keys 745 below the row's largest, or in
            rows all ≤ −10⁴, are not seen; of weights, these tell alone which keys are seen. Where
            it hides the key of a token from the token itself and from those beside it, the token is
            padding, if any other sees its own, and no `segments` are given: what a mask of keys
            says of queries. Sparse attention hides tokens so that others see: give `segments`.
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
        layer, head and context. `sparsity.attention.measurement.save` writes it as netCDF.

    Raises:
        InputError: arrays that do not fit, NaN or infinite values, weights where nothing is seen.
    """
    _one_kind(attention, queries, keys, scale, rope, sink_logits)
    causal, sink = flag("causal", causal), None if sink is None else whole("sink", sink, 0)
    choice("pairing", pairing, PAIRINGS)
    check_progress(progress)
    for name, given in (("attention", attention), ("queries", queries), ("keys", keys)):
        if given is not None:
            _axes(name, given)
    also = asked.names(of)
    how: dict[str, Any] = {}
    if attention is not None:
        given, source, options = attention, of_weights, {"causal": causal}
        layers: Iterable[tuple[Any, ...]] = ((x,) for x in _layers("attention", attention))
    else:
        given, source = queries, of_queries
        options = {"scale": scale, "rope": rope, "pairing": pairing, "causal": causal}
        options |= {"sink_logits": sink_logits}
        layers = _pairs(queries, keys)
        how = {"rope": "none" if rope is None else rope, "pairing": pairing}
    sources = _sources(layers, functools.partial(source, **options), mask, segments)
    numbers, done, total = [], [], _count(given)
    for number, texts in _alike(sources, type(given).__name__):
        if isinstance(texts[0], Logits):
            how["scale"] = texts[0].scale
        numbers.append(number)
        done.append([measured(text, sink, also) for text in texts])
        if progress is not None:
            progress(number + 1, total)
    how["mask"] = "none" if mask is None else "bool" if np.asarray(mask).dtype == bool else "added"
    how["sink"] = None if sink is None else int(sink)
    how |= {"title": "attention measured", "causal": int(causal)}
    found = [dataset(text, how, {"layer": numbers}) for text in zip(*done, strict=True)]
    if len(found) == 1:
        return found[0]
    import xarray

    return xarray.concat(found, "text").assign_coords(text=np.arange(len(found)))


def _one_kind(
    attention: Any, queries: Any, keys: Any, scale: Any, rope: Any, sink_logits: Any
) -> None:
    if (attention is None) == (queries is None) or (queries is None) != (keys is None):
        raise InputError("attention", None, "give attention weights, or queries and keys")
    if attention is not None and any(x is not None for x in (scale, rope, sink_logits)):
        fix = "weights have none of them; leave them out"
        raise InputError("scale, rope and sink_logits", "given", fix)


def _sources(
    layers: Iterable[tuple[Any, ...]], source: Callable[..., Source], mask: Any, segments: Any
) -> Iterator[tuple[int, list[Source]]]:
    """The number of each layer that is there, and a source for each of its texts."""
    for number, arrays in enumerate(layers):
        if arrays[0] is None:
            continue
        each = [_texts(x) for x in arrays]
        if len({len(x) for x in each}) > 1:
            shapes = " and ".join(str(np.shape(x)) for x in arrays)
            fix = "give as many texts of keys as of queries"
            raise InputError("queries and keys", f"arrays of shape {shapes}", fix)
        texts = enumerate(zip(*each, strict=True))
        yield number, [source(*x, **_of_text(i, len(each[0]), mask, segments)) for i, x in texts]


def _alike(
    sources: Iterable[tuple[int, list[Source]]], given: str
) -> Iterator[tuple[int, list[Source]]]:
    """The layers, one at least, each of the shape of the first."""
    first: tuple[Any, ...] | None = None
    for number, texts in sources:
        shape = (*texts[0].shape, texts[0].reach)
        first = first or (shape, len(texts))
        if (shape, len(texts)) != first:
            fix = "every layer must have as many texts, heads and tokens as the first, "
            raise InputError("layers", shape, fix + f"{first[1]} of {first[0]}")
        yield number, texts
    if first is None:
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
