"""Checkpoints as safetensors files, with config.json and tokenizer.json beside them."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np

from sparsity.errors import InputError
from sparsity.models.checkpoint import (
    LAYER,
    Checkpoint,
    Config,
    Metadata,
    library,
    refusal,
    refuse_others,
)
from sparsity.models.tokens import from_file
from sparsity.rows import rotation

_OUTER = {"embed": "model.embed_tokens", "norm": "model.norm", "head": "lm_head"}
_LAYER = {
    "attn_norm": "input_layernorm",
    "q": "self_attn.q_proj",
    "k": "self_attn.k_proj",
    "v": "self_attn.v_proj",
    "o": "self_attn.o_proj",
    "mlp_norm": "post_attention_layernorm",
    "gate": "mlp.gate_proj",
    "up": "mlp.up_proj",
    "down": "mlp.down_proj",
}


def stretched(theta: np.ndarray, scaling: dict[str, Any]) -> np.ndarray:
    """Llama 3's frequencies: slow planes by the factor slower, fast ones kept, ramp between."""
    turns = scaling["original_max_position_embeddings"] * theta / (2 * math.pi)
    low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
    keep = np.clip((turns - low) / (high - low), 0.0, 1.0)
    return theta * (keep + (1 - keep) / scaling["factor"])


_SIZES = {
    "layers": "num_hidden_layers",
    "heads": "num_attention_heads",
    "kv_heads": "num_key_value_heads",
    "dim": "hidden_size",
    "head_dim": "head_dim",
    "inner": "intermediate_size",
    "context": "max_position_embeddings",
    "eps": "rms_norm_eps",
    "bos": "bos_token_id",
}
_SCALING = ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings")
_TYPES = ("F64", "F32", "F16", "BF16")


def _metadata(path: Path, found: Any) -> Metadata:
    if not isinstance(found, dict):
        raise InputError("model", path, "does not have the structure expected; download it again")
    return Metadata(path, lambda name: found.get(name, ...))


def _config(path: Path) -> tuple[Config, str]:
    path /= "config.json"
    try:
        content = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise refusal(path, error) from None
    given = _metadata(path, content)
    given("model_type")
    given.one_of("model_type", "llama")
    given.one_of("hidden_act", "silu")
    for name in ("attention_bias", "mlp_bias"):
        given.one_of(name, False)
    given.one_of("quantization_config", None)
    rope = given("rope_parameters", None) or given("rope_scaling", None) or {}
    inner = _metadata(path, rope)
    for said in (given, inner):
        said.one_of("partial_rotary_factor", None, 1, 1.0)
    kind = inner("rope_type", inner("type", "default"))
    if kind not in ("default", "llama3"):
        raise inner.refuse("rope_type", kind, "only plain models of the Llama family are run")

    def frequencies(head_dim: int) -> np.ndarray:
        base = (inner if "rope_theta" in rope else given).real("rope_theta", rotation.BASE)
        theta = rotation.angles(head_dim, base)
        if kind == "default":
            return theta
        scaling = {name: inner.real(name) for name in _SCALING}
        low = inner.real("low_freq_factor")
        inner.real("high_freq_factor", least=low)
        return stretched(theta, scaling)

    vocabulary = given.whole("vocab_size")
    tied = given.one_of("tie_word_embeddings", False, True)
    config = given.config(_SIZES, vocabulary, tied, frequencies)
    return config, str(given("_name_or_path", None) or path.parent.name)


def load(path: Path) -> Checkpoint:
    """Open a safetensors file, or a folder of them.

    Raises:
        InputError: cut short, without its config.json or tokenizer.json, or of another kind.
    """
    safetensors = library("safetensors")
    home = path if path.is_dir() else path.parent
    files = sorted(path.glob("*.safetensors")) if path.is_dir() else [path]
    if not files:
        raise InputError("model", path, "has no safetensors file; give the folder that has it")
    config, name = _config(home)
    where: dict[str, Any] = {}
    for file in files:
        try:
            opened = safetensors.safe_open(file, framework="flax")
            types = {name: opened.get_slice(name).get_dtype() for name in opened.keys()}  # noqa: SIM118
        except (OSError, safetensors.SafetensorError) as error:
            raise refusal(file, error) from None
        for tensor, kind in types.items():
            if kind not in _TYPES:
                fix = f"stores {tensor} as {kind}; quantised weights are read from GGUF only"
                raise InputError("model", file, fix)
        where |= dict.fromkeys(types, opened)
    layers = [f"model.layers.{i}." for i in range(config.layers)]
    known = [f"{layer}{_LAYER[name]}.weight" for layer in layers for name in LAYER]
    known += [f"{name}.weight" for name in _OUTER.values()]
    known += [f"{layer}self_attn.rotary_emb.inv_freq" for layer in layers]  # of older files
    refuse_others(path, where, known)

    def read(name: str, layer: int | None) -> np.ndarray | None:
        full = _OUTER[name] if layer is None else f"model.layers.{layer}.{_LAYER[name]}"
        file = where.get(f"{full}.weight")
        if file is None:
            return None
        return np.asarray(file.get_tensor(f"{full}.weight").astype("float32"))

    beside = home / "config.json", home / "tokenizer.json"
    return Checkpoint(path, (*files, *beside), name, config, read, from_file(beside[1]))
