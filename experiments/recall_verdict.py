"""What came out of trained recall: each sentence of its prediction, and what ranks the accuracies.

Cells of one kernel are trained from the same seeds, and their accuracies go together. So intervals
are those of the bootstrap over kernels and maps, of which there are twelve, and not over cells.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
from scipy import optimize
from scipy.special import expit

from experiments import statistics
from experiments.frame import Record
from experiments.weights import FEATURES

BY = ("map", "pairs", "dim")
VALUES = 32
NO_FOCUS = ("identity", FEATURES)  # linear attention: a state of d × 32 numbers, whatever P

LAW, FEW_KEYS, FEW_OF_PAIRS = "(a) the needle law's recall", "(b) −n_eff", "(b) −n_eff/P"
STATE, STATE_OF_PAIRS = "(c) the size of the state, d", "(c) d over P"
FOCUS_THEN_STATE = "afterwards: can it focus? then d"
OTHER_CELLS = "control: (a) of other cells"


def columns(by_cell: list[Record], *names: str) -> list[Any]:
    """Return columns of cells as arrays."""
    return [np.array([each[name] for each in by_cell]) for name in names]


def can_focus(by_cell: list[Record]) -> np.ndarray:
    """Return which cells are of a kernel or map that can focus."""
    return np.array([each["map"] not in NO_FOCUS for each in by_cell])


def explanations(by_cell: list[Record]) -> dict[str, np.ndarray]:
    """Return what may rank the accuracies, a number for each cell.

    The rival "can it focus? then d" was thought of after the results: any cell of a kernel that
    can focus stands above any other, and among each kind those with a larger d.
    """
    law, n_eff, dim, pairs = columns(by_cell, "law", "n_eff", "dim", "pairs")
    return {
        LAW: law,
        FEW_KEYS: -n_eff,
        FEW_OF_PAIRS: -n_eff / pairs,
        STATE: dim,
        STATE_OF_PAIRS: dim / pairs,
        FOCUS_THEN_STATE: can_focus(by_cell) * 2 * dim.max() + dim,
        OTHER_CELLS: np.random.default_rng(0).permutation(law),
    }


def ranks(by_cell: list[Record]) -> dict[str, statistics.Interval]:
    """Return the rank correlation of each explanation with the accuracies."""
    (accuracy,) = columns(by_cell, "accuracy")
    maps = [each["map"] for each in by_cell]
    return {
        words: statistics.rank_correlation(values, accuracy, maps)
        for words, values in explanations(by_cell).items()
    }


def advantages(by_cell: list[Record]) -> dict[str, statistics.Interval]:
    """Return by how much the law's rank correlation exceeds that of d, and of the rival."""
    (accuracy,) = columns(by_cell, "accuracy")
    known, maps = explanations(by_cell), [each["map"] for each in by_cell]
    return {
        words: statistics.rank_advantage(known[LAW], known[words], accuracy, maps)
        for words in (STATE, FOCUS_THEN_STATE)
    }


def within_focusing(by_cell: list[Record]) -> dict[str, statistics.Interval]:
    """Return the rank correlations of the law and of d among the maps that can focus."""
    mine = [each for each in by_cell if each["map"] not in NO_FOCUS]
    law, dim, accuracy = columns(mine, "law", "dim", "accuracy")
    maps = [each["map"] for each in mine]
    return {
        words: statistics.rank_correlation(values, accuracy, maps)
        for words, values in ((LAW, law), (STATE, dim))
    }


def ahead_at_equal_size(by_cell: list[Record]) -> tuple[int, int]:
    """Return in how many P and d the worst map that can focus beats the best linear one, of all."""
    kinds: dict[Any, tuple[list[float], list[float]]] = {}
    for each in by_cell:
        both = kinds.setdefault((each["pairs"], each["dim"]), ([], []))
        both[each["map"] in NO_FOCUS].append(each["accuracy"])
    return sum(min(focusing) > max(linear) for focusing, linear in kinds.values()), len(kinds)


def guesses(by_cell: list[Record]) -> dict[str, np.ndarray]:
    """Return the law's recall, and what knows nothing of rows: a constant, d over P, other cells.

    The logistic in ln(d/P) has two numbers that are fitted to these very cells.
    """
    accuracy, law, dim, pairs = columns(by_cell, "accuracy", "law", "dim", "pairs")
    x = np.log(dim / pairs)
    a, b = optimize.curve_fit(lambda x, a, b: expit(a + b * x), x, accuracy, (1.0, 1.0))[0]
    return {
        "the needle law, at the measured margin and γ̂": law,
        "the constant 1": np.ones(len(law)),
        "a logistic in ln(d/P), fitted": expit(a + b * x),
        "control: the law of other cells": explanations(by_cell)[OTHER_CELLS],
    }


