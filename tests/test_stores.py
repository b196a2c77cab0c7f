"""Sweeps in blocks: the same bits everywhere, and stores that survive whatever ends a run."""

import copy
import errno
import functools
import hashlib
import itertools
import json
import os
import pickle
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from concurrent import futures
from dataclasses import replace

import fatal_tasks  # which workers import sooner than this module
import numpy as np
import pytest
import xarray
import zarr
from test_executors import Elsewhere

from sparsity import (
    Alibi,
    Empirical,
    InputError,
    Kernel,
    NoClosedForm,
    Row,
    Uniform,
    kernels,
    quantities,
    sweep,
    verify,
)
from sparsity.sampling import batches
from sparsity.sweeps import blocks, plan, work
from sparsity.sweeps.blocks import Blocks
from sparsity.sweeps.grids import grids_of
from sparsity.sweeps.store import Store
from sparsity.sweeps.variables import Grid
from sparsity.tasks import MAX_ATTEMPTS, Workers, run_tasks

GRID = {"gamma": "0.5:3:3", "beta": "-1,1", "length": "8,32"}
SAMPLED = {"montecarlo": True, "rel_error": 0.1, "max_samples": 2e4, "seed": 3}
NORMALS = batches.NORMALS_PER_BATCH


def files(folder):
    """What a store holds, by path."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file()
    }


@pytest.fixture(scope="module", autouse=True)
def small():
    """Blocks of a few cells, batches of a few rows."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plan, "CELLS_ONE_BY_ONE", 3)
        patch.setattr(batches, "NORMALS_PER_BATCH", 2**12)
        yield


@pytest.fixture(scope="module")
def whole(small, tmp_path_factory):
    """A sweep in memory, and the same in a store."""
    folder = tmp_path_factory.mktemp("whole") / "store"
    plain = sweep("exp", of=("n_eff", "participation"), **GRID, **SAMPLED)
    kept = sweep("exp", of=("n_eff", "participation"), **GRID, **SAMPLED, store=folder)
    return plain, kept, folder


class Ended(Exception):
    """Ends a run."""


def ending(after):
    """A progress callback that ends the run after so many blocks."""

    def report(done, total):
        if done >= after:
            raise Ended

    return report


def test_what_crosses_to_another_process_is_known_there_again():
    every = [*kernels.known(), *kernels.MAPS, kernels.named("topk:16"), Kernel.parse("s**2 + 1")]
    every += [*quantities.ALL, quantities.named("top_k_mass:8")]
    every.append(Row("exp", gamma=2, steps=(Alibi(0.01),), scores=Uniform()))
    for one in every:
        assert pickle.loads(pickle.dumps(one)) == one, one
    for known in (*quantities.ALL, *kernels.known(), *kernels.MAPS):  # laws ask whether it is exp
        assert pickle.loads(pickle.dumps(known)) is known
    for error in (InputError("gamma", -1, "must be > 0"), NoClosedForm("moment", "of f")):
        assert str(pickle.loads(pickle.dumps(error))) == str(error)
    assert len(every) > 25


def test_what_is_ones_own_is_copied_and_pickled_by_value():
    for known in (kernels.named("entmax:1.3"), quantities.S):
        own = replace(known, title="of one's own")
        assert copy.copy(own) == own != known
    with pytest.raises((AttributeError, pickle.PicklingError)):
        pickle.dumps(replace(quantities.S, title="own", of=lambda p: p))
    map_of_ones_own = replace(kernels.named("entmax:1.3"), title="of one's own")
    assert pickle.loads(pickle.dumps(map_of_ones_own)) == map_of_ones_own


def test_blocks_hold_every_cell_once():
    lengths = [5, 7, 64, 1000]
    given = {"beta": np.arange(5.0), "gamma": np.arange(1, 8.0), "length": lengths}
    cells = Grid(kernels.exp, (), grids_of(kernels.exp, given))
    settings = {"seed": 0, "rel_error": 1e-2, "most": 1e3, "dtype": None, "float64": False}
    request = plan.build_request(cells, None, montecarlo=True, **settings)
    every = plan.variable_groups(request)
    assert [part.name for part in every] == [
        *("method", "method_n_eff", "method_mc", "method_n_eff_mc"),
    ]
    for number, most in itertools.product(range(4), (1, 2, 6, 20, 10**6)):
        part = replace(every[number], most=most)
        cut = plan.cut_into_blocks(number, part, cells)
        seen = np.zeros([len(cells.grids[name]) for name in part.split], int)
        for block in cut:
            seen[block.slices(part.split)] += 1
            assert seen[block.slices(part.split)].size <= most
        assert (seen == 1).all()


