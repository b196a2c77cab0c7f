"""What `reproduce` writes is the same on every processor, and `--check` says where it is not."""

import json
import math
import subprocess
import sys
from dataclasses import replace

import matplotlib.image
import numpy as np
import pytest
from command_line import ROOT

from sparsity import rounding
from sparsity.errors import InputError
from sparsity.report import checking, figures, reproduction
from sparsity.report.checking import compare_folders
from sparsity.series import Point, Series, csv_of_curves


def test_numbers_have_the_digits_that_are_the_same_everywhere():
    assert rounding.significant(1 / 3) == 0.333333333
    assert rounding.significant(4096.0000000000009) == 4096
    assert math.copysign(1, rounding.significant(-0.0)) == 1
    assert rounding.beside_error(0.123456789, 0.0023) == 0.1235
    assert rounding.beside_error(123456.789, 70.0) == 123457
    assert rounding.beside_error(1 / 3, 0.0) == rounding.beside_error(1 / 3, 1e-15) == 0.333333333
    assert math.isnan(rounding.beside_error(math.nan, 1.0))


def test_what_is_only_rounding_is_nothing():
    values = np.array([-1.1e-16, 0.5, 2.0, math.nan])
    np.testing.assert_array_equal(rounding.column(values), [0.0, 0.5, 2.0, math.nan])
    small = np.array([1.1e-16, 2.2e-16])  # of their own scale they are numbers
    np.testing.assert_array_equal(rounding.column(small), small)
    np.testing.assert_array_equal(rounding.column(small, scale=1.0), [0.0, 0.0])
    np.testing.assert_array_equal(
        rounding.logarithms(np.array([-2e-16, -5.000000001234e-7, 12345.678901, -np.inf])),
        [0.0, -5e-7, 12345.6789, -np.inf],
    )
    found = {"dual": 3e-16, "z": -1.23456, "largest_z": 2.0000001, "bound": 1.2345e-12, "n": 3}
    found |= {"estimate": 0.54596, "stderr": 0.00021671, "cells": [{"theory": 1 / 3}], "all": True}
    assert rounding.record(found) == {
        **{"dual": 0.0, "z": -1.23, "largest_z": 2.0, "bound": 1.2e-12, "n": 3},
        **{"estimate": 0.54596, "stderr": 0.00022, "cells": [{"theory": 0.333333333}], "all": True},
    }


def curve_of(moved: float) -> Series:
    """Return a curve with a point; every number is off by so many parts."""
    x = np.geomspace(1e-3, 30, 40) * (1 + moved)
    log = -(x**2) * (1 + moved) / 2 + moved  # 0 at the left, but for rounding
    line = Series.line("exp", x, log, gamma=x[3])
    point = Point(0.6065312345 * (1 + moved), 0.0011 * (1 + moved), 2048, 7, "rows")
    return line.with_points([-0.5], {1.0: point}).named("gamma", "S")


@pytest.mark.parametrize("moved", [-2e-16, 2e-16, 1e-15])
def test_a_table_and_its_picture_are_the_same_for_other_last_bits(moved):
    """As of a processor that adds in another order, and of grids that are off by an ulp."""
    first, second = ([curve_of(by).rounded()] for by in (0.0, moved))
    assert csv_of_curves(first) == csv_of_curves(second)
    assert csv_of_curves([curve_of(0.0)]) != csv_of_curves([curve_of(moved * 1e4)])
    assert csv_of_curves(first) != csv_of_curves([curve_of(1e-7).rounded()])


@pytest.mark.parametrize("moved", [-2e-16, 2e-16])
def test_a_point_stands_after_the_line_s_own_entry_whose_last_bit_is_another(moved):
    point = {1.0: Point(0.6, 0.001, 2048, 7, "rows")}
    lines = (Series.line("exp", [0.5, x, 2.0], [-0.1, -0.5, -2.0]) for x in (1.0, 1.0 + moved))
    first, second = (line.with_points([-0.5], point).rounded() for line in lines)
    assert first.samples.tolist() == second.samples.tolist() == [0, 0, 2048, 0]
    wide = Series.line("exp", [1e-9, 1e-8, 1.0, 1e9], np.zeros(4)).with_points([0.0], point)
    assert wide.rounded().x.tolist() == [1e-9, 1e-8, 1.0, 1.0, 1e9]  # no place of it is 0


@pytest.mark.thorough
def test_a_figure_is_drawn_from_what_is_written():
    figure = next(one for one in figures.ALL if one.name == "decayed")
    data = figure.data(figures.Context(rel_error=0.05))
    moved = [
        replace(s, theory=s.theory * (1 + 1e-15), log=s.log * (1 - 1e-15), x=s.x * (1 + 2e-16))
        for s in data
    ]
    assert figures.render(figure, data) == figures.render(figure, tuple(moved))


FILES = {
    "a.csv": "x,S,seed\n0.1,0.333333333,123\n1,-0.5,7\n",
    "a.svg": '<svg><path d="M 1.234567 2.5"/></svg>',
    "environment.json": '{"numpy": "2.0.1", "seed": "0"}',
    "index.html": "<p>numpy 2.0.1, S = 0.5, z = −1.23</p>",
}


