"""Checkpoints as GGUF files, quantised ones too."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np

from sparsity import rotary
from sparsity.errors import InputError
from sparsity.models.checkpoint import Checkpoint, Config, library, refusal
from sparsity.models.tokens import bpe

__all__ = ["load"]

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


def _halves(w: np.ndarray, heads: int) -> np.ndarray:
    """Rows of q or k with the planes of RoPE as (i, i + d/2): GGUF stores them side by side."""
    return w.reshape(heads, -1, 2, w.shape[-1]).swapaxes(1, 2).reshape(w.shape)


class _Fields:
    """The metadata of a file."""

    def __init__(self, path: Path, fields: Any) -> None:
        self.path, self.fields = path, fields

    def __call__(self, name: str, default: Any = ...) -> Any:
        field = self.fields.get(name)
        if field is not None:
            return field.contents()
        if default is ...:
            raise InputError("model", self.path, f"does not say {name}; not a whole checkpoint")
        return default


def _config(path: Path, field: _Fields, tensors: dict[str, Any], dequantize: Any) -> Config:
    heads, dim = field("llama.attention.head_count"), field("llama.embedding_length")
    if not isinstance(heads, int):
        raise InputError("model", path, "has layers of different sizes; give a plain Llama")
    head_dim = field("llama.attention.key_length", dim // heads)
    for name, plain in (
        ("llama.expert_count", 0),
        ("llama.rope.scaling.type", "none"),
        ("llama.rope.dimension_count", head_dim),
    ):
        if field(name, plain) != plain:
            fix = f"has {name} = {field(name)}; only plain models of the Llama family are run"
            raise InputError("model", path, fix)
    frequencies = rotary.angles(head_dim, field("llama.rope.freq_base", rotary.BASE))
    if "rope_freqs.weight" in tensors:  # stretched for long contexts
        frequencies = frequencies / np.asarray(dequantize(tensors["rope_freqs.weight"]))
    return Config(
        layers=field("llama.block_count"),
        heads=heads,
        kv_heads=field("llama.attention.head_count_kv", heads),
        dim=dim,
        head_dim=head_dim,
        inner=field("llama.feed_forward_length"),
        vocabulary=len(field.fields["tokenizer.ggml.tokens"].data),
        context=field("llama.context_length"),
        eps=field("llama.attention.layer_norm_rms_epsilon"),
        frequencies=frequencies,
        bos=field("tokenizer.ggml.bos_token_id", None),
    )


def load(path: Path) -> Checkpoint:
    """Open a GGUF file of the Llama family.

    Raises:
        InputError: cut short, of another architecture, or quantised in an unknown way.
    """
    gguf = library("gguf")
    try:
        reader = gguf.GGUFReader(path)
        field = _Fields(path, reader.fields)
        architecture = field("general.architecture")
        tensors = {tensor.name: tensor for tensor in reader.tensors}
    except (OSError, ValueError, IndexError, KeyError, TypeError, OverflowError, struct.error) as e:
        if isinstance(e, InputError):
            raise
        raise refusal(path, e) from None
    if architecture != "llama":
        fix = f"is of the architecture {architecture}; give a model of the Llama family"
        raise InputError("model", path, fix)

    def dequantize(tensor: Any) -> np.ndarray:
        try:
            return gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        except NotImplementedError:
            fix = f"is quantised as {tensor.tensor_type.name}, which is not known here"
            raise InputError("model", path, fix + "; give Q8_0, a K-quant or F16") from None

    config = _config(path, field, tensors, dequantize)
    for name in tensors:
        if name.endswith(".bias"):
            raise InputError("model", path, f"has biases ({name}); give a plain Llama")

    def read(name: str, layer: int | None) -> np.ndarray | None:
        full = _NAMES[name] if layer is None else f"blk.{layer}.{_NAMES[name]}"
        tensor = tensors.get(f"{full}.weight")
        if tensor is None:
            return None
        w = dequantize(tensor)
        heads = {"q": config.heads, "k": config.kv_heads}.get(name)
        return _halves(w, heads) if heads and w.shape == config.shape(name) else w

    encode = bpe(
        path,
        kind=field("tokenizer.ggml.model"),
        pre=field("tokenizer.ggml.pre", "default"),
        tokens=field("tokenizer.ggml.tokens"),
        merges=field("tokenizer.ggml.merges", []),
    )
    words = field("general.basename", ""), field("general.size_label", "")
    name = " ".join(words) if all(words) else field("general.name", path.stem)
    return Checkpoint(path, name, config, read, encode)
