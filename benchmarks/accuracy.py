"""The accuracy table: closed forms against rigorous balls, kernel × region -> worst error.

    python -m benchmarks.accuracy [--points N] [--out DIR]

Writes accuracy.md and accuracy.json. The error is |Δ log S| / max(1, |log S|), an upper bound from
Arb balls of the derived expressions at the exact float64 parameters. Needs python-flint.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.certify import log_errors
from sparsity import kernels
from sparsity.limit import closed_form

SEED = 20231212
POINTS = 10_000  # random points a kernel, at least
RESULTS = Path(__file__).parent / "results"

Draw = Callable[[np.random.Generator, int], dict[str, Any]]
Parameters = dict[str, Any]


def _log_uniform(rng: np.random.Generator, low: float, high: float, count: int) -> np.ndarray:
    return np.exp(rng.uniform(math.log(low), math.log(high), count))


def _scores(z: Callable[[np.random.Generator, int], np.ndarray]) -> Draw:
    """Points (β, γ) with β/γ drawn by `z` and γ log-uniform over its whole range."""

    def draw(rng: np.random.Generator, count: int) -> Parameters:
        gamma = _log_uniform(rng, 1e-6, 1e6, count)
        return {"beta": z(rng, count) * gamma, "gamma": gamma}

    return draw


def _between(low: float, high: float) -> Draw:
    return _scores(lambda rng, count: rng.uniform(low, high, count))


def _sizes(low: float, high: float, sign: int) -> Draw:
    return _scores(lambda rng, count: sign * _log_uniform(rng, low, high, count))


def _spreads(low: float, high: float) -> Draw:
    """Points (β, γ) with γ log-uniform in a range and β anywhere."""

    def draw(rng: np.random.Generator, count: int) -> Parameters:
        beta = rng.choice([-1, 1], count) * _log_uniform(rng, 1e-6, 1e6, count)
        return {"beta": beta, "gamma": _log_uniform(rng, low, high, count)}

    return draw


def _lengths(rng: np.random.Generator, high: float, count: int) -> np.ndarray:
    return np.floor(_log_uniform(rng, 1, high + 1, count))


def _decay_uniform(rng: np.random.Generator, count: int) -> Parameters:
    return {"decay": 1 - rng.random(count), "length": _lengths(rng, 1e12, count)}


def _decay_to_one(rng: np.random.Generator, count: int) -> Parameters:
    loss = _log_uniform(rng, 1e-16, 1e-2, count)
    return {"decay": 1 - loss, "length": _lengths(rng, 1e12, count)}


def _decay_to_zero(rng: np.random.Generator, count: int) -> Parameters:
    return {"decay": _log_uniform(rng, 1e-300, 0.1, count), "length": _lengths(rng, 1e12, count)}


def _decay_at_window(rng: np.random.Generator, count: int) -> Parameters:
    """Rows as long as the window 1/(1 − λ), within a factor of 100."""
    loss = _log_uniform(rng, 1e-10, 0.5, count)
    length = np.maximum(1, np.round(_log_uniform(rng, 0.01, 100, count) / loss))
    return {"decay": 1 - loss, "length": length}


def _decay_short(rng: np.random.Generator, count: int) -> Parameters:
    loss = _log_uniform(rng, 1e-16, 1, count)
    decay = np.where(rng.random(count) < 0.5, 1 - loss, loss)
    return {"decay": decay, "length": _lengths(rng, 20, count)}


def _features(query: str, dims: Callable[[np.random.Generator, int], np.ndarray]) -> Draw:
    def draw(rng: np.random.Generator, count: int) -> Parameters:
        ratio = _log_uniform(rng, 1e-6, 1e6, count)
        return {"ratio": ratio, "dim": dims(rng, count), "query": query}

    return draw


def _any_dim(rng: np.random.Generator, count: int) -> np.ndarray:
    return _lengths(rng, 1e6, count)


def _few_dims(rng: np.random.Generator, count: int) -> np.ndarray:
    """Dimensions from a short list: a certified norm costs d inverse error functions."""
    return rng.choice(np.unique(_lengths(rng, 2e4, 40)), count)


SCORE_REGIONS: dict[str, Draw] = {
    "-40 < z < -8": _between(-40, -8),
    "-8 < z < -4": _between(-8, -4),
    "-4 < z < -1.5": _between(-4, -1.5),
    "-1.5 < z < 0": _between(-1.5, 0),
    "0 < z < 2": _between(0, 2),
    "2 < z < 10": _between(2, 10),
    "10 < z < 1e6": _sizes(10, 1e6, 1),
    "1e-12 < z < 1": _sizes(1e-12, 1, 1),
    "1e-12 < -z < 1": _sizes(1e-12, 1, -1),
}
REGIONS: dict[str, dict[str, Draw]] = {
    "exp": {
        "1e-6 < gamma < 1e-3": _spreads(1e-6, 1e-3),
        "1e-3 < gamma < 1": _spreads(1e-3, 1),
        "1 < gamma < 1e3": _spreads(1, 1e3),
        "1e3 < gamma < 1e6": _spreads(1e3, 1e6),
    },
    "relu2": SCORE_REGIONS,
    "identity": SCORE_REGIONS,
    "nonnegative": {
        "uniform, d to 1e6": _features("uniform", _any_dim),
        "one-hot, d to 1e6": _features("one-hot", _any_dim),
        "half-normal, d to 2e4": _features("half-normal", _few_dims),
    },
    "decayed": {
        "0 < lambda < 1": _decay_uniform,
        "1e-16 < 1 - lambda < 1e-2": _decay_to_one,
        "1e-300 < lambda < 0.1": _decay_to_zero,
        "n near 1/(1 - lambda)": _decay_at_window,
        "n to 20": _decay_short,
    },
}


def _grid(**values: Any) -> Parameters:
    """Every combination of the values, flat."""
    columns = zip(*itertools.product(*values.values()), strict=True)
    return {name: np.array(column) for name, column in zip(values, columns, strict=True)}


def _score_corners() -> Parameters:
    z = [-40.0, -10.0, -8.0, -4.0, -2.0, -1.5, -1.0, -1e-300, 0.0, 1e-300, 1.0, 10.0, 40.0, 1e6]
    z += [float(np.nextafter(edge, side)) for edge in (-8, -4, -2, -1.5, 10) for side in (-50, 50)]
    points = _grid(z=z, gamma=[1e-6, 1.0, 1e6])
    return {"beta": points.pop("z") * points["gamma"], "gamma": points["gamma"]}


def corners(kernel: str) -> Iterator[Parameters]:
    """The extremes of each parameter, and the seams of the stable forms."""
    if kernel == "exp":
        yield _grid(beta=[-40.0, 0.0, 40.0], gamma=[1e-6, 1.0, 40.0, 1e6])
    elif kernel in ("relu2", "identity"):
        yield _score_corners()
    elif kernel == "nonnegative":
        ratio, dim = [1e-300, 1e-6, 0.5, 1.0, 2.0, 1e6, 1e300], [1.0, 2.0, 1e6]
        for query in ("uniform", "one-hot", "half-normal"):
            yield {**_grid(ratio=ratio, dim=dim), "query": query}
    elif kernel == "decayed":
        near_one = [1.0, float(np.nextafter(1, 0)), 1 - 1e-12, 1 - 1e-6, 0.999]
        decay = [*near_one, 0.5, 1e-3, 1e-16, 1e-300]
        yield _grid(decay=decay, length=[1.0, 2.0, 3.0, 1e3, 1e6, 1e12])


def draws(kernel: str, points: int, seed: int = SEED) -> Iterator[tuple[str, Parameters]]:
    """Regions of a kernel with their random points, `points` or a few more in all."""
    regions = REGIONS[kernel]
    share = -(-points // len(regions))
    streams = np.random.SeedSequence([seed, list(REGIONS).index(kernel)]).spawn(len(regions))
    for (region, draw), stream in zip(regions.items(), streams, strict=True):
        yield region, draw(np.random.default_rng(stream), share)


def judge(
    kernel: str, region: str, parameters: Parameters, form: Callable[..., Any] | None = None
) -> dict[str, Any]:
    """One row of the table: the worst error of a form (the library's own) on given points."""
    definition = kernels.elementwise(kernel)
    bound = definition.bind(parameters)
    log_S = closed_form.sparsity(definition, bound)[1] if form is None else form(**bound)
    errors = log_errors(definition, log_S, bound)
    worst = int(np.argmax(errors))
    at = {
        name: x if isinstance(x, str) else float(np.broadcast_to(x, errors.shape)[worst])
        for name, x in bound.items()
    }
    return {
        "kernel": kernel,
        "region": region,
        "points": errors.size,
        "worst": float(errors[worst]),
        "log_S": float(log_S[worst]),
        "at": at,
    }


def rows(points: int = POINTS, seed: int = SEED) -> Iterator[dict[str, Any]]:
    """The table, row by row."""
    for kernel in REGIONS:
        for region, parameters in draws(kernel, points, seed):
            yield judge(kernel, region, parameters)
        for parameters in corners(kernel):
            label = f"corners, {parameters['query']}" if "query" in parameters else "corners"
            yield judge(kernel, label, parameters)


def markdown(table: list[dict[str, Any]]) -> str:
    """The table for readers."""
    lines = [
        "# Accuracy of the closed forms",
        "",
        "Worst |Δ log S| / max(1, |log S|) against rigorous balls, z = β/γ. The bound is",
        f"{closed_form.RELATIVE_ERROR:g} everywhere. Written by `python -m benchmarks.accuracy`.",
        "",
        "| kernel | region | points | worst | at |",
        "| --- | --- | ---: | ---: | --- |",
    ]
    for row in table:
        at = ", ".join(f"{name} = {value}" for name, value in row["at"].items())
        lines.append(
            f"| {row['kernel']} | {row['region']} | {row['points']} | {row['worst']:.1e} | {at} |"
        )
    return "\n".join([*lines, ""])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--points", type=int, default=POINTS, help="random points a kernel")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the table")
    options = parser.parse_args()

    start, table = time.perf_counter(), []
    for row in rows(options.points):
        table.append(row)
        print(f"{row['kernel']:12} {row['region']:26} {row['points']:6} {row['worst']:.1e}")
    worst = max(row["worst"] for row in table)
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "accuracy.md").write_text(markdown(table), encoding="utf-8")
    record = {"bound": closed_form.RELATIVE_ERROR, "seed": SEED, "worst": worst, "rows": table}
    (options.out / "accuracy.json").write_text(json.dumps(record, indent=1) + "\n")
    seconds = time.perf_counter() - start
    print(f"worst {worst:.1e}, bound {closed_form.RELATIVE_ERROR:g}, {seconds:.0f} s")
    return 0 if worst <= closed_form.RELATIVE_ERROR else 1


if __name__ == "__main__":
    raise SystemExit(main())
