"""The cells of the campaign over rows of n: kernels, maps, steps, laws of scores, quantities."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from benchmarks.campaign.row_reference import KERNELS, PAIRS

__all__ = ["Cell", "draw", "row_of"]

QUANTITIES = ("n_eff", "S", "participation", "entropy", "power_sum", "hoyer",
              "kl_uniform", "varentropy", "abs_sum", "square_sum", "weight")  # fmt: skip
RANKS = ("max_weight", "gini", "top_k_mass", "keys_for_mass",
         "below", "mass_below", "tiles_below", "tiles_mass_below")  # fmt: skip
RANKED = ("exp", "identity", "relu2", "relu", "power4", "abs")  # kernels with a law of ranks
SINKS = ("sink_mass", "sink_mass_above")
NEEDLES = ("needle_mass", "needle_signal", "needle_largest",
           "needle_odds_above", "needle_snr_above", "needle_recall")  # fmt: skip
OF_EXP = ("sink_mass_above", "needle_odds_above", "needle_snr_above", "needle_recall")
NORMAL = ("needle_largest",)  # of normal scores alone
OF_MODELS = ("chunk", "floor-log", "log-n", "yarn", "longrope", "scale-invariant", "soft-cap",
             "gate")  # fmt: skip
ALIKE = ("window", "chunk", "floor-log", "log-n", "yarn", "longrope", "length-bias", "gate",
         "scalable-softmax")  # fmt: skip
LONG = (4, 5, 8, 16, 40, 64, 100, 256, 1000, 4096)
SAMPLE = (-1.5, -1.5, -0.5, -0.25, 0.0, 0.75, 0.8, 1.5, 2.5)
OF_MAPS = {
    "sparsemax": ("S", "n_eff", "participation", "max_weight", "support", "hoyer"),
    "entmax1.5": ("S", "n_eff", "participation", "max_weight", "support"),
    "topk": ("S", "n_eff", "participation", "entropy", "power_sum", "hoyer", "kl_uniform",
             "varentropy", "support"),
    "router": ("S", "n_eff", "participation", "abs_sum"),
    "tile-softmax": ("below", "mass_below", "tiles_below", "tiles_mass_below"),
}  # fmt: skip


@dataclass(frozen=True)
class Cell:
    """What is asked of the library, and of the reference.

    Args:
        kernel: its name or formula.
        parameters: its numbers.
        steps: (name, numbers) of each.
        scores: (name, numbers) of their law; None for normal scores.
        length: n.
        of: the quantity.
        seed: of the sample.
    """

    kernel: str
    parameters: dict[str, float]
    steps: tuple[tuple[str, Any], ...]
    scores: tuple[str, Any] | None
    length: int
    of: str
    seed: int

    @property
    def mapped(self) -> bool:
        """Whether the kernel is a map of whole rows."""
        return self.kernel.partition(":")[0] in OF_MAPS

    @property
    def key(self) -> str:
        """The cell as JSON, from which it can be made again."""
        return json.dumps(asdict(self))

    @classmethod
    def of_key(cls, key: str) -> Cell:
        given = json.loads(key)
        given["steps"] = tuple((name, own) for name, own in given["steps"])
        given["scores"] = given["scores"] and tuple(given["scores"])
        return cls(**given)

    def __str__(self) -> str:
        own = ", ".join(f"{name} {x:.6g}" for name, x in self.parameters.items())
        steps = [f"{name}:{','.join(map(str, own))}" for name, own in self.steps]
        law = [] if self.scores is None else [f"{self.scores[0]} {self.scores[1]}"]
        return f"`{self.kernel}` {own}; {' '.join([*law, *steps]) or 'no steps'}"


def row_of(cell: Cell) -> Any:
    """The library's row."""
    import sparsity
    from sparsity.rows import score_laws, steps

    known = {step.name: step for step in steps.ALL}
    made = tuple(known[name](*own) for name, own in cell.steps)
    law = None
    if cell.scores is not None:
        name, own = cell.scores
        law = {each.name: each for each in (*score_laws.ALL, steps.QKNorm)}[name](*own)
    return sparsity.Row(cell.kernel, steps=made, scores=law, **cell.parameters)


def _digits(x: float) -> float:
    return float(f"{x:.5g}")


def _gamma(rng: np.random.Generator) -> float:
    return _digits(math.exp(rng.uniform(math.log(1e-2), math.log(30))))


