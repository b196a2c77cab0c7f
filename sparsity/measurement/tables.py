"""What a measurement comes to: focus, sinks and laws at each context length, in one table."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from sparsity import quantities
from sparsity.measurement.asked import ALWAYS
from sparsity.measurement.labels import MEANING, rank_correlation

if TYPE_CHECKING:
    import xarray

THRESHOLDS = (0.3, 0.8)  # ε of [Gu] and of [Barbero]

_RANKS = {  # the limit law e^(−γ²/2) ranks rows as −γ does, which does not underflow
    "rank_limit": ("S", "gamma", -1),
    "rank_exact": ("S", "S_exact", 1),
    "rank_limit_rest": ("S_rest", "gamma_rest", -1),
    "rank_exact_rest": ("S_rest", "S_exact_rest", 1),
}


def begins(bos: Any) -> bool | None:
    """Whether texts of that `bos` begin with the model's first token; None where it is not said."""
    return None if bos < 0 else bool(bos)


def rows_at(data: xarray.Dataset, context: int) -> xarray.Dataset:
    """The rows in the second half of a context: T/2 < n ≤ T."""
    if not data.attrs["causal"]:
        return data
    return data.sel(row=slice(context // 2 + 1, context))


def pooled(data: xarray.Dataset, name: str) -> np.ndarray:
    """All known values of a variable."""
    values = np.asarray(data[name], np.float64).ravel()
    return values[np.isfinite(values)]


def _median(data: xarray.Dataset, name: str) -> float:
    values = pooled(data, name)
    return float(np.median(values)) if len(values) else math.nan


def _mean(data: xarray.Dataset, name: str) -> float:
    values = pooled(data, name)
    return float(values.mean()) if len(values) else math.nan


def asked_for(data: xarray.Dataset) -> list[str]:
    """Variables of rows that are there because they were asked for: quantities, means over rows."""
    return [str(x) for x in data.data_vars if x not in MEANING and "row" in data[x].dims]


def sink_rate(data: xarray.Dataset, context: int, epsilon: float) -> float:
    """Share of texts, layers and heads in which the sink's importance exceeds ε; see `sinks`."""
    known = pooled(data.sel(context=context), "importance")
    return float(np.mean(known > epsilon)) if len(known) else math.nan


def _row(data: xarray.Dataset, context: int) -> dict[str, Any]:
    rows = rows_at(data, context)
    found: dict[str, Any] = {
        "T": int(context),
        "S": float(pooled(rows, "S").mean()),
        "n_eff": _median(rows, "n_eff"),
        "n_eff_rest": _median(rows, "n_eff_rest"),
        "largest": _median(rows, "largest"),
        "sink_mass": float(pooled(rows, "sink_mass").mean()),
    }
    for epsilon in THRESHOLDS:
        found[f"sink_rate_{epsilon:g}"] = sink_rate(data, context, epsilon)
    for name in asked_for(data):
        found[name] = _mean(rows, name)
    if "gamma" in rows:
        found["gamma"] = _median(rows, "gamma")
        found["gamma_rest"] = _median(rows, "gamma_rest")
        unit = rows.assign(unit=rows["gamma_rest"] / np.sqrt(np.log(np.maximum(rows["length"], 2))))
        found["gamma_rest_over_root_log_n"] = _median(unit, "unit")
        with np.errstate(over="ignore"):  # e^(γ²/2) of wide logits is infinite
            for law in ("limit", "exact", "limit_rest", "exact_rest"):
                found[f"ratio_{law}"] = float(np.exp(_median(rows, f"residual_{law}")))
        for key, (x, y, sign) in _RANKS.items():
            pair = (np.asarray(rows[v], np.float64).ravel() for v in (x, y))
            found[key] = sign * float(rank_correlation(*pair))
    return found


def summary(data: xarray.Dataset) -> list[dict[str, Any]]:
    """One row for each context length, and with and without the token that begins a text.

    Args:
        data: from `measure` or `measure_model`.

    Returns:
        JSON-ready rows. Row statistics are over all rows in the second half of the context
        (T/2 < n ≤ T), layers, heads and texts; ratios are medians of measured over predicted S;
        rank correlations are Spearman's over the same rows; sink rates are those of `sinks`;
        quantities that were asked for are means.
    """
    runs = [data.sel(bos=b) for b in data["bos"].values] if "bos" in data.dims else [data]
    out = []
    for run in runs:
        start = {"bos": begins(run["bos"])} if "bos" in run.coords else {}
        out += [start | _row(run, int(context)) for context in run["context"].values]
    return out


COLUMNS = (  # key, title in a terminal ("" for none), title on a page, format
    ("T", "T", "T", "d"),
    ("S", "mean S", "mean S", ".3f"),
    ("n_eff", "n_eff", "n_eff", ".2f"),
    ("n_eff_rest", "no sink", "without sink", ".2f"),
    ("sink_rate_0.3", "sink .3", "sink rate 0.3", ".1%"),
    ("sink_rate_0.8", "sink .8", "0.8", ".1%"),
    ("gamma_rest", "γ", "γ̂", ".2f"),
    ("ratio_limit_rest", "S/limit", "S/limit", ".3g"),
    ("ratio_exact_rest", "S/exact", "S/exact", ".3g"),
    ("rank_limit_rest", "rank lim", "rank, limit", ".2f"),
    ("rank_exact_rest", "rank ex", "rank, exact", ".2f"),
    ("ratio_limit", "", "whole row: S/limit", ".3g"),
    ("ratio_exact", "", "S/exact", ".3g"),
)


def columns_of(row: Mapping[str, Any]) -> list[tuple[str, str, str, str]]:
    """`COLUMNS`, and those of quantities that were asked for."""
    names = {x.name for x in (*quantities.ALL, *quantities.OF_MAPS)} - set(ALWAYS)
    own = [key for key in row if ":" in key or key in names]
    return [*COLUMNS, *((key, key, f"mean {key}", ".4g") for key in own)]


def text(rows: list[dict[str, Any]]) -> str:
    """The table for a terminal; laws are those of rows without their sink."""
    known = columns_of(rows[0])
    columns = [(key, title, form) for key, title, _, form in known if title and key in rows[0]]
    widths = {key: max(len(title), 8) for key, title, _ in columns}
    bos = "bos" in rows[0]
    titles = (f"{title:>{widths[key]}}" for key, title, _ in columns)
    lines = [" ".join([*(["BOS  "] if bos else []), *titles])]
    for row in rows:
        cells = [f"{row[key]:{form}}".rjust(widths[key]) for key, _, form in columns]
        word = {True: "with ", False: "none ", None: "     "}[row["bos"]] if bos else ""
        lines.append(" ".join([*([word] if bos else []), *cells]))
    notes = "n_eff: median; 'no sink', γ, S/law and rank correlations: rows without the sink key"
    return "\n".join([*lines, notes])
