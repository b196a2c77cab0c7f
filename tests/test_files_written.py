"""What is written: whole or not at all, on a full disk, killed, beside others, under any name."""

import io
import json
import os
import signal
import subprocess
import sys
from concurrent import futures
from pathlib import Path

import pytest
import xarray

import sparsity
from sparsity import InputError, output
from sparsity.attention.measurement import datasets
from sparsity.output import part_of, refuse_pipe, replacing, write, write_together
from sparsity.sweeps import saving

ROOT = Path(__file__).parents[1]
ENVIRONMENT = os.environ | {"PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu"}


def python(code, *arguments):
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        capture_output=True,
        text=True,
        errors="surrogateescape",
        timeout=120,
        check=False,
        env=ENVIRONMENT,
    )


def tree(folder):
    """Every file of a folder by its path."""
    return {str(x.relative_to(folder)): x.read_bytes() for x in folder.rglob("*") if x.is_file()}


LIMITED = """
import json, resource, sys
from sparsity.cli import main

limit, *lines = map(json.loads, sys.argv[1:])
sys.dont_write_bytecode = True  # it would be cut at the limit, and stay so
resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
for line in lines:
    sys.argv[1:] = line
    try:
        main()
    except SystemExit as end:
        print(end.code)
"""
SWEEP = ("sweep", "exp", "--gamma", "0.1:9:900", "--length", "4", "--out")


def test_a_full_disk_is_one_line_and_nothing_is_left(tmp_path, monkeypatch):
    """Of 4 kB, in which the table of a chart fits and its picture does not."""
    monkeypatch.chdir(tmp_path)
    Path("x.nc").write_text("older")
    places = ["x.nc", "x.csv", "x.zarr", "x.svg"]
    lines = [[*SWEEP, place] for place in places[:3]]
    lines.append(["plot", "exp", "--gamma", "2", "--out", places[3]])
    found = python(LIMITED, 4096, *map(json.dumps, lines))
    assert found.returncode == 0  # of the process, which HDF5 once ended by a signal
    assert found.stdout.split() == ["2"] * 4, found.stderr
    for place, told in zip(places, found.stderr.splitlines(), strict=True):
        assert told.startswith(f"sparsity: out = {place}: cannot be written")
    assert tree(tmp_path) == {"x.nc": b"older"}


def test_a_measurement_on_a_full_disk(tmp_path):
    """As the file of rows is written, compressed, from Python."""
    code = """
import resource, sys, numpy, xarray
from sparsity.errors import InputError
from sparsity.attention.measurement.datasets import save
data = xarray.Dataset({"S": ("row", numpy.random.default_rng(1).random(9000))})
sys.dont_write_bytecode = True  # it would be cut at the limit, and stay so
resource.setrlimit(resource.RLIMIT_FSIZE, (9000, 9000))
try:
    save(data, sys.argv[1])
except InputError as error:
    print(error)
"""
    found = python(code, tmp_path / "m.nc")
    assert (found.returncode, found.stderr) == (0, "")
    assert "cannot be written (file too large)" in found.stdout
    assert list(tmp_path.iterdir()) == []


def test_several_files_are_written_all_or_none(tmp_path):
    first, second = tmp_path / "a", tmp_path / "b"
    first.write_text("older")
    with pytest.raises(InputError, match=r"out = .*no such file"):
        write_together({first: "new", tmp_path / "none" / "c": "new"})
    assert tree(tmp_path) == {"a": b"older"}
    write_together({first: "new", second: b"new"})
    assert tree(tmp_path) == {"a": b"new", "b": b"new"}


@pytest.fixture(scope="module")
def small():
    return {"kernel": "exp", "gamma": [1.0, 2.0], "length": [4, 8]}


def list_sorted(patch, backwards):
    """A disk that lists a folder in this order."""
    listed, iterated = os.listdir, Path.iterdir
    patch.setattr(os, "listdir", lambda *a: sorted(listed(*a), reverse=backwards))
    patch.setattr(Path, "iterdir", lambda x: iter(sorted(iterated(x), reverse=backwards)))


@pytest.mark.parametrize("suffix", saving.SUFFIXES)
def test_the_same_bytes_each_time_with_a_store_and_without(small, suffix, tmp_path, monkeypatch):
    """Whatever the order in which the disk lists a folder."""
    trees = []
    for i, store in enumerate((None, tmp_path / "forwards", tmp_path / "backwards")):
        place = tmp_path / f"{i}{suffix}"
        with monkeypatch.context() as patch:
            list_sorted(patch, backwards=i == 2)
            saving.save(sparsity.sweep(**small, store=store), place)
        trees.append(tree(place) if place.is_dir() else place.read_bytes())
    assert trees[0] == trees[1] == trees[2]
    assert len(trees[0]) > (20 if suffix == ".zarr" else 200)


def test_a_netcdf_file_has_what_the_dataset_has(small):
    data = sparsity.sweep(**small)
    packed = {"n_eff": {"zlib": True, "shuffle": True}}
    content = output.netcdf_bytes(data, packed)
    assert content == output.netcdf_bytes(data, packed) != output.netcdf_bytes(data)
    with xarray.open_dataset(io.BytesIO(content), engine="h5netcdf") as found:
        assert found.identical(data)
        assert found["n_eff"].encoding["shuffle"]


