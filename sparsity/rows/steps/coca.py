"""CoCA: keys collinear with the query, one nonnegative factor for each plane."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from sparsity.arguments import number
from sparsity.errors import InputError
from sparsity.rows.rectified import log_exp_mean, rectified
from sparsity.rows.rope_scaling import RopeScaling
from sparsity.rows.rotary import slack_coefficients
from sparsity.rows.rotary_step import NORMAL, RotaryStep
from sparsity.rows.rotation import BASE


@dataclass(frozen=True, eq=False, repr=False)
class Coca(RotaryStep):
    """CoCA with t_i = max(τ_i, 0), τ_i ~ N(center, spread²) independent: one for each plane.

    s_m = Σ_i c_i t_i with c_i = |q_i|² cos(mθ_i); in the published slack form c_i depends on the
    positions of query and key themselves. β_m and γ_m are the exact mean and standard deviation;
    the score is normal if center ≥ 8·spread. If not, the exact law of softmax rows takes a time
    that grows with d·n: seconds for 1000 tokens. Scores may have any mean and spreads up to 64.

    Args:
        query: q, [d], d even.
        center: of τ.
        spread: of τ, > 0.
        pairing: which entries make a plane, "interleaved" or "half".
        base: of the angles, > 1.
        slack_at: None for exact CoCA; the position of the query for the slack form.
        scaling: how the angles are changed for long contexts, such as `DynamicNtkScaling(4, 512)`.
        turned: entries that turn, the first ones. None is all.

    Raises:
        InputError: an odd d, or a value outside its domain.
    """

    name: ClassVar[str] = "coca"
    example: ClassVar[tuple[Any, ...]] = ((1.0, 0.5, -0.3, 0.2), 0.5, 0.05)

    query: Any
    center: float
    spread: float
    pairing: str = "interleaved"
    base: float = BASE
    slack_at: int | None = None
    scaling: RopeScaling | None = None
    turned: int | None = None

    def __post_init__(self) -> None:
        self._check_rotation()
        center = number("center", self.center, "give one finite number")
        spread = number("spread", self.spread, "must be > 0", lambda x: x > 0)
        if center < -NORMAL * spread:
            raise InputError(
                "center",
                self.center,
                "is more than 8 spreads below 0, so that t is never positive; raise it",
            )
        if self.slack_at is not None:
            fix = "give the position of the query, a whole number >= 0, or None for exact CoCA"
            at = number("slack_at", self.slack_at, fix, lambda x: 0 <= x <= 2**53 and x == int(x))
            object.__setattr__(self, "slack_at", int(at))
        object.__setattr__(self, "center", center)
        object.__setattr__(self, "spread", spread)

    @property
    def normal(self) -> bool:
        """Whether t is never cut at zero, so that the scores are normal."""
        return self.center >= NORMAL * self.spread

    def coefficients(self, distance: Any, length: int | None = None) -> np.ndarray:
        """Return c_i at each distance m in a row of that length, [..., d/2]."""
        q, m = self.planes(self.query), np.asarray(distance, np.float64)
        theta = self._every_theta(distance, length)
        if self.slack_at is None:
            return np.abs(q) ** 2 * np.cos(m[..., None] * theta)
        if np.any(m > self.slack_at):
            fix = f"the key at distance {np.max(m):.0f} would come before the first position, 0"
            raise InputError("slack_at", self.slack_at, fix)
        return slack_coefficients(q, self.slack_at, self.slack_at - m, theta)

    def beta(self, distance: Any, length: int | None = None) -> np.ndarray:
        """Return β_m = E t Σ_i c_i."""
        mean, _ = rectified(self.center, self.spread)
        return mean * self.coefficients(distance, length).sum(axis=-1)

    def gamma(self, distance: Any, length: int | None = None) -> np.ndarray:
        """Return γ_m = √(Var t Σ_i c_i²)."""
        _, variance = rectified(self.center, self.spread)
        return np.sqrt(variance * (self.coefficients(distance, length) ** 2).sum(axis=-1))

    def log_mgf(self, distance: np.ndarray, p: np.ndarray) -> np.ndarray:
        """Return the logarithm of E e^(p·s_m) = Π_i E e^(p c_i t), [distances, p]."""
        # The factors t_i of the planes are independent, so that their logarithms add up.
        total = np.zeros((len(distance), len(p)), np.result_type(p, np.float64))
        for c in self.coefficients(distance).T:  # a plane at a time: memory
            total += log_exp_mean(self.center / self.spread, self.spread * c[:, None] * p)
        return total

    def refusal(self, error: Any) -> InputError:
        """Return the same error, of an argument of this law."""
        if not np.isfinite(error.location):
            shown = f"vector with entries up to {np.abs(self.query).max():.3g}"
            return InputError("query", shown, "gives scores that overflow; reduce its norm")
        if error.blurred:
            fix = f"gives scores of {error.location:.3g}, beyond the digits of float64; lower it"
            return InputError("center", self.center, f"{fix}, or make the query shorter")
        fix = f"gives scores a standard deviation of about {error.deviation:.3g}; stay below "
        fix = f"{fix}{error.widest:g}: lower it, or make the query shorter"
        return InputError("spread", self.spread, fix)
