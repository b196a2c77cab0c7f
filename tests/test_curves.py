import itertools
from dataclasses import replace
from typing import Any

import jax
import numpy as np
import pandas
import pytest
import sympy
import xarray
from scipy import stats

from sparsity import (
    Alibi,
    InputError,
    Row,
    SinkLogit,
    evaluate,
    exact,
    quantities,
    score_kernel,
    sweep,
)
from sparsity.cli.files import check_table_file, write_table
from sparsity.sweeps.grids import parse_grid
from sparsity.sweeps.variables import cell_seed

jax.config.update("jax_enable_x64", True)

GRIDS: dict[str, dict[str, Any]] = {
    "exp": {"beta": [-1.0, 2.0], "gamma": [0.5, 1.0, 3.0]},
    "relu2": {"beta": [-3.0, 0.0, 2.0], "gamma": [0.1, 1.0]},
    "identity": {"beta": [0.0, 1.0], "gamma": [0.3, 2.0]},
    "nonnegative": {
        "ratio": [0.5, 2.0],
        "dim": [1, 7, 64],
        "query": ["uniform", "one-hot", "half-normal"],
    },
    "decayed": {"decay": [0.5, 0.99, 1.0], "length": [1, 10, 1000]},
}


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("-1.5", [-1.5]),
        ("-2, -1,0 ,.5", [-2, -1, 0, 0.5]),
        ("0:1:5", [0, 0.25, 0.5, 0.75, 1]),
        ("0.01:100:5:log", [0.01, 0.1, 1, 10, 100]),
        ("7:9:1", [7]),
    ],
)
def test_grids_as_typed(text, values):
    np.testing.assert_allclose(parse_grid(text), values, rtol=1e-14)


def test_whole_numbers_of_a_range_are_rounded_once_but_lists_are_not():
    assert parse_grid("1:10:100:log", whole=True).tolist() == list(range(1, 11))
    assert parse_grid("2.5", whole=True).tolist() == [2.5]


@pytest.mark.parametrize(
    ("text", "fix"),
    [
        ("1,,2", "an item is empty"),
        ("a", "'a' is not a number"),
        ("nan", "is not finite"),
        ("0:1", "start:stop:count"),
        ("0:1:0", "from 1 to 1000000"),
        ("0:1:2.5", "whole number"),
        ("0:1:-4", "whole number"),
        ("1:nan:3", "is not finite"),
        ("0:1:" + "9" * 400, "from 1 to 1000000"),
        ("0:1:5:log", "must be > 0"),
        ("1:2:5:lin", "only be log"),
    ],
)
def test_malformed_grids_are_named_echoed_and_corrected(text, fix):
    with pytest.raises(InputError) as caught:
        parse_grid(text, "gamma")
    assert caught.value.argument == "gamma"
    assert fix in caught.value.fix
    assert text[:40] in str(caught.value)  # of a long one the middle is left out


@pytest.mark.parametrize("kernel", GRIDS)
def test_a_sweep_is_evaluate_in_every_cell(kernel):
    grids = GRIDS[kernel]
    dataset = sweep(kernel, **grids)
    assert dataset["S"].dims == tuple(grids)
    for cell in itertools.product(*grids.values()):
        here = dict(zip(grids, cell, strict=True))
        there, expected = dataset.sel(here), evaluate(kernel, **here)
        assert there["S"].item() == expected.S
        assert there["log_S"].item() == expected.log_S
        assert there["error_bound"].item() == expected.error_bound


@pytest.mark.parametrize("kernel", ["relu2", "decayed"])
def test_everything_is_labelled(kernel):
    more: dict[str, Any] = {} if kernel in ("nonnegative", "decayed") else {"length": [8]}
    first = {name: values[:1] for name, values in GRIDS[kernel].items()}
    dataset = sweep(kernel, montecarlo=True, rel_error=0.05, max_samples=1e5, **first, **more)
    for name, variable in dataset.variables.items():
        assert variable.attrs["long_name"], name
        assert variable.attrs["units"] == "1", name
    assert dataset.attrs["kernel"] == kernel
    assert dataset.attrs["method"] == "closed form"
    assert "Su (2023)" in dataset.attrs["source"]


def test_the_order_of_arguments_does_not_matter_and_text_is_a_grid():
    a = sweep("nonnegative", query="one-hot,uniform", dim="1:100:5:log", ratio=1)
    b = sweep("nonnegative", ratio=1.0, dim=[1, 3, 10, 32, 100], query=["one-hot", "uniform"])
    xarray.testing.assert_identical(a, b)
    assert a["dim"].dtype.kind == "i"


def test_length_adds_the_exact_law_of_rows():
    dataset = sweep("relu2", beta=[-1, 1], gamma=[0.5, 2.0], length=[1, 8, 1000])
    assert dataset["S_limit"].dims == ("beta", "gamma")
    assert dataset["n_eff"].dims == ("beta", "gamma", "length")
    for beta, gamma in itertools.product([-1, 1], [0.5, 2.0]):
        law = exact("relu2", length=[1, 8, 1000], beta=beta, gamma=gamma)
        here = dataset.sel(beta=beta, gamma=gamma)
        np.testing.assert_array_equal(here["n_eff"], law.value)
        np.testing.assert_array_equal(here["S_rms"], law.S_rms)
        np.testing.assert_array_equal(here["error_bound_n_eff"], law.error_bound)


