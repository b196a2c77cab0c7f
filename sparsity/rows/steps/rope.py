"""RoPE: rotary positions of the whole key."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from sparsity.errors import InputError, number
from sparsity.rows.rotary_step import RotaryStep, vector
from sparsity.rows.rotation import BASE, angles, planes


@dataclass(frozen=True, eq=False, repr=False)
class Rope(RotaryStep):
    """RoPE with keys k ~ N(μ, σ²I) before rotation.

    s_m ~ N(β_m, γ²), β_m = Σ_i |q_i||μ_i| cos(Θ_i + mθ_i), γ = σ‖q‖ at every distance.

    Args:
        query: q, [d], d even.
        mean: μ, [d].
        spread: σ > 0.
        pairing: which entries make a plane, "interleaved" or "half".
        base: of the angles, > 1.

    Raises:
        InputError: an odd d, vectors that do not match, or a value outside its domain.
    """

    name: ClassVar[str] = "rope"
    example: ClassVar[tuple[Any, ...]] = ((1.0, 0.5, -0.3, 0.2), (0.4, -0.2, 0.1, 0.6), 0.3)

    query: Any
    mean: Any
    spread: float
    pairing: str = "interleaved"
    base: float = BASE

    def __post_init__(self) -> None:
        q = vector("query", self.query)
        angles(q.size, self.base)
        planes(q, self.pairing)
        try:
            mu = np.array(self.mean, dtype=np.float64)
        except (TypeError, ValueError):
            mu = np.empty(0)
        if mu.shape != q.shape or not np.all(np.isfinite(mu)):
            raise InputError("mean", self.mean, f"give a finite vector of shape {q.shape}")
        number("spread", self.spread, "must be > 0", lambda x: x > 0)
        object.__setattr__(self, "query", q)
        mu.flags.writeable = False
        object.__setattr__(self, "mean", mu)

    def beta(self, distance: Any) -> np.ndarray:
        h = planes(self.query, self.pairing) * np.conj(planes(self.mean, self.pairing))
        turned = np.exp(1j * np.asarray(distance, np.float64)[..., None] * self.theta)
        return (turned @ h).real

    def gamma(self, distance: Any) -> np.ndarray:
        return np.full(np.shape(distance), self.spread * np.linalg.norm(self.query))
