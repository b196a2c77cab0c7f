"""What attention functions of PyTorch and transformers are called with, as a `Call`.

Each reader takes the function, the arguments of a call and what it returned; it raises `Unseen` for
a call that it cannot read. Dropout has random numbers of its own, so that the output of a call with
dropout says nothing about its weights: the function is called again without it, and that output is
the one to check against.
"""

from __future__ import annotations

from typing import Any

from sparsity.attention.library import library
from sparsity.attention.torch.call import Call, Output, Unseen

# The arguments of the function, which is built in and has no signature to inspect.
_SDPA = {
    **dict.fromkeys(("query", "key", "value", "attn_mask")),
    **{"dropout_p": 0.0, "is_causal": False, "scale": None, "enable_gqa": False},
}


def read_sdpa(function: Any, args: Any, kwargs: Any, output: Any) -> tuple[Call, Output]:
    """Read a call of `torch.nn.functional.scaled_dot_product_attention`."""
    torch, given = library("torch", "torch"), _SDPA | dict(zip(_SDPA, args, strict=False)) | kwargs
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
    torch, device = library("torch", "torch"), query.device.type
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
    torch = library("torch", "torch")
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