def _number(of: str, rng: np.random.Generator, n: int) -> str:
    """A quantity with its numbers, where it takes any."""
    ratio, rho = -_digits(math.exp(rng.uniform(-4, 3))), _digits(rng.uniform(-1, 1))
    rho = rho if rng.random() < 0.8 else float(rng.choice([-1.0, 0.0, 0.99, 1.0]))
    own = {
        "weight": (int(rng.integers(1, n + 1)),),
        "keys_for_mass": (_digits(rng.uniform(0.02, 0.98)),),
        "below": (ratio,),
        "mass_below": (ratio,),
        "tiles_below": (ratio, int(rng.choice([1, 2, 3, 7, 16, 128]))),
        "tiles_mass_below": (ratio, int(rng.choice([1, 2, 3, 7, 16, 128]))),
        "overlap": (rho,),
        "top_k_overlap": (int(rng.choice([1, 2, 3, 8, 40, 100])), rho),
        "needle_odds_above": (_digits(math.exp(rng.uniform(-4, 3))),),
        "needle_snr_above": (_digits(math.exp(rng.uniform(-4, 3))),),
        "needle_recall": (int(rng.choice([2, 3, 16, 256])),),
    }
    if of in own:
        return f"{of}:{','.join(map(str, own[of]))}"
    if of == "power_sum":
        orders = (0.5, 0.7, 0.9, 1.1, 1.5, 2, 3, 4.5, 7.5, 8)
        return f"{of}:{orders[rng.integers(len(orders))]}"
    if of == "top_k_mass":
        return f"{of}:{(1, 2, 3, 4, 8, 64, 65, 300)[rng.integers(8)]}"
    return f"{of}:{_digits(rng.uniform(0.02, 0.95))}" if of == "sink_mass_above" else of


def _step(name: str, rng: np.random.Generator) -> tuple[str, Any]:
    own: dict[str, Any] = {
        "decay": lambda: (_digits(rng.uniform(0.3, 1.0)),),
        "alibi": lambda: (_digits(math.exp(rng.uniform(-7, 1))),),
        "window": lambda: (int(rng.choice([1, 2, 3, 8, 64])), int(rng.choice([0, 0, 1, 4]))),
        "scalable-softmax": lambda: (_digits(rng.uniform(0.1, 1.0)), float(rng.choice([0, 0.5]))),
        "length-bias": lambda: (_digits(rng.uniform(-1.5, 1.0)),),
        "sink-logit": lambda: (_digits(rng.uniform(-6, 12)),),
        "sink": lambda: (
            _digits(rng.uniform(-4, 8)),
            _digits(rng.choice([0.0, rng.uniform(0, 3)])),
        ),
        "rope": lambda: (
            tuple(map(_digits, rng.normal(size=2))),
            tuple(map(_digits, rng.normal(size=2))),
            _digits(rng.uniform(0.1, 2)),
        ),
        "chunk": lambda: (int(rng.choice([1, 2, 3, 8, 64])),),
        "floor-log": lambda: (
            _digits(rng.uniform(0.05, 0.5)),
            int(rng.choice([1, 2, 8, 100])),
            int(rng.integers(2)),
        ),
        "log-n": lambda: (int(rng.choice([2, 4, 64])), float(rng.choice([0.5, 1, 2]))),
        "longrope": lambda: (_digits(math.exp(rng.uniform(0, 4))), int(rng.choice([64, 4096]))),
        "soft-cap": lambda: (_digits(math.exp(rng.uniform(-1, 4))),),
        "gate": lambda: (_digits(rng.uniform(0.05, 1)),),
        "needle": lambda: (
            _digits(rng.uniform(-4, 8)),
            _digits(rng.choice([0.0, rng.uniform(0, 3)])),
        ),
        "needle-above": lambda: (
            _digits(rng.uniform(-2, 8)),
            _digits(rng.choice([0.0, rng.uniform(0, 3)])),
        ),
        "yarn": lambda: (_digits(math.exp(rng.uniform(0, 4))),),
        "scale-invariant": lambda: (_digits(math.exp(rng.uniform(-1, 4))),),
    }
    return name, own[name]()


