"""Checkpoints as safetensors files, with config.json and tokenizer.json beside them."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np

from sparsity import rotary
from sparsity.errors import InputError
from sparsity.models.checkpoint import Checkpoint, Config, library, refusal
from sparsity.models.tokens import from_file

__all__ = ["load"]

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


def _stretched(theta: np.ndarray, scaling: dict[str, Any]) -> np.ndarray:
    """Llama 3's frequencies: slow planes by the factor slower, fast ones kept, ramp between."""
    turns = scaling["original_max_position_embeddings"] * theta / (2 * math.pi)
    low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
    keep = np.clip((turns - low) / (high - low), 0.0, 1.0)
    return theta * (keep + (1 - keep) / scaling["factor"])


def _config(path: Path) -> tuple[Config, str]:
    try:
        given = json.loads((path / "config.json").read_text("utf-8"))
        kind = given["model_type"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise refusal(path / "config.json", error) from None
    rope = given.get("rope_parameters") or given.get("rope_scaling") or {}
    rope_kind = rope.get("rope_type", rope.get("type", "default"))
    for name, value, plain in (
        ("model_type", kind, ("llama",)),
        ("hidden_act", given.get("hidden_act", "silu"), ("silu",)),
        ("attention_bias", given.get("attention_bias", False), (False,)),
        ("mlp_bias", given.get("mlp_bias", False), (False,)),
        ("rope_type", rope_kind, ("default", "llama3")),
    ):
        if value not in plain:
            fix = f"has {name} = {value}; only plain models of the Llama family are run"
            raise InputError("model", path, fix)
    try:
        heads, dim = given["num_attention_heads"], given["hidden_size"]
        head_dim = given.get("head_dim") or dim // heads
        base = rope.get("rope_theta", given.get("rope_theta", rotary.BASE))
        theta = rotary.angles(head_dim, base)
        config = Config(
            layers=given["num_hidden_layers"],
            heads=heads,
            kv_heads=given.get("num_key_value_heads") or heads,
            dim=dim,
            head_dim=head_dim,
            inner=given["intermediate_size"],
            vocabulary=given["vocab_size"],
            context=given["max_position_embeddings"],
            eps=given["rms_norm_eps"],
            frequencies=_stretched(theta, rope) if rope_kind == "llama3" else theta,
            bos=given.get("bos_token_id"),
        )
    except KeyError as error:
        fix = f"does not say {error.args[0]}; not a whole checkpoint"
        raise InputError("model", path / "config.json", fix) from None
    return config, str(given.get("_name_or_path") or path.name)


def load(path: Path) -> Checkpoint:
    """Open a safetensors file, or a folder of them.

    Raises:
        InputError: cut short, without its config.json or tokenizer.json, or of another kind.
    """
    safetensors = library("safetensors")
    home = path if path.is_dir() else path.parent
    config, name = _config(home)
    where: dict[str, Any] = {}
    files = sorted(path.glob("*.safetensors")) if path.is_dir() else [path]
    if not files:
        raise InputError("model", path, "holds no safetensors file; give the folder that does")
    for file in files:
        try:
            opened = safetensors.safe_open(file, framework="flax")
            where |= dict.fromkeys(opened.keys(), opened)
        except (OSError, safetensors.SafetensorError) as error:
            raise refusal(file, error) from None

    def read(name: str, layer: int | None) -> np.ndarray | None:
        full = _OUTER[name] if layer is None else f"model.layers.{layer}.{_LAYER[name]}"
        file = where.get(f"{full}.weight")
        if file is None:
            return None
        return np.asarray(file.get_tensor(f"{full}.weight").astype("float32"))

    return Checkpoint(path, name, config, read, from_file(home / "tokenizer.json"))
