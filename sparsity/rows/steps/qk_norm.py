"""QK-norm: keys of a fixed length in random directions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from sparsity.arguments import whole
from sparsity.kernels.parameters import DIM
from sparsity.rows.scores.base import Scores


@dataclass(frozen=True)
class QKNorm(Scores):
    """QK-norm: keys have a fixed length and random directions, s_j = β_j + γ_j √d cos θ_j.

    The scores are κ cos θ_j with κ = γ√d; their spread is γ, as for Gaussian keys.

    Args:
        dim: d ≥ 2.
    """

    name: ClassVar[str] = "qk-norm"
    example: ClassVar[tuple[Any, ...]] = (16,)

    dim: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "dim", whole("dim", self.dim, 2))
        DIM.check(self.dim)

    @property
    def formula(self) -> str:  # pyright: ignore
        return f"√{self.dim} times the first entry of a random direction"

    @property
    def typed(self) -> str:
        return f"{self.name}:{self.dim}"

    @property
    def ends(self) -> tuple[float, float]:  # pyright: ignore
        return -(self.dim**0.5), self.dim**0.5

    @property
    def normals(self) -> int:  # pyright: ignore
        return self.dim

    def drawn(self, u: Any, z: Any) -> Any:
        """√d times the first entry of a random direction."""
        xp = z.__array_namespace__()
        return self.dim**0.5 * (z[..., 0] / xp.sqrt((z * z).sum(axis=-1)))
