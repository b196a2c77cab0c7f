"""What attention functions of PyTorch, transformers and flash_attn are called with, as a `Call`.

Each reader takes the function, the arguments of a call and what it returned; it raises `Unseen` for
a call that it cannot read. Dropout has random numbers of its own, so that the output of a call with
dropout says nothing about its weights: the function is called again without it, and that output is
the one to check against.

The functions of flash_attn take heads behind tokens, [batch, tokens, heads, dim], or texts behind
each other without padding, [tokens of all texts, heads, dim], with the places where each begins.
Their queries stand at the end of the keys: the last query is level with the last key, in causal
masks, windows and ALiBi. An argument of theirs that is not known here and not left at its default
makes the call unseen.
"""

from __future__ import annotations

import functools
import inspect
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

from sparsity.attention.checkpoints.checkpoint import library
from sparsity.attention.monitoring.call import Call, Output, Unseen

# By how many roundings the output of all heads may differ from that of another kernel, which adds
# products as many as a model is wide in another order. float32 counts as 2⁻²⁰, eight of its own
# roundings, so that 256 of them are 2.4e-4 of the largest output, near `call`'s 1e-4 for one head.
_MAX_ROUNDINGS, _FINEST_STEP = 256, 2.0**-20

Reader = Callable[[Any, tuple[Any, ...], dict[str, Any], Any], tuple[Call, Output]]


def read_sdpa(function: Any, args: Any, kwargs: Any, output: Any) -> tuple[Call, Output]:
    """Read a call of `torch.nn.functional.scaled_dot_product_attention`."""
    torch, bound = library("torch", "torch"), _SDPA.bind(*args, **kwargs)
    bound.apply_defaults()
    q, k, v, mask, dropout, causal, scale, grouped = bound.arguments.values()
    plain = {**bound.arguments, "dropout_p": 0.0}
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
    own = 1 if grouped else 0
    common = torch.broadcast_shapes(*(lead[: len(lead) - own] for lead in leads))
    leads = [common + lead[len(lead) - own :] for lead in leads]
    if mask is not None and mask.ndim > 4:
        mask = _with_four_axes(mask, leads[0])
    if dropout:
        output = function(**plain)
    refuse_unreadable(output)
    if not (q.numel() and k.numel()):
        raise Unseen("is called without queries or without keys")
    step = step_near_one(output, q)
    q, k, v, output = (
        _with_four_axes(x, lead)
        for x, lead in zip((q, k, v, output), (*leads, leads[0]), strict=True)
    )
    return Call(q, k, scale, causal, mask, mask_mod=mask_mod), Output(v, output, step=step)


