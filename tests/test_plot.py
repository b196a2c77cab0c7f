"""What `sparsity.plot` draws is what the instruments say; and the command writes it whole."""

import csv
import json
import math
import runpy
from dataclasses import replace
from pathlib import Path

import matplotlib
import numpy as np
import pytest
from command_line import python
from matplotlib import pyplot
from matplotlib.figure import Figure

import sparsity
from sparsity import Alibi, InputError, QKNorm, Row, SinkLogit, Window, plotting, sampling
from sparsity.cli import cli
from sparsity.plots import chart, colors, requests

matplotlib.use("agg")
HOME = Path(__file__).parents[1]
gallery = runpy.run_path(str(HOME / "docs" / "pages" / "plots.py"))
GALLERY, IMPORTS = gallery["ALL"], gallery["IMPORTS"]
LENGTHS = [1, 4, 16, 64]
OWN = "where(s < 1, exp(s), s**2)"


@pytest.fixture(autouse=True)
def _closed():
    yield
    pyplot.close("all")


def lines(ax, style="-"):
    """(x, y) of the curves of that line style, without the floor and the points."""
    found = [line for line in ax.get_lines() if len(line.get_xdata()) > 2]
    found = [line for line in found if line.get_color() != plotting.GREY]
    return [
        np.array([line.get_xdata(), line.get_ydata()], float)
        for line in found
        if line.get_linestyle() == style and line.get_marker() in (None, "None", "")
    ]


def key(ax):
    """The words of the legend."""
    legend = ax.get_legend()
    assert legend is not None
    return [text.get_text() for text in legend.get_texts()]


def same(drawn, x, y):
    """Whether a curve is that of these values."""
    return np.array_equal(drawn[0], x) and np.allclose(drawn[1], y, rtol=1e-12, atol=0)


def test_nonnegative_features_have_the_queries_of_the_articles_figure():
    ax = sparsity.plot("nonnegative", x="dim", ratio=1, dim=[1, 4, 16])
    for label, line in zip(ax.texts, ax.lines[:3], strict=True):
        query = label.get_text().removeprefix("query = ")
        S = sparsity.evaluate("nonnegative", ratio=1, dim=[1, 4, 16], query=query).S
        assert list(line.get_ydata()) == pytest.approx(list(S), rel=1e-12)


def test_the_lines_are_the_exact_law_and_the_limit():
    ax = sparsity.plot(OWN, gamma=2, length=LENGTHS)
    law = sparsity.exact(OWN, beta=0, gamma=2, length=LENGTHS).value
    long = np.array(LENGTHS) * sparsity.evaluate(OWN, beta=0, gamma=2).S ** 2
    assert len(lines(ax)) == len(lines(ax, "--")) == 1
    assert same(lines(ax)[0], LENGTHS, law)
    assert same(lines(ax, "--")[0], LENGTHS, long)
    assert ax.get_ylabel() == "effective tokens  n_eff"
    assert ax.get_xlabel() == "row length n  (tokens)"


@pytest.mark.thorough
def test_the_root_of_n_eff_is_drawn_beside_S_of_long_rows():
    """√(n_eff/n) as a sweep has it, samples and floor too; without a length it is refused."""
    x, given = "length", {"gamma": 1, "length": [4, 64]}
    made = chart("exp", x, of="S_rms", montecarlo=[given[x][0]], **given)
    (curve,) = made.curves
    data = sparsity.sweep("exp", **given)
    np.testing.assert_allclose(curve.exact.theory, data["S_rms"].values.ravel(), rtol=1e-12)
    assert curve.limit is not None
    assert curve.floor is not None
    limit = np.broadcast_to(data["S_limit"].values.ravel(), curve.limit.theory.shape)
    np.testing.assert_allclose(curve.limit.theory, limit, rtol=1e-12)
    n = curve.exact.x
    np.testing.assert_allclose(curve.floor, n**-0.5 * np.ones(len(curve.floor)))
    tokens = chart("exp", x, of="n_eff", montecarlo=[given[x][0]], **given).curves[0].exact
    first = float(tokens.x[0])
    assert curve.exact.estimate[0] ** 2 * first == pytest.approx(tokens.estimate[0])
    relative = tokens.stderr[0] / tokens.estimate[0]
    assert curve.exact.stderr[0] / curve.exact.estimate[0] == pytest.approx(relative / 2)
    assert made.words.y == plotting.SPARSITY
    with pytest.raises(InputError, match=r"length = .*9\.5"):  # it would be a sample of n = 9
        chart("exp", gamma=1, length=LENGTHS, montecarlo=[9.5])
    with pytest.raises(InputError, match="give a length"):
        chart("exp", "gamma", of="S_rms")


