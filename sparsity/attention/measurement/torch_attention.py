"""The calls of attention functions that a PyTorch model makes in a run, and which are understood.

A call is measured only if softmax of the q, k and masks that it took explains the output that it
gave: `Call.explained` is that gate. `monitoring.call.Output.check_rows` asks the same of the calls
that a monitor watches, and the two stay apart, since they refuse by different bounds: there each
entry is held to the rounding of its row's largest logit, and weights may have been dropped; here
the type of the logits is not known, and whole rows are compared.
"""

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
from sparsity.attention.measurement.attention_layers import HIDDEN_AT

# By which outputs may differ, relative to their size, and how many roundings of their type beside.
# What rounds in single precision differs by 1e-6; a mask, a scale or a sink that is not the
# model's by 1e-2 and more.
TOLERANCE, ROUNDINGS = 1e-4, 4
EAGER_NAME = "eager_attention_forward"  # how the files of models name the function of their own
MAX_ENTRIES = 2**24  # of the matrix at a time: 64 MiB in single precision
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
        """Return mask and position bias, [1 or heads, T, T]: bool, numbers to add, or None."""
        torch = library("torch", "torch")
        length, mask, bias = self.key.shape[2], self.mask, self.given.get("position_bias")
        # A function that looks back by itself does so under a bias as well, and the layer that is
        # measured takes one array for both: what is seen has to be written into it.
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
        """Return whether another call has the same weights, for other values."""
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
        """Return whether softmax over the keys taken to be seen gives what the function gave."""
        torch = library("torch", "torch")
        heads, length, wide = self.query.shape[1], self.query.shape[2], self.value.shape[-1]
        # A mask that is no array, as FlexAttention's, is not read here and explains nothing.
        plain = self.mask is None or (isinstance(self.mask, torch.Tensor) and self.mask.ndim == 4)
        if not plain or self.output.shape != (1, length, heads, wide):
            return False
        own = self.output[0].transpose(0, 1)
        eps = torch.finfo(own.dtype).eps
        # In half precision some functions make the logits in float32 and others round them to the
        # type of the model. One wide enough bound for both would let wrong masks through, so each
        # type is tried and the bound stays narrow.
        kinds = {torch.float32, self.query.dtype} if own.dtype.itemsize < 4 else {own.dtype}
        return any(self._explained_by(own, kind, TOLERANCE + ROUNDINGS * eps) for kind in kinds)

    def _explained_by(self, own: Any, kind: Any, tolerance: float) -> bool:
        """Return whether logits of one type explain the output of every row that sees a key.

        Args:
            own: the output, [heads, T, d'].
            kind: the type in which logits and weights are made.
            tolerance: by how much a row may differ, relative to Σ p‖v‖.
        """
        torch = library("torch", "torch")
        heads, length, dim = self.query.shape[1:]
        shared = heads // self.key.shape[1]
        q, k, v = (x[0].to(kind) for x in (self.query, self.key, self.value))
        k, v = (x.repeat_interleave(shared, 0) for x in (k, v))
        # One more entry of each value, its norm: the same product then gives Σ p‖v‖, the size that
        # the output would have if nothing cancelled. Roundings are relative to it, not to ‖Σ p v‖.
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
            # Of a row without a key functions give zeros, NaN or the mean of all values; no weight
            # of it is measured, so that whatever it gives is no reason to refuse.
            some = torch.ones((), dtype=torch.bool, device=q.device)
            if mask is not None and mask.dtype == torch.bool:
                logits, some = logits.masked_fill(~mask, -torch.inf), mask.any(-1)
            elif mask is not None:
                logits, some = logits + mask, mask.amax(-1) > HIDDEN_AT
            if learned is not None:  # the logits of learned sinks, as the library calls them
                beside = learned.to(logits.dtype).reshape(-1, 1, 1).expand(heads, len(rows), 1)
                logits = torch.cat([logits, beside], -1)
            # The learned sink takes part in the softmax and has no value.
            p = torch.softmax(logits, -1, dtype=torch.float32)[..., :length]
            found = (p.to(kind) @ v).float()
            off = (found[..., :-1] - own[:, rows].float()).norm(dim=-1)
            if not torch.where(some, off <= tolerance * found[..., -1], True).all():
                return False
        return True


@contextmanager
def watch_calls(model: Any, look: Callable[[Call], None]) -> Iterator[None]:
    """Let `look` see every call of attention that a module of the model makes.

    The functions are wrapped, not replaced by others, so that the output of the model stays the
    same. They are reached in two ways: by their name in the table of the library, and as the
    function `eager_attention_forward` that each model's file defines for itself.
    """
    parts = set(model.modules())

    def around(function: Any, eager: bool) -> Any:
        @functools.wraps(function)
        # The signature by which the library calls all of its attention functions.
        def attend(
            module: Any, query: Any, key: Any, value: Any, attention_mask: Any, **given: Any
        ) -> Any:
            found = function(module, query, key, value, attention_mask, **given)
            if module in parts:  # another model may run in another thread
                # Functions of the library decide by `is_causal` where there is no mask, and take
                # it from the module where it is not given; eager ones know their mask alone.
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
        # A module may inherit its forward from a class of another model's file, whose function of
        # that name is then the one that runs.
        kinds = {kind for part in parts for kind in type(part).__mro__}
        for file in {sys.modules.get(kind.__module__) for kind in kinds} - {None}:
            for name in [name for name in vars(file) if name.endswith(EAGER_NAME)]:
                function = getattr(file, name)
                opened.callback(setattr, file, name, function)
                setattr(file, name, around(function, eager=True))
        yield


def outputs_agree(found: Any, own: Any) -> bool:
    """Return whether two runs gave the same first output, relative to its norm."""
    torch = library("torch", "torch")
    a, b = (_first(run) for run in (found, own))
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    # Roundings grow on their way through the layers, hence the factor; measured, they stay below.
    near = 10 * (TOLERANCE + ROUNDINGS * torch.finfo(b.dtype).eps)
    a, b = a.double(), b.double()
    return bool((a - b).norm() <= near * b.norm())


def _first(run: Any) -> Any:
    """Return the first tensor that a run gave, alone, in a tuple or in an output of the library."""
    tensor = library("torch", "torch").Tensor
    if isinstance(run, tensor):
        return run
    parts = run.values() if hasattr(run, "values") else run
    return next(x for x in parts if isinstance(x, tensor))


def to_numpy(x: Any) -> np.ndarray:
    """Return a tensor as NumPy has it, in single precision at least."""
    x = x.detach()
    return (x.float() if x.dtype.is_floating_point and x.itemsize < 4 else x).cpu().numpy()
