"""What a PyTorch model shows of its attention in a run: calls of functions, or weights it returns.

A call is measured only if softmax of the q, k and masks that it took explains the output that it
gave. Weights that a model returns itself, where its functions are its own, must be weights.
"""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from sparsity.attention.checkpoints.checkpoint import library
from sparsity.attention.measurement.attention_layers import HIDDEN_AT
from sparsity.attention.measurement.datasets import measure_with_laws
from sparsity.attention.measurement.layer_inputs import layer_of_weights
from sparsity.errors import InputError

# By which outputs may differ, relative to their size, and how many roundings of their type beside.
# What rounds in single precision differs by 1e-6; a mask, a scale or a sink that is not the
# model's by 1e-2 and more.
TOLERANCE, ROUNDINGS = 1e-4, 4
EAGER_NAME = "eager_attention_forward"  # how the files of models name the function of their own
MAX_ENTRIES = 2**24  # of the matrix at a time: 64 MiB in single precision
_LOCK = threading.RLock()  # functions of the library are replaced for one run at a time

GIVE_WEIGHTS = "output_attentions and give these to measure(attention=…), or q and k"
OWN_WAY = f"run it with {GIVE_WEIGHTS}"
PROBE_WAY = "probe(mixer, length) measures a layer that forms none, as linear attention and "
PROBE_WAY += "state-space models do; of an attention of its own, give q and k to measure()"
_ROWS_WAY = "give their rows to measure(attention=…, causal=False, mask=…) as [heads, queries, "
_ROWS_WAY += "keys], with a mask of what is seen"
_ONE_TEXT = "measure(attention=…, causal=False, mask=…, segments=…), with ones as segments"


