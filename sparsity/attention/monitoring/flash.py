"""What the functions of the package flash_attn are called with, as a `Call`.

They take heads behind tokens, [batch, tokens, heads, dim], or texts behind each other without
padding, [tokens of all texts, heads, dim], with the places where each begins. Queries stand at the
end of the keys: the last query is level with the last key, in causal masks, windows and ALiBi.
An argument that is not known here and not left at its default makes the call unseen.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from typing import Any

from sparsity.attention.checkpoints.checkpoint import library
from sparsity.attention.monitoring.call import Call, Output, Unseen
from sparsity.attention.monitoring.calls import (
    arguments_by_name,
    refuse_unreadable,
    step_near_one,
)

# The package, its file of functions, and what its third version is called.
_HOMES = ("flash_attn", "flash_attn.flash_attn_interface", "flash_attn_interface")
_READ = {
    "q", "k", "v", "kv", "qkv",
    "cu_seqlens", "cu_seqlens_q", "cu_seqlens_k", "max_seqlen", "max_seqlen_q", "max_seqlen_k",
    "dropout_p", "softmax_scale", "causal", "window_size", "softcap", "alibi_slopes",
}  # fmt: skip
# They say how to compute, or what to return beside the output, and leave the weights as they are.
_WITHOUT_EFFECT = {
    "deterministic", "return_attn_probs", "return_softmax_lse", "num_splits", "pack_gqa",
    "sm_margin", "scheduler_metadata",
}  # fmt: skip


def flash_functions() -> Iterator[tuple[dict[str, Any], str]]:
    """Iterate over where the functions of the package are, if it is imported: dictionary, name."""
    for home in _HOMES:
        names = vars(sys.modules[home]) if sys.modules.get(home) else {}
        for name in [key for key in names if key.startswith("flash_attn_")]:
            if inspect.isfunction(names[name]):
                yield names, name


def read_flash(function: Any, args: Any, kwargs: Any, output: Any) -> tuple[Call, Output]:
    """Read a call of any function of the package, by the names of its arguments."""
    torch, named = library("torch", "torch"), arguments_by_name(function, args, kwargs)
    _refuse_unknown(function, named)
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
        (q, queries), (output, _) = (_padded(x, starts[0], some) for x in (q, output))
        (k, keys), (v, _) = (_padded(x, starts[1], some) for x in (k, v))
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


def _refuse_unknown(function: Any, named: dict[str, Any]) -> None:
    """Refuse a function or an argument that is not known to leave the weights as they are read.

    Raises:
        Unseen: it has such an argument.
    """
    parameters = inspect.signature(function).parameters
    for name, value in named.items():
        if name in _READ | _WITHOUT_EFFECT:
            continue
        default = parameters[name].default if name in parameters else inspect.Parameter.empty
        if value is not default and not (isinstance(value, (int, str)) and value == default):
            raise Unseen(f"calls {function.__name__} with {name}=, which is not read")


def _queries_keys_values(named: dict[str, Any]) -> tuple[Any, Any, Any]:
    """Return queries, keys and values, which may be one array with an axis before that of heads."""
    if "qkv" in named:
        return named["qkv"].unbind(-3)
    return named["q"], *(named["kv"].unbind(-3) if "kv" in named else (named["k"], named["v"]))


def _padded(x: Any, starts: Any, some: Any) -> tuple[Any, Any]:
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
