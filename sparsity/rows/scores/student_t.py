"""Scores with heavy tails, that fall like a power."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

from sparsity.arguments import number
from sparsity.rows.scores.base import Scores, refined


@dataclass(frozen=True)
class StudentT(Scores):
    """Heavy tails: x√(ν/(ν − 2)) is Student-t with ν degrees of freedom.

    E|x|^p exists for p < ν. So E a² does for weights that grow slower than |s|^(ν/2), and for exp
    no moment does.

    Args:
        degrees: ν > 2; the standard deviation γ exists from there on.
    """

    name: ClassVar[str] = "t"
    example: ClassVar[tuple[Any, ...]] = (12.0,)
    normals, uniforms = 0, 3

    degrees: float

    def __post_init__(self) -> None:
        fix = "must be > 2, at most 1e6: no standard deviation exists at 2 or below"
        degrees = number("degrees", self.degrees, fix, lambda x: 2 < x <= 1e6)
        object.__setattr__(self, "degrees", float(degrees))

    @property
    def formula(self) -> str:  # pyright: ignore
        return f"Student-t with {self.degrees:g} degrees of freedom over its standard deviation"

    @property
    def typed(self) -> str:
        return f"{self.name}:{self.degrees:g}"

    def drawn(self, u: Any, z: Any) -> Any:
        """Return √(ν − 2) √(u^(−2/ν) − 1) cos 2πv, of independent uniform u and v.

        Source: Bailey, "Polar generation of random variates with the t-distribution" (1994).
        """
        # Of many degrees u^(−2/ν) is next to 1, and the difference has its digits by `expm1` only.
        xp, nu = u.__array_namespace__(), self.degrees
        square = (nu - 2) * xp.expm1(-2 / nu * xp.log(refined(u[..., :2])))
        return xp.sqrt(xp.maximum(square, 0 * square)) * xp.cos(2 * math.pi * u[..., 2])
