"""The calls of attention in a run of a PyTorch model, each held against what it gave."""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from sparsity.attention.checkpoints.checkpoint import library
from sparsity.attention.measurement.sources import HIDDEN

# By which outputs may differ, relative to their size, and how many roundings of their type beside.
# What rounds in single precision differs by 1e-6; a mask, a scale or a sink that is not the
# model's by 1e-2 and more.
TOLERANCE, ROUNDINGS = 1e-4, 4
_EAGER = "eager_attention_forward"  # how the files of models name the function of their own
_ENTRIES = 2**24  # of a block of the matrix
_LOCK = threading.RLock()  # functions of the library are replaced for one run at a time


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
        """Mask and position bias together, [1 or heads, T, T]: bool, numbers to add, or None."""
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
        """Whether the weights of another call are the same, of other values."""
        equal = library("torch", "torch").equal
        of_one = self.module is other.module and self.query.shape == other.query.shape
        return of_one and equal(self.query, other.query) and equal(self.key, other.key)

    def looks_back(self) -> bool:
        """Whether no key after its query is seen: a window, or padding, is a mask too."""
        added = self.added()
        if added is None:
            return self.causal
        seen = added if added.dtype == library("torch", "torch").bool else added > HIDDEN
        return not seen.triu(1).any()

    def explained(self) -> bool:
        """Whether softmax over the keys that are taken to be seen gives what the function gave.

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
        return any(self._gives(own, kind, TOLERANCE + ROUNDINGS * eps) for kind in kinds)

    def _gives(self, own: Any, kind: Any, tolerance: float) -> bool:
        """The same of logits in one type; rows that see no key count for nothing."""
        torch = library("torch", "torch")
        heads, length, dim = self.query.shape[1:]
        shared = heads // self.key.shape[1]
        q, k, v = (x[0].to(kind) for x in (self.query, self.key, self.value))
        k, v = (x.repeat_interleave(shared, 0) for x in (k, v))
        v = torch.cat([v, v.float().norm(dim=-1, keepdim=True).to(kind)], -1)
        scale, cap, unit = (self.given.get(name) for name in ("scaling", "softcap", "s_aux"))
        scale, added = dim**-0.5 if scale is None else scale, self.added()
        step, keys = max(1, _ENTRIES // (heads * length)), torch.arange(length, device=q.device)
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
                logits, some = logits + mask, mask.amax(-1) > HIDDEN
            if unit is not None:
                beside = unit.to(logits.dtype).reshape(-1, 1, 1).expand(heads, len(rows), 1)
                logits = torch.cat([logits, beside], -1)
            p = torch.softmax(logits, -1, dtype=torch.float32)[..., :length]
            found = (p.to(kind) @ v).float()
            off = (found[..., :-1] - own[:, rows].float()).norm(dim=-1)
            if not torch.where(some, off <= tolerance * found[..., -1], True).all():
                return False
        return True


@contextmanager
def attended(model: Any, look: Callable[[Call], None]) -> Iterator[None]:
    """A context in which `look` sees every call of attention that a module of the model makes.

    The functions are those of the model and of the library themselves: what it gives is the same.
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
            for name in [name for name in vars(file) if name.endswith(_EAGER)]:
                function = getattr(file, name)
                opened.callback(setattr, file, name, function)
                setattr(file, name, around(function, eager=True))
        yield


def agree(found: Any, own: Any) -> bool:
    """Whether the first output of a run is that of another, relative to its size."""
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


def as_array(x: Any) -> np.ndarray:
    """A tensor as NumPy has it, in single precision at least."""
    x = x.detach()
    return (x.float() if x.dtype.is_floating_point and x.itemsize < 4 else x).cpu().numpy()
