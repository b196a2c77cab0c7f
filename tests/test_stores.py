"""Sweeps in blocks: the same numbers in one process and in several, and stores that go on."""

import copy
import errno
import functools
import itertools
import json
import os
import pickle
import signal
import subprocess
import sys
import time
from dataclasses import replace

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
)
from sparsity.sampling import batches
from sparsity.sweeps import blocks
from sparsity.sweeps.blocks import Request, VariableGroup
from sparsity.sweeps.grids import grids_of
from sparsity.sweeps.variables import Grid

ASKED = {"of": ("n_eff", "participation"), "gamma": "0.5:3:3", "beta": "-1,1", "length": "8,32"}
SAMPLED = {"montecarlo": True, "rel_error": 0.1, "max_samples": 2e4, "seed": 3}
PLANE = {"beta": [0.5, 1.0], "gamma": [1.0, 2.0]}
ROW = Row("exp", gamma=1.0, steps=(Alibi(0.1),))


@pytest.fixture(scope="module", autouse=True)
def small():
    """Blocks of a few cells, batches of a few rows."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks, "CELLS_ONE_BY_ONE", 3)
        patch.setattr(batches, "NORMALS_PER_BATCH", 2**12)
        yield


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


def test_blocks_hold_every_cell_once():
    given = {"beta": np.arange(5.0), "gamma": np.arange(1, 8.0), "length": [5, 7, 64, 1000]}
    cells = Grid(kernels.exp, (), grids_of(kernels.exp, given))
    every = blocks.variable_groups(Request(cells, (quantities.n_eff,), True, None))
    assert [group.name for group in every] == ["method", "method_n_eff"]
    for number, most in itertools.product(range(2), (1, 2, 6, 20, 10**6)):
        group = replace(every[number], most=most)
        seen = np.zeros([len(cells.grids[name]) for name in group.split], int)
        for block in blocks.cut_into_blocks(number, group, cells):
            seen[block.slices(group.split)] += 1
            assert seen[block.slices(group.split)].size <= most
        assert (seen == 1).all()


def test_a_group_has_no_more_blocks_than_a_disk_likes(monkeypatch):
    cells = Grid(kernels.exp, (), grids_of(kernels.exp, {"gamma": np.arange(1, 101.0)}))
    group = VariableGroup("method", None, ("gamma",), 1)
    assert len(blocks.cut_into_blocks(0, group, cells)) == 100
    monkeypatch.setattr(blocks, "MAX_BLOCKS", 7)
    cut = blocks.cut_into_blocks(0, group, cells)
    assert [block.ranges[0][1:] for block in cut][-2:] == [(75, 90), (90, 100)]


@pytest.mark.thorough
def test_estimates_do_not_depend_on_how_cells_are_cut_or_where_they_are_drawn(monkeypatch):
    whole, elsewhere = sweep("exp", **ASKED, **SAMPLED), Elsewhere()
    xarray.testing.assert_identical(sweep("exp", **ASKED, **SAMPLED, executor=elsewhere), whole)
    assert elsewhere.count > 8
    monkeypatch.setattr(blocks, "CELLS_ONE_BY_ONE", 2)
    again = sweep("exp", **ASKED, **SAMPLED)
    for name in ("n_eff_mc", "stderr_n_eff_mc", "participation_mc"):
        assert (again[name].values == whole[name].values).all()


def test_a_pipe_in_the_place_of_a_chunk_is_refused(tmp_path):
    sweep("exp", gamma=[1.0, 2.0], store=tmp_path / "at")
    chunk = next(part for part in (tmp_path / "at" / "S").iterdir() if part.name[0] != ".")
    chunk.unlink()
    os.mkfifo(chunk)
    with pytest.raises(InputError, match="is no file; remove it"):
        sweep("exp", gamma=[1.0, 2.0], store=tmp_path / "at")


@pytest.mark.parametrize("more", [{}, pytest.param(SAMPLED, marks=pytest.mark.thorough)])
def test_a_run_that_was_ended_goes_on(more, tmp_path, monkeypatch):
    monkeypatch.setattr(blocks, "CELLS_OF_ROWS", 2)
    whole, place = sweep("exp", **ASKED, **more), tmp_path / "s"
    with pytest.raises(Ended):
        sweep("exp", **ASKED, **more, store=place, progress=ending(3))
    under_way = xarray.load_dataset(place, engine="zarr", consolidated=False)
    written = {name: int(values.notnull().sum()) for name, values in under_way.items()}
    assert 0 < written["n_eff"] <= whole.n_eff.size
    assert written.get("participation", 0) < whole.participation.size
    done = []
    kept = sweep("exp", **ASKED, **more, store=place, progress=lambda *at: done.append(at))
    total = done[-1][1]
    assert done == [(i, total) for i in range(3, total + 1)]  # the rest, and no more
    xarray.testing.assert_identical(kept, whole)
    stored = xarray.open_zarr(place, consolidated=False).load()
    xarray.testing.assert_identical(stored[list(whole)], whole)
    done.clear()
    xarray.testing.assert_identical(sweep("exp", **ASKED, **more, store=place), whole)
    assert not done


def test_a_block_without_its_mark_is_computed_again(tmp_path):
    """As of a run that was killed between the two."""
    whole = sweep("relu2", **PLANE, store=tmp_path / "s")
    state = zarr.open_group(tmp_path / "s", path="sweep", mode="r+")
    state.attrs["done"] = [[]]
    zarr.open_array(tmp_path / "s", path="S", mode="r+")[...] = 7.0
    xarray.testing.assert_identical(sweep("relu2", **PLANE, store=tmp_path / "s"), whole)
    stored = xarray.open_zarr(tmp_path / "s", consolidated=False).load()
    xarray.testing.assert_identical(stored[list(whole)], whole)


def test_words_on_an_axis_go_into_a_store(tmp_path):
    asked = {"query": "uniform,one-hot", "ratio": [1.0, 2.0], "dim": 4}
    whole = sweep("nonnegative", **asked)
    for _ in range(2):
        kept = sweep("nonnegative", **asked, store=tmp_path / "s")
        xarray.testing.assert_identical(kept, whole)


def test_a_block_that_fails_is_told_and_what_is_done_is_kept(tmp_path, monkeypatch):
    asked = {"gamma": "1:3:3", "length": "8,16", "of": "n_eff", "store": tmp_path / "s"}
    monkeypatch.setattr(blocks, "CELLS_ONE_BY_ONE", 1)
    right = Grid.exact

    def wrong(self, quantity):
        if 2.0 in self.grids["gamma"]:
            raise InputError("gamma", 2.0, "is not resolved")
        return right(self, quantity)

    with monkeypatch.context() as patch:
        patch.setattr(Grid, "exact", wrong)
        with pytest.raises(InputError, match=r"^gamma = 2\.0: is not resolved$"):
            sweep(ROW, **asked)
    kept = xarray.open_zarr(tmp_path / "s", consolidated=False)
    assert kept.n_eff.isnull().values.ravel().tolist() == [False, False, True, True, True, True]
    assert not sweep(ROW, **asked).n_eff.isnull().any()


@pytest.mark.parametrize(
    ("kernel", "change", "named"),
    [
        ("exp", {"gamma": [1, 2, 3]}, "grids is beta of 2, gamma of 2 there and beta of 2, gamma"),
        ("exp", {"gamma": [1.0, 2.0 + 1e-8]}, "the values of gamma are others"),
        ("exp", {"montecarlo": True}, "montecarlo is None there and Sampling"),
        ("relu2", {}, "kernel is exp: exp"),
    ],
)
def test_another_sweep_in_the_same_place_is_refused(kernel, change, named, tmp_path):
    sweep("exp", **PLANE, store=tmp_path / "s")
    with pytest.raises(InputError, match=f"holds another sweep: {named}"):
        sweep(kernel, **PLANE | change, store=tmp_path / "s")


def test_a_grid_of_another_processor_is_the_same_sweep(tmp_path):
    grid = np.geomspace(0.1, 10, 7)
    sweep("relu2", beta=0, gamma=grid, store=tmp_path / "s")
    moved, done = np.nextafter(grid, np.inf), []
    sweep("relu2", beta=0, gamma=moved, store=tmp_path / "s", progress=lambda *at: done.append(at))
    assert done == [(1, 1)]  # as before it began


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
    for wrong in ({"rel_error": -1}, {"max_samples": 0}, {"dtype": "wide"}):
        with pytest.raises(InputError, match=f"^{next(iter(wrong))}"):
            sweep("exp", gamma=1, montecarlo=True, **wrong, store=tmp_path / "s")
    assert not (tmp_path / "s").exists()


def test_places_that_cannot_hold_a_store(tmp_path, monkeypatch):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "notes.txt").write_text("mine")
    (tmp_path / "file").write_text("mine")
    for place, why in (("full", "no sweep"), ("file", "cannot be written"), ("file/x", "cannot")):
        with pytest.raises(InputError, match=f"^store = .*{why}"):
            sweep("exp", **PLANE, store=tmp_path / place)
    assert (tmp_path / "full" / "notes.txt").read_text() == "mine"
    with pytest.raises(InputError, match=r"^store is empty: give the name of a folder"):
        sweep("exp", **PLANE, store="")
    monkeypatch.setitem(sys.modules, "zarr", None)
    with pytest.raises(InputError, match="stores need Zarr: pip install"):
        sweep("exp", **PLANE, store=tmp_path / "new")


@pytest.mark.parametrize("name", ["S/.zarray", "gamma/.zarray", "sweep/.zattrs", ".zgroup"])
def test_a_damaged_store_is_one_line(name, tmp_path):
    sweep("relu2", **PLANE, store=tmp_path / "s")
    (tmp_path / "s" / name).write_text("{")
    with pytest.raises(InputError, match=r"^store = .*cannot be read"):
        sweep("relu2", **PLANE, store=tmp_path / "s")


def test_a_full_disk_is_one_line_and_a_later_run_goes_on(tmp_path, monkeypatch):
    monkeypatch.setattr(blocks, "CELLS_AT_ONCE", 2)
    real, count = xarray.Dataset.to_zarr, itertools.count()

    def full(*arguments, **options):
        if next(count) == 2:
            raise OSError(errno.ENOSPC, "full")
        return real(*arguments, **options)

    asked = {"beta": 0, "gamma": "1:3:9"}
    with monkeypatch.context() as patch:
        patch.setattr(xarray.Dataset, "to_zarr", full)
        with pytest.raises(InputError, match=r"^store = .*cannot be written \(no space left"):
            sweep("relu2", **asked, store=tmp_path / "s")
    done = []
    kept = sweep("relu2", **asked, store=tmp_path / "s", progress=lambda *at: done.append(at))
    assert done[0] == (2, 5)
    xarray.testing.assert_identical(kept, sweep("relu2", **asked))


LINE = (  # four blocks, without JAX, which takes long to start
    *("sweep", "exp", "--gamma", "0.5:3:8", "--beta=-1:1:4", "--length", "8,64", "--json"),
    *("--of", "n_eff", "--of", "entropy", "--step", "alibi:0.01", "--out"),
)


HELD = """
import sys, time
import xarray
from sparsity import cli
write, written = xarray.Dataset.to_zarr, []
def hold(*arguments, **options):
    while len(written) == 2:
        time.sleep(1)
    written.append(write(*arguments, **options))
