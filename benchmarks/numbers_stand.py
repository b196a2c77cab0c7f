"""Holds today's numbers: records what every instrument answers, and compares two recordings.

    python -m benchmarks.numbers_stand record FILE.json [--only PREFIX]
    python -m benchmarks.numbers_stand compare OLD.json NEW.json [--tolerance 1e-14]

A recording asks only the public names of `sparsity`, so that one script runs on two commits whose
modules have other names: record both, then compare. Each cell is written with its error bound or
standard error. A number stands if it is equal to the tolerance, relative; what differs by more is
printed with both bounds, and counts as explained only where the two differ by no more than both
bounds together. A refusal is a cell too: its class and the argument it names must stay. Exit 1 if a
cell is missing, an answer became a refusal or a refusal another, or a difference is not explained.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

import sparsity
from sparsity import Alibi, Decay, LengthBias, QKNorm, Row, ScalableSoftmax, Sink, SinkLogit, Window

SCORE_KERNELS = (
    *("exp", "relu2", "identity", "relu", "relu3", "power2", "power4", "abs", "cosh", "taylor2"),
    *("taylor4", "threshold", "softpick", "softplus", "sigmoid", "elu+1", "elu", "gelu", "silu"),
    *("tanh(s)**2", "abs(s)**0.3", "s**3", "exp(-s**2)", "sinh(s)", "relu(s - 1)"),  # typed
)
MAPS = (
    *("sparsemax", "topk:8", "topk:3", "stick-breaking", "entmax1.5", "entmax:1.25", "entmax:1.7"),
    *("differential", "forgetting", "performer"),
)
QUANTITIES = (
    *(
        "S",
        "n_eff",
        "participation",
        "entropy",
        "max_weight",
        "gini",
        "hoyer",
        "sink_mass",
        "support",
    ),
    *("top_k_mass:4", "keys_for_mass:0.5", "power_sum:3", "power_sum:0.5"),
    *("sink_mass", "sink_mass_above:0.3", "square_sum", "abs_sum"),
)
STEPS: dict[str, tuple[Any, ...]] = {
    "": (),
    "alibi": (Alibi(0.05),),
    "decay": (Decay(0.97),),
    "window": (Window(16),),
    "sink": (Sink(3.0, 0.5),),
    "sink logit": (SinkLogit(2.0),),
    "scalable": (ScalableSoftmax(0.43),),
    "length bias": (LengthBias(-1.0),),
    "qk-norm": (QKNorm(64),),
    "window, sink logit": (Window(64), SinkLogit(1.0)),
}
PLACES = ((0.5, 1.5), (-2.0, 0.7))  # (β, γ)
LENGTHS = (1, 2, 3, 17, 1024, 131072)
SEED = 20240817

Cell = tuple[str, Callable[[], Any]]


def rounded(values: Any) -> list[float]:
    return [float(value) for value in np.ravel(np.asarray(values, dtype=np.float64))]


def limits() -> Iterator[Cell]:
    """Limits of long rows of every kernel, map and quantity."""
    by_length = ("n_eff", "entropy", "keys_for_mass", "participation", "power_sum", "top_k_mass")
    no_limit = ("max_weight", "support", "sink_mass", "square_sum", "abs_sum")
    for beta, gamma in PLACES:
        for kernel in SCORE_KERNELS:
            for of in QUANTITIES:
                if of.startswith(no_limit) and kernel != "exp":
                    continue  # refused alike for every kernel
                place: dict[str, Any] = {"beta": beta, "gamma": gamma}
                place |= {"length": 1024} if of.startswith(by_length) else {}

                def ask(k: str = kernel, o: str = of, given: dict[str, Any] = place) -> Any:
                    found = sparsity.evaluate(k, of=o, **given)
                    return rounded(found.log_value), rounded(found.error_bound)

                yield f"limit/{kernel}/{of}/{beta},{gamma}", ask
    for ratio, dim in ((0.5, 8), (2.0, 64)):
        for query in ("uniform", "one-hot", "half-normal"):

            def ask_features(r: float = ratio, d: int = dim, q: str = query) -> Any:
                found = sparsity.evaluate("nonnegative", ratio=r, dim=d, query=q)
                return rounded(found.log_S), rounded(found.error_bound)

            yield f"limit/nonnegative/{ratio},{dim},{query}", ask_features
    for decay in (0.5, 0.99, 1.0):

        def ask_decayed(rate: float = decay) -> Any:
            found = sparsity.evaluate("decayed", decay=rate, length=np.array(LENGTHS))
            return rounded(found.log_S), rounded(found.error_bound)

        yield f"limit/decayed/{decay}", ask_decayed


def exact_laws() -> Iterator[Cell]:
    """Exact laws of every kernel, map and quantity without steps; with every step for some."""

    def asking(kernel: str, of: str, lengths: tuple[int, ...], **given: Any) -> Callable[[], Any]:
        def ask() -> Any:
            row = Row(kernel, **given)
            found = sparsity.exact(row, length=np.array(lengths), of=of)
            return rounded(found.log_value), rounded(found.error_bound)

        return ask

    for beta, gamma in PLACES:
        for kernel in SCORE_KERNELS:
            for of in QUANTITIES:
                asked = asking(kernel, of, LENGTHS, beta=beta, gamma=gamma)
                yield f"exact/{kernel}/{of}/{beta},{gamma}", asked
    for beta, gamma in PLACES:
        for kernel in MAPS:
            for of in QUANTITIES:
                given: dict[str, Any] = {"gamma": gamma}
                if kernel == "forgetting":
                    given |= {"gate": 2.0, "gate_spread": 0.5}
                elif kernel not in ("differential", "performer"):
                    given |= {"beta": beta}
                asked = asking(kernel, of, (1, 2, 9, 64), **given)
                yield f"exact/{kernel}/{of}/{beta},{gamma}", asked
    for label, steps in STEPS.items():
        for kernel in ("exp", "relu2", "softplus", "identity", "sigmoid"):
            for of in QUANTITIES:
                asked = asking(kernel, of, (1, 2, 5, 200), beta=0.5, gamma=1.5, steps=steps)
                yield f"exact/{kernel} {label}/{of}", asked
    laws: dict[str, Any] = {
        "uniform": sparsity.Uniform(),
        "student": sparsity.StudentT(5.0),
        "mixture": sparsity.Mixture(((0.3, 1.0, 0.5), (0.7, -0.2, 1.0))),
        "empirical": sparsity.Empirical(tuple(np.random.default_rng(SEED).normal(size=200))),
    }
    for label, law in laws.items():
        for kernel in ("exp", "relu2", "softplus", "identity", "sparsemax"):
            for of in ("S", "n_eff", "entropy", "max_weight"):
                asked = asking(kernel, of, (1, 2, 30), beta=0.5, gamma=1.2, scores=law)
                yield f"exact/{kernel} {label}/{of}", asked


def inverses() -> Iterator[Cell]:
    """Designs, sink logits and regimes."""
    for kernel, free, n_eff in (
        *(("exp", "gamma", 20.0), ("exp", "gamma", 3.0), ("relu2", "beta", 40.0)),
        *(("softplus", "gamma", 300.0), ("sigmoid", "beta", 150.0), ("gelu", "beta", 90.0)),
    ):

        def ask(k: str = kernel, f: str = free, n: float = n_eff) -> Any:
            other: Any = {"beta": {"gamma": 1.0}, "gamma": {"beta": 0.0}}[f]
            found = sparsity.design(k, length=1024, n_eff=n, free=f, **other)
            return rounded(found.value), None

        yield f"design/{kernel}/{free}/{n_eff}", ask
    for mass in (0.1, 0.5, 0.9):

        def ask_sink(m: float = mass) -> Any:
            place = {"beta": 0.0, "gamma": 2.0, "length": [16, 4096]}
            return rounded(sparsity.sink_logit(m, "exp", **place)), None

        yield f"sink_logit/{mass}", ask_sink
    for n in (64, 10**6):
        for gamma in (0.5, 2.0, 8.0):

            def ask_regime(n: int = n, gamma: float = gamma) -> Any:
                found = sparsity.regime(n, gamma)
                numbers = [
                    x for x in vars(found).values() if isinstance(x, (int, float, np.ndarray))
                ]
                return [x for each in numbers for x in rounded(each)], None

            yield f"regime/{n}/{gamma}", ask_regime


def samples() -> Iterator[Cell]:
    """Estimates by seed: the same bits."""

    def asking(row: Any, **options: Any) -> Callable[[], Any]:
        def ask() -> Any:
            found = sparsity.estimate(row, seed=SEED, **options)
            return rounded(found.value), rounded(found.stderr)

        return ask

    for kernel in ("exp", "relu2", "identity", "softplus", "gelu"):
        row = Row(kernel, beta=0.5, gamma=1.5)
        yield f"estimate/{kernel}/scores", asking(row, max_samples=1e5)
        yield f"estimate/{kernel}/n_eff", asking(row, of="n_eff", length=64, max_samples=1e5)
    for kernel in ("sparsemax", "topk:3", "entmax1.5", "stick-breaking"):
        row = Row(kernel, beta=0.0, gamma=1.5)
        for of in ("n_eff", "entropy", "max_weight"):
            yield f"estimate/{kernel}/{of}", asking(row, of=of, length=32, max_samples=1e5)
    for label, steps in STEPS.items():
        row = Row("exp", gamma=1.5, steps=steps)
        yield f"estimate/exp {label}/n_eff", asking(row, of="n_eff", length=48, max_samples=1e5)
    grids = {"beta": [0.0, 1.0], "gamma": np.geomspace(0.1, 10, 9)}

    def ask_sweep() -> Any:
        found = sparsity.sweep("exp", montecarlo=True, seed=SEED, max_samples=1e5, **grids)
        return [x for name in sorted(map(str, found.data_vars)) if found[name].dtype.kind == "f"
                and "second" not in name for x in rounded(found[name])], None  # fmt: skip

    yield "sweep/exp", ask_sweep


def _first_name(name: str) -> str:
    """What a variable was called in the first recordings, whose order stays."""
    name = name.replace("_without_sinks", "_others").replace("_without_sink_key", "_rest")
    return name.replace("all_sinks_", "sinks_").replace("learned_sink_mass", "learned_sink")


def measured() -> Iterator[Cell]:
    """Measurements of random queries and keys."""
    draw = np.random.default_rng(SEED)
    queries, keys = draw.normal(size=(2, 4, 40, 16)), draw.normal(size=(2, 2, 40, 16))
    options: dict[str, dict[str, Any]] = {
        "causal": {},
        "whole": {"causal": False},
        "rope": {"rope": 10000.0},
        "sinks": {"sink_logits": np.zeros(4)},
        "scaled": {"scale": 0.5, "of": ("gini", "top_k_mass:4")},
    }
    for label, given in options.items():

        def ask(given: dict[str, Any] = given) -> Any:
            found = sparsity.measure(queries=queries[0], keys=keys[0], **given)
            named = sorted(
                (name for name in map(str, found.data_vars) if found[name].dtype.kind == "f"),
                key=_first_name,
            )
            return [x for name in named for x in rounded(found[name])], None

        yield f"measure/{label}", ask

        def ask_stream(given: dict[str, Any] = given) -> Any:
            own = {name: value for name, value in given.items() if name != "of"}
            found = sparsity.stream(queries.astype(np.float32), keys.astype(np.float32), **own)
            return [x for name in sorted(found) for x in rounded(found[name])], None

        yield f"stream/{label}", ask_stream


GROUPS = (limits, exact_laws, inverses, samples, measured)


def record(only: str) -> dict[str, Any]:
    """Every cell: {"values", "bounds"}, or {"refused"} with the class and the argument's name."""
    cells = [cell for group in GROUPS for cell in group() if cell[0].startswith(only)]
    found: dict[str, Any] = {}
    for name, ask in tqdm(cells, disable=None):
        try:
            values, bounds = ask()
            found[name] = {"values": values, "bounds": bounds}
        except (sparsity.InputError, sparsity.NoClosedForm, sparsity.TooFine) as error:
            found[name] = {"refused": f"{type(error).__name__}: {str(error).split(' ')[0]}"}
        except Exception as error:  # noqa: BLE001 - a crash is a cell as well: it may not spread unseen
            found[name] = {"crashed": f"{type(error).__name__}: {error}"[:120]}
    return found