def judge_guesses(by_cell: list[Record]) -> list[str]:
    """Return how near each guess is: in all cells, and in those where something can be learned."""
    (accuracy,) = columns(by_cell, "accuracy")
    open_ = (accuracy > 0.1) & (accuracy < 0.9)
    lines = [
        f"Added later. {int((accuracy > 0.9).sum())} of {len(accuracy)} accuracies are above 0.9, "
        "so that a count of cells within 0.1 says little. By mean absolute error over the "
        f"{int(open_.sum())} cells with an accuracy between 0.1 and 0.9:",
        "",
        "| guess | within 0.1 | mean absolute error, 0.1 to 0.9 |",
        "|---|---|---|",
    ]
    for words, guess in guesses(by_cell).items():
        error = np.abs(guess - accuracy)
        mean = f"{error[open_].mean():.3f}" if open_.any() else ""
        lines.append(f"| {words} | {int((error <= 0.1).sum())} | {mean} |")
    return [
        *lines,
        "",
        "The law is given the margin and the spread that were measured in the trained model. What "
        "is compared is whether its scores are as good as normal: a check of normality, and no "
        "prediction of what training reaches.",
        "",
        "Signal and noise of random keys, and what a state of d × d holds, were known: Zhong et "
        "al. (2505.19488) by a retrieval SNR, Xiao’s note *The Memory Capacity of Attention* "
        "(2025), *Sharp Capacity Thresholds in Linear Associative Memory* (2605.05189), "
        "*Statistical Advantage of Softmax Attention* (2509.21936), *Separate and Amplify* (2026; "
        "not looked into). The recall here is of random keys at finite P, d and V.",
    ]


