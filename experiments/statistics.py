"""Statistics of cells: rank correlations with intervals, lines with the error of their slope."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy import stats

DRAWS, SEED = 2000, 0  # of the bootstrap


def mean_over_seeds(records: list[dict[str, Any]], by: tuple[str, ...]) -> list[dict[str, Any]]:
    """Return a record for each cell `by` with the means of its numbers; "spread" is of accuracy.

    The spread is the standard deviation over seeds.
    """
    cells: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for record in records:
        cells.setdefault(tuple(record[name] for name in by), []).append(record)
    found = []
    for key, group in cells.items():
        numbers = [name for name, value in group[0].items() if name not in by and name != "seed"]
        mean = {name: float(np.mean([each[name] for each in group])) for name in numbers}
        spread = np.std([each["accuracy"] for each in group], ddof=len(group) > 1)
        found.append({**dict(zip(by, key, strict=True)), **mean, "spread": float(spread)})
    return found


def verdicts(held: dict[str, bool]) -> list[str]:
    """Return a line for each thing that was predicted: whether it came so."""
    return [f"- {'Held' if came else '**Failed**'}: {words}." for words, came in held.items()]


class Interval(NamedTuple):
    """A number and the ends of its 95 % interval."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.2f} ({self.low:.2f} to {self.high:.2f})"


def mean(x: Any) -> Interval:
    """Return the mean with the interval of Student's law."""
    x = np.asarray(x, float)
    half = float(stats.t.ppf(0.975, x.size - 1) * stats.sem(x))
    return Interval(float(x.mean()), float(x.mean() - half), float(x.mean() + half))


def rank_correlation(x: Any, y: Any) -> Interval:
    """Return Spearman's ρ with its interval by the bootstrap over cells."""
    x, y = np.asarray(x, float), np.asarray(y, float)
    rng, found = np.random.default_rng(SEED), []
    for drawn in rng.integers(len(x), size=(DRAWS, len(x))):
        if np.ptp(x[drawn]) and np.ptp(y[drawn]):
            found.append(_spearman(x[drawn], y[drawn]))
    low, high = np.quantile(found, (0.025, 0.975))
    return Interval(_spearman(x, y), float(low), float(high))


def _spearman(x: np.ndarray, y: np.ndarray) -> float:
    return float(np.corrcoef(stats.rankdata(x), stats.rankdata(y))[0, 1])


def slope(x: Any, y: Any) -> Interval:
    """Return the slope of y in x by least squares, with the interval of Student's law."""
    fit: Any = stats.linregress(x, y)
    half = float(stats.t.ppf(0.975, len(x) - 2)) * fit.stderr
    return Interval(float(fit.slope), float(fit.slope - half), float(fit.slope + half))