def test_a_store_holds_what_memory_does(whole):
    plain, kept, folder = whole
    xarray.testing.assert_identical(plain, kept.load())
    assert list(plain) == list(kept)
    assert len(files(folder)) > 20


def test_estimates_do_not_depend_on_how_cells_are_cut(whole, monkeypatch):
    monkeypatch.setattr(plan, "CELLS_ONE_BY_ONE", 2)
    again = sweep("exp", of=("n_eff", "participation"), **GRID, **SAMPLED)
    for name in ("n_eff_mc", "stderr_n_eff_mc", "participation_mc"):
        assert (again[name].values == whole[0][name].values).all()


@pytest.mark.parametrize("after", [1, pytest.param(3, marks=pytest.mark.slow), 5])
def test_a_run_that_was_ended_goes_on(whole, tmp_path, after):
    plain, _, folder = whole
    asked = {"of": ("n_eff", "participation"), **GRID, **SAMPLED, "store": tmp_path / "s"}
    with pytest.raises(Ended):
        sweep("exp", **asked, progress=ending(after))
    under_way = xarray.open_zarr(tmp_path / "s", consolidated=False)
    known = int(
        sum(under_way[name].notnull().sum() for name in under_way if "seed" not in str(name))
    )
    assert 0 < known < sum(v.size for k, v in plain.items() if "seed" not in str(k))
    done = []
    sweep("exp", **asked, progress=lambda *each: done.append(each))
    total = done[-1][1]
    assert done == [(i, total) for i in range(after + 1, total + 1)]  # the rest, and no more
    assert files(tmp_path / "s") == files(folder)


def test_processes_give_the_same_bytes(tmp_path, monkeypatch):
    monkeypatch.setattr(plan, "CELLS_ONE_BY_ONE", 1)
    monkeypatch.setattr(batches, "NORMALS_PER_BATCH", NORMALS)  # as in the workers
    asked = {"of": ("n_eff", "participation"), "gamma": "0.5:3:3", "length": 8, **SAMPLED}
    alone = sweep("exp", **asked, store=tmp_path / "alone")
    here = verify("exp", gamma=0.5, length=8, detectable=0.05)
    with Workers(2) as workers:
        found = sweep("exp", **asked, store=tmp_path / "s", executor=workers)
        again = [x.value for x in run_tasks(fatal_tasks.pid, range(8), workers)]
        there = verify("exp", gamma=0.5, length=8, detectable=0.05, executor=workers)
    assert [(x.z, x.verdict) for x in there.cells] == [(x.z, x.verdict) for x in here.cells]
    assert len(here.cells) > 3
    xarray.testing.assert_identical(alone.load(), found.load())
    assert files(tmp_path / "s") == files(tmp_path / "alone")
    assert len(set(again)) <= 2
    assert os.getpid() not in again


class Lossy(futures.Executor):
    """Every worker of which is lost."""

    tries = 0

    def submit(self, fn, /, *args, **kwargs):
        self.tries += 1
        lost = futures.Future()
        lost.set_exception(futures.BrokenExecutor("gone"))
        return lost


def test_a_task_that_is_always_lost_is_given_up():
    lossy = Lossy()
    (given_up,) = run_tasks(fatal_tasks.pid, ["x"], lossy)
    assert isinstance(given_up.error, futures.BrokenExecutor)
    assert lossy.tries == MAX_ATTEMPTS


def test_an_executor_without_workers_left_is_one_line():
    with pytest.raises(InputError, match=r"^executor = Lossy: lost its workers") as error:
        sweep("exp", gamma="0.5:3:9", of="n_eff", length=8, montecarlo=True, executor=Lossy())
    assert "\n" not in str(error.value)
    with pytest.raises(InputError, match=r"^executor = Lossy: lost its workers"):
        verify("exp", executor=Lossy())
    with pytest.raises(InputError, match=r"^workers = 0"):
        Workers(0)


class Jobs:
    """As submitit: what it hands out is no future, and is done at the second look."""

    class Job:
        def __init__(self, value):
            self.value, self.looks = value, 0

        def done(self):
            self.looks += 1
            return self.looks > 1

        def result(self):
            return self.value

        def cancel(self):
            pass

    def submit(self, fn, /, *args):
        return self.Job(fn(*args))