def judge(records: list[Record]) -> str:
    """Return which explanation ranks the trained accuracies best, and how far the law is off."""
    by_cell = statistics.mean_over_seeds(records, BY)
    accuracy, law, pairs = columns(by_cell, "accuracy", "law", "pairs")
    rank, shuffled, focuses = ranks(by_cell), explanations(by_cell)[OTHER_CELLS], can_focus(by_cell)
    ahead, among = advantages(by_cell), within_focusing(by_cell)
    beats, sizes = ahead_at_equal_size(by_cell)
    lines = ["| explanation | Spearman's ρ with accuracy, 95 % interval over maps |", "|---|---|"]
    lines += [f"| {words} | {interval} |" for words, interval in rank.items()]
    close, by_chance = (int((np.abs(x - accuracy) <= 0.1).sum()) for x in (law, shuffled))
    hard = accuracy < 0.95
    near, near_by_chance = (int((np.abs(x - accuracy)[hard] <= 0.1).sum()) for x in (law, shuffled))
    focusing = [x for x in by_cell if x["map"] not in NO_FOCUS and x["dim"] >= 16]
    recalling = sum(each["accuracy"] >= 0.95 for each in focusing)
    linear = [x for x in by_cell if x["map"] in NO_FOCUS and x["pairs"] == pairs.max()]
    best = max((each["accuracy"] for each in linear if each["dim"] <= 16), default=np.nan)
    without = np.mean([record["without_needle"] for record in records])
    spread = np.mean([each["spread"] for each in by_cell])
    low, high = ((law < accuracy)[focuses].sum(), (law > accuracy)[focuses].sum())
    lines += [
        "",
        f"The intervals draw the {len({each['map'] for each in by_cell})} kernels and maps again: "
        f"cells of one share its seeds, and {int((accuracy == 1).sum())} of {len(by_cell)} "
        "accuracies are exactly 1. The law's ρ less that of d, over the same draws: "
        f"{ahead[STATE]}; less that of the rival that was thought of after the results: "
        f"{ahead[FOCUS_THEN_STATE]}. Among the maps that can focus the law has {among[LAW]}, d "
        f"{among[STATE]}. Also looked at afterwards: the worst map that can focus recalls more "
        f"than the better linear one in {beats} of {sizes} pairs of P and d.",
        "",
        "n_eff counts the needle with the others, in rows that have any weight.",
        "",
        f"Of the cells of kernels that can focus, with d ≥ 16, {recalling} of {len(focusing)} "
        f"recall 0.95 or more; the two linear ones recall at most {best:.2f} at P = "
        f"{pairs.max():.0f}, d ≤ 16.",
        "",
        f"Over {len(by_cell)} cells (map, P and d; means of seeds, whose standard deviation is "
        f"{spread:.3f} on average). The law is within 0.1 of the trained accuracy in {close}, "
        f"that of other cells (control) in {by_chance}; of the {int(hard.sum())} cells with an "
        f"accuracy below 0.95 in {near} (control {near_by_chance}). Mean of law − accuracy: "
        f"{np.mean(law - accuracy):+.3f}; in those below 0.95: "
        f"{np.mean((law - accuracy)[hard]) if hard.any() else 0:+.3f}; where the kernel can focus "
        f"{np.mean((law - accuracy)[focuses]):+.3f}, low in {low} and high in {high} of "
        f"{focuses.sum()}; where it cannot {np.mean((law - accuracy)[~focuses]):+.3f}.",
        "",
        f"Control: without the needle's weight {without:.3f} are recalled; chance is "
        f"{1 / VALUES:.3f}.",
        "",
        *judge_guesses(by_cell),
        "",
        *_table(by_cell),
    ]
    rivals = (FEW_KEYS, STATE, STATE_OF_PAIRS)
    planned = (LAW, FEW_KEYS, FEW_OF_PAIRS, STATE, STATE_OF_PAIRS)
    order = sorted(planned, key=lambda words: -rank[words].value)
    at_d_16 = [each["accuracy"] for each in linear if each["dim"] == 16]
    everywhere = [each["accuracy"] for each in by_cell if each["map"] not in NO_FOCUS]
    held = {
        "nine in ten cells that can focus recall 0.95 or more": recalling >= 0.9 * len(focusing),
        "the linear ones recall less than 0.5 at the most pairs, d ≤ 16": best < 0.5,
        "and gain with each larger d": _gain(linear),
        "the law's rank correlation is above 0.7": rank[LAW].value > 0.7,
        "it is above those of −n_eff, d and d/P, by its value": all(
            rank[LAW].value > rank[words].value for words in rivals
        ),
        "the law is within 0.1 in 70 % of the cells": close >= 0.7 * len(law),
        "it errs on the low side where a kernel focuses, on average and in most cells": bool(
            np.mean((law - accuracy)[focuses]) < 0 and low > focuses.sum() / 2
        ),
        "n_eff/P comes second": order[1] == FEW_OF_PAIRS,
        "d alone comes last": order[-1] == STATE,
        "a small d limits the two linear ones only: all others recall 0.95 or more": (
            min(everywhere) >= 0.95
        ),
        "without the needle's weight a model recalls by chance, to a tenth": (
            abs(without * VALUES - 1) <= 0.1
        ),
        "the law of other cells ranks nothing: 0 is in its interval": (
            rank[OTHER_CELLS].low < 0 < rank[OTHER_CELLS].high
        ),
        "and is within 0.1 in clearly fewer cells": close > _most_by_chance(law, accuracy),
    }
    refuting = {
        "d or d/P ranks the accuracies better than the law": any(
            rank[words].value > rank[LAW].value for words in (STATE, STATE_OF_PAIRS)
        ),
        "a linear one recalls 0.95 or more at the most pairs, d = 16": max(at_d_16, default=0)
        >= 0.95,
        "the law is within 0.1 in fewer than half of the cells": close < len(law) / 2,
    }
    found = [*statistics.verdicts(held), *statistics.refutations(refuting)]
    return "\n".join([*found, "", statistics.RULES_CAME_AFTER, "", *lines])


def _gain(linear: list[Record]) -> bool:
    """Return whether each linear map recalls more with each larger d."""
    by_dim = sorted(linear, key=lambda each: each["dim"])
    columns_of = [[x["accuracy"] for x in by_dim if x["map"] == name] for name in NO_FOCUS]
    return all(a < b for column in columns_of for a, b in itertools.pairwise(column))


def _most_by_chance(law: np.ndarray, accuracy: np.ndarray) -> float:
    """Return in how many cells the law of others is within 0.1, in 39 of 40 orders of the cells."""
    rng = np.random.default_rng(statistics.SEED)
    close = [
        (np.abs(rng.permutation(law) - accuracy) <= 0.1).sum() for _ in range(statistics.DRAWS)
    ]
    return float(np.quantile(close, 0.975))


def _table(by_cell: list[Record]) -> list[str]:
    """Return the accuracies at the most pairs, a row a map."""
    most = max(each["pairs"] for each in by_cell)
    dims = sorted({each["dim"] for each in by_cell})
    lines = [f"Accuracy (law; n_eff) at P = {most}:", ""]
    lines += [
        "| map | " + " | ".join(f"d = {d}" for d in dims) + " |",
        "|---" * (len(dims) + 1) + "|",
    ]
    for name in dict.fromkeys(each["map"] for each in by_cell):
        of = {each["dim"]: each for each in by_cell if (each["map"], each["pairs"]) == (name, most)}
        shown = (
            f"{of[d]['accuracy']:.2f} ({of[d]['law']:.2f}; {of[d]['n_eff']:.1f})" for d in dims
        )
        lines.append(f"| {name} | " + " | ".join(shown) + " |")
    return lines
