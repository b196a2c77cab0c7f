"""Start-up, peak memory, and how the cost grows with draws, length n and dimension d."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

from sparsity.errors import InputError
from sparsity.kernels import identity
from sparsity.montecarlo import Sampling, estimators, sample_rows
from sparsity.rows.row import Row

__all__ = ["probe", "scaling"]

_AT = {"beta": 0.0, "gamma": 1.0}


def probe(job: str, value: int, what: str) -> dict[str, Any]:
    """A job of `sparsity.bench.probe` in a process of its own.

    Raises:
        InputError: the process failed; its last line says why.
    """
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(
        [sys.executable, "-m", "sparsity.bench.probe", job, str(value)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise InputError("job", job, f"could not be measured: {last}")
    return {"job": job, "value": value, "what": what, **json.loads(done.stdout)}


def _samples(draws: int) -> tuple[int, int]:
    found = estimators.plain(identity, _AT, Sampling(1e-15, draws))
    return found.samples, found.samples


def _rows(length: int) -> tuple[int, int]:
    found = sample_rows(Row(identity, beta=0.0, gamma=1.0), length, Sampling(0.5, 1))
    return found.samples, found.samples * length


def _keys(dim: int) -> tuple[int, int]:
    query, mean = estimators.keys_at(0.0, 1.0, dim, 0)
    found = estimators.full_keys(identity, query, mean, Sampling(0.5, 1))
    return found.samples, found.samples * dim


# size -> (samples, normals) that were drawn; a sample is a score, a row or a key.
_GROWING: dict[str, Callable[[int], tuple[int, int]]] = {
    "draws": _samples,
    "row length n": _rows,
    "key dimension d": _keys,
}


def scaling(sizes: dict[str, Sequence[int]], rounds: int) -> list[dict[str, Any]]:
    """Cost at sizes a factor of ten apart, warm.

    Args:
        sizes: for "draws", "row length n" and "key dimension d": increasing sizes.
        rounds: timings of each, the median counts.

    Returns:
        Rows with the seconds of a call ("draws") or of a sample, the nanoseconds of a normal, and
        the growth of the first from the size before, as an exponent of the size.
    """
    rows: list[dict[str, Any]] = []
    for what, values in sizes.items():
        work, last = _GROWING[what], None
        for size in values:
            samples, normals = work(size)  # compiles
            seconds = median(_timed(work, size) for _ in range(rounds))
            unit = seconds if what == "draws" else seconds / samples
            row = {
                "grows": what,
                "size": size,
                "unit": "call" if what == "draws" else "sample",
                "seconds": unit,
                "ns_per_normal": 1e9 * seconds / normals,
                "exponent": last and math.log(unit / last[1]) / math.log(size / last[0]),
            }
            rows.append(row)
            last = size, unit
    return rows


def _timed(work: Callable[[int], Any], size: int) -> float:
    started = time.perf_counter()
    work(size)
    return time.perf_counter() - started
