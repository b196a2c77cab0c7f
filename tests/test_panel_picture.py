"""The panel's pictures: curves, axes, pins, letters, formulas; none of them waits for JAX."""

import json

import numpy as np
import pytest
from command_line import python
from panel_states import NAMES, arrays, start

from sparsity import evaluate
from sparsity.panel import opened
from sparsity.panel.picture import curve_letter, picture
from sparsity.panel.state import edit
from sparsity.panel.store import Axes, Store
from sparsity.plots.axes import row_choices as rowlaws
from sparsity.plots.axes.controls import CONTROLS


@pytest.mark.parametrize("y", ["S", "log S", "n_eff"])
def test_a_picture_holds_the_curves_of_evaluate(y):
    state = start(x="gamma", y=y)
    content, data = picture(state, Store())
    gammas = 0.05 * 400 ** np.linspace(0, 1, 400)
    wanted = {
        "exp": evaluate("exp", gamma=gammas).log_S,
        "relu2": evaluate("relu2", beta=-1, gamma=gammas).log_S,
        "identity": evaluate("identity", beta=-1, gamma=gammas).log_S,
    }
    found = arrays(content, data)
    for name, log_S in wanted.items():
        u, v = found[f"live {name}", "limit"]
        np.testing.assert_allclose(u, np.linspace(0, 1, 400), atol=1e-6)
        height = {
            "S": np.exp(log_S),
            "log S": 1 + log_S / np.log(1e4),
            "n_eff": (np.log(1024) + 2 * log_S) / np.log(1e6),
        }[y]
        np.testing.assert_allclose(v, np.clip(height, -1, 2), atol=1e-6)
    floor = {"S": 1 / 32, "log S": 1 - 1.505149978 / 4, "n_eff": 0.0}[y]
    np.testing.assert_allclose(found["floor"][1], floor, atol=1e-6)
    json.dumps(content, allow_nan=False)


@pytest.mark.parametrize(
    ("y", "value", "height"),
    [
        ("entropy", 7.0, 0.5),
        ("power_sum:0.5", 10.0, 1 / 3),
        ("square_sum", 1.0, 0.2),  # 10⁻² to 10⁸
        ("recall", 1.0, 0.5),
        ("max_weight", 7.0, 2.0),
    ],
)
def test_the_axis_is_that_of_the_quantity(y, value, height):
    axes = Axes(start("exp", y=y))
    assert float(axes.v(value, 1024.0)) == pytest.approx(height)
    marks = axes.marks()
    assert [place for place, _ in marks] == sorted({place for place, _ in marks})
    assert len(marks) >= 4
    assert marks[0][0] == pytest.approx(0, abs=1e-12)
    assert marks[-1][0] == pytest.approx(1)


COMMON = sorted(start().uses() | {"sigma"})
AXES = [  # of each law those of its own, and the common ones by turns
    (rows.name, x)
    for i, rows in enumerate(rowlaws.ALL)
    for x in sorted({COMMON[i % len(COMMON)]} | start(rows=rows.name).uses() - set(COMMON))
]


def drawn_at_extremes(rows, x, name, y):
    """How many curves are drawn, all finite, with one value at either end of its axis."""
    drawn = 0
    for value in (CONTROLS[name].low, CONTROLS[name].high):
        content, data = picture(edit(start(x=x, rows=rows, y=y), name, value), Store())
        json.dumps(content, allow_nan=False)
        assert np.all(np.isfinite(np.frombuffer(data, dtype="<f4")))
        drawn += len(content["curves"])
    return drawn