@pytest.fixture
def run(tmp_path):
    def write(name, **changed):
        home = tmp_path / name
        home.mkdir()
        for file, text in {**FILES, **{k.replace("_", "."): v for k, v in changed.items()}}.items():
            (home / file).write_text(text)
        matplotlib.image.imsave(home / "a.png", np.full((8, 8), 0.5), vmin=0, vmax=1)
        return home

    return write


NAMES = [*FILES, "a.png"]


@pytest.mark.parametrize(
    ("file", "text", "said"),
    [
        ("a_csv", FILES["a.csv"].replace("0.333333333", "0.333333334"), checking.ROUNDED),
        ("a_csv", FILES["a.csv"].replace("0.333333333", "0.333333335"), checking.OTHER),
        ("a_csv", FILES["a.csv"].replace("0.333333333", "0.3333"), checking.OTHER),
        ("a_csv", FILES["a.csv"].replace("123", "124"), checking.OTHER),  # a seed
        ("a_csv", FILES["a.csv"].replace("-0.5", "-0.500000001"), checking.ROUNDED),
        ("a_csv", FILES["a.csv"] + "2,0.5,8\n", checking.OTHER),
        ("a_svg", FILES["a.svg"].replace("1.234567", "1.234568"), checking.ROUNDED),
        ("index_html", FILES["index.html"].replace("−1.23", "−1.24"), checking.ROUNDED),
        ("index_html", FILES["index.html"].replace("S =", "T ="), checking.OTHER),
    ],
)
def test_each_file_is_said_to_be_what_it_is(run, file, text, said):
    check = compare_folders(run("old"), run("new", **{file: text}), NAMES)
    name = file.replace("_", ".")
    assert check.verdicts[name] == said
    others = {k: v for k, v in check.verdicts.items() if k != name}
    assert set(others.values()) == {checking.SAME, checking.MACHINE}
    assert check.same is (said != checking.OTHER)
    assert f"{name} " in check.text()
    assert json.loads(json.dumps(check.summary()))["files"][name] == said


def test_versions_and_the_device_are_left_out(run):
    other = {"environment_json": '{"numpy": "2.1.0", "seed": "0"}'}
    other |= {"index_html": FILES["index.html"].replace("2.0.1", "2.1.0")}
    check = compare_folders(run("old"), run("new", **other), NAMES)
    assert check.same
    assert check.verdicts["environment.json"] == checking.MACHINE


def test_files_that_are_not_there_and_pictures_that_differ(run, tmp_path):
    old, new = run("old"), run("new")
    (old / "a.svg").unlink()
    (old / "gone.csv").write_text("x\n")
    matplotlib.image.imsave(new / "a.png", np.full((8, 8), 0.51), vmin=0, vmax=1)
    check = compare_folders(old, new, NAMES)
    assert (check.verdicts["a.svg"], check.verdicts["gone.csv"]) == (
        checking.MISSING,
        checking.UNKNOWN,
    )
    assert check.verdicts["a.png"] == checking.ROUNDED
    assert not check.same
    matplotlib.image.imsave(new / "a.png", np.full((8, 8), 0.6), vmin=0, vmax=1)
    assert compare_folders(old, new, NAMES).verdicts["a.png"] == checking.OTHER
    with pytest.raises(InputError, match="is no folder"):
        compare_folders(tmp_path / "nowhere", new, NAMES)


def test_the_exit_code_says_whether_it_is_the_same(run, command, monkeypatch):
    old, new, other = run("old"), run("new"), run("other", a_svg="<svg/>")

    class Done:
        agree = True

    def reproduce(out, **settings):
        done = Done()
        done.compared_with = lambda folder: compare_folders(old.parent / folder, new, NAMES)
        return done

    monkeypatch.setattr(reproduction, "reproduce", reproduce)
    code, out, _ = command("reproduce", "--check", str(old))
    assert (code, "4 of 5 files are the same bytes" in out) == (0, True)
    code, out, _ = command("reproduce", "--check", str(other))
    assert code == 1
    assert "a.svg             other" in out
    code, _, err = command("reproduce", "--check", str(old / "nowhere"))
    assert code == 2
    assert "check = " in err


# Every grid that the package makes, as of a processor whose last bits are others.
REPRODUCE_MOVED = """
import sys
import numpy as np
def moved(even):
    return lambda *ends, **options: np.nextafter(even(*ends, **options), np.inf)
np.linspace, np.geomspace = moved(np.linspace), moved(np.geomspace)
from sparsity.cli import main
sys.argv = ["sparsity", "reproduce", "--check", "figures"]
main()
"""


@pytest.mark.slow
def test_a_run_whose_every_x_is_off_by_an_ulp_is_the_committed_one():
    run = subprocess.run(
        [sys.executable, "-c", REPRODUCE_MOVED], cwd=ROOT, capture_output=True, text=True
    )
    assert run.returncode == 0, run.stdout + run.stderr  # 1 if any is other than to rounding
