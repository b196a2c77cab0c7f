"""Worst cases, searched: boxes of parameters are halved where the greatest error was found.

As in searches for the worst input of a library's functions (Zimmermann et al., "Accuracy of
Mathematical Functions"), the function is a black box. Two steps in three halve the box with the
greatest error found so far along its longest side and ask at random in both halves, until it is
tiny; the third halves the largest box, so that no part of the space stays unseen.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from benchmarks.recorded.cells import Cell
from benchmarks.recorded.inputs import (
    CHANCES,
    INTEGRALS,
    OF_DECAYED,
    OF_SOFTMAX,
    OF_THRESHOLD_MAPS,
    POWERS,
    STEPS_OF_LIMITS,
    STEPS_OF_ROWS,
)
from benchmarks.recorded.score_laws import WEIGHTS

SEED = 42
_FIRST, _IN_A_HALF = 16, 3  # questions asked before any box is halved, and in each half
_EXPLORED = 3  # every third box is the largest one
_LEAST_SIDE = 2.0**-12  # of a box that is halved further: rounding looks alike all over it


@dataclass(frozen=True)
class Axis:
    """A parameter between two ends.

    Args:
        name: of the parameter.
        low, high: the ends.
        scale: "linear", "log", "whole" (log, and rounded) or "both" (sinh: log to both sides of 0).
    """

    name: str
    low: float
    high: float
    scale: str = "log"

    def at(self, share: float) -> float:
        """Return the value at a share of the way, 0 to 1."""
        if self.scale == "linear":
            return self.low + share * (self.high - self.low)
        if self.scale == "both":
            low, high = math.asinh(self.low), math.asinh(self.high)
            return math.sinh(low + share * (high - low))
        value = self.low * (self.high / self.low) ** share
        return round(value) if self.scale == "whole" else value


@dataclass(frozen=True)
class Space:
    """The questions among which the worst is searched.

    Args:
        axes: what they differ in.
        make: (values by name) -> the question.
        budget: how many are asked.
    """

    axes: tuple[Axis, ...]
    make: Callable[[dict[str, Any]], Cell]
    budget: int

    @property
    def member(self) -> str:
        """Whose questions they are."""
        return self.make({axis.name: axis.at(0.5) for axis in self.axes}).member


@dataclass(eq=False)
class _Box:
    low: np.ndarray
    high: np.ndarray
    asked: list[tuple[np.ndarray, float]] = field(default_factory=list)

    @property
    def worst(self) -> float:
        return max((error for _, error in self.asked), default=-math.inf)

    @property
    def size(self) -> float:
        return float(np.max(self.high - self.low))

    @property
    def volume(self) -> float:
        return float(np.prod(self.high - self.low))

    def halves(self) -> tuple[_Box, _Box]:
        """Return the halves along the longest side, each with what was asked in it."""
        side = int(np.argmax(self.high - self.low))
        middle = (self.low[side] + self.high[side]) / 2
        left, right = _Box(self.low, self.high.copy()), _Box(self.low.copy(), self.high)
        left.high[side] = right.low[side] = middle
        for at, error in self.asked:
            (left if at[side] < middle else right).asked.append((at, error))
        return left, right


def find_worst(space: Space, error_of: Callable[[Cell], float]) -> tuple[Cell, int]:
    """Return the question with the greatest error, and how many had no answer.

    Args:
        space: what is asked.
        error_of: the error of a question; −∞ where it is refused.
    """
    rng = np.random.default_rng([SEED, *map(ord, space.member)])
    size = len(space.axes)
    boxes = [_Box(np.zeros(size), np.ones(size))]
    best: tuple[float, Cell | None] = (-math.inf, None)
    spent = refused = steps = 0

    def ask_in(box: _Box, count: int) -> None:
        nonlocal best, spent, refused
        for _ in range(min(count, space.budget - spent)):
            at = rng.uniform(box.low, box.high)
            values = {a.name: a.at(x) for a, x in zip(space.axes, at.tolist(), strict=True)}
            cell = space.make(values)
            error = error_of(cell)
            spent += 1
            refused += error == -math.inf
            box.asked.append((at, error))
            if error > best[0]:
                best = error, cell

    ask_in(boxes[0], _FIRST)
    while spent < space.budget:
        steps += 1
        if steps % _EXPLORED == 0:
            box = max(boxes, key=lambda each: each.volume)
        else:
            box = max(boxes, key=lambda each: (each.size > _LEAST_SIDE, each.worst))
        boxes.remove(box)
        for half in box.halves():
            ask_in(half, _IN_A_HALF)
            boxes.append(half)
    assert best[1] is not None, f"nothing is answered in the space of {space.member}"
    return best[1], refused


_GAMMA = Axis("gamma", 1e-6, 1e6)
_Z = Axis("z", -40, 1e6, "both")
_LENGTH = Axis("length", 2, 1e12, "whole")
_PLACE = Axis("place", -10, 30, "linear")
# (power, order) of the transforms that the laws use
_KINDS = ((1, None), (2, None), (2, 0.5), (1, 1.0), (2, 1.0), (1, 2.0))


def _asked(call: str, kernel: str, fixed: dict[str, Any]) -> Callable[[dict[str, Any]], Cell]:
    """Return what makes a question of values: z is β/γ, place that of the step that is named."""

    def make(at: dict[str, Any]) -> Cell:
        own = {"call": call, "kernel": kernel, **fixed, **at}
        if "z" in own:
            own["beta"] = own.pop("z") * own["gamma"]
        if "step" in own:
            own["steps"] = [[own.pop("step"), [own.pop("place")]]]
        if "kind" in own:
            own["power"], own["order"] = _KINDS[int(own.pop("kind"))]
        return Cell(own)

    return make


def _space(budget: int, call: str, kernel: str, *axes: Axis, **fixed: Any) -> Space:
    return Space(axes, _asked(call, kernel, fixed), budget)


def _limits() -> Iterator[Space]:
    for kernel in ("exp", "relu2", "identity", "abs"):
        yield _space(500, "evaluate", kernel, _Z, _GAMMA)
    ratio, dim = Axis("ratio", 1e-6, 1e6), Axis("dim", 1, 200, "whole")
    yield _space(500, "evaluate", "nonnegative", ratio, dim, query="half-normal")
    # λ = e^(−x) comes as near to 0 as to 1.
    decayed = _asked("evaluate", "decayed", {})
    axes = Axis("x", 1e-16, 690), Axis("length", 1, 1e12, "whole")
    yield Space(
        axes, lambda at: decayed({"decay": math.exp(-at["x"]), "length": at["length"]}), 2000
    )
    for kernel in WEIGHTS:
        spread = Axis("gamma", 1e-6, 1e3)
        yield _space(60, "evaluate", kernel, _Z, spread, method="quadrature")
    spread, length = Axis("gamma", 1e-3, 6), Axis("length", 10, 1e9, "whole")
    for of in OF_SOFTMAX:
        yield _space(100, "evaluate", "exp", spread, length, of=of, beta=0.3)
    for of, step in STEPS_OF_LIMITS:
        yield _space(100, "evaluate", "exp", spread, length, _PLACE, of=of, step=step)
    share = Axis("mix", 1e-3, 0.999, "linear"), Axis("rho", -1, 1, "linear")
    yield _space(200, "evaluate", "differential", spread, Axis("gamma2", 1e-3, 6), *share)
    gates = Axis("gate", -5, 15, "linear"), Axis("gate_spread", 1e-3, 5)
    yield _space(200, "evaluate", "forgetting", spread, *gates, length)
    features = Axis("features", 1, 1000, "whole"), Axis("dim", 1, 200, "whole")
    yield _space(200, "evaluate", "performer", spread, Axis("sigma", 1e-3, 0.7), *features)


def _transforms() -> Iterator[Space]:
    for kernel in WEIGHTS:
        place = Axis("z", -8, 8, "linear"), Axis("gamma", 0.05, 20)
        points = Axis("u", -30, 10, "linear"), Axis("kind", 0, len(_KINDS) - 1e-9, "linear")
        yield _space(60, "laplace", kernel, *place, *points)


def _rows() -> Iterator[Space]:
    spread = Axis("gamma", 0.13, 30)
    for of in {of.partition(":")[0]: of for of in INTEGRALS}.values():  # one of a member
        yield _space(24, "exact", "exp", spread, _LENGTH, of=of)
    for kernel in (*POWERS, "abs"):
        z = Axis("z", -40, 40, "both")
        yield _space(24, "exact", kernel, z, _LENGTH, of="n_eff", gamma=1.0)
    for kernel in ("relu2", "identity"):
        for of in ("S", "participation", "entropy", "power_sum:3"):
            z = Axis("z", -8, 8, "both")
            yield _space(24, "exact", kernel, z, _LENGTH, of=of, gamma=1.0)
    for of, step in STEPS_OF_ROWS:
        spread = Axis("gamma", 0.5, 20)
        yield _space(60, "exact", "exp", spread, _LENGTH, _PLACE, of=of, step=step)
    for of, step in CHANCES:
        spread, place = Axis("gamma", 0.05, 20), Axis("place", -5, 10, "linear")
        yield _space(100, "exact", "exp", spread, place, of=of, step=step, length=2)
    for of in ("S", "n_eff", "participation", "entropy"):
        spread, slope = Axis("gamma", 0.05, 10), Axis("place", 1e-3, 20)
        yield _space(60, "exact", "exp", spread, slope, of=of, step="alibi", length=2)
    for of in ("max_weight", "gini"):
        yield _space(16, "exact", "exp", Axis("gamma", 0.01, 30), of=of, length=2)


def _maps() -> Iterator[Space]:
    for of in OF_THRESHOLD_MAPS:
        yield _space(40, "exact", "sparsemax", Axis("gamma", 0.1, 10), of=of, length=2)
    decay, length = Axis("decay", 1e-300, 1), Axis("length", 1, 1e12, "whole")
    for of in OF_DECAYED:
        yield _space(200, "exact", "decayed", decay, length, of=of)


def spaces() -> list[Space]:
    """Return the spaces of all members whose laws and references take less than a second."""
    return [*_limits(), *_transforms(), *_rows(), *_maps()]
