"""A model's configuration as rows of the theory: one record for each kind of its layers.

`sources` reads the file and fills in what the family's class does; `families` says what its code
does with scores. What is not read, or not known, is named, never passed over.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from sparsity.attention.families import Family, Model
from sparsity.attention.fields import LISTS, Fields
from sparsity.errors import InputError
from sparsity.rows import rope_scaling
from sparsity.rows.row import Row
from sparsity.rows.steps import (
    Alibi,
    Chunk,
    FloorLog,
    LogLength,
    LongRope,
    QKNorm,
    SoftCap,
    Window,
    Yarn,
)
from sparsity.rows.tokens import Step

RULES = ("default", "linear", "dynamic", "yarn", "llama3", "longrope")  # for long contexts
MAX_KINDS = 64  # of layers: a law each, and a line of the table
# Names of layers that have weights of a row, and what they are here; others have none.
_FULL = ("full_attention", "attention", "global", "hybrid", "indexed_attention")
_ATTENDING = {
    **dict.fromkeys(_FULL, "full attention"),
    **dict.fromkeys(("sliding_attention", "local"), "sliding attention"),
    "chunked_attention": "chunked attention",
}

# What is said of a model of which no law is given.
_SAID = (
    *("num_hidden_layers", "num_attention_heads", "hidden_size", "head_dim"),
    *("max_position_embeddings", "sliding_window", "rope_theta"),
)


@dataclass(frozen=True)
class Rotation:
    """How a layer turns queries and keys.

    Args:
        base: of the angles.
        turned: entries of a head that turn.
        scaling: the rule for long contexts, or None.
        table: whether the file has a factor for every angle, as LongRoPE does.
    """

    base: float
    turned: int
    scaling: rope_scaling.RopeScaling | None = None
    table: bool = False


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
        lawless: why no law of the row is given; empty where one is.
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
    lawless: str = ""

    @property
    def has_law(self) -> bool:
        """Whether there is a row, and a law of it."""
        return self.softmax and not self.lawless

    @property
    def unit_gamma(self) -> float | None:
        """γ of scores under QK-norm with all gains 1, c·√d; None without QK-norm.

        The norm of a normalised head is √d. Llama 4 and others have no gains.
        """
        return self.scale * self.head_dim**0.5 if self.qk_norm else None

    @property
    def temperature(self) -> float:
        """The factor of the steps that are one whatever the length: a measured γ contains it."""
        constant = (step for step in self.steps if isinstance(step, (Yarn, LongRope)))
        return math.prod(step.factor(1) for step in constant)

    def row(self, gamma: float) -> Row:
        """Return the row of one query, for scores of spread γ before temperature, cap and window.

        They are Gaussian, or those of keys on a sphere; of an indexer's row always Gaussian.

        Raises:
            InputError: layers without attention weights or without a law, or a γ that is not > 0.
        """
        if not self.has_law:
            raise InputError("layer", self.title, f"has no law: {self.lawless or 'no weights'}")
        if self.top_k is not None:
            return Row(f"topk:{self.top_k}", gamma=gamma * self.temperature)
        scores = QKNorm(self.head_dim) if self.sphere else None
        return Row("exp", gamma=gamma, steps=self.steps, scores=scores)


def kinds_of(model: Model) -> tuple[LayerKind, ...]:
    """Return the kinds of layers of a model that was read, those with the most layers first.

    Raises:
        InputError: a field that is missing or out of its range, or too many kinds.
    """
    fields, family = model.fields, model.family
    types = model.layer_types
    if not (model.lawless or any(kind in _ATTENDING for kind in types)):
        title = "no attention weights"
        return (LayerKind(title, tuple(range(len(types))), 0, math.nan, softmax=False),)
    # Fields are read on the way, so that what was not read is known only behind this loop.
    layers: dict[LayerKind, list[int]] = {}
    for layer, kind in enumerate(types):
        named = _name_layer(model, kind) if model.lawless else None
        layers.setdefault(named or _read_layer(fields, family, layer, kind), []).append(layer)
        if len(layers) > MAX_KINDS:
            raise InputError("config", model.type, f"has more than {MAX_KINDS} kinds of layer")
    notes = _notes(model)
    kinds = [
        replace(kind, layers=tuple(numbers), notes=(*kind.notes, *notes))
        for kind, numbers in layers.items()
    ]
    return tuple(sorted(kinds, key=lambda x: (not x.softmax, -len(x.layers))))


def _notes(model: Model) -> list[str]:
    """Return what is said of every layer."""
    fields, family = model.fields, model.family
    said = {name: fields.get(name) for name in _SAID} if model.lawless else {}
    read = ", ".join(f"{name} = {value:g}" for name, value in said.items() if value is not None)
    notes = [*([f"read: {read}"] if read else []), *model.notes]
    if family.norm == "joint":
        notes.append("QK-norm is not of each head alone: its scores are taken for Gaussian")
    if family.types and (limit := fields.get("clip_qkv")):
        notes.append(f"queries and keys are clipped to ±{limit:g}: not in the row")
    if family.note:
        notes.append(family.note)
    fields.read.update(family.ignored.split())
    if unread := fields.unread():
        notes.append(f"not read: {unread}")
    return notes


def _name_layer(model: Model, kind: str) -> LayerKind:
    """Return the kind of a layer of which no law can be given, by the name of its type."""
    listed = any(map(model.fields.get, LISTS))
    title = kind.replace("_", " ") if listed else "layers of a kind that is not known"
    head_dim = model.fields.get("head_dim", 0)
    return LayerKind(title, (), head_dim, math.nan, lawless=model.lawless)


def _read_head_dim(fields: Fields) -> int:
    """Return the entries that one score is a product of; of latent attention both of its parts."""
    parts = [fields.get(name) for name in ("qk_nope_head_dim", "qk_rope_head_dim")]
    if all(parts):
        return sum(parts)
    given = fields.get("attention_head_dim") or fields.get("head_dim")
    return given or max(1, fields.need("hidden_size") // fields.need("num_attention_heads"))


def _read_layer(fields: Fields, family: Family, layer: int, kind: str) -> LayerKind:
    """Return the kind of one layer, without the numbers of its layers.

    Steps are in the order in which models apply them: position bias, temperature, cap, then what is
    seen.
    """
    if kind not in _ATTENDING:
        title = f"{kind.replace('_', ' ')}: no weights of a row"
        return LayerKind(title, (), 0, math.nan, softmax=False)
    head_dim = _read_head_dim(fields)
    scale = family.scale(fields, head_dim, layer)
    words, notes = [_ATTENDING[kind]], []
    window = fields.get("sliding_window") or fields.get("window_size")
    slides = words[0].startswith("sliding") or bool(family.sliding == "all" and window)
    words[0] = "sliding attention" if slides else words[0]
    turns = _turns(fields, family, layer, slides, window)
    rope = _rope_fields(fields, kind)
    rotation, steps = None, list[Step]()
    context = fields.get("max_position_embeddings")
    rotates = family.positions.startswith("RoPE")
    if family.positions.endswith("ALiBi") and fields.get("alibi", not rotates):
        steps.append(_alibi(fields, family, scale, notes))
        words.append("ALiBi")
    else:
        rotation = _read_rotation(fields, family, rope, head_dim, context) if turns else None
        words += [] if rotation else ["no RoPE" if rotates else family.positions.split(" or ")[0]]
    norm = bool(family.norm) and (not family.norm_if or fields.get(family.norm_if) is True)
    norm = norm and (turns or family.tuned != "llama4")  # Llama 4 normalises what it turns
    if rotation is not None and not (norm and family.norm == "turned heads"):
        steps += _read_temperature(rope, context, family.latent)
        if rotation.turned < head_dim and _read_temperature(rope, context, on_scale=False):
            notes.append("RoPE's temperature is of the entries that turn: the row has it of all")
    if rotation is not None and rotation.table:
        notes.append("RoPE's angles have a table of factors, which is not read")
    steps += _growing(fields, family, rope, turns)
    near = fields.get("use_bidirectional_attention") is True  # the window has its own token
    both = family.both and not fields.get("is_decoder")
    both = both or near or (fields.get("is_causal") is False and kind != "chunked_attention")
    words += ["in both directions"] if both else []
    if family.cap and (cap := fields.get(family.cap)):
        steps.append(SoftCap(cap))
        words.append(f"soft cap {cap:g}")
    if slides:
        if not window:
            raise InputError("sliding_window", None, "config has no sliding_window")
        reach = window - near if both else 0
        steps.append(Window.symmetric(reach) if reach else Window(window))
        words.append(f"window ±{reach}" if reach else f"window {window}")
    if kind == "chunked_attention":
        steps.append(Chunk(fields.need("attention_chunk_size")))
        words.append(f"chunks of {fields.need('attention_chunk_size')}")
    if family.sinks == "all" or (family.sinks == "windows" and slides):
        notes.append("learned sink logits by head are in the weights: add SinkLogit(b) of a head")
    if top_k := fields.get("index_topk"):
        words.append(f"top {top_k} of an indexer")
        notes.append("the row takes the indexer's order for that of the scores")
    return LayerKind(
        ", ".join(words), (), head_dim, scale, tuple(steps), rotation, norm, top_k, tuple(notes),
        sphere=norm and family.norm != "joint",
    )  # fmt: skip


def _turns(fields: Fields, family: Family, layer: int, slides: bool, window: int | None) -> bool:
    """Return whether RoPE turns a layer."""
    turning = fields.get("no_rope_layers")  # 1 for those that turn
    if not family.positions.startswith("RoPE"):
        return False
    if turning and layer < len(turning) and not turning[layer]:
        return False
    if family.turning == "windows":
        return slides or not window
    return family.turning == "all" or fields.get(family.turning) in (True, "rope")


def _rope_fields(fields: Fields, kind: str) -> Fields:
    """Return RoPE's settings of a kind of layer: its own, or those of all."""
    of_all = fields.get("rope_parameters", {})
    by_kind = not {*of_all}.isdisjoint(fields.get("layer_types", ()))
    return replace(fields, values=(of_all.get(kind) or {}) if by_kind else of_all)


