"""Where a quantity is known to rise in what is free, the exact law is inverted by one root.

So it is of n_eff in the parameter of four kernels, of all that goes by how uneven weights are in
the spread of softmax, in a coordinate x in which it rises, and of the mass of a sink in its logit.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import brentq

from sparsity.arguments import number
from sparsity.errors import InputError, TooFine
from sparsity.exact_law import engine
from sparsity.exact_law.exact import exact
from sparsity.exact_law.regimes import condensed_share
from sparsity.kernels import Kernel, decayed, exp, identity
from sparsity.kernels.parameters import LENGTH, names_parameters
from sparsity.limit.long_rows import log_sums
from sparsity.quantities import Quantity
from sparsity.rows.classes import classed
from sparsity.rows.row import Row, row_of
from sparsity.rows.steps import SinkLogit

# How far from where a sink begins to matter its logit is looked for: e^(−1e4) is 0 in float64.
_FARTHEST_LOGIT = 1e4
_BRACKET = 1e-7  # of a root, whose last step then is off by some 1e-14
_MOST_HALVINGS = 5  # of a step beyond which a law is too wide: its end is known to 3 % of the step
# Whether a quantity rises (+1) or falls (−1) as softmax gets sharper. A larger γ raises every
# p_j = e^(γx_j)/Σ to the same power > 1, up to the sum: the new p majorizes the old one, in every
# row. S, n_eff and entropy are Schur-concave, and the others Schur-convex (Marshall & Olkin).
BY_SHARPNESS = {
    **{"S": -1, "n_eff": -1, "entropy": -1, "participation": 1, "max_weight": 1, "gini": 1},
    **{"hoyer": 1, "top_k_mass": 1},  # of a family all
}


@dataclass(frozen=True)
class Reach:
    """The effective numbers of tokens that a kernel can attend to in a row of n.

    Args:
        low: the fewest.
        high: the most.
        low_attained: whether `low` itself can be had; else it is only approached.
        high_attained: the same of `high`.
        reason: what sets the two.
    """

    low: float
    high: float
    low_attained: bool
    high_attained: bool
    reason: str

    def __contains__(self, tokens: float) -> bool:
        above = tokens >= self.low if self.low_attained else tokens > self.low
        return above and (tokens <= self.high if self.high_attained else tokens < self.high)

    def __str__(self) -> str:
        left, right = "[" if self.low_attained else "(", "]" if self.high_attained else ")"
        return f"{left}{self.low:.7g}, {self.high:.7g}{right}"


@dataclass(frozen=True)
class Coordinate:
    """A free parameter at one length, as a coordinate x in which the quantity rises.

    Args:
        name: of the kernel's parameter that is solved for.
        parameters: x -> all of the kernel's parameters.
        ends: the range of x over which the law can be computed.
        start: a first guess of x.
        reach: what can be attained.
        unit: of the free parameter; other than 1 for the scale s in γ = γ₀·s·ln n.
    """

    name: str
    parameters: Callable[[float], dict[str, Any]]
    ends: tuple[float, float]
    start: float
    reach: Reach
    unit: float = 1.0

    def value(self, x: float) -> float:
        return self.parameters(x)[self.name] / self.unit


def _spread_of_softmax(length: float, wanted: float, given: dict[str, float]) -> Coordinate:
    """Return γ = e^(−x); the first guess comes from the annealed or the condensed law."""
    # While many weights count, n_eff ≈ n (E a)²/E a² = n e^(−γ²). From γ² = ½ ln n on a few large
    # weights make up Σa² (it condenses), and γ is √(2 ln n) over what `condensed_share` gives.
    fewer = max(math.log(length / wanted), 1e-12) if wanted < length else 1.0
    guess = math.sqrt(fewer)
    if wanted > 1 and 2 * fewer > math.log(length):
        guess = math.sqrt(2 * math.log(length)) / condensed_share(wanted)
    return Coordinate(
        name="gamma",
        parameters=lambda x: {"beta": given.get("beta", 0.0), "gamma": math.exp(-x)},
        ends=(-math.log(300.0), -math.log(1e-7)),
        start=-math.log(guess),
        reach=Reach(1.0, length, False, False, "1 for γ → ∞, all of them for γ → 0"),
        # With γ₀ given, what is asked for is the scale s of γ = γ₀·s·ln n.
        unit=given["gamma"] * math.log(length) if "gamma" in given else 1.0,
    )


def sharpness(quantity: Quantity) -> int:
    """Return 1 for what rises as softmax gets sharper, −1 for what falls, 0 where neither."""
    return BY_SHARPNESS.get(quantity.name.partition(":")[0], 0)


def spread_of_softmax(quantity: Quantity, length: float, given: dict[str, float]) -> Coordinate:
    """Return γ = e^(±x) for another quantity than n_eff that goes by how uneven weights are."""
    sign = sharpness(quantity)
    least, most = quantity.ends(length)
    uniform, one_hot = (least, most)[::sign]
    why = f"{one_hot:.6g} for γ → ∞, {uniform:.6g} for γ → 0"
    return Coordinate(
        name="gamma",
        parameters=lambda x: {"beta": given.get("beta", 0.0), "gamma": math.exp(sign * x)},
        ends=tuple(sorted((sign * math.log(1e-3), sign * math.log(300.0)))),  # type: ignore[arg-type]
        # √(½ ln n), where rows begin to condense on a few large weights
        start=sign * 0.5 * math.log(0.5 * math.log(length)),
        reach=Reach(least, most, False, False, why),
    )


def _bias_or_spread(kernel: Kernel, length: float, given: dict[str, float]) -> Coordinate:
    """Return β or γ of squared ReLU or signed linear: β/γ = sinh x is all that counts."""
    even = kernel is identity
    beta, gamma = given.get("beta"), given.get("gamma", 1.0)
    centre = float(exact(kernel, length=length, gamma=1.0, beta=0.0).value)
    floor = f"S ≥ √(2/π) whatever the bias, a floor of {centre:.7g} tokens (2n/π in long rows)"
    low, zero, high = -math.asinh(30.0), math.asinh(1e-8), math.asinh(1e7)

    # A power of the score is homogeneous: γ is a factor on every weight, and only β/γ counts.
    def at(x: float) -> dict[str, Any]:
        if beta is None:
            return {"beta": gamma * math.sinh(x), "gamma": gamma}
        return {"beta": beta, "gamma": abs(beta / math.sinh(x)) if beta else gamma}

    if beta is None:
        if even:
            reach = Reach(centre, length, True, False, floor)
            return Coordinate("beta", at, (0.0, high), 1.0, reach)
        why = "1 for β/γ → −∞, all of them for β/γ → ∞"
        return Coordinate("beta", at, (low, high), -1.0, Reach(1.0, length, False, False, why))
    if beta == 0:
        why = "at β = 0 it does not depend on γ" + (f"; {floor}" if even else "")
        return Coordinate("gamma", at, (0.0, 0.0), 0.0, Reach(centre, centre, True, True, why))
    if even or beta > 0:
        why = floor if even else f"without a negative bias a floor of {centre:.7g} tokens"
        return Coordinate("gamma", at, (zero, high), 1.0, Reach(centre, length, False, False, why))
    why = f"1 for γ → 0, with this bias at most {centre:.7g} tokens, for γ → ∞"
    return Coordinate("gamma", at, (low, -zero), -1.0, Reach(1.0, centre, False, False, why))


def _decay(length: float, wanted: float) -> Coordinate:
    """Return λ = 1/(1 + e^(−x)), 1 at x = 40; the first guess is that of an endless row.

    There n_eff = (1 + λ)/(1 − λ) = 1 + 2e^x, so that x = ln((n_eff − 1)/2). Log odds keep their
    digits near λ = 1, where λ itself has none left.
    """
    return Coordinate(
        name="decay",
        parameters=lambda x: {"decay": 1 / (1 + math.exp(-x))},
        ends=(-50.0, 40.0),
        start=40.0 if wanted == length else math.log(max(wanted - 1, 1e-12) / 2),
        reach=Reach(1.0, length, False, True, "1 for λ → 0, all of them at λ = 1"),
    )


def rising_coordinate(
    kernel: Kernel, length: float, wanted: float, given: dict[str, float]
) -> Coordinate:
    """Return the free parameter of a kernel in a row of n, in which its n_eff rises.

    Args:
        kernel: exp, relu2, identity or decayed.
        length: n ≥ 2.
        wanted: the n_eff that will be asked for, for the first guess.
        given: the parameters that are not free.
    """
    if kernel is exp:
        return _spread_of_softmax(length, wanted, given)
    return _decay(length, wanted) if kernel is decayed else _bias_or_spread(kernel, length, given)


def _root_between(excess: Callable[[float], float], here: float, there: float) -> float:
    """Return the zero between two places where a function differs in sign, to 1e-12 or better.

    Brent's method goes on until it has the zero between two places as near as its tolerance: two
    looks more than finding it took. The last step is that of the secant through the nearest two,
    which squares what is left.
    """
    looked: dict[float, float] = {}

    def look(x: float) -> float:
        looked[x] = excess(x)
        return looked[x]

    brentq(look, here, there, xtol=_BRACKET)
    (x, f), (y, g) = sorted(looked.items(), key=lambda pair: abs(pair[1]))[:2]
    if f == 0 or abs(y - x) > 1e3 * _BRACKET:  # a kink or a jump, where a secant is no help
        return float(brentq(look, here, there, xtol=1e-12)) if f else x  # type: ignore[arg-type]
    low, high = sorted((here, there))
    return min(max(x - f * (y - x) / (g - f), low), high)


def solve_rising(
    excess: Callable[[float], float],
    ends: tuple[float, float],
    start: float,
    largest_step: float = math.inf,
) -> float | None:
    """Find the zero of a rising function: doubling steps from `start` bracket it, Brent finds it.

    Args:
        excess: the function.
        ends: where it may be evaluated.
        start: a first guess.
        largest_step: from one look to the next.

    Returns:
        The zero; None if there is none between the ends.

    Raises:
        TooFine: the function is not resolved so far out, nor after some halvings of the step.
    """
    excess = functools.cache(excess)  # an exact law each, and ends of brackets are asked twice
    here = min(max(start, ends[0]), ends[1])
    up, step, halvings = excess(here) < 0, 0.1, 0
    while excess(here) != 0:
        there = min(here + step, ends[1]) if up else max(here - step, ends[0])
        try:
            crossed = excess(here) * excess(there) <= 0
        except TooFine:
            if halvings == _MOST_HALVINGS:
                raise
            largest_step = step = step / 2
            halvings += 1
            continue
        if crossed:
            return _root_between(excess, here, there)
        if there in ends:
            return None
        here, step = there, min(2 * step, largest_step)
    return here


def _typical_total(row: Row, n: int) -> tuple[float, float]:
    """Return about the log of a typical row's total weight, and how far to look from it, ≥ 1.

    It is log E Σ − ½(g − √(2 ln n))₊², that of log-normal weights: beyond g = √(2 ln n) the few
    largest are all there is, and E Σ is that of rows which never occur. The largest, and with it
    the total, then varies by about g/√(2 ln n).
    """
    (first, _), (second, _) = log_sums(classed(row, n), (1, 2))
    spread = math.sqrt(max(second - 2 * first + math.log(n), 0.0))
    edge = math.sqrt(2 * math.log(n))
    return first - max(spread - edge, 0.0) ** 2 / 2, max(spread / max(edge, 1.0), 1.0)


def _solve_sink_logit(mass: float, row: Row, n: int) -> float:
    """Return the logit at one length; what rises in it are the log odds of the mass."""
    odds = math.log(mass) - math.log1p(-mass)

    @functools.cache
    def excess(b: float) -> float:
        (sinks, _), (others, _) = engine.shares(row.then(SinkLogit(b)), n)
        # Log odds are nearly linear in b, where the mass itself is flat at either end.
        with np.errstate(divide="ignore"):
            return float(np.log(sinks) - np.log(others)) - odds

    # From the logit that would do if every row were typical, doubling steps bracket the root.
    total, wide = _typical_total(row, n)
    low = high = total + odds
    step = wide
    while excess(low) > 0:
        high, low, step = low, low - step, 2 * step
        if step > _FARTHEST_LOGIT:  # all-zero rows and other sinks leave less than that
            fix = "more than that goes to sinks at every logit tried; give a larger mass"
            raise InputError("mass", mass, fix)
    step = wide
    while not excess(high) >= 0:  # also where it is NaN: both shares are 0 there
        low = high if excess(high) < 0 else low
        high, step = high + step, 2 * step
        if step > _FARTHEST_LOGIT:
            raise InputError("mass", mass, "is out of reach in float64; give a smaller mass")
    if low == high:
        return low
    root: Any = brentq(excess, low, high, xtol=1e-13)
    return float(root)


@names_parameters()
def sink_logit(
    mass: float, kernel: str | Kernel | Row, *, length: Any, **parameters: Any
) -> np.ndarray:
    """Return the logit b of a `SinkLogit` that takes a given mean mass.

    For exp in long rows it is about ln n + γ²/2 + the log odds of the mass.

    Args:
        mass: the wanted mean mass, in (0, 1).
        kernel: what the sink logit is added to, a `Row`, a built-in kernel's name, or a `Kernel`;
            other sinks of a row take their share of the mass.
        length: row lengths n, whole numbers ≥ 1, any shape.
        **parameters: of a kernel given without a row.

    Returns:
        b, in the shape of `length`, to about 1e−12: the odds of the mass are solved for.

    Raises:
        InputError: a mass outside (0, 1) or out of reach, or a row without an exact law.
    """
    mass = number("mass", mass, "must be between 0 and 1", lambda x: 0 < x < 1)
    row, n = row_of(kernel, parameters).scored(), LENGTH.check(length)
    if not n.size:
        raise InputError("length", length, "give at least one")
    with np.errstate(over="ignore", invalid="ignore"):  # far out in the tails, where nothing falls
        found = [_solve_sink_logit(mass, row, int(m)) for m in n.flat]
    return np.array(found, dtype=np.float64).reshape(n.shape)
