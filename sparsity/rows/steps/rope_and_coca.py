"""RoPE and CoCA as steps: rotary positions of random keys give every distance its β_m and γ_m.

RoPE turns a normal key, CoCA's key is the query times one nonnegative factor a plane, a normal
number cut at zero.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar

import numpy as np

from sparsity.checks import check_number, check_vector, keep_checked
from sparsity.errors import InputError, printable
from sparsity.rows.rope_planes import BASE, angles, planes, split
from sparsity.rows.rope_scaling import RopeScaling
from sparsity.rows.rotated_scores import slack_coefficients
from sparsity.rows.tokens import Tokens, every
from sparsity.special import ndtr

NORMAL = 8.0  # spreads from zero at which a normal number is never negative: P < 1e−15


class RotaryStep:
    """A step that gives every distance m its β_m and γ_m.

    Its fields hold arrays, which neither compare nor hash: equality goes by their plain values.
    """

    defaults: ClassVar[dict[str, float]] = {"beta": 0.0, "gamma": 1.0}  # a row with it needs no γ

    query: Any
    pairing: str
    base: float
    scaling: RopeScaling | None
    turned: int | None

    def _check_rotation(self) -> None:
        """Check query, pairing, base, scaling and the turned entries, and keep what they read as.

        Raises:
            InputError: no finite, nonzero vector of an even d, an unknown pairing, a base <= 1, no
                scaling of `sparsity.rows.rope_scaling`, or more turned entries than there are.
        """
        keep_checked(self, "query", check_vector, "give one finite, nonzero vector")
        q = self.query
        if not np.any(q):
            raise InputError("query", self.query, "give one finite, nonzero vector")
        angles(q.size, self.base)
        split(q, self.pairing)
        keep_checked(self, "base", check_number, "must be finite and > 1", lambda x: x > 1)
        if self.scaling is not None and not hasattr(type(self.scaling), "by_length"):
            fix = "give a rule such as sparsity.YarnScaling(4, 4096), or None"
            raise InputError("scaling", self.scaling, fix)
        if self.turned is not None:
            fix = f"give an even number of entries from 2 to {q.size}, or None for all"
            turned = check_number(
                "turned", self.turned, fix, lambda x: 2 <= x <= q.size and x % 2 == 0
            )
            object.__setattr__(self, "turned", int(turned))

    def _values(self) -> dict[str, Any]:
        """Return the fields in plain types, vectors as tuples."""
        names = [field.name for field in fields(self)]  # pyright: ignore[reportArgumentType]
        given = {name: getattr(self, name) for name in names}
        return {k: tuple(v.tolist()) if isinstance(v, np.ndarray) else v for k, v in given.items()}

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and other._values() == self._values()

    def __hash__(self) -> int:
        return hash((type(self), *self._values().values()))

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={value!r}" for name, value in self._values().items())
        return f"{type(self).__name__}({shown})"

    def _repr_pretty_(self, page: Any, cycle: bool) -> None:
        """Show vectors of many entries cut short in a notebook; `repr` stays code."""
        page.text(printable(repr(self), 300))

    def beta(self, distance: Any, length: int | None = None) -> np.ndarray:
        """Return the mean β_m of the score at each distance m, in a row of that length.

        Raises:
            InputError: no length for a scaling that goes by it.
        """
        raise NotImplementedError

    def gamma(self, distance: Any, length: int | None = None) -> np.ndarray:
        """Return the standard deviation γ_m of the score at each distance m, likewise."""
        raise NotImplementedError

    @property
    def normal(self) -> bool:
        """Whether the scores are normal."""
        return True

    def theta(self, length: int | None) -> np.ndarray:
        """Return θ_i of the planes that turn in a row of that length.

        Raises:
            InputError: no length for a scaling that goes by it.
        """
        dim = self.query.size if self.turned is None else self.turned
        if self.scaling is None:
            return angles(dim, self.base)
        # Dynamic scaling changes every angle with the length of the row, near keys' among them: a
        # part of the tokens does not tell it.
        if length is None and self.scaling.by_length:
            fix = f"give the length of the row, by which {type(self.scaling).__name__} goes"
            raise InputError("length", length, fix)
        return self.scaling.angles(dim, self.base, 1 if length is None else length)

    def _every_theta(self, length: int | None) -> np.ndarray:
        """Return θ_i of every plane, 0 for those that do not turn."""
        turning = self.theta(length)
        return np.append(turning, np.zeros(self.query.size // 2 - len(turning)))

    def planes(self, x: Any) -> np.ndarray:
        """Return the planes of a vector as complex numbers, those that turn first."""
        return planes(x, self.pairing, self.turned)

    def breaks(self, length: int) -> np.ndarray:
        """Return every distance: all differ."""
        return every(length)

    def __call__(self, tokens: Tokens, length: int) -> Tokens:
        """Put β_m + γ_m x in the place of x: s = β + γ(β_m + γ_m x).

        What multiplied the scores before multiplies these. Sinks and needles have a score of their
        own and stay as they are.

        Raises:
            InputError: scores that are not normal.
        """
        if not self.normal:
            fix = f"must be >= {NORMAL:g}·spread; else only estimate takes it, as the only step"
            raise InputError("center", getattr(self, "center", None), fix)
        marked = tokens.sink | tokens.needle
        beta_m, gamma_m = (f(tokens.distance, length) for f in (self.beta, self.gamma))
        beta = tokens.beta + np.where(marked, 0, tokens.gamma * beta_m)
        gamma = tokens.gamma * np.where(marked, 1, gamma_m)
        return replace(tokens, beta=beta, gamma=gamma)


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
        fix = f"give a finite vector of shape {self.query.shape}"
        keep_checked(self, "mean", check_vector, fix)
        if self.mean.shape != self.query.shape:
            raise InputError("mean", self.mean, fix)
        keep_checked(self, "spread", check_number, "must be > 0", lambda x: x > 0)

    def beta(self, distance: Any, length: int | None = None) -> np.ndarray:
        # Of a plane as a complex number, turning the key back by mθ turns q k* by mθ.
        h = self.planes(self.query) * np.conj(self.planes(self.mean))
        theta = self._every_theta(length)
        turned = np.exp(1j * np.asarray(distance, np.float64)[..., None] * theta)
        return np.real(turned @ h)

    def gamma(self, distance: Any, length: int | None = None) -> np.ndarray:
        # Turning N(0, σ²I) leaves it as it is: the spread of q·k is σ‖q‖ at every distance.
        return np.full(np.shape(distance), self.spread * np.linalg.norm(self.query))


def rectified_moments(center: float, spread: float) -> tuple[float, float]:
    """Return the mean and the variance of t = max(τ, 0), τ ~ N(center, spread²)."""
    z = center / spread
    density, below = np.exp(-z * z / 2) / np.sqrt(2 * np.pi), ndtr(-z)
    more = density - z * below  # E t = spread·(z + more), without cancellation for large z
    # For z > 0 the variance is written as spread² less what the cut takes: the plain form below
    # would be a difference of numbers of about z².
    if z > 0:
        return center + spread * more, spread**2 * (1 + (z * z - 1) * below - z * density - more**2)
    mean = z * ndtr(z) + density
    return spread * mean, spread**2 * ((z * z + 1) * ndtr(z) + z * density - mean**2)


@dataclass(frozen=True, eq=False, repr=False)
class Coca(RotaryStep):
    """CoCA with t_i = max(τ_i, 0), τ_i ~ N(center, spread²) independent: one for each plane.

    s_m = Σ_i c_i t_i with c_i = |q_i|² cos(mθ_i); in the published slack form c_i depends on the
    positions of query and key themselves. β_m and γ_m are the exact mean and standard deviation;
    the score is normal if center ≥ 8·spread. If not, rows have no exact law: they are sampled.

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
        keep_checked(self, "center", check_number, "give one finite number")
        keep_checked(self, "spread", check_number, "must be > 0", lambda x: x > 0)
        if self.center < -NORMAL * self.spread:
            fix = "is more than 8 spreads below 0, so that t is never positive; raise it"
            raise InputError("center", self.center, fix)
        if self.slack_at is not None:
            fix = "give the position of the query, a whole number >= 0, or None for exact CoCA"
            at = check_number(
                "slack_at", self.slack_at, fix, lambda x: 0 <= x <= 2**53 and x == int(x)
            )
            object.__setattr__(self, "slack_at", int(at))

    @property
    def normal(self) -> bool:
        """Whether t is never cut at zero, so that the scores are normal."""
        return self.center >= NORMAL * self.spread

    def coefficients(self, distance: Any, length: int | None = None) -> np.ndarray:
        """Return c_i at each distance m in a row of that length, [..., d/2]."""
        q, m = self.planes(self.query), np.asarray(distance, np.float64)
        theta = self._every_theta(length)
        if self.slack_at is None:
            return np.abs(q) ** 2 * np.cos(m[..., None] * theta)
        if np.any(m > self.slack_at):
            fix = f"the key at distance {np.max(m):.0f} would come before the first position, 0"
            raise InputError("slack_at", self.slack_at, fix)
        return slack_coefficients(q, self.slack_at, self.slack_at - m, theta)

    def beta(self, distance: Any, length: int | None = None) -> np.ndarray:
        """Return β_m = E t Σ_i c_i."""
        mean, _ = rectified_moments(self.center, self.spread)
        return mean * self.coefficients(distance, length).sum(axis=-1)

    def gamma(self, distance: Any, length: int | None = None) -> np.ndarray:
        """Return γ_m = √(Var t Σ_i c_i²)."""
        _, variance = rectified_moments(self.center, self.spread)
        return np.sqrt(variance * (self.coefficients(distance, length) ** 2).sum(axis=-1))
