"""Do the laws of linear attention's recall hold for 4,096 pairs? Cells that `random_keys` left out.

Everything is as there: rows of P of K keys, one of V values each, trained layers beside random keys
and a tight frame. The logistic and the constant are those of its committed cells, P ≤ 1,024.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from matplotlib.figure import Figure
from scipy.optimize import curve_fit
from scipy.special import expit

from experiments import random_keys, statistics
from experiments.frame import RESULTS, Experiment, Record, read_table
from experiments.random_keys_verdict import BY, LINEAR
from sparsity import plotting

LOW, HIGH = 0.1, 0.9  # accuracies between which a law is judged


@dataclass(frozen=True)
class Settings(random_keys.Settings):
    """What is trained: linear attention alone, of one number of pairs."""

    linear: tuple[tuple[int, int, int], ...] = ((4096, 4096, 4), (4096, 4096, 16))
    others: tuple[tuple[int, int, int], ...] = ()
    long: tuple[tuple[int, int, int], ...] = ()


def logistic(x: np.ndarray, slope: float, at: float) -> np.ndarray:
    """Return a logistic of x."""
    return expit(slope * (x - at))


def log_ratio(cells: list[Record]) -> np.ndarray:
    """Return ln(d/P) of cells."""
    return np.log([cell["dim"] / cell["pairs"] for cell in cells])


def judge(records: list[Record]) -> str:
    """Return each law's mean absolute error, and whether the prediction held."""
    committed = statistics.mean_over_seeds(read_table(RESULTS / "random_keys.csv"), BY)
    known = [x for x in committed if x["map"] == LINEAR and LOW < x["accuracy"] < HIGH]
    known = [x for x in known if x["steps"] == min(y["steps"] for y in known)]
    cells = statistics.mean_over_seeds(records, BY)
    judged = [x for x in cells if LOW < x["accuracy"] < HIGH] or cells
    accuracy = np.array([x["accuracy"] for x in judged])
    before = np.array([x["accuracy"] for x in known])
    fit, _ = curve_fit(logistic, log_ratio(known), before, (1.0, float(np.median(before))))
    said = {name: np.array([x[name] for x in judged]) for name in ("random", "frame", "measured")}
    said |= {"logistic": logistic(log_ratio(judged), *fit)}
    said |= {"constant": np.full(len(judged), before.mean())}
    said |= {"other": np.random.default_rng(0).permutation(said["random"])}
    errors = {name: np.abs(x - accuracy) for name, x in said.items()}
    off = {name: float(x.mean()) for name, x in errors.items()}
    untrained = float(np.mean([abs(x["untrained"] - x["random"]) for x in cells]))
    below = sum(x["accuracy"] < x["random"] for x in judged)
    twins = [
        (x["accuracy"], y["accuracy"])
        for x in cells
        for y in committed
        if (y["map"], y["steps"], y["values"]) == (LINEAR, x["steps"], x["values"])
        and y["pairs"] == y["keys"] == x["pairs"] // 4
        and 4 * y["dim"] == x["dim"]
    ]
    apart = max((abs(a - b) for a, b in twins), default=np.nan)
    largest = float(errors["random"].max())
    held = {
        f"1: over the {len(judged)} cells with an accuracy in (0.1, 0.9) random keys are off by "
        f"{off['random']:.3f} in the mean, at most 0.03, and by {largest:.3f} at most, 0.05": (
            off["random"] <= 0.03 and largest <= 0.05
        ),
        f"2: the frame is no nearer, {off['frame']:.3f}; trained layers recall less than random "
        f"keys in {below} of {len(judged)}, more than half": (
            off["frame"] >= off["random"] and below > len(judged) / 2
        ),
        f"3: the logistic and the constant of P ≤ 1,024 are off by {off['logistic']:.3f} and "
        f"{off['constant']:.3f}, twice as much or more": (
            min(off["logistic"], off["constant"]) >= 2 * off["random"]
        ),
        f"4: what {len(twins)} cells of a quarter of the pairs and of d recall is the same to "
        f"{apart:.3f}, 0.03": bool(apart <= 0.03),
        f"control: before training random keys are off by {untrained:.3f} in the mean, at most "
        "0.02": untrained <= 0.02,
        f"control: random keys of other cells are off by {off['other']:.3f}, twice as much or "
        "more": off["other"] >= 2 * off["random"],
    }
    met = {
        f"a cell is off by {largest:.3f} from random keys, more than 0.15": largest > 0.15,
        f"random keys are off by {off['random']:.3f} in the mean, more than 0.05": (
            off["random"] > 0.05
        ),
        f"the logistic is nearer, {off['logistic']:.3f}": off["logistic"] < off["random"],
    }
    lines = [
        "",
        "| V | d | trained | before | random keys | tight frame | needle law, measured scores |",
        "|---|---|---|---|---|---|---|",
    ]
    for x in cells:
        names = ("untrained", "random", "frame", "measured")
        shown = " | ".join(f"{x[name]:.3f}" for name in names)
        lines.append(
            f"| {x['values']} | {x['dim']} | {x['accuracy']:.3f} ± {x['spread']:.3f} | {shown} |"
        )
    lines += ["", f"Means and standard deviations over {len({x['seed'] for x in records})} seeds."]
    by_chance = float(np.mean([abs(x["accuracy"] - 1 / x["values"]) for x in judged]))
    shaken = sum(x["accuracy"] < x["untrained"] for x in cells)
    if cells[0]["pairs"] == Settings().linear[0][0]:
        lines += [
            "",
            f"Looked at after the results: so many pairs are hardly recalled by any d here, and "
            f"chance alone, 1/V, is off by {by_chance:.3f} in the cells that are judged: they say "
            f"that the law goes on, and little more. Trained layers recall less than before "
            f"training in {shaken} of {len(cells)} cells. The laws are sampled from "
            f"{Settings().law_rows:,} rows, with a standard error of 0.005, so that random keys "
            "and the frame are not told apart. The run shared its cores with others, and took some "
            "six minutes of its own.",
        ]
    return "\n".join([*statistics.verdicts(held), *statistics.refutations(met), *lines])


