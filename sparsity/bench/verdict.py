"""What the numbers say: the claims of speed, each with what was found and what was asked for."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import geometric_mean
from typing import Any


def to_target(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """For each target: how far ours is ahead of the best sampling peer, over all its cells.

    Args:
        rows: of `sparsity.bench.target.timed`.

    Returns:
        The geometric mean of the ratios over all cells and over those where the best peer was
        measured, the worst cell, the cells that are slower, and those ours did not reach.
    """
    out = []
    for rel_error in sorted({row["rel_error"] for row in rows}, reverse=True):
        mine = [row for row in rows if row["rel_error"] == rel_error]
        judged = [(row["best"][1], row["cell"], row["best"][0], row) for row in mine if row["best"]]
        measured = [r for r, _, peer, row in judged if row["peers"][peer]["how"] == "measured"]
        worst = min(judged, key=lambda entry: entry[0], default=None)
        out.append(
            {
                "rel_error": rel_error,
                "cells": len(mine),
                "geometric_mean": geometric_mean([r for r, *_ in judged]) if judged else math.nan,
                "measured_cells": len(measured),
                "geometric_mean_measured": geometric_mean(measured) if measured else math.nan,
                "worst": worst and {"ratio": worst[0], "cell": worst[1], "peer": worst[2]},
                "slower": [cell for r, cell, *_ in judged if r < 1],
                "unreached": [row["cell"] for row in mine if not row["ours"]["reached"]],
                "slowest_seconds": max(row["ours"]["seconds"] for row in mine),
            }
        )
    return out


def claims(sections: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The claims that the sections of a report can decide, from their numbers alone."""
    out: list[dict[str, Any]] = []

    def claim(what: str, found: float | None, asked: float, met: bool) -> None:
        out.append({"claim": what, "found": found, "asked": asked, "met": bool(met)})

    for dtype in dict.fromkeys(row["dtype"] for row in sections["raw"]):
        rows = [row for row in sections["raw"] if row["dtype"] == dtype]
        least, wrong = min(r["ratio"] for r in rows), any("sparsity" in r["wrong"] for r in rows)
        what = f"raw {dtype} draws per second over the best peer's, least of the kernels"
        claim(what, least, 1.5, least >= 1.5 and not wrong)
    for target in to_target(sections["target"]):
        error, good = f"{target['rel_error']:g}", not target["unreached"]
        mean, worst = target["geometric_mean"], target["worst"]
        what = f"time to {error} over the best sampling peer's, geometric mean"
        claim(what, mean, 100, good and mean >= 100)
        measured = target["geometric_mean_measured"]
        what = f"the same over the cells where the best peer was measured ({error})"
        claim(what, measured, 1, good and measured >= 1)
        least = worst["ratio"] if worst else math.nan
        claim(f"the same, worst cell ({error})", least, 1, good and least >= 1)
        slowest = target["slowest_seconds"]
        what = f"seconds to {error} in the slowest cell, warm, error bar right"
        claim(what, slowest, 1, good and slowest < 1)
    forms = sections["theory"]["closed_forms"]
    slowest = min(row["points_per_second"] for row in forms)
    claim("closed forms, points per second, slowest", slowest, 1e7, slowest >= 1e7)
    speed = {row["name"]: row["points_per_second"] for row in sections["theory"]["integrators"]}
    scores = [r["points_per_second"] for r in forms if r["kernel"] in ("exp", "relu2", "identity")]
    over = min(scores) / speed["scipy.quad"]
    claim("closed forms over scipy.integrate.quad, slowest", over, 1e4, over >= 1e4)
    own = sections["users"]
    least = min(row["ratio"] for row in own)
    held = least >= 1 and all(row["within_bound"] for row in own)
    what = "kernels of users over the best integrator as accurate, slowest; errors within bounds"
    claim(what, least, 1, held)
    drawn = sections["curves"]
    least = min(row["best"][1] if row["best"] else math.nan for row in drawn)
    reached = all(row["ours"]["reached"] for row in drawn)
    claim("Monte Carlo curves over the best one-liner, slowest", least, 1, reached and least >= 1)
    peak = max((row["peak_mib"] for row in sections["memory"]), default=math.nan)
    claim("peak memory in MiB, largest job", peak, 1024, peak < 1024)
    return out
