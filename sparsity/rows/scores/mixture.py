"""Scores of several kinds of keys: a sum of normal laws."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from sparsity.arguments import as_float64
from sparsity.errors import InputError
from sparsity.rows.scores.base import Scores


def standardised(share: np.ndarray, mean: np.ndarray, deviation: np.ndarray) -> Any:
    """Return the parts of a law moved and scaled to mean 0 and variance 1, and by how much."""
    # By the law of total variance: that of the means of the kinds, and the mean of their own.
    share = share / share.sum()
    centre = float(share @ mean)
    spread = float(np.sqrt(share @ ((mean - centre) ** 2 + deviation**2)))
    if not 0 < spread < np.inf:
        return None, centre, spread
    return (share, (mean - centre) / spread, deviation / spread), centre, spread


@dataclass(frozen=True)
class Mixture(Scores):
    """Several kinds of keys: a key is of kind i with probability π_i, and its score is then normal.

    The law Σ π_i N(m_i, d_i²) is shifted and scaled to mean 0 and variance 1, so that β and γ keep
    their meaning; only the differences between the kinds matter.

    Args:
        kinds: (π_i, m_i, d_i) of each kind, π_i > 0 up to a common factor, d_i ≥ 0; 0 is a fixed
            score.
    """

    name: ClassVar[str] = "mixture"
    example: ClassVar[tuple[Any, ...]] = (((0.9, 0.0, 1.0), (0.1, 3.0, 0.5)),)
    uniforms = 1

    kinds: Any

    def __post_init__(self) -> None:
        fix = "give (share > 0, mean, deviation >= 0) of each, such as ((0.9, 0, 1), (0.1, 3, 1))"
        kinds = as_float64(self.kinds, "kinds", fix, texts=False)
        if kinds.ndim != 2 or kinds.shape[1] != 3 or not np.all(np.isfinite(kinds)):
            raise InputError("kinds", self.kinds, fix)
        if not (np.all(kinds[:, 0] > 0) and np.all(kinds[:, 2] >= 0)):
            raise InputError("kinds", self.kinds, fix)
        if standardised(*kinds.T)[0] is None:
            raise InputError("kinds", self.kinds, "all scores are the same; give them a spread")
        object.__setattr__(self, "kinds", tuple(tuple(kind) for kind in kinds.tolist()))

    @cached_property
    def parts(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:  # pyright: ignore
        return standardised(*np.array(self.kinds).T)[0]

    @property
    def ends(self) -> tuple[float, float]:  # pyright: ignore
        _, mean, deviation = self.parts
        return (-np.inf, np.inf) if deviation.any() else (float(mean.min()), float(mean.max()))

    @property
    def smooth(self) -> bool:  # pyright: ignore
        return bool(np.all(self.parts[2] > 0))

    @property
    def formula(self) -> str:  # pyright: ignore
        terms = [f"{p:g}·N({m:g}, {d:g}²)" for p, m, d in self.kinds]
        return f"of the law {' + '.join(terms)}, standardised"

    @property
    def typed(self) -> str:
        return f"{self.name}:" + ";".join(",".join(f"{x:g}" for x in kind) for kind in self.kinds)

    def drawn(self, u: Any, z: Any) -> Any:
        """Return m_i + d_i z, i the kind in whose share of [0, 1) u falls."""
        xp = u.__array_namespace__()
        share, mean, deviation = self.parts
        kinds = np.stack([np.cumsum(share), mean, deviation], axis=1).tolist()
        *_, (_, m, d) = kinds
        x = m + d * z[..., 0]
        for end, m, d in kinds[-2::-1]:
            x = xp.where(u[..., 0] < end, m + d * z[..., 0], x)
        return x
