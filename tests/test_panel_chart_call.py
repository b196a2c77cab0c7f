"""The copied call of `plot` draws what is on the panel's screen; and the bounds that it shows."""

import matplotlib
import numpy as np
import pytest
from panel_states import arrays, start

from sparsity import evaluate, exact
from sparsity.panel import background
from sparsity.panel.export import plot_source, python_source
from sparsity.panel.picture import picture
from sparsity.panel.state import edit
from sparsity.panel.store import Axes, Store

matplotlib.use("Agg")


def filled(state):
    store = Store()
    for _ in background.fill_laws(state, store):
        pass
    return picture(state, store)


def run(source):
    """The lines of the charts that a text of Python draws, [points, 2] each."""
    from matplotlib import pyplot

    pyplot.close("all")
    exec(source, {})
    axes = [ax for number in pyplot.get_fignums() for ax in pyplot.figure(number).axes]
    lines = [
        np.array(line.get_xydata()) for ax in axes for line in ax.lines if len(line.get_xdata()) > 8
    ]
    scales = {ax.get_yscale() for ax in axes}
    pyplot.close("all")
    return lines, scales


def off(state, lines):
    """How far curves on screen are from the nearest line of the call, in heights of the chart."""
    axes, found = Axes(state), arrays(*filled(state))
    found.pop("floor", None)
    assert len(found) >= 1
    errors = {}
    for key, (u, v) in found.items():
        apart = []
        for x, y in map(np.transpose, lines):
            at = axes.scale.place(y)
            inside = (axes.u(x) >= u[0]) & (axes.u(x) <= u[-1])
            there = np.interp(axes.u(x), u, v)
            near = inside & (there > 0) & (there < 1) & (at > 0) & (at < 1)
            if near.sum() > 3:
                apart.append(np.abs(there - at)[near].max())
        errors[key] = min(apart)
    return errors


@pytest.mark.thorough
def test_the_copied_call_draws_what_is_on_screen():
    state = edit(start("exp", y="log S", length=64), "sampling", False)
    lines, scales = run(plot_source(state))
    errors = off(state, lines)
    # Lines between 65 points, and of the panel's 65 nodes: at a knee two pixels of 300.
    assert max(errors.values()) < 6.5e-3, errors
    wrong = off(state, [xy * [1, 1.1] for xy in lines])
    assert max(wrong.values()) > 4e-3
    assert scales == {"log"}


@pytest.mark.thorough
def test_pins_of_other_lengths_are_in_the_same_chart():
    state = edit(start("exp", "relu2", length=64), "sampling", False)
    state = edit(edit(state, "pin", True), "length", 256)
    source = plot_source(state)
    assert source.count("plot(") == 1
    assert "length=[256, 64]" in source or "length=[64, 256]" in source
    lines, _ = run(source.replace(":65", ":17"))
    assert len([xy for xy in lines if len(xy) == 17]) >= 8
    assert source.count("import") == 1
    one = edit(state, "unpin", 0)  # no longer every row at every length: a chart for each
    assert plot_source(one).count("plot(") == 2


def test_a_curve_that_plot_has_not_is_named():
    state = edit(start("exp", "decayed", x="decay"), "sampling", False)
    source = plot_source(state)
    assert "# exp, γ = 1, n = 1024: does not depend on decay λ" in source
    assert len(run(source)[0]) >= 1
    nothing = plot_source(start("nonnegative", y="entropy"))
    assert nothing.startswith("# nonnegative")
    assert run(nothing) == ([], set())


@pytest.mark.parametrize("rows", ["alibi", pytest.param("rope", marks=pytest.mark.thorough)])
def test_both_calls_of_a_row_law_run_in_one_cell(rows):
    state = start("exp", rows=rows, length=16, dim=8, x="gamma" if rows != "rope" else "length")
    state = edit(edit(state, "sampling", False), "y", "n_eff")
    source = plot_source(state).replace(":65", ":5").replace("2:8192:5", "2:64:5")
    assert len(run(f"{python_source(state)}\n\n{source}")[0]) == 0  # too few points to be kept
    assert source.count("plot(") == 1


def test_samples_are_drawn_where_they_are_on_screen():
    state = start("exp", length=64)
    (line,) = [each for each in plot_source(state).splitlines() if "montecarlo=" in each]
    places = eval(line.split("montecarlo=")[1].split("]")[0] + "]")
    wanted = sorted(Axes(state).sampled(state.specs()[0]))
    np.testing.assert_allclose(places, wanted, rtol=1e-3)
    assert "montecarlo" not in plot_source(edit(state, "sampling", False))
    assert "montecarlo" not in plot_source(edit(state, "length", 10**9))


@pytest.mark.thorough
def test_a_line_carries_the_bounds_of_its_values():
    state = start("exp", length=64, y="S")
    content, data = filled(state)
    (curve,), numbers = content["curves"], np.frombuffer(data, dtype="<f4")
    of, axes = state.plot.of, Axes(state)
    line = curve["exact"]
    u, bounds = numbers[slice(*line["u"])], numbers[slice(*line["bound"])]
    assert len(bounds) == len(u) >= 65
    for k in (0, len(u) // 2, -1):
        x = axes.x[np.argmin(np.abs(axes.along - u[k]))]
        law = exact("exp", gamma=x, length=64, of=of)
        assert bounds[k] == pytest.approx(0.5 * float(law.error_bound), rel=1e-5, abs=0)
    limit = numbers[slice(*curve["limit"]["bound"])]
    assert (limit >= 0).all()
    x = axes.x[:: len(axes.x) - 1]
    wanted = evaluate("exp", gamma=x).error_bound
    np.testing.assert_allclose(limit[:: len(axes.x) - 1], wanted, rtol=1e-3)