def brought_back(monkeypatch):
    """The blocks that the process that was called writes itself."""
    own, put = [], Store.put
    monkeypatch.setattr(Store, "put", lambda self, b, *x: own.append(b) or put(self, b, *x))
    return own


def test_whatever_submits_is_an_executor_and_needs_no_disk(whole, tmp_path, monkeypatch):
    monkeypatch.setattr(work, "open_in_worker", lambda token, names: None)
    own = brought_back(monkeypatch)
    asked = {"of": ("n_eff", "participation"), **GRID, **SAMPLED}
    found = sweep("exp", **asked, executor=Jobs(), store=tmp_path / "s")
    xarray.testing.assert_identical(whole[0], found.load())
    assert files(tmp_path / "s") == files(whole[2])
    assert len(own) == len([*(tmp_path / "s" / "manifest").glob("method*")])


def test_workers_write_their_own_blocks_and_a_rerun_tidies_up(whole, tmp_path, monkeypatch):
    monkeypatch.setattr(work, "MIN_TASK_SECONDS", 0)  # a task for each block: the same bytes
    monkeypatch.setattr(work, "TASKS_PER_GROUP", 10**9)
    own, tokens, asked = brought_back(monkeypatch), [], {"of": ("n_eff", "participation")}
    asked |= {**GRID, **SAMPLED, "store": tmp_path / "s", "executor": Elsewhere()}

    def ended(done, total):
        tokens.extend((tmp_path / "s" / "manifest").glob("*.run"))
        if done == 11:
            raise Ended

    with pytest.raises(Ended):
        sweep("exp", **asked, progress=ended)
    assert len(set(tokens)) == 1  # by which workers know the store
    left = [
        "manifest/.x.json.0a.part",
        "n_eff_mc/c/0/0.0a.partial",
        "manifest/0a.run",
        "n_eff/mine.part",
    ]
    for name in left:
        (tmp_path / "s" / name).write_text("half")
        os.utime(tmp_path / "s" / name, (0, 0))
    os.utime(tmp_path / "s" / left[-1])  # of a run beside us: not older than this one
    os.utime(tmp_path / "s" / left[-1], (2**32, 2**32))
    sweep("exp", **asked)
    (tmp_path / "s" / left[-1]).unlink()
    assert files(tmp_path / "s") == files(whole[2])
    every = {x.name for x in (tmp_path / "s" / "manifest").glob("method*")}
    assert len(own) <= 2 * 4 < len(every)  # two of each part at most; workers wrote the others


def test_a_block_that_a_worker_cannot_write_is_written_or_refused_here(tmp_path, monkeypatch):
    asked = {"gamma": "1:3:9", "store": tmp_path / "s", "executor": Elsewhere()}
    monkeypatch.setattr(plan, "CELLS_AT_ONCE", 2)
    with monkeypatch.context() as patch:
        patch.setattr(Blocks, "try_put", lambda *_: False)
        assert sweep("exp", **asked).S.notnull().all()
    sweep("exp", **asked | {"store": tmp_path / "t"})
    assert files(tmp_path / "s") == files(tmp_path / "t")
    full = OSError(errno.ENOSPC, "full")
    with monkeypatch.context() as patch:
        patch.setattr(blocks, "write", lambda *_: (_ for _ in ()).throw(full))
        with pytest.raises(InputError, match=r"^store = .*cannot be written \(no space left"):
            sweep("exp", **asked | {"store": tmp_path / "u"})
    assert sweep("exp", **asked | {"store": tmp_path / "u"}).S.notnull().all()
    assert files(tmp_path / "u") == files(tmp_path / "t")


def test_a_part_has_no_more_files_than_a_disk_likes(monkeypatch):
    cells = Grid(kernels.exp, (), grids_of(kernels.exp, {"gamma": np.arange(1, 101.0)}))
    part = plan.VariableGroup("method", None, ("gamma",), 1)
    assert len(plan.cut_into_blocks(0, part, cells)) == 100
    monkeypatch.setattr(plan, "MAX_BLOCKS", 7)
    assert [b.ranges[0][1:] for b in plan.cut_into_blocks(0, part, cells)][-2:] == [
        (75, 90),
        (90, 100),
    ]