def _sdpa(
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> None:
    """Stand for the signature of the function, which is built in and has none to inspect."""


_SDPA = inspect.signature(_sdpa)


def read_flex(function: Any, args: Any, kwargs: Any, output: Any) -> tuple[Call, Output]:
    """Read a call of `torch.nn.attention.flex_attention.flex_attention`."""
    named = arguments_by_name(function, args, kwargs)
    q, k, v = (named[x] for x in ("query", "key", "value"))
    output = output[0] if isinstance(output, tuple) else output
    refuse_unreadable(q, k, v, output)
    block_mask = named.get("block_mask")
    mask_mod = None if block_mask is None else block_mask.mask_mod
    call = Call(q, k, named.get("scale"), score_mod=named.get("score_mod"), mask_mod=mask_mod)
    return call, Output(v, output, step=step_near_one(output, q))


# `interception` makes one function around each (function, reader): the reader must be the same
# object whichever watch asks for it.
@functools.cache
def of_interface(name: str) -> Reader:
    """Return the reader of an attention function of transformers, by its implementation's name."""

    def attention(function: Any, args: Any, kwargs: Any, output: Any) -> tuple[Call, Output]:
        named = arguments_by_name(function, args, kwargs)
        # Only the order of these four is relied on: names are each model's own.
        module, q, k, v, *others = named.values()
        mask = others[0] if others else None
        if named.get("cache") is not None:
            raise Unseen("keeps its keys in a paged cache")
        mask_mod = getattr(mask, "mask_mod", None)
        array = mask if mask_mod is None else None
        causal = name == "sdpa" and mask is None and _causal(module, q, named)
        weights = None
        # Eager attention of some models takes the rate from the module: training may drop then.
        dropped = bool(named.get("dropout")) or (name == "eager" and module.training)
        if name == "eager":
            weights = output[1]
        elif dropped:
            bound = inspect.signature(function).bind(*args, **kwargs)
            bound.arguments["dropout"] = 0.0
            output = function(*bound.args, **bound.kwargs)
        refuse_unreadable(q, k, v, array, output[0], weights)
        call = Call(
            q, k,
            scale=named.get("scaling"), causal=causal, mask=array, mask_mod=mask_mod,
            bias=named.get("position_bias"), softcap=named.get("softcap"),
            unit=named.get("s_aux"),
        )  # fmt: skip
        return call, Output(
            v, output[0].transpose(1, 2), weights, dropped, step_near_one(output[0], q)
        )

    return attention


def _causal(module: Any, query: Any, named: dict[str, Any]) -> bool:
    """Return whether a layer without a mask looks back only; the last token sees all keys."""
    said = named.get("is_causal")
    return query.shape[2] > 1 and bool(getattr(module, "is_causal", True) if said is None else said)


def makes_weights(function: Any, args: Any, kwargs: Any) -> bool:
    """Return whether `multi_head_attention_forward` makes the weights by itself in this call."""
    return bool(arguments_by_name(function, args, kwargs)["need_weights"])


def read_multi_head(function: Any, args: Any, kwargs: Any, output: Any) -> tuple[Call, Output]:
    """Read a call of `multi_head_attention_forward` that makes the weights by itself.

    It is computed again without them: then it projects queries and keys, and calls PyTorch's own
    attention on them, which is read. Weights that it returns may be averaged over heads, and so
    could not be checked head by head; the outputs of both ways are compared instead.
    """
    torch, named = library("torch", "torch"), arguments_by_name(function, args, kwargs)
    refuse_unreadable(*(x for x in named.values() if isinstance(x, torch.Tensor)))
    inner: list[Any] = []
    attend = torch.nn.functional.scaled_dot_product_attention

    def kept(*args: Any, **kwargs: Any) -> Any:
        inner.append((args, kwargs, attend(*args, **kwargs)))
        return inner[0][2]

    # A copy of the function that finds `kept` by the name of the inner attention: replacing that in
    # the module itself would be seen by other threads.
    known = function.__globals__ | {attend.__name__: kept}
    again = types.FunctionType(function.__code__, known, argdefs=function.__defaults__)
    made = again(**named | {"need_weights": False, "dropout_p": 0.0, "is_causal": False})[0]
    found = read_sdpa(attend, *inner[0])
    if not (named["training"] and named["dropout_p"]):
        most = _MAX_ROUNDINGS * max(found[1].step, _FINEST_STEP) * made.abs().max()
        if bool(((made - output[0]).abs() > most).any()):
            raise Unseen("computes something else than PyTorch's own attention of many heads")
    return found


def arguments_by_name(function: Any, args: Any, kwargs: Any) -> dict[str, Any]:
    """Return the arguments of a call by name, in their order, with defaults."""
    bound = inspect.signature(function).bind(*args, **kwargs)
    bound.apply_defaults()
    named = dict(bound.arguments)
    for name, parameter in bound.signature.parameters.items():
        if parameter.kind is parameter.VAR_KEYWORD:
            named |= named.pop(name)
    return named


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


# The package flash_attn, its file of functions, and what its third version is called.
_FLASH_HOMES = ("flash_attn", "flash_attn.flash_attn_interface", "flash_attn_interface")
_FLASH_READ = {
    "q", "k", "v", "kv", "qkv",
    "cu_seqlens", "cu_seqlens_q", "cu_seqlens_k", "max_seqlen", "max_seqlen_q", "max_seqlen_k",
    "dropout_p", "softmax_scale", "causal", "window_size", "softcap", "alibi_slopes",
}  # fmt: skip
# They say how to compute, or what to return beside the output, and leave the weights as they are.
_FLASH_WITHOUT_EFFECT = {
    "deterministic", "return_attn_probs", "return_softmax_lse", "num_splits", "pack_gqa",
    "sm_margin", "scheduler_metadata",
}  # fmt: skip


def flash_functions() -> Iterator[tuple[dict[str, Any], str]]:
    """Iterate over where functions of flash_attn are, if it is imported: dictionary, name."""
    for home in _FLASH_HOMES:
        names = vars(sys.modules[home]) if sys.modules.get(home) else {}
        for name in [key for key in names if key.startswith("flash_attn_")]:
            if inspect.isfunction(names[name]):
                yield names, name


def read_flash(function: Any, args: Any, kwargs: Any, output: Any) -> tuple[Call, Output]:
    """Read a call of any function of flash_attn, by the names of its arguments."""
    torch, named = library("torch", "torch"), arguments_by_name(function, args, kwargs)
    _refuse_unread_arguments(function, named)
    q, k, v = _queries_keys_values(named)
    starts = [named.get(name, named.get("cu_seqlens")) for name in ("cu_seqlens_q", "cu_seqlens_k")]
    slopes = named.get("alibi_slopes")
    if named.get("dropout_p"):
        output = function(**named | {"dropout_p": 0.0})
    output = output[0] if isinstance(output, tuple) else output
    refuse_unreadable(q, k, v, slopes, output, *starts)
    if starts[0] is not None:
        # A text without queries has no rows to look at.
        some = starts[0].diff() > 0
        (q, queries), (output, _) = (_padded_batch(x, starts[0], some) for x in (q, output))
        (k, keys), (v, _) = (_padded_batch(x, starts[1], some) for x in (k, v))
        if slopes is not None and slopes.ndim == 2:
            slopes = slopes[some]
    else:
        queries, keys = (torch.full((len(x),), x.shape[1], device=x.device) for x in (q, k))
    if not (q.numel() and k.numel()):
        raise Unseen("is called without queries or without keys")
    q, k, v, output = (x.transpose(1, 2) for x in (q, k, v, output))
    left, right = (-1 if x is None else x for x in named.get("window_size") or (-1, -1))
    right = 0 if named.get("causal") else right
    ahead = keys - queries

    def mask_mod(batch: Any, head: Any, i: Any, j: Any) -> Any:
        seen, after = (i < queries[batch]) & (j < keys[batch]), j - i - ahead[batch]
        if left >= 0:
            seen = seen & (after >= -left)
        return seen & (after <= right) if right >= 0 else seen

    of_texts: Any = None if slopes is None else slopes.expand(len(q), -1)

    def score_mod(s: Any, batch: Any, head: Any, i: Any, j: Any) -> Any:
        return s - of_texts[batch, head] * (i + ahead[batch] - j).abs()

    call = Call(
        q, k,
        scale=named.get("softmax_scale"), softcap=named.get("softcap") or None,
        score_mod=None if slopes is None else score_mod, mask_mod=mask_mod,
        text=(torch.arange(q.shape[2], device=q.device) < queries[:, None])[:, None],
    )  # fmt: skip
    return call, Output(v, output, step=step_near_one(output, q))


def _refuse_unread_arguments(function: Any, named: dict[str, Any]) -> None:
    """Refuse a function or an argument that is not known to leave the weights as they are read.

    Raises:
        Unseen: it has such an argument.
    """
    parameters = inspect.signature(function).parameters
    for name, value in named.items():
        if name in _FLASH_READ | _FLASH_WITHOUT_EFFECT:
            continue
        default = parameters[name].default if name in parameters else inspect.Parameter.empty
        if value is not default and not (isinstance(value, (int, str)) and value == default):
            raise Unseen(f"calls {function.__name__} with {name}=, which is not read")


def _queries_keys_values(named: dict[str, Any]) -> tuple[Any, Any, Any]:
    """Return queries, keys and values, which may be one array with an axis before that of heads."""
    if "qkv" in named:
        return named["qkv"].unbind(-3)
    return named["q"], *(named["kv"].unbind(-3) if "kv" in named else (named["k"], named["v"]))


def _padded_batch(x: Any, starts: Any, some: Any) -> tuple[Any, Any]:
    """Return texts behind each other as a padded batch, and the length of each.

    Args:
        x: [tokens of all texts, heads, dim].
        starts: where each text begins, and the end of the last: [texts + 1].
        some: which of the texts to return, [texts].
    """
    torch, lengths = library("torch", "torch"), starts.diff()[some].long()
    longest = int(lengths.max()) if len(lengths) else 0
    at = starts[:-1][some, None] + torch.arange(longest, device=x.device)
    return x[at.clamp(max=max(len(x) - 1, 0))], lengths