@dataclass(frozen=True)
class Call:
    """One call of an attention function for one text.

    Args:
        module: that made it.
        query: [1, heads, T, d].
        key: [1, kv heads, K, d].
        value: [1, kv heads, K, d'].
        mask: what hides keys and is added to logits, [1, 1 or heads, 1 or T, K], or None.
        causal: whether a query looks back only, where there is no mask.
        given: what else the function was given.
        output: what it gave, [1, T, heads, d'].
    """

    module: Any
    query: Any
    key: Any
    value: Any
    mask: Any
    causal: bool
    given: dict[str, Any]
    output: Any

    def added(self) -> Any:
        """Return mask and position bias, [1 or heads, T, T]: bool, numbers to add, or None."""
        torch = library("torch", "torch")
        length, mask, bias = self.key.shape[2], self.mask, self.given.get("position_bias")
        if mask is None and bias is not None and self.causal:
            mask = torch.ones(length, length, dtype=torch.bool, device=bias.device).tril()[None]
            mask = mask[None]
        parts = [x[0, ..., :length].expand(-1, length, -1) for x in (mask, bias) if x is not None]
        if len(parts) < 2:
            return parts[0] if parts else None
        mask, bias = parts
        if mask.dtype == torch.bool:
            return bias.float().masked_fill(~mask, -torch.inf)
        return bias.float() + mask

    def same_rows(self, other: Call) -> bool:
        """Return whether the weights of another call are the same, of other values."""
        equal = library("torch", "torch").equal
        of_one = self.module is other.module and self.query.shape == other.query.shape
        return of_one and equal(self.query, other.query) and equal(self.key, other.key)

    def looks_back(self) -> bool:
        """Return whether no key after its query is seen: a window, or padding, is a mask too."""
        added = self.added()
        if added is None:
            return self.causal
        seen = added if added.dtype == library("torch", "torch").bool else added > HIDDEN_AT
        return not seen.triu(1).any()

    def explained(self) -> bool:
        """Return whether softmax over the keys taken to be seen gives what the function gave.

        Functions make the logits in single precision, or round them to the type of the model.
        """
        torch = library("torch", "torch")
        heads, length, wide = self.query.shape[1], self.query.shape[2], self.value.shape[-1]
        plain = self.mask is None or (isinstance(self.mask, torch.Tensor) and self.mask.ndim == 4)
        if not plain or self.output.shape != (1, length, heads, wide):
            return False
        own = self.output[0].transpose(0, 1)
        eps = torch.finfo(own.dtype).eps
        kinds = {torch.float32, self.query.dtype} if own.dtype.itemsize < 4 else {own.dtype}
        return any(self._explained_by(own, kind, TOLERANCE + ROUNDINGS * eps) for kind in kinds)

    def _explained_by(self, own: Any, kind: Any, tolerance: float) -> bool:
        """Return whether logits of one type explain it; rows that see no key count for nothing."""
        torch = library("torch", "torch")
        heads, length, dim = self.query.shape[1:]
        shared = heads // self.key.shape[1]
        q, k, v = (x[0].to(kind) for x in (self.query, self.key, self.value))
        k, v = (x.repeat_interleave(shared, 0) for x in (k, v))
        v = torch.cat([v, v.float().norm(dim=-1, keepdim=True).to(kind)], -1)
        scale, cap, learned = (self.given.get(name) for name in ("scaling", "softcap", "s_aux"))
        scale, added = dim**-0.5 if scale is None else scale, self.added()
        step, keys = max(1, MAX_ENTRIES // (heads * length)), torch.arange(length, device=q.device)
        for rows in torch.arange(length, device=q.device).split(step):
            logits = q[:, rows] @ k.mT * scale
            if cap is not None:
                logits = cap * torch.tanh(logits / cap)
            mask = added[:, rows] if added is not None else None
            if mask is None and self.causal:
                mask = (keys <= rows[:, None])[None]
            some = torch.ones((), dtype=torch.bool, device=q.device)
            if mask is not None and mask.dtype == torch.bool:
                logits, some = logits.masked_fill(~mask, -torch.inf), mask.any(-1)
            elif mask is not None:
                logits, some = logits + mask, mask.amax(-1) > HIDDEN_AT
            if learned is not None:  # the logits of learned sinks, as the library calls them
                beside = learned.to(logits.dtype).reshape(-1, 1, 1).expand(heads, len(rows), 1)
                logits = torch.cat([logits, beside], -1)
            p = torch.softmax(logits, -1, dtype=torch.float32)[..., :length]
            found = (p.to(kind) @ v).float()
            off = (found[..., :-1] - own[:, rows].float()).norm(dim=-1)
            if not torch.where(some, off <= tolerance * found[..., -1], True).all():
                return False
        return True


@contextmanager
def watch_calls(model: Any, look: Callable[[Call], None]) -> Iterator[None]:
    """Let `look` see every call of attention that a module of the model makes.

    The functions are those of the model and of the library themselves: what the model gives is the
    same.
    """
    parts = set(model.modules())

    def around(function: Any, eager: bool) -> Any:
        @functools.wraps(function)
        def attend(
            module: Any, query: Any, key: Any, value: Any, attention_mask: Any, **given: Any
        ) -> Any:
            found = function(module, query, key, value, attention_mask, **given)
            if module in parts:
                said = given.get("is_causal")
                said = getattr(module, "is_causal", True) if said is None else said
                causal = not eager and bool(said)
                look(Call(module, query, key, value, attention_mask, causal, given, found[0]))
            return found

        return attend

    with _LOCK, ExitStack() as opened:
        interface = library("transformers", "'sparsity[transformers]'").AttentionInterface
        own = interface.__getitem__
        interface.__getitem__ = lambda self, name: around(own(self, name), eager=False)
        opened.callback(setattr, interface, "__getitem__", own)
        kinds = {kind for part in parts for kind in type(part).__mro__}
        for file in {sys.modules.get(kind.__module__) for kind in kinds} - {None}:
            for name in [name for name in vars(file) if name.endswith(EAGER_NAME)]:
                function = getattr(file, name)
                opened.callback(setattr, file, name, function)
                setattr(file, name, around(function, eager=True))
        yield


def outputs_agree(found: Any, own: Any) -> bool:
    """Return whether the first output of a run is that of another, relative to its size."""
    torch = library("torch", "torch")
    a, b = (_first(run) for run in (found, own))
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    # Through all layers roundings grow; measured, they stay below these.
    near = 10 * (TOLERANCE + ROUNDINGS * torch.finfo(b.dtype).eps)
    a, b = a.double(), b.double()
    return bool((a - b).norm() <= near * b.norm())


def _first(run: Any) -> Any:
    """The first tensor that a run gave."""
    tensor = library("torch", "torch").Tensor
    if isinstance(run, tensor):
        return run
    parts = run.values() if hasattr(run, "values") else run
    return next(x for x in parts if isinstance(x, tensor))


def to_numpy(x: Any) -> np.ndarray:
    """Return a tensor as NumPy has it, in single precision at least."""
    x = x.detach()
    return (x.float() if x.dtype.is_floating_point and x.itemsize < 4 else x).cpu().numpy()


@contextmanager
def record_outputs(model: Any) -> Iterator[dict[int, tuple[Any, str]]]:
    """Record which module returns a tensor: yields the tensor and a path, by its `id`."""
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

    A head may give a key less than numbers reach, and all heads together hardly do. Attention
    that is told by the distance of the key, as windows are, sees the same distances in all rows.

    Returns:
        None where some rows see distances that others do not.
    """
    seen = np.any(weights > 0, axis=0, keepdims=True)[0]
    place = np.arange(len(seen))
    away = place[:, None] - place + len(seen) - 1
    near = np.zeros(2 * len(seen) - 1, bool)
    near[away[seen]] = True
    return seen if np.array_equal(near[away], seen) else None


def _sum_tolerance(layer: Any) -> float:
    """Return how far the sum of a row of weights may be from 1, in roundings of their type."""
    return TOLERANCE + library("torch", "torch").finfo(layer.dtype).eps


def _are_weights(layer: Any) -> bool:
    """Return whether none is negative and no row has more than 1; NaN is no weight either."""
    if not layer.is_floating_point():
        return False
    x = to_numpy(layer)
    return bool(x.min() >= 0 and x.sum(-1).max() - 1 <= _sum_tolerance(layer))


def _check_weights(name: str, layer: Any) -> np.ndarray:
    """Return what a model returned for a layer, [heads, T, T].

    Raises:
        InputError: another shape, or no weights: negative, or with rows of more than 1.
    """
    if not hasattr(layer, "shape"):
        parts = f" ({', '.join(map(str, layer))})" if isinstance(layer, dict) else ""
        raise InputError("model", name, f"returns attentions in parts{parts}; {_ROWS_WAY}")
    shape = tuple(layer.shape)
    if len(shape) > 4 and _are_weights(layer):
        raise InputError("model", name, f"returns attentions in blocks, {shape}; {_ROWS_WAY}")
    if len(shape) != 4 or shape[0] != 1:
        fix = f"returns no weights as attentions, but an array of shape {shape}; {PROBE_WAY}"
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
        one = np.ones(len(seen), int)  # one text, without padding
        own = layer_of_weights(x, causal=causal, mask=seen, segments=one)
        done.append(measure_with_laws(own, sink, of))
        paths.append(path)
    if len(ways) > 1:
        fix = "has layers of several kinds or sizes; give the weights of each to measure()"
        raise InputError("model", name, fix)
    return done, paths, causal
