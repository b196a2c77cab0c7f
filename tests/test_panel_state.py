"""The panel's state without a browser: its controls, its edits, its pins, what it refuses."""

import numpy as np
import pytest
import sympy
from panel_states import NAMES, start

from sparsity import InputError, Row, Uniform, score_kernel
from sparsity.kernels import ALL
from sparsity.panel import opened
from sparsity.panel.picture import curves
from sparsity.panel.state import edit, initial
from sparsity.plots.axes.controls import CONTROLS


@pytest.mark.parametrize("name", CONTROLS)
def test_stops_move_and_cover_the_axis(name):
    control = CONTROLS[name]
    stops = control.stops(control.start)
    assert stops == sorted(set(stops))
    assert len(stops) >= 60
    assert stops[0] == pytest.approx(control.low)
    assert stops[-1] == pytest.approx(control.high, rel=1e-4)
    for stop in stops:
        control.check(stop)
    places = control.place(np.array(stops), control.start)
    assert np.all((places >= 0) & (places <= 1))
    assert np.max(np.diff(places)) < 0.12
    marks = control.marks(control.start)
    assert len(marks) >= 3
    assert all(0 <= place <= 1 for place, _ in marks)


@pytest.mark.parametrize("name", CONTROLS)
def test_an_axis_reaches_what_was_typed(name):
    control = CONTROLS[name]
    for value in (control.low, control.high, 50 * control.high):
        try:
            value = control.check(round(value) if control.parameter.integer else value)
        except InputError:
            continue
        low, high = control.ends(value)
        assert low <= value <= high or name == "decay"
        assert len(control.marks(value)) >= 3


@pytest.mark.parametrize("text", ["abc", "", "-1e400", "1,5", None])
@pytest.mark.parametrize("name", CONTROLS)
def test_nonsense_is_refused_by_name(name, text):
    with pytest.raises(InputError, match=name):
        CONTROLS[name].check(text)


def test_edits_change_what_they_name_and_nothing_else():
    state = start()
    moved = edit(state, "gamma", "2.5")
    assert moved.value("gamma") == 2.5
    assert edit(moved, "gamma", state.value("gamma")) == state
    for name, value in (
        ("x", "length"),
        ("y", "n_eff"),
        ("rows", "sink"),
        ("query", "one-hot"),
        ("sampling", False),
        ("shown", ["exp"]),
    ):
        assert edit(state, name, value) != state


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("x", "nowhere"),
        ("shown", ["exp", "relu3"]),
        ("unpin", 0),
        ("nothing", 1),
        ("formula", "log(1 + exp(q))"),
        ("formula", "__import__('os')"),
        ("gamma", {"a": 1}),
    ],
)
def test_impossible_edits_are_refused_in_one_line(name, value):
    with pytest.raises(InputError) as refused:
        edit(start(), name, value)
    assert len(str(refused.value)) < 320


def test_a_formula_adds_a_kernel_once_and_shows_it():
    state = edit(start("exp"), "formula", "log(2+exp(s))")
    assert [kernel.name for kernel in state.known] == [*NAMES, "log(2+exp(s))"]
    assert state.shown == ("exp", "log(2+exp(s))")
    again = edit(state, "formula", "log( 2 + exp(s) )")  # the same weight
    assert again == state
    assert edit(start("exp"), "formula", "log(1+exp(s))").shown == ("exp", "softplus")
    assert edit(start("exp"), "formula", "max(s, 0)**2").shown == ("exp", "relu2")
    assert edit(start("exp"), "formula", "identity").shown == ("exp", "identity")
    for k in range(2, 13):
        state = edit(state, "formula", f"abs(s)**{k}.5")
    with pytest.raises(InputError, match="at most 12"):
        edit(state, "formula", "abs(s)**13.5")
    other = initial((*ALL, score_kernel("s**5", sympy.Symbol("s") ** 6)), ("exp",), "gamma")
    with pytest.raises(InputError, match="has this name"):
        edit(other, "formula", "s**5")


def test_pins_keep_their_values_and_have_an_end():
    state = edit(start("exp"), "pin", True)
    state = edit(state, "gamma", "3")
    assert state.pins[0].given()["gamma"] == 1
    with pytest.raises(InputError, match="nothing new"):
        edit(edit(state, "gamma", 1), "pin", True)
    for gamma in range(2, 7):
        state = edit(edit(state, "gamma", gamma), "pin", True)
    with pytest.raises(InputError, match="at most 6"):
        edit(edit(state, "gamma", 9), "pin", True)
    assert len(edit(state, "unpin", 5).pins) == 5


def test_a_curve_holds_only_what_it_depends_on():
    state = start("exp")
    assert edit(state, "beta", 3).specs() == state.specs()
    sink = edit(state, "rows", "sink")
    assert edit(sink, "beta", 3).specs() != sink.specs()


def test_pins_wait_for_the_axis_of_their_quantity():
    state = edit(start("exp", y="entropy"), "pin", True)
    assert [curve.pin for curve in curves(state)] == [None, 0]
    other = edit(state, "y", "gini")
    assert [curve.pin for curve in curves(other)] == [None]
    assert {curve.spec.of for curve in curves(other)} == {"gini"}
    other = edit(other, "pin", True)
    assert [curve.pin for curve in curves(other)] == [None, 1]
    back = edit(other, "y", "entropy")
    assert [curve.pin for curve in curves(back)] == [None, 0]
    assert edit(edit(back, "unpin", 0), "y", "gini").pinned() == ((0, other.pins[1]),)
    views = edit(start("exp", y="S"), "pin", True)  # of one number
    assert len(curves(edit(views, "y", "n_eff"))) == 2
    assert len(curves(edit(views, "y", "S_n"))) == 1


def test_the_number_of_a_quantity():
    state = edit(start("exp", y="top_k_mass:16"), "argument", " 8 ")
    assert state.y == "top_k_mass:8"
    assert edit(state, "y", "power_sum").y == "power_sum:3"
    for text in ("0", "1.5", "", "abc", None, [1], "1e400", "8:9"):
        with pytest.raises(InputError, match="argument") as error:
            edit(state, "argument", text)
        assert len(str(error.value)) < 200
    with pytest.raises(InputError, match="has none"):
        edit(start("exp"), "argument", "3")
    with pytest.raises(InputError, match="did you mean entropy"):
        start("exp", y="entropie")


def test_maps_are_typed_and_opened():
    state = edit(opened("exp"), "formula", "topk:16")
    assert state.shown == ("exp", "topk:16")
    assert edit(state, "formula", "topk:16") == state
    assert edit(state, "formula", "sparsemax").known == state.known
    (spec,) = opened(Row("differential", gamma=2, gamma2=0.5, rho=0.1, mix=0.3)).specs()
    assert dict(spec.values)["mix"] == 0.3
    with pytest.raises(InputError, match="of Gaussian scores only"):
        opened(Row("sparsemax", gamma=2, scores=Uniform()))
