"""How much can a kernel that focuses recall? A bound by packing, beside trained layers.

The K keys of a layer cannot all be far from each other in R^d. Of pairs of directions the sums of
Gegenbauer polynomials of their cosines are nonnegative; a linear program finds, among all
distributions of cosines that obey this, that whose keys interfere least under a kernel f. Trained
layers are those of `random_keys`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure
from scipy.optimize import linprog
from scipy.special import eval_gegenbauer

from experiments import statistics
from experiments.frame import RESULTS, Experiment, Record, read_table

DEGREES, COSINES = 40, np.linspace(-1, 0.999, 2000)  # of the polynomials; where there may be pairs


@dataclass(frozen=True)
class Settings:
    """What is compared: trained relu² of the committed table, by number of pairs and d."""

    map: str = "relu2"
    pairs: tuple[int, ...] = (16, 64)
    dims: tuple[int, ...] = (4, 8, 16, 32, 64)
    keys: int = 256
    values: int = 16
    rows: int = 20_000  # that the bound is sampled from


def cells(settings: Settings) -> list[Record]:
    """Return a cell for each number of pairs and dimension."""
    return [{"pairs": pairs, "dim": dim} for pairs in settings.pairs for dim in settings.dims]


def weights_of(cosines: np.ndarray) -> np.ndarray:
    """Return the weight of relu² at each cosine, over that of the key itself."""
    return np.maximum(cosines, 0.0) ** 2


def least_interference(interference: np.ndarray, keys: int, dim: int) -> np.ndarray:
    """Return how many other keys a key has at each of `COSINES`, where they interfere least.

    Args:
        interference: what a key at each cosine adds.
        keys: K.
        dim: d, above 2.
    """
    order = dim / 2 - 1
    degrees = np.arange(1, DEGREES + 1)[:, None]
    polynomials = eval_gegenbauer(degrees, order, COSINES) / eval_gegenbauer(degrees, order, 1.0)
    total = np.ones((1, COSINES.size))
    found = linprog(
        interference, A_ub=-polynomials, b_ub=np.ones(DEGREES), A_eq=total, b_eq=[keys - 1.0]
    )
    return np.maximum(found.x, 0.0)


def recall_bound(settings: Settings, pairs: int, dim: int) -> tuple[float, float]:
    """Return the recall of keys that interfere least, and Σ f² over all other keys."""
    squares = weights_of(COSINES) ** 2
    density = least_interference(squares, settings.keys, dim)
    rng = np.random.default_rng([pairs, dim])
    shape = settings.rows, pairs - 1
    drawn = rng.choice(COSINES, size=shape, p=density / density.sum())
    values = rng.integers(settings.values, size=shape)
    places = (values + settings.values * np.arange(settings.rows)[:, None]).ravel()
    votes = np.bincount(places, weights_of(drawn).ravel(), settings.rows * settings.values)
    votes = votes.reshape(settings.rows, -1)
    votes[:, 0] += 1  # of the key that is asked for, whose value is as good as another
    return float((votes.argmax(-1) == 0).mean()), float(density @ squares)


def run(settings: Settings, cell: Record) -> list[Record]:
    """Compare the trained layers of a cell with the bound."""
    mine = [
        x
        for x in read_table(RESULTS / "random_keys.csv")
        if (x["map"], x["pairs"], x["dim"], x["keys"], x["values"])
        == (settings.map, cell["pairs"], cell["dim"], settings.keys, settings.values)
    ]
    bound, interference = recall_bound(settings, cell["pairs"], cell["dim"])
    accuracy = [x["accuracy"] for x in mine]
    return [{
        "trained": np.mean(accuracy), "spread": np.std(accuracy, ddof=1),
        "random": mine[0]["random"], "frame": mine[0]["frame"],
        "bound": bound, "interference": interference,
        "next_bound": recall_bound(settings, cell["pairs"], 2 * cell["dim"])[0],
    }]  # fmt: skip


class Compared(NamedTuple):
    """How far laws are off trained layers.

    Args:
        hard: how many cells do not recall everything; the errors are over these.
        off: the mean absolute error of each law.
        over: how much the trained recall is above the bound at most, in all cells.
        largest: the largest error of the bound.
    """

    hard: int
    off: dict[str, float]
    over: float
    largest: float


def compared(records: list[Record]) -> Compared:
    """Return how far the bound and other laws are off."""
    columns = {x: np.array([r[x] for r in records], float) for x in list(records[0])[2:]}
    trained = columns["trained"]
    hard = trained < 0.999
    if not hard.any():
        hard[:] = True
    off = {
        x: np.abs(columns[x] - trained)[hard] for x in ("bound", "frame", "random", "next_bound")
    }
    means = {name: float(x.mean()) for name, x in off.items()}
    over = float((trained - columns["bound"]).max())
    return Compared(int(hard.sum()), means, over, float(off["bound"].max()))


def judge(records: list[Record]) -> str:
    """Return the bound beside trained layers, and what held of the prediction."""
    hard, off, over, largest = compared(records)
    held = {
        f"1: trained models recall no more than the bound by 0.02 ({over:+.3f} at most)": (
            over <= 0.02
        ),
        f"2: in the {hard} cells that do not recall everything it is within 0.1 "
        f"({largest:.3f}), {off['bound']:.3f} off in the mean, at most 0.06": (
            largest <= 0.1 and off["bound"] <= 0.06
        ),
        f"2: less than half of the error of a tight frame, {off['frame']:.3f}": (
            off["bound"] < 0.5 * off["frame"]
        ),
        f"control: the bound of twice the dimension is off by {off['next_bound']:.3f}, at least "
        "twice as much": off["next_bound"] >= 2 * off["bound"],
    }
    met = {
        f"a cell is above the bound by {over:.3f}, more than 0.05": over > 0.05,
        f"the bound is farther off, {off['bound']:.3f}, than the frame, {off['frame']:.3f}": (
            off["bound"] > off["frame"]
        ),
    }
    lines = [
        "",
        "| P | d | trained relu² | bound by packing | tight frame | random keys | Σ f² there |",
        "|---|---|---|---|---|---|---|",
    ]
    for x in records:
        numbers = (x["bound"], x["frame"], x["random"])
        shown = " | ".join(f"{y:.3f}" for y in numbers)
        trained_as = f"{x['trained']:.3f} ± {x['spread']:.3f}"
        lines.append(
            f"| {x['pairs']} | {x['dim']} | {trained_as} | {shown} | {x['interference']:.3g} |"
        )
    remark = (
        "What is bounded is the mean square of the weights. The recall of it is not: cosines are "
        "drawn independently, and queries need not be keys, so that a cell can be above."
    )
    told = [*statistics.verdicts(held), *statistics.refutations(met), "", remark]
    return "\n".join([*told, *lines])


def draw(records: list[Record], figure: Figure) -> None:
    """Draw trained recall beside the bound, the frame and random keys, against d."""
    pairs = list(dict.fromkeys(x["pairs"] for x in records))
    axes = figure.subplots(1, len(pairs), sharey=True, squeeze=False)[0]
    lines: dict[str, tuple[str, Any]] = {
        "bound": ("bound by packing", "-"),
        "frame": ("tight frame", "--"),
        "random": ("random keys", ":"),
    }
    for ax, count in zip(axes, pairs, strict=True):
        mine = [x for x in records if x["pairs"] == count]
        dims = [x["dim"] for x in mine]
        ax.errorbar(
            dims,
            [x["trained"] for x in mine],
            [x["spread"] for x in mine],
            fmt="o",
            label="trained",
        )
        for i, (name, (label, ls)) in enumerate(lines.items()):
            ax.plot(dims, [x[name] for x in mine], ls=ls, color=f"C{i + 1}", label=label)
        ax.set(xscale="log", xlabel="dimension d", title=f"P = {count} pairs")
        ax.set_xticks(dims, [str(x) for x in dims])
        ax.minorticks_off()
    axes[0].set_ylabel("recalled by relu²")
    axes[-1].legend(frameon=False, loc="lower right")
    figure.suptitle("No keys interfere less: what relu² can recall of 256 keys")


EXPERIMENT = Experiment(
    name="packing",
    title="How much can a kernel that focuses recall?",
    full=Settings(),
    tiny=Settings(pairs=(16,), dims=(4, 8), rows=500),
    cells=cells,
    run=run,
    judge=judge,
    draw=draw,
    size=(9.0, 4.4),
)
