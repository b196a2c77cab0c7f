"""Bounded scores, all alike between two ends."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

from sparsity.rows.scores.base import Scores

END = math.sqrt(3)  # of x, whose variance END²/3 is 1


@dataclass(frozen=True)
class Uniform(Scores):
    """Bounded scores: s uniform on [β − c, β + c], c = √3 γ.

    The spread γ is the standard deviation, as for Gaussian scores: for the ends ±c give γ = c/√3.
    """

    name: ClassVar[str] = "uniform"
    example: ClassVar[tuple[Any, ...]] = ()
    formula: ClassVar[str] = "uniform on [−√3, √3]"  # pyright: ignore
    normals, uniforms = 0, 1
    ends = (-END, END)
    smooth = False  # an end may meet a kink of the weight

    def drawn(self, u: Any, z: Any) -> Any:
        """Return √3 (2u − 1)."""
        return END * (2 * u[..., 0] - 1)
