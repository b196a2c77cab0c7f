import contextlib
import csv
import importlib
import io
import itertools
import json
import re
from dataclasses import replace
from operator import itemgetter
from pathlib import Path

import jax
import matplotlib
import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.container import ErrorbarContainer
from matplotlib.figure import Figure as Canvas
from matplotlib.text import Text
from scipy import stats

from sparsity import InputError, evaluate, exact, plotting
from sparsity.report import figures
from sparsity.report.figures import ALL, Context, render, write_all
from sparsity.report.figures.figure import describe_places
from sparsity.report.figures.rows import WIDEST
from sparsity.series import Series, csv_of_curves

jax.config.update("jax_enable_x64", True)

NAMES = tuple(figure.name for figure in ALL)
THEORY = {"phase", "design", "sinks"}  # no points
POINTS = tuple(name for name in NAMES if name not in THEORY)
# Where a draw is a whole row, stack or key: wider error bars.
COARSE = {"rows", "lengths", "measures", "mixing", "rope", "context"}
DPI = 200
FALSE_ALARM = 1e-4  # of the whole family of points
COLUMNS = (
    *((name, "nan", float) for name in ("x", "theory", "log", "estimate", "stderr")),
    ("samples", "0", int),
    ("seed", "-1", int),
)


FOLDER = Path(__file__).resolve().parents[1] / "figures"


def module(name):
    return importlib.import_module(getattr(figures, name).data.__module__)


def number(text):
    with contextlib.suppress(ValueError):
        return float(text)
    return text


