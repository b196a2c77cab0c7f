"""Whether a reading of a call is what the model computed: its weights must make its output."""

from __future__ import annotations

from typing import Any, NamedTuple

from sparsity.attention.checkpoints.checkpoint import library

# Relative to the largest value or weight: float32 kernels stay below 1e-5, a wrong mask or scale
# is far above. Half precision rounds logits, by as much as they are large.
_TOLERANCE = 1e-4
_ROUNDINGS = 8  # of a logit in the type that the model computes in


class Unseen(Exception):
    """Why a call of attention is not measured, in words that follow "…: it "."""


class Made(NamedTuple):
    """What an attention function made of a call.

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

    def hold(self, s: Any, seen: Any, at: Any, unit: Any) -> None:
        """Hold the logits of rows against it; rows without a key are left out.

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
