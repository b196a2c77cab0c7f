"""A model's configuration as rows of the theory: one record for each kind of its layers.

The general fields of Hugging Face's `config.json` say most of it: head dimension, windows by layer,
RoPE and its scaling, temperatures, soft caps. What a family does without saying so stands in the
tables below by its `model_type`. What is not read is named, never passed over.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sparsity.attention.settings import (
    RULES,
    ConfigFields,
    Rotation,
    grown,
    scaling_rule,
    yarn_amplitude,
)
from sparsity.errors import InputError
from sparsity.rows.rope_scaling import RopeScaling
from sparsity.rows.row import Row
from sparsity.rows.steps import Alibi, Chunk, FloorLog, LogLength, QKNorm, SoftCap, Window, Yarn
from sparsity.rows.tokens import Step

# Families that normalise queries and keys of every head, with learned gains, and do not say so.
_QK_NORM = {
    *("qwen3", "qwen3_moe", "qwen3_next", "gemma3", "gemma3_text", "gemma3n_text", "olmo2"),
    *("olmo3", "exaone4", "glm4_moe", "chameleon", "apertus", "minimax_m2"),
}
_JOINT_NORM = {"olmo2", "olmo3", "minimax_m2", "chameleon"}  # not every head by its own mean square
_LEARNED_SINKS = {"gpt_oss"}  # a sink logit for each head, in the weights and not here
_SINKS_IN_WINDOWS = {"mimo_v2_flash"}
_ENCODERS = {
    *("bert", "roberta", "xlm-roberta", "distilbert", "electra", "esm", "modernbert", "deberta"),
}
_UNSCALED = {"gpt_neo", "t5", "mt5"}  # q·k is not divided by √d
_ALIBI = {"bloom", "mpt"}
_TURN_IN_WINDOWS_ONLY = {"cohere2", "exaone4"}  # their full layers have no RoPE
_LEARNED_POSITIONS = {"gpt2", "opt", "gpt_neo", *_ENCODERS} - {"esm", "modernbert"}
_SQUARED_MSCALE = {  # `mscale_all_dim` multiplies the scale of the scores, squared
    *("deepseek_v2", "deepseek_v3", "deepseek_v32", "mistral4", "glm_moe_dsa", "minicpm3"),
}
_GENERAL = {  # families of which the general fields say all
    *("llama", "mistral", "mixtral", "qwen", "qwen2", "qwen2_moe", "gemma", "gemma2", "llama4"),
    *("llama4_text", "cohere", "phi", "phi3", "smollm3", "ministral3", "granite", "gpt_neox"),
    *("falcon", "glm", "glm4", "starcoder2", "minimax", "stablelm", "nemotron", "olmo"),
    "internlm2",
}
_FAMILIES = (
    *(*_GENERAL, *_QK_NORM, *_LEARNED_SINKS, *_SINKS_IN_WINDOWS, *_ENCODERS, *_UNSCALED, *_ALIBI),
    *(*_TURN_IN_WINDOWS_ONLY, *_LEARNED_POSITIONS, *_SQUARED_MSCALE),
)


@dataclass(frozen=True)
class LayerKind:
    """Layers of a model whose rows have one law.

    Args:
        title: what they are, in words.
        layers: their numbers.
        head_dim: d of a head.
        scale: what q·k is multiplied by.
        steps: of the row, in the model's order; scores N(0, γ²) before them.
        rotation: RoPE, or None.
        qk_norm: whether queries and keys are normalised.
        top_k: how many keys an indexer leaves, or None.
        notes: what the configuration does not say, or the row does not hold.
        softmax: whether there are attention weights at all.
        sphere: whether the keys of a head are normalised by themselves, and so lie on a sphere.
    """

    title: str
    layers: tuple[int, ...]
    head_dim: int
    scale: float
    steps: tuple[Step, ...] = ()
    rotation: Rotation | None = None
    qk_norm: bool = False
    top_k: int | None = None
    notes: tuple[str, ...] = ()
    softmax: bool = True
    sphere: bool = False

    @property
    def unit_gamma(self) -> float | None:
        """γ of scores under QK-norm with all gains 1, c·√d; None without QK-norm."""
        return self.scale * math.sqrt(self.head_dim) if self.qk_norm else None

    def row(self, gamma: float) -> Row:
        """Return the row of one query, for scores of spread γ before temperature, cap and window.

        They are Gaussian, or those of keys on a sphere; of an indexer's row always Gaussian.

        Raises:
            InputError: layers without attention weights, or a γ that is not > 0.
        """
        if not self.softmax:
            raise InputError("layer", self.title, "has no attention weights; ask another kind")
        if self.top_k is not None and not self.steps:
            return Row(f"topk:{self.top_k}", gamma=gamma)
        scores = QKNorm(self.head_dim) if self.sphere else None
        return Row("exp", gamma=gamma, steps=self.steps, scores=scores)


def layer_kinds(config: Mapping[str, Any]) -> tuple[LayerKind, ...]:
    """Return the kinds of layers of a model, those with the most layers first.

    Args:
        config: the fields of its `config.json`; of a model of several parts, its text part counts.

    Raises:
        InputError: a field that is missing or out of its range.
    """
    # Models of pictures and text hold the text part's fields in one of their own.
    inner = config.get("text_config")
    own = ConfigFields(inner if isinstance(inner, Mapping) else config)
    family = str(own.get("model_type", "unknown"))
    count, heads = own.size("layers"), own.size("heads")
    head_dim = _read_head_dim(own, heads)
    scale = _read_scale(own, family, head_dim)
    general: list[str] = []
    if family not in _FAMILIES:
        general.append(f"the family {family!r} is not known here: read by its general fields")
    qk_norm = family in _QK_NORM or bool(own.get("use_qk_norm") or own.get("qk_layernorm"))
    # Layers of equal laws are one kind. Fields are read on the way, so that what was not read is
    # known only behind this loop.
    found: dict[tuple[Any, ...], list[int]] = {}
    for layer, kind in enumerate(_layer_types(own, family, count)):
        found.setdefault(_read_law(own, family, layer, kind, head_dim, heads), []).append(layer)
    if left := own.unread():
        general.append(f"not read: {', '.join(left)}")
    kinds = []
    if qk_norm and family in _JOINT_NORM:
        general.append("QK-norm is not of each head alone: its scores are taken for Gaussian")
    for (title, steps, rotation, top_k, notes, softmax), layers in found.items():
        # Llama 4 normalises what it turns.
        turns = rotation is not None or not family.startswith("llama4")
        own_norm = qk_norm and softmax and turns
        sphere = own_norm and family not in _JOINT_NORM
        about = (rotation, own_norm, top_k, (*notes, *general), softmax, sphere)
        kinds.append(LayerKind(title, tuple(layers), head_dim, scale, steps, *about))
    return tuple(sorted(kinds, key=lambda each: (not each.softmax, -len(each.layers))))


def _read_head_dim(own: ConfigFields, heads: int) -> int:
    """Return the entries that one score is a product of; of latent attention both of its parts."""
    parts = [own.get(name) for name in ("qk_nope_head_dim", "qk_rope_head_dim")]
    if all(parts):
        return int(sum(parts))
    given = own.get("head_dim") or own.get("attention_head_dim")
    return int(given) if given else own.size("width") // heads


def _read_scale(own: ConfigFields, family: str, head_dim: int) -> float:
    """Return what q·k is multiplied by: 1/√d, unless the family or a field says otherwise."""
    if family in _UNSCALED:
        return 1.0
    if own.get("query_pre_attn_scalar"):
        return own.number("query_pre_attn_scalar") ** -0.5
    if family.startswith("granite"):
        return own.number("attention_multiplier", 1.0)
    inner = own.get("attn_config", {})
    if isinstance(inner, Mapping) and inner.get("softmax_scale"):
        return float(inner["softmax_scale"])
    return head_dim**-0.5


def _layer_types(own: ConfigFields, family: str, count: int) -> list[str]:
    """Return the type of every layer, as `layer_types` names them.

    Newer configurations list the types. Older ones give a rule, each family its own: every k-th
    layer is full, or layers from `max_window_layers` on slide, or `no_rope_layers` says which do
    not turn. The rules are asked for from the most to the least specific.
    """
    given = own.get("layer_types")
    if given is None and own.get("attention_layers") is not None:  # GPT-Neo
        names = {"global": "full_attention", "local": "sliding_attention"}
        given = [names.get(x, x) for x in own.get("attention_layers")]
    if given is not None:
        if not isinstance(given, (list, tuple)) or len(given) != count:
            raise InputError("config", "layer_types", f"must name all {count} layers")
        return [str(x) for x in given]
    window = own.get("sliding_window") or own.get("local_attention")
    every = own.get("sliding_window_pattern") or own.get("_sliding_window_pattern")
    if family == "gemma2" and not every:
        every = 2  # the even layers slide
    if window and isinstance(every, int) and every > 1:
        return ["sliding_attention" if (i + 1) % every else "full_attention" for i in range(count)]
    if own.get("attention_chunk_size"):
        turning = own.get("no_rope_layers") or [0 if (i + 1) % 4 == 0 else 1 for i in range(count)]
        return ["chunked_attention" if x else "full_attention" for x in turning]
    if window and own.get("use_sliding_window", True):
        first = own.get("max_window_layers", 0) if "use_sliding_window" in own.given else 0
        return ["sliding_attention" if i >= first else "full_attention" for i in range(count)]
    return ["full_attention"] * count


def _read_law(
    own: ConfigFields, family: str, layer: int, kind: str, head_dim: int, heads: int
) -> tuple[Any, ...]:
    """Return (title, steps, rotation, top-k, notes, softmax) of a layer.

    Steps are in the order in which models apply them: position bias, temperature, cap, then what is
    seen. The tuple is the key by which layers are of one kind.
    """
    if "attention" not in kind:
        return f"{kind.replace('_', ' ')}: no attention", (), None, None, (), False
    if kind.startswith("linear"):
        return "linear attention: no weights of a row", (), None, None, (), False
    words, notes = [kind.replace("_", " ")], []
    steps: list[Step] = []
    rotation, temperature = _read_rotation(own, family, layer, kind, head_dim)
    if family in _ALIBI or own.get("alibi"):
        rotation = None
        steps.append(Alibi(2.0**-4))
        notes.append(f"ALiBi: slopes 2^(−8h/{heads}) of heads h; the row has the middle one, 2^−4")
    if rotation is None and not steps:
        words.append("learned positions" if family in _LEARNED_POSITIONS else "no RoPE")
    steps += temperature
    if cap := own.get("attn_logit_softcapping") or own.get("attn_logit_softcap"):
        steps.append(SoftCap(cap))
        words.append(f"soft cap {cap:g}")
    if kind.startswith("sliding"):
        size = int(
            own.number("sliding_window", own.get("window_size") or own.get("local_attention"))
        )
        both = family in _ENCODERS  # half of the window on either side
        steps.append(Window.symmetric(size // 2) if both else Window(size))
        words.append(f"window {size}")
    if kind.startswith("chunked"):
        steps.append(Chunk(int(own.number("attention_chunk_size"))))
        words.append(f"chunks of {steps[-1].size}")  # type: ignore[attr-defined]
    in_windows = family in _SINKS_IN_WINDOWS and kind.startswith("sliding")
    if family in _LEARNED_SINKS or in_windows:
        notes.append("learned sink logits by head are in the weights: add SinkLogit(b) of a head")
    top_k = own.get("index_topk")
    if top_k:
        words.append(f"top {top_k} of an indexer")
        notes.append("the row takes the indexer's order for that of the scores")
    return ", ".join(words), tuple(steps), rotation, top_k, tuple(notes), True


def _read_rotation(
    own: ConfigFields, family: str, layer: int, kind: str, head_dim: int
) -> tuple[Rotation | None, list[Step]]:
    """Return RoPE of a layer, and the temperatures of its scores.

    Both stand in the same fields: some rules for long contexts scale the scores beside the angles.
    """
    rope = own.get("rope_parameters") or {}
    if isinstance(rope.get(kind), Mapping):
        rope = rope[kind]
    old = own.get("rope_scaling") or {}
    rope = {**(old if isinstance(old, Mapping) else {}), **rope}
    turning = own.get("no_rope_layers")
    still = bool(turning) and not turning[layer]
    if family in _TURN_IN_WINDOWS_ONLY and kind == "full_attention":
        still |= bool(own.get("sliding_window"))
    temperature: list[Step] = []
    if own.get("attn_temperature_tuning") and still:  # Llama 4: in the layers that do not turn
        temperature.append(
            FloorLog(own.number("attn_scale", 0.1), int(own.number("floor_scale", 8192)))
        )
    if slope := rope.get("llama_4_scaling_beta"):
        trained = rope.get("original_max_position_embeddings") or own.size("trained")
        temperature.append(FloorLog(slope, int(trained), 0))
    if own.get("use_logn_attn"):
        temperature.append(LogLength(own.size("trained")))
    base = rope.get("rope_theta") or own.get("rope_theta") or own.get("rotary_emb_base")
    local = own.get("rope_local_base_freq")
    # Gemma 3: windows turn by a base of their own.
    base = local if local and kind.startswith("sliding") else base
    if base is None or still:
        return None, temperature
    share = rope.get("partial_rotary_factor") or own.get("partial_rotary_factor")
    share = share or own.get("rotary_pct") or 1.0
    turned = own.get("qk_rope_head_dim") or 2 * int(head_dim * share / 2)
    scaling, extra = _read_scaling(own, family, rope)
    return Rotation(float(base), int(turned), scaling), [*extra, *temperature]


def _read_scaling(
    own: ConfigFields, family: str, rope: Mapping[str, Any]
) -> tuple[RopeScaling | None, list[Step]]:
    """Return the rule for the angles and the temperature that comes with it.

    Raises:
        InputError: a rule that is not known, by its name.
    """
    name = rope.get("rope_type") or rope.get("type") or "default"
    trained = rope.get("original_max_position_embeddings")
    trained = int(trained or own.get("original_max_position_embeddings") or own.size("trained"))
    factor = rope.get("factor") or own.size("trained") / trained
    name = "default" if name == "mrope" else name  # of pictures; a text's angles are plain
    if name not in RULES:
        fix = f"is not known; the rules are {', '.join(RULES)}"
        raise InputError("config", f"rope_type = {name}", fix)
    rule = scaling_rule(name, {**rope, "factor": factor}, trained)
    return rule, _yarn_temperature(family, rope, factor) if name == "yarn" else []


def _yarn_temperature(family: str, rope: Mapping[str, Any], factor: float) -> list[Step]:
    """Return the step that YaRN's factor on q and k, and DeepSeek's on the scale, make of scores.

    On the scale of some families stands m(mscale_all_dim)².
    """
    # One factor a is on q and on k: scores have a². A `Yarn` step has (1 + c ln r)², of which c is
    # found back; where it is the usual one, rounding must not make 0.1 another number.
    total, every = yarn_amplitude(rope, factor), rope.get("mscale_all_dim")
    if every and family in _SQUARED_MSCALE:
        total *= grown(factor, every)
    if factor <= 1 or total == 1:
        return []
    return [Yarn(factor, round((total - 1) / math.log(factor), 12))]  # 0.1, but for rounding
