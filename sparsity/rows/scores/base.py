"""What a law of scores is: the law of x in s_j = β_j + γ_j x_j, as a step of a row."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from sparsity.rows.tokens import AlikeStep, Tokens


class Scores(AlikeStep):
    """The law of x in s_j = β_j + γ_j x_j: of mean 0 and variance 1, for every token alike.

    Frozen, hashable, validated where it is made. A row without one has x ~ N(0, 1), and no row has
    two.

    Attributes:
        name: as typed on the command line, before its numbers: "t:5".
        example: its fields in the contract tests.
        formula: the law in a line of text, after "x".
        normals: normal numbers that one x is drawn from.
        uniforms: uniform numbers in [0, 1), likewise.
        parts: of a sum of normal laws and points its shares, means and deviations; else None.
        ends: what x lies between.
        smooth: whether what depends on β and γ is analytic in them whatever the weight.
    """

    name: ClassVar[str]
    example: ClassVar[tuple[Any, ...]]
    formula: str
    normals: int = 1
    uniforms: int = 0
    parts: tuple[np.ndarray, np.ndarray, np.ndarray] | None = None
    ends: tuple[float, float] = (-math.inf, math.inf)
    smooth: bool = True

    def drawn(self, u: Any, z: Any) -> Any:
        """Return the definition: x from random numbers along the last axis, NumPy's or JAX's.

        Args:
            u: uniform numbers, [..., uniforms].
            z: normal numbers, [..., normals].
        """
        raise NotImplementedError

    @property
    def typed(self) -> str:
        """As typed on the command line."""
        return self.name

    def __call__(self, tokens: Tokens, length: int) -> Tokens:
        return replace(tokens, scores=self)


def refined(u: Any) -> Any:
    """Return one uniform number of (0, 1] out of two, whose digits do not end where it is small.

    Args:
        u: uniform numbers in [0, 1), [..., 2].
    """
    # In float32 a uniform number is a multiple of 2⁻²³, and the smallest ones, which make the tail,
    # would be few values far apart. Here u₀ gives the first 22 bits, and u₁ the digits below.
    xp = u.__array_namespace__()
    fine = (xp.floor(u[..., 0] * 2.0**22) + u[..., 1]) * 2.0**-22
    return xp.maximum(fine, xp.full_like(fine, 2.0**-46))