ROW = Row("exp", gamma=1.0, steps=(Alibi(0.05), SinkLogit(2.0)))


def test_many_parameters_at_once_have_the_bits_of_one_by_one():
    softplus = score_kernel("softplus", sympy.log(1 + sympy.exp(sympy.Symbol("s"))))
    betas, lengths, of = np.linspace(-4, 4, 15), [1, 2, 100], "n_eff"
    for kernel in ("relu2", softplus):
        for gammas in ([0.7], [1.0, 1.06]):
            grid = sweep(kernel, beta=betas, gamma=gammas, length=lengths, of=of)
            assert grid[of].shape == (15, len(gammas), 3)
            for beta, gamma in itertools.product(betas[::7], gammas):
                one = exact(kernel, length=lengths, beta=beta, gamma=gamma, of=of)
                here = grid.sel(beta=beta, gamma=gamma)
                np.testing.assert_array_equal(here[of], one.value)
                np.testing.assert_array_equal(here[f"error_bound_{of}"], one.error_bound)


def test_a_sweep_of_a_row_is_exact_in_every_cell():
    names, lengths = ("S", "n_eff", "participation", "sink_mass"), [8, 64]
    dataset = sweep(ROW, gamma=[0.5, 1.0], length=lengths, of=names)
    assert dict(dataset.sizes) == {"gamma": 2, "length": 2}
    assert dataset.attrs["steps"] == "Alibi(slope=0.05), SinkLogit(logit=2.0)"
    assert set(dataset.data_vars) == {*names, *(f"error_bound_{name}" for name in names), "S_rms"}
    for name, gamma in itertools.product(names, [0.5, 1.0]):
        law = exact(ROW.replace(gamma=gamma), length=lengths, of=name)
        here = dataset.sel(gamma=gamma)
        np.testing.assert_array_equal(here[name], law.value)
        np.testing.assert_array_equal(here[f"error_bound_{name}"], law.error_bound)
    whole = sweep("exp", gamma=[0.5, 1.0], length=8, of="S")  # not the limit: rows of 8
    assert whole["S"].sel(gamma=1.0).item() == exact("exp", gamma=1, length=8, of="S").value
    assert whole["S"].sel(gamma=1.0).item() != float(evaluate("exp", gamma=1.0).S)


@pytest.mark.thorough
def test_montecarlo_agrees_and_changes_nothing_else():
    grids = {"beta": [-1.0, 0.0, 1.0], "gamma": [0.5, 1.0, 2.0], "length": [8]}
    plain = sweep("relu2", **grids)
    sampled = sweep("relu2", montecarlo=True, rel_error=1e-3, **grids)
    for name in plain.data_vars:
        xarray.testing.assert_identical(plain[name], sampled[name])
    names = {"S_limit": "_S_limit", "n_eff": "_n_eff"}
    limit = stats.t.isf(1e-4 / (2 * 27), df=63)  # 27 cells in all
    for name, suffix in names.items():
        found, error = sampled[f"{name}_mc"], sampled[f"stderr{suffix}_mc"]
        assert found.size == 9
        assert np.abs((found - sampled[name]) / error).max() < limit
        if name == "n_eff":
            assert np.abs((found - 1.01 * sampled[name]) / error).min() > limit
        assert bool(sampled[f"trusted{suffix}_mc"].all())
        assert len(np.unique(sampled[f"seed{suffix}_mc"])) == 9


def test_a_cell_draws_the_same_numbers_in_any_grid():
    wide = sweep("relu2", montecarlo=True, seed=3, beta=[0, 1], gamma=[1, 2])
    alone = sweep("relu2", montecarlo=True, seed=3, beta=1, gamma=2)
    assert alone["S_mc"].item() == wide["S_mc"].sel(beta=1, gamma=2).item()
    other = sweep("relu2", montecarlo=True, seed=4, beta=1, gamma=2)
    assert alone["S_mc"].item() != other["S_mc"].item()


@pytest.mark.parametrize(
    ("kernel", "grids", "argument"),
    [
        ("expp", {"gamma": 1}, "kernel"),
        ("exp", {}, "gamma"),
        ("exp", {"gamma": 1, "decay": 0.5}, "decay"),
        ("exp", {"gamma": 1, "length": 2.5}, "length"),
        ("nonnegative", {"ratio": 1, "dim": 2, "query": "unifrom"}, "query"),
        ("decayed", {"decay": [0.5, 1.5], "length": 3}, "decay"),
        ("exp", {"gamma": 1, "of": "n_eff"}, "length"),
        (Row("exp", gamma=1, steps=(Alibi(0.05),)), {}, "length"),
        ("exp", {"beta": "0:1:2000", "gamma": "1:2:2000"}, "grids"),
    ],
)
def test_bad_sweeps_name_the_argument(kernel, grids, argument):
    with pytest.raises(InputError) as caught:
        sweep(kernel, **grids)
    assert caught.value.argument == argument


