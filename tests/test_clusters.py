"""Sweeps on the engines of clusters: the same bytes on each as on none."""

import contextlib
import hashlib
import os
import shutil
import socket
import subprocess
import sys
import time

import pytest
import xarray
from test_devices import BITS

from sparsity import Alibi, InputError, Row, sweep
from sparsity.cli import common
from sparsity.sweeps import work

pytestmark = pytest.mark.cluster

# Four blocks of the exact law of rows with a step, of which workers write two: nothing is compiled.
ASKED = {"of": ("n_eff",), "gamma": "0.5:3:64", "length": "8"}
ROW = Row("exp", gamma=1.0, steps=(Alibi(0.1),))
SAMPLED = {"gamma": "0.5:2:32", "length": 8, "of": "n_eff", "montecarlo": True, "rel_error": 0.1}


def files(folder):
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file()
    }


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole") / "store"
    found = sweep(ROW, **ASKED, store=folder).load()
    return found, folder


def same(whole, executor, folder):
    found = sweep(ROW, **ASKED, executor=executor, store=folder)
    xarray.testing.assert_identical(found.load(), whole[0])
    assert files(folder) == files(whole[1])


@contextlib.contextmanager
def dask():
    distributed = pytest.importorskip("distributed")
    how = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": None}
    with distributed.LocalCluster(**how) as cluster, distributed.Client(cluster) as client:
        yield cluster, client.get_executor()


@pytest.mark.slow  # each worker compiles
def test_dask_draws_the_same():
    with dask() as (_, executor):
        drawn = sweep("exp", **SAMPLED, executor=executor)
    xarray.testing.assert_identical(sweep("exp", **SAMPLED), drawn)


def test_dask(whole, tmp_path):
    with dask() as (cluster, executor):
        same(whole, executor, tmp_path / "s")
        line = [sys.executable, "-m", "sparsity", "sweep", "exp", "--gamma", "1:3:50"]
        there = [*line, "--store", str(tmp_path / "c"), "--scheduler", cluster.scheduler_address]
        subprocess.run(there, check=True, timeout=900)
    subprocess.run([*line, "--store", str(tmp_path / "d")], check=True, timeout=900)
    assert files(tmp_path / "c") == files(tmp_path / "d")


def test_submitit(whole, tmp_path, monkeypatch):
    monkeypatch.setattr(work, "JOB_SECONDS", 0.01)  # several jobs
    submitit = pytest.importorskip("submitit")
    executor = submitit.LocalExecutor(folder=tmp_path / "log")
    executor.update_parameters(timeout_min=5)
    same(whole, executor, tmp_path / "s")


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
    assert files(tmp_path / "s") == files(whole[1])


JOINED = """
import sys
import jax
count, number, port = map(int, sys.argv[1:])
if count > 1:
    jax.distributed.initialize(f"localhost:{port}", count, number)
"""


@pytest.mark.slow  # three processes compile every sampler
def test_one_cell_over_two_processes_of_jax_distributed():
    def run(count):
        with socket.socket() as free:
            free.bind(("localhost", 0))
            port = free.getsockname()[1]
        flags = f"{os.environ['XLA_FLAGS']} --xla_backend_optimization_level=0"
        environment = {**os.environ, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": flags}
        started = [
            subprocess.Popen(
                [sys.executable, "-c", JOINED + BITS, *map(str, (count, i, port))],
                **{"env": environment, "stdout": subprocess.PIPE, "text": True},
            )
            for i in range(count)
        ]
        lines = [process.communicate(timeout=900)[0].splitlines()[-1] for process in started]
        assert [process.returncode for process in started] == [0] * count
        return lines

    (alone,) = run(1)
    first, second = run(2)
    assert len(alone.split()) == 19
    assert first == second == alone


@pytest.mark.parametrize("address", ["nowhere", "http://x", "", "tcp://x"])
def test_an_address_that_is_none_is_told_at_once(address):
    pytest.importorskip("distributed")
    start = time.perf_counter()
    with pytest.raises(InputError, match=r"^scheduler .*cannot be reached") as error:
        common.connect_dask(address)
    assert "\n" not in str(error.value)
    assert time.perf_counter() - start < 5