def test_a_failing_block_is_named_and_the_others_are_kept(tmp_path, monkeypatch):
    asked = {"gamma": "1:3:3", "length": "8,16", "steps": None}
    del asked["steps"]
    row = Row("exp", gamma=1, steps=(Alibi(0.1),))
    monkeypatch.setattr(plan, "CELLS_ONE_BY_ONE", 1)
    right = Grid.exact

    def wrong(self, quantity):
        if 2.0 in self.grids["gamma"]:
            raise InputError("gamma", 2.0, "is not resolved")
        return right(self, quantity)

    monkeypatch.setattr(Grid, "exact", wrong)
    with pytest.raises(InputError, match=r"^gamma = 2\.0: is not resolved$"):
        sweep(row, of="n_eff", **asked)
    with pytest.raises(InputError, match=r"1 block: .*gamma 2.*is not resolved.*in the store"):
        sweep(row, of="n_eff", **asked, store=tmp_path / "s")
    kept = xarray.open_zarr(tmp_path / "s", consolidated=False)
    assert kept.n_eff.isnull().values.ravel().tolist() == [False, False, True, True, False, False]
    monkeypatch.setattr(Grid, "exact", right)
    assert not sweep(row, of="n_eff", **asked, store=tmp_path / "s").n_eff.isnull().any()


def test_a_damaged_block_is_computed_again(whole, tmp_path):
    asked = {"of": ("n_eff", "participation"), **GRID, **SAMPLED, "store": tmp_path / "s"}
    shutil.copytree(whole[2], tmp_path / "s")
    chunks = [x for x in (tmp_path / "s" / "n_eff_mc").rglob("*") if x.is_file()]
    chunk = next(x for x in sorted(chunks) if x.name != "zarr.json")
    chunk.write_bytes(chunk.read_bytes()[:-3] + b"abc")
    with pytest.warns(UserWarning, match=r"method_n_eff_mc\.0.*damaged; it was computed again"):
        sweep("exp", **asked)
    assert files(tmp_path / "s") == files(whole[2])
    mark = next((tmp_path / "s" / "manifest").glob("method.*.json"))
    mark.write_text("{")
    with pytest.warns(UserWarning, match="damaged; it was computed again"):
        sweep("exp", **asked)
    assert files(tmp_path / "s") == files(whole[2])


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"gamma": "0.5:3:4"}, "grid gamma is 3 values"),
        ({"gamma": "0.5:3.1:3"}, "grid gamma"),
        ({"seed": 4}, "montecarlo"),
        ({"of": "n_eff"}, "of is n_eff, participation there and n_eff here"),
        ({"montecarlo": False}, "montecarlo"),
    ],
)
def test_another_sweep_in_the_same_place_is_refused(whole, change, named):
    before = files(whole[2])
    asked = {"of": ("n_eff", "participation"), **GRID, **SAMPLED, "store": whole[2]} | change
    with pytest.raises(InputError, match="holds another sweep") as error:
        sweep("exp", **asked)
    assert named in str(error.value)
    assert "\n" not in str(error.value)
    assert files(whole[2]) == before


@pytest.mark.parametrize("step", ["request", "begin"])
def test_a_run_that_was_ended_as_it_began_goes_on(tmp_path, monkeypatch, step):
    from sparsity.sweeps import store

    def end(*_):
        raise Ended

    with monkeypatch.context() as patch:
        if step == "request":
            patch.setattr(store, "write", end)
        else:
            patch.setattr(store.Store, "_begin", end)
        with pytest.raises(Ended):
            sweep("exp", gamma=[1, 2], store=tmp_path / "s")
    found = sweep("exp", gamma=[1, 2], store=tmp_path / "s")
    assert found.S.notnull().all()
    sweep("exp", gamma=[1, 2], store=tmp_path / "t")
    assert files(tmp_path / "s") == files(tmp_path / "t")


def test_another_sample_or_map_of_the_same_name_is_another_sweep(tmp_path):
    samples = [np.repeat(x, 100) for x in ([1.0, -1, 1, -1, 1, -1, 1, -1], [2.0, -2, *[0] * 6])]
    rows = [Row("exp", beta=0, gamma=1, steps=(Empirical(x),)) for x in samples]
    own = kernels.named("sparsemax")
    for first, second, named in (
        (*rows, "steps is empirical"),
        (own, replace(own, formula="(2·s_j − τ)₊"), "kernel is sparsemax"),
    ):
        grids = {} if isinstance(first, Row) else {"gamma": 1}
        sweep(first, of="n_eff", length=16, **grids, store=tmp_path / named)
        with pytest.raises(InputError, match=f"holds another sweep: {named}"):
            sweep(second, of="n_eff", length=16, **grids, store=tmp_path / named)


