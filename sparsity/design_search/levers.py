"""Levers: the one free parameter of a kernel in a row of n, and the n_eff it can reach.

Each is a coordinate x in which the exact n_eff rises, so that a bracketed search inverts it.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from scipy.optimize import brentq

from sparsity.exact_law.exact import exact
from sparsity.exact_law.regimes import condensed_share
from sparsity.kernels import Kernel, decayed, exp, identity


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
class Lever:
    """The free parameter at one length, as a coordinate x in which n_eff rises.

    Args:
        free: the kernel's parameter that is solved for.
        parameters: x -> all of the kernel's parameters.
        ends: the range of x over which the law can be computed.
        start: a first guess of x.
        reach: what can be attained.
        unit: of the free parameter; other than 1 for the scale s in γ = γ₀·s·ln n.
    """

    free: str
    parameters: Callable[[float], dict[str, Any]]
    ends: tuple[float, float]
    start: float
    reach: Reach
    unit: float = 1.0

    def value(self, x: float) -> float:
        return self.parameters(x)[self.free] / self.unit


def _spread(length: float, wanted: float, given: dict[str, float]) -> Lever:
    """Softmax: γ = e^(−x); the first guess from the annealed or the condensed law."""
    fewer = max(math.log(length / wanted), 1e-12) if wanted < length else 1.0
    guess = math.sqrt(fewer)
    if wanted > 1 and 2 * fewer > math.log(length):
        guess = math.sqrt(2 * math.log(length)) / condensed_share(wanted)
    return Lever(
        free="gamma",
        parameters=lambda x: {"beta": given.get("beta", 0.0), "gamma": math.exp(-x)},
        ends=(-math.log(300.0), -math.log(1e-7)),
        start=-math.log(guess),
        reach=Reach(1.0, length, False, False, "1 for γ → ∞, all of them for γ → 0"),
        unit=given["gamma"] * math.log(length) if "gamma" in given else 1.0,
    )


def _bias(kernel: Kernel, length: float, given: dict[str, float]) -> Lever:
    """Squared ReLU and signed linear: β/γ = sinh x is all that counts; either of them is free."""
    even = kernel is identity
    beta, gamma = given.get("beta"), given.get("gamma", 1.0)
    centre = float(exact(kernel, length=length, gamma=1.0, beta=0.0).value)
    floor = f"S ≥ √(2/π) whatever the bias, a floor of {centre:.7g} tokens (2n/π in long rows)"
    low, zero, high = -math.asinh(30.0), math.asinh(1e-8), math.asinh(1e7)

    def at(x: float) -> dict[str, Any]:
        if beta is None:
            return {"beta": gamma * math.sinh(x), "gamma": gamma}
        return {"beta": beta, "gamma": abs(beta / math.sinh(x)) if beta else gamma}

    if beta is None:
        if even:
            reach = Reach(centre, length, True, False, floor)
            return Lever("beta", at, (0.0, high), 1.0, reach)
        why = "1 for β/γ → −∞, all of them for β/γ → ∞"
        return Lever("beta", at, (low, high), -1.0, Reach(1.0, length, False, False, why))
    if beta == 0:
        why = "at β = 0 it does not depend on γ" + (f"; {floor}" if even else "")
        return Lever("gamma", at, (0.0, 0.0), 0.0, Reach(centre, centre, True, True, why))
    if even or beta > 0:
        why = floor if even else f"without a negative bias a floor of {centre:.7g} tokens"
        return Lever("gamma", at, (zero, high), 1.0, Reach(centre, length, False, False, why))
    why = f"1 for γ → 0, with this bias at most {centre:.7g} tokens, for γ → ∞"
    return Lever("gamma", at, (low, -zero), -1.0, Reach(1.0, centre, False, False, why))


def _window(length: float, wanted: float) -> Lever:
    """Decay: λ = 1/(1 + e^(−x)), 1 at x = 40; the first guess is that of an endless row."""
    return Lever(
        free="decay",
        parameters=lambda x: {"decay": 1 / (1 + math.exp(-x))},
        ends=(-50.0, 40.0),
        start=40.0 if wanted == length else math.log(max(wanted - 1, 1e-12) / 2),
        reach=Reach(1.0, length, False, True, "1 for λ → 0, all of them at λ = 1"),
    )


def lever(kernel: Kernel, length: float, wanted: float, given: dict[str, float]) -> Lever:
    """The lever of a kernel.

    Args:
        kernel: exp, relu2, identity or decayed.
        length: n ≥ 2.
        wanted: the n_eff that will be asked for, for the first guess.
        given: the parameters that are not free.
    """
    if kernel is exp:
        return _spread(length, wanted, given)
    return _window(length, wanted) if kernel is decayed else _bias(kernel, length, given)


def invert(
    excess: Callable[[float], float], ends: tuple[float, float], start: float
) -> float | None:
    """The zero of a rising function: bracketed by doubling steps from `start`, then Brent's method.

    Args:
        excess: the function.
        ends: where it may be evaluated.
        start: a first guess.

    Returns:
        The zero; None if there is none between the ends.
    """
    excess = functools.cache(excess)
    here = min(max(start, ends[0]), ends[1])
    up, step = excess(here) < 0, 0.1
    while excess(here) != 0:
        there = min(here + step, ends[1]) if up else max(here - step, ends[0])
        if excess(here) * excess(there) <= 0:
            return float(brentq(excess, here, there, xtol=1e-12))  # type: ignore[arg-type]
        if there in ends:
            return None
        here, step = there, 2 * step
    return here
