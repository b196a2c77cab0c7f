"""Sweeps on the engines of clusters: the same numbers on each as on none."""

import contextlib
import shutil
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
