"""The sink logit that takes a wanted share of the attention, and how it must grow with n."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from sparsity.design import LENGTHS
from sparsity.errors import InputError
from sparsity.finite_rows import sink_mass
from sparsity.kernels.parameters import GAMMA, LENGTH
from sparsity.levers import invert
from sparsity.row_law import number
from sparsity.scores import RowLaw, Unit

__all__ = ["SinkDesign", "SinkRequirement", "design_sink"]

_RESOLVED = 1e-6  # error of the log odds of a mass, from which on its logit is not given


@dataclass(frozen=True)
class SinkRequirement:
    """What one length requires.

    Args:
        length: n tokens beside the sink.
        logit: b, exactly; None where the law does not resolve it.
        annealed: ln n + γ²/2 + ln(mass/(1−mass)), where no token matters by itself.
    """

    length: int
    logit: float | None
    annealed: float


@dataclass(frozen=True)
class SinkDesign:
    """A sink beside n softmax logits s ~ N(0, γ²).

    Args:
        length: n.
        gamma: spread γ of the logits.
        wanted: the mean mass asked for.
        logit: b, of the sink.
        mass: exact mean mass at this logit.
        error_bound: bound on its relative error.
        requirements: the logit at other lengths, for the same mass.
    """

    length: int
    gamma: float
    wanted: float
    logit: float
    mass: float
    error_bound: float
    requirements: tuple[SinkRequirement, ...]

    def summary(self) -> dict[str, Any]:
        """JSON-ready."""
        return asdict(self)

    def text(self) -> str:
        """For people."""
        lines = [
            f"a sink with a share of {self.wanted:g} beside n = {self.length} tokens of spread "
            f"γ = {self.gamma:g} needs the logit b = {self.logit:.10g}",
            f"check    mass = {self.mass:.12g} ± {self.error_bound:.0e}",
            "",
            f"{'n':>9}  {'b':<12}  ln n + γ²/2 + ln(m/(1−m))",
        ]
        for row in self.requirements:
            logit = "not resolved" if row.logit is None else f"{row.logit:<12.8g}"
            lines.append(f"{row.length:>9}  {logit}  {row.annealed:.8g}")
        growth = "b must grow like ln n: a fixed logit loses its share in longer rows."
        return "\n".join([*lines, "", growth])


def _mass(logit: float, length: int, gamma: float) -> tuple[float, float]:
    """Exact mean mass and the bound on its relative error; the bound is not finite at a mass 0."""
    with np.errstate(invalid="ignore", divide="ignore"):
        mass, bound = sink_mass("exp", RowLaw(0.0, gamma).then(Unit(logit)), length)
    return float(mass), float(bound)


def _logit(odds: float, length: int, gamma: float) -> float | None:
    """The logit at which the mass has these log odds; None where the law does not resolve it.

    With Gaussian logits there is one for every mass, so that None speaks of the computation only.
    """

    def excess(b: float) -> float:
        mass, bound = _mass(b, length, gamma)
        if not (bound < _RESOLVED and mass > 1e-290):  # too little to be told from nothing
            return -1e3
        return math.log(mass / max(1 - mass, 1e-17)) - odds

    top, most = gamma * math.sqrt(2 * math.log(length)), math.log(length) + gamma**2 / 2
    found = invert(excess, (-1e3 - 40 * gamma, 1e3 + 40 * gamma), min(top, most) + odds)
    if found is None:
        return None
    mass, bound = _mass(found, length, gamma)
    known = abs(excess(found)) < _RESOLVED and bound < _RESOLVED * (1 - mass)
    return found if known else None


def design_sink(
    mass: float, *, length: int, gamma: float, lengths: Sequence[int] = LENGTHS
) -> SinkDesign:
    """The logit b at which a sink beside `length` Gaussian logits takes that mass on average.

    Solves ∫₀^∞ e^b e^(−te^b) (E e^(−te^(γε)))^n dt = mass.

    Args:
        mass: wanted mean mass, in (0, 1).
        length: n ≥ 1, the tokens beside the sink.
        gamma: their spread γ > 0.
        lengths: the other lengths for which the logit is given.

    Raises:
        InputError: a value outside its domain, or a mass whose logit the law does not resolve.
    """
    number("mass", mass, "must be between 0 and 1", lambda x: 0 < x < 1)
    for name, value in (("gamma", GAMMA.check(gamma)), ("length", LENGTH.check(length))):
        if np.ndim(value):
            raise InputError(name, value, "give one number")
    n, spread = int(length), float(gamma)
    odds = math.log(mass / (1 - mass))
    logit = _logit(odds, n, spread)
    if logit is None:
        fix = f"its logit beside n = {n} tokens of spread {spread:g} is not resolved; ask for a "
        raise InputError("mass", mass, f"{fix}mass nearer to 1/2")
    rows = tuple(
        SinkRequirement(
            int(other), _logit(odds, int(other), spread), math.log(other) + spread**2 / 2 + odds
        )
        for other in LENGTH.check(lengths).tolist()
    )
    return SinkDesign(n, spread, mass, logit, *_mass(logit, n, spread), rows)
