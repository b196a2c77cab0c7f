"""A figure's curves as a tidy table: theory along the line, Monte Carlo at some of its points."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from sparsity.output import csv_text

if TYPE_CHECKING:
    import xarray

HEADER = "series,x,theory,"  # how a table of curves begins
_COLUMNS = ("x", "theory", "log", "estimate", "stderr", "samples", "seed")


@dataclass(frozen=True)
class Series:
    """One curve. All arrays have one entry per x, in increasing order.

    Args:
        label: what tells this curve from the others, as it may be printed.
        x: abscissa.
        theory: S, or what the figure draws.
        log: its natural logarithm.
        estimate: the same by sampling, NaN where not sampled.
        stderr: its standard error, NaN where not sampled.
        samples: draws behind it, 0 where not sampled.
        seed: seed it was drawn with, −1 where not sampled.
        method: the estimator that ran; empty if none.
        key: the parameters that the curve holds fixed.
        doubts: x -> why the error bar of the estimate there cannot be trusted.
    """

    label: str
    x: np.ndarray
    theory: np.ndarray
    log: np.ndarray
    estimate: np.ndarray
    stderr: np.ndarray
    samples: np.ndarray
    seed: np.ndarray
    method: str = ""
    key: Mapping[str, Any] = field(default_factory=dict)
    doubts: Mapping[float, str] = field(default_factory=dict)

    @property
    def sampled(self) -> np.ndarray:
        """Where there is an estimate."""
        return self.samples > 0

    @property
    def doubted(self) -> np.ndarray:
        """Where there is an estimate with an error bar that cannot be trusted."""
        return self.sampled & np.isin(self.x, list(self.doubts))

    @classmethod
    def line(cls, label: str, x: Any, log: Any, **key: Any) -> Series:
        """A curve of theory alone, from its logarithm."""
        x, log = np.asarray(x, float), np.asarray(log, float)
        nothing, none = np.full(x.shape, np.nan), np.zeros(x.shape, int)
        return cls(label, x, np.exp(log), log, nothing, nothing, none, none - 1, key=key)

    def with_points(self, log: Any, estimates: Mapping[float, Any], method: str) -> Series:
        """The curve with sampled points added, their theory being `log`.

        Args:
            log: log of the theory at the points, in the order of `estimates`.
            estimates: x -> (estimate, stderr, samples, seed).
            method: the estimator.
        """
        x = np.array(list(estimates), float)
        log = np.asarray(log, float)
        points = (x, np.exp(log), log, *map(np.array, zip(*estimates.values(), strict=True)))
        lines = (getattr(self, name) for name in _COLUMNS)
        columns = [np.concatenate(pair) for pair in zip(lines, points, strict=True)]
        order = np.argsort(columns[0], kind="stable")
        values = dict(zip(_COLUMNS, (column[order] for column in columns), strict=True))
        return replace(self, **values, method=method)


def from_sweeps(
    lines: xarray.Dataset,
    points: xarray.Dataset | None,
    along: str,
    label: Callable[[Mapping[str, Any]], str],
) -> tuple[Series, ...]:
    """The curves of S along one dimension, one for each combination of the others.

    Args:
        lines: a sweep, for the lines.
        points: a sweep of the same curves with Monte Carlo, for the points; None for none.
        along: the dimension on the abscissa.
        label: the fixed parameters of a curve -> its label.
    """
    others = [str(name) for name in lines["S"].dims if name != along]
    single = {str(name): at.item() for name, at in lines.coords.items() if not at.ndim}
    found = []
    for cell in itertools.product(*(lines[name].values.tolist() for name in others)):
        key = dict(zip(others, cell, strict=True))
        here = lines.sel(key)
        held = single | key
        curve = Series.line(label(held), here[along].values, here["log_S"].values, **held)
        if points is not None:
            there = points.sel(key)
            columns = (there[f"{name}_mc"].values for name in ("S", "stderr", "samples", "seed"))
            estimates = zip(there[along].values.tolist(), zip(*columns, strict=True), strict=True)
            method = points.attrs["method_mc"]
            curve = curve.with_points(there["log_S"].values, dict(estimates), method)
        found.append(curve)
    return tuple(found)


def tidy(data: Iterable[Series], doubts: bool = False) -> str:
    """The curves as CSV, one row per x; empty cells where nothing was sampled.

    Args:
        data: the curves.
        doubts: whether to add a column that says why an error bar cannot be trusted.
    """
    rows: list[Any] = [["series", *_COLUMNS[:-1], "method", "seed", *["warning"] * doubts]]
    for curve in data:
        for row in zip(*(getattr(curve, name).tolist() for name in _COLUMNS), strict=True):
            *theory, estimate, stderr, samples, seed = row
            drawn = [f"{estimate:.10g}", f"{stderr:.4g}", samples, curve.method, seed]
            printed = [f"{value:.12g}" for value in theory]
            why = [curve.doubts.get(row[0], "") if samples else ""] * doubts
            rows.append([curve.label, *printed, *(drawn if samples else [""] * 5), *why])
    return csv_text(rows)
