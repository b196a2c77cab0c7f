"""The command sweep: the files that it writes, and the links on the way to them."""

import json

import numpy as np
import pytest
import xarray
from command_line import STEPPED, STEPPED_LINE, answer, one_line

import sparsity
from sparsity import Row

pytestmark = pytest.mark.usefixtures("place")


def test_sweep_writes_a_labelled_netcdf_file(command, place):
    found = answer(
        command, "sweep", "relu2", "--beta=-2,0,1.5", "--gamma", "0.1:10:5:log", "--out", "x.nc"
    )
    assert found["sizes"] == {"beta": 3, "gamma": 5}
    assert {"S", "log_S"} <= set(found["variables"])
    assert [path.name for path in place.iterdir()] == ["x.nc"]
    with xarray.open_dataset(place / "x.nc") as data:
        assert data.attrs["kernel"] == "relu2"
        assert data.S.dims == ("beta", "gamma")
        np.testing.assert_allclose(data.beta, [-2, 0, 1.5], rtol=0)
        np.testing.assert_allclose(data.gamma, np.geomspace(0.1, 10, 5), rtol=1e-15)
        for beta in data.beta.values:
            for gamma in data.gamma.values:
                known = sparsity.evaluate("relu2", beta=beta, gamma=gamma)
                cell = data.sel(beta=beta, gamma=gamma)
                assert float(cell.S) == pytest.approx(float(known.S), rel=1e-14)
                assert float(cell.log_S) == pytest.approx(float(known.log_S), rel=1e-14)


@pytest.mark.parametrize(
    ("arguments", "sizes"),
    [
        ("exp --gamma 1:2:3", {"beta": 1, "gamma": 3}),
        ("exp --gamma 1,2 --length 1:1000:4:log", {"beta": 1, "gamma": 2, "length": 4}),
        ("identity --beta 0:1:2 --gamma 3", {"beta": 2, "gamma": 1}),
        (
            "nonnegative --ratio 1 --dim 1:100:3:log --query uniform,one-hot",
            {"ratio": 1, "dim": 3, "query": 2},
        ),
        ("decayed --decay 0.5:1:3 --length 1,10,100,1000", {"decay": 3, "length": 4}),
    ],
)
def test_sweep_of_every_kernel(command, place, arguments, sizes):
    found = answer(command, "sweep", *arguments.split(), "--out", "y.nc")
    assert found["sizes"] == sizes
    with xarray.open_dataset(place / "y.nc") as data:
        assert {str(name): int(data[name].size) for name in data.coords} == sizes
        S = data.S_limit if "n_eff" in data else data.S
        assert np.all((S > 0) & (S <= 1))
        corner = {name: data[name].values[-1] for name in S.dims}
        single = {str(name): at.item() for name, at in data.coords.items() if not at.ndim}
        single = {name: at for name, at in single.items() if name != "length"}
        known = sparsity.evaluate(arguments.split()[0], **corner, **single)
        assert float(S.sel(corner)) == pytest.approx(float(known.S), rel=1e-14)
        if "length" in sizes and "n_eff" in data:
            np.testing.assert_allclose(data.n_eff.sel(length=1), 1)
            assert np.all(data.n_eff <= data.length)
    code, text, _ = command("sweep", *arguments.split(), "--out", "y.nc")
    assert code == 0
    assert "y.nc" in text


def test_sweep_of_a_row_and_of_quantities(command, place):
    found = answer(
        command, "sweep", "exp", "--gamma", "1,2", "--length", "32,4096", *STEPPED_LINE,
        "--of", "n_eff,S", "--out", "x.nc",
    )  # fmt: skip
    assert found["sizes"] == {"beta": 1, "gamma": 2, "length": 2}
    assert {"n_eff", "S"} <= set(found["variables"])
    with xarray.open_dataset(place / "x.nc") as data:
        for gamma in (1, 2):
            row = Row("exp", gamma=gamma, steps=STEPPED)
            for of in ("n_eff", "S"):
                cells = data[of].sel(gamma=gamma).values.ravel()
                law = sparsity.exact(row, length=[32, 4096], of=of)
                np.testing.assert_allclose(cells, law.value, rtol=1e-12)


def test_several_quantities_by_repeating_or_by_a_list(command, tmp_path):
    line = ("sweep", "exp", "--gamma", "1", "--length", "8", "--out", tmp_path / "a.nc", "--json")
    for of in (("--of", "S", "--of", "n_eff"), ("--of", "S,n_eff")):
        code, out, _ = command(*line, *of)
        assert code == 0
        assert {"S", "n_eff"} <= set(json.loads(out)["variables"])
    code, _, err = command("exact", "exp", "--gamma", "1", "--length", "8", "--of", "")
    assert code == 2
    assert err.startswith("sparsity: of is empty: ")


def test_the_same_bad_input_leaves_an_older_file_alone(command, place):
    (place / "x.nc").write_bytes(b"older")
    assert command("sweep", "relu2", "--beta", "0", "--gamma", "1:2", "--out", "x.nc")[0] == 2
    assert (place / "x.nc").read_bytes() == b"older"
    assert [path.name for path in place.iterdir()] == ["x.nc"]


def test_what_a_link_leads_to_is_written(command, place):
    (place / "data").mkdir()
    for target in ("old.nc", "new.nc"):
        link = place / f"to-{target}"
        link.symlink_to(place / "data" / target)
        if target == "old.nc":
            (place / "data" / target).write_bytes(b"older")
        answer(command, "sweep", "exp", "--gamma", 1, "--out", link.name)
        assert link.is_symlink()
        with xarray.open_dataset(place / "data" / target) as data:
            assert data.attrs["kernel"] == "exp"
    assert sorted(path.name for path in (place / "data").iterdir()) == ["new.nc", "old.nc"]
    gone = place / "gone.nc"
    gone.symlink_to(place / "no-folder" / "x.nc")
    code, out, err = command("sweep", "exp", "--gamma", 1, "--out", gone.name)
    assert (code, out) == (2, "")
    assert "choose another place" in one_line(err)
    assert gone.is_symlink()
