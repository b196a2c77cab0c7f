"""One measurement in a process of its own: `python -m sparsity.bench.probe JOB VALUE` -> JSON.

Start-up, the first estimate and peak memory can only be seen from a fresh process.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

__all__ = ["JOBS", "peak_mib"]


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


def _scalar(draws: int) -> None:
    from sparsity.kernels import identity
    from sparsity.montecarlo import Sampling, estimators

    estimators.plain(identity, {"beta": 0.0, "gamma": 1.0}, Sampling(1e-15, draws))


def _rows(length: int) -> None:
    from sparsity.montecarlo import Sampling, sample_rows
    from sparsity.rows.row import Row

    sample_rows(Row("identity", beta=0.0, gamma=1.0), length, Sampling(0.5, 1))


def _keys(dim: int) -> None:
    from sparsity.kernels import identity
    from sparsity.montecarlo import Sampling, estimators

    query, mean = estimators.keys_at(0.0, 1.0, dim, 0, queries=8)
    estimators.full_keys(identity, query, mean, Sampling(0.5, 1))


def _cold(seed: int) -> None:
    from sparsity.montecarlo import estimate

    estimate("exp", gamma=2.0, rel_error=1e-3, seed=seed)


JOBS: dict[str, Callable[[int], None]] = {
    "cold": _cold,
    "scalar": _scalar,
    "rows": _rows,
    "keys": _keys,
}


def main(job: str, value: int) -> dict[str, float]:
    """Import, run once, run again; seconds of each and the memory they took."""
    started = time.perf_counter()
    import jax

    jax.config.update("jax_enable_x64", True)
    import sparsity.montecarlo  # noqa: F401  (its import is what is measured)

    jax.block_until_ready(jax.numpy.zeros(8) + 1)
    imported, base = time.perf_counter(), peak_mib()
    JOBS[job](value)
    first = time.perf_counter()
    JOBS[job](value)
    return {
        "import_seconds": imported - started,
        "first_seconds": first - imported,
        "again_seconds": time.perf_counter() - first,
        "base_mib": base,
        "peak_mib": peak_mib(),
    }


if __name__ == "__main__":
    sys.stdout.write(json.dumps(main(sys.argv[1], int(sys.argv[2]))) + "\n")
