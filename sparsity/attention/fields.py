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
_MOST_OF_NAME, _MOST_NAMED = 60, 20  # what is shown of a file's own names


@dataclass(frozen=True)
class Domain:
    """What a field may hold.

    Args:
        says: in words, after "must be".
        holds: whether a value is in it.
        whole: whether it is read as an integer; else as it stands, as classes tell 8 from 8.0.
    """

    says: str
    holds: Callable[[Any], bool]
    whole: bool = False

    def read(self, name: str, value: Any) -> Any:
        """Return the value.

        Raises:
            InputError: it is out of the domain.
        """
        if not self.holds(value):
            raise InputError(name, value, f"must be {self.says}")
        return int(value) if self.whole else value


def _is_number(value: Any, low: float, high: float) -> bool:
    real = isinstance(value, (int, float)) and not isinstance(value, bool)
    return real and low <= value <= high


def _is_whole(value: Any, low: int, high: int) -> bool:
    return _is_number(value, low, high) and value == int(value)


def _is_word(value: Any, most: int = 64) -> bool:
    return isinstance(value, str) and len(value) <= most and value.isprintable()


def _is_list(value: Any, holds: Callable[[Any], bool]) -> bool:
    return isinstance(value, (list, tuple)) and len(value) <= _ROWS and all(map(holds, value))


def _is_pattern(value: Any) -> bool:
    """Whether a value is GPT-Neo's way of naming layers: [[["global", "local"], 6]]."""
    try:
        named = all(_is_list(kinds, _is_word) and times > 0 for kinds, times in value)
        return named and sum(max(1, len(kinds)) * times for kinds, times in value) <= MAX_LAYERS
    except (TypeError, ValueError):
        return False


def _whole(low: int, high: int) -> Domain:
    return Domain(f"a whole number from {low} to {high}", lambda x: _is_whole(x, low, high), True)


def _number(low: float, high: float = 1e30) -> Domain:
    return Domain(f"a number from {low:g} to {high:g}", lambda x: _is_number(x, low, high))


_FLAG = Domain("true or false", lambda x: isinstance(x, bool))
_WORD = Domain("a short word", _is_word)
_SWITCH = Domain("true, false or a word", lambda x: isinstance(x, bool) or _is_word(x))
_LETTERS = Domain("a letter for every layer", lambda x: _is_word(x, MAX_LAYERS))
_WORDS = Domain("a list of short words", lambda x: _is_list(x, _is_word))
_TERMS = Domain("words", lambda x: _is_word(x) or _WORDS.holds(x))
_WHOLES = Domain("a list of numbers", lambda x: _is_list(x, lambda y: _is_whole(y, 0, _ROWS)))
_NUMBERS = Domain("a list of numbers", lambda x: _is_list(x, lambda y: _is_number(y, -1e9, 1e9)))
_PATTERN = Domain("a list of [kinds, times]", _is_pattern)
_GROUPS = Domain("a mapping of fields", lambda x: isinstance(x, Mapping))
# Names of every field that is read; those with a star by a class alone, which makes others of them.
_NAMES = {
    _whole(1, MAX_LAYERS): "num_hidden_layers n_layer n_layers num_layers *full_attention_interval "
    "*attn_layer_period *sliding_window_pattern *_sliding_window_pattern *no_rope_layer_interval "
    "*global_attn_every_n_layers *prefix_dense_sliding_window_pattern",
    _whole(0, MAX_LAYERS): "*max_window_layers *attn_layer_offset *first_k_dense_replace "
    "num_kv_shared_layers",
    _whole(1, _ROWS): "num_attention_heads n_head n_heads num_heads attention_heads head_dim "
    "attention_head_dim num_key_value_heads qk_nope_head_dim qk_rope_head_dim *rotary_dim "
    "q_lora_rank kv_lora_rank image_size patch_size",
    _whole(1, _MOST): "hidden_size n_embd *n_embed d_model dim max_position_embeddings n_positions "
    "seq_length max_seq_len model_max_length *original_max_position_embeddings floor_scale "
    "index_topk",
    _whole(0, _MOST): "sliding_window *sliding_window_size window_size *local_attention "
    "attention_window_size attention_chunk_size",
    _number(1.0): "*rope_theta *rotary_emb_base *rope_local_base_freq *global_rope_theta "
    "*local_rope_theta",
    _number(0.0, 1.0): "*partial_rotary_factor *rotary_pct",
    _number(1.0, 1e6): "factor",
    _number(1e-6, 1e6): "attention_factor low_freq_factor high_freq_factor beta_fast beta_slow "
    "query_pre_attn_scalar attention_multiplier key_multiplier softmax_scale attn_scale "
    "attn_logit_softcapping clip_qkv alibi_bias_max alpha",
    _number(0.0, 1e6): "mscale mscale_all_dim llama_4_scaling_beta",
    _FLAG: "alibi use_qk_norm qk_norm qk_layernorm *use_sliding_window attn_temperature_tuning "
    "use_logn_attn use_mem_rope *use_long_context scale_attn_weights truncate rope_freqs "
    "scale_attn_by_inverse_layer_idx is_causal is_decoder",
    _SWITCH: "use_bidirectional_attention",
    _LETTERS: "*hybrid_override_pattern",
    _WORD: "rope_type type position_embedding_type model_type",
    _TERMS: "pos_att_type",
    _WORDS: "layer_types layers_block_type attention_layers *block_types",
    _WHOLES: "no_rope_layers attn_type_list *attn_layer_indices *full_attn_idxs *full_attn_layers "
    "*kda_layers *hybrid_layer_ids",
    _NUMBERS: "short_factor long_factor",
    _PATTERN: "*attention_types",
    _GROUPS: "text_config *rope_scaling rope_parameters attn_config *linear_attn_config "
    "full_attention sliding_attention chunked_attention indexed_attention",  # RoPE of such layers
}
_STARRED = {name: domain for domain, names in _NAMES.items() for name in names.split()}
FIELDS = {name.removeprefix("*"): domain for name, domain in _STARRED.items()}
FOR_CLASSES = frozenset(name[1:] for name in _STARRED if name[0] == "*")
# Names under which older families give a size; the first is that of transformers.
_SAME = {
    "num_hidden_layers": ("n_layer", "n_layers", "num_layers"),
    "num_attention_heads": ("n_head", "n_heads", "num_heads", "attention_heads"),
    "hidden_size": ("n_embd", "n_embed", "d_model", "dim"),
    "max_position_embeddings": ("n_positions", "seq_length", "max_seq_len", "model_max_length"),
}
LISTS = ("layer_types", "layers_block_type", "attention_layers")  # that name every layer's type
LAYERS = ("num_hidden_layers", *_SAME["num_hidden_layers"])
# What code asks a configuration for, whether its class has it or not; sizes stand as they are.
ASKED = {"head_dim", "is_causal", *_SAME, *(x for same in _SAME.values() for x in same)}
# Fields whose names speak of attention and which change nothing of a row's law: sizes of other
# parts, dropout, biases, names of implementations.
_NO_CHANGE = re.compile(
    "dropout|bias$|^bias|eps$|^hidden_|intermediate|output_attentions|implementation|pdrop|"
    "key_value|kv_heads|kv_n_heads|v_head_dim|value_head|routed|topk_prob|topk_group|embed(?!ding_type)|"
    "residual|logits?_scal|mlp_|moe_|expert|vocab|feed_forward|initializer|cache|sparse_step|"
    "position_ids|final_logit|cross_attention|parallel_attn|altup|_alpha$|_beta$|upcast|attn_impl|"
    "attn_type$|attn_uses|prefix_lm|post_?norm|pre_?norm|norm_before|normalization_function|"
    "layer_?norm$|_norm_rank|num_hidden|mm_tokens|ssm_|mamba_|linear_|softmax_fusion|epsilon|"
    "value_length|lora_rank|head_count_kv|causal|finetuned|attention_out_|attention_in_|model_max|"
    "initial_context|interleave|num_attention|type_vocab|activation|mrope|rope_type|qk_head_dim|"
    "init_|value_scale|position_biased|share_att|norm_rel|max_relative|position_buckets"
)
_OF_ATTENTION = re.compile(
    "attn|attention|rope|rotary|window|softcap|scal|multiplier|norm|alibi|qk|sink|chunk|index_|"
    "position|logn|clip|sparse|temperature|pattern|hybrid|layer_types"
)