def test_a_wrong_curve_would_be_seen():
    ax = sparsity.plot("exp", gamma=2, length=LENGTHS)
    for wrong in (
        sparsity.exact("exp", gamma=2.001, length=LENGTHS).value,
        sparsity.exact("exp", gamma=2, length=LENGTHS, of="participation").value,
        np.array(LENGTHS) * sparsity.evaluate("exp", gamma=2).S ** 2,
    ):
        assert not same(lines(ax)[0], LENGTHS, wrong)


@pytest.mark.parametrize(
    ("row", "x", "values", "name"),
    [
        (Row("exp", gamma=2, steps=(Window(8),)), "window", [2, 4, 8], "size"),
        (Row("sparsemax", gamma=1), "gamma", [0.5, 1.0, 2.0], "gamma"),
    ],
)
def test_any_number_of_a_row_is_an_x_axis(row, x, values, name):
    of, n = "n_eff" if row.kernel.name == "sparsemax" else "entropy", 8
    drawn = chart(row, x, of=of, length=n, limit=False, **{x: values}).curves[0].exact
    for value, y in zip(values, drawn.theory, strict=True):
        if row.steps:
            other = Row(row.kernel, steps=(type(row.steps[0])(value),), **row.params)
        else:
            other = row.replace(**{name: value})
        assert y == pytest.approx(float(sparsity.exact(other, length=n, of=of).value), rel=1e-12)
    assert len(set(drawn.theory)) == 3  # it does move the curve


def test_a_quantity_without_an_integral_has_its_law_along_a_parameter():
    of = "max_weight"
    drawn = chart("exp", "gamma", of=of, length=16, gamma=[0.5, 2.0]).curves[0].exact.theory
    law = [float(sparsity.exact("exp", gamma=g, length=16, of=of).value) for g in (0.5, 2.0)]
    assert drawn == pytest.approx(law, rel=1e-12)
    assert drawn[0] != pytest.approx(drawn[1], rel=1e-3)


def test_the_default_values_are_in_the_domain_of_the_step():
    row = Row("exp", gamma=1, steps=(QKNorm(8),))
    _, values = requests.read_curves(row, "dim", {"length": 8})
    assert values[0] == 2  # a sphere needs two dimensions; the control starts at one


def test_several_values_and_kernels_are_several_curves_that_differ_in_look():
    made = chart(["exp", "relu2", "identity"], gamma=[1, 2], length=LENGTHS)
    labels = [curve.exact.label for curve in made.curves]
    assert labels[:2] == ["exp, γ = 1", "exp, γ = 2"]
    assert len(set(labels)) == 6
    assert made.words.subtitle == "β = 0"
    ax = sparsity.plot(["exp", "relu2", "identity"], gamma=2, length=LENGTHS)
    solid = [x for x in ax.get_lines() if x.get_linestyle() == "-" and len(x.get_xdata()) > 2]
    assert len({line.get_color() for line in solid} - {plotting.GREY}) == 3
    assert len(lines(ax)) == 3


def marks(ax):
    """(x, y) of all markers, and how many there are in the legend."""
    shaped = [x for x in ax.get_lines() if x.get_marker() not in ("", "None", None, "_")]  # no caps
    shown = ax.get_legend().get_lines() if ax.get_legend() else []
    points = [tuple(xy) for line in shaped for xy in np.array(line.get_xydata(), float).tolist()]
    return points, sum(line.get_marker() not in ("", "None", None) for line in shown)


UNSAMPLED = (
    lambda: sparsity.plot(["exp", "relu2"], gamma=2, length=LENGTHS),
    lambda: sparsity.plot(
        sparsity.sweep("relu2", beta=[-1, 0, 1], gamma=[1.0, 2.0, 3.0]), x="gamma"
    ),
)


@pytest.mark.parametrize("drawn", UNSAMPLED)
def test_a_marker_is_a_sample(drawn):
    ax = drawn()
    assert marks(ax) == ([], 0)
    assert len(lines(ax)) + len(lines(ax, "--")) >= 2


def test_sampled_points_have_markers_on_the_chart_and_in_the_key():
    ax = sparsity.plot("exp", gamma=[1, 2], length=LENGTHS, montecarlo=[4], rel_error=0.1,
                       ax=Figure().add_subplot())  # fmt: skip
    points, in_key = marks(ax)
    assert [x for x, _ in points if x == 4] == [4, 4]
    assert in_key == 3  # each curve, and what a point is


@pytest.mark.thorough
def test_a_measurement_is_left_to_xarray():
    queries, keys = np.random.default_rng(0).normal(size=(2, 2, 32, 8))
    data = sparsity.measure(queries=queries, keys=keys)
    with pytest.raises(InputError, match="measured rows; xarray draws them"):
        sparsity.plot(data, "row")


