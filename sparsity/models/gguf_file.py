"""Checkpoints as GGUF files, quantised ones too."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np

from sparsity.errors import InputError
from sparsity.models.checkpoint import (
    ELSE,
    LAYER,
    OUTER,
    Checkpoint,
    Config,
    Metadata,
    library,
    refusal,
    refuse_others,
)
from sparsity.models.tokens import bpe
from sparsity.rows import rotation

_NAMES = {
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


def halves(w: np.ndarray, heads: int) -> np.ndarray:
    """Rows of q or k with the planes of RoPE as (i, i + d/2): GGUF stores them side by side."""
    return w.reshape(heads, -1, 2, w.shape[-1]).swapaxes(1, 2).reshape(w.shape)


_GROUPS = 128  # of rows, where a tensor has more: 16 of them are unpacked in the cache
_WHOLE = (3, 4)  # llama.cpp's kinds of tokens: of control, and added by the user

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


def _config(given: Metadata, vocabulary: int, tensors: dict[str, Any], dequantize: Any) -> Config:
    def frequencies(head_dim: int) -> np.ndarray:
        for name in ("llama.rope.dimension_count", "llama.attention.value_length"):
            given.one_of(name, head_dim)
        theta = rotation.angles(head_dim, given.real("llama.rope.freq_base", rotation.BASE))
        stretch = tensors.get("rope_freqs.weight")  # for long contexts
        if stretch is None:
            return theta
        factors = np.asarray(dequantize(stretch))
        if factors.shape != theta.shape or not np.all(factors > 0):
            raise given.refuse("rope_freqs", factors.shape, "must be a number > 0 for each plane")
        return theta / factors

    given.one_of("llama.expert_count", 0)
    given.one_of("llama.rope.scaling.type", "none")
    return given.config(_SIZES, vocabulary, "output.weight" not in tensors, frequencies)


def _plain(gguf: Any, path: Path) -> Any:
    """A reader whose file is a plain array: of a memmap each of 250,000 cuts is dear."""

    class Plain(gguf.GGUFReader):
        def __setattr__(self, name: str, value: Any) -> None:
            own = value.view(np.ndarray) if isinstance(value, np.memmap) else value
            super().__setattr__(name, own)

    return Plain(path)


def _in_groups(data: np.ndarray) -> np.ndarray:
    """Rows of blocks joined: they are unpacked 16 at a time, which is too few of short ones."""
    joined = 1
    while data.ndim == 2 and len(data) % (2 * joined) == 0 and len(data) // joined > _GROUPS:
        joined *= 2
    return data.reshape(len(data) // joined, -1) if joined > 1 else data


def _opened(gguf: Any, path: Path) -> tuple[Metadata, dict[str, Any]]:
    """The metadata and the tensors, by name."""
    try:
        reader = _plain(gguf, path)

        def get(name: str) -> Any:
            found = reader.fields.get(name)
            return ... if found is None else found.contents()

        field = Metadata(path, get)
        architecture = field("general.architecture")
        tensors = {tensor.name: tensor for tensor in reader.tensors}
    except (OSError, ValueError, IndexError, KeyError, TypeError, OverflowError, struct.error) as e:
        if isinstance(e, InputError):
            raise
        raise refusal(path, e) from None
    if architecture != "llama":
        fix = f"is of the architecture {architecture}, not of the Llama family; {ELSE}"
        raise InputError("model", path, fix)
    return field, tensors


def load(path: Path) -> Checkpoint:
    """Open a GGUF file of the Llama family.

    Raises:
        InputError: cut short, of another architecture, or quantised in an unknown way.
    """
    gguf = library("gguf")
    field, tensors = _opened(gguf, path)

    def dequantize(tensor: Any) -> np.ndarray:
        try:
            found = gguf.quants.dequantize(_in_groups(tensor.data), tensor.tensor_type)
        except NotImplementedError:
            fix = f"is quantised as {tensor.tensor_type.name}, which cannot be read here"
            raise InputError("model", path, fix + "; give Q8_0, a K-quant or F16") from None
        return found.reshape(*tensor.data.shape[:-1], -1)

    tokens = field("tokenizer.ggml.tokens")
    if not isinstance(tokens, list) or not tokens or len(set(map(str, tokens))) < len(tokens):
        raise InputError("model", path, "has no tokens, or a token twice; download it again")
    config = _config(field, len(tokens), tensors, dequantize)
    blocks = [f"blk.{i}.{_NAMES[name]}.weight" for i in range(config.layers) for name in LAYER]
    outer = [f"{_NAMES[name]}.weight" for name in OUTER]
    refuse_others(path, tensors, [*blocks, *outer, "rope_freqs.weight"])

    def read(name: str, layer: int | None) -> np.ndarray | None:
        full = _NAMES[name] if layer is None else f"blk.{layer}.{_NAMES[name]}"
        tensor = tensors.get(f"{full}.weight")
        if tensor is None:
            return None
        w = dequantize(tensor)
        heads = {"q": config.heads, "k": config.kv_heads}.get(name)
        return halves(w, heads) if heads and w.shape == config.shape(name) else w

    kinds = field("tokenizer.ggml.token_type", [])
    if not isinstance(kinds, list) or len(kinds) not in (0, len(tokens)):
        raise InputError("model", path, "lacks the kind of some token; download it again")
    encode = bpe(
        path,
        kind=field("tokenizer.ggml.model"),
        pre=field("tokenizer.ggml.pre", "default"),
        tokens=tokens,
        merges=field("tokenizer.ggml.merges", []),
        whole=[
            token for token, kind in zip(tokens, kinds, strict=False) if kind in _WHOLE and token
        ],
    )
    words = field("general.basename", ""), field("general.size_label", "")
    name = " ".join(map(str, words)) if all(words) else field("general.name", path.stem)
    return Checkpoint(path, (path,), str(name), config, read, encode)
