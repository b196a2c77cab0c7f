"""The weights that a PyTorch model returns itself, where it calls no function that is understood.

What a model calls its attentions may be scores, blocks, or a part of what a module made, and other
keys than it saw may have weight 0. Each of these is refused: a layer is measured only if its rows
are weights, none of which was cut away, and if what they hide tells which keys they saw.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from sparsity.attention.checkpoints.checkpoint import library
from sparsity.attention.measurement.datasets import measure_with_laws
from sparsity.attention.measurement.layer_inputs import layer_of_weights
from sparsity.attention.measurement.torch_attention import TOLERANCE, to_numpy
from sparsity.errors import InputError

NO_WEIGHTS = "of an attention of its own, give q and k to measure()"
_ROWS_WAY = "give their rows to measure(attention=…, causal=False, mask=…) as [heads, queries, "
_ROWS_WAY += "keys], with a mask of what is seen"
_ONE_TEXT = "measure(attention=…, causal=False, mask=…, segments=…), with ones as segments"


@contextmanager
def record_outputs(model: Any) -> Iterator[dict[int, tuple[Any, str]]]:
    """Record which module returned each tensor of four axes; yields tensor and path by `id`.

    The model hands its attentions on in a tuple of its own, where a tensor is known again by its
    `id`. The tensor is kept with it: when one is freed, another may get the same `id`.
    """
    found: dict[int, tuple[Any, str]] = {}

    def keep(name: str) -> Any:
        def hook(part: Any, given: Any, output: Any) -> None:
            for x in output if isinstance(output, tuple | list) else ():
                if getattr(x, "ndim", 0) == 4:
                    found.setdefault(id(x), (x, name))  # inner modules return first

        return hook

    hooks = [part.register_forward_hook(keep(name)) for name, part in model.named_modules()]
    try:
        yield found
    finally:
        for hook in hooks:
            hook.remove()


def _seen_distances(weights: np.ndarray) -> np.ndarray | None:
    """Return which keys the rows of a layer see, [T, T]: those to which any head gives weight.

    One head may give a visible key a weight that underflows to 0; that all of them do is unlikely,
    but cannot be excluded. So a pattern is believed only if it depends on the distance i − j alone,
    as those of causal attention and of windows do: a key that underflowed would break it.

    Returns:
        None where some rows see distances that others do not.
    """
    seen = np.any(weights > 0, axis=0, keepdims=True)[0]
    place = np.arange(len(seen))
    # Distances count from −(T − 1); the pattern is rebuilt from those that any row sees, and must
    # come out as it was.
    away = place[:, None] - place + len(seen) - 1
    near = np.zeros(2 * len(seen) - 1, bool)
    near[away[seen]] = True
    return seen if np.array_equal(near[away], seen) else None


def _sum_tolerance(layer: Any) -> float:
    """Return how far the sum of a row of weights may be from 1, in roundings of their type."""
    return TOLERANCE + library("torch", "torch").finfo(layer.dtype).eps


def _are_weights(layer: Any) -> bool:
    """Return whether no weight is negative or NaN and no row sums to more than 1.

    Less than 1 is possible: a learned sink takes the rest.
    """
    if not layer.is_floating_point():
        return False
    x = to_numpy(layer)
    return bool(x.min() >= 0 and x.sum(-1).max() - 1 <= _sum_tolerance(layer))


def _check_weights(name: str, layer: Any) -> np.ndarray:
    """Return what a model returned for a layer, [heads, T, T].

    Raises:
        InputError: another shape, or no weights: negative, or with rows of more than 1.
    """
    # Each refusal names what the model returned in place of weights, and the call that takes it.
    if not hasattr(layer, "shape"):
        parts = f" ({', '.join(map(str, layer))})" if isinstance(layer, dict) else ""
        raise InputError("model", name, f"returns attentions in parts{parts}; {_ROWS_WAY}")
    shape = tuple(layer.shape)
    if len(shape) > 4 and _are_weights(layer):
        raise InputError("model", name, f"returns attentions in blocks, {shape}; {_ROWS_WAY}")
    if len(shape) != 4 or shape[0] != 1:
        fix = f"returns no weights as attentions, but an array of shape {shape}; {NO_WEIGHTS}"
        raise InputError("model", name, fix)
    if shape[2] != shape[3]:
        fix = f"returns attentions of shape {shape}; give them to measure(attention=…, "
        raise InputError("model", name, fix + "causal=False, mask=…), with a mask of what is seen")
    x = to_numpy(layer[0])
    if not _are_weights(layer):
        total = x.sum(-1)
        fix = f"returns scores, not weights, as attentions (rows sum to {total.min():.3g} … "
        fix += f"{total.max():.3g}); give the softmax of them to measure(attention=…), or q and k"
        raise InputError("model", name, fix)
    return x


def _find_path(name: str, layer: Any, found: dict[int, tuple[Any, str]]) -> str:
    """Return the path of the module that returned a layer, in whatever order its axes are.

    Raises:
        InputError: the model cut it out of what the module returned, with weight in what was cut.
    """
    if id(layer) in found:
        return found[id(layer)][1]
    # Else it may be a view, transposed or cut, of what a module returned: views share the storage.
    # A cut that leaves rows below 1 has lost weight, and what remains is no row of attention.
    place = layer.untyped_storage().data_ptr()
    lacking = 1 - to_numpy(layer).sum(-1).min() > _sum_tolerance(layer)
    for whole, path in found.values():
        if whole.untyped_storage().data_ptr() != place:
            continue
        if whole.numel() > layer.numel() and lacking:
            fix = f"returns a part of its attentions, {tuple(layer.shape)} of {tuple(whole.shape)}"
            fix += f"; take the whole by a forward hook on {path} and give it to {_ONE_TEXT}: "
            raise InputError("model", name, fix + "no token is padding")
        return path
    return ""


def measure_returned(
    model: Any,
    layers: Sequence[Any],
    found: dict[int, tuple[Any, str]],
    sink: int | None,
    of: Sequence[str],
) -> tuple[list[dict[str, Any]], list[str], bool]:
    """Return the layers measured, the path of the module of each, and whether they look back only.

    Args:
        model: the model.
        layers: what it returned as its attentions.
        found: what its modules returned, as `record_outputs` has it.
        sink: position of the sink key.
        of: what else to measure.

    Raises:
        InputError: there is none, or they are no weights.
    """
    name, done, paths, ways = type(model).__name__, [], [], set()
    for layer in layers:
        x = _check_weights(name, layer)
        path = _find_path(name, layer, found)
        seen = _seen_distances(x)
        if seen is None:
            fix = "returns weights of 0 in no pattern of distances: keys that are not seen or that "
            fix += f"get next to nothing; give them to {_ONE_TEXT}: no token is padding"
            raise InputError("model", name, fix)
        causal = not np.triu(seen, 1).any()
        ways.add((x.shape, causal))
        one = np.ones(len(seen), int)  # without segments, `padding` would judge by the mask
        own = layer_of_weights(x, causal=causal, mask=seen, segments=one)
        done.append(measure_with_laws(own, sink, of))
        paths.append(path)
    if len(ways) > 1:
        fix = "has layers of several kinds or sizes; give the weights of each to measure()"
        raise InputError("model", name, fix)
    return done, paths, causal
