"""RoPE: rotary positions of the whole key."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from sparsity.arguments import number, vector
from sparsity.errors import InputError
from sparsity.rows.rope_scaling import RopeScaling
from sparsity.rows.rotary_step import RotaryStep
from sparsity.rows.rotation import BASE


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
        scaling: how the angles are changed for long contexts, such as `YarnScaling(4, 4096)`.
        turned: entries that turn, the first ones; the others score as they are. None is all.

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
    scaling: RopeScaling | None = None
    turned: int | None = None

    def __post_init__(self) -> None:
        self._check_rotation()
        q = self.query
        mu = vector("mean", self.mean, f"give a finite vector of shape {q.shape}")
        if mu.shape != q.shape:
            raise InputError("mean", self.mean, f"give a finite vector of shape {q.shape}")
        spread = number("spread", self.spread, "must be > 0", lambda x: x > 0)
        object.__setattr__(self, "mean", mu)
        object.__setattr__(self, "spread", spread)

    def beta(self, distance: Any, length: int | None = None) -> np.ndarray:
        # Of a plane as a complex number, turning the key back by mθ turns q k* by mθ.
        h = self.planes(self.query) * np.conj(self.planes(self.mean))
        theta = self._every_theta(distance, length)
        turned = np.exp(1j * np.asarray(distance, np.float64)[..., None] * theta)
        return np.real(turned @ h)

    def gamma(self, distance: Any, length: int | None = None) -> np.ndarray:
        # Turning N(0, σ²I) leaves it as it is: the spread of q·k is σ‖q‖ at every distance.
        return np.full(np.shape(distance), self.spread * np.linalg.norm(self.query))
