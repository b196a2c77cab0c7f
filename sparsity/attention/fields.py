"""The fields of a configuration: one table of what each may hold, and a reader that trusts nothing.

A file is written by others. Of what stands in it, only the fields of `FIELDS` go on, each within
its domain; a field out of it is refused by its name. A field that changes the rows of attention and
is passed over in silence makes a wrong law: `Fields.unread` names those that nobody has read.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from sparsity.errors import InputError, printable

MAX_LAYERS = 4096  # the deepest published model has 1000
_MOST = 2**40  # of any size: beyond every context and width
_ROWS = 65536  # entries of a head, heads of a layer, entries of a list
_MOST_OF_NAME, _MOST_NAMED = 60, 200  # what is shown of a file's own names


@dataclass(frozen=True)
class Domain:
    """What a field may hold.

    Args:
        says: in words, after "must be".
        holds: whether a value is in it.
        kind: the type that it is read as.
    """

    says: str
    holds: Callable[[Any], bool]
    kind: Callable[[Any], Any]

    def read(self, name: str, value: Any) -> Any:
        """Return the value as its type.

        Raises:
            InputError: it is out of the domain.
        """
        if not self.holds(value):
            raise InputError(name, value, f"must be {self.says}")
        return self.kind(value)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _whole(low: int, high: int) -> Domain:
    def holds(x: Any) -> bool:
        return _is_number(x) and low <= x <= high and x == int(x)

    return Domain(f"a whole number from {low} to {high}", holds, int)


def _number(low: float, high: float = 1e30) -> Domain:
    def holds(x: Any) -> bool:
        return _is_number(x) and low <= x <= high

    # As it stands: classes tell 8 from 8.0.
    return Domain(f"a number from {low:g} to {high:g}", holds, lambda x: x)


def _list_of(says: str, holds: Callable[[Any], bool]) -> Domain:
    def every(x: Any) -> bool:
        return isinstance(x, (list, tuple)) and len(x) <= _ROWS and all(map(holds, x))

    return Domain(f"a list of {says}", every, list)


def _is_word(value: Any) -> bool:
    return isinstance(value, str) and len(value) <= 64 and value.isprintable()


_FLAG = Domain("true or false", lambda x: isinstance(x, bool), bool)
_WORD = Domain("a short word", _is_word, str)
_SWITCH = Domain("true, false or a word", lambda x: isinstance(x, bool) or _is_word(x), lambda x: x)
_LETTERS = Domain(
    "a letter for every layer",
    lambda x: isinstance(x, str) and len(x) <= MAX_LAYERS and x.isprintable(),
    str,
)
_WORDS = _list_of("short words", _is_word)
_TERMS = Domain("words", lambda x: _is_word(x) or _WORDS.holds(x), lambda x: x)
_WHOLES = _list_of("whole numbers", lambda x: _is_number(x) and 0 <= x <= _ROWS and x == int(x))
_NUMBERS = _list_of("numbers", lambda x: _is_number(x) and abs(x) <= 1e30)
_GROUPS = Domain("a mapping of fields", lambda x: isinstance(x, Mapping), dict)
_PATTERN = Domain(  # GPT-Neo's: [[["global", "local"], 6]]
    "a list of [kinds, times]",
    lambda x: (
        isinstance(x, (list, tuple))
        and len(x) <= MAX_LAYERS
        and all(isinstance(pair, (list, tuple)) and len(pair) == 2 for pair in x)
        and all(_WORDS.holds(kinds) and _whole(1, MAX_LAYERS).holds(n) for kinds, n in x)
        and sum(len(kinds) * n for kinds, n in x) <= MAX_LAYERS
    ),
    list,
)
# Names of every field that is read, or from which a class of transformers makes one that is.
_NAMES = {
    _whole(1, MAX_LAYERS): "num_hidden_layers n_layer n_layers num_layers full_attention_interval "
    "attn_layer_period sliding_window_pattern _sliding_window_pattern no_rope_layer_interval "
    "global_attn_every_n_layers prefix_dense_sliding_window_pattern",
    _whole(0, MAX_LAYERS): "max_window_layers attn_layer_offset num_kv_shared_layers "
    "first_k_dense_replace",
    _whole(1, _ROWS): "num_attention_heads n_head n_heads num_heads attention_heads "
    "num_key_value_heads head_dim "
    "attention_head_dim global_head_dim qk_nope_head_dim qk_rope_head_dim rotary_dim image_size "
    "patch_size q_lora_rank kv_lora_rank",
    _whole(1, _MOST): "hidden_size n_embd n_embed d_model dim max_position_embeddings n_positions "
    "seq_length max_seq_len model_max_length original_max_position_embeddings floor_scale "
    "index_topk",
    _whole(0, _MOST): "sliding_window sliding_window_size window_size local_attention "
    "attention_window_size attention_chunk_size",
    _number(1.0): "rope_theta rotary_emb_base rope_local_base_freq global_rope_theta "
    "local_rope_theta",
    _number(0.0, 1.0): "partial_rotary_factor rotary_pct",
    _number(1.0, 1e6): "factor",
    _number(1e-6, 1e6): "attention_factor low_freq_factor high_freq_factor beta_fast beta_slow "
    "query_pre_attn_scalar attention_multiplier key_multiplier softmax_scale attn_scale "
    "attn_logit_softcapping clip_qkv alibi_bias_max",
    _number(0.0, 1e6): "mscale mscale_all_dim llama_4_scaling_beta",
    _FLAG: "alibi use_qk_norm qk_norm qk_layernorm use_sliding_window attn_temperature_tuning "
    "use_logn_attn use_mem_rope use_long_context mla_use_nope scale_attn_weights "
    "scale_attn_by_inverse_layer_idx mla_scale_q_lora mla_scale_kv_lora truncate "
    "rope_freqs",
    _SWITCH: "use_bidirectional_attention",
    _LETTERS: "hybrid_override_pattern",
    _WORD: "rope_type type position_embedding_type model_type",
    _TERMS: "pos_att_type",
    _WORDS: "layer_types layers_block_type block_types attention_layers",
    _WHOLES: "no_rope_layers attn_layer_indices attn_type_list full_attn_idxs full_attn_layers "
    "kda_layers hybrid_layer_ids",
    _NUMBERS: "short_factor long_factor",
    _PATTERN: "attention_types",
    _GROUPS: "text_config rope_scaling rope_parameters attn_config linear_attn_config",
}
FIELDS = {name: domain for domain, names in _NAMES.items() for name in names.split()}
# Names under which older families give a size; the first is that of transformers.
_SAME = {
    "num_hidden_layers": ("n_layer", "n_layers", "num_layers"),
    "num_attention_heads": ("n_head", "n_heads", "num_heads", "attention_heads"),
    "hidden_size": ("n_embd", "n_embed", "d_model", "dim"),
    "max_position_embeddings": ("n_positions", "seq_length", "max_seq_len", "model_max_length"),
}
LISTS = ("layer_types", "layers_block_type", "attention_layers")  # that name every layer's type
LAYERS = ("num_hidden_layers", *_SAME["num_hidden_layers"])
# What a class makes other fields of, and no row is read from.
_MADE_OF = (
    "rope_scaling rope_theta rotary_emb_base rope_local_base_freq global_rope_theta "
    "local_rope_theta partial_rotary_factor rotary_pct full_attention_interval "
    "sliding_window_pattern _sliding_window_pattern no_rope_layer_interval hybrid_layer_ids "
    "global_attn_every_n_layers attn_layer_period attn_layer_offset attn_layer_indices "
    "full_attn_idxs full_attn_layers kda_layers block_types attention_types max_window_layers "
    "use_sliding_window local_attention original_max_position_embeddings "
    "hybrid_override_pattern prefix_dense_sliding_window_pattern first_k_dense_replace "
    "use_long_context n_embed"
)
FOR_CLASSES = frozenset(_MADE_OF.split())
# Fields whose names speak of attention and which change nothing of a row's law: sizes of other
# parts, dropout, biases, names of implementations.
_NO_CHANGE = re.compile(
    "dropout|bias$|^bias|eps$|^hidden_|intermediate|output_attentions|implementation|pdrop|"
    "key_value|kv_heads|kv_n_heads|v_head_dim|value_head|routed|topk_prob|topk_group|embed|"
    "residual|logits?_scal|mlp_|moe_|expert|vocab|feed_forward|initializer|cache|sparse_step|"
    "position_ids|final_logit|cross_attention|parallel_attn|altup|_alpha$|_beta$|upcast|attn_impl|"
    "attn_type$|attn_uses|prefix_lm|post_?norm|pre_?norm|norm_before|normalization_function|"
    "layer_?norm$|_norm_rank|num_hidden|mm_tokens|ssm_|mamba_|linear_|softmax_fusion|"
    "epsilon|value_length|lora_rank|head_count_kv|causal|finetuned|attention_out_|attention_in_|model_max|initial_context|interleave|num_attention|type_vocab|"
    "activation|mrope|rope_type|qk_head_dim|init_|value_scale|position_biased|share_att|norm_rel|max_relative|position_buckets"
)
_OF_ATTENTION = re.compile(
    "attn|attention|rope|rotary|window|softcap|scal|multiplier|norm|alibi|qk|sink|chunk|index_|"
    "position|logn|clip|sparse|temperature"
)


def checked(given: Mapping[Any, Any], strict: bool = True) -> dict[str, Any]:
    """Return the known fields that are there, each within its domain or null; of groups as well.

    RoPE's settings may stand by kind of layer: a group of groups. A null is more than a field that
    is left out: a window that is null is none, and one that is left out that of the class.

    Args:
        given: the fields.
        strict: whether a field out of its domain is refused; else it is left out.

    Raises:
        InputError: a field out of its domain.
    """
    values: dict[str, Any] = {}
    for name, domain in FIELDS.items():
        if name not in given:
            continue
        value = given[name]
        if value is None:
            values[name] = None
            continue
        if not (strict or domain.holds(value)):
            continue
        values[name] = domain.read(name, value)
        if domain is _GROUPS:
            kinds = {
                kind: None if group is None else checked(group, strict)
                for kind, group in value.items()
                if _is_word(kind) and kind.endswith("attention") and (
                    group is None or isinstance(group, Mapping))
            }  # fmt: skip
            values[name] = {**checked(value, strict), **kinds}
    return values


@dataclass(frozen=True)
class Fields:
    """The checked fields of a configuration, with a record of which were read.

    Args:
        values: as `checked` returns them, with what a class filled in.
        names: of all fields that the file has set.
        consumed: those that the class knows: what they say is in `values`.
    """

    values: Mapping[str, Any]
    names: tuple[str, ...] = ()
    consumed: frozenset[str] = frozenset()
    read: set[str] = field(default_factory=set)

    def get(self, name: str, default: Any = None) -> Any:
        """Return a field, the default where it is missing."""
        same = (name, *_SAME.get(name, ()))
        self.read.update(same)
        return next((x for x in map(self.values.get, same) if x is not None), default)

    def need(self, name: str) -> Any:
        """Return a field that must be there.

        Raises:
            InputError: it is missing.
        """
        value = self.get(name)
        if value is None:
            raise InputError(name, None, f"config has no {name}")
        return value

    def group(self, name: str) -> Fields:
        """Return the fields of a group, none where it is missing; what is read of them counts."""
        return Fields(self.get(name) or {}, read=self.read)

    def unread(self) -> list[str]:
        """Return the fields of the file that speak of attention and that nobody has read."""
        return [
            printable(name, _MOST_OF_NAME)
            for name in sorted({*self.names} - self.read - self.consumed)[:_MOST_NAMED]
            if _OF_ATTENTION.search(name) and not _NO_CHANGE.search(name)
        ]


def names_set(given: Mapping[Any, Any]) -> tuple[str, ...]:
    """Return the names of the fields that are set to more than null, false or nothing.

    Those of groups come with them: what changes scores may stand in `attn_config`.
    """
    names: list[str] = []
    for name, value in given.items():
        if not isinstance(name, str) or value is None or value is False or value == []:
            continue
        group = FIELDS.get(name) is _GROUPS or name.endswith("attention")
        if group and name != "text_config" and isinstance(value, Mapping):
            names += names_set(value)
        else:
            names.append(name)
    return tuple(names)
