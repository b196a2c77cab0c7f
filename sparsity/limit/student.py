"""Student-t scores as quadrature sees them: a density that falls like a power."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy.special import stdtr

from sparsity.kernels.numeric.points import EPS
from sparsity.limit.score_laws import Gaussian, Tilt, between
from sparsity.limit.sphere import log_gamma_excess


class Student:
    """Scores s = β + γt of density ∝ (1 + t²/κ)^(−(ν+1)/2), κ = ν − 2: of variance γ².

    It has poles at ±i√κ, and panels that double reach out to 2¹⁰⁰.

    Args:
        beta: bias β.
        gamma: spread γ > 0.
        degrees: ν > 2.
    """

    tilts = False
    steps = Gaussian.steps

    def __init__(self, beta: float, gamma: float, degrees: float) -> None:
        self.beta, self.gamma, self.degrees, self.square = beta, gamma, degrees, degrees - 2
        self.power = (degrees + 1) / 2
        exists = "; rows of n have n_eff all the same: use exact or estimate with a length"
        self.growth = f"|s|^({degrees:g}/p) under Student-t scores{exists}"
        # ∫ (1 + t²/κ)^(−(ν+1)/2) dt = √(πκ) Γ(ν/2)/Γ((ν+1)/2)
        self.log_norm = log_gamma_excess(degrees / 2) + 0.5 * math.log(
            degrees / (degrees - 2) / (2 * math.pi)
        )

    where, shift, gap = Gaussian.where, Gaussian.shift, Gaussian.gap
    offset, slow_offset = Gaussian.offset, Gaussian.slow_offset

    def log_density(self, t: Any) -> Any:
        return -self.power * np.log1p(np.square(t) / self.square)

    def rounding(self, t: Any) -> Any:
        return 8 * EPS * (1 + np.abs(self.log_density(t)))

    def steep(self, t: Any) -> Any:
        """|d log density / dt| = (ν + 1)|t|/(κ + t²)."""
        return 2 * self.power * np.abs(t) / (self.square + np.square(t))

    def mass(self, low: np.ndarray, high: np.ndarray) -> np.ndarray:
        scale = math.sqrt(self.degrees / self.square)
        return between(lambda t: stdtr(self.degrees, t * scale), low, high)

    def bounds(self, low: Any, high: Any, tilt: Tilt) -> tuple[Any, Any]:
        """Least and largest log density over [low, high]."""
        ends = np.abs(low), np.abs(high)
        near = np.where((low < 0) & (high > 0), 0.0, np.minimum(*ends))
        return self.log_density(np.maximum(*ends)), self.log_density(near)

    def around(self, centre: Any, width: Any, height: Any, tilt: Tilt) -> Any:
        """Largest log|density| over boxes: |z² + κ| is at least its real part.

        And at least the square of the distance to a pole.
        """
        pole, across = math.sqrt(self.square), np.maximum(np.abs(centre) - width, 0.0)
        real = (across - height) * (across + height) / self.square
        distance = np.hypot(across, np.maximum(pole - height, 0.0)) / pole
        with np.errstate(divide="ignore", over="ignore"):
            apart = -2 * self.power * np.log(distance)
            near = np.where(real > -0.5, -self.power * np.log1p(np.maximum(real, -0.5)), np.inf)
            return np.minimum(near, apart)