def checked(given: Mapping[Any, Any], strict: bool = True, depth: int = 3) -> dict[str, Any]:
    """Return the known fields that are there, each within its domain or null; of groups as well.

    A null is more than a field that is left out: a window that is null is none, and one that is
    left out that of the class.

    Args:
        given: the fields.
        strict: whether a field out of its domain is refused; else it is left out.
        depth: how deep groups stand in groups: a text part, RoPE's settings, by kind of layer.

    Raises:
        InputError: a field out of its domain.
    """
    values: dict[str, Any] = {}
    for name, value in given.items():
        domain = FIELDS.get(name) if isinstance(name, str) else None
        if domain is None or not (strict or value is None or domain.holds(value)):
            continue
        values[name] = None if value is None else domain.read(name, value)
        if domain is _GROUPS and value is not None:
            if not depth:
                raise InputError(name, "groups in groups", "are nested too deeply")
            values[name] = checked(value, strict, depth - 1)
    return values


@dataclass(frozen=True)
class Fields:
    """The checked fields of a configuration, with a record of which were read.

    Args:
        values: as `checked` returns them, with what a class filled in.
        names: of all fields that the file has set.
        consumed: those that the class knows: what they say is in `values`.
        passed: those that the family's code does not read, whatever its class knows.
    """

    values: Mapping[str, Any]
    names: tuple[str, ...] = ()
    consumed: frozenset[str] = frozenset()
    passed: frozenset[str] = frozenset()
    read: set[str] = field(default_factory=set)

    def get(self, name: str, default: Any = None) -> Any:
        """Return a field, the default where it is missing."""
        same = (name, *_SAME.get(name, ()))
        given = [x for x in same if self.values.get(x) is not None and x not in self.passed]
        self.read.update(given)
        return self.values[given[0]] if given else default

    def need(self, name: str) -> Any:
        """Return a field that must be there.

        Raises:
            InputError: it is missing.
        """
        value = self.get(name)
        if value is None:
            raise InputError(name, None, f"config has no {name}")
        return value

    def unread(self) -> str:
        """Return the fields of the file that speak of attention and that nobody has read."""
        left = [
            printable(name, _MOST_OF_NAME)
            for name in sorted({*self.names} - self.read - (self.consumed - self.passed))
            if name in self.passed or (_OF_ATTENTION.search(name) and not _NO_CHANGE.search(name))
        ]
        more = len(left) - _MOST_NAMED
        return ", ".join(left[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")


def names_set(given: Mapping[Any, Any]) -> tuple[str, ...]:
    """Return the names of the fields that are set to more than null, false or nothing.

    Only a model that is not causal says so by false. Those of groups come with them: what changes
    scores may stand in `attn_config`. All are as `checked` lets them pass.
    """
    names: list[str] = []
    for name, value in given.items():
        idle = name != "is_causal" and value in (None, False, [], "absolute")
        if idle or not isinstance(name, str):
            continue
        group = FIELDS.get(name) is _GROUPS and name != "text_config"
        names += names_set(value) if group and isinstance(value, Mapping) else [name]
    return tuple(names)