def test_points_are_estimates_with_their_error_bars():
    made = chart("exp", gamma=1, length=LENGTHS, montecarlo=[4, 16], rel_error=0.05)
    curve = made.curves[0].exact
    at = curve.sampled
    assert list(curve.x[at]) == [4, 16]
    assert np.all(np.abs(curve.estimate - curve.theory)[at] < 5 * curve.stderr[at])
    assert np.all(np.abs(curve.estimate - 1.5 * curve.theory)[at] > 5 * curve.stderr[at])
    ax = Figure().add_subplot()
    made.draw(ax)
    (bars,) = ax.containers
    ends = np.array(bars.lines[2][0].get_segments())[:, :, 1]
    np.testing.assert_allclose(np.diff(ends, axis=1)[:, 0], 2 * 1.959964 * curve.stderr[at])
    again = chart("exp", gamma=1, length=LENGTHS, montecarlo=[16], rel_error=0.05).curves[0].exact
    assert again.estimate[again.sampled][0] == curve.estimate[at][1]  # a stream of its own


def test_points_are_drawn_alone_where_the_exact_law_is_refused():
    row = Row("exp", gamma=1, steps=(Alibi(0.1),))
    with pytest.raises(InputError, match="rows of one law"):
        chart(row, of="max_weight", length=[4, 8])
    made = chart(row, of="max_weight", length=[4, 8], montecarlo=[4], rel_error=0.1)
    curve = made.curves[0].exact
    assert np.isnan(curve.theory).all()
    assert list(curve.sampled) == [True, False]
    ax = Figure().add_subplot()
    made.draw(ax)
    assert key(ax) == ["Monte Carlo ± 95 %"]


def test_the_law_of_rows_is_drawn_where_their_limit_is_refused():
    """Rows of n have an ESS where E a² is infinite and n_eff/n has no limit; the others have."""
    heavy = Row("s**2", beta=0, gamma=1, scores=sparsity.StudentT(3))
    with pytest.raises(InputError, match="infinite"):
        chart(heavy, of="S", x="gamma", gamma=[1, 2])
    made = chart({"heavy": heavy, "light": Row("exp", gamma=1)}, length=[4, 64])
    (curve, light) = made.curves
    assert curve.limit is None
    assert light.limit is not None
    np.testing.assert_allclose(curve.exact.theory, sparsity.exact(heavy, length=[4, 64]).value)


def test_a_point_with_an_error_bar_in_doubt_is_hollow_and_said(monkeypatch, tmp_path, capsys):
    drawn = sampling.draw

    def doubtful(row, settings, *, length, of):
        found = drawn(row, settings, length=length, of=of)
        return replace(found, warning="few heavy draws" if length == 16 else None)

    monkeypatch.setattr(sampling, "draw", doubtful)
    made = chart("exp", gamma=1, length=LENGTHS, montecarlo=[4, 16], rel_error=0.1)
    assert list(made.curves[0].exact.doubted) == [False, False, True, False]
    ax = Figure().add_subplot()
    made.draw(ax)
    (bars,) = ax.containers
    assert list(bars.lines[0].get_xdata()) == [4]  # no bar that cannot be believed
    (hollow,) = [line for line in ax.get_lines() if line.get_markerfacecolor() == "#ffffff"]
    assert list(hollow.get_xdata()) == [16]
    words = key(ax)
    assert words[-3:-1] == ["Monte Carlo ± 95 %", "Monte Carlo, error bar not known"]
    monkeypatch.setattr("sparsity.cli.common.use_float64", lambda: None)
    given = ("--gamma", "1", "--length", "16", "--rel-error", "0.1", "--montecarlo")
    command("plot", "exp", *given, "--out", str(tmp_path / "f.svg"))
    (said,) = capsys.readouterr().err.splitlines()
    assert said == "sparsity: warning: Monte Carlo of exp at length = 16: few heavy draws"
    (row, *_) = csv.DictReader((tmp_path / "f.csv").read_text().splitlines())
    assert row["warning"] == "few heavy draws"


@pytest.mark.parametrize("given", [{"x": "gamma", "gamma": [0.01, 1.0, 2.0], "length": 512},
                                   {"gamma": 0.05, "length": [8, 64, 512]}])  # fmt: skip
def test_values_too_small_to_resolve_take_no_others_with_them(given):
    """Below 1e-250; in a row of one tile it is 0."""
    of = "tiles_mass_below:-3,8"
    with pytest.warns(UserWarning, match=r"[12] of 3 are not drawn: .*not resolved"):
        ax = sparsity.plot("exp", of=of, **given)
    y = np.asarray(ax.get_lines()[0].get_ydata(), float)
    assert 1 <= np.isnan(y).sum() <= 2
    assert ax.get_ylabel() == "mass of tiles of 8 below -3"
    with pytest.raises(InputError, match="not resolved"):
        sparsity.plot("exp", of=of, x="gamma", gamma=[0.01, 0.02], length=512)


