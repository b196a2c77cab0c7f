"""A curve with its sampled points, as figures and `plot` draw it, and its table as CSV."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from sparsity import rounding
from sparsity.output import csv_text
from sparsity.results import Estimate

if TYPE_CHECKING:
    import xarray

_COLUMNS = ("x", "theory", "log", "estimate", "stderr", "samples", "seed")


class Point(NamedTuple):
    """A sampled point of a curve: the estimate, its standard error, and how it was drawn."""

    estimate: float
    stderr: float
    samples: int
    seed: int
    method: str

    @classmethod
    def of(cls, drawn: Estimate) -> Point:
        """Return the point of an estimate that is drawn as it is."""
        return cls(drawn.value, drawn.stderr, drawn.samples, drawn.seed, drawn.method)


def _rounded_places(x: np.ndarray) -> np.ndarray:
    """Return places on an axis to the digits that are the same on every processor.

    Only an axis through 0 can have a rounding of 0 on it.
    """
    return rounding.column(x, 0.0 if np.all(x > 0) else None)


@dataclass(frozen=True)
class Series:
    """One curve. All arrays have one entry per x, in increasing order.

    Args:
        label: what tells this curve from the others, as it may be printed.
        x: x-axis.
        theory: S, or what the figure draws; NaN where none is known of a sampled point.
        log: its natural logarithm.
        estimate: the same by sampling, NaN where not sampled.
        stderr: its standard error, NaN where not sampled.
        samples: draws behind it, 0 where not sampled.
        seed: seed it was drawn with, −1 where not sampled.
        method: the estimator that ran; empty if none.
        key: the parameters that the curve holds fixed.
        along: the name of what x is, "gamma".
        of: the name of what theory and estimate are, "n_eff".
        unit: of these.
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
    along: str = ""
    of: str = ""
    unit: str = "1"
    doubts: Mapping[float, str] = field(default_factory=dict)

    @property
    def sampled(self) -> np.ndarray:
        """Mark where there is an estimate."""
        return self.samples > 0

    @property
    def doubted(self) -> np.ndarray:
        """Mark where there is an estimate whose error bar cannot be trusted."""
        return self.sampled & np.isin(self.x, list(self.doubts))

    def named(self, along: str, of: str, unit: str = "1", **key: Any) -> Series:
        """Return the curve with the names of its columns, and more that it holds fixed."""
        return replace(self, along=along, of=of, unit=unit, key={**key, **self.key})

    @classmethod
    def line(cls, label: str, x: Any, log: Any, **key: Any) -> Series:
        """Return a curve of theory alone, from its logarithm."""
        x, log = np.asarray(x, float), np.asarray(log, float)
        nothing, none = np.full(x.shape, np.nan), np.zeros(x.shape, int)
        return cls(label, x, np.exp(log), log, nothing, nothing, none, none - 1, key=key)

    @classmethod
    def of_values(cls, label: str, x: Any, values: Any, **key: Any) -> Series:
        """Return a curve of theory alone, from its values."""
        values = np.asarray(values, float)
        with np.errstate(divide="ignore", invalid="ignore"):
            return replace(cls.line(label, x, np.log(values), **key), theory=values)

    def with_points(self, log: Any, points: Mapping[float, Point]) -> Series:
        """Return the curve with sampled points added, whose theory is `log`.

        Args:
            log: log of the theory at the points, in their order.
            points: x -> the point there; one sampler drew them all.
        """
        x, log = np.array(list(points), float), np.asarray(log, float)
        *drawn, methods = zip(*points.values(), strict=True)
        added = (x, np.exp(log), log, *map(np.array, drawn))
        lines = (getattr(self, name) for name in _COLUMNS)
        columns = [np.concatenate(pair) for pair in zip(lines, added, strict=True)]
        # Points go in where their x belongs, after the line's own entry where both have one, to the
        # digits that are the same on every processor.
        order = np.argsort(_rounded_places(columns[0]), kind="stable")
        values = dict(zip(_COLUMNS, (column[order] for column in columns), strict=True))
        return replace(self, **values, method=methods[-1])

    def as_sparsity(self, n: Any = None) -> Series:
        """Return a curve of n_eff as one of √(n_eff/n), whose limit is S; n is x if not given."""
        n = self.x if n is None else n
        root = np.sqrt(self.estimate / n)
        stderr = self.stderr / (2 * n * root)  # d√v = dv/(2√v): error bars are short beside values
        theory, log = np.sqrt(self.theory / n), (self.log - np.log(n)) / 2
        line = replace(self, theory=theory, log=log, estimate=root, stderr=stderr)
        return replace(line, of="S_rms", unit="1")

    def rounded(self) -> Series:
        """Return the curve with as many digits as are the same on every processor.

        What is drawn and what is written then follow from the same numbers.
        """
        pairs = zip(self.estimate.tolist(), self.stderr.tolist(), strict=True)
        # A number with a logarithm is known relative to itself, however small. Without one it is a
        # difference, or nothing.
        differences = rounding.column(self.theory)
        theory = np.where(np.isfinite(self.log), rounding.column(self.theory, 0.0), differences)
        estimate = [rounding.beside_error(value, error) for value, error in pairs]
        return replace(
            self,
            x=_rounded_places(self.x),
            theory=theory,
            log=rounding.logarithms(self.log),
            estimate=np.array(estimate, float).reshape(self.estimate.shape),
            stderr=rounding.column(self.stderr, scale=0.0, digits=2),
            key={name: rounding.record(value) for name, value in self.key.items()},
            doubts={rounding.significant(x): why for x, why in self.doubts.items()},
        )