def test_settings_of_the_sampling_are_looked_at_before_the_store(tmp_path):
    for wrong, named in (
        ({"rel_error": -1}, "rel_error"),
        ({"max_samples": 0}, "max_samples"),
        ({"dtype": "wide"}, "dtype"),
    ):
        with pytest.raises(InputError, match=f"^{named}") as error:
            sweep("exp", gamma=1, montecarlo=True, **wrong, store=tmp_path / "s")
        assert "\n" not in str(error.value)
    assert not (tmp_path / "s").exists()


def test_a_store_whose_own_files_are_damaged_is_one_line(tmp_path):
    sweep("exp", gamma=1, store=tmp_path / "s")
    texts = ("{", "[]", "null", "3", '"x"', "[" * 100_000)
    cases = [(name, x) for name in ("zarr.json", "manifest/request.json") for x in texts]
    cases += [("zarr.json", "{}"), ("zarr.json", '{"zarr_format": 3, "node_type": "array"}')]
    for name, text in cases:
        whole = (tmp_path / "s" / name).read_text()
        (tmp_path / "s" / name).write_text(text)
        with pytest.raises(InputError, match=r"^store = .*damaged") as error:
            sweep("exp", gamma=1, store=tmp_path / "s")
        assert "\n" not in str(error.value)
        (tmp_path / "s" / name).write_text(whole)
    assert sweep("exp", gamma=1, store=tmp_path / "s").S.notnull().all()


def test_places_that_cannot_hold_a_store(tmp_path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "notes.txt").write_text("mine")
    (tmp_path / "file").write_text("mine")
    (tmp_path / "other" / "manifest").mkdir(parents=True)
    (tmp_path / "other" / "manifest" / "cargo.txt").write_text("mine")
    for place, why in (
        ("full", "no sweep"),
        ("other", "no sweep"),
        ("file", "cannot be written"),
        ("file/x", "cannot"),
    ):
        with pytest.raises(InputError, match=f"^store = .*{why}") as error:
            sweep("exp", gamma=[1, 2], store=tmp_path / place)
        assert "\n" not in str(error.value)
    assert (tmp_path / "full" / "notes.txt").read_text() == "mine"
    assert len(list((tmp_path / "other").rglob("*"))) == 2
    with pytest.raises(InputError, match=r"^store is empty: give the name of a folder"):
        sweep("exp", gamma=[1, 2], store="")


LINE = (  # sixty blocks of a few hundredths of a second, without JAX, which takes long to start
    *("sweep", "exp", "--gamma", "0.5:3:40", "--beta=-1:1:12", "--length", "8,64", "--json"),
    *("--of", "n_eff", "--of", "entropy", "--step", "alibi:0.01"),
)


def started(store, *more):
    command = [sys.executable, "-m", "sparsity", *LINE, "--store", str(store), *more]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def ended(*processes):
    """All of them, to their ends."""
    for process in processes:
        _, err = process.communicate(timeout=900)
        assert process.returncode == 0, err


def killed_and_run_again(store, workers, kills, generator):
    """Run the command, killed at random moments, then to its end; the number of kills."""
    count = 0
    for _ in range(kills):
        process = started(store, *workers)
        while not (store / "manifest").is_dir() and process.poll() is None:
            time.sleep(0.02)
        time.sleep(generator.uniform(0, 2.0))
        process.kill()
        process.communicate()
        count += process.returncode == -signal.SIGKILL
    process = started(store, *workers)
    out, err = process.communicate(timeout=900)
    assert process.returncode == 0, err
    assert json.loads(out)["sizes"] == {"beta": 12, "gamma": 40, "length": 2}
    return count


@pytest.mark.slow
@pytest.mark.parametrize("workers", [(), ("--workers", "2")])
def test_killed_at_ten_moments(tmp_path, workers):
    ended(started(tmp_path / "unbroken"))
    generator = random.Random(1)
    count = sum(
        killed_and_run_again(tmp_path / f"s{i}", workers, 2, generator) > 0 for i in range(5)
    )
    assert count >= 3
    for i in range(5):
        assert files(tmp_path / f"s{i}") == files(tmp_path / "unbroken")


@pytest.mark.slow
def test_two_writers_lose_nothing(tmp_path):
    ended(*[started(tmp_path / "s") for _ in range(2)])
    ended(started(tmp_path / "alone"))
    assert files(tmp_path / "s") == files(tmp_path / "alone")


