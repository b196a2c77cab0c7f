"""Real attention measured, row by row, with what theory says of finite rows beside it.

A model's q and k, or its weights, become a dataset this way:

    measure(queries=, keys=)   measure(attention=)
              └───────────┬───────────┘
    layer_inputs          arrays, masks and options checked
    attention_layers      LogitLayer or WeightLayer: which keys each query sees, and what is padding
              │
    layers                measure_layer: block of rows by block of rows, on all cores; and `of`
      ├─ logit_blocks     of q and k: sums in the pass of `streaming`, the sink key set apart
      └─ row_focus        n_eff, S, entropy, … of rows, from weights or from their sums
    sinks                 the same rows with all sinks left out
    datasets              the limit law and the exact law of `row_laws` beside each row; labels
              │
              └─ tables             a row for each context length

Models of `transformers` are measured by `sparsity.attention.torch.models`.
"""

from __future__ import annotations

import functools
import itertools
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from sparsity.attention.measurement.attention_layers import Layer, LogitLayer, WeightLayer
from sparsity.attention.measurement.datasets import label_layers, measure_with_laws, save, with_laws
from sparsity.attention.measurement.layer_inputs import layer_of_queries, layer_of_weights, note_of
from sparsity.attention.measurement.layers import requested_names
from sparsity.attention.measurement.tables import summary, text
from sparsity.calls import public
from sparsity.checks import check_choice, check_flag, check_progress, check_whole
from sparsity.errors import InputError
from sparsity.rows.rope_planes import PAIRINGS

if TYPE_CHECKING:
    import xarray

__all__ = ["measure", "save", "summary", "text", "with_laws"]


@public
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
    """Return how focused real attention is, row by row, and from q and k what theory says of it.

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
        sink: position of the sink key, left out in what ends in "_without_sink_key"; None for
            the first key that each row sees.
        of: variables beside those always measured: any quantity that one row tells, as "gini" or
            "keys_for_mass:0.9", by its definition on the row's weights.
        progress: called with (layers done, layers in all; 0 where an iterable does not say).

    Returns:
        A dataset over layer, head and row, each variable with its meaning as `long_name`; sinks by
        layer, head and context. Weights after dropout, and heads that are all alike, are said in
        `attrs["note"]` and by a warning. `sparsity.measurement.save` writes it as netCDF.

    Raises:
        InputError: arrays that do not fit, NaN or infinite values, weights where nothing is seen.
    """
    if (attention is None) == (queries is None) or (queries is None) != (keys is None):
        raise InputError("attention", None, "give attention weights, or queries and keys")
    if attention is not None and any(x is not None for x in (scale, rope, sink_logits)):
        fix = "weights have none of them; leave them out"
        raise InputError("scale, rope and sink_logits", "given", fix)
    causal = check_flag("causal", causal)
    sink = None if sink is None else check_whole("sink", sink, 0)
    check_choice("pairing", pairing, PAIRINGS)  # here too: of weights nobody else would look at it
    check_progress(progress)
    also = requested_names(of)
    how: dict[str, Any] = {}
    main = queries if attention is None else attention
    if attention is not None:
        make_layer = functools.partial(layer_of_weights, causal=causal)
        arrays: Iterator[tuple[Any, ...]] = zip(_split_layers("attention", attention))
    else:
        make_layer = functools.partial(
            layer_of_queries, scale=scale, rope=rope, pairing=pairing, causal=causal,
            sink_logits=sink_logits,
        )  # fmt: skip
        arrays = itertools.zip_longest(
            _split_layers("queries", queries), _split_layers("keys", keys)
        )
        how = {"rope": "none" if rope is None else rope, "pairing": pairing}
    numbers, done, note = [], [], ""
    # Layers are taken, measured and let go one by one: an iterable may make each when asked for it.
    one_layer = getattr(main, "ndim", None) == 3
    total = 1 if one_layer else len(main) if hasattr(main, "__len__") else 0
    layers = _make_layers(arrays, make_layer, mask, segments, type(main).__name__)
    for number, texts in layers:
        if isinstance(texts[0], LogitLayer):
            how["scale"] = texts[0].scale
        weights = () if note else (text for text in texts if isinstance(text, WeightLayer))
        note = note or next(filter(None, map(note_of, weights)), "")
        numbers.append(number)
        done.append([measure_with_laws(text, sink, also) for text in texts])
        if progress is not None:
            progress(number + 1, total)
    masked = "none" if mask is None else "bool" if np.asarray(mask).dtype == bool else "added"
    how |= {"mask": masked, "sink": sink, "title": "attention measured", "causal": int(causal)}
    if note:
        how["note"] = note
        warnings.warn(f"measure: {note}", stacklevel=3)
    # `done` has texts by layer; a dataset is of all layers of one text.
    by_text = [label_layers(text, how, {"layer": numbers}) for text in zip(*done, strict=True)]
    if len(by_text) == 1:
        return by_text[0]
    import xarray

    return xarray.concat(by_text, "text").assign_coords(text=np.arange(len(by_text)))


