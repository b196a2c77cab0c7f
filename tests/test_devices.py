"""Sampling across devices, within memory, and through Ctrl-C: each in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

BITS = """
import jax
jax.config.update("jax_enable_x64", True)
from sparsity import Decay, Row, SinkLogit, kernels
from sparsity.montecarlo import Sampling, estimators, sample_rows
from sparsity.montecarlo.keys import keys_at
from sparsity.montecarlo.row_sampling import draw_rows
from sparsity.verification.cells import FEATURE_MAPS
settings = Sampling(rel_error=2e-3, seed=9)
query, mean = keys_at(0.5, 1.0, 6, 9)
rows = draw_rows(Row("exp", gamma=1.0, steps=(Decay(0.9),)), 16, settings)
found = [
    estimators.stratified(kernels.relu2, {"beta": -1.0, "gamma": 0.5}, settings),
    estimators.stratified(kernels.decayed, {"decay": 0.9, "length": 100.0}, settings),
    estimators.plain(kernels.identity, {"beta": 1.0, "gamma": 1.0}, settings),
    estimators.full_keys(kernels.exp, query, mean, settings),
    estimators.features(FEATURE_MAPS["relu"], [1.0, 2.0], 0.0, 1.0, settings),
    rows.estimate("S"),
    rows.estimate("n_eff"),
    rows.limit_form(),
    sample_rows(Row("exp", gamma=1.0, steps=(SinkLogit(1.0),)), 16, settings, "sink_mass"),
]
print(jax.local_device_count(), *(x.hex() for e in found for x in (e.log_value, e.rel_stderr)))
"""


def child(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "JAX_PLATFORMS": "cpu", **environment},
    )


def test_the_same_bits_on_one_two_and_four_devices():
    seen = {}
    for count in (1, 2, 4):
        flags = f"{os.environ['XLA_FLAGS']} --xla_backend_optimization_level=0"
        flags += f" --xla_force_host_platform_device_count={count}"
        devices, *bits = child(BITS, XLA_FLAGS=flags).stdout.split()
        assert int(devices) == count
        seen[count] = bits
    assert len(seen[1]) == 18
    assert seen[1] == seen[2] == seen[4]


MEMORY = """
import jax
from sparsity import Row, kernels
from sparsity.bench.resources import peak_mib
from sparsity.montecarlo import Sampling, estimators, sample_rows
from sparsity.montecarlo.keys import keys_at
settings = Sampling(rel_error=0.5, seed=0)
{what}
print(peak_mib() / 1024)
"""

LARGE = {
    "rows of 2·10⁶ tokens": "sample_rows(Row('exp', gamma=1.0), 2 * 10**6, settings)",
    "keys of 4096 dimensions": (
        "estimators.full_keys(kernels.relu2, *keys_at(0.0, 1.0, 4096, 0), settings)"
    ),
}


@pytest.mark.parametrize("what", LARGE)
def test_memory_stays_under_one_gibibyte(what):
    peak = float(child(MEMORY.format(what=LARGE[what])).stdout)
    assert 0.05 < peak < 1.0


INTERRUPTED = """
import os, signal, sys
from sparsity import cli
from sparsity.montecarlo import running
collect, calls = running.collect, []
def interrupted(*arguments, **named):
    calls.append(1)
    if len(calls) == {press}:
        os.kill(os.getpid(), signal.SIGINT)
    return collect(*arguments, **named)
running.collect = interrupted
sys.argv = "sparsity estimate relu2 --beta 0 --gamma 1 --dim 16 --json".split()
sys.argv += "--rel-error 1e-6 --max-samples 1e12".split()
cli.main()
"""


@pytest.mark.parametrize("press", [1, 3])
def test_interrupted_estimate_is_valid_and_says_so(press):
    command = [sys.executable, "-c", INTERRUPTED.format(press=press)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 130, done.stderr
    assert done.stderr == "sparsity: interrupted; the estimate so far is valid\n"
    found = json.loads(done.stdout)
    assert found["stopped"] == "interrupted"
    low, high = found["anytime95"]
    assert low < found["ci95"][0] < found["S"] < found["ci95"][1] < high
    assert abs(found["S"] - 6**-0.5) < 7 * found["stderr"]
    assert found["samples"] > 10**5


def test_time_budget_is_kept():
    code = (
        "import sparsity\n"
        "e = sparsity.estimate('relu2', beta=0.0, gamma=1.0, dim=16, rel_error=1e-6,"
        " max_samples=1e13, max_seconds=3.0)\n"
        "print(e.stopped, e.seconds)\n"
    )
    *stopped, seconds = child(code).stdout.split()
    assert stopped == ["time", "budget"]
    assert float(seconds) < 30  # two seconds of overshoot, and compilation
