"""Llama models in GGUF files: what llama.cpp's converter writes, and how llama.cpp takes it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from sparsity.attention.checkpoints import gguf_file
from sparsity.attention.checkpoints.checkpoint import (
    ELSE,
    ONLY_PLAIN,
    Checkpoint,
    Metadata,
    library,
    refusal,
)
from sparsity.attention.checkpoints.tokens import bpe
from sparsity.attention.settings import Rotation, scaling_rule, yarn_amplitude
from sparsity.errors import InputError, printable
from sparsity.rows import rope_planes
from sparsity.rows.rope_scaling import TabledScaling

_NAMES = {  # of the tensors, as llama.cpp's converter calls them, without "blk.N." and ".weight"
    "embed": "token_embd",
    "norm": "output_norm",
    "head": "output",
    "attn_norm": "attn_norm",
    "q": "attn_q",
    "k": "attn_k",
    "v": "attn_v",
    "o": "attn_output",
    "mlp_norm": "ffn_norm",
    "gate": "ffn_gate",
    "up": "ffn_up",
    "down": "ffn_down",
}
_ROPE_TABLE = "rope_freqs.weight"  # by what each plane's angle is divided
_MATCHED_WHOLE = (3, 4)  # llama.cpp's kinds of tokens: of control, and added by the user

_SIZES = {
    "layers": "llama.block_count",
    "heads": "llama.attention.head_count",
    "kv_heads": "llama.attention.head_count_kv",
    "dim": "llama.embedding_length",
    "head_dim": "llama.attention.key_length",
    "inner": "llama.feed_forward_length",
    "context": "llama.context_length",
    "eps": "llama.attention.layer_norm_rms_epsilon",
    "bos": "tokenizer.ggml.bos_token_id",
}
# llama.cpp does not read these of a Llama, and computes with the values of YaRN's paper: a
# file that says otherwise is refused, as there is no telling which of the two was meant.
_YARN_AS_PUBLISHED = {
    "llama.rope.scaling.yarn_beta_fast": 32.0,
    "llama.rope.scaling.yarn_beta_slow": 1.0,
    "llama.rope.scaling.yarn_ext_factor": 1.0,
    "llama.rope.scaling.yarn_attn_factor": 1.0,
}
# What llama.cpp's converter also writes of a plain Llama; what is not plain is read, or refused.
_PLAIN = (
    "llama.attention.value_length",
    "llama.expert_count",
    "llama.expert_used_count",
    "llama.rope.dimension_count",
    "llama.rope.freq_base",
    "llama.rope.scale_linear",
    "llama.rope.scaling.attn_factor",
    "llama.rope.scaling.factor",
    "llama.rope.scaling.finetuned",
    "llama.rope.scaling.original_context_length",
    "llama.rope.scaling.type",
    *_YARN_AS_PUBLISHED,
    "llama.attention.causal",
    "llama.vocab_size",
)


def halves(w: np.ndarray, heads: int) -> np.ndarray:
    """Return q or k with the two entries of a plane of RoPE at rows i and i + d/2 of a head.

    llama.cpp turns neighbours, so its converter permutes the rows; the forward pass turns halves,
    as transformers does. The permutation must be undone: it leaves q·k of unturned vectors as it
    is, but would pair the wrong entries with each angle.
    """
    return w.reshape(heads, -1, 2, w.shape[-1]).swapaxes(1, 2).reshape(w.shape)


def _refuse_unread(given: Metadata, vocabulary: int) -> None:
    """Refuse settings of other models, which the forward pass would not honour."""
    given.one_of("general.type", "model")
    parts = given("split.count", 0)
    if parts not in (0, 1):
        fix = "give the whole model, which llama-gguf-split --merge makes of its parts"
        raise given.refuse("split.count", parts, fix)
    given.one_of("llama.expert_count", 0)
    for name, value in _YARN_AS_PUBLISHED.items():
        given.one_of(name, value)
    given.one_of("llama.attention.causal", True)
    if (declared := given("llama.vocab_size", vocabulary)) != vocabulary:
        raise given.refuse("llama.vocab_size", declared, f"must be its {vocabulary} tokens")
    # Of a field that is not known nobody can say that it does nothing.
    for name in sorted(given.content):
        if name.startswith("llama.") and name not in (*_SIZES.values(), *_PLAIN):
            raise given.refuse(name, given(name), ONLY_PLAIN)


def _rotation(
    given: Metadata, table: Callable[[], np.ndarray] | None
) -> Callable[[int, int], Rotation]:
    """Return the rotary position embedding by (head_dim, context), as llama.cpp takes it.

    Args:
        given: the metadata.
        table: gives the factors by which llama.cpp divides the angle of each plane, from which the
            converter writes the rule of Llama 3; None where there are none.
    """

    def rotation(head_dim: int, context: int) -> Rotation:
        # llama.cpp refuses a Llama of which only a part of each head turns ("invalid n_rot") too.
        for name in ("llama.rope.dimension_count", "llama.attention.value_length"):
            given.one_of(name, head_dim)
        base = given.real("llama.rope.freq_base", rope_planes.BASE, 1.0)
        kind, factor = _scaling(given)
        trained = given.whole("llama.rope.scaling.original_context_length", 0, least=0) or context
        scaling = scaling_rule(kind, {"factor": factor}, trained) if factor != 1 else None
        amplitude = given.real("llama.rope.scaling.attn_factor", 1.0)
        if kind == "yarn":
            amplitude *= yarn_amplitude({}, factor)
        if table is not None:
            if kind == "yarn":
                fix = f"it has {_ROPE_TABLE} besides; {ELSE}"
                raise given.refuse("llama.rope.scaling.type", kind, fix)
            # llama.cpp applies both, the table to the planes and the linear factor to positions.
            scaling = TabledScaling(table() * factor)  # type: ignore[arg-type]
        return Rotation(base, head_dim, scaling, amplitude)

    return rotation


def _scaling(given: Metadata) -> tuple[str, float]:
    """Return the name of the rule for RoPE's angles, and its factor.

    Raises:
        InputError: another rule than "none", "linear" and "yarn", or "none" with a factor.
    """
    names = ("llama.rope.scaling.factor", "llama.rope.scale_linear")  # the second, of older files
    name = next((x for x in names if given(x, None) is not None), names[0])
    factor = given.real(name, 1.0, least=-1.0) or 1.0  # 0 stands for 1 in llama.cpp
    kind = given("llama.rope.scaling.type", "linear")  # a factor alone means positions over it
    if kind == "none":
        given.one_of(name, 1.0, 0.0)
        return "default", 1.0
    if factor < 1:
        raise given.refuse(name, factor, "must be a number >= 1")
    if kind not in ("linear", "yarn"):
        raise given.refuse("llama.rope.scaling.type", kind, ONLY_PLAIN)
    return kind, factor


def _strings(given: Metadata, name: str, *default: Any) -> list[str]:
    """Return a list of texts, or the default."""
    found = given(name, *default)
    if not isinstance(found, list) or not all(isinstance(x, str) for x in found):
        raise given.refuse(name, found, "must be a list of texts; download it again")
    return found


def load(path: Path) -> Checkpoint:
    """Open a GGUF file of the Llama family.

    Raises:
        InputError: cut short, of another architecture, quantised in an unknown way, or with sizes
            that its tensors do not have.
    """
    gguf = library("gguf")
    try:
        content, tensors = gguf_file.read(gguf, path)
    except (OSError, ValueError, KeyError) as error:
        raise refusal(path, error) from None
    given = Metadata(path, content)
    architecture = given("general.architecture")
    if architecture != "llama":
        fix = f"is of the architecture {architecture!s:.40}, not of the Llama family; {ELSE}"
        raise InputError("model", path, fix)
    gguf_file.refuse_unknown_blocks(gguf, path, tensors.values())

    def full_name(name: str, layer: int | None) -> str:
        return f"{'' if layer is None else f'blk.{layer}.'}{_NAMES[name]}.weight"

    def numbers(full: str) -> np.ndarray:
        return gguf_file.dequantize(gguf, tensors[full])

    tokens = _strings(given, "tokenizer.ggml.tokens")
    if not tokens or len(set(tokens)) < len(tokens):
        raise InputError("model", path, "has no tokens, or a token twice; download it again")
    _refuse_unread(given, len(tokens))
    config = given.read_config(
        _SIZES,
        vocabulary=len(tokens),
        tied=full_name("head", None) not in tensors,
        rotation=_rotation(
            given, (lambda: numbers(_ROPE_TABLE)) if _ROPE_TABLE in tensors else None
        ),
        full_name=full_name,
        shapes={name: tensor.shape for name, tensor in tensors.items()},
        unread=[_ROPE_TABLE],
    )

    def weights(name: str, layer: int | None) -> np.ndarray:
        w = numbers(full_name(name, layer))
        heads = {"q": config.heads, "k": config.kv_heads}.get(name)
        return halves(w, heads) if heads else w

    kinds = given("tokenizer.ggml.token_type", [])
    if not isinstance(kinds, list) or len(kinds) not in (0, len(tokens)):
        raise InputError("model", path, "lacks the kind of some token; download it again")
    pairs = zip(tokens, kinds, strict=False)
    encode = bpe(
        path,
        kind=str(given("tokenizer.ggml.model")),
        pre=str(given("tokenizer.ggml.pre", "default")),
        tokens=tokens,
        merges=_strings(given, "tokenizer.ggml.merges", []),
        whole=[token for token, kind in pairs if kind in _MATCHED_WHOLE and token],
    )
    words = given("general.basename", ""), given("general.size_label", "")
    name = " ".join(map(str, words)) if all(words) else given("general.name", path.stem)
    return Checkpoint(path, (path,), printable(str(name), 100), config, weights, encode)
