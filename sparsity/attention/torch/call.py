"""One call of attention in PyTorch: its arguments, the logits they make, and its output.

The arguments that are read off a call may be misunderstood: a scale by another name, a mask that
the function replaces by its own. Statistics of a call therefore count only if the logits, computed
again from its arguments, also make its output: `Output.check_rows` is that gate.

Each reader takes the function, the arguments of a call and what it returned; it raises `Unseen` for
a call that it cannot read. Dropout has random numbers of its own, so that the output of a call with
dropout says nothing about its weights: the function is called again without it, and that output is
the one to check against.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from sparsity.attention.library import library, torch
from sparsity.attention.measurement.attention_layers import HIDDEN_AT, HIDDEN_BELOW_TOP

# How far an output may be off, relative to the largest value or weight. Float32 kernels stay below
# 1e-5, a wrong mask or scale is far above.
_TOLERANCE = 1e-4
# A logit s rounded to a type whose numbers are `step` apart near 1 is off by step·|s|, and so is
# its weight, relatively. A logit is a sum of many products, and the output one of many weights:
# more roundings than 8 accept more wrong readings in half precision, fewer refuse right ones.
_MAX_ROUNDINGS = 8


class Unseen(Exception):
    """A call of attention is not measured; the message follows the words "…: it "."""


@dataclass(frozen=True)
class Call:
    """One call of attention: logits s = mod(cap·tanh(scale·q·k/cap)) + bias + mask.

    Args:
        query: [batch, heads, T, d].
        key: [batch, kv heads, keys, d]; a key head serves as many consecutive query heads.
        scale: the factor of q·k; None for 1/√d.
        causal: whether query i sees the keys up to i only.
        mask: [batch or 1, heads or 1, T or 1, keys], bool (true: seen) or numbers to add.
        bias: numbers to add, of the same shape.
        softcap: the cap, which bounds |s| before bias and mask; None for no cap.
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

    What is not seen has the logit 0: −∞ there would make NaN of gradients through `where`.

    Args:
        call: the call.
        at: positions of queries, the same in each text [1, rows], or of each [batch, rows].
    """
    # Numbers of float16 near 10 are 1/128 apart: logits are made in float32 at least.
    wide = torch.promote_types(call.query.dtype, torch.float32)
    q = torch.take_along_dim(call.query, at[:, None, :, None], 2).to(wide)
    q = q * (1 / math.sqrt(q.shape[-1]) if call.scale is None else call.scale)
    k = call.key.to(wide)
    batch, heads, count, dim = q.shape
    groups, keys = k.shape[-3:-1]
    grouped = q.reshape(batch, groups, heads // groups, count, dim)
    s = torch.einsum("bghrd,bgkd->bghrk", grouped, k).reshape(batch, heads, count, keys)
    if call.softcap is not None:
        s = call.softcap * torch.tanh(s / call.softcap)
    place = [torch.arange(n, device=s.device) for n in (batch, heads)]
    place += [at.expand(batch, -1), torch.arange(keys, device=s.device)]
    seen = torch.ones((1, 1, 1, keys), dtype=torch.bool, device=s.device)
    if call.score_mod is not None:
        # FlexAttention knows two ways to hide a key: its mask, and a score of −∞.
        s = over_axes(torch, call.score_mod, _ROWS_OF_EACH_TEXT, scored=True)(s, *place)
        seen = seen & (s != -torch.inf)  # and NaN is no hidden key
    if call.mask_mod is not None:
        seen = seen & over_axes(torch, call.mask_mod, _ROWS_OF_EACH_TEXT, scored=False)(*place)
    if call.causal:
        seen = seen & (place[3] <= at[:, None, :, None])
    added, seen = added_to_rows(call, at, seen)
    s = s if isinstance(added, float) else s + added
    return torch.where(seen, s, 0.0), seen.expand(s.shape)


def _mask_rows(x: Any, at: Any, keys: int) -> Any:
    """Return rows of a mask of up to four axes: [batch or 1, heads or 1, rows or 1, keys or 1]."""
    x = x.reshape((1,) * (4 - x.ndim) + tuple(x.shape))[..., :keys]
    return x if x.shape[-2] == 1 else torch.take_along_dim(x, at[:, None, :, None], 2)


_ROWS_OF_EACH_TEXT = ("j", "i", "h", "bi")  # rows of each text for themselves, over all keys


def over_axes(torch: Any, function: Any, places: Sequence[str], *, scored: bool) -> Any:
    """Return a function of one entry, as FlexAttention takes it, on [batch, heads, rows, keys].

    FlexAttention calls such functions with one entry's indices b, h, i, j. `vmap` adds one axis at
    a time, the last axis first, over those of the four that have it; the others stay as they are.

    Args:
        torch: the module.
        function: a function of batch, head, query and key, after a logit where it is `scored`.
        places: for each of the axes, last first, the letters of "bhij" that vary along it: "bi" is
            an axis of texts with rows of their own.
        scored: whether the function takes a logit first.
    """
    for axis in places:
        dims = tuple(0 if x in axis else None for x in "bhij")
        function = torch.vmap(function, in_dims=((0, *dims) if scored else dims))
    return function


def added_to_rows(call: Call, at: Any, seen: Any) -> tuple[Any, Any]:
    """Return what masks and biases add to rows [batch or 1, rows], and the keys they leave seen.

    Numbers that a mask adds hide keys by the rule of `attention_layers.HIDDEN_AT`, that of
    `measure`: relative to the largest one, as an ALiBi bias may be far below zero everywhere.
    """
    total = 0.0
    for added in (call.bias, call.mask):
        if added is None:
            continue
        added = _mask_rows(added, at, call.key.shape[-2])
        if added.dtype == torch.bool:
            seen = seen & added
        else:
            top = torch.where(seen, added, -torch.inf).amax(-1, keepdim=True)
            # Denied, so that a bias gone NaN hides no key.
            seen = seen & ~((added <= top - HIDDEN_BELOW_TOP) | (top <= HIDDEN_AT))
            total = total + added
    return total, seen


class Output(NamedTuple):
    """What an attention function returned for a call, against which its logits are checked.

    Args:
        value: [batch, kv heads, keys, dim].
        output: [batch, heads, T, dim]; not looked at where there are weights.
        weights: the weights it returned, [batch, heads, T, keys]; None if it returned none.
        dropped: whether dropout may have zeroed some of the weights and scaled up the others.
        step: the distance of neighbouring numbers near 1 in the type that it computed in.
    """

    value: Any
    output: Any
    weights: Any = None
    dropped: bool = False
    step: float = 0.0

    def check_rows(self, s: Any, seen: Any, at: Any, unit: Any) -> Any:
        """Check that the logits of rows make this output; rows without a key are left out.

        Args:
            s: logits [batch, heads, rows, keys].
            seen: which of them are seen.
            at: positions of the rows, [1 or batch, rows].
            unit: logits of learned sinks, [heads], or None.

        Returns:
            The rows of which logits or output are not finite, [batch, heads, rows]: nothing can be
            said of them, and they hide no other row.

        Raises:
            Unseen: they make something else.
        """
        at = at[:, None, :, None]
        largest = s.abs().amax(-1, keepdim=True)
        finite = torch.isfinite(largest)
        x = torch.where(seen & finite, s, -torch.inf)
        if unit is not None:
            x = torch.cat([x, unit[:, None, None].to(x).expand(*x.shape[:-1], 1)], -1)
        p = torch.softmax(x, -1)[..., : s.shape[-1]]
        if self.weights is not None:
            want = torch.take_along_dim(self.weights[..., : p.shape[-1]].to(p), at, 2)
        else:
            want = torch.take_along_dim(self.output.to(p), at, 2)
        told = torch.isfinite(want).all(-1, keepdim=True)
        good = seen.any(-1, keepdim=True) & finite & told
        want = torch.where(good, want, 0.0)
        if self.weights is not None:
            if self.dropped:
                # Dropout divides what it keeps by the chance to be kept, which a layer need not
                # tell: the factor that fits best, by least squares, undoes it. What it dropped
                # cannot be checked.
                kept = p[want > 0]
                want = want * ((kept * want[want > 0]).sum() / want.square().sum().clamp(min=1e-30))
                p = torch.where(want > 0, p, 0.0)
            size = p.amax(-1, keepdim=True)
        else:
            batch, heads, rows, keys = p.shape
            # A value that is not finite is of a key that such a row does not see.
            v = torch.nan_to_num(self.value.to(p), 0.0, 0.0, 0.0)
            grouped = p.reshape(batch, v.shape[1], -1, keys)
            p = (grouped @ v).reshape(batch, heads, rows, -1)  # the output, no longer weights
            size = v.abs().amax((-2, -1), keepdim=True)
            size = size.repeat_interleave(heads // v.shape[1], 1)
        most = size * (_TOLERANCE + _MAX_ROUNDINGS * self.step * (1 + largest))
        if bool((good & ((p - want).abs() > most)).any()):
            raise Unseen("computes something else than softmax attention of its arguments")
        return ~(finite & told)[..., 0]


# The arguments of the function, which is built in and has no signature to inspect.
_SDPA = {
    **dict.fromkeys(("query", "key", "value", "attn_mask")),
    **{"dropout_p": 0.0, "is_causal": False, "scale": None, "enable_gqa": False},
}


def read_sdpa(function: Any, args: Any, kwargs: Any, output: Any) -> tuple[Call, Output]:
    """Read a call of `torch.nn.functional.scaled_dot_product_attention`."""
    given = _SDPA | dict(zip(_SDPA, args, strict=False)) | kwargs
    q, k, v, mask, dropout, causal, scale, grouped = given.values()
    mask_mod = None
    bias = library("torch.nn.attention.bias", "torch")
    if isinstance(mask, bias.CausalBias):
        # It is a tensor without numbers of its own. Its variants differ where there are more keys
        # than queries: the triangle starts at the first key, as `is_causal` has it, or ends at the
        # last.
        ahead = k.shape[-2] - q.shape[-2]
        causal = mask.variant == bias.CausalVariant.UPPER_LEFT or not ahead
        mask_mod = None if causal else (lambda batch, head, i, j: j <= i + ahead)
        mask = None
    refuse_unreadable(q, k, v, mask)
    # The axes before the last two broadcast, all but that of heads where key heads may be fewer.
    leads = [tuple(x.shape[:-2]) for x in (q, k, v)]
    apart = 1 if grouped else 0
    common = torch.broadcast_shapes(*(lead[: len(lead) - apart] for lead in leads))
    leads = [common + lead[len(lead) - apart :] for lead in leads]
    if mask is not None and mask.ndim > 4:
        mask = _with_four_axes(mask, leads[0])
    if dropout:
        output = function(**(given | {"dropout_p": 0.0}))
    refuse_unreadable(output)
    if not (q.numel() and k.numel()):
        raise Unseen("is called without queries or without keys")
    step = step_near_one(output, q)
    q, k, v, output = (
        _with_four_axes(x, lead)
        for x, lead in zip((q, k, v, output), (*leads, leads[0]), strict=True)
    )
    return Call(q, k, scale, causal, mask, mask_mod=mask_mod), Output(v, output, step=step)


def read_interface(
    name: str, function: Any, given: Any, named: dict[str, Any], output: Any
) -> tuple[Call, Output]:
    """Read a call of an attention function of transformers.

    Args:
        name: of its implementation: "sdpa", "flex_attention" or "eager".
        function: what was called.
        given: module, queries, keys, values and mask, by which all of them are called.
        named: the other arguments.
        output: what it gave, [batch, T, heads, dim], and the weights or None.
    """
    module, q, k, v, mask = given
    if named.get("cache") is not None:
        raise Unseen("keeps its keys in a paged cache")
    mask_mod = getattr(mask, "mask_mod", None)
    array = mask if mask_mod is None else None
    causal = name == "sdpa" and mask is None and _causal(module, q, named)
    # Eager attention of some models takes the rate from the module: training may drop then.
    dropped = bool(named.get("dropout")) or (name == "eager" and module.training)
    weights = output[1] if name == "eager" else None
    if dropped and name != "eager":
        output = function(*given, **(named | {"dropout": 0.0}))
    refuse_unreadable(q, k, v, array, output[0], weights)
    call = Call(
        q, k,
        scale=named.get("scaling"), causal=causal, mask=array, mask_mod=mask_mod,
        bias=named.get("position_bias"), softcap=named.get("softcap"), unit=named.get("s_aux"),
    )  # fmt: skip
    made = output[0].transpose(1, 2)
    return call, Output(v, made, weights, dropped, step_near_one(output[0], q))


def _causal(module: Any, query: Any, named: dict[str, Any]) -> bool:
    """Return whether a layer without a mask looks back only; the last token sees all keys."""
    said = named.get("is_causal")
    return query.shape[2] > 1 and bool(getattr(module, "is_causal", True) if said is None else said)


def _with_four_axes(x: Any, lead: tuple[int, ...]) -> Any:
    """Return [batch, heads, tokens, d], from whatever axes there are before the last two."""
    x = x.expand(*lead, *x.shape[-2:])
    return x[(None,) * (4 - x.ndim)] if x.ndim < 4 else x.reshape(-1, *x.shape[-3:])


def step_near_one(output: Any, query: Any) -> float:
    """Return the distance of numbers near 1 in the coarsest type that may have made the output."""
    device = query.device.type
    types = [output.dtype, query.dtype]
    if torch.is_autocast_enabled(device):
        types.append(torch.get_autocast_dtype(device))
    coarse = max(torch.finfo(x).eps for x in types)
    # TF32, which GPUs may multiply float32 in, has ten bits after the point.
    rounded = device != "cpu" and torch.get_float32_matmul_precision() != "highest"
    return max(coarse, 2.0**-10) if rounded else coarse


def refuse_unreadable(*tensors: Any) -> None:
    """Refuse what is no plain array of numbers; None stands for no array.

    Subclasses may compute anything by their operators, and their numbers may be elsewhere
    (distributed, quantised, fake), so that only PyTorch's own two types are read.

    Raises:
        Unseen: one of them is not a plain array.
    """
    for x in tensors:
        if x is None:
            continue
        if type(x) not in (torch.Tensor, torch.nn.Parameter):
            raise Unseen(f"is given a {type(x).__name__}, whose numbers are not read")
        if x.is_nested or x.layout is not torch.strided:
            raise Unseen("is given nested or sparse tensors, which are not read")
        if x.device.type == "meta":
            raise Unseen("is given tensors without numbers (of the device meta)")
        try:  # tensors of `vmap` and `grad` are of the plain type, but have no storage
            x.untyped_storage()
        except (RuntimeError, NotImplementedError):
            raise Unseen("runs inside a transform of torch.func, where no numbers are") from None