@pytest.mark.parametrize("name", ["sparsemax", "topk:4"])
def test_rows_of_a_map_without_a_limit_are_asked_for_n_eff(name):
    with pytest.raises(InputError, match="with a length"):
        sweep(name, gamma=1)
    data = sweep(name, gamma=[1, 2], length=8)
    assert set(data) == {"n_eff", "error_bound_n_eff", "S_rms"}
    assert data.n_eff.values.tolist() == [exact(name, gamma=g, length=8).value for g in (1, 2)]


@pytest.mark.parametrize("suffix", [".nc", ".csv"])
def test_the_suffix_says_the_format(suffix, tmp_path):
    how = {"montecarlo": True, "rel_error": 0.05, "max_samples": 1e5}
    dataset = sweep("relu2", beta=0.0, gamma=[1.0, 2.0], length=8, **how)
    path = tmp_path / f"s{suffix}"
    for _ in range(2):  # an existing one is replaced
        write_table(dataset, str(path))
    assert [p.name for p in tmp_path.iterdir()] == [f"s{suffix}"]
    if suffix == ".csv":
        found = pandas.read_csv(path)
        assert list(found["gamma"]) == [1.0, 2.0]
        assert list(found["length"]) == [8, 8]
        np.testing.assert_allclose(found["n_eff"], dataset["n_eff"], rtol=1e-15)
    else:
        xarray.testing.assert_identical(xarray.load_dataset(path, engine="h5netcdf"), dataset)


@pytest.mark.parametrize(
    ("name", "said"),
    [("s.json", "ends in .nc, .zarr or .csv"), ("missing/s.nc", "cannot be written"),
     (".", "is a folder"), ("file/s.zarr", "cannot be written")],
)  # fmt: skip
def test_a_file_of_another_kind_or_out_of_reach_is_refused_in_one_line(name, said, tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(InputError, match=f"^out = {tmp_path}.*{said}"):
        check_table_file(str(tmp_path / name))
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_a_quantity_without_an_exact_law_is_sampled_only():
    ratio = replace(quantities.n_eff, name="ratio", integral=None)
    drawn = sweep("exp", gamma=1.0, length=8, of=(ratio, "S"), montecarlo=True, rel_error=1e-2)
    assert "ratio" not in drawn
    truth = exact("exp", gamma=1.0, length=8).value
    assert abs(drawn["ratio_mc"].item() - truth) < 5 * drawn["stderr_ratio_mc"].item()
    assert {"S", "S_mc"} <= set(drawn)
    with pytest.raises(InputError, match="ratio"):
        sweep("exp", gamma=1.0, length=8, of=ratio)


@pytest.mark.parametrize("ulps", [-1, 1])
def test_a_seed_goes_by_what_a_cell_is_and_not_by_the_last_bit_of_a_float(ulps):
    values = np.concatenate(
        [np.geomspace(0.14, 20, 9), np.linspace(0.1, 3, 13), 1 / np.arange(1, 99)]
    )
    for value in [*values.tolist(), 1e-9, -2.5, 8192.0]:
        moved = float(np.nextafter(value, ulps * np.inf))
        assert moved != value
        for label in (float, lambda x: ("gamma", x), lambda x: Row("exp", gamma=abs(x))):
            assert cell_seed(5, "exp", label(moved)) == cell_seed(5, "exp", label(value))
        # A difference that somebody may have meant is another cell.
        assert cell_seed(5, value * (1 + 1e-7)) != cell_seed(5, value)
    for nothing in (-0.0, 5e-324 * ulps, 4e-16 * ulps):  # of a grid through 0
        assert cell_seed(5, ("beta", nothing)) == cell_seed(5, ("beta", 0.0))
    assert cell_seed(5, 12345678901) != cell_seed(5, 12345678902)  # whole numbers are exact
    slopes = [Row("exp", gamma=1, steps=(Alibi(x),)) for x in (0.1 + 0.2, 0.3, 0.3001)]
    assert cell_seed(0, slopes[0]) == cell_seed(0, slopes[1]) != cell_seed(0, slopes[2])


@pytest.mark.parametrize("ulps", [-1, 1])
def test_a_grid_that_is_off_by_its_last_bit_draws_the_same(ulps):
    gamma, settings = np.geomspace(0.14, 20, 5), {"montecarlo": True, "rel_error": 0.01, "seed": 3}
    there, moved = (
        sweep("relu2", beta=[-1.0, 0.3], gamma=values, **settings)
        for values in (gamma, np.nextafter(gamma, ulps * np.inf))
    )
    for name in ("seed_mc", "samples_mc"):
        np.testing.assert_array_equal(there[name], moved[name])
    # The same draws at another γ: far closer than two streams would be.
    np.testing.assert_allclose(there["S_mc"], moved["S_mc"], rtol=1e-9)
    assert float((there["stderr_mc"] / there["S_mc"]).min()) > 1e-6
