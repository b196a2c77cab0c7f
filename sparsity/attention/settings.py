"""What a model's settings say: the fields of its `config.json`, and its rule for RoPE's angles.

A field that changes the rows of attention and is passed over in silence makes a wrong law. So every
field whose name speaks of attention is either read, or in the list of those that change nothing, or
named in the notes of the result. `configuration` reads all of them for the theory's rows.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sparsity.errors import InputError
from sparsity.rows.rope_scaling import (
    DynamicNtkScaling,
    LinearScaling,
    Llama3Scaling,
    RopeScaling,
    YarnScaling,
)

# Names under which older families give the general fields.
_NAMES = {
    "layers": ("num_hidden_layers", "n_layer", "n_layers", "num_layers"),
    "heads": ("num_attention_heads", "n_head", "n_heads", "num_heads"),
    "width": ("hidden_size", "n_embd", "d_model"),
    "trained": ("max_position_embeddings", "n_positions", "seq_length", "max_seq_len"),
}
# Fields whose names speak of attention and which change nothing of a row's law: sizes of other
# parts, dropout, biases, names of implementations, and what is read under another name.
_NO_CHANGE = re.compile(
    "dropout|_bias$|^bias|eps|^hidden_|intermediate|output_attentions|implementation|pdrop|key_value|"
    "kv_heads|lora_rank|v_head_dim|routed|norm_topk|embedding|embd|residual|logits?_scal|mlp_|moe|"
    "expert|vocab|chunk_size_feed|initializer|use_cache|type_norm|norm_type|num_heads|n_heads?$|"
    "linear_|value_scale|position_ids|final_logit|head_mask|rope_interleave|cross_attention|clip_qkv"
    "|parallel_attn|n_positions|attention_types|altup|decoder_sparse|_attn_alpha|_attn_beta|scale_attn_weights|reorder_and_upcast|attn_impl|attn_type|attn_uses|prefix_lm|"
    "alibi_bias_max|max_window_layers|attention_probs|decoder_attention|deterministic_flash|"
    "sparse_pred|_pattern$|no_rope_layer_interval|query_pre|qk_head_dim|layer_norm|rms_norm|"
    "activation_sparsity|index_head_dim|index_n_heads|original_max|norm_bias|num_hidden|pre_layernorm"
)
_OF_ATTENTION = re.compile(
    "attn|attention|rope|rotary|window|softcap|scal|multiplier|norm|alibi|qk|sink|chunk|index_|"
    "position|logn|clip|sparse"
)


@dataclass(frozen=True)
class ConfigFields:
    """The fields of a configuration, with a record of which were read."""

    given: Mapping[str, Any]
    read: set[str] = field(default_factory=set)

    def get(self, name: str, default: Any = None) -> Any:
        """Return a field, the default where it is missing or null."""
        self.read.add(name)
        value = self.given.get(name)
        return default if value is None else value

    def number(self, name: str, default: float | None = None) -> float:
        """Return a field that must be a number > 0.

        Raises:
            InputError: it is missing, or something else.
        """
        value = self.get(name, default)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not value > 0:
            raise InputError("config", f"{name} = {value}", "must be a number > 0")
        return float(value)

    def size(self, key: str, default: int | None = None) -> int:
        """Return a general size by its key in `_NAMES`, under the first of its names that is set.

        All of its names count as read: a file may give the same size under two.

        Raises:
            InputError: it is missing, or no whole number > 0.
        """
        names = _NAMES[key]
        name = next((x for x in names if self.given.get(x) is not None), names[0])
        value = self.number(name, default)
        if value != int(value):
            raise InputError("config", f"{name} = {value}", "must be a whole number")
        self.read.update(names)
        return int(value)

    def unread(self) -> list[str]:
        """Return the fields that speak of attention, are set, and were not read."""
        left = []
        for name, value in self.given.items():
            idle = value is None or value is False or value in ({}, [])
            speaks = _OF_ATTENTION.search(name) and not _NO_CHANGE.search(name)
            if speaks and not idle and name not in self.read:
                left.append(name)
        return sorted(left)


RULES = ("default", "linear", "dynamic", "yarn", "llama3")


@dataclass(frozen=True)
class Rotation:
    """How a layer turns queries and keys.

    Args:
        base: of the angles.
        turned: entries of a head that turn.
        scaling: the rule for long contexts, or None.
    """

    base: float
    turned: int
    scaling: RopeScaling | None = None


def scaling_rule(name: str, rope: Mapping[str, Any], trained: int) -> RopeScaling | None:
    """Return the rule for the angles, by the names of Hugging Face's `rope_parameters`.

    Args:
        name: one of `RULES`.
        rope: the settings; `factor` of every rule but the default.
        trained: the trained length L of the rules that know one.

    Raises:
        InputError: a number outside its domain.
    """
    if name == "default":
        return None
    # The defaults below are those of the library, for configurations that leave them out.
    factor = rope["factor"]
    if name == "linear":
        return LinearScaling(factor)
    if name == "dynamic":
        return DynamicNtkScaling(factor, trained)
    if name == "llama3":
        low, high = (rope.get(f"{x}_freq_factor") for x in ("low", "high"))
        return Llama3Scaling(factor, trained, low or 1.0, high or 4.0)
    fast, slow = rope.get("beta_fast") or 32.0, rope.get("beta_slow") or 1.0
    return YarnScaling(factor, trained, fast, slow, rope.get("truncate", True))


def grown(factor: float, weight: float = 1.0) -> float:
    """Return m(weight) = 1 + 0.1·weight·ln r, YaRN's factor at r times the trained context."""
    return 1.0 + 0.1 * weight * math.log(max(factor, 1.0))


def yarn_amplitude(rope: Mapping[str, Any], factor: float) -> float:
    """Return what YaRN multiplies turned queries and keys by; scores have its square.

    It is `attention_factor` where that is given; or m(mscale)/m(mscale_all_dim); or m(1).
    """
    if (given := rope.get("attention_factor")) is not None:
        return float(given)
    one, every = rope.get("mscale"), rope.get("mscale_all_dim")
    return grown(factor, one) / grown(factor, every) if one and every else grown(factor)
