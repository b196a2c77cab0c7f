"""A measurement in one table: focus, sinks and laws at each context length.

Statistics are over rows of the second half of a context. Medians stand where a few rows would set
the mean (n_eff, ratios to laws), means for S and for shares of the weight.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from sparsity import quantities
from sparsity.attention.measurement.datasets import LAWS, MEANING, TAGS, rank_correlation
from sparsity.attention.measurement.layers import ALWAYS
from sparsity.checks import check_instance

if TYPE_CHECKING:
    import xarray

THRESHOLDS = (0.3, 0.8)  # ε of [Gu] and of [Barbero]

_RANKS = {  # the limit law e^(−γ²/2) ranks rows as −γ does, which does not underflow
    f"rank_{law}{tag}": (f"S{tag}", f"{of}{tag}", sign)
    for tag in TAGS
    for law, of, sign in (("limit", "gamma", -1), ("exact", "S_exact", 1))
}


def rows_at(data: xarray.Dataset, context: int) -> xarray.Dataset:
    """Return the rows in the second half of a context: T/2 < n ≤ T.

    Early rows see few keys and are focused by that alone. Rows that do not look back all see the
    whole text.
    """
    if not data.attrs["causal"]:
        return data
    return data.sel(row=slice(context // 2 + 1, context))


def known_values(data: xarray.Dataset, name: str) -> np.ndarray:
    """Return all known values of a variable."""
    values = np.asarray(data.variables[name], np.float64).ravel()
    return values[np.isfinite(values)]


def median(values: np.ndarray) -> float:
    """Return the median of the values that are known; NaN for none."""
    known = values[np.isfinite(values)].astype(np.float64)
    return float(np.median(known)) if len(known) else math.nan


def _late(rows: xarray.Dataset, name: str) -> np.ndarray:
    return known_values(rows[[name]].mean("row"), name)


def _share(values: np.ndarray, epsilon: float) -> float:
    return float(np.mean(values > epsilon)) if len(values) else math.nan


def _sink_rates(data: xarray.Dataset, context: int, rows: xarray.Dataset) -> dict[str, float]:
    """Return sink rates: as published, of any key, and of the rows T/2 < n ≤ T, `rows`."""
    so_far = data[["importance", "top_importance"]].sel(context=context)
    masses = {
        "sink": known_values(so_far, "importance"),
        "any": known_values(so_far, "top_importance"),
        "late": _late(rows, "sink_mass"),
        "all_sinks": _late(rows, "all_sinks_mass"),
    }
    return {
        f"{name}_rate_{epsilon:g}": _share(values, epsilon)
        for epsilon in THRESHOLDS
        for name, values in masses.items()
    }


def summarise_context(data: xarray.Dataset, context: int) -> dict[str, Any]:
    """Return one row of `summary`: medians and means over all rows of the second half of T."""
    rows = rows_at(data, context)
    row: dict[str, Any] = {"T": int(context)}
    for name in ("S", "sink_mass", "all_sinks_mass"):
        row[name] = float(known_values(rows, name).mean())
    for name in ("n_eff", "n_eff_without_sink_key", "n_eff_without_sinks", "largest"):
        row[name] = median(rows[name].values)
    row |= _sink_rates(data, context, rows)
    for name in (str(x) for x in rows.data_vars if x not in MEANING and "row" in rows[x].dims):
        values = known_values(rows, name)
        row[name] = float(values.mean()) if len(values) else math.nan
    if "gamma" in rows:
        for name in ("gamma", "gamma_without_sink_key", "gamma_without_sinks"):
            row[name] = median(rows[name].values)
        gamma, n = (rows.variables[name] for name in ("gamma_without_sink_key", "length"))
        # In units of √(ln n) a spread is comparable between lengths: rows freeze at √2 of them.
        unit = gamma / np.sqrt(np.log(np.maximum(n, 2)))
        row["gamma_without_sink_key_over_root_log_n"] = median(unit.values)
        with np.errstate(over="ignore"):  # e^(γ²/2) of wide logits is infinite
            for law in LAWS:
                for tag in TAGS:
                    middle = median(rows[f"residual_{law}{tag}"].values)
                    row[f"ratio_{law}{tag}"] = float(np.exp(middle))
        for key, (x, y, sign) in _RANKS.items():
            pair = (np.asarray(rows.variables[v], np.float64).ravel() for v in (x, y))
            row[key] = sign * float(rank_correlation(*pair))
    return row


def summary(data: xarray.Dataset) -> list[dict[str, Any]]:
    """Return one row for each context length.

    Args:
        data: from `measure`, or of `sparsity measure`.

    Returns:
        JSON-ready rows. Row statistics are over all rows in the second half of the context
        (T/2 < n ≤ T), layers, heads and texts; ratios are medians of measured over predicted S;
        rank correlations are Spearman's over the same rows, and quantities that were asked for are
        means. Shares of texts, layers and heads: sink_rate, where the sink key's importance over
        all rows so far exceeds ε, as published; any_rate, where any key's does; late_rate and
        all_sinks_rate, where the mean weight of the sink key, or of all sinks together, does in the
        rows of the second half.
    """
    import xarray

    check_instance("data", data, xarray.Dataset, "give a dataset of measure")
    return [summarise_context(data, int(context)) for context in data["context"].values]


def by_text(data: xarray.Dataset) -> list[dict[str, Any]]:
    """Return a row for each text of `sparsity measure` at the longest context, as `summary` has."""
    T = int(data["context"][-1])
    return [
        {"text": str(name), **summarise_context(data.sel(text=[name]), T)}
        for name in data["text"].values
    ]


COLUMNS = (  # key, title, format
    ("T", "T", "d"),
    ("S", "mean S", ".3f"),
    ("n_eff", "n_eff", ".2f"),
    ("n_eff_without_sinks", "no sinks", ".2f"),
    ("all_sinks_rate_0.3", "sinks .3", ".1%"),
    ("gamma_without_sinks", "γ", ".2f"),
    ("ratio_limit_without_sinks", "S/limit", ".3g"),
    ("ratio_exact_without_sinks", "S/exact", ".3g"),
    ("rank_limit_without_sinks", "rank lim", ".2f"),
    ("rank_exact_without_sinks", "rank ex", ".2f"),
)
FIRST_TOKEN = (  # the same of the first token alone
    ("sink_rate_0.3", "first .3", ".1%"),
    ("sink_rate_0.8", "first .8", ".1%"),
    ("late_rate_0.3", "late .3", ".1%"),
)
NOTES = (
    "Rows T/2 < n ≤ T; n_eff, γ, S/law: medians; from 'no sinks' to 'rank ex' without all sinks,",
    "keys of more than 0.1 of the weight on average; 'sinks .3': heads where these have more than",
    "0.3 together. 'first .3', 'first .8': heads where the first token does, by the published",
    "definition, over all rows so far; 'late .3': over the rows above T/2 alone",
)


def columns_of(row: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """Return those of `COLUMNS`, `FIRST_TOKEN` and quantities asked for that a row has."""
    names = {x.name for x in (*quantities.ALL, *quantities.OF_MAPS)} - set(ALWAYS)
    asked = [(key, key, ".4g") for key in row if ":" in key or key in names]
    return [x for x in (*COLUMNS, *FIRST_TOKEN, *asked) if x[0] in row]


def text(rows: list[dict[str, Any]]) -> str:
    """Return the table for a terminal; laws are those of rows without their sinks."""
    columns = [(*x, max(len(x[1]), 8)) for x in columns_of(rows[0])]
    lines = [" ".join(f"{title:>{width}}" for _, title, _, width in columns)]
    for row in rows:
        lines.append(" ".join(f"{row[key]:{form}}".rjust(width) for key, _, form, width in columns))
    return "\n".join([*lines, *NOTES])