def gap(old: float, new: float, is_log: bool) -> float:
    """The relative difference of two numbers, of which the logarithms may be given."""
    if old == new or (math.isnan(old) and math.isnan(new)):
        return 0.0
    if not (math.isfinite(old) and math.isfinite(new)):
        return math.inf
    return abs(old - new) / (max(1.0, abs(old)) if is_log else max(abs(old), abs(new)))


def compare(
    old: dict[str, Any], new: dict[str, Any], tolerance: float
) -> tuple[Counter[str], list]:
    """(cells by outcome, lines about those that do not stand)."""
    counts: Counter[str] = Counter()
    lines = []
    for name in sorted(old.keys() | new.keys()):
        one, two = old.get(name), new.get(name)
        if one is None or two is None:
            counts["missing"] += 1
            lines.append(f"{name}: only in the {'new' if one is None else 'old'}")
        elif "values" not in one or "values" not in two:
            same = one.keys() == two.keys() and one.get("refused") == two.get("refused")
            counts["refused alike" if same else "answered otherwise"] += 1
            if not same:
                lines.append(f"{name}: {str(one)[:120]} -> {str(two)[:120]}")
        else:
            is_log = name.startswith(("limit", "exact"))
            gaps = [gap(a, b, is_log) for a, b in zip(one["values"], two["values"], strict=False)]
            lost = len(one["values"]) != len(two["values"])
            worst = math.inf if lost else max(gaps, default=0.0)
            pairs = zip(one["bounds"] or (), two["bounds"] or (), strict=False)
            allowed = [a + b for a, b in pairs]
            within = bool(allowed) and not lost and all(map(float.__le__, gaps, allowed))
            stands = (
                "stands" if worst <= tolerance else "within both bounds" if within else "DIFFERS"
            )
            counts[stands] += 1
            if stands != "stands":
                lines.append(f"{name}: {stands}, {worst:.1e}, bounds {max(allowed, default=0):.1e}")
    return counts, lines


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    ways = parser.add_subparsers(dest="way", required=True)
    recording = ways.add_parser("record")
    recording.add_argument("file", type=Path)
    recording.add_argument("--only", default="", help="cells whose name begins so")
    comparing = ways.add_parser("compare")
    comparing.add_argument("old", type=Path)
    comparing.add_argument("new", type=Path)
    comparing.add_argument("--tolerance", type=float, default=1e-14)
    given = parser.parse_args()
    if given.way == "record":
        found = record(given.only)
        given.file.write_text(json.dumps(found, indent=0), encoding="utf-8")
        print(len(found), "cells:", Counter(next(iter(cell)) for cell in found.values()))
        return 0
    old, new = (json.loads(path.read_text(encoding="utf-8")) for path in (given.old, given.new))
    counts, lines = compare(old, new, given.tolerance)
    print("\n".join([*lines, str(dict(counts))]))
    return int(bool(counts["missing"] + counts["answered otherwise"] + counts["DIFFERS"]))


if __name__ == "__main__":
    sys.exit(main())
