"""The sink logit that takes a wanted share of the attention, and how it must grow with n."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from sparsity.errors import InputError, number
from sparsity.finite.exact import exact
from sparsity.inversion.design import LENGTHS
from sparsity.inversion.sink_logit import sink_logit
from sparsity.kernels.parameters import GAMMA, LENGTH
from sparsity.rows.row import Row
from sparsity.rows.steps import SinkLogit

__all__ = ["SinkDesign", "SinkRequirement", "design_sink"]


@dataclass(frozen=True)
class SinkRequirement:
    """What one length requires.

    Args:
        length: n tokens beside the sink.
        logit: b, exactly.
        annealed: ln n + γ²/2 + ln(mass/(1−mass)), where no token matters by itself.
    """

    length: int
    logit: float
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
            lines.append(f"{row.length:>9}  {row.logit:<12.8g}  {row.annealed:.8g}")
        growth = "b must grow like ln n: a fixed logit loses its share in longer rows."
        return "\n".join([*lines, "", growth])


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
        InputError: a value outside its domain.
    """
    number("mass", mass, "must be between 0 and 1", lambda x: 0 < x < 1)
    checked = GAMMA.check(gamma), LENGTH.check(length)
    for name, value in zip(("gamma", "length"), checked, strict=True):
        if np.ndim(value):
            raise InputError(name, value, "give one number")
    spread, n = float(checked[0]), int(checked[1])
    odds, row = math.log(mass) - math.log1p(-mass), Row("exp", gamma=spread)
    logit = float(sink_logit(mass, row, length=n))
    others = LENGTH.check(lengths).reshape(-1)
    logits = sink_logit(mass, row, length=others) if len(others) else ()
    rows = tuple(
        SinkRequirement(int(m), float(b), math.log(m) + spread**2 / 2 + odds)
        for m, b in zip(others, logits, strict=True)
    )
    law = exact(row.then(SinkLogit(logit)), length=n, of="sink_mass")
    return SinkDesign(n, spread, mass, logit, float(law.value), float(law.error_bound), rows)