xarray.Dataset.to_zarr = hold
sys.argv = ["sparsity", *sys.argv[1:]]
cli.main()
"""  # which never writes a third block


def blocks_written(state):
    """How many blocks a store says that it has."""
    try:
        return sum(map(len, json.loads(state.read_text())["done"]))
    except (OSError, ValueError, KeyError):  # not there yet, or half of it
        return 0


@functools.cache
def in_one_go():
    """What the command finds."""
    row = Row("exp", gamma=1.0, steps=(Alibi(0.01),))
    asked = {"gamma": "0.5:3:8", "beta": "-1:1:4", "length": "8,64"}
    return sweep(row, **asked, of=("n_eff", "entropy"))


@pytest.mark.thorough
def test_a_command_that_is_killed_goes_on(tmp_path, command, monkeypatch):
    monkeypatch.setattr(blocks, "CELLS_ONE_BY_ONE", 16)  # as in a command
    line = [*LINE, str(tmp_path / "s.zarr")]
    state = tmp_path / "s.zarr" / "sweep" / ".zattrs"
    process = subprocess.Popen(
        [sys.executable, "-c", HELD, *line, "--workers", "2"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    while process.poll() is None and blocks_written(state) < 2:
        time.sleep(0.02)
    process.kill()
    process.communicate(timeout=600)  # its workers end with it, or this would not
    assert process.returncode == -signal.SIGKILL
    assert blocks_written(state) == 2
    code, out, _ = command(*line)
    assert code == 0
    assert json.loads(out)["sizes"] == {"beta": 4, "gamma": 8, "length": 2}
    whole = in_one_go()
    stored = xarray.open_zarr(tmp_path / "s.zarr", consolidated=False).load()
    xarray.testing.assert_identical(stored[list(whole)], whole)
