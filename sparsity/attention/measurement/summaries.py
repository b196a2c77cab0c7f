"""Rows of many texts as summaries that merge: by layer, head and length, not by row.

Merging two summaries gives that of all their rows, in any order: counts and histograms add up,
and so do moments, by Chan, Golub and LeVeque, The American Statistician 37 (1983) 242.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from sparsity.errors import InputError

if TYPE_CHECKING:
    import xarray

CELLS = 64  # of a histogram: 0.2 wide in ln n_eff, which tables give to two digits


@dataclass(frozen=True)
class RowNumber:
    """A number of a row, and the range of its histogram.

    Args:
        name: of the quantity.
        title: what it is.
        low: lower end of the first cell; the first and the last hold all that is beyond them.
        high: upper end of the last cell.
        of: variables of a measurement, by name, -> the number of every row; None where it is the
            variable of that name.
    """

    name: str
    title: str
    low: float
    high: float
    of: Callable[[Mapping[str, Any]], np.ndarray] | None = None

    def of_rows(self, rows: Mapping[str, Any]) -> np.ndarray:
        """Return the number of every row in double precision."""
        found = rows[self.name] if self.of is None else self.of(rows)
        return np.asarray(found, np.float64)


def _over_freezing(x: Mapping[str, Any]) -> np.ndarray:
    """Return γ̂ over √(2 ln n), the spread from which a few keys hold a row of Gaussian logits."""
    return x["gamma_without_sinks"] / np.sqrt(2 * np.log(np.maximum(x["length_without_sinks"], 2)))


ROW_NUMBERS = (
    RowNumber("S", "sparsity S", 0.0, 1.0),
    RowNumber("log_n_eff", "ln n_eff", 0.0, 12.8, lambda x: np.log(x["n_eff"])),
    RowNumber("entropy", "entropy in nats", 0.0, 12.8),
    RowNumber("sink_mass", "weight of the sink key", 0.0, 1.0),
    RowNumber("sinks_mass", "weight of all sinks", 0.0, 1.0),
    RowNumber(
        "log_n_eff_without_sinks", "ln n_eff without sinks", 0.0, 12.8,
        lambda x: np.log(x["n_eff_without_sinks"]),
    ),
    RowNumber("gamma", "γ̂ of the logits", 0.0, 12.8),
    RowNumber("gamma_without_sinks", "γ̂ without sinks", 0.0, 12.8),
    RowNumber("over_freezing", "γ̂/√(2 ln n) without sinks", 0.0, 3.2, _over_freezing),
    RowNumber("residual_exact", "ln S/exact law", -3.2, 3.2),
    RowNumber("residual_exact_without_sinks", "the same without sinks", -3.2, 3.2),
)  # fmt: skip
NAMES = tuple(quantity.name for quantity in ROW_NUMBERS)


@dataclass(frozen=True)
class Summary:
    """Moments and histograms over rows of 2^(k−1) < n ≤ 2^k keys, k = 0, 1, ….

    Args:
        count: rows in which the number is known, [quantity, layer, head, k].
        mean: their mean, 0 where there are none.
        m2: sum of squared deviations from that mean.
        histogram: how many lie in each cell, [quantity, layer, head, k, cell].
    """

    count: np.ndarray
    mean: np.ndarray
    m2: np.ndarray
    histogram: np.ndarray

    @classmethod
    def of(cls, rows: Mapping[str, Any]) -> Summary:
        """Summarise measured rows.

        Args:
            rows: variables of `measure` by name, [layer, head, row].
        """
        length = np.asarray(rows["length"])
        longest = length.shape[-1]
        bins = int(np.ceil(np.log2(longest))) + 1
        k = np.ceil(np.log2(np.maximum(length, 1))).astype(np.int64)
        heads = int(np.prod(length.shape[:-1]))
        # Every row is sent to one number, of its head and its bin: `bincount` then sums up all
        # heads at once.
        at = k.reshape(heads, -1) + bins * np.arange(heads)[:, None]
        shape = (*length.shape[:-1], bins)
        with np.errstate(divide="ignore", invalid="ignore"):
            parts = [
                _summarise_number(number, number.of_rows(rows), at, shape) for number in ROW_NUMBERS
            ]
        return cls(*(np.stack(column) for column in zip(*parts, strict=True)))

    def quantile(self, name: str, share: float) -> float:
        """Return the number that a share of all rows lies below, to the width of a cell at most.

        Within its cell it is kept to what the moments allow: q ≤ mean + σ√(p/(1 − p)), and likewise
        below (Cantelli); so that rows that are all alike have their own number.

        Args:
            name: of the quantity.
            share: in (0, 1).
        """
        index = NAMES.index(name)
        low, high = ROW_NUMBERS[index].low, ROW_NUMBERS[index].high
        counts = self.histogram[index].reshape(-1, CELLS).sum(0)
        below = np.concatenate([[0], np.cumsum(counts)])
        if not below[-1]:
            return float("nan")
        edge = share * below[-1]
        cell = min(int(np.searchsorted(below, edge, side="left")) - 1, CELLS - 1)
        part = (edge - below[cell]) / counts[cell]
        count, mean = self.count[index], self.average(name)
        # The variance over all heads and lengths: within each, and between their means.
        m2 = (self.m2[index] + count * (self.mean[index] - mean) ** 2).sum()
        sigma, odds = np.sqrt(m2 / count.sum()), np.sqrt(share / (1 - share))
        found = low + (high - low) * (cell + part) / CELLS
        return float(np.clip(found, mean - sigma / odds, mean + sigma * odds))

    def average(self, name: str) -> float:
        """Return the mean over all rows."""
        index = NAMES.index(name)
        count, mean = self.count[index], self.mean[index]
        return float((count * mean).sum() / count.sum()) if count.any() else float("nan")

    def at(self, k: int) -> Summary:
        """Return the summary of the rows of 2^(k−1) < n ≤ 2^k keys alone."""
        count, mean, m2 = (x[..., k : k + 1] for x in (self.count, self.mean, self.m2))
        return Summary(count, mean, m2, self.histogram[..., k : k + 1, :])


def _summarise_number(
    number: RowNumber, x: np.ndarray, at: np.ndarray, shape: tuple[int, ...]
) -> tuple[np.ndarray, ...]:
    """Return count, mean, squares and histogram of one number; `at` says where each row goes."""
    size, x = int(np.prod(shape)), x.reshape(at.shape)
    known = np.isfinite(x)
    place, x = at[known], x[known]
    count = np.bincount(place, minlength=size)
    mean = np.bincount(place, x, size) / np.maximum(count, 1)
    # Squares about the mean, in a second pass: Σx² − n·mean² would cancel.
    m2 = np.bincount(place, (x - mean[place]) ** 2, size)
    cell = np.floor((x - number.low) / (number.high - number.low) * CELLS)
    cell = np.clip(cell, 0, CELLS - 1).astype(np.int64)
    cells = np.bincount(place * CELLS + cell, minlength=size * CELLS)
    moments = (y.reshape(shape) for y in (count, mean, m2))
    return *moments, cells.reshape(*shape, CELLS)


def merge(a: Summary, b: Summary) -> Summary:
    """Return the summary of the rows of both: commutative to the bit, associative to rounding.

    n = nₐ + n_b, mean = (nₐmₐ + n_bm_b)/n, M₂ = M₂ₐ + M₂_b + (m_b − mₐ)² nₐn_b/n.

    Raises:
        InputError: of other layers, heads or lengths.
    """
    if a.count.shape != b.count.shape:
        fix = "only summaries of the same layers, heads and lengths are merged"
        raise InputError("summaries", f"of shape {a.count.shape} and {b.count.shape}", fix)
    # Exchanging a and b gives the same bits, which the textbook's form, one of the means plus a
    # part of the gap, does not.
    n = a.count + b.count
    over = np.maximum(n, 1)
    mean = (a.count * a.mean + b.count * b.mean) / over
    # Where one is empty nothing is lost to rounding.
    mean = np.where(b.count == 0, a.mean, np.where(a.count == 0, b.mean, mean))
    apart = (b.mean - a.mean) ** 2 * (a.count * b.count / over)
    return Summary(n, mean, a.m2 + b.m2 + apart, a.histogram + b.histogram)


def dataset(summary: Summary) -> xarray.Dataset:
    """Return the summary with its labels; `read` is the way back."""
    import xarray

    titles = [q.title for q in ROW_NUMBERS]
    ends = np.array([[q.low, q.high] for q in ROW_NUMBERS])
    axes = ("quantity", "layer", "head", "length")
    said = {
        "count": "rows in which the quantity is known",
        "mean": "their mean",
        "m2": "sum of squared deviations from the mean",
        "histogram": "rows in each cell; the outer cells hold what is beyond",
    }
    data = xarray.Dataset(
        {
            name: ((*axes, "cell")[: x.ndim], x, {"long_name": said[name]})
            for name, x in asdict(summary).items()
        },
        coords={
            "quantity": list(NAMES),
            "title": ("quantity", titles),
            "low": ("quantity", ends[:, 0], {"long_name": "lower end of the first cell"}),
            "high": ("quantity", ends[:, 1], {"long_name": "upper end of the last cell"}),
            "length": (
                "length",
                2 ** np.arange(summary.count.shape[-1]),
                {"long_name": "2^k: rows of 2^(k-1) < n <= 2^k keys"},
            ),
        },
    )
    # Half the size on disk, and room for 4·10⁹ rows in a cell.
    data["histogram"] = data["histogram"].astype(np.uint32)
    return data


def read(data: xarray.Dataset) -> Summary:
    """Return the summary in a dataset of `dataset`.

    Raises:
        InputError: of other quantities.
    """
    if "quantity" not in data.coords or tuple(map(str, data["quantity"].values)) != NAMES:
        raise InputError("data", "dataset", "holds no summary of these quantities; measure again")
    count, mean, m2 = (data[name].values for name in ("count", "mean", "m2"))
    return Summary(count, mean, m2, data["histogram"].values.astype(np.int64))