def draw(records: list[Record], figure: Figure) -> None:
    """Draw what trained layers recall against d, and what the laws say."""
    cells = statistics.mean_over_seeds(records, BY)
    sizes = sorted({x["values"] for x in cells})
    axes = figure.subplots(1, len(sizes), squeeze=False)[0]
    for ax, values in zip(axes, sizes, strict=True):
        mine = [x for x in cells if x["values"] == values]
        dims = [x["dim"] for x in mine]
        trained, spread = ([x[name] for x in mine] for name in ("accuracy", "spread"))
        ax.errorbar(dims, trained, spread, fmt="o", color="C0", capsize=2, label="trained")
        for i, (name, label) in enumerate(
            {"random": "random keys", "frame": "tight frame"}.items(), start=1
        ):
            ls = ("-", plotting.DASHED)[i - 1]
            ax.plot(dims, [x[name] for x in mine], ls=ls, color=f"C{i}", label=label)
        ax.axhline(1 / values, color=plotting.GREY, ls=":", lw=1, label="by chance")
        ax.set(xscale="log", xlabel="dimension d", title=f"V = {values} values")
        ax.set_xticks(dims, [str(x) for x in dims])
        ax.minorticks_off()
    axes[0].set_ylabel("recalled by linear attention")
    axes[-1].legend(frameon=False, loc="upper left")
    pairs = cells[0]["pairs"]
    figure.suptitle(f"Of {pairs:,} pairs trained layers recall little, as laws of P, d and V say")


EXPERIMENT = Experiment(
    name="many_pairs",
    title="Do the laws of linear attention's recall hold for 4,096 pairs?",
    full=Settings(),
    tiny=Settings(
        linear=((16, 16, 4), (16, 16, 8)), dims=(4, 8), seeds=(0, 1), steps=30, test_rows=8,
        law_rows=500,
    ),
    cells=random_keys.cells,
    run=random_keys.run,
    judge=judge,
    draw=draw,
    size=(9.0, 4.4),
)  # fmt: skip
