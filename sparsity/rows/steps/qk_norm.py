"""QK-norm: keys of a fixed length in random directions."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from sparsity.errors import whole
from sparsity.kernels.parameters import DIM
from sparsity.rows.tokens import Tokens


@dataclass(frozen=True)
class QKNorm:
    """QK-norm: keys of a fixed length in random directions, s_j = β_j + γ_j √d cos θ_j.

    In SCIENCE's terms κ = γ√d; the spread of the scores is γ, as for Gaussian keys.

    Args:
        dim: d ≥ 2.
    """

    name: ClassVar[str] = "qk-norm"
    example: ClassVar[tuple[Any, ...]] = (16,)

    dim: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "dim", whole("dim", self.dim, 2))
        DIM.check(self.dim)

    def breaks(self, length: int) -> np.ndarray:
        """None: it is the same for every token."""
        return np.empty(0)

    def __call__(self, tokens: Tokens, length: int) -> Tokens:
        return replace(tokens, dim=self.dim)
