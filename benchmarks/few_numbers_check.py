"""Holds the table of `few_numbers` against what is computed without the library, and counts.

S of long rows against ball arithmetic; rows of up to 40 tokens against `campaign`'s means, by brute
force up to 3 random tokens, else by sampling; the chance of a row of ReLU weights by Φ.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy.special import log_ndtr

from benchmarks import few_numbers
from benchmarks.campaign import row_reference
from benchmarks.campaign.reference import log_s
from benchmarks.campaign.row_cells import OF_MAPS, Cell
from benchmarks.campaign.rows import judge
from sparsity import kernels, quantities


def outcomes(asked: few_numbers.Question) -> Iterator[str]:
    """Yield how the numbers of a question stand beside those made without the library."""
    given, name = asked["given"], asked["kernel"]
    normal = not (asked["steps"] or "scores" in given) and name in few_numbers.KERNELS
    powers = quantities.POWERS_OF_S_AND_N.get(asked["of"])
    if asked["call"] == "evaluate" and normal and powers:
        kernel: Any = kernels.named(name)
        log_S = float(log_s(kernel.weight, given["beta"], given["gamma"]).log_S or "nan")
        yield _close(asked["values"][0], powers[0] * log_S + powers[1] * math.log(given["length"]))
    if asked["call"] == "exact" and normal and name in few_numbers.SPARSE:
        log_one = log_ndtr((given["beta"] - (name == "max(s - 1, 0)")) / given["gamma"])
        for i, n in enumerate(given["length"], len(given["length"])):
            none = n * np.log1p(-np.exp(log_one))
            rare = log_one + math.log(n)  # below it the sum of the chances is their union
            yield _close(asked["values"][i], rare if rare < -40 else np.log(-np.expm1(none)))
    if asked["call"] == "exact":
        yield from _rows(asked)


def _close(value: float, true: float) -> str:
    return "agreed" if math.isclose(value, true, rel_tol=1e-10, abs_tol=1e-10) else "violated"


def _rows(asked: few_numbers.Question) -> Iterator[str]:
    """Yield the verdicts of the campaign on short rows, where it knows their kernel and steps."""
    marked = ("sink", "needle", "needle-above")  # whose spread is 0 unless it is given
    name = asked["kernel"]
    steps = [(x, [*y, 0.0] if x in marked and not y[1:] else y) for x, y in asked["steps"]]
    own = {"beta": 0.0, "gamma": 1.0} | asked["given"]
    lengths, law = own.pop("length"), own.pop("scores", "")
    scores: Any = None
    if law:
        law, _, numbers = law.partition(":")
        parts = tuple(tuple(map(float, x.split(","))) for x in numbers.split(";") if x)
        scores = law, (parts,) if law == "mixture" else (parts or ((),))[0]
    if [step for step, _ in steps] == ["qk-norm"]:  # whose γ is of rows that give none
        scores = "qk-norm", steps.pop()[1][:1]
    known = name in row_reference.KERNELS or name.partition(":")[0] in OF_MAPS
    known &= law != "t" or asked["of"] != "square_sum"  # whose sample has no variance
    for i, n in enumerate(lengths):
        if known and n <= 40:
            cell = Cell(name, own, tuple(steps), scores, n, asked["of"], i)
            answer = math.exp(asked["values"][i]), asked["bounds"][i], "", "", 0.0
            try:
                yield judge(cell, answer).outcome
            except (KeyError, TypeError, ValueError):  # a step or a map that it has not
                yield "without"


def main() -> None:
    counts: Counter[str] = Counter()
    for asked in few_numbers.load():
        every = [*outcomes(asked)] or ["without"]
        counts.update(every)
        if "violated" in every:
            print(asked)
    print(dict(counts))


if __name__ == "__main__":
    main()
