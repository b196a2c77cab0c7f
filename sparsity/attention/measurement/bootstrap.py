"""How much a figure differs from text to text: the bootstrap over texts, windows kept together."""

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
    figures: Sequence[Mapping[str, Any]],
    names: Iterable[str],
    texts: Sequence[str] | None = None,
    seed: int = 0,
) -> dict[str, dict[str, Any]]:
    """The mean over texts of each figure, with what it would vary over other such texts.

    Texts are drawn with replacement; windows, rows and heads of one text are not independent, and
    are never drawn apart. Every window counts the same.

    Args:
        figures: of each text, or each of its windows, by name.
        names: those wanted.
        texts: of which text each is; None where each is of a text of its own.
        seed: of the draws.

    Returns:
        By name the value, its standard error, its 95 % interval (percentiles of the draws), the
        count of texts in which it is known, method and seed; NaN for fewer than two.
    """
    found, of = {}, np.arange(len(figures))
    if texts is not None:
        of = np.unique(np.asarray(texts), return_inverse=True)[1]
    for name in names:
        values = np.array([float(x.get(name, np.nan)) for x in figures])
        known = np.isfinite(values)
        values = values[known]
        own = np.unique(of[known], return_inverse=True)[1]
        sizes, sums = np.bincount(own), np.bincount(own, values)
        count = len(sizes)
        stderr, ci95 = np.nan, (np.nan, np.nan)
        if count > 1:
            draws = np.random.default_rng(seed).integers(count, size=(DRAWS, count))
            means = sums[draws].sum(1) / sizes[draws].sum(1)
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
