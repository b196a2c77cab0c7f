"""The page of clusters: every snippet runs, as far as that goes without a cluster."""

import inspect
import re
import shlex
import sys
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
import xarray
from test_executors import Elsewhere

import sparsity
from sparsity import cli
from sparsity.sweeps import curves

PAGE = (Path(__file__).parent.parent / "docs" / "cluster.md").read_text("utf-8")
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", PAGE, re.S)
PYTHON = [text for kind, text in BLOCKS if kind == "python"]
SHELL = [text for kind, text in BLOCKS if kind == "sh"]
INLINE = re.findall(r"`(sparsity [^`]+)`", PAGE)


def test_there_are_as_many_snippets_as_are_run():
    assert (len(PYTHON), len(SHELL), len(INLINE)) == (6, 3, 1)


class Cluster:
    """As dask-jobqueue's and submitit's: takes settings, and work."""

    def __init__(self, **settings):
        self.settings = settings

    def scale(self, jobs):
        assert jobs > 0

    def update_parameters(self, **settings):
        assert settings

    def submit(self, fn, /, *args):
        return Elsewhere().submit(fn, *args)


@contextmanager
def client(cluster):
    if cluster == "tcp://scheduler:8786":
        cluster = Cluster()
    assert isinstance(cluster, Cluster)
    yield SimpleNamespace(get_executor=lambda: cluster)


@contextmanager
def pool(*_):
    yield Cluster()


@pytest.fixture
def stand_ins(monkeypatch):
    """Clusters that run here, and the library's functions, which look at how they are called."""
    for name, given in {
        "dask": {}, "dask.distributed": {"Client": client},
        "dask_jobqueue": {"SLURMCluster": Cluster}, "submitit": {"AutoExecutor": Cluster},
        "mpi4py": {}, "mpi4py.futures": {"MPIPoolExecutor": pool},
    }.items():  # fmt: skip
        module = ModuleType(name)
        vars(module).update(given)
        monkeypatch.setitem(sys.modules, name, module)
    called = []

    def looked_at(module, name):
        signature = inspect.signature(getattr(module, name))

        def look(*args, **given):
            own = signature.bind(*args, **given).arguments
            if own.get("executor") is not None:
                assert own["executor"].submit(abs, -1).result() == 1
            called.append(name)

        monkeypatch.setattr(module, name, look)

    monkeypatch.setattr("sparsity.tasks.process_pool", pool)
    for module, name in (
        (sparsity, "sweep"), (xarray, "open_zarr"), (curves, "sweep"),
    ):  # fmt: skip
        getattr(module, name)  # taken from its module when first asked for
        looked_at(module, name)
    return called


@pytest.mark.parametrize("text", PYTHON)
def test_a_snippet_in_python_runs(text, stand_ins):
    exec(compile(text, "cluster.md", "exec"), {"__name__": "__main__", "sparsity": sparsity})
    assert len(stand_ins) == 1
    assert stand_ins[0] in text


@pytest.mark.parametrize("text", [*SHELL, *INLINE])
def test_a_line_is_one_that_the_command_takes(text):
    name, *words = shlex.split(text.replace("\\\n", " "), comments=True)
    if name == "mpiexec":
        assert words[-1] in PAGE.split(text)[1]  # the script that follows
        return
    if name == "export":
        return
    assert name == "sparsity"
    command = cli.cli.commands[words[0]]
    context = command.make_context(words[0], words[1:])  # refuses what it does not know
    assert context.params.get("workers")