def saved_curves(name):
    """The curves of a committed CSV, which `sparsity reproduce --check` holds to be current."""
    with (FOLDER / f"{name}.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    curves = []
    for label, points in itertools.groupby(rows, itemgetter("series")):
        points = list(points)
        columns = [
            np.array([row[column] or missing for row in points], kind)
            for column, missing, kind in COLUMNS
        ]
        last = points[-1]
        held = list(last)[list(last).index("unit") + 1 :]
        curves.append(
            Series(
                label, *columns, method="".join({row["method"] for row in points}),
                key={name: number(last[name]) for name in held if last[name]},
                along=last["along"], of=last["quantity"], unit=last["unit"],
            )
        )  # fmt: skip
    return tuple(curves)


@pytest.fixture(scope="module")
def data():
    return {name: saved_curves(name) for name in NAMES}


def sampled(series):
    """Theory, estimate and standard error at the sampled points of all given series."""
    parts = [(s.theory, s.estimate, s.stderr) for s in series]
    masks = [s.sampled for s in series]
    return np.concatenate(
        [np.array(part)[:, mask] for part, mask in zip(parts, masks, strict=True)], axis=1
    )


def drawn(figure, series):
    """The figure on a canvas, at the resolution of its files."""
    with matplotlib.rc_context(plotting.STYLE):
        canvas = Canvas(figsize=figure.size, dpi=DPI)
        plotting.headline(canvas, figure.title, figure.subtitle)
        figure.draw(series, canvas)
        FigureCanvasAgg(canvas)
        canvas.draw_without_rendering()  # everything finds its place; pixels are not looked at
    return canvas


def refuse(*_, **__):
    raise AssertionError("drawing must not compute")


def computing(patch):
    """Whatever a figure computes with is refused."""
    for figure in ALL:
        for name in ("sweep", "evaluate", "exact", "estimate", "features"):
            patch.setattr(module(figure.name), name, refuse, raising=False)


@pytest.fixture(scope="module")
def written(data):
    """The data files before anything was drawn."""
    return {name: csv_of_curves(data[name]) for name in NAMES}


@pytest.fixture(scope="module")
def canvases(data, written):
    """Every figure, drawn once, where nothing can be computed: to be looked at, not changed."""
    with pytest.MonkeyPatch.context() as patch:
        computing(patch)
        return {figure.name: drawn(figure, data[figure.name]) for figure in ALL}


def hidden(axis):
    """Labels of ticks outside the view, which are there but not drawn."""
    low, high = sorted(axis.get_view_interval())
    ticks = [*axis.get_major_ticks(), *axis.get_minor_ticks()]
    return [t.label1 for t in ticks if not low <= t.get_loc() <= high or not t.label1.get_visible()]


@pytest.mark.thorough
def test_the_curves_are_those_asked_for(data):
    for name in NAMES:
        labels = [s.label for s in data[name]]
        assert len(set(labels)) == len(labels)
    assert {name for name in NAMES if not any(s.sampled.any() for s in data[name])} == THEORY


@pytest.mark.thorough
@pytest.mark.parametrize("name", NAMES)
def test_data_are_finite_and_ordered(name, data):
    for s in data[name]:
        assert np.all(np.isfinite(s.theory))
        assert np.all(np.isfinite(s.log))
        assert np.all(np.diff(s.x) >= 0)
        np.testing.assert_allclose(np.log(s.theory), s.log, rtol=5e-9, atol=5e-9)  # nine digits
        at = s.sampled
        assert np.all(np.isfinite(s.estimate[at]) & (s.stderr[at] >= 0) & (s.seed[at] >= 0))
        assert np.all(np.isnan(s.estimate[~at]) & np.isnan(s.stderr[~at]))
        assert bool(s.method) == bool(at.any())


@pytest.mark.thorough
def test_theory_is_that_of_the_kernel(data):
    for s, beta in zip(data["relu2"], (-2, -1, -0.5, 0, 0.5, 1, 2), strict=True):
        law = evaluate("relu2", beta=beta, gamma=s.x).log_S
        np.testing.assert_allclose(s.log, law, rtol=2e-8, atol=1e-9)  # nine digits
    for s, gamma in zip(data["rows"], (1, 2, 3, 4), strict=False):
        law = exact("exp", length=s.x, gamma=gamma)
        np.testing.assert_allclose(s.theory, law.S_rms, rtol=5e-9)
    for s, window in zip(data["decayed"][5:], (1e5, 1999, 199, 19, 3), strict=True):
        assert s.theory[-1] == pytest.approx(window, rel=1e-9)


def within(data):
    """Whether every sampled point agrees with its theory; and how many there are."""
    theory, estimate, stderr = sampled([s for name in NAMES for s in data[name]])
    bar = np.maximum(stderr, 1e-12)  # S = 1 exactly has no scatter
    limit = stats.t.isf(FALSE_ALARM / (2 * theory.size), df=63)
    return np.abs((estimate - theory) / bar).max() < limit, theory.size


@pytest.mark.thorough
def test_every_point_is_within_its_error_bar(data):
    agree, count = within(data)
    assert count >= 420
    assert agree


@pytest.mark.thorough
@pytest.mark.parametrize("name", POINTS)
def test_a_wrong_curve_would_be_seen(name, data):
    # Mixing draws 240 whole stacks a point: a tenth is three of its standard errors.
    factor = 1.2 if name == "mixing" else 1.1 if name in COARSE else 1.01
    theory, estimate, stderr = sampled(data[name])
    limit = stats.t.isf(FALSE_ALARM / (2 * theory.size), df=63)
    rejected = np.abs(estimate - factor * theory) > limit * np.maximum(stderr, 1e-12)
    assert rejected.size >= 6
    assert rejected.mean() > 0.9


@pytest.mark.thorough
@pytest.mark.parametrize("figure", ALL, ids=NAMES)
def test_error_bars_are_smaller_than_the_markers_as_the_captions_say(figure, data, canvases):
    said = re.search(r"95 % error bars\s+are\s+smaller than the markers", figure.caption)
    assert (said is None) == (figure.name in THEORY)
    bars = 0
    for ax in canvases[figure.name].axes:
        for container in ax.containers:
            assert isinstance(container, ErrorbarContainer)
            marker = container.lines[0].get_markersize() * DPI / 72
            for segment in container.lines[2][0].get_segments():
                (_, low), (_, high) = ax.transData.transform(segment)
                assert high - low < marker
                bars += 1
    assert bars == sampled(data[figure.name]).shape[1]


def marked(ax):
    """(x, y) of everything with the shape of a point; ticks and caps of error bars are none."""
    none = ("", "None", None, "|", "_")
    lines = [line for line in ax.get_lines() if line.get_marker() not in none]
    return [xy for line in lines for xy in np.reshape(line.get_xydata(), (-1, 2)).tolist()]


@pytest.mark.thorough
def test_a_marker_is_a_sample_in_every_figure(data, canvases):
    """Each point-shaped mark lies where something was sampled, and no other mark is drawn."""
    marks = 0
    for figure in ALL:
        rows = [s for s in data[figure.name] if s.sampled.any()]
        known = {
            (float(x), float(y))
            for series in rows
            for x, y in zip(series.x[series.sampled], series.estimate[series.sampled], strict=True)
        }
        found = [tuple(xy) for ax in canvases[figure.name].axes for xy in marked(ax)]
        stray = [xy for xy in found if xy not in known and xy[::-1] not in known]
        assert not stray, f"{figure.name}: {stray[:3]}"
        marks += len(found)
    assert marks == sum(sampled(data[f.name]).shape[1] for f in ALL) > 200


# Curves that are drawn in another way: shaded, or a floor that shades.
UNPLACED = {"overview": 1, "rope": 6}


def placed(place, xy):
    """Where points lie, in points from the upper left corner, as hover.js computes it."""
    to = {"linear": np.asarray, "log": np.log}
    along = []
    for values, (scale, low, high) in zip(xy.T, (place["x"], place["y"]), strict=True):
        start, end = to[scale]((low, high))
        along.append((to[scale](values) - start) / (end - start))
    left, top, width, height = place["box"]
    return np.stack([left + along[0] * width, top + (1 - along[1]) * height], 1)


def misplaced(found, canvas, table):
    """(points that are not where Matplotlib draws them, points in all)."""
    away, seen, top = 0, 0, 72 * canvas.get_size_inches()[1]
    for place in found:
        corner = [place["box"][0], top - place["box"][1]]
        ends = {ax: ax.bbox.corners()[1] * 72 / canvas.dpi for ax in canvas.axes}
        ax = min(ends, key=lambda one: np.abs(ends[one] - corner).max())
        for first, count, _, lying in place["curves"]:
            xy = table[first : first + count, :: 1 - 2 * lying]
            xy = xy[(xy > 1e-3).all(1) & (xy < 1e13).all(1)]
            drawn = ax.transData.transform(xy) * 72 / canvas.dpi
            drawn[:, 1] = top - drawn[:, 1]
            away += int((np.abs(placed(place, xy) - drawn) > 0.05).any(1).sum())
            seen += len(xy)
    return away, seen


@pytest.mark.thorough
def test_values_on_hover_lie_on_their_curves(data, canvases, written):
    """What an SVG says of its curves leads to the rows of the CSV, where these are drawn."""
    seen = 0
    for figure in ALL:
        series, canvas = data[figure.name], canvases[figure.name]
        found = json.loads(describe_places(canvas, series))
        rows = list(csv.DictReader(io.StringIO(written[figure.name])))
        table = np.array([[float(row[name] or "nan") for name in ("x", "theory")] for row in rows])
        starts = {first for place in found for first, *_ in place["curves"]}
        assert len(starts) == len(series) - UNPLACED.get(figure.name, 0), figure.name
        away, points = misplaced(found, canvas, table)
        assert away == 0, figure.name
        seen += points
        for place in found:
            place["box"][0] += 0.1  # a tenth of a point
        assert misplaced(found, canvas, table) == (points, points)
    assert seen > 3000


def test_a_decoration_would_be_seen():
    ax = Canvas().add_subplot()
    ax.plot([1, 2], [3, 4], "|", ms=13)
    ax.plot([1, 2], [3, 4], "--")
    assert marked(ax) == []
    ax.plot([1, 2], [3, 4], "-s")
    assert marked(ax) == [[1, 3], [2, 4]]


def words(canvas):
    """Every label that is drawn, with its box."""
    unseen = {text for ax in canvas.axes for axis in (ax.xaxis, ax.yaxis) for text in hidden(axis)}
    every = canvas.findobj(Text)
    texts = [t for t in every if t not in unseen and t.get_visible() and t.get_text().strip()]
    return [(text.get_text(), text.get_window_extent()) for text in texts]


def clashes(canvas):
    """Labels that leave the canvas, and pairs that overlap by more than 1.5 points."""
    found, items = [], words(canvas)
    for i, (label, box) in enumerate(items):
        if box.x0 < 0 or box.y0 < 0 or box.x1 > canvas.bbox.x1 or box.y1 > canvas.bbox.y1:
            found.append(label)
        for other, against in items[i + 1 :]:
            width = min(box.x1, against.x1) - max(box.x0, against.x0)
            height = min(box.y1, against.y1) - max(box.y0, against.y0)
            if min(width, height) > 1.5 * DPI / 72:
                found.append((label, other))
    return found


@pytest.mark.thorough
@pytest.mark.parametrize("figure", ALL, ids=NAMES)
def test_no_words_overlap_or_leave_the_canvas(figure, canvases):
    canvas = canvases[figure.name]
    assert len(words(canvas)) >= 12
    assert clashes(canvas) == []


@pytest.mark.thorough
def test_clashing_words_would_be_seen(data):
    canvas = drawn(ALL[0], data["relu2"])
    canvas.text(0.03, 0.95, "over the title")
    canvas.text(0.97, 0.5, "over the edge")
    labels = clashes(canvas)
    assert "over the edge" in labels
    assert (ALL[0].title, "over the title") in labels


@pytest.mark.thorough
def test_same_seed_same_data_and_another_seed_other_points():
    figure, coarse = ALL[5], Context(rel_error=1e-2)
    first, again, other = (
        csv_of_curves(figure.data(context)) for context in (coarse, coarse, replace(coarse, seed=1))
    )
    assert first == again != other


@pytest.mark.thorough
@pytest.mark.parametrize("figure", ALL, ids=NAMES)
def test_the_data_file_says_what_is_drawn(figure, data):
    rows = list(csv.DictReader(io.StringIO(csv_of_curves(data[figure.name]))))
    columns = "series x theory log estimate stderr samples method seed along quantity unit"
    assert list(rows[0])[:12] == columns.split()  # then what curves hold fixed: test_schema.py
    assert len(rows) == sum(s.x.size for s in data[figure.name])
    points = [row for row in rows if row["estimate"]]
    _, estimate, stderr = sampled(data[figure.name])
    np.testing.assert_allclose([float(r["estimate"]) for r in points], estimate, rtol=1e-9)
    np.testing.assert_allclose([float(r["stderr"]) for r in points], stderr, rtol=1e-3)
    assert all(row["method"] and int(row["samples"]) > 0 for row in points)
    assert all(not row["method"] and not row["seed"] for row in rows if not row["estimate"])


@pytest.mark.thorough
@pytest.mark.parametrize("figure", ALL, ids=NAMES)
def test_drawing_computes_and_changes_nothing(figure, data, canvases, written):
    assert canvases[figure.name].axes
    assert csv_of_curves(data[figure.name]) == written[figure.name]


@pytest.mark.thorough
def test_a_figure_that_computes_would_be_seen(data, monkeypatch):
    computing(monkeypatch)
    figure = replace(ALL[0], draw=lambda *_: module("relu2").sweep("relu2"))
    with pytest.raises(AssertionError, match="must not compute"):
        drawn(figure, data["relu2"])


@pytest.mark.thorough
def test_write_all(tmp_path, monkeypatch):
    monkeypatch.setattr(figures, "ALL", (ALL[5],))
    seen = []
    (plate,) = write_all(tmp_path / "new" / "folder", progress=lambda *at: seen.append(at))
    assert seen == [(0, 1), (1, 1)]
    names = {path.name for path in (tmp_path / "new" / "folder").iterdir()}
    assert names == {"decayed.svg", "decayed.png", "decayed.csv"}
    assert plate.files == render(ALL[5], ALL[5].data(Context()))
    for suffix, content in plate.files.items():
        assert (tmp_path / "new" / "folder" / f"decayed.{suffix}").read_bytes() == content


@pytest.mark.parametrize("error", [1e-300, 9.9e-6])
def test_an_error_that_would_take_hours_is_refused_at_once(tmp_path, error):
    for call in (
        lambda: write_all(tmp_path / "out", rel_error=error),
        lambda: figures.draw(ALL[0], rel_error=error),
    ):
        with pytest.raises(InputError, match=r"rel_error = .* takes hours .* give 1e-05 or more"):
            call()
    assert not list(tmp_path.iterdir())
    assert figures.Context(rel_error=1e-5).rel_error == 1e-5


@pytest.mark.thorough
def test_a_figure_is_drawn_for_a_notebook():
    asked = []
    figure = replace(figures.decayed, data=lambda c: asked.append(c) or figures.decayed.data(c))
    plate = figures.draw(figure, seed=3, rel_error=0.01)
    assert asked == [figures.Context(3, 0.01)]
    png, shown = plate._repr_png_()
    assert png == plate.files["png"]
    width = int.from_bytes(png[16:20], "big")
    assert shown == {"width": width // 2} == {"width": 720}
    assert repr(plate).startswith(figure.title)


def test_an_unwritable_folder_is_an_input_error(tmp_path):
    (tmp_path / "file").write_text("x")
    for where in ("file", "file/under"):
        with pytest.raises(InputError) as caught:
            write_all(tmp_path / where)
        assert caught.value.argument == "out"
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.thorough
def test_the_design_figure_gives_what_it_says(data):
    figure, series = ALL[NAMES.index("design")], data["design"]
    assert len(series) == 8
    spread, scale, bias, decay, noise, floor, *_ = series
    for i in range(0, len(spread.x), 4):
        n = spread.x[i]
        for curve, kernel, sign in ((spread, "exp", 1), (bias, "relu2", -1)):
            where = {"gamma": curve.theory[i]} if sign == 1 else {"beta": -curve.theory[i]}
            law = exact(kernel, length=n, **{"gamma": 1.0, **where})
            assert law.value == pytest.approx(8, rel=1e-6)
        limit = evaluate("nonnegative", ratio=noise.theory[i], dim=1, query="one-hot").S
        assert n * limit**2 == pytest.approx(8)
        assert scale.theory[i] == pytest.approx(spread.theory[i] / np.log(n))
    assert decay.theory == pytest.approx(np.full(19, 7 / 9), abs=1e-6)
    assert np.all(floor.theory > 0.63 * floor.x)
    upto = scale.theory[scale.x <= 1e4]
    assert (upto.min(), upto.max()) == pytest.approx((0.505, 0.53), abs=0.005)
    assert np.interp(4, np.log10(scale.x), scale.theory) == pytest.approx(0.5025, abs=5e-4)
    assert np.all(scale.theory[scale.x > 1e4] < 0.5)
    assert scale.theory[-1] == pytest.approx(0.39, abs=0.005)
    assert render(figure, series)["png"][:4] == b"\x89PNG"


@pytest.mark.thorough
def test_the_contours_of_the_phase_figure_are_those_of_the_exact_law(data):
    figure, series = ALL[NAMES.index("phase")], data["phase"]
    contours = [s for s in series if "n_eff" in s.key]
    checked = 0
    for contour in contours:
        for i in range(0, contour.x.size - 1, 10):  # the last is on the edge, at 10¹²
            n = round(contour.theory[i])
            gamma = contour.x[i] * np.sqrt(np.log(n))
            if n >= 300:  # a fraction of a token is nothing
                tokens = exact("exp", length=n, gamma=gamma).value
                assert tokens == pytest.approx(contour.key["n_eff"], rel=5e-3)
                checked += 1
        gamma = contour.x[-1] * np.sqrt(contour.log[-1])
        tokens = exact("exp", length=round(contour.theory[-1]), gamma=gamma).value
        assert tokens == pytest.approx(contour.key["n_eff"], rel=5e-3)
        assert contour.theory[-1] == pytest.approx(1e12) or contour.x[-1] > WIDEST
    assert len(contours) == 10
    assert checked >= 25
    assert series[-3].theory == pytest.approx(np.full(20, np.sqrt(0.5)))
    assert series[-2].theory == pytest.approx(np.full(20, np.sqrt(2)))
    assert render(figure, series)["png"][:4] == b"\x89PNG"


@pytest.mark.thorough
@pytest.mark.parametrize("figure", ALL, ids=NAMES)
def test_the_headline_fits_and_keys_cover_no_curve(figure, canvases):
    canvas = canvases[figure.name]
    assert [text.get_text() for text in canvas.texts[:2]] == [figure.title, figure.subtitle]
    for ax in canvas.axes:
        legend, lines = ax.get_legend(), [x for x in ax.get_lines() if len(x.get_xdata()) > 2]
        if legend is None:
            continue
        box = legend.get_window_extent()
        for line in lines:
            path = line.get_transform().transform_path(line.get_path())
            assert not path.intersects_bbox(box, filled=False), line.get_label()
