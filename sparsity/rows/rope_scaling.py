"""How RoPE's angles are changed for contexts beyond the trained one: θ_i of each published rule.

Every rule is a frozen record with `angles(dim, base, length)`: θ_i, [d/2], of a row of that length.
The temperature that some checkpoints add is a step of its own, `Temperature.yarn`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np

from sparsity.checks import check_number, check_whole, keep_checked
from sparsity.errors import InputError
from sparsity.rows.rope_planes import angles


class RopeScaling(Protocol):
    """A rule for the angles: frozen, hashable, validated where it is made.

    Attributes:
        by_length: whether the angles depend on the length of the row.
    """

    by_length: ClassVar[bool]

    def angles(self, dim: int, base: float, length: int) -> np.ndarray:
        """Return θ_i of the d/2 planes in a row of that length."""
        ...


@dataclass(frozen=True)
class _ByFactor:
    """The rules of one factor r."""

    by_length: ClassVar[bool] = False

    factor: float

    def __post_init__(self) -> None:
        fix = "give one number >= 1"
        keep_checked(self, "factor", check_number, fix, lambda x: x >= 1)


@dataclass(frozen=True)
class _ByTrainedLength(_ByFactor):
    """The rules that know the trained length L as well."""

    trained: int

    def __post_init__(self) -> None:
        super().__post_init__()
        keep_checked(self, "trained", check_whole, 1)


def _check_ramp(rule: Any, low: str, high: str) -> None:
    """Check the turns between which a rule goes from one angle to the other."""
    keep_checked(rule, low, check_number, "give one number > 0", lambda x: x > 0)
    least = getattr(rule, low)
    fix = f"give one number >= {low} = {least:g}"
    keep_checked(rule, high, check_number, fix, lambda x: x >= least)


@dataclass(frozen=True)
class LinearScaling(_ByFactor):
    """Position interpolation: θ_i/r, as if every distance were r times shorter.

    Args:
        factor: r ≥ 1, the context over the trained one.

    Source: Chen et al. (2023), arXiv:2306.15595.
    """

    def angles(self, dim: int, base: float, length: int) -> np.ndarray:
        """Return θ_i/r."""
        return angles(dim, base) / self.factor


@dataclass(frozen=True)
class NtkScaling(_ByFactor):
    """NTK-aware scaling: the base grows to base·r^(d/(d−2)), so that the slowest plane slows by r.

    Args:
        factor: r ≥ 1.

    Source: bloc97 (2023); Peng et al., YaRN (2023), arXiv:2309.00071, section 3.1.
    """

    def angles(self, dim: int, base: float, length: int) -> np.ndarray:
        """Return the angles of the larger base."""
        return angles(dim, _ntk_base(dim, base, self.factor))


def _ntk_base(dim: int, base: float, factor: float) -> float:
    """Return base·factor^(d/(d−2)); with a single plane there is nothing to stretch."""
    # The slowest plane has θ = base^(−(d−2)/d): a factor r^(d/(d−2)) on the base is 1/r on it.
    try:
        return base * float(factor) ** (dim / (dim - 2)) if dim > 2 else base
    except OverflowError:
        raise InputError("factor", factor, "gives a base beyond float64; lower it") from None


@dataclass(frozen=True)
class DynamicNtkScaling(_ByTrainedLength):
    """Dynamic NTK: beyond the trained length L the base is that of NTK at r·n/L − (r − 1).

    Up to L nothing changes; at n it depends on the length of the row.

    Args:
        factor: r ≥ 1.
        trained: L ≥ 1.

    Source: emozilla (2023); `dynamic` of Hugging Face's `rope_parameters`.
    """

    by_length: ClassVar[bool] = True

    def angles(self, dim: int, base: float, length: int) -> np.ndarray:
        """Return the angles of the base at this length."""
        # r·n/L − (r − 1), written so that it is 1 at L whatever r.
        stretched = 1 + self.factor * (max(length, self.trained) / self.trained - 1)
        return angles(dim, _ntk_base(dim, base, stretched))


@dataclass(frozen=True)
class YarnScaling(_ByTrainedLength):
    """YaRN's ramp: planes of many turns in the trained length stay, the slowest slow down by r.

    Between `fast` and `slow` turns the angle goes linearly, in the number of the plane, from θ_i to
    θ_i/r.

    Args:
        factor: r ≥ 1.
        trained: L ≥ 1.
        fast: turns in L from which on a plane stays, 32 as published.
        slow: turns below which a plane is interpolated, 1 as published.
        truncate: whether the ends of the ramp are rounded to whole planes, as in most checkpoints.

    Source: Peng et al., YaRN (2023), arXiv:2309.00071, section 3.2.
    """

    fast: float = 32.0
    slow: float = 1.0
    truncate: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_ramp(self, "slow", "fast")

    def angles(self, dim: int, base: float, length: int) -> np.ndarray:
        """Return θ_i·(1 − ramp) + (θ_i/r)·ramp."""
        theta = angles(dim, base)
        low, high = (self._plane(turns, dim, base) for turns in (self.fast, self.slow))
        if self.truncate:
            low, high = math.floor(low), math.ceil(high)
        # The upper end is d − 1, not the last plane d/2 − 1: the published code has it so.
        low, high = max(low, 0), min(high, dim - 1)
        # A ramp of no width is a step, as checkpoints have it.
        width = high - low if high != low else 1e-3
        ramp = np.clip((np.arange(dim // 2) - low) / width, 0.0, 1.0)
        return theta * (1 - ramp) + theta / self.factor * ramp

    def _plane(self, turns: float, dim: int, base: float) -> float:
        """Return the plane, as a real number, that makes so many turns in the trained length."""
        # L·θ_i = 2π·turns with θ_i = base^(−2i/d), solved for i.
        return dim * math.log(self.trained / (2 * math.pi * turns)) / (2 * math.log(base))


@dataclass(frozen=True)
class Llama3Scaling(_ByTrainedLength):
    """Llama 3's rule: by wavelength, from θ_i for short waves to θ_i/r for long ones.

    With x = L·θ_i/2π turns in the trained length: θ_i for x > high, θ_i/r for x < low, and between
    them a mean whose weights are linear in x.

    Args:
        factor: r ≥ 1.
        trained: L ≥ 1.
        low: turns, > 0; 1 in Llama 3.
        high: turns, ≥ low; 4 in Llama 3.

    Source: Meta, Llama 3.1 (2024), `llama3` of Hugging Face's `rope_parameters`.
    """

    low: float = 1.0
    high: float = 4.0

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_ramp(self, "low", "high")

    def angles(self, dim: int, base: float, length: int) -> np.ndarray:
        """Return θ_i·s + (θ_i/r)·(1 − s), s = (x − low)/(high − low) cut to [0, 1]."""
        # The mean is of angles, not of wavelengths: its weight is linear in the turns.
        theta = angles(dim, base)
        turns = self.trained * theta / (2 * math.pi)
        # Of no width it is a step, as checkpoints with low = high have it.
        width = self.high - self.low if self.high > self.low else 1e-9
        share = np.clip((turns - self.low) / width, 0.0, 1.0)
        return theta * share + theta / self.factor * (1 - share)