@pytest.mark.parametrize(("of", "power"), [("S", -0.5), ("n_eff", 0.0)])
def test_what_no_row_can_reach_is_shaded(of, power):
    ax = sparsity.plot("exp", gamma=2, of=of, length=LENGTHS)
    x, y = (np.array(a, float) for a in ax.get_lines()[0].get_data())
    np.testing.assert_allclose(y, x**power, rtol=1e-15)
    assert len(ax.collections) == 1
    assert ax.get_ylabel() == (plotting.SPARSITY if of == "S" else "effective tokens  n_eff")
    assert "small = focused" in plotting.SPARSITY


def test_labels_stand_beside_the_axes_also_of_a_curve_that_leaves_them():
    ax = sparsity.plot(["exp", "relu2"], x="gamma", beta=-1, gamma=[0.1, 1.0, 10.0])
    assert lines(ax)[0][1][-1] < 1e-20  # exp falls to the lower edge
    heights = {each.get_text(): each.get_position()[1] for each in ax.texts}
    assert set(heights) >= {"exp", "relu2"}
    assert all(-0.1 <= y <= 1.1 for y in heights.values())  # in the axes' own units


def test_a_notebook_that_turned_pyplot_interactive_stays_so(monkeypatch):
    with matplotlib.rc_context({"interactive": False}):
        made = pyplot.figure

        def figure(**given):  # as the inline backend does with the first figure
            matplotlib.interactive(True)
            return made(**given)

        monkeypatch.setattr(pyplot, "figure", figure)
        sparsity.plot("exp", gamma=1, length=LENGTHS)
        assert matplotlib.is_interactive()


def test_a_sweep_is_drawn_as_it_is():
    data = sparsity.sweep("relu2", beta=[-1, 1], gamma="0.5:2:4:log", length=64, of=["n_eff", "S"])
    made = chart(data, "gamma", of="S")
    assert [curve.exact.label for curve in made.curves] == ["β = −1", "β = 1"]
    for curve, beta in zip(made.curves, (-1, 1), strict=True):
        np.testing.assert_array_equal(curve.exact.theory, data["S"].sel(beta=beta))
    limit = chart(sparsity.sweep("exp", gamma=[1.0, 2.0]), "gamma").curves[0]
    assert np.isnan(limit.exact.theory).all()  # S without a length is the limit: dashed
    assert limit.limit is not None
    np.testing.assert_allclose(limit.limit.theory, np.exp([-0.5, -2.0]))
    for name, value in (("steps", (Alibi(0.1),)), ("scores", sparsity.Uniform())):
        with pytest.raises(InputError, match=f"{name} = .*give rows, such as Row"):
            sparsity.plot("exp", gamma=2, **{name: value})
    with pytest.raises(InputError, match="dimensions"):
        chart(data, "length")


def test_axes_of_ones_own_are_used_and_settings_are_left():
    before = dict(matplotlib.rcParams)
    ax = Figure().add_subplot()
    assert sparsity.plot("exp", gamma=1, length=LENGTHS, ax=ax) is ax
    assert not pyplot.get_fignums()  # nothing but the axes given
    new = sparsity.plot("exp", gamma=1, length=LENGTHS)
    assert pyplot.gcf() is new.figure  # which a notebook shows
    assert dict(matplotlib.rcParams) == before


@pytest.mark.parametrize(
    ("what", "given", "argument"),
    [
        ("exp", {}, "gamma"),
        ("expp", {"gamma": 1}, "kernel"),
        ("exp", {"gamma": 1, "x": "decay"}, "x"),
        ("exp", {"gamma": 1, "ratio": 1}, "ratio"),
        ("exp", {"gamma": 1, "montecarlo": "yes"}, "montecarlo"),
        ("exp", {"gamma": list(range(1, 30))}, "curves"),
        ("exp", {"gamma": 1, "length": [2, 4], "labels": "ab"}, "labels"),
        ("exp", {"gamma": 1, "x": "of"}, "x"),
        ("nonnegative", {"ratio": 1, "dim": 4, "x": "query"}, "x"),
        ("exp", {"x": "gamma", "gamma": [1, np.inf], "length": 8}, "gamma"),
    ],
)
def test_mistakes_name_the_argument(what, given, argument):
    with pytest.raises(InputError) as caught:
        chart(what, **given)
    assert caught.value.argument == argument


@pytest.mark.parametrize(
    ("given", "argument"),
    [
        ({"x": "query"}, "x"),
        ({"beta": 0.3}, "beta"),  # which xarray chooses
        ({"montecarlo": True}, "montecarlo"),
    ],
)
def test_a_dataset_is_drawn_on_its_own_grid(given, argument):
    data = sparsity.sweep("exp", beta=[0.1, 0.3], gamma=[1.0, 2.0], length=[4, 8], of="n_eff")
    with pytest.raises(InputError) as caught:
        chart(data, **{"x": "gamma"} | given)
    assert caught.value.argument == argument
    chosen = data.sel(beta=0.3, length=8)
    (found,) = chart(chosen, "gamma").curves
    np.testing.assert_array_equal(found.exact.theory, chosen["n_eff"])


