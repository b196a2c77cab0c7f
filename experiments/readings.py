"""What is measured of language models read at many lengths, and its means over seeds."""

from __future__ import annotations

import numpy as np

from experiments.frame import Record

TRAINED = 64  # bytes of a window in training
AS_TRAINED, NTK, SHUFFLED = "as trained", "dynamic NTK", "control: shuffled bytes"
# Measured of every reading: the loss of the last quarters, that of the frequency of bytes on them,
# and n_eff, its geometric mean over passages and heads; beside the law, of fewer rows, n_eff and
# the law of the same ones, and the median |ln(n_eff/law)|: in the first layer, in the others, and
# in all of them if the law stayed what it is at the trained length.
COLUMNS = (
    *("reading", "length", "loss", "unigram", "n_eff", "n_eff_of_rows", "law"),
    *("off_first", "off_rest", "off_without_n", "corpus"),
)


class Readings:
    """The records of all cells, by rule, reading and length."""

    def __init__(self, records: list[Record]) -> None:
        self.records = records
        self.series = list(
            dict.fromkeys((x["rule"], x["reading"]) for x in records if x["reading"] != SHUFFLED)
        )
        self.lengths = sorted({x["length"] for x in records})
        self.longer = [n for n in self.lengths if n > TRAINED]

    def of(self, name: str, rule: str, reading: str, length: int) -> np.ndarray:
        """Return a measured number of every seed; NaN where it was not measured."""
        if reading == NTK and length <= TRAINED:
            reading = AS_TRAINED  # the angles are the same
        key = (rule, reading, length)
        mine = [x for x in self.records if (x["rule"], x["reading"], x["length"]) == key]
        return np.array([x[name] for x in sorted(mine, key=lambda x: x["seed"])], float)

    def ratio(self, rule: str, reading: str, length: int) -> np.ndarray:
        """Return the perplexity over that at the trained length, of every seed."""
        loss = self.of("loss", rule, reading, length)
        return np.exp(loss - self.of("loss", rule, AS_TRAINED, TRAINED))

    def mean_ratio(self, rule: str, reading: str = AS_TRAINED) -> np.ndarray:
        """Return its mean over seeds, at every length beyond the trained one."""
        return np.array([self.ratio(rule, reading, n).mean() for n in self.longer])

    def farthest_off(self, name: str) -> float:
        """Return the largest factor of n_eff off the law out of all series and lengths.

        Of each it is the median over seeds of medians over heads and rows.
        """
        each = (self.of(name, *series, n) for series in self.series for n in self.lengths)
        return float(np.exp(max(np.median(x) for x in each if np.all(np.isfinite(x)))))

    def mean_log(self, name: str, rule: str, reading: str, length: int) -> float:
        """Return the geometric mean over seeds of a measured number."""
        return float(np.exp(np.log(self.of(name, rule, reading, length)).mean()))


def spread(x: np.ndarray) -> float:
    """Return the standard deviation over seeds."""
    return float(np.std(x, ddof=len(x) > 1))


def with_spread(x: np.ndarray) -> str:
    """Return mean ± standard deviation."""
    return f"{x.mean():.3f} ± {spread(x):.3f}"


def name_of(rule: str, reading: str) -> str:
    """Return how a rule and a reading are named."""
    return f"{rule} + NTK" if reading == NTK else rule
