"""What is written: whole or not at all, on a full disk, after Ctrl-C, beside others."""

import io
import json
import os
from concurrent import futures
from pathlib import Path

import pytest
import xarray
from command_line import python

import sparsity
from sparsity import InputError, output
from sparsity.cli.files import write_table
from sparsity.output import refuse_unwritable, replacing, write, write_together


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


@pytest.mark.thorough
def test_a_full_disk_is_one_line_and_nothing_is_left(tmp_path, monkeypatch):
    """Of 4 kB, in which the table of a chart fits and its picture does not."""
    monkeypatch.chdir(tmp_path)
    Path("x.nc").write_text("older")
    places = ["x.nc", "x.csv", "x.zarr", "x.svg"]
    sweep = ["sweep", "exp", "--gamma", "0.1:9:900", "--out"]
    lines = [[*sweep, place] for place in places[:3]]
    lines.append(["plot", "exp", "--gamma", "2", "--out", places[3]])
    done = python("-c", LIMITED, "4096", *map(json.dumps, lines))
    assert done.returncode == 0  # of the process, which HDF5 once ended by a signal
    assert done.stdout.split() == ["2"] * 4, done.stderr
    refusals = [
        x for x in done.stderr.splitlines() if x.startswith("sparsity: ")
    ]  # not its progress
    for place, told in zip(places, refusals, strict=True):
        assert told.startswith(f"sparsity: out = {place}: cannot be written")
    assert Path("x.nc").read_text() == "older"
    assert sorted(x.name for x in tmp_path.iterdir()) == ["x.nc", "x.zarr"]
    # A store is there to be gone on with: once there is room, it holds what a whole run does.
    whole = sparsity.sweep("exp", gamma="0.1:9:900")
    later = sparsity.sweep("exp", gamma="0.1:9:900", store="x.zarr")
    xarray.testing.assert_equal(later, whole)


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_what_is_interrupted_leaves_the_older_file_and_nothing_else(error, tmp_path):
    path = tmp_path / "x"
    path.write_text("older")

    def write_half():
        with replacing(path) as part:
            part.write_text("half")
            assert part.stat().st_dev == path.stat().st_dev  # a rename is one step
            raise error

    with pytest.raises(error):
        write_half()
    assert tree(tmp_path) == {"x": b"older"}
    assert list(tmp_path.iterdir()) == [path]


def test_several_files_are_written_all_or_none(tmp_path):
    first, second = tmp_path / "a", tmp_path / "b"
    first.write_text("older")
    with pytest.raises(InputError, match=r"out = .*no such file"):
        write_together({first: "new", tmp_path / "none" / "c": "new"})
    assert tree(tmp_path) == {"a": b"older"}
    write_together({first: "new", second: b"new"})
    assert tree(tmp_path) == {"a": b"new", "b": b"new"}


def test_a_file_has_the_permissions_of_any_other_and_a_link_stays_one(tmp_path):
    path, link, plain = tmp_path / "x", tmp_path / "link", tmp_path / "plain"
    link.symlink_to(path)
    plain.write_text("")
    write(link, "caf\udce9")  # no UTF-8: the name of a file may be so
    assert link.is_symlink()
    assert path.read_bytes() == b"caf\\udce9"
    assert path.stat().st_mode == plain.stat().st_mode


def test_what_is_no_file_is_refused_before_the_work(tmp_path):
    pipe = tmp_path / "pipe.nc"
    os.mkfifo(pipe)
    for path, why in (
        (pipe, "device or a pipe"),
        (tmp_path, "is a folder"),
        (tmp_path / "none" / "x.nc", "no such file"),
        (pipe / "x.nc", "not a directory"),
    ):
        with pytest.raises(InputError, match=why):
            refuse_unwritable(path)
    refuse_unwritable(tmp_path / "x.nc")
    assert list(tmp_path.iterdir()) == [pipe]


def test_runs_that_write_one_name_at_once_all_write_it(tmp_path):
    paths = [tmp_path / str(i) for i in range(50)]

    def write_all(text):
        for path in paths:
            write(path, text)

    with futures.ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(write_all, text) for text in "abcd"]:
            done.result()
    assert {path.read_text() for path in paths} <= {*"abcd"}
    assert sorted(tmp_path.iterdir()) == sorted(paths)


@pytest.mark.parametrize("suffix", [".nc", ".csv"])
def test_the_same_bytes_each_time(suffix, tmp_path):
    """Over an older file too."""
    data = sparsity.sweep("exp", gamma=[1.0, 2.0], length=[4, 8])
    paths = [tmp_path / f"{name}{suffix}" for name in ("a", "b", "b")]
    contents = []
    for path in paths:
        write_table(data, str(path))
        contents.append(path.read_bytes())
    assert contents[0] == contents[1] == contents[2]
    assert len(contents[0]) > 200
    assert len(list(tmp_path.iterdir())) == 2


def test_a_netcdf_file_has_what_the_dataset_has():
    data = sparsity.sweep("exp", gamma=[1.0, 2.0], length=[4, 8])
    packed = {"n_eff": {"zlib": True, "shuffle": True}}
    content = output.netcdf_bytes(data, packed)
    assert content == output.netcdf_bytes(data, packed) != output.netcdf_bytes(data)
    with xarray.open_dataset(io.BytesIO(content), engine="h5netcdf") as found:
        assert found.identical(data)
        assert found["n_eff"].encoding["shuffle"]


def test_a_pipe_as_input_is_refused_and_not_waited_for(tmp_path, command):
    pipe, device = tmp_path / "pipe.txt", tmp_path / "null.txt"
    os.mkfifo(pipe)
    device.symlink_to("/dev/zero")
    for path in (pipe, device):
        code, out, err = command("exact", "exp", "--length", "4", "--scores", path)
        assert (code, out) == (2, ""), err
        assert err.count("\n") == 1
        assert "device or a pipe" in err
