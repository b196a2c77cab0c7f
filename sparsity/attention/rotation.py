"""How a layer turns queries and keys: RoPE's settings, and the temperature that comes with them."""

from __future__ import annotations

import math
from dataclasses import dataclass

from sparsity.attention.fields import Fields
from sparsity.errors import InputError
from sparsity.rows.rope_scaling import (
    DynamicNtkScaling,
    LinearScaling,
    Llama3Scaling,
    NtkScaling,
    RopeScaling,
    YarnScaling,
)
from sparsity.rows.steps import LongRope, Yarn
from sparsity.rows.tokens import Step

RULES = ("default", "linear", "dynamic", "yarn", "llama3", "longrope")


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
    scaling: RopeScaling | None = None
    table: bool = False


def rule(rope: Fields) -> str:
    """Return the name of the rule for long contexts.

    Raises:
        InputError: a rule that is not known.
    """
    name = rope.get("rope_type") or rope.get("type") or "default"
    if name not in RULES:
        raise InputError("rope_type", name, f"is not known; the rules are {', '.join(RULES)}")
    return name


def read_scaling(rope: Fields, context: int | None) -> RopeScaling | None:
    """Return the rule for the angles; None where they stay, or stand in a table of their own.

    Args:
        rope: the settings, under the names of Hugging Face's `rope_parameters`.
        context: the longest row that the model takes, if it says so.

    Raises:
        InputError: a setting that the rule needs is missing.
    """
    name = rule(rope)
    if name in ("default", "longrope"):
        return None
    # The defaults below are those of the library, for configurations that leave them out.
    trained = rope.get("original_max_position_embeddings", context)
    if name == "linear":
        return LinearScaling(rope.need("factor"))
    if trained is None:
        raise InputError("max_position_embeddings", None, f"the rule {name} needs it")
    factor = rope.get("factor") or (context or trained) / trained
    if name == "dynamic" and (alpha := rope.get("alpha")):  # Hunyuan's
        return NtkScaling(alpha)
    if name == "dynamic":
        return DynamicNtkScaling(factor, trained)
    if name == "llama3":
        low, high = rope.get("low_freq_factor", 1.0), rope.get("high_freq_factor", 4.0)
        return Llama3Scaling(factor, trained, low, high)
    fast, slow = rope.get("beta_fast", 32.0), rope.get("beta_slow", 1.0)
    return YarnScaling(factor, trained, fast, slow, rope.get("truncate", True))


def read_temperature(rope: Fields, context: int | None, on_scale: bool) -> list[Step]:
    """Return the steps that the rule's factors on q, on k and on the scale make of scores.

    Args:
        rope: the settings.
        context: the longest row that the model takes, if it says so.
        on_scale: whether the family multiplies the scale by m(mscale_all_dim)² as well, as
            DeepSeek's models do.
    """
    name = rule(rope)
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
