"""What a quantity is for its exact law: an integral, a rank, two rows, a threshold, an event."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from sparsity.errors import InputError


class LogMoment(NamedTuple):
    """The moment E[x^order ln(x)^power e^(−x)], beside the plain one of the same order."""

    order: float
    power: int = 1


@dataclass(frozen=True)
class Integral:
    """The mean over rows as one integral, for tokens with independent weights.

    With x = t|a_j|^power, φ_j = E e^(−x) and m_j,k = E[x^k e^(−x)], u = ln t,
        mean = factor(n) ∫ combine(Σ_j g(m_j/φ_j), …) Π_j φ_j du / P(the row is not all zero).

    Args:
        power: of |a| in x.
        moments: the orders k; each `LogMoment` follows the plain one of its order.
        sums: pairs (g, whose): g of the ratios m_j,k/φ_j, summed over "token", "sink" or
            "needle".
        units: whether sink logits stand in the product.
        ends: the least and the largest value that a row can have, given n, the tokens in sight,
            and whether there is a unit beside them: the shares of the tokens then sum to less
            than 1. They are equal for a single token without one.
        combine: of the scale that the sums are over, and the sums; a single one as it is.
        factor: of n.
        sqrt_tail: whether the integrand falls like √t only, towards t = 0.
        excess_of_abs: of n, by how much the integral of the absolute value may exceed the integral.
    """

    power: int
    moments: tuple[float | LogMoment, ...]
    sums: tuple[tuple[Callable[..., Any], str], ...]
    units: bool
    ends: Callable[[float, float, bool], tuple[float, float]]
    combine: Callable[..., Any] = lambda scale, one: one
    factor: Callable[[float], float] = lambda n: 1.0
    sqrt_tail: bool = False
    excess_of_abs: Callable[[float], float] = lambda n: 0.0


@dataclass(frozen=True)
class RankLaw:
    """A quantity ∫ g(N(a)) da / Z of rows, N(a) how many weights are above a and Z their sum.

    Args:
        mean: E g(N) of N ~ Bin(n, q), given n and log(1 − q).
        keys: k, if g(N) is the same for all N ≥ k; 0 if there is no such k.
        ends: the least and the largest value, given n; the largest is that of rows of at most
            max(k, 1) tokens.
        beside_hidden: the value among tokens out of sight as well, given that of those in sight and
            their share.
    """

    mean: Callable[[float, Any], Any]
    keys: int
    ends: Callable[[float], tuple[float, float]]
    beside_hidden: Callable[[Any, float], Any] = lambda value, share: value

    def alike(self, n: float) -> float:
        """Return the value of n equal weights."""
        return self.ends(n)[0]


@dataclass(frozen=True)
class KeysLaw:
    """How many of the largest weights add up to a share of all.

    Args:
        share: in (0, 1).
    """

    share: float

    def ends(self, n: float) -> tuple[float, float]:
        """Return the least and the largest value in rows of n."""
        return 1.0, self.alike(n)

    def alike(self, n: float) -> float:
        """Return the value of n equal weights."""
        return math.ceil(self.share * n * (1 - 1e-15))

    def beside_hidden(self, value: Any, share: float) -> Any:
        """Return the value among tokens out of sight as well, which have no weight."""
        return value


@dataclass(frozen=True)
class PairLaw:
    """What two rows of one law have in common, whose scores correlate over keys.

    Args:
        rho: their correlation ρ, in [−1, 1].
        keys: k of the sets of largest weights that are compared; 0 asks for Σ p p′ of all keys.
    """

    rho: float
    keys: int = 0

    def ends(self, n: float) -> tuple[float, float]:
        """Return the least and the largest value in rows of n."""
        if not self.keys:
            return 0.0 if n > 1 else 1.0, 1.0
        k = min(self.keys, n)
        return max(2 * k - n, 0.0) / k, 1.0


@dataclass(frozen=True)
class BelowLaw:
    """What lies more than |ln λ| under the largest weight, of keys or of tiles with no other key.

    Args:
        log_ratio: ln λ < 0.
        tile: keys of a tile, from the first on; 1 for single keys.
        mass: whether it is the share of the weight that these hold, or the share that they are.
    """

    log_ratio: float
    tile: int = 1
    mass: bool = False

    def ends(self, n: float) -> tuple[float, float]:
        """Return the least and the largest value in rows of n: the largest weight is in one."""
        return 0.0, 1 - 1 / math.ceil(n / self.tile)

    def alike(self, n: float) -> float:
        """Return the value of n equal weights."""
        return 0.0

    def beside_hidden(self, value: Any, share: float) -> Any:
        """Return the value among tokens out of sight as well, which weigh nothing and lie below.

        Raises:
            InputError: of tiles, some of which are in sight in part.
        """
        if self.tile > 1:
            raise InputError("of", "tiles", "some lie partly out of sight; use estimate")
        return value if self.mass else 1 - (1 - value) * share


@dataclass(frozen=True)
class Exceeds:
    """The chance A > odds·N, of what sinks or the needle weigh, A, and all others, N.

    Args:
        whose: A is the weight of the "sink" or of the "needle".
        odds: > 0.
        power: both are sums of |a|^power.
        units: whether sink logits count, as sinks or as others.
    """

    whose: str
    odds: float
    power: int = 1
    units: bool = True


@dataclass(frozen=True)
class NeedleLaw:
    """The chance that the needle's weight is the largest, or that its value is read out.

    Args:
        values: V, the number of values among which it is read out; None asks for the rank alone.
    """

    values: int | None = None
