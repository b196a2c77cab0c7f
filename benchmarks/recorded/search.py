"""Worst cases, searched: boxes of parameters are halved where the greatest error was found.

As in searches for the worst input of a library's functions (Zimmermann et al., "Accuracy of
Mathematical Functions"), the function is a black box. Two steps in three halve the box with the
greatest error found so far along its longest side and ask at random in both halves; the third
halves the largest box, so that no part of the space stays unseen.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from benchmarks.recorded.cells import Cell
from benchmarks.recorded.inputs import INTEGRALS, POWERS, THRESHOLD_MAPS, exact_cell
from benchmarks.recorded.score_laws import WEIGHTS

SEED = 42
_FIRST, _IN_A_HALF = 16, 3  # questions asked before any box is halved, and in each half
_EXPLORED = 3  # every third box is the largest one


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
        member: whose they are.
        axes: what they differ in.
        make: (values by name) -> the question.
        budget: how many are asked.
    """

    member: str
    axes: tuple[Axis, ...]
    make: Callable[[dict[str, Any]], Cell]
    budget: int


@dataclass
class _Box:
    low: np.ndarray
    high: np.ndarray
    asked: list[tuple[np.ndarray, float]] = field(default_factory=list)

    @property
    def worst(self) -> float:
        return max((error for _, error in self.asked), default=-math.inf)

    def halves(self) -> tuple[_Box, _Box]:
        """Return the halves along the longest side, each with what was asked in it."""
        side = int(np.argmax(self.high - self.low))
        middle = (self.low[side] + self.high[side]) / 2
        left, right = _Box(self.low, self.high.copy()), _Box(self.low.copy(), self.high)
        left.high[side] = right.low[side] = middle
        for at, error in self.asked:
            (left if at[side] < middle else right).asked.append((at, error))
        return left, right


def find_worst(space: Space, error_of: Callable[[Cell], float]) -> tuple[Cell, float, int]:
    """Return the question with the greatest error, that error, and how many had no answer.

    Args:
        space: what is asked.
        error_of: the error of a question; −inf where it is refused.
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
            box = max(boxes, key=lambda each: float(np.prod(each.high - each.low)))
        else:
            box = max(boxes, key=lambda each: each.worst)
        boxes.remove(box)
        for half in box.halves():
            ask_in(half, _IN_A_HALF)
            boxes.append(half)
    error, cell = best
    assert cell is not None, f"nothing is answered in the space of {space.member}"
    return cell, error, refused


_GAMMA = Axis("gamma", 1e-6, 1e6)
_Z = Axis("z", -40, 1e6, "both")
_LENGTH = Axis("length", 1, 1e12, "whole")


def _of_scores(member: str, unit: str, **fixed: Any) -> Callable[[dict[str, Any]], Cell]:
    def make(at: dict[str, Any]) -> Cell:
        place = {"beta": at["z"] * at["gamma"], "gamma": at["gamma"]}
        return Cell(member, {"call": "evaluate", **fixed, **place}, unit)

    return make


def _plain(member: str, unit: str, **fixed: Any) -> Callable[[dict[str, Any]], Cell]:
    return lambda at: Cell(member, {"call": "evaluate", **fixed, **at}, unit)


def _rows(of: str, kernel: str, **fixed: Any) -> Callable[[dict[str, Any]], Cell]:
    def make(at: dict[str, Any]) -> Cell:
        own = dict(at)
        if "z" in own:
            own["beta"] = own.pop("z") * own["gamma"]
        return exact_cell(of, kernel, int(own.pop("length", 2)), **fixed, **own)

    return make


def spaces() -> list[Space]:
    """Return the spaces of all closed forms, quadratures and exact laws that are searched."""
    found = []
    for kernel in ("exp", "relu2", "identity"):
        member = f"closed form: {kernel}"
        found.append(
            Space(member, (_Z, _GAMMA), _of_scores(member, "relative", kernel=kernel), 2000)
        )
    member = "closed form: nonnegative"
    for_features = _plain(member, "relative", kernel="nonnegative", query="half-normal")
    ratio, dim = Axis("ratio", 1e-6, 1e6), Axis("dim", 1, 200, "whole")
    found.append(Space(member, (ratio, dim), for_features, 1000))
    member = "closed form: decayed"
    for_decay = _plain(member, "relative", kernel="decayed")

    def decayed(at: dict[str, Any]) -> Cell:
        return for_decay({"decay": -math.expm1(-at["x"]), "length": at["length"]})

    # λ = 1 − e^(−x) comes as near to 0 as to 1
    found.append(Space(member, (Axis("x", 1e-16, 37), _LENGTH), decayed, 2000))
    for kernel in WEIGHTS:
        member = f"quadrature: {kernel}"
        make = _of_scores(member, "log", kernel=kernel, method="quadrature")
        found.append(Space(member, (_Z, Axis("gamma", 1e-6, 1e4)), make, 300))
    spread = Axis("gamma", 0.13, 30)
    for of in INTEGRALS:
        length = Axis("length", 2, 1e12, "whole")
        found.append(Space("", (spread, length), _rows(of, "exp"), 250))
    for kernel in POWERS:
        z = Axis("z", -40, 40, "both")
        found.append(Space("", (z, _LENGTH), _rows("n_eff", kernel, gamma=1.0), 100))
    for of in ("S", "participation", "entropy"):
        z = Axis("z", -8, 8, "both")
        found.append(Space("", (z, _LENGTH), _rows(of, "relu2", gamma=1.0), 60))
    for of in ("max_weight", "gini"):
        found.append(Space("", (Axis("gamma", 0.01, 30),), _rows(of, "exp"), 60))
    for kernel in THRESHOLD_MAPS[:2]:
        for of in ("n_eff", "participation", "max_weight"):
            found.append(Space("", (Axis("gamma", 0.1, 10),), _rows(of, kernel), 25))
    for of in ("participation", "entropy"):
        axes = Axis("z", -4, 2, "linear"), Axis("gamma", 0.2, 3), Axis("length", 2, 500, "whole")
        found.append(Space("", axes, _rows(of, "stick-breaking"), 60))
    for of in ("n_eff", "participation"):
        axes = Axis("gamma", 0.2, 4), Axis("length", 3, 1e9, "whole")
        found.append(Space("", axes, _rows(of, "topk:2"), 25))
    return [_named(space) for space in found]


def _named(space: Space) -> Space:
    """Return the space with the name of the member that its questions are to."""
    if space.member:
        return space
    member = space.make({axis.name: axis.at(0.5) for axis in space.axes}).member
    return Space(member, space.axes, space.make, space.budget)


