"""Sweeps on the engines of clusters: the same numbers on each as on none."""

import contextlib
import os
import shutil
import socket
import subprocess
import sys

import pytest
import xarray

from sparsity import Alibi, Row, sweep
from sparsity.tasks import process_pool

pytestmark = pytest.mark.cluster

# Four blocks of the exact law of rows with a step: nothing is compiled.
ASKED = {"of": ("n_eff",), "gamma": "0.5:3:64", "length": "8"}
ROW = Row("exp", gamma=1.0, steps=(Alibi(0.1),))
SAMPLED = {"gamma": "0.5:2:32", "length": 8, "of": "n_eff", "montecarlo": True, "rel_error": 0.1}


@pytest.fixture(scope="module")
def whole():
    return sweep(ROW, **ASKED)


@contextlib.contextmanager
def dask():
    distributed = pytest.importorskip("distributed")
    how = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": None}
    with distributed.LocalCluster(**how) as cluster, distributed.Client(cluster) as client:
        yield client.get_executor()


@pytest.mark.slow  # each worker compiles
@pytest.mark.parametrize("engine", [dask, lambda: process_pool(2)])
def test_others_draw_the_same(engine):
    with engine() as executor:
        drawn = sweep("exp", **SAMPLED, executor=executor)
    xarray.testing.assert_identical(sweep("exp", **SAMPLED), drawn)


@pytest.mark.parametrize("engine", [dask, lambda: process_pool(2)])
def test_executors_of_futures(engine, whole, tmp_path):
    with engine() as executor:
        there = sweep(ROW, **ASKED, executor=executor, store=tmp_path / "s")
    xarray.testing.assert_identical(there, whole)


def test_submitit(whole, tmp_path):
    submitit = pytest.importorskip("submitit")
    executor = submitit.LocalExecutor(folder=tmp_path / "log")
    executor.update_parameters(timeout_min=5)
    there = sweep(ROW, **ASKED, executor=executor, store=tmp_path / "s")
    xarray.testing.assert_identical(there, whole)


@pytest.mark.skipif(shutil.which("mpiexec") is None, reason="no MPI")
def test_mpi(whole, tmp_path):
    pytest.importorskip("mpi4py")
    script = tmp_path / "run.py"
    script.write_text(
        "from mpi4py.futures import MPIPoolExecutor\n"
        "from sparsity import Alibi, Row, sweep\n"
        f"row = {ROW!r}\n"
        f"asked = {ASKED!r}\n"
        "if __name__ == '__main__':\n"
        "    with MPIPoolExecutor() as executor:\n"
        f"        sweep(row, **asked, executor=executor, store={str(tmp_path / 's')!r})\n"
    )
    root = ["--allow-run-as-root", "--oversubscribe"]
    command = ["mpiexec", *root, "-n", "3", sys.executable, "-m", "mpi4py.futures", str(script)]
    subprocess.run(command, check=True, timeout=900)
    stored = xarray.open_zarr(tmp_path / "s", consolidated=False).load()
    xarray.testing.assert_identical(stored[list(whole)].squeeze("length"), whole.squeeze())


JOINED = """
import sys
import jax
import sparsity
count, number, port = map(int, sys.argv[1:])
if count > 1:
    jax.distributed.initialize(f"localhost:{port}", count, number)
found = sparsity.estimate("exp", gamma=1.0, dim=8, rel_error=1e-2, seed=3)
print(float(found.value), float(found.stderr))
"""


@pytest.mark.slow  # three processes compile
def test_one_cell_over_two_processes_of_jax_distributed():
    def run(count):
        with socket.socket() as free:
            free.bind(("localhost", 0))
            port = free.getsockname()[1]
        environment = {**os.environ, "JAX_PLATFORMS": "cpu"}
        started = [
            subprocess.Popen(
                [sys.executable, "-c", JOINED, *map(str, (count, i, port))],
                **{"env": environment, "stdout": subprocess.PIPE, "text": True},
            )
            for i in range(count)
        ]
        lines = [process.communicate(timeout=900)[0].splitlines()[-1] for process in started]
        assert [process.returncode for process in started] == [0] * count
        return [tuple(map(float, line.split())) for line in lines]

    ((alone, stderr),) = run(1)
    (first, _), (second, _) = run(2)
    assert first == second
    assert abs(first - alone) < 6 * stderr
