"""The cells of the campaign: known troublemakers by name, every block, and compositions at random.

The same seed gives the same list, on every machine.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import sympy
from sympy import Abs, Rational

from benchmarks.campaign.blocks import BLOCKS, NAMED, s

__all__ = ["FILE", "SEED", "Cell", "cells", "load", "parse", "save", "text"]

SEED = 20260101
FILE = Path(__file__).parent.parent / "results" / "campaign.json"
STEPS = ("stairs", "fine stairs", "thirds", "square wave", "late step")
PLACES, STEP_PLACES, COMPOSED = 5, 30, 760


@dataclass
class Cell:
    """A kernel at a place, and once it is known log S to 30 digits.

    Args:
        kernel: the SymPy expression as text that gives it back.
        beta, gamma: hexadecimal floats.
        kind: "named", "block" or "composed".
        log_S: decimal, or None where there is no value.
        method: how it was found; "infinite", "not real" or "none: why" where it was not.
        seconds: what it took.
    """

    kernel: str
    beta: str
    gamma: str
    kind: str
    log_S: str | None = None
    method: str = ""
    seconds: float = 0.0

    @property
    def key(self) -> tuple[str, str, str]:
        return self.kernel, self.beta, self.gamma


# Silent errors of float64, of first meshes and of asymptotics have all been seen at these places.
TROUBLE: tuple[tuple[str, tuple[tuple[float, float], ...]], ...] = (
    ("softplus", ((-1100, 3), (-2000, 1), (-60, 1), (800, 1))),
    ("softplus 10", ((-15, 0.3), (-4, 0.1), (0, 1))),
    ("softplus 4", ((-35, 0.5), (-10, 2))),
    ("1 + tanh", ((-75, 0.5), (-20, 0.5), (-400, 30))),
    ("1 - tanh", ((100, 0.5), (19, 0.2))),
    ("gelu", ((-16, 0.2), (-40, 1), *((b, 1) for b in (-13.5, -15, -18, -20, -25, -30)))),
    ("cos above half", ((0, 30), (0, 300), (0.5, 3), (1, 100))),
    ("exp cos", ((0, 30), (0.3, 1), (0, 1000))),
    ("needle", ((0, 1), (0, 30), (1.2345, 1e-3), (5, 1))),
    ("far needle", ((0, 10), (0, 3), (33, 1))),
    ("indicator", ((0, 1), (1, 1e-3), (1, 1e-6), (-3, 1))),
    ("sinc", ((0, 1), (0.3, 20), (5, 0.1), (0, 1e-3))),
    ("tanh over s", ((0, 1), (0.3, 200), (-8, 1))),
    ("bose", ((0, 1), (-30, 3), (50, 2), (0, 300))),
    ("flat at 0", ((0, 1), (0, 0.05), (0.5, 0.1), (0, 100))),
    ("inverse root", ((0, 1), (2, 1), (30, 1), (0, 1e-3))),
    ("root of abs", ((0, 1), (-3, 1))),
    ("log abs", ((0, 1), (1, 0.01), (0, 1000), (-1, 1e-3))),
    ("cos", ((0, 1e4), (1.57, 0.01), (0, 2))),
    ("gauss", ((0, 1), (0, 1e4), (20, 1), (-200, 1))),
    ("taylor 24", ((0, 2), (-8, 1), (-20, 3), (0, 30))),
    ("log 1 + s^2", ((0, 1), (0, 1e-3), (0.3, 1000))),
    ("log cosh", ((0, 1), (0, 1e-3), (-100, 3), (0.3, 1000))),
    ("root minus s", ((1e6, 1), (30, 1000), (-5, 1))),
    ("softpick", ((-20, 1), (0, 1e-3), (3, 2))),
    ("exp", ((0, 1e4), (-200, 1), (7, 1e-3))),
)
EXTRA: tuple[tuple[Any, float, float], ...] = (
    (sympy.exp(s**2 / 8), 0, 1),
    (sympy.exp(s**2 / 8), 0, 2),  # no second moment
    (sympy.exp(sympy.exp(s)), 0, 1),  # none at all
    (1 / s, 0, 1),
    (1 / s, 40, 1),
    (Abs(s) ** Rational(-1, 2), 0.3, 1),
    (sympy.sqrt(s), 0, 1),  # not real
    (sympy.log(s), 5, 1),
)


def text(expression: Any) -> str | None:
    """The shortest text from which SymPy makes the same expression again; None if there is none."""
    for form in (str(expression), sympy.srepr(expression)):
        try:
            if parse(form) == expression:
                return form
        except (TypeError, ValueError, SyntaxError, AttributeError):
            continue
    return None


def parse(form: str) -> Any:
    """The expression of a text that this project has written."""
    read: Any = sympy.sympify
    return read(form, locals={"s": s})


def _place(rng: np.random.Generator) -> tuple[float, float]:
    """γ over seven decades; β at the origin, near it, or as many as 200 γ away."""
    gamma = 10 ** rng.uniform(-3, 4)
    kind = rng.random()
    if kind < 0.2:  # by the features of kernels of order one
        return float(rng.uniform(-5, 5)), float(min(gamma, 1e3 * gamma**0.25))
    if kind < 0.35:
        return 0.0, float(gamma)
    if kind < 0.7:
        return float(rng.uniform(-4, 4) * gamma), float(gamma)
    size = np.exp(rng.uniform(np.log(4), np.log(200)))
    return float(rng.choice([-1, 1]) * size * gamma), float(gamma)


def _rounded(x: float) -> Any:
    """A number as people write it: a fraction or a float of two digits."""
    return Rational(round(x * 100), 100) if x * 1000 % 2 < 1 else sympy.Float(round(x, 2))


def _moved(rng: np.random.Generator) -> Any:
    """A block, perhaps scaled, shifted or raised to a power."""
    name, block = BLOCKS[rng.integers(len(BLOCKS))]
    if rng.random() < 0.4:
        scale = (Rational(1, 10), Rational(1, 2), 2, 3, 10, -1)[rng.integers(6)]
        block = block.subs(s, scale * s)
    if rng.random() < 0.5:
        shift = _rounded(float(rng.normal() * 10 ** rng.uniform(-1, 1.3)))
        if name == "bose":  # a float would move the pole off the zero
            shift = Rational(str(shift))
        block = block.subs(s, s - shift)
    if rng.random() < 0.2:
        power = (2, 3, Rational(2, 3))[rng.integers(3)]
        block = block**power if power in (2, 3) else Abs(block) ** power
    return block


def _composed(rng: np.random.Generator) -> Any:
    parts = [_moved(rng) for _ in range(1 + int(rng.integers(3)))]
    if rng.random() < 0.5:
        return sympy.Mul(*parts)
    return sympy.Add(*(Rational(int(rng.integers(1, 50)), 10) * part for part in parts))


def _made(expression: Any, beta: float, gamma: float, kind: str) -> Cell | None:
    form = text(expression)
    if form is None or not expression.free_symbols or len(form) > 700:
        return None
    return Cell(form, float(beta).hex(), float(gamma).hex(), kind)


def _named(rng: np.random.Generator) -> Iterator[Cell | None]:
    for name, places in TROUBLE:
        for beta, gamma in places:
            yield _made(NAMED[name], beta, gamma, "named")
    for expression, beta, gamma in EXTRA:
        yield _made(expression, beta, gamma, "named")
    poles = _made(sympy.tan(s), 0, 1, "named")
    if poles:  # too many for the reference to follow
        poles.method = "infinite"
        yield poles
    for name in STEPS:
        yield _made(NAMED[name], -0.027, 1.422, "named")
        for _ in range(STEP_PLACES - 1):
            gamma = 10 ** rng.uniform(-2, 2.3)
            spread = rng.choice([0.0, 1.0, 3.0, 20.0])
            yield _made(NAMED[name], float(rng.uniform(-1, 1) * spread * gamma), gamma, "named")


def cells(seed: int = SEED) -> list[Cell]:
    """All cells, without values; the first ones already mix all kinds."""
    rng = np.random.default_rng(seed)
    named = [x for x in _named(rng) if x]
    blocks = [_made(b, *_place(rng), "block") for _ in range(PLACES) for _, b in BLOCKS]
    composed = [_made(_composed(rng), *_place(rng), "composed") for _ in range(COMPOSED)]
    found: dict[tuple[str, str, str], Cell] = {}
    lists = [named, [x for x in blocks if x], [x for x in composed if x]]
    for i in range(max(map(len, lists))):
        for group in lists:
            if i < len(group):
                found.setdefault(group[i].key, group[i])
    return list(found.values())


def load(path: Path = FILE) -> list[Cell]:
    """Stored cells; none where there is no file."""
    if not path.exists():
        return []
    return [Cell(**entry) for entry in json.loads(path.read_text(encoding="utf-8"))]


def save(found: list[Cell], path: Path = FILE) -> None:
    """One cell a line, whole or not at all."""
    lines = [json.dumps(asdict(cell), ensure_ascii=False) for cell in found]
    spare = path.with_suffix(".tmp")
    spare.write_text("[\n" + ",\n".join(lines) + "\n]\n", encoding="utf-8")
    spare.replace(path)