def _read_rotation(
    fields: Fields, family: Family, rope: Fields, head_dim: int, context: int | None
) -> Rotation | None:
    """Return RoPE of a layer that turns; None where there is no base."""
    base = rope.get("rope_theta", family.base)
    if base is None:
        return None
    part = fields.get("qk_rope_head_dim") or fields.get("rotary_dim")
    table = _rule(rope) == "longrope" or fields.get("rope_freqs", False)
    size = fields.values.get("head_dim") or head_dim  # RoPE has it where attention does not
    turned = min(part or int(size * rope.get("partial_rotary_factor", 1.0)), head_dim)
    if turned % 2:
        raise InputError("rotary_dim", turned, "must be even: RoPE turns pairs of entries")
    return Rotation(base, turned, _read_scaling(rope, context), table)


def _rule(rope: Fields) -> str:
    """Return the name of the rule for long contexts.

    Raises:
        InputError: a rule that is not known.
    """
    name = rope.get("rope_type") or rope.get("type") or "default"
    if name not in RULES:
        raise InputError("rope_type", name, f"is not known; the rules are {', '.join(RULES)}")
    return name


def _read_scaling(rope: Fields, context: int | None) -> rope_scaling.RopeScaling | None:
    """Return the rule for the angles; None where they stay, or stand in a table of their own.

    Args:
        rope: the settings, under the names of Hugging Face's `rope_parameters`.
        context: the longest row that the model takes, if it says so.

    Raises:
        InputError: a setting that the rule needs is missing.
    """
    name = _rule(rope)
    if name in ("default", "longrope"):
        return None
    # The defaults below are those of the library, for configurations that leave them out.
    trained = rope.get("original_max_position_embeddings", context)
    if name == "linear":
        return rope_scaling.LinearScaling(rope.need("factor"))
    if trained is None:
        raise InputError("max_position_embeddings", None, f"the rule {name} needs it")
    factor = rope.get("factor") or (context or trained) / trained
    if name == "dynamic" and (alpha := rope.get("alpha")):  # Hunyuan's
        return rope_scaling.NtkScaling(alpha)
    if name == "dynamic":
        return rope_scaling.DynamicNtkScaling(factor, trained)
    if name == "llama3":
        low, high = rope.get("low_freq_factor", 1.0), rope.get("high_freq_factor", 4.0)
        return rope_scaling.Llama3Scaling(factor, trained, low, high)
    fast, slow = rope.get("beta_fast", 32.0), rope.get("beta_slow", 1.0)
    return rope_scaling.YarnScaling(factor, trained, fast, slow, rope.get("truncate", True))