def _law(rng: np.random.Generator) -> tuple[str, Any] | None:
    kind = rng.choice(["normal", "uniform", "t", "mixture", "empirical", "qk-norm"],
                      p=[0.6, 0.08, 0.08, 0.08, 0.08, 0.08])  # fmt: skip
    if kind == "normal":
        return None
    if kind == "t":
        return "t", (float(rng.choice([2.5, 4.0, 7.0, 12.0, 40.0])),)
    if kind == "qk-norm":
        return "qk-norm", (int(rng.choice([2, 3, 4, 16, 64])),)
    if kind == "empirical":
        return "empirical", (SAMPLE,)
    if kind == "mixture":
        far, narrow = _digits(rng.uniform(-4, 4)), _digits(rng.choice([0.0, 0.1, 1.0]))
        return "mixture", (((0.8, 0.0, 1.0), (0.2, far, narrow)),)
    return "uniform", ()


def _mapped(rng: np.random.Generator, n: int, seed: int) -> Cell:
    family = str(rng.choice(list(OF_MAPS)))
    own, number = {"gamma": _gamma(rng)}, ""
    if family in ("topk", "router"):
        number = f":{int(rng.choice([1, 2, 3, 8, 40]))}"
    if family == "router":
        own["rho"] = _digits(rng.uniform(0.3, 1)) if rng.random() < 0.8 else 1.0
    of = _number(str(rng.choice(OF_MAPS[family])), rng, n)
    if family == "tile-softmax":
        size = int(of.partition(",")[2] or 1)
        number = f":{size * int(rng.choice([1, 2, 4]))}"
        own["within"] = _digits(rng.uniform(0, 0.95)) if rng.random() < 0.8 else 0.0
    return Cell(family + number, own, (), None, min(n, 1000), of, seed)


def _steps(names: tuple[str, ...], most: int, rng: np.random.Generator) -> list[Any]:
    return [_step(str(name), rng) for name in rng.choice(names, rng.integers(0, most))]


def _one(rng: np.random.Generator, seed: int) -> Cell:
    n = int(rng.choice([1, 2, 3, 0], p=[0.15, 0.25, 0.15, 0.45]) or rng.choice(LONG))
    if rng.random() < 0.15:
        return _mapped(rng, n, seed)
    own = {"beta": _digits(rng.uniform(-10, 10)), "gamma": _gamma(rng)}
    kinds = {"sums": QUANTITIES, "ranks": RANKS, "sinks": SINKS, "needles": NEEDLES, "pairs": PAIRS}
    kind = str(rng.choice(list(kinds), p=[0.45, 0.2, 0.1, 0.15, 0.1]))
    of = _number(str(rng.choice(kinds[kind])), rng, n)
    name = of.partition(":")[0]
    if kind in ("ranks", "pairs"):
        kernel = "exp" if kind == "pairs" else str(rng.choice(RANKED))
        return Cell(kernel, own, tuple(_steps(ALIKE, 3, rng)), None, n, of, seed)
    names = ["decay", "alibi", "window", "scalable-softmax", "length-bias", "sink-logit", "sink"]
    weights = [0.12, 0.12, 0.16, 0.1, 0.1, 0.25, 0.15]
    steps = [_step(str(name), rng) for name in rng.choice(names, rng.integers(0, 4), p=weights)]
    if rng.random() < 0.07:
        steps.insert(0, _step("rope", rng))
    scores = None if kind != "sums" and rng.random() < 0.5 else _law(rng)
    kernel = str(rng.choice(list(KERNELS)))
    if rng.random() < 0.35:
        kernel = "exp"
    if kind == "sinks":
        steps.append(_step(str(rng.choice(["sink-logit", "sink"])), rng))
    if kind == "needles":
        marked = _step(str(rng.choice(["needle", "needle-above"])), rng)
        steps.insert(rng.integers(len(steps) + 1), marked)
    if name in OF_EXP:  # its law is of softmax with normal scores
        kernel = "exp"
    if name in OF_EXP + NORMAL:
        scores = None
    if rng.random() < 0.35:
        steps.insert(rng.integers(len(steps) + 1), _step(str(rng.choice(OF_MODELS)), rng))
    return Cell(kernel, own, tuple(steps), scores, n, of, seed)


def draw(count: int, seed: int) -> list[Cell]:
    """So many cells; those of a smaller count come first."""
    return [_one(np.random.default_rng([seed, i]), i) for i in range(count)]
