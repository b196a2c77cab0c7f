"""What the numbers say: the claims of speed, each with what was found and what was asked for."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from statistics import geometric_mean
from typing import Any


def to_target(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """For each target: how far ours is ahead of the best peer that draws from the law.

    Args:
        rows: of `benchmarks.bench.target.timed`.

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


Claim = tuple[str, float, float, bool]  # what, found, asked for, met


def _raw(rows: Sequence[Mapping[str, Any]]) -> Iterator[Claim]:
    for dtype in dict.fromkeys(row["dtype"] for row in rows):
        own = [row for row in rows if row["dtype"] == dtype]
        least, wrong = min(r["ratio"] for r in own), any("sparsity" in r["wrong"] for r in own)
        what = f"raw {dtype} draws per second over the best peer's, least of the kernels"
        yield what, least, 1.5, least >= 1.5 and not wrong


def _target(rows: Sequence[Mapping[str, Any]]) -> Iterator[Claim]:
    for target in to_target(rows):
        error, good = f"{target['rel_error']:g}", not target["unreached"]
        mean, worst = target["geometric_mean"], target["worst"]
        what = f"time to {error} over the best peer's that draws from the law, geometric mean"
        yield what, mean, 100, good and mean >= 100
        measured = target["geometric_mean_measured"]
        what = f"the same over the cells where the best peer was measured ({error})"
        yield what, measured, 1, good and measured >= 1
        least = worst["ratio"] if worst else math.nan
        yield f"the same, worst cell ({error})", least, 1, good and least >= 1
        slowest = target["slowest_seconds"]
        what = f"seconds to {error} in the slowest cell, warm, error bar right"
        yield what, slowest, 1, good and slowest < 1


def _adaptive(rows: Sequence[Mapping[str, Any]]) -> Iterator[Claim]:
    for error in sorted({row["rel_error"] for row in rows}, reverse=True):
        own = [row for row in rows if row["rel_error"] == error]
        mean = geometric_mean([row["ratio"] for row in own])
        good = all(row["ours"]["reached"] for row in own)
        yield f"time to {error:g} over vegas's, geometric mean", mean, 1, good and mean >= 1


def _theory(theory: Mapping[str, Any]) -> Iterator[Claim]:
    forms = theory["closed_forms"]
    slowest = min(row["points_per_second"] for row in forms)
    yield "closed forms, points per second, slowest", slowest, 1e7, slowest >= 1e7
    slowest = min(row["evaluate_points_per_second"] for row in forms)
    yield "the same through evaluate or arrays", slowest, 2e7, slowest >= 2e7
    speed = {row["name"]: row["points_per_second"] for row in theory["integrators"]}
    scores = [r["points_per_second"] for r in forms if r["kernel"] in ("exp", "relu2", "identity")]
    over = min(scores) / speed["scipy.quad"]
    yield "closed forms over scipy.integrate.quad, slowest", over, 1e4, over >= 1e4


def _users(rows: Sequence[Mapping[str, Any]]) -> Iterator[Claim]:
    right = all(row["within_bound"] and row["largest_bound"] <= 1e-11 for row in rows)
    slowest = min(row["points_per_second"]["sparsity"] for row in rows)
    what = "kernels of users, points per second, slowest; errors within bounds"
    yield what, slowest, 2e4, right and slowest >= 2e4
    over = min(row["ours_over"]["scipy.quad"] for row in rows)
    yield "the same over scipy.integrate.quad", over, 10, right and over >= 10
    least = min(row["ratio"] for row in rows)
    yield "the same over the best integrator as accurate", least, 1, right and least >= 1
    first = max(row["first_seconds"] for row in rows)
    yield "the same, first call from the formula on, seconds", first, 1, right and first <= 1


def _finite(rows: Sequence[Mapping[str, Any]]) -> Iterator[Claim]:
    agree = all(row["agrees"] for row in rows)
    slowest = max(row["curve_seconds"] for row in rows)
    what = "exact law of a curve of lengths at a new law, seconds, slowest"
    yield what, slowest, 0.01, agree and slowest <= 0.01
    slowest = max(row["biases_seconds"] for row in rows)
    what = "exact law of many biases at one length, seconds, slowest"
    yield what, slowest, 0.5, agree and slowest <= 0.5


def _curves(rows: Sequence[Mapping[str, Any]]) -> Iterator[Claim]:
    least = min(row["best"][1] if row["best"] else math.nan for row in rows)
    reached = all(row["ours"]["reached"] for row in rows)
    what = "Monte Carlo curves over the best one-liner, slowest"
    yield what, least, 1, reached and least >= 1


def _memory(rows: Sequence[Mapping[str, Any]]) -> Iterator[Claim]:
    peak = max((row["peak_mib"] for row in rows), default=math.nan)
    yield "peak memory in MiB, largest job", peak, 1024, peak < 1024


_JUDGES = {"raw": _raw, "target": _target, "adaptive": _adaptive, "theory": _theory,
           "users": _users, "finite": _finite, "curves": _curves, "memory": _memory}  # fmt: skip


def claims(sections: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The claims that the sections of a report can decide, from their numbers alone."""
    return [
        {"claim": what, "found": found, "asked": asked, "met": bool(met)}
        for part, judge in _JUDGES.items()
        for what, found, asked, met in judge(sections[part])
    ]