@pytest.mark.parametrize(
    ("gamma", "length", "scale"), [(4, [1, 100, 10_000], "linear"), (3.5, [1, 100, 10_000], "log")]
)
def test_the_key_names_the_limit_where_it_is_in_sight(gamma, length, scale):
    assert "limit of long rows" in key(sparsity.plot("exp", gamma=1, length=length))
    ax = sparsity.plot("exp", gamma=gamma, length=length)
    assert ax.get_yscale() == scale
    low, high = ax.get_ylim()
    long = lines(ax, "--")[0][1]
    assert long.max() < (low if scale == "log" else 0.005 * high)
    assert "limit of long rows" not in key(ax)


def test_a_title_and_labels_are_no_formulas(tmp_path):
    wrong = r"$\frac$"
    ax = sparsity.plot("exp", gamma=[1, 2], length=LENGTHS, title=wrong, labels=[wrong, wrong * 9])
    ax.figure.savefig(tmp_path / "f.svg")
    assert wrong in [text.get_text() for text in ax.figure.texts]


def command(*arguments):
    cli.main([*arguments], standalone_mode=False)


@pytest.mark.parametrize("suffix", ["svg", "png"])
def test_the_command_writes_figure_and_data(suffix, tmp_path, capsys):
    out = tmp_path / f"f.{suffix}"
    command("plot", "exp", "relu2", "--gamma", "2", "--length", "1,8", "--json", "--out", str(out))
    found = json.loads(capsys.readouterr().out)
    assert found["out"] == str(out)
    assert found["series"] == ["exp", "limit, exp", "relu2", "limit, relu2"]
    assert {p.name for p in tmp_path.iterdir()} == {f"f.{suffix}", "f.csv"}
    rows = list(csv.DictReader((tmp_path / "f.csv").read_text().splitlines()))
    shown = [float(row["theory"]) for row in rows if row["series"] == "exp"]
    assert shown == pytest.approx(sparsity.exact("exp", gamma=2, length=[1, 8]).value, rel=1e-11)
    assert out.read_bytes()[:5] in (b"<?xml", b"\x89PNG\r")


def test_the_command_refuses_another_suffix_before_it_computes(tmp_path):
    with pytest.raises(InputError, match=r"ends in \.svg, \.png or \.pdf") as caught:
        command("plot", "exp", "--gamma", "2", "--out", str(tmp_path / "f.jpg"))
    assert caught.value.argument == "out"
    assert not [*tmp_path.iterdir()]


def test_the_command_overwrites_its_own_table_only(tmp_path):
    data = tmp_path / "f.csv"
    given = ("plot", "exp", "--gamma", "2", "--length", "1,8", "--out", str(tmp_path / "f.svg"))
    data.write_text("a,b\n1,2\n")
    with pytest.raises(InputError, match="another table") as caught:
        command(*given)
    assert caught.value.argument == "out"
    assert [each.name for each in tmp_path.iterdir()] == ["f.csv"]
    data.unlink()
    command(*given)
    command(*given)  # its own
    assert data.read_text().startswith("series,x,theory,")


@pytest.mark.parametrize(
    ("given", "argument"), [(("--x", "title"), "x"), (("--gamma", "2", "--length", "5"), "along")]
)
def test_the_command_refuses_an_axis_that_is_none_or_is_given_twice(given, argument, tmp_path):
    with pytest.raises(InputError) as caught:
        command("plot", "exp", *given, "--along", "1,2", "--out", str(tmp_path / "f.svg"))
    assert caught.value.argument == argument


# --- what a chart looks like ---------------------------------------------------------------------

ARTICLE = {"what": "relu2", "x": "gamma", "beta": [-2, -1, 0, 1, 2]}
CHARTS = {
    "article": lambda **k: sparsity.plot(**ARTICLE, **k),
    "length": lambda **k: sparsity.plot(["exp", "relu2", "softplus"], gamma=2, **k),
    "sampled": lambda **k: sparsity.plot("exp", gamma=[1, 2, 3], montecarlo=[4, 64],
                                         length="1:4096:25:log", rel_error=0.1, **k),
    "share": lambda **k: sparsity.plot(Row("exp", gamma=1, steps=(SinkLogit(0.0),)), x="logit",
                                       of="sink_mass", length=1024, **k),
    "many": lambda **k: sparsity.plot("exp", gamma=np.linspace(0.5, 6, 12), **k),
    "long labels": lambda **k: sparsity.plot(
        ["log(1 + exp(s)) + max(s, 0)**3", "where(s < 1, exp(s), s**2)"], gamma=2,
        length=LENGTHS, **k),
}  # fmt: skip