def _split_layers(name: str, value: Any) -> Iterator[Any]:
    """Return layers one at a time: of [layers, heads, …], of one [heads, …], or of an iterable."""
    axes = value.ndim if hasattr(type(value), "ndim") else None
    no_layers = isinstance(value, (str, bytes, bytearray, memoryview, Mapping))
    if no_layers or not isinstance(value, Iterable) or (axes is not None and axes < 3):
        fix = "give an array [heads, tokens, …], or one for each layer"
        shape = tuple(getattr(value, "shape", ()))
        what = f"array of shape {shape}" if shape else f"of type {type(value).__name__}"
        raise InputError(name, what, fix)
    return iter([value] if axes == 3 else value)


def _make_layers(
    layers: Iterator[tuple[Any, ...]],
    make_layer: Callable[..., Layer],
    mask: Any,
    segments: Any,
    kind: str,
) -> Iterator[tuple[int, list[Layer]]]:
    """Yield the number of each layer that is there, one at least, and one made of each text of it.

    Args:
        layers: the weights of each layer, or its queries and keys; either may be a batch of texts.
        make_layer: makes a layer of the arrays of one text, its mask and its segments.
        mask: of all texts, or [texts, …].
        segments: likewise.
        kind: the type of what the layers are in.

    Raises:
        InputError: there is none, or they are not of one shape.
    """
    first: tuple[Any, ...] | None = None
    for number, arrays in enumerate(layers):
        if len(arrays) == 1 and arrays[0] is None:  # of hybrids
            continue
        if any(x is None for x in arrays):
            raise InputError("keys", "layers", "give as many layers of keys as of queries")
        batches = [list(x) if getattr(x, "ndim", None) == 4 else [x] for x in arrays]
        count = len(batches[0])
        if any(len(x) != count for x in batches):
            shapes = " and ".join(str(np.shape(x)) for x in arrays)
            fix = "give as many texts of keys as of queries"
            raise InputError("queries and keys", f"arrays of shape {shapes}", fix)
        masks = mask if count > 1 and np.ndim(mask) == 4 and len(mask) == count else [mask] * count
        by_text = segments if count > 1 and np.ndim(segments) == 2 else [segments] * count
        texts = [
            make_layer(*x, mask=masks[i], segments=by_text[i])
            for i, x in enumerate(zip(*batches, strict=True))
        ]
        shape = (*texts[0].shape, texts[0].key_count)
        first = first or (shape, count)
        if (shape, count) != first:
            fix = "every layer must have as many texts, heads and tokens as the first, "
            fix += f"{first[1]} of {first[0]}; measure layers of one shape at a time, as attention="
            raise InputError("layers", shape, f"{fix}[layer]")
        yield number, texts
    if first is None:
        fix = "has no layer; give at least one (of transformers: set_attn_implementation('eager'))"
        raise InputError("layers", kind, fix)


def __dir__() -> list[str]:
    return sorted(__all__)
