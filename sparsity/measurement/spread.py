"""How much a figure differs from text to text: the bootstrap over texts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

DRAWS = 2000
NAMES = (  # of `tables.row` and the loss
    "loss", "S", "n_eff", "n_eff_rest", "n_eff_others", "gamma_others", "ratio_exact_rest",
    "ratio_exact_others", "sink_rate_0.3", "any_rate_0.3", "late_rate_0.3", "sinks_rate_0.3",
)  # fmt: skip


def over_texts(
    figures: Sequence[Mapping[str, Any]], names: Iterable[str], seed: int = 0
) -> dict[str, dict[str, Any]]:
    """The mean over texts of each figure, with what it would vary over other such texts.

    Texts are drawn with replacement; rows and heads of one text are not independent, and are never
    drawn apart.

    Args:
        figures: of each text, by name.
        names: those wanted.
        seed: of the draws.

    Returns:
        By name the value, its standard error, its 95 % interval (percentiles of the draws), the
        count of texts in which it is known, method and seed; NaN for fewer than two.
    """
    found = {}
    for name in names:
        values = np.array([float(x.get(name, np.nan)) for x in figures])
        values = values[np.isfinite(values)]
        count = len(values)
        stderr, ci95 = np.nan, (np.nan, np.nan)
        if count > 1:
            draws = np.random.default_rng(seed).integers(count, size=(DRAWS, count))
            means = values[draws].mean(1)
            stderr, ci95 = means.std(ddof=1), np.percentile(means, [2.5, 97.5])
        found[name] = {
            "value": float(values.mean()) if count else np.nan,
            "stderr": float(stderr),
            "ci95": [float(x) for x in ci95],
            "count": count,
            "method": f"bootstrap over texts, {DRAWS} draws",
            "seed": seed,
        }
    return found
