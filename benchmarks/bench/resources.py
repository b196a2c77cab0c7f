"""Start-up, peak memory, and how the cost grows with draws, length n and dimension d.

Start-up, the first estimate and peak memory can only be seen from a fresh process:
`python -m benchmarks.bench.resources JOB VALUE` prints one measurement as JSON.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.bench.timing import paired
from sparsity.errors import InputError


def peak_mib() -> float:
    """Peak resident memory of this process in MiB.

    Linux hands a child its parent's peak in `ru_maxrss`, so the process's own high-water mark is
    preferred where the system shows it.
    """
    try:
        lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    except OSError:
        lines = []
    for line in lines:
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    import resource

    unit = 2**20 if sys.platform == "darwin" else 2**10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit


# Each job returns (samples, normals) that were drawn; a sample is a score, a row or a key.


def _scalar(draws: int) -> tuple[int, int]:
    from sparsity.kernels import identity
    from sparsity.sampling import Sampling, estimators

    found = estimators.plain(identity, {"beta": 0.0, "gamma": 1.0}, Sampling(1e-15, draws))
    return found.samples, found.samples


def _rows(length: int) -> tuple[int, int]:
    from sparsity.rows.row import Row
    from sparsity.sampling import Sampling, sample_rows

    found = sample_rows(Row("identity", beta=0.0, gamma=1.0), length, Sampling(0.5, 1))
    return found.samples, found.samples * length


def _keys(dim: int, queries: int = 1) -> tuple[int, int]:
    from sparsity.kernels import identity
    from sparsity.sampling import Sampling, estimators
    from sparsity.sampling.samplers import keys_at

    query, mean = keys_at(0.0, 1.0, dim, 0, queries=queries)
    found = estimators.full_keys(identity, query, mean, Sampling(0.5, 1))
    return found.samples, found.samples * dim


def _cold(seed: int) -> None:
    from sparsity.sampling import estimate

    estimate("exp", gamma=2.0, rel_error=1e-3, seed=seed)


_JOBS: dict[str, Callable[[int], Any]] = {
    "cold": _cold,
    "scalar": _scalar,
    "rows": _rows,
    "keys": lambda dim: _keys(dim, queries=8),
}
_GROWING = {"draws": _scalar, "row length n": _rows, "key dimension d": _keys}


def measure_job(job: str, value: int) -> dict[str, float]:
    """Import, run once, run again; seconds of each and the memory they took."""
    work = _JOBS[job]
    started = time.perf_counter()
    import jax

    jax.config.update("jax_enable_x64", True)
    import sparsity.sampling  # noqa: F401  (its import is what is measured)

    jax.block_until_ready(jax.numpy.zeros(8) + 1)
    imported, base = time.perf_counter(), peak_mib()
    work(value)
    first = time.perf_counter()
    work(value)
    return {
        "import_seconds": imported - started,
        "first_seconds": first - imported,
        "again_seconds": time.perf_counter() - first,
        "base_mib": base,
        "peak_mib": peak_mib(),
    }


def probe(job: str, value: int, what: str) -> dict[str, Any]:
    """One of `_JOBS` in a process of its own.

    Raises:
        InputError: the process failed; its last line says why.
    """
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.bench.resources", job, str(value)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise InputError("job", job, f"could not be measured: {last}")
    return {"job": job, "value": value, "what": what, **json.loads(done.stdout)}


def scaling(what: str, sizes: Sequence[int], rounds: int) -> list[dict[str, Any]]:
    """Cost at sizes a factor of ten apart, warm.

    Args:
        what: grows: "draws", "row length n" or "key dimension d".
        sizes: increasing.
        rounds: timings of each, the median counts.

    Returns:
        Rows with the seconds of a call ("draws") or of a sample, the nanoseconds of a normal, and
        the growth of the first from the size before, as an exponent of the size.
    """
    rows: list[dict[str, Any]] = []
    work, last = _GROWING[what], None
    for size in sizes:
        samples, normals = work(size)  # compiles
        done = paired({what: lambda _, size=size: work(size)}, rounds)
        seconds = median(done.seconds[what])
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


if __name__ == "__main__":
    sys.stdout.write(json.dumps(measure_job(sys.argv[1], int(sys.argv[2]))) + "\n")
