"""Sampling on an accelerator: our estimators as a share of what its random numbers allow.

    python -m benchmarks.gpu [--out DIR] [--quick]

Runs on whatever JAX finds, at most 8 minutes. The ceiling is the rate of threefry
bits (`jax.random.bits`, reduced on the device): 32 of them for a float32 normal, 64 for a float64
one; an estimator's share is its normals a second over that. CuPy and PyTorch are timed on the same
work where they are installed. The same run holds every estimator against theory. Writes gpu.json
and gpu.md; exit 1 where a result is wrong.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # leaves the peers their memory

import jax

jax.config.update("jax_enable_x64", True)  # float32 is asked for by name where it is meant

# Imported once JAX is set up as above, hence not at the top.
from benchmarks import gpu_peers  # noqa: E402
from benchmarks.bench.machine import describe  # noqa: E402
from benchmarks.bench.throughput import threefry  # noqa: E402
from benchmarks.gpu_peers import BETA, GAMMA, QUERIES, Work  # noqa: E402
from sparsity import Row, evaluate, exact, kernels  # noqa: E402
from sparsity.sampling import Sampling, estimators, sample_rows  # noqa: E402
from sparsity.sampling.samplers import keys_at  # noqa: E402

RESULTS = Path(__file__).parent / "results"
DEADLINE = 440.0  # seconds; what has not begun by then is left out, and said so
DTYPES = ("float32", "float64")
DIMS = (64, 128, 1024)
ENDLESS, WRONG = 1e-15, 5.0  # a target out of reach; standard errors from the truth


def rate(work: Work, seconds: float, rounds: int = 3) -> float:
    """Units a second, warm: the size is raised until one call takes `seconds`."""
    size = 2.0**16
    work(size)  # compiles
    for _ in range(12):
        work(size)  # whatever this size compiles
        started = time.perf_counter()
        units = work(size)
        taken = time.perf_counter() - started
        if taken >= seconds / 2 or units >= 2**38:
            break
        size = max(size, units) * min(max(seconds / max(taken, 1e-4), 1.5), 16.0)
    speeds = []
    for _ in range(rounds):
        started = time.perf_counter()
        units = work(size)
        speeds.append(units / (time.perf_counter() - started))
    return median(speeds)


def scalar(dtype: str) -> Work:
    """Plain scalar scores, one normal each."""
    at = {"beta": BETA, "gamma": GAMMA}

    def work(normals: float) -> float:
        found = estimators.plain(kernels.relu2, at, Sampling(ENDLESS, normals, dtype=dtype))
        return float(found.samples)

    return work


def full_keys(dtype: str, dim: int) -> Work:
    """Whole keys in R^d, each scored against QUERIES queries."""
    query, mean = keys_at(BETA, GAMMA, dim, 0, queries=QUERIES)

    def work(normals: float) -> float:
        sampling = Sampling(ENDLESS, normals / dim, dtype=dtype)
        found = estimators.full_keys(kernels.relu2, query, mean, sampling)
        return found.samples / QUERIES * dim

    return work


def rows(dtype: str, length: int) -> Work:
    """Whole rows of n weights, one normal a weight."""
    row = Row("relu2", beta=BETA, gamma=GAMMA)

    def work(normals: float) -> float:
        sampling = Sampling(ENDLESS, max(1, normals / length), dtype=dtype)
        return float(sample_rows(row, length, sampling).samples * length)

    return work


def jobs(quick: bool) -> Iterator[tuple[str, str, Callable[[], Work]]]:
    """Who does what, at which dtype, and how to build it."""
    dims, lengths = (DIMS[:1], (64,)) if quick else (DIMS, (1024, 2**17))
    for dtype in DTYPES:
        yield "ours: scalar", dtype, lambda dtype=dtype: scalar(dtype)
        for dim in dims:
            yield f"ours: keys d={dim}", dtype, lambda t=dtype, d=dim: full_keys(t, d)
        for n in lengths:
            yield f"ours: rows n={n}", dtype, lambda dtype=dtype, n=n: rows(dtype, n)
        for dim in (None, *dims[:2]):
            label = "scalar" if dim is None else f"keys d={dim}"
            yield f"cupy: {label}", dtype, lambda t=dtype, d=dim: gpu_peers.cupy(t, d)
            yield f"torch: {label}", dtype, lambda t=dtype, d=dim: gpu_peers.torch(t, d)


def correctness(quick: bool) -> Iterator[dict[str, Any]]:
    """Every estimator against theory: (log estimate − log theory) / standard error."""
    error = 1e-2 if quick else 1e-3
    for dtype in DTYPES:
        sampling = Sampling(error, dtype=dtype)
        for kernel, beta, gamma in (
            (kernels.exp, 0.0, 1.0), (kernels.exp, 0.0, 4.0), (kernels.relu2, -3.0, 1.0),
            (kernels.relu2, 0.0, 1.0), (kernels.identity, 1.0, 1.0),
        ):  # fmt: skip
            truth = float(evaluate(kernel, beta=beta, gamma=gamma).log_S)
            found = estimators.stratified(kernel, {"beta": beta, "gamma": gamma}, sampling)
            yield judged(f"scalar {kernel.name} β={beta:g} γ={gamma:g}", dtype, found, truth)
        truth = float(evaluate("relu2", beta=BETA, gamma=GAMMA).log_S)
        for dim in DIMS[:1] if quick else DIMS:
            query, mean = keys_at(BETA, GAMMA, dim, 0, queries=QUERIES)
            found = estimators.full_keys(kernels.relu2, query, mean, sampling)
            yield judged(f"keys relu2 d={dim}", dtype, found, truth)
        row = Row("relu2", beta=BETA, gamma=GAMMA)
        truth = float(exact(row, length=64).log_value)
        found = sample_rows(row, 64, sampling)
        yield judged("rows relu2 n=64, n_eff", dtype, found, truth)


def judged(what: str, dtype: str, found: Any, truth: float) -> dict[str, Any]:
    z = (found.log_value - truth) / found.rel_stderr
    wrong = not abs(z) <= WRONG or found.warning is not None
    note = found.warning or ""
    return {
        "what": what,
        "dtype": dtype,
        "z": z if math.isfinite(z) else None,
        "rel_stderr": found.rel_stderr if math.isfinite(found.rel_stderr) else None,
        "wrong": wrong,
        "samples": found.samples,
        "seconds": found.seconds,
        "warning": note,
    }


def shown(value: float | None, form: str) -> str:
    return "none" if value is None else format(value, form)


def markdown(record: dict[str, Any]) -> str:
    """The tables for readers."""
    about, lines = record["machine"], ["# Sampling on one accelerator", ""]
    versions = ", ".join(f"{name} {found}" for name, found in about["versions"].items())
    lines += [
        f"{about['jax device']}, Python {about['python']}, {versions}.",
        "Ceiling in billions a second: "
        + ", ".join(f"{name} {rate / 1e9:.2f}" for name, rate in record["ceiling"].items())
        + ". "
        "Written by `python -m benchmarks.gpu`.",
        "",
        "| work | dtype | normals/s | share of the ceiling |",
        "| --- | --- | ---: | ---: |",
    ]
    for row in record["rates"]:
        share = f"{row['share']:.0%}" if row["share"] is not None else "own generator"
        lines.append(
            f"| {row['what']} | {row['dtype']} | {row['normals_per_second']:.3g} | {share} |"
        )
    lines += ["", "| held against theory | dtype | relative error bar | z |"]
    lines += ["| --- | --- | ---: | ---: |"]
    for row in record["correctness"]:
        mark = " **wrong**" if row["wrong"] else ""
        lines.append(
            f"| {row['what']} | {row['dtype']} | {shown(row['rel_stderr'], '.1e')} "
            f"| {shown(row['z'], '+.2f')}{mark} |"
        )
    lines += ["", *(f"Left out: {what}." for what in record["left_out"])]
    return "\n".join(lines).rstrip() + "\n"


def measure(quick: bool) -> dict[str, Any]:
    """The whole run."""
    started, seconds = time.perf_counter(), 0.05 if quick else 1.0
    ceiling = {}
    for dtype in DTYPES:  # ours runs on all devices
        ceiling[dtype] = rate(threefry(int(dtype[-2:])), seconds) * jax.local_device_count()
        print(f"ceiling {dtype} {ceiling[dtype] / 1e9:.2f}e9 normals/s")
    checks: list[dict[str, Any]] = []
    for row in correctness(quick):
        checks.append(row)
        print(f"{row['what']:28} {row['dtype']} z = {shown(row['z'], '+.2f')} {row['warning']}")
    speeds: list[dict[str, Any]] = []
    left_out: list[str] = []
    for what, dtype, build in jobs(quick):
        if time.perf_counter() - started > DEADLINE:
            left_out.append(f"{what} {dtype} (time was up)")
            continue
        try:
            speed = rate(build(), seconds)
        except (
            ImportError,
            MemoryError,
            RuntimeError,
        ) as reason:  # a peer, missing
            if what.startswith("ours"):
                raise
            left_out.append(
                f"{what} {dtype} ({(str(reason) or type(reason).__name__).splitlines()[0]})"
            )
            continue
        share = speed / ceiling[dtype] if what.startswith("ours") else None
        row = {"what": what, "dtype": dtype, "normals_per_second": speed, "share": share}
        speeds.append(row)
        of = "" if share is None else f" {share:.0%} of the ceiling"
        print(f"{what:28} {dtype} {speed / 1e9:.3f}e9 normals/s{of}")
    return {
        "machine": describe(), "quick": quick, "ceiling": ceiling, "rates": speeds,
        "correctness": checks, "left_out": left_out, "seconds": time.perf_counter() - started,
    }  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the results")
    parser.add_argument("--quick", action="store_true", help="tiny sizes, to see that it works")
    options = parser.parse_args()

    record = measure(options.quick)
    options.out.mkdir(parents=True, exist_ok=True)
    document = json.dumps(record, ensure_ascii=False, indent=1, allow_nan=False) + "\n"
    (options.out / "gpu.json").write_text(document, encoding="utf-8")
    (options.out / "gpu.md").write_text(markdown(record), encoding="utf-8")
    wrong = [f"{row['what']} {row['dtype']}" for row in record["correctness"] if row["wrong"]]
    print(f"{record['seconds']:.0f} s;", f"wrong: {', '.join(wrong)}" if wrong else "all right")
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