def from_sweeps(
    lines: xarray.Dataset,
    points: xarray.Dataset | None,
    along: str,
    label: Callable[[Mapping[str, Any]], str],
) -> tuple[Series, ...]:
    """Return the curves of S along one dimension, one for each combination of the others.

    Args:
        lines: a sweep, for the lines.
        points: a sweep of the same curves with Monte Carlo, for the points; None for none.
        along: the dimension on the x-axis.
        label: the fixed parameters of a curve -> its label.
    """
    # What is one value of the whole sweep is no dimension; a label may name it all the same.
    others = [str(name) for name in lines["S"].dims if name != along]
    single = {str(name): at.item() for name, at in lines.coords.items() if not at.ndim}
    curves = []
    for cell in itertools.product(*(lines[name].values.tolist() for name in others)):
        key = dict(zip(others, cell, strict=True))
        here = lines.sel(key)
        held = single | key
        curve = Series.line(label(held), here[along].values, here["log_S"].values, **held)
        curve = curve.named(along, "S", kernel=lines.attrs["kernel"])
        if points is not None:
            there = points.sel(key)
            columns = (there[f"{name}_mc"].values for name in ("S", "stderr", "samples", "seed"))
            method = points.attrs["method_mc"]
            drawn = [Point(*numbers, method=method) for numbers in zip(*columns, strict=True)]
            at = dict(zip(there[along].values.tolist(), drawn, strict=True))
            curve = curve.with_points(there["log_S"].values, at)
        curves.append(curve)
    return tuple(curves)


def csv_of_curves(data: Iterable[Series], doubts: bool = False) -> str:
    """Return the curves as CSV, one row per x; cells are empty without a law or a sample.

    The columns are described in docs/files.md: after the numbers the names of what they are, then
    one column for each parameter that a curve holds fixed.

    Args:
        data: the curves.
        doubts: whether to add a column that says why an error bar cannot be trusted.
    """
    # Fewer digits than float64 has: the last ones are rounding, which differs between machines, and
    # those of an estimate are noise long before.
    data = tuple(data)
    held = [*dict.fromkeys(name for curve in data for name in curve.key)]
    columns = [*["warning"] * doubts, "along", "quantity", "unit", *held]
    rows: list[Any] = [["series", *_COLUMNS[:-1], "method", "seed", *columns]]
    for curve in data:
        names = [curve.along, curve.of, curve.unit, *(curve.key.get(name, "") for name in held)]
        for row in zip(*(getattr(curve, name).tolist() for name in _COLUMNS), strict=True):
            *theory, estimate, stderr, samples, seed = row
            drawn = [f"{estimate:.10g}", f"{stderr:.4g}", samples, curve.method, seed]
            printed = ["" if math.isnan(value) else f"{value:.12g}" for value in theory]
            why = [curve.doubts.get(row[0], "") if samples else ""] * doubts
            rows.append([curve.label, *printed, *(drawn if samples else [""] * 5), *why, *names])
    return csv_text(rows)
