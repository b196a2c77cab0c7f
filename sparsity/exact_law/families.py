"""Laws of a score that are near each other: they share the nodes of one of them, the reference.

The density of a normal law over that of another is e^(a + bt + ct²). A reference is a point of a
lattice: of β/γ in whole numbers, and of ln γ, or of γ where that turns a factor e^(as) of the
weight faster. It depends on a law alone, never on what else was asked.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy.special import ndtr

from sparsity.kernels.base import Kernel
from sparsity.kernels.numeric.definition import definition, period
from sparsity.limit.score_laws import between

_STEP = 0.125  # of ln γ, or of aγ/2
_TURN = 2.0  # the aγ from which it is that
_FARTHEST = 2.0**40  # β/γ beyond which the offset of a bias loses digits


def _shares(kernel: Kernel, gamma: float, scores: Any) -> bool:
    """Whether laws share nodes: scores are normal, f has no factor e^(cs²) and no period."""
    if scores is not None or not gamma > 0:
        return False
    return not definition(kernel).tilt[2] and not period(kernel.weight)


def _bend(kernel: Kernel) -> float:
    """The γ at which the lattice turns from one of ln γ to one of γ."""
    rate = abs(definition(kernel).tilt[1])
    return _TURN / rate if rate else math.inf


def _spread(x: float, bend: float) -> float:
    """The γ at a place of the lattice."""
    turn = math.log(bend)
    return math.exp(x) if x <= turn else bend * (1 + x - turn)


def _place(gamma: float, bend: float) -> float:
    return math.log(gamma) if gamma <= bend else math.log(bend) + gamma / bend - 1


def reference(kernel: Kernel, beta: float, gamma: float, scores: Any) -> tuple[float, float] | None:
    """β and γ of the law whose nodes a law shares; None where it has nodes of its own."""
    if not _shares(kernel, gamma, scores):
        return None
    bend = _bend(kernel)
    near = _spread(_STEP * round(_place(gamma, bend) / _STEP), bend)
    return (near * round(beta / near), near) if abs(beta) < _FARTHEST * near else None


def corners(kernel: Kernel, beta: float, gamma: float) -> tuple[np.ndarray, np.ndarray]:
    """β and γ of the laws that are farthest from a reference."""
    bend = _bend(kernel)
    ends = [_spread(_place(gamma, bend) + half * _STEP, bend) for half in (-0.5, 0.5)]
    biases = np.array([beta - gamma / 2, beta + gamma / 2])
    return np.tile(biases, 2), np.repeat(ends, 2)


def mass(
    beta: np.ndarray, gamma: np.ndarray, near: tuple[float, float], t: np.ndarray
) -> np.ndarray:
    """What laws have between places of the reference's standard score.

    Args:
        beta: of the laws.
        gamma: likewise.
        near: β and γ of the reference.
        t: the ends of the intervals, [2, intervals].
    """
    offset, ratio = (near[0] - beta) / gamma, near[1] / gamma
    low, high = (offset[..., None] + ratio[..., None] * end for end in t)
    return between(ndtr, low, high).sum(axis=-1)


def tilt(beta: np.ndarray, gamma: np.ndarray, near: tuple[float, float]) -> np.ndarray:
    """(a, b, c) with e^(a + bt + ct²) the density of laws over that of their reference, [..., 3].

    Args:
        beta: of the laws.
        gamma: likewise.
        near: β and γ of the reference, whose standard score is t.
    """
    offset, ratio = (beta - near[0]) / gamma, near[1] / gamma
    square = (gamma - near[1]) * (gamma + near[1]) / (2 * gamma**2)
    return np.stack([np.log(ratio) - offset**2 / 2, offset * ratio, square], axis=-1)
