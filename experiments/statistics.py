"""Statistics of cells: rank correlations with intervals, lines with the error of their slope."""

from __future__ import annotations

from collections.abc import Iterator
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


def refutations(met: dict[str, bool]) -> list[str]:
    """Return a line for each thing that was to refute the prediction and was met."""
    lines = [f"Refuted by its own rule: {words}." for words, came in met.items() if came]
    none = "Of what was to refute the prediction nothing was met."
    return [part for line in lines or [none] for part in ("", line)]


RULES_CAME_AFTER = (
    "The prediction was written before the results; the rules by which these lines read it, as "
    "numbers and tolerances that it does not name, were written after them."
)
RULES_CAME_LATER = (
    "The rules by which these lines read the prediction, as tolerances that it does not name, were "
    "written after it, and some of them after the results."
)


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


def rank_correlation(x: Any, y: Any, groups: Any = None) -> Interval:
    """Return Spearman's ρ with its interval by the bootstrap.

    Args:
        x: a number for each cell.
        y: another one.
        groups: what each cell belongs to. Cells of a group (a kernel, a model) are not independent,
            so that whole groups are drawn. Without groups every cell is one.
    """
    x, y = np.asarray(x, float), np.asarray(y, float)
    found = [_spearman(x[i], y[i]) for i in _drawn(groups, len(x)) if _vary(x[i], y[i])]
    return Interval(_spearman(x, y), *_ends(found))


def rank_advantage(x: Any, rival: Any, y: Any, groups: Any = None) -> Interval:
    """Return by how much ρ of x with y exceeds that of a rival; both see the same draws."""
    x, rival, y = (np.asarray(each, float) for each in (x, rival, y))

    def advantage(i: Any) -> float:
        return _spearman(x[i], y[i]) - _spearman(rival[i], y[i])

    drawn = _drawn(groups, len(x))
    found = [advantage(i) for i in drawn if _vary(x[i], rival[i], y[i])]
    return Interval(advantage(slice(None)), *_ends(found))


def _drawn(groups: Any, count: int) -> Iterator[np.ndarray]:
    """Yield the cells of each draw of the bootstrap, whole groups of them."""
    names = np.arange(count) if groups is None else np.asarray(groups)
    members = [np.flatnonzero(names == name) for name in dict.fromkeys(names.tolist())]
    for drawn in np.random.default_rng(SEED).integers(len(members), size=(DRAWS, len(members))):
        yield np.concatenate([members[i] for i in drawn])


def _vary(*columns: np.ndarray) -> bool:
    return all(np.ptp(column) > 0 for column in columns)


def _ends(found: list[float]) -> tuple[float, float]:
    low, high = np.quantile(found, (0.025, 0.975)) if found else (np.nan, np.nan)
    return float(low), float(high)


def _spearman(x: np.ndarray, y: np.ndarray) -> float:
    return float(np.corrcoef(stats.rankdata(x), stats.rankdata(y))[0, 1])


def slope(x: Any, y: Any) -> Interval:
    """Return the slope of y in x by least squares, with the interval of Student's law."""
    fit: Any = stats.linregress(x, y)
    half = float(stats.t.ppf(0.975, len(x) - 2)) * fit.stderr
    return Interval(float(fit.slope), float(fit.slope - half), float(fit.slope + half))
