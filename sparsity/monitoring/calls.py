"""What the attention functions of PyTorch and of transformers are called with, as a `Call`."""

from __future__ import annotations

from typing import Any

from sparsity.errors import InputError
from sparsity.monitoring.tensors import Call


def sdpa(
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Call:
    """`torch.nn.functional.scaled_dot_product_attention`."""
    query, key = (_four(x) for x in (query, key))
    return Call(query, key, scale, is_causal, attn_mask)


def flex(
    query: Any,
    key: Any,
    value: Any,
    score_mod: Any = None,
    block_mask: Any = None,
    scale: float | None = None,
    *rest: Any,
    **more: Any,
) -> Call:
    """`torch.nn.attention.flex_attention.flex_attention`."""
    mask_mod = None if block_mask is None else block_mask.mask_mod
    return Call(query, key, scale, score_mod=score_mod, mask_mod=mask_mod)


def of_interface(name: str) -> Any:
    """A function of transformers' attention interface, by the name of the implementation."""

    def attention(
        module: Any, query: Any, key: Any, value: Any, attention_mask: Any = None, *rest: Any,
        **given: Any,
    ) -> Call:  # fmt: skip
        if given.get("cache") is not None:
            fix = "keeps its keys in a paged cache; watch it without one"
            raise InputError("model", type(module).__name__, fix)
        mask_mod = getattr(attention_mask, "mask_mod", None)
        return Call(
            query, key,
            scale=given.get("scaling"),
            causal=name == "sdpa" and attention_mask is None and _causal(module, query, given),
            mask=attention_mask if mask_mod is None else None,
            mask_mod=mask_mod,
            bias=given.get("position_bias"),
            softcap=given.get("softcap"),
            unit=given.get("s_aux"),
        )  # fmt: skip

    return attention


def _causal(module: Any, query: Any, given: dict[str, Any]) -> bool:
    """Whether a layer without a mask looks back only; the last token sees all keys."""
    said = given.get("is_causal")
    return query.shape[2] > 1 and bool(getattr(module, "is_causal", True) if said is None else said)


def _four(x: Any) -> Any:
    """[batch, heads, tokens, d], from three axes or more."""
    return x[None] if x.ndim == 3 else x.reshape(-1, *x.shape[-3:])