@pytest.mark.slow
def test_a_full_disk_is_one_line_and_what_is_done_stays(tmp_path):
    """No file may grow beyond a few bytes: as a full disk, for who is not root."""
    limited = (
        "import resource, sys; from sparsity.cli import main; import sparsity, signal;"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN);"
        "sys.dont_write_bytecode = True; "
        "resource.setrlimit(resource.RLIMIT_FSIZE, (600, 600)); main()"
    )
    command = [sys.executable, "-c", limited, *LINE, "--store", str(tmp_path / "s")]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    assert found.returncode == 2
    assert len(found.stderr.strip().splitlines()) == 1
    assert "cannot be written" in found.stderr
    assert not list(tmp_path.rglob("*.part*"))
    ended(started(tmp_path / "s"))


@pytest.mark.slow
@pytest.mark.parametrize("workers", [(), ("--workers", "2")])
def test_a_full_tmpfs_is_one_line_and_a_larger_one_goes_on(tmp_path, workers):
    small = tmp_path / "small"
    small.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=300k", "tmpfs", str(small)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("tmpfs is for root to mount")
    try:
        process = started(small / "s", *workers)
        _, err = process.communicate(timeout=600)
        assert process.returncode == 2
        assert (
            err.strip().splitlines()[-1].endswith("(no space left on device); choose another place")
        )
        assert len([x for x in err.splitlines() if x.startswith("sparsity:")]) == 1
        done = len([*(small / "s" / "manifest").glob("method*")])
        assert 0 < done < 60
        subprocess.run(["mount", "-o", "remount,size=30m", str(small)], check=True)
        ended(started(small / "s", *workers))
        ended(started(tmp_path / "whole"))
        assert files(small / "s") == files(tmp_path / "whole")
    finally:
        subprocess.run(["umount", str(small)], check=True)


def at_once(*works):
    """What works gave that began at the same moment: values or errors."""
    barrier = threading.Barrier(len(works))

    def begun(work):
        barrier.wait()
        try:
            return work()
        except InputError as error:
            return error

    with futures.ThreadPoolExecutor(len(works)) as pool:
        return [future.result() for future in [pool.submit(begun, work) for work in works]]


PLANE = {"beta": [0.5, 1.0], "gamma": [1.0, 2.0]}


def test_two_that_begin_one_store_at_once_both_end(tmp_path):
    whole = sweep("relu2", **PLANE)
    for number in range(6):
        work = functools.partial(sweep, "relu2", **PLANE, store=tmp_path / str(number))
        for found in at_once(work, work):
            xarray.testing.assert_identical(found.load(), whole)


def test_a_store_is_not_opened_while_another_run_ends_it(tmp_path, monkeypatch):
    """Zarr writes attributes beside their place, and warns of such a file where it finds one."""
    ask = functools.partial(sweep, "relu2", **PLANE, store=tmp_path / "s")
    attributes = type(zarr.open_group(tmp_path / "other", mode="w").attrs)
    put = attributes.put

    def slowly(self, given):
        half = tmp_path / "s" / f"zarr.{threading.get_ident()}.partial"
        half.touch()
        time.sleep(0.1)
        put(self, given)
        half.unlink()

    monkeypatch.setattr(attributes, "put", slowly)
    whole = ask().load()
    for found in at_once(ask, ask, ask):
        xarray.testing.assert_identical(found.load(), whole)


def test_of_two_requests_in_one_new_store_one_is_refused(tmp_path):
    whole = {kernel: sweep(kernel, **PLANE) for kernel in ("relu2", "identity")}
    for number in range(6):
        works = [functools.partial(sweep, k, **PLANE, store=tmp_path / str(number)) for k in whole]
        found = at_once(*works)
        refused = [isinstance(each, InputError) for each in found]
        assert sum(refused) == 1, found
        assert "holds another sweep" in str(found[refused.index(True)])
        kernel = [*whole][refused.index(False)]
        xarray.testing.assert_identical(found[refused.index(False)].load(), whole[kernel])


@pytest.mark.parametrize("lost", ["beta", "beta/c/0"])
def test_a_lost_coordinate_is_written_again(tmp_path, lost):
    whole = sweep("relu2", **PLANE, store=tmp_path / "s").load()
    place = tmp_path / "s" / lost
    assert place.exists()
    shutil.rmtree(place) if place.is_dir() else place.unlink()
    again = sweep("relu2", **PLANE, store=tmp_path / "s")
    xarray.testing.assert_identical(again.load(), whole)