def _read_temperature(rope: Fields, context: int | None, on_scale: bool) -> list[Step]:
    """Return the steps that the rule's factors on q, on k and on the scale make of scores.

    Args:
        rope: the settings.
        context: the longest row that the model takes, if it says so.
        on_scale: whether the family multiplies the scale by m(mscale_all_dim)² as well, as
            DeepSeek's models do.
    """
    name = _rule(rope)
    if name == "default" or not (on_scale or name in ("yarn", "longrope")):
        return []
    trained = rope.get("original_max_position_embeddings", context)
    factor = rope.get("factor") or (max(1.0, context / trained) if context and trained else 1.0)
    given, every = rope.get("attention_factor"), rope.get("mscale_all_dim")
    steps, total = list[Step](), 1.0
    if name == "longrope" and given is None:
        steps += [LongRope(factor, trained)] if factor > 1 and trained and trained > 1 else []
    elif name == "yarn" and given is None:
        one = rope.get("mscale")
        total = _grown(factor, one) / _grown(factor, every) if one and every else _grown(factor)
    elif name in ("yarn", "longrope"):
        total = given
    if every and on_scale:
        total *= _grown(factor, every)
    if total < 1 or (factor == 1 and total > 1):
        raise InputError("attention_factor", total, "is known from 1 on, and 1 for a factor of 1")
    # Scores have the square of `total`. A `Yarn` step has (1 + c ln r)², of which c is found back;
    # where it is the usual one, rounding must not make 0.1 another number.
    slope = round((total - 1) / math.log(factor), 12) if total > 1 else 0.0
    return [*steps, Yarn(factor, slope)] if slope else steps


