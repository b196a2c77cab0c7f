"""What a model's settings say of RoPE: the rule for its angles, and the factor on what it turns.

`configuration` reads them for the theory's rows, `checkpoints` for a forward pass.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from sparsity.rows.rope_scaling import (
    DynamicNtkScaling,
    LinearScaling,
    Llama3Scaling,
    RopeScaling,
    YarnScaling,
)
from sparsity.rows.rotation import angles

RULES = ("default", "linear", "dynamic", "yarn", "llama3")


@dataclass(frozen=True)
class Rotation:
    """How a layer turns queries and keys.

    Args:
        base: of the angles.
        turned: entries of a head that turn.
        scaling: the rule for long contexts, or None.
        amplitude: what turned queries and keys are multiplied by, each of them: YaRN's factor.
    """

    base: float
    turned: int
    scaling: RopeScaling | None = None
    amplitude: float = 1.0

    def angles(self, length: int) -> np.ndarray:
        """Return θ_i of the planes that turn in a text of that length, [turned/2]."""
        if self.scaling is None:
            return angles(self.turned, self.base)
        return self.scaling.angles(self.turned, self.base, length)


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