def drawn(ax):
    """The chart as it is drawn: everything has its place."""
    ax.figure.draw_without_rendering()
    return ax


def boxes(ax):
    """(name, box in pixels) of all words of a chart that are drawn."""
    figure, found = ax.figure, []
    axes_words = [ax.xaxis.label, ax.yaxis.label, *ax.get_legend().get_texts()]
    for text in (*figure.texts, *ax.texts, *axes_words):
        if text.get_visible() and text.get_text():
            found.append((text.get_text(), text.get_window_extent()))
    for axis in (ax.xaxis, ax.yaxis):
        low, high = sorted(axis.get_view_interval())
        found += [
            (tick.label1.get_text(), tick.label1.get_window_extent())
            for tick in axis.get_major_ticks()
            if low <= tick.get_loc() <= high and tick.label1.get_text()
        ]
    return found


def faults(ax):
    """Words that leave the figure, or overlap each other."""
    found, every = [], boxes(ax)
    for i, (name, box) in enumerate(every):
        inside = box.x0 >= 0 and box.y0 >= 0
        if not inside or box.x1 > ax.figure.bbox.x1 or box.y1 > ax.figure.bbox.y1:
            found.append(name)
        for other, against in every[i + 1 :]:
            wide = min(box.x1, against.x1) - max(box.x0, against.x0)
            high = min(box.y1, against.y1) - max(box.y0, against.y0)
            if min(wide, high) > 2:
                found.append((name, other))
    return found


def curves_of(ax):
    """The lines through the data, as paths in pixels."""
    lines = [x for x in ax.get_lines() if x.get_transform().contains_branch(ax.transData)]
    lines = [x for x in lines if x.get_linestyle() != "None" and len(x.get_xdata()) > 2]
    return [(x, x.get_transform().transform_path(x.get_path())) for x in lines]


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["sampled", "many", "long labels"])
def test_words_fit_and_the_key_covers_no_curve(name):
    ax = drawn(CHARTS[name]())
    assert faults(ax) == []
    legend = ax.get_legend()
    assert legend is not None
    box = legend.get_window_extent()
    assert not any(path.intersects_bbox(box, filled=False) for _, path in curves_of(ax))
    ax.figure.text(0.03, 0.95, "over the title")
    assert faults(ax) != []


def labels_off(ax):
    """Labels of curves that lie on another curve, or not on or beside their own."""
    found = []
    for text in drawn(ax).texts:
        name, box = text.get_text(), text.get_window_extent()
        own = [p for line, p in curves_of(ax) if same_hue(line.get_color(), text.get_color())]
        others = [
            p for line, p in curves_of(ax) if not same_hue(line.get_color(), text.get_color())
        ]
        if box.x0 > ax.bbox.x1:  # at the end
            continue
        if any(p.intersects_bbox(box, filled=False) for p in others):
            found.append(name)
        if not any(p.intersects_bbox(box.padded(6), filled=False) for p in own):
            found.append(name)
    return found


def same_hue(one, other):
    """Whether a text, which is darker, has the colour of a line."""
    ground = "white"
    return colors.readable(one, ground) == colors.readable(other, ground)


@pytest.mark.thorough
def test_labels_stand_where_curves_are_apart_and_stay_there():
    ax = CHARTS["article"]()
    assert [text.get_text() for text in ax.texts] == [f"β = {b}" for b in ("−2", "−1", 0, 1, 2)]
    assert labels_off(ax) == []
    before = [text.get_position() for text in ax.texts]
    ax.set_yscale("log")
    ax.set_ylim(1e-3, 1.2)
    assert labels_off(ax) == []
    assert faults(ax) == []
    assert before != [text.get_position() for text in ax.texts]
    ax.texts[0].set_text("β = 9" * 9)  # over others
    assert faults(ax) or labels_off(ax)


def test_the_figure_of_the_article_in_one_call():
    ax = CHARTS["article"]()
    assert (ax.get_yscale(), ax.get_ylim()) == ("linear", (0.0, 1.03))
    assert len(lines(ax)) == 5
    assert lines(ax, "--") == []  # a dash is a limit beside an exact law; here all are limits
    assert key(ax) == ["limit of long rows"]
    for line, beta in zip(lines(ax), ARTICLE["beta"], strict=True):
        assert same(line, line[0], sparsity.evaluate("relu2", beta=beta, gamma=line[0]).S)


def test_shares_are_on_linear_axes():
    ax = CHARTS["share"]()
    assert lines(ax)[0][1].min() < 1e-4
    assert ax.get_yscale() == "linear"
    assert CHARTS["share"](yscale="log").get_yscale() == "log"