KILLED = """
import os, signal, sys
from pathlib import Path
from sparsity import output

path = Path(sys.argv[1])
if path.suffix == ".zarr":
    import xarray
    from sparsity import sweep
    from sparsity.sweeps import saving
    begun = xarray.Dataset.to_zarr
    def end(*arguments, **options):
        begun(*arguments, **options)
        os.kill(os.getpid(), signal.SIGKILL)
    xarray.Dataset.to_zarr = end
    saving.save(sweep("exp", gamma=[1.0]), path)
with output.replacing(path) as part:
    part.write_bytes(b"half")
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("name", ["x.nc", "x.zarr"])
def test_what_a_killed_run_left_the_next_one_removes(name, tmp_path):
    path, other = tmp_path / name, tmp_path / ".y.nc.0.part"
    other.write_text("of another output")
    for _ in range(2):  # the second removes what the first left, and leaves its own
        assert python(KILLED, path).returncode == -signal.SIGKILL
        assert sorted(x.name for x in tmp_path.iterdir()) == [f".{name}.0.part", other.name]
    saving.save(sparsity.sweep("exp", gamma=[1.0]), path)
    assert sorted(x.name for x in tmp_path.iterdir()) == [other.name, name]


@pytest.mark.parametrize("as_folder", [False, True])
def test_runs_at_one_time_leave_each_other_alone(as_folder, tmp_path):
    path = tmp_path / "x"
    with part_of(path, as_folder=as_folder) as first:
        (first / "in" if as_folder else first).write_text("first")
        with part_of(path, as_folder=as_folder) as second:
            assert first != second
            write(tmp_path / "y", "another output")
        with replacing(path) as third:  # beside the first, which is of the same output
            third.write_text("third")
        assert path.read_text() == "third"
        assert (first / "in" if as_folder else first).read_text() == "first"
    assert sorted(tree(tmp_path)) == ["x", "y"]


def test_runs_that_write_one_name_at_once_all_write_it(tmp_path):
    """One makes its part while another takes it for abandoned, or finds it gone as it looks."""
    paths = [tmp_path / str(each) for each in range(300)]

    def write_all(text):
        for path in paths:
            refuse_pipe(tmp_path)
            write(path, text)

    with futures.ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(write_all, text) for text in "abcd"]:
            done.result()
    assert {path.read_text() for path in paths} <= {*"abcd"}
    assert sorted(tmp_path.iterdir()) == sorted(paths)


def test_a_part_that_is_renamed_is_not_removed_under_another_run(tmp_path):
    """Which may have one of that name by then."""
    path = tmp_path / "x"
    with part_of(path) as part:
        part.rename(path)
        part.write_text("of another run")
    assert tree(tmp_path) == {"x": b"", part.name: b"of another run"}


def test_a_name_that_is_no_utf8(tmp_path, monkeypatch):
    """Of every kind of file, each asked for at the prompt."""
    monkeypatch.chdir(tmp_path)
    suffixes = (b".nc", b".csv", b".zarr", b".svg", b".png")
    names = [os.fsdecode(b"caf\xe9%d" % i + suffix) for i, suffix in enumerate(suffixes)]
    begun = [[*SWEEP[:4], "--out"]] * 3 + [["plot", "exp", "--gamma", "2", "--out"]] * 2
    lines = [[*start, name, "--json"] for start, name in zip(begun, names, strict=True)]
    found = python(LIMITED, 2**30, *map(json.dumps, lines))
    assert (found.returncode, found.stderr) == (0, "")
    told = [json.loads(line)["out"] for line in found.stdout.splitlines()]
    assert told == names
    assert all(map(os.path.exists, names))
    assert not [x for x in os.listdir() if x.endswith(".part")]


def test_a_text_that_is_no_utf8_is_written_as_python_shows_it(tmp_path):
    write(tmp_path / "x", "caf\udce9")
    assert (tmp_path / "x").read_bytes() == b"caf\\udce9"


def test_measured_files_are_written_by_a_rename(tmp_path, monkeypatch, small):
    """No writer of the library is given a path of its own to write netCDF to."""

    def refuse(*arguments, **options):
        raise AssertionError("written in place")

    monkeypatch.setattr(xarray.Dataset, "to_netcdf", refuse)
    data = sparsity.sweep(**small)
    for save in (datasets.save, saving.save):
        assert save(data, tmp_path / "x.nc") == tmp_path / "x.nc"
        with xarray.open_dataset(tmp_path / "x.nc") as found:
            assert found.equals(data)


def test_a_pipe_as_input_is_refused_and_not_waited_for(tmp_path, command):
    """As a sample of scores, in a store, and among the files of a page; a device likewise."""
    pipe, device = tmp_path / "pipe.txt", tmp_path / "null.txt"
    os.mkfifo(pipe)
    device.symlink_to("/dev/zero")
    store, page = tmp_path / "store", tmp_path / "page"
    sparsity.sweep("exp", gamma=[1.0], store=store)
    page.mkdir()
    for place in (store / "zarr.json", store / "manifest" / "request.json", page / "claims.json"):
        place.unlink(missing_ok=True)
    os.mkfifo(page / "claims.json")
    os.mkfifo(store / "manifest" / "request.json")
    lines = [
        ("exact", "exp", "--length", "4", "--scores", pipe),
        ("exact", "exp", "--length", "4", "--scores", device),
        ("exact", "exp", "--length", "4", "--scores", "/dev/stdin.npy"),
        ("sweep", "exp", "--gamma", "1", "--store", store),
        ("reproduce", "--page", "--out", page),
        ("sweep", "exp", "--gamma", "1", "--out", tmp_path / "pipe.nc"),
    ]
    os.mkfifo(tmp_path / "pipe.nc")
    for line in lines:
        code, out, err = command(*line)
        assert (code, out) == (2, ""), err
        assert err.count("\n") == 1
        assert "device or a pipe" in err or "stdin.npy" in err