@pytest.mark.thorough
@pytest.mark.parametrize(("rows", "x"), AXES[::3])  # each is of a kind with its neighbours
def test_every_axis_of_every_row_law_can_be_drawn_at_its_extremes(rows, x):
    """Every value at both ends; S and n_eff by turns, so that each value is seen in both."""
    uses = sorted(start(x=x, rows=rows).uses())
    turn, both = [at for _, at in AXES].index(x), ("S", "n_eff")
    drawn = 0
    for k, name in enumerate(uses):
        for y in both if name == x else both[(turn + k) % 2 :][:1]:
            drawn += drawn_at_extremes(rows, x, name, y)
    assert drawn == 2 * len(NAMES) * (len(uses) + 1) >= 50


def test_a_pin_has_its_own_row_length():
    state = edit(start("exp", y="n_eff"), "pin", True)
    state = edit(state, "length", 10_000)
    content, data = picture(state, Store())
    live, pin = (arrays(content, data)[curve["id"], "limit"][1] for curve in content["curves"])
    np.testing.assert_allclose(
        live[:100] - pin[:100], np.log(10_000 / 1024) / np.log(1e6), atol=1e-6
    )
    assert [curve["read"]["n"] for curve in content["curves"]] == [10_000, 1024]


@pytest.mark.thorough
def test_axes_stay_while_sliders_move():
    """Each axis with the heights by turns."""
    for i, x in enumerate(CONTROLS):
        y = ("S", "log S", "n_eff")[i % 3]
        state = start("exp", "decayed", x=x, y=y)  # curves that move by what the others do
        marks = picture(state, Store()).content["axis"]
        for name in start(x=x, y=y).uses():
            control = CONTROLS[name]
            for value in control.stops(control.start)[::120]:
                moved = picture(edit(state, name, value), Store()).content["axis"]
                assert moved["marks"] == marks["marks"]
                assert moved["y_marks"] == marks["y_marks"]


def test_every_kernel_on_offer_can_be_shown_with_many_typed_beside():
    state = opened()
    state = edit(state, "shown", [kernel.name for kernel in state.known])
    for power in range(3, 15):
        state = edit(state, "formula", f"s**{power}")
    state = edit(edit(state, "y", "support"), "x", "decay")  # level lines, found at once
    letters = [curve["letter"] for curve in picture(state, Store()).content["curves"]]
    assert len(set(letters)) == len(letters) == len(state.known) > 16
    many = [curve_letter(number) for number in range(60)]
    assert (many[0], many[25], many[26], len(set(many))) == ("A", "Z", "A2", 60)


@pytest.mark.parametrize(
    ("kernel", "change", "rows"),
    [
        ("exp", {}, "long rows"),
        ("relu2", {"y": "log S", "x": "length"}, "long rows"),
        ("decayed", {}, "rows of n"),
        ("decayed", {"rows": "alibi"}, "rows of n"),  # which it does not have
        ("exp", {"rows": "alibi"}, ""),
        ("exp", {"y": "entropy"}, ""),
        ("sparsemax", {}, ""),
    ],
)
def test_a_formula_is_that_of_the_curve_or_none(kernel, change, rows):
    (curve,) = picture(opened(kernel, **change), Store()).content["curves"]
    assert curve["formula"] == rows


@pytest.mark.thorough
def test_ticks_never_touch_jax():
    code = """
import sys
from sparsity.panel.state import edit, initial
from sparsity.panel.picture import picture
from sparsity.panel.export import python_source
from sparsity.panel.store import Store
from sparsity.plots.axes import row_choices as rowlaws
from sparsity.kernels import ALL
store, ticks = Store(), 0
moved = ("beta", "gamma", "length", "decay", "ratio", "dim")
for i, rows in enumerate(rowlaws.ALL):
    state = initial(ALL, tuple(k.name for k in ALL), "gamma", rows=rows.name)
    for name in (moved * 2)[i % 6 :][:2]:
        state = edit(state, name, 3 if name != "decay" else 0.3)
        picture(state, store), python_source(state)
        ticks += 1
assert ticks >= 30, ticks
print("jax" in sys.modules)
"""
    done = python("-c", code)
    assert done.stdout.strip() == "False", done.stderr