@pytest.mark.parametrize(("beta", "low", "high"), [([0, 1, 2], 0.75, 1.05), ([0], 0.0, 1.03)])
def test_an_axis_is_cut_to_what_varies_in_its_upper_half(beta, low, high):
    bottom, top = sparsity.plot("identity", x="gamma", beta=beta).get_ylim()
    assert low <= bottom < math.sqrt(2 / math.pi) < 1 < top <= high  # S from √(2/π) to 1


def test_a_label_at_the_end_of_its_curve_has_no_leader():
    ax = sparsity.plot("exp", gamma=[1, 2, 3])
    assert not any(leader.get_visible() for leader in leaders(ax))
    ax.set_ylim(1, 1e40)  # the ends are near each other
    ax.figure.draw_without_rendering()
    assert any(leader.get_visible() for leader in leaders(ax))


def leaders(ax):
    """The lines from labels to curves, which are no data."""
    return [line for line in ax.lines if not line.get_transform().contains_branch(ax.transData)]


def test_a_curve_of_one_token_begins_where_rows_have_it():
    ax = sparsity.plot("exp", gamma=1.0, of="weight:3")
    assert ax.lines[0].get_xdata()[0] == 3


@pytest.mark.parametrize(
    ("length", "ticks"),
    [
        ("1:100000:9:log", ["1", "16", "256", "4K", "64K"]),
        ("1024:1048576:9:log", ["1K", "4K", "16K", "64K", "256K", "1M"]),
    ],
)
def test_lengths_are_powers_of_two(length, ticks):
    ax = sparsity.plot("exp", gamma=1, length=length)
    assert [label.get_text() for label in ax.get_xticklabels()] == ticks


@pytest.mark.parametrize(
    ("x", "grid", "scale"),
    [
        ("gamma", [1, 2, 3], "linear"),
        ("gamma", [0.1, 1, 10], "log"),
        ("length", "1:4096:50:log", "log"),
        ("length", [1, 4, 16, 64], "log"),
    ],
)
def test_the_axis_follows_the_grid(x, grid, scale):
    given = {"gamma": 2.0} | {x: grid}
    assert sparsity.plot("exp", x=x, **given).get_xscale() == scale
    data = sparsity.sweep("exp", **given)
    assert chart(data, x).log_x == (scale == "log")
    other = {"linear": "log", "log": "linear"}[scale]
    assert sparsity.plot("exp", x=x, xscale=other, **given).get_xscale() == other


@pytest.mark.parametrize(
    ("given", "argument"),
    [
        ({"xscale": "lin"}, "xscale"),
        ({"xlim": (2, 1)}, "xlim"),
        ({"ylim": (-1, 1), "yscale": "log"}, "ylim"),
        ({"figsize": (0, 3)}, "figsize"),
        ({"figsize": (3, 3), "ax": True}, "figsize"),
        ({"xscale": "log", "x": "beta"}, "xscale"),
    ],
)
def test_mistakes_of_the_view_name_the_argument(given, argument):
    ax = {"ax": Figure().add_subplot()} if given.pop("ax", False) else {}
    with pytest.raises(InputError) as caught:
        sparsity.plot("exp", **({"gamma": 2.0} | given | ax))
    assert caught.value.argument == argument


def test_words_can_be_read_on_the_users_ground():
    with pyplot.style.context("dark_background"):
        ax = CHARTS["sampled"](ax=pyplot.figure().add_subplot())
        palette = colors.Palette.of(ax.figure.get_facecolor(), ax.get_facecolor())
        ticks = [x.label1 for axis in (ax.xaxis, ax.yaxis) for x in axis.get_major_ticks()]
        outside = [*ax.figure.texts, ax.xaxis.label, ax.yaxis.label, *ticks, *ax.texts]
        key = ax.get_legend()
        assert key is not None
        for text in (*outside, *key.get_texts()):
            assert colors.contrast(text.get_color(), palette.paper) >= 4.5, text
        for text in key.get_texts():
            assert colors.contrast(text.get_color(), palette.ground) >= 4.5
        for line, _ in curves_of(ax):
            assert colors.contrast(line.get_color(), palette.ground) >= colors.LINE
    assert colors.contrast(plotting.GREY, "#1f2328") < 4.5  # what would not do