def _grown(factor: float, weight: float = 1.0) -> float:
    """Return m(weight) = 1 + 0.1·weight·ln r, YaRN's factor at r times the trained context."""
    return 1.0 + 0.1 * weight * math.log(factor)


def _growing(fields: Fields, family: Family, rope: Fields, turns: bool) -> list[Step]:
    """Return the temperatures that grow with the length."""
    if family.tuned == "llama4":
        on = fields.get("attn_temperature_tuning") and not turns
        scale, floor = fields.get("attn_scale", 0.1), fields.get("floor_scale", 8192)
        return [FloorLog(scale, floor)] if on else []
    if family.tuned == "ministral":
        slope = rope.get("llama_4_scaling_beta")
        return [FloorLog(slope, rope.need("original_max_position_embeddings"), 0)] if slope else []
    if family.tuned and fields.get("use_logn_attn"):
        return [LogLength(fields.need(family.tuned))]
    return []


def _alibi(fields: Fields, family: Family, scale: float, notes: list[str]) -> Alibi:
    """Return the bias of a head in the middle, and say what those of the others are."""
    heads, most = fields.need("num_attention_heads"), fields.get("alibi_bias_max", 8.0)
    power = 2 ** int(math.log2(heads))
    rest = "" if power == heads else f" for h = 1 … {power}, then every second one of {2 * power}"
    times = " times the scale" if family.positions == "RoPE or ALiBi" else ""
    notes.append(
        f"ALiBi: slopes 2^(−{most:g}h/{power}){rest}{times}; the row has that of h = {power // 2}"
    )
    return Alibi(2.0 ** (-most / 2) * (scale if times else 1.0))
