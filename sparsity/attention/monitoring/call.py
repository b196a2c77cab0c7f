"""One call of attention in PyTorch: what it is given, its logits, and what it made of them.

A reading of a call counts only if its weights make the output of the call: `Output.check_rows` is
the gate.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from sparsity.attention.checkpoints.checkpoint import library
from sparsity.attention.measurement.attention_layers import HIDDEN_AT, HIDDEN_BELOW_TOP

# Relative to the largest value or weight: float32 kernels stay below 1e-5, a wrong mask or scale
# is far above. Half precision rounds logits, by as much as they are large.
_TOLERANCE = 1e-4
_ROUNDINGS = 8  # of a logit in the type that the model computes in


class Unseen(Exception):
    """Why a call of attention is not measured, in words that follow "…: it "."""


@dataclass(frozen=True)
class Call:
    """One call of attention: logits s = mod(cap·tanh(scale·q·k/cap)) + bias + mask.

    Args:
        query: [batch, heads, T, d].
        key: [batch, kv heads, keys, d], each shared by consecutive query heads.
        scale: of q·k; None for 1/√d.
        causal: whether query i sees the keys up to i only.
        mask: [batch or 1, heads or 1, T or 1, keys], bool (true: seen) or numbers to add.
        bias: numbers to add, likewise.
        softcap: the cap.
        unit: logits of learned sinks beside the keys, [heads].
        score_mod: (s, batch, head, i, j) -> s, as FlexAttention takes it.
        mask_mod: (batch, head, i, j) -> bool, likewise.
    """

    query: Any
    key: Any
    scale: float | None = None
    causal: bool = False
    mask: Any = None
    bias: Any = None
    softcap: float | None = None
    unit: Any = None
    score_mod: Callable[..., Any] | None = None
    mask_mod: Callable[..., Any] | None = None


def logits(call: Call, at: Any) -> tuple[Any, Any]:
    """Return logits [batch, heads, rows, keys] of queries at these positions, and which are seen.

    Args:
        call: the call.
        at: positions of queries, the same in each text [1, rows], or of each [batch, rows].
    """
    torch = library("torch", "torch")
    wide = torch.promote_types(call.query.dtype, torch.float32)
    q = torch.take_along_dim(call.query, at[:, None, :, None], 2).to(wide)
    k = call.key.to(wide)
    batch, heads, count, dim = q.shape
    groups, keys = k.shape[-3:-1]
    grouped = q.reshape(batch, groups, heads // groups, count, dim)
    s = torch.einsum("bghrd,bgkd->bghrk", grouped, k).reshape(batch, heads, count, keys)
    s = s * (1 / math.sqrt(dim) if call.scale is None else call.scale)
    if call.softcap is not None:
        s = call.softcap * torch.tanh(s / call.softcap)
    place = [torch.arange(n, device=s.device) for n in (batch, heads)]
    place += [at.expand(batch, -1), torch.arange(keys, device=s.device)]
    seen = torch.ones((1, 1, 1, keys), dtype=torch.bool, device=s.device)
    if call.score_mod is not None:
        s = over_axes(torch, call.score_mod, _ROWS_OF_EACH_TEXT, scored=True)(s, *place)
        seen = seen & (s > -torch.inf)
    if call.mask_mod is not None:
        seen = seen & over_axes(torch, call.mask_mod, _ROWS_OF_EACH_TEXT, scored=False)(*place)
    if call.causal:
        seen = seen & (place[3] <= at[:, None, :, None])
    added, seen = added_to_rows(call, at, seen)
    return torch.where(seen, s + added, 0.0), seen.expand(s.shape)


def _mask_rows(x: Any, at: Any, keys: int) -> Any:
    """Return rows of a mask of up to four axes: [batch or 1, heads or 1, rows or 1, keys or 1]."""
    torch = library("torch", "torch")
    x = x.reshape((1,) * (4 - x.ndim) + tuple(x.shape))[..., :keys]
    return x if x.shape[-2] == 1 else torch.take_along_dim(x, at[:, None, :, None], 2)


_ROWS_OF_EACH_TEXT = ("j", "i", "h", "bi")  # rows of each text for themselves, over all keys


def over_axes(torch: Any, function: Any, places: Sequence[str], *, scored: bool) -> Any:
    """Return a function of one entry, as FlexAttention takes it, on [batch, heads, rows, keys].

    Args:
        torch: the module.
        function: of batch, head, query and key, after a logit where it is `scored`.
        places: for each of the axes, last first, which of the four have it: "bhij".
        scored: whether a logit comes first.
    """
    for axis in places:
        own = tuple(0 if x in axis else None for x in "bhij")
        function = torch.vmap(function, in_dims=((0, *own) if scored else own))
    return function


def added_to_rows(call: Call, at: Any, seen: Any) -> tuple[Any, Any]:
    """Return what masks and biases add to rows [batch or 1, rows], and the keys they leave seen.

    Float masks hide as `measure` says it.
    """
    torch, total = library("torch", "torch"), 0.0
    for added in (call.bias, call.mask):
        if added is None:
            continue
        added = _mask_rows(added, at, call.key.shape[-2])
        if added.dtype == torch.bool:
            seen = seen & added
        else:
            top = torch.where(seen, added, -torch.inf).amax(-1, keepdim=True)
            seen = seen & (added > top - HIDDEN_BELOW_TOP) & (top > HIDDEN_AT)
            total = total + added
    return total, seen


class Output(NamedTuple):
    """What an attention function gave for a call: its output, or the weights themselves.

    Args:
        value: [batch, kv heads, keys, dim].
        output: [batch, heads, T, dim]; None where there are weights.
        weights: [batch, heads, T, keys] that it returned; None for none.
        dropped: whether some of the weights may have been dropped, and the others raised.
        step: how far apart numbers of the type that it computed in are, near 1.
    """

    value: Any
    output: Any
    weights: Any = None
    dropped: bool = False
    step: float = 0.0

    def check_rows(self, s: Any, seen: Any, at: Any, unit: Any) -> None:
        """Check that the logits of rows make this output; rows without a key are left out.

        Args:
            s: logits [batch, heads, rows, keys].
            seen: which of them are seen.
            at: positions of the rows, [1 or batch, rows].
            unit: logits of learned sinks, [heads], or None.

        Raises:
            Unseen: they make something else, or are not finite.
        """
        torch = library("torch", "torch")
        if not bool(torch.isfinite(s).all()):
            raise Unseen("has logits that are not finite")
        x = torch.where(seen, s, -torch.inf)
        if unit is not None:
            x = torch.cat([x, unit[:, None, None].to(x).expand(*x.shape[:-1], 1)], -1)
        p = torch.softmax(x, -1)[..., : s.shape[-1]]
        at = at[:, None, :, None]
        some = seen.any(-1, keepdim=True)
        if self.weights is not None:
            want = torch.take_along_dim(self.weights[..., : p.shape[-1]].to(p), at, 2)
            if self.dropped:
                kept = torch.where(some, p, 0.0)[want > 0]
                want = want * ((kept * want[want > 0]).sum() / want.square().sum().clamp(min=1e-30))
                p = torch.where(want > 0, p, 0.0)
            size = p.amax(-1, keepdim=True)
        else:
            batch, heads, rows, keys = p.shape
            v = self.value.to(p)
            grouped = p.reshape(batch, v.shape[1], -1, keys)
            p = (grouped @ v).reshape(batch, heads, rows, -1)
            want = torch.take_along_dim(self.output.to(p), at, 2)
            size = v.abs().amax((-2, -1), keepdim=True)
            size = size.repeat_interleave(heads // v.shape[1], 1)
        largest = s.abs().amax(-1, keepdim=True)
        most = size * (_TOLERANCE + _ROUNDINGS * self.step * (1 + largest))
        off = (p - want).abs()
        if bool((some & ~(off <= most)).any()):
            raise Unseen("computes something else than softmax attention of its arguments")