def lab(color, deutan=False):
    """A colour in CIELAB, also as it is seen without green (Machado et al. 2009)."""
    c = np.array(matplotlib.colors.to_rgb(color))
    linear = np.where(c <= 0.04045, c / 12.92, ((c + 0.055) / 1.055) ** 2.4)
    if deutan:
        linear = np.clip(np.array([[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413],
                                   [-0.011820, 0.042940, 0.968881]]) @ linear, 0, 1)  # fmt: skip
    xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
    t = xyz @ linear / [0.9505, 1, 1.089]
    f = np.where(t > 0.008856, np.cbrt(t), 7.787 * t + 16 / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


@pytest.mark.parametrize(("ground", "least"), [("white", (18, 11)), ("black", (12, 11))])
def test_as_many_colours_as_curves_can_be_told_apart(ground, least):
    shown = [colors.curve_color(i, ground) for i in range(requests.MOST_CURVES)]
    for deutan, apart in zip((False, True), least, strict=True):
        places = [lab(color, deutan) for color in shown]
        gaps = [np.linalg.norm(a - b) for i, a in enumerate(places) for b in places[:i]]
        assert min(gaps) >= apart


@pytest.mark.parametrize(
    ("formula", "shown"),
    [
        ("max(s, 0)**2 + s", "s + max(s, 0)²"),
        ("sqrt(abs(s))", "√(|s|)"),
        (OWN, "exp(s) if s < 1, else s²"),
    ],
)
def test_formulas_read_as_print(formula, shown):
    made = chart([formula, "exp"], gamma=2, length=LENGTHS)
    assert made.curves[0].exact.label == shown
    words = chart(formula, gamma=2, length=LENGTHS).words
    assert f"a = {shown}" in words.subtitle
    assert "**" not in words.title + words.subtitle
    data = sparsity.sweep("relu2", beta=0, gamma=[1.0, 2.0])
    assert "Max" not in chart(data, "gamma").words.subtitle


def test_a_title_that_is_too_long_goes_on_below():
    words = "Effective tokens of a row " * 6
    ax = drawn(sparsity.plot("exp", gamma=2, length=LENGTHS, title=words))
    title = ax.figure.texts[0]
    assert title.get_text().split() == words.split()
    assert title.get_text().count("\n") >= 1
    assert faults(ax) == []
    ax = drawn(sparsity.plot("exp", gamma=2, length=LENGTHS, title="x" * 200))
    assert faults(ax) == []


# Whole keys are drawn below, in shorter rows.
@pytest.mark.thorough
@pytest.mark.parametrize("name", [x.name for x in GALLERY if x.name != "dimension"])
def test_the_gallery_has_samples_as_markers_and_words_that_fit(name):
    (example,) = (each for each in GALLERY if each.name == name)
    exec(f"{IMPORTS}\n{example.line}", {})
    ax = drawn(pyplot.gca())
    points, in_key = marks(ax)
    assert bool(points) == bool(in_key) == ("montecarlo" in example.line)
    assert faults(ax) == []
    assert example.axis.split()[-1] in ax.get_xlabel() or example.axis.endswith("step")


# --- whole keys along the dimension --------------------------------------------------------------


def test_along_the_dimension_only_the_spread_moves():
    made = chart("exp", "dim", dim=[1, 16, 64], length=256)
    raw, scaled = made.curves
    assert [raw.exact.label, scaled.exact.label] == ["q·k: γ = √d", "q·k/√d: γ = 1"]
    for d, one, other in zip((1, 16, 64), raw.exact.theory, scaled.exact.theory, strict=True):
        assert one == pytest.approx(float(sparsity.exact("exp", gamma=d**0.5, length=256).value))
        assert other == pytest.approx(float(sparsity.exact("exp", gamma=1, length=256).value))
    assert "only γ = ‖q‖ ≈ √d depends on d" in made.words.subtitle
    assert made.words.x == "dimension d"
    (flat,) = chart("exp", "dim", dim=[1, 16], gamma=2, length=256).curves
    assert flat.exact.theory[0] == flat.exact.theory[1]
    (of_row,) = chart(Row("sparsemax", gamma=2), "dim", dim=[2, 16], length=64).curves
    assert of_row.exact.theory[0] == of_row.exact.theory[1]


@pytest.mark.thorough
def test_points_along_the_dimension_are_whole_keys():
    made = chart("exp", "dim", dim=[2, 8], length=64, montecarlo=[8], rel_error=0.05)
    for curve in made.curves:
        at = curve.exact.sampled
        assert curve.exact.method == "rows-full-keys"
        off = np.abs(curve.exact.estimate - curve.exact.theory)[at]
        assert off < 5 * curve.exact.stderr[at]
    assert not np.abs(made.curves[0].exact.estimate - made.curves[1].exact.theory)[at] < (
        5 * made.curves[0].exact.stderr[at]
    )


def test_the_panel_of_features_keeps_its_own_dimension():
    (curve,) = chart("nonnegative", "dim", ratio=1, query="uniform", dim=[1, 8]).curves
    assert curve.exact.theory[0] < curve.exact.theory[1]


@pytest.mark.thorough
def test_a_chart_of_theory_alone_never_loads_jax(tmp_path):
    drawn = [f"sparsity.plot({what}, gamma=2, length=[4, 64])" for what in ("'exp'", "'s + 2'")]
    lines = [f"{line}; print('jax' in sys.modules)" for line in (*drawn, "import jax")]
    found = python("-c", "\n".join(("import sys, sparsity", *lines)), cwd=tmp_path)
    assert found.stdout.split() == ["False", "False", "True"], found.stderr
