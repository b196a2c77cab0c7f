"""Sampling across devices, within memory, through Ctrl-C and within a time."""

from __future__ import annotations

import functools
import json
import os
import signal
import subprocess
from pathlib import Path

import numpy as np
import pytest
from command_line import ENVIRONMENT, python

from sparsity import Decay, Row, SinkLogit, kernels
from sparsity.sampling import Sampling, batches, estimators, sample_rows
from sparsity.sampling.row_sampling import draw_rows
from sparsity.sampling.samplers import keys_at


def numbers() -> list[float]:
    """Logarithm and error bar of each kind of estimate, drawn in float64."""
    settings = Sampling(rel_error=4e-3, seed=9)
    query, mean = keys_at(0.5, 1.0, 6, 9)
    steps = Decay(0.9), SinkLogit(1.0)
    rows = draw_rows(Row("exp", gamma=1.0, steps=steps), 16, settings, also=["sink_mass"])
    found = [
        estimators.stratified(kernels.relu2, {"beta": -1.0, "gamma": 0.5}, settings),
        estimators.full_keys(kernels.exp, query, mean, settings),
        rows.estimate("S"),
        rows.estimate("n_eff"),
        rows.limit_form(),
        rows.estimate("sink_mass"),
    ]
    return [x for e in found for x in (e.log_value, e.rel_stderr)]


def memory() -> list[float]:
    """Peaks in GiB: after rows of 10⁶ tokens, and then keys of 4096 dimensions."""
    from benchmarks.bench.resources import peak_mib

    # Chunks to the peak: those after them hold no more.
    settings = Sampling(rel_error=0.5, seed=0, max_samples=128)
    sample_rows(Row("exp", gamma=1.0), 10**6, settings)
    peaks = [peak_mib() / 1024]
    estimators.full_keys(kernels.relu2, *keys_at(0.0, 1.0, 4096, 0), settings)
    return [*peaks, peak_mib() / 1024]


def interrupting(collect, press):
    """`collect`, and Ctrl-C before one of its calls."""
    calls = []

    def interrupted(*arguments, **named):
        calls.append(1)
        if len(calls) == press:
            os.kill(os.getpid(), signal.SIGINT)
        return collect(*arguments, **named)

    return interrupted


ASK = "estimate relu2 --beta 0 --gamma 1 --dim 16 --json --rel-error 1e-6 --max-samples 1e12"
HERE = str(Path(__file__).parent)
NUMBERS = f"""
import sys, jax
sys.path.append({HERE!r})
jax.config.update("jax_enable_x64", True)
from test_devices import numbers
print(jax.local_device_count(), *numbers())
"""
CHILD = f"""{NUMBERS}
from test_devices import interrupting, memory
from sparsity import cli
from sparsity.sampling import batches
print(*memory(), flush=True)
batches.collect = interrupting(batches.collect, 1)
sys.argv = ["sparsity", *"{ASK}".split()]
cli.main()
"""


@functools.cache
def child(count: int) -> subprocess.CompletedProcess[str]:
    """A process with so many devices: its numbers, its peaks, and what Ctrl-C left."""
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={count}"
    done = python("-c", CHILD, env=ENVIRONMENT | {"XLA_FLAGS": flags})
    assert len(done.stdout.splitlines()) == 3, done.stderr
    return done


def numbers_on(count: int) -> np.ndarray:
    devices, *printed = child(count).stdout.splitlines()[0].split()
    assert int(devices) == count
    return np.array(printed, dtype=float).reshape(6, 2)


@pytest.mark.thorough
def test_four_devices_say_the_same_within_the_error_bar():
    one, four = np.reshape(numbers(), (6, 2)), numbers_on(4)
    assert np.all(abs(one[:, 0] - four[:, 0]) < 1e-3 * one[:, 1] + 1e-12)  # the draws are the same
    assert np.all(one[:, 1] > 0)


@pytest.mark.thorough
def test_memory_stays_under_one_gibibyte():
    """On four devices, which hold more at once than one does."""
    peaks = [float(peak) for peak in child(4).stdout.splitlines()[1].split()]
    assert len(peaks) == 2
    assert 0.05 < peaks[0] <= peaks[1] < 1.0


@pytest.mark.parametrize("press", [pytest.param(1, marks=pytest.mark.thorough), 3])
def test_interrupted_estimate_is_valid_and_says_so(press, command, monkeypatch):
    """At once, in a process of its own; and later, in this one."""
    if press == 1:
        done = child(4)
        code, out, err = done.returncode, done.stdout.splitlines()[2], done.stderr
    else:
        monkeypatch.setattr(batches, "collect", interrupting(batches.collect, press))
        code, out, err = command(*ASK.split())
    assert code == 130, err
    assert err == "sparsity: interrupted; the estimate so far is valid\n"
    found = json.loads(out)
    assert found["stopped"] == "interrupted"
    low, high = found["anytime95"]
    assert low < found["ci95"][0] < found["S"] < found["ci95"][1] < high
    assert abs(found["S"] - 6**-0.5) < 7 * found["stderr"]
    assert found["samples"] > 10**5
