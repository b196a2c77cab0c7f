"""What came out of the recall of random keys: errors of laws, of a constant and of a logistic."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.optimize import curve_fit
from scipy.special import expit

from experiments import statistics
from experiments.frame import Record

BY = ("map", "steps", "pairs", "keys", "values", "dim")
LINEAR, DELTA = "identity", "delta rule"
NOT_RUN = (
    "Planned besides were P = 4096, and V = 256 at P = 1024: they were left out for their time, "
    "before any of them had a result. Later, with a prediction of its own: "
    "[P = 4096](many_pairs.md)."
)
TITLES = {
    "random": "random keys: P, d and V, no parameter",
    "frame": "a tight frame: P, K, d and V, no parameter",
    "measured": "the needle law of measured scores",
    "constant": "the best constant, of other cells",
    "logistic": "a logistic in ln(d/P), of other cells",
    "other": "control: random keys, of other cells",
}


def fitted_by_others(x: np.ndarray, accuracy: np.ndarray) -> np.ndarray:
    """Return what a logistic in x says of each cell, fitted to all the others."""

    def logistic(x: Any, slope: float, at: float) -> Any:
        return expit(slope * (x - at))

    said = np.empty(len(x))
    for i in range(len(x)):
        others = np.arange(len(x)) != i
        best, _ = curve_fit(logistic, x[others], accuracy[others], (1.0, np.median(x)))
        said[i] = logistic(x[i], *best)
    return said


def explanations(by_cell: list[Record]) -> dict[str, np.ndarray]:
    """Return what each explanation says of the accuracy of each cell."""
    accuracy = np.array([cell["accuracy"] for cell in by_cell])
    said = {law: np.array([cell[law] for cell in by_cell]) for law in list(TITLES)[:3]}
    count = len(accuracy)
    said["constant"] = (accuracy.sum() - accuracy) / max(1, count - 1)
    ratio = np.log([cell["dim"] / cell["pairs"] for cell in by_cell])
    said["logistic"] = fitted_by_others(ratio, accuracy) if count > 3 else said["constant"]
    said["other"] = np.random.default_rng(0).permutation(said["random"])
    return said


def judge(records: list[Record]) -> str:
    """Return each law's mean absolute error, and whether the prediction held."""
    by_cell = statistics.mean_over_seeds(records, BY)
    short = min(cell["steps"] for cell in by_cell)
    linear = [cell for cell in by_cell if cell["map"] == LINEAR and cell["steps"] == short]
    judged = [cell for cell in linear if 0.1 < cell["accuracy"] < 0.9]
    accuracy = np.array([cell["accuracy"] for cell in judged])
    said = explanations(judged)
    errors = {law: np.abs(values - accuracy) for law, values in said.items()}
    off = {law: float(gaps.mean()) for law, gaps in errors.items()}
    apart = np.abs(said["frame"] - said["random"]) > 0.03
    long = [cell for cell in by_cell if cell["map"] == LINEAR and cell["steps"] > short]
    over = max(cell["accuracy"] - cell["frame"] for cell in long)
    untrained = float(np.mean([abs(cell["untrained"] - cell["random"]) for cell in linear]))

    def of(name: str) -> list[Record]:
        return [cell for cell in by_cell if cell["map"] == name]

    def twin(cell: Record, name: str = LINEAR) -> Record:
        same = ("pairs", "keys", "values", "dim")
        return next(
            x
            for x in by_cell
            if x["map"] == name and x["steps"] == short and all(x[key] == cell[key] for key in same)
        )

    far = [cell for cell in long if abs(cell["frame"] - cell["random"]) > 0.03]
    hard = [cell for cell in of(DELTA) if twin(cell)["accuracy"] < 0.9]
    held = {
        f"random keys have a mean absolute error of at most 0.05 ({off['random']:.3f}), over "
        f"at least 60 cells ({len(judged)})": off["random"] <= 0.05 and len(judged) >= 60,
        f"the tight frame has at most 0.03 ({off['frame']:.3f}), less than random keys": (
            off["frame"] <= min(0.03, off["random"])
        ),
        "and less than the constant and the logistic": (
            off["frame"] < min(off["constant"], off["logistic"])
        ),
        f"with {long[0]['steps'] / short:.0f} times the steps no cell is more than 0.05 above the "
        f"frame (at most {over:+.3f})": over <= 0.05,
        "and those where the laws are apart come nearer to the frame": all(
            abs(cell["accuracy"] - cell["frame"]) <= abs(twin(cell)["accuracy"] - cell["frame"])
            for cell in far
        ),
        "decay: random keys are within 0.1": all(
            abs(cell["accuracy"] - cell["random"]) <= 0.1 for cell in of("decayed")
        ),
        "relu² recalls more than random keys say": all(
            cell["accuracy"] > cell["random"] for cell in of("relu2") if cell["random"] < 0.95
        ),
        "and its learned bias adds to that": all(
            cell["accuracy"] > twin(cell, "relu2")["accuracy"]
            for cell in of("relu2, bias learned")
            if twin(cell, "relu2")["accuracy"] < 0.95
        ),
        "the delta rule beats the linear layer where that recalls less than 0.9": all(
            cell["accuracy"] > twin(cell)["accuracy"] for cell in hard
        ),
        f"before training models recall what random keys say ({untrained:.3f} off on average)": (
            untrained <= 0.05
        ),
        "the laws of other cells have several times the error": off["other"] > 2 * off["random"],
    }
    wrong = {law: int((gaps > 0.15).sum()) for law, gaps in errors.items()}
    refuting = {
        f"a cell is off by more than 0.15 from random keys ({wrong['random']} are)": (
            wrong["random"] > 0
        ),
        f"a cell is off by more than 0.15 from the tight frame ({wrong['frame']} are)": (
            wrong["frame"] > 0
        ),
        "random keys have a mean absolute error above 0.05": off["random"] > 0.05,
        "the tight frame has one above 0.05": off["frame"] > 0.05,
        "the logistic is nearer than both laws": off["logistic"] < min(off["random"], off["frame"]),
    }
    lines = ["| explanation | mean absolute error | largest | within 0.05 |", "|---|---|---|---|"]
    lines += [
        f"| {TITLES[law]} | {gaps.mean():.3f} | {gaps.max():.3f} | "
        f"{(gaps <= 0.05).sum()} of {len(gaps)} |"
        for law, gaps in errors.items()
    ]
    lines += [
        "",
        f"Over the {len(judged)} cells of linear attention with an accuracy in (0.1, 0.9); "
        f"mean of law − accuracy: random keys {np.mean(said['random'] - accuracy):+.3f}, tight "
        f"frame {np.mean(said['frame'] - accuracy):+.3f}. In the {apart.sum()} cells where the "
        "two laws are more than 0.03 apart, random keys are off by "
        f"{errors['random'][apart].mean() if apart.any() else 0:.3f}, the frame by "
        f"{errors['frame'][apart].mean() if apart.any() else 0:.3f}.",
        "",
    ]
    lines += _table(by_cell, short)
    return "\n".join(
        [
            *statistics.verdicts(held),
            *statistics.refutations(refuting),
            "",
            statistics.RULES_CAME_AFTER,
            "",
            NOT_RUN,
            "",
            *lines,
        ]
    )


def _table(by_cell: list[Record], short: int) -> list[str]:
    """Return accuracies beside the laws, of the cells that are not plain linear attention."""
    lines = [
        "| map | steps | P | K | V | d | trained | random keys | tight frame |",
        "|---" * 9 + "|",
    ]
    for cell in by_cell:
        if cell["map"] == LINEAR and cell["steps"] == short and cell["values"] != 16:
            continue
        sizes = " | ".join(
            f"{cell[key]:.0f}" for key in ("steps", "pairs", "keys", "values", "dim")
        )
        laws = ("–" if np.isnan(cell[law]) else f"{cell[law]:.3f}" for law in ("random", "frame"))
        lines.append(f"| {cell['map']} | {sizes} | {cell['accuracy']:.3f} | {' | '.join(laws)} |")
    return lines
