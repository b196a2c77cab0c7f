"""The panel without a browser: its state, its pictures, what it fills in, what it must not do."""

import csv
import io
import json
import math
import re
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
import sympy

import sparsity
from sparsity import Alibi, Decay, Rope, Row, Sink, SinkLogit, Uniform, Window, evaluate, quantities
from sparsity.axes import quantity_axis as plots
from sparsity.axes import row_choices as rowlaws
from sparsity.axes.controls import CONTROLS, controls_of
from sparsity.capabilities import capabilities
from sparsity.errors import InputError
from sparsity.exact_law.exact import exact as exact_law
from sparsity.kernels import ALL, MAPS, named, score_kernel
from sparsity.limit.preview import preview
from sparsity.panel import background, opened
from sparsity.panel.axes import (
    FIRST_NODES,
    LEAST_NODES,
    MOST_NODES,
    Axes,
    even_places,
    next_places,
)
from sparsity.panel.curve import (
    closed_limit,
    exact_at_lengths,
    exact_value,
    has_limit,
    limit_at_point,
    previewed_limit,
    why_no_law,
)
from sparsity.panel.export import csv_table, python_source
from sparsity.panel.picture import _letter, curves, picture
from sparsity.panel.state import edit, initial, why_not_plotted
from sparsity.panel.store import LruCache, Store
from sparsity.rows import steps

FRONT = Path(__file__).resolve().parents[1] / "sparsity" / "panel" / "front"
NAMES = tuple(kernel.name for kernel in ALL)


def start(*shown, x="gamma", **values):
    return initial(ALL, shown or NAMES, x, **values)


def arrays(content, data):
    """Every array of a picture by name."""
    numbers = np.frombuffer(data, dtype="<f4")
    lines = {"floor": content["floor"]}
    for curve in content["curves"]:
        lines |= {(curve["id"], kind): curve[kind] for kind in ("limit", "exact") if curve[kind]}
    return {
        key: (numbers[slice(*line["u"])], numbers[slice(*line["v"])]) for key, line in lines.items()
    }


# --- controls ----------------------------------------------------------------------------------


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


@pytest.mark.parametrize(
    "text", ["abc", "", " ", "1e400", "-1e400", "nan", "[1]", "1,5", "0x10", None]
)
@pytest.mark.parametrize("name", CONTROLS)
def test_nonsense_is_refused_by_name(name, text):
    with pytest.raises(InputError, match=name):
        CONTROLS[name].check(text)


def test_a_true_minus_is_a_minus():
    assert CONTROLS["beta"].check("−1.5") == -1.5


# --- state -------------------------------------------------------------------------------------


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
        ("y", 3),
        ("rows", None),
        ("query", "all"),
        ("shown", ["exp", "relu3"]),
        ("unpin", 0),
        ("unpin", "x"),
        ("nothing", 1),
        ("formula", "log(1 + exp(q))"),
        ("formula", "__import__('os')"),
        ("formula", 3),
        ("formula", ["s"]),
        ("formula", "s" * 10_000),
        ("x" * 10_000, 1),
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


# --- laws --------------------------------------------------------------------------------------


def log_S_of(n_eff, n):
    return 0.5 * math.log(n_eff / n)


@pytest.mark.parametrize("kernel", ["exp", "relu2", "identity"])
@pytest.mark.parametrize("rows", [rows.name for rows in rowlaws.ALL])
def test_limits_at_once_are_the_limits_of_the_row_law(kernel, rows):
    """Composed of closed forms here, by quadrature and sums over the row there."""
    state = start(kernel, rows=rows, length=48, beta=0.4, gamma=0.7, dim=8, window=10, slope=0.1)
    (spec,) = state.specs()
    found = closed_limit(spec, "gamma", np.array([0.7]))
    if found is None:
        summed = ("sink", "qk-norm", "rope", "chunk", "scale-invariant", "soft-cap",
                  "needle", "needle-above")  # fmt: skip
        assert rows in summed or (rows == "alibi" and kernel != "exp")
        return
    row = spec.law.row(spec.kernel, spec.given())
    wanted = float(evaluate(row, length=48).log_S)
    assert log_S_of(float(found[0]), 48) == pytest.approx(wanted, rel=1e-9)
    assert log_S_of(limit_at_point(spec), 48) == pytest.approx(wanted, rel=1e-9)
    wrong = float(evaluate(row, length=49).log_S)  # one token more is another law
    no_n = rows in ("iid", "sink-logit", "gate") or (
        rows == "scalable-softmax" and kernel != "exp"
    )  # β/γ is all that matters
    no_n |= (rows, kernel) == ("length-bias", "exp")  # a factor on all weights
    no_n |= rows in ("floor-log", "yarn")  # short of the trained length, or whatever the length
    no_n |= rows == "log-n" and kernel != "exp"
    assert no_n or abs(wrong / wanted - 1) > 1e-6


def test_exact_points():
    (spec,) = start("relu2", length=100, gamma=0.5).specs()
    law = exact_law("relu2", length=100, beta=-1, gamma=0.5)
    point = exact_value(spec)
    assert point == float(law.value)
    many = exact_at_lengths(spec, np.array([10.0, 100.0]))
    assert many[1] == pytest.approx(point, rel=1e-12)
    (features,) = start("nonnegative").specs()
    assert exact_value(features) is None
    (slow,) = start("relu2", rows="alibi").specs()
    assert exact_value(slow) is None


# --- quantities --------------------------------------------------------------------------------

PLOTS = [name for name, *_ in plots.offered()]
OF_SOFTMAX = [
    name
    for name in PLOTS
    if not name.startswith(("sink_", "needle_")) and name not in ("square_sum", "abs_sum", "recall")
]


def of_plot(y):
    """The quantity that a plot is of, as `of=` takes it."""
    return plots.named(y).of.name


def test_every_quantity_is_offered():
    offered = {plots.named(y).of for y in PLOTS}
    assert {*quantities.ALL, *quantities.OF_MAPS} <= offered
    assert {of_plot(y).partition(":")[0] for y in PLOTS} >= {f.name for f in quantities.FAMILIES}
    assert len(PLOTS) == len(set(PLOTS)) == 25


@pytest.mark.parametrize("y", [*OF_SOFTMAX, "power_sum:0.5", "pq_index:0.5,1"])
def test_values_are_those_of_the_instruments(y):
    (spec,) = start("exp", y=y, length=96, gamma=1.3).specs()
    of, asked = of_plot(y), 0
    found = exact_value(spec)
    assert (found is None) == bool(why_no_law(spec))
    if found is not None:
        asked += 1
        assert found == float(exact_law("exp", gamma=1.3, length=96, of=of).value)
        assert exact_value(spec.at("length", 97)) != found
    if has_limit(spec):
        asked += 1
        wanted = float(evaluate(Row("exp", gamma=1.3), length=96, of=of).value)
        assert limit_at_point(spec) == pytest.approx(wanted, rel=1e-12)
        known = closed_limit(spec, "", np.zeros(1))
        assert known is None or float(known[0]) == pytest.approx(wanted, rel=1e-9)
        (sketch,) = previewed_limit(spec, "", np.zeros(1))
        assert float(sketch) == pytest.approx(wanted, rel=0.02)
    assert asked or y == "support"  # which is sampled


@pytest.mark.parametrize("kernel", ["relu2", "exp"])
@pytest.mark.parametrize("y", ["entropy", "gini", "top_k_mass:9", "keys_for_mass:0.8"])
def test_a_first_look_at_a_quantity_is_close_to_its_limit(kernel, y):
    (spec,) = start(kernel, y=y, beta=-0.5).specs()
    gamma, rtol = np.array([0.4, 1.0]), 1e-2 if y.startswith("top") else 3e-3
    wanted = [limit_at_point(spec.at("gamma", each)) for each in gamma.tolist()]
    np.testing.assert_allclose(previewed_limit(spec, "gamma", gamma), wanted, rtol=rtol)
    assert abs(wanted[0] / wanted[1] - 1) > 2 * rtol  # no other curve would do
    n = np.array([300.0])
    along = [limit_at_point(spec.at("length", 300.0))]
    np.testing.assert_allclose(previewed_limit(spec, "length", n), along, rtol=rtol)


def test_where_tokens_differ_no_first_look_is_made_up():
    (spec,) = start("exp", y="entropy", rows="decay", length=50).specs()
    assert np.isnan(previewed_limit(spec, "gamma", np.array([1.0]))).all()
    wanted = float(evaluate(spec.row(), length=50, of="entropy").value)
    assert limit_at_point(spec) == wanted
    (beside,) = start("exp", y="participation", rows="sink-logit", length=50).specs()
    assert closed_limit(beside, "gamma", np.array([1.0])) is None  # the logit counts
    alone = start("exp", y="participation", length=50).specs()[0]
    assert limit_at_point(beside) < 0.9 * limit_at_point(alone)


@pytest.mark.parametrize(
    ("y", "value", "height"),
    [
        ("entropy", 7.0, 0.5),
        ("gini", 0.3, 0.3),
        ("support", 1000.0, 0.5),
        ("keys_for_mass", 1.0, 0.0),
        ("power_sum:0.5", 10.0, 1 / 3),
        ("square_sum", 1.0, 0.5),
        ("S_n", 0.25, 0.25),
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
    assert edit(edit(state, "y", "pq_index"), "argument", "0.5, 2").y == "pq_index:0.5,2"
    for text in ("0", "1.5", "", "abc", None, [1], "1e400", "8:9"):
        with pytest.raises(InputError, match="argument") as error:
            edit(state, "argument", text)
        assert len(str(error.value)) < 200
    with pytest.raises(InputError, match="has none"):
        edit(start("exp"), "argument", "3")
    with pytest.raises(InputError, match="did you mean entropy"):
        start("exp", y="entropie")


def test_every_kernel_on_offer_can_be_shown_with_many_typed_beside():
    state = opened()
    state = edit(state, "shown", [kernel.name for kernel in state.known])
    for power in range(3, 15):
        state = edit(state, "formula", f"s**{power}")
    state = edit(edit(state, "y", "support"), "x", "decay")  # level lines, found at once
    letters = [curve["letter"] for curve in picture(state, Store()).content["curves"]]
    assert len(set(letters)) == len(letters) == len(state.known) > 16
    many = [_letter(number) for number in range(60)]
    assert (many[0], many[25], many[26], len(set(many))) == ("A", "Z", "A2", 60)


def test_more_curves_than_looks_are_refused_and_nothing_changes():
    own = [score_kernel(f"own{k}", sympy.Symbol("s") ** (2 * k + 2)) for k in range(40)]
    state = opened(*own, *NAMES)
    state = edit(edit(state, "shown", ["exp"]), "pin", True)
    names = [kernel.name for kernel in state.known]
    assert len(edit(state, "shown", names[:48]).shown) == 48
    for many in (lambda: edit(state, "shown", names[:49]), lambda: opened(*own, *NAMES, *MAPS)):
        with pytest.raises(InputError, match="at most 49 can be told apart"):
            many()


def test_every_control_has_a_word():
    for control in CONTROLS.values():
        assert re.search(r"[a-z]{3}", control.label), control.label
        assert control.symbol in control.label
    assert CONTROLS["beta"].label == "bias β"


SIGNED = {"square_sum", "abs_sum", "recall"}
OF_SINKS = {"sink_mass", "sink_mass_above"}
OF_A_NEEDLE = {name for name in PLOTS if name.startswith("needle_")}


def test_what_cannot_be_had_says_why():
    assert why_not_plotted(start("exp")).keys() == SIGNED | OF_SINKS | OF_A_NEEDLE
    assert len(OF_A_NEEDLE) == 6
    assert "choose a row law with one" in why_not_plotted(start("exp"))["sink_mass"]
    assert why_not_plotted(start("exp", rows="sink")).keys() == SIGNED | OF_A_NEEDLE
    assert why_not_plotted(start("exp", rows="sink-logit")).keys() == SIGNED | OF_A_NEEDLE
    assert why_not_plotted(start("exp", rows="needle")).keys() == SIGNED | OF_SINKS
    assert "square_sum" not in why_not_plotted(opened("differential"))
    assert set(PLOTS) - why_not_plotted(start("decayed")).keys() == {
        "S",
        "log S",
        "n_eff",
        "participation",
    }
    assert set(PLOTS) - why_not_plotted(start("nonnegative")).keys() == {"S", "log S", "n_eff"}
    both = start("exp", "nonnegative", y="entropy")  # one of them has it
    assert "entropy" not in why_not_plotted(both)
    exp, other = picture(both, Store()).content["curves"]
    assert exp["limit"] is not None
    assert (other["limit"], other["notes"][0]) == (None, "nonnegative has S of long rows only")
    assert sum(1 for _ in background.fill_laws(edit(both, "shown", ["nonnegative"]), Store())) == 0
    keys = picture(start("exp", y="top_k_mass:1000"), Store()).content["curves"][0]["notes"]
    assert "beyond 256 keys: sampled instead" in keys[0]


@pytest.mark.parametrize(
    ("name", "y"),
    [
        ("sparsemax", "support"),
        ("sparsemax", "S_n"),
        ("topk:8", "power_sum:2"),
        ("stick-breaking", "entropy"),
        ("entmax1.5", "participation"),
        ("differential", "square_sum"),
        ("forgetting", "n_eff"),
    ],
)
def test_maps_of_whole_rows_are_curves(name, y):
    state = opened(name, y=y, length=60, gamma=1.5)
    (spec,) = state.specs()
    own = {key: value for key, value in spec.values if key != "length"}
    assert own.keys() == {p.name for p in spec.kernel.parameters} - (
        {"beta"} if name not in ("stick-breaking",) else set()
    )
    wanted = float(exact_law(name, length=60, of=of_plot(y), **own).value)
    assert exact_value(spec) == pytest.approx(wanted, rel=1e-12)
    store = Store()
    store.exact.put(spec, wanted)
    (curve,) = picture(state, store).content["curves"]
    shown = math.sqrt(wanted / 60) if y == "n_eff" else wanted
    assert curve["read"]["S_rms" if y == "n_eff" else "exact"] == pytest.approx(shown)
    store = Store()
    assert sum(1 for _ in background.fill_formulas(state, store)) == 1
    assert "=" in str(store.formulas.get(name))


def test_limits_of_maps():
    (spec,) = opened("differential", length=50, gamma=1.2).specs()
    own = {key: value for key, value in spec.values if key != "length"}
    wanted = float(evaluate("differential", **own).log_S)
    limits = closed_limit(spec, "", np.zeros(1))
    assert limits is not None
    assert log_S_of(float(limits[0]), 50) == pytest.approx(wanted)
    (slow,) = opened("forgetting", length=50).specs()
    assert closed_limit(slow, "", np.zeros(1)) is None
    own = {key: value for key, value in slow.values if key != "length"}
    wanted = float(evaluate("forgetting", length=50, **own).log_S)
    assert log_S_of(limit_at_point(slow), 50) == pytest.approx(wanted)
    (none,) = picture(opened("sparsemax"), Store()).content["curves"]
    assert (none["limit"], none["notes"]) == (None, ["no limit of long rows"])


def test_maps_are_typed_and_opened():
    state = edit(opened("exp"), "formula", "topk:16")
    assert state.shown == ("exp", "topk:16")
    assert edit(state, "formula", "topk:16") == state
    assert edit(state, "formula", "sparsemax").known == state.known
    (spec,) = opened(Row("differential", gamma=2, gamma2=0.5, rho=0.1, mix=0.3)).specs()
    assert dict(spec.values)["mix"] == 0.3
    with pytest.raises(InputError, match="of Gaussian scores only"):
        opened(Row("sparsemax", gamma=2, scores=Uniform()))


@pytest.mark.parametrize(
    ("shown", "y"),
    [*(("exp", y) for y in OF_SOFTMAX), ("sparsemax", "n_eff"), ("sparsemax", "entropy")],
)
def test_the_python_call_is_of_the_quantity(shown, y):
    state = opened(shown, y=y, length=40, gamma=0.8)
    (spec,) = state.specs()
    *setup, last = python_source(state).splitlines()
    asked = [line for line in (*setup, last) if "import" not in line]
    names = {}
    exec("\n".join(line for line in setup if "import" in line), names)
    assert len(asked) == 1 + has_limit(spec)
    if has_limit(spec):
        value = float(eval(asked[0], names))
        wanted = (
            math.sqrt(limit_at_point(spec) / 40) if of_plot(y) == "n_eff" else limit_at_point(spec)
        )
        assert value == pytest.approx(wanted, rel=1e-9)
    if capabilities(spec.kernel, spec.quantity).exact:
        assert float(eval(last, names)) == pytest.approx(exact_value(spec), rel=1e-12)
    else:
        assert last.startswith(f"estimate('{shown}',")
        assert f"of='{of_plot(y)}'" in last


def test_the_python_call_of_a_refusal_is_a_comment():
    (line,) = python_source(start("nonnegative", y="entropy")).splitlines()
    assert line.startswith("# nonnegative")
    decayed = start("decayed", y="participation", length=40)
    names = {}
    *setup, line = python_source(decayed).splitlines()
    exec("\n".join(setup), names)
    assert float(eval(line, names)) == pytest.approx(exact_value(decayed.specs()[0]))


def test_samples_and_table_of_a_quantity():
    state, store = start("exp", "decayed", y="participation", length=64), Store()
    for count, _ in enumerate(background.fill_samples(state, store, lambda: None)):
        if count == 1:
            break
    content, _ = picture(state, store)
    for curve, spec in zip(content["curves"], state.specs(), strict=True):
        (point,) = curve["points"]
        assert abs(point["value"] - exact_value(spec)) < 3 * point["half"] + 1e-12
        assert point["of"] == "E Y₂"
    rows = list(csv.DictReader(io.StringIO(csv_table(state, store))))
    sampled, *_ = [row for row in rows if row["participation_mc"]]
    assert float(sampled["participation_mc"]) == content["curves"][0]["points"][0]["value"]
    limit = evaluate("exp", beta=0, gamma=1, length=64, of="participation").value
    assert float(sampled["participation_limit"]) == pytest.approx(float(limit), rel=1e-9)


def test_a_law_is_left_in_its_midst_and_has_an_end():
    store = Store()

    def until(ended):
        def law():
            while not ended.is_set():
                math.sqrt(abs(-2.0))

        return law

    count = []

    def moved_on():
        count.append(1)
        if len(count) == 3:
            raise background.StateMoved

    first, second = threading.Event(), threading.Event()
    with pytest.raises(background.StateMoved):
        background.run_law(store, until(first), moved_on)
    assert len(count) == 3
    first.set()
    with pytest.raises(background.TakesTooLong):
        background.run_law(store, until(second), lambda: None, seconds=0.05)
    count.clear()
    with pytest.raises(background.StateMoved):  # the next one waits for it, and can be left too
        background.run_law(store, lambda: 3, moved_on)
    second.set()
    assert background.run_law(store, lambda: 3, lambda: None) == 3
    assert sys.getprofile() is None


def test_a_point_that_takes_too_long_is_named(monkeypatch):
    def stuck(spec):
        raise background.TakesTooLong

    monkeypatch.setattr(background, "exact_value", stuck)
    state, store = start("exp", y="gini"), Store()
    next(background.fill_laws(state, store))
    (curve,) = picture(state, store).content["curves"]
    assert curve["exact"] is None
    assert any("takes seconds" in note for note in curve["notes"])


def test_a_curve_that_takes_long_is_left_to_its_end():
    state, store = start("exp", y="entropy"), Store()
    for _ in background.fill_laws(state, store, seconds=0.0):
        pass
    (spec,) = state.specs()
    assert spec in store.exact  # at the marker
    (curve,) = picture(state, store).content["curves"]
    assert curve["exact"] is None


# --- pictures ----------------------------------------------------------------------------------


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


AXES = [
    (rows.name, x) for rows in rowlaws.ALL for x in sorted(start(rows=rows.name).uses() | {"sigma"})
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


@pytest.mark.parametrize(("rows", "x"), AXES)
def test_every_axis_of_every_row_law_can_be_drawn_at_its_extremes(rows, x):
    """Every value at both ends; S and n_eff by turns, so that each value is seen in both."""
    uses = sorted(start(x=x, rows=rows).uses())
    turn, both = [at for _, at in AXES].index(x), ("S", "n_eff")
    drawn = 0
    for k, name in enumerate(uses):
        for y in both if name == x else both[(turn + k) % 2 :][:1]:
            drawn += drawn_at_extremes(rows, x, name, y)
    assert drawn == 2 * len(NAMES) * (len(uses) + 1) >= 50


@pytest.mark.slow
@pytest.mark.parametrize("y", ["S", "n_eff"])
@pytest.mark.parametrize(("rows", "x"), AXES)
def test_every_axis_can_be_drawn_in_either_quantity(rows, x, y):
    for name in start(x=x, rows=rows).uses():
        assert drawn_at_extremes(rows, x, name, y) == 2 * len(NAMES)


def test_a_pin_has_its_own_row_length():
    state = edit(start("exp", y="n_eff"), "pin", True)
    state = edit(state, "length", 10_000)
    content, data = picture(state, Store())
    live, pin = (arrays(content, data)[curve["id"], "limit"][1] for curve in content["curves"])
    np.testing.assert_allclose(
        live[:100] - pin[:100], np.log(10_000 / 1024) / np.log(1e6), atol=1e-6
    )
    assert [curve["read"]["n"] for curve in content["curves"]] == [10_000, 1024]


def test_the_numbers_beside_a_pin_are_at_the_marker_and_say_so():
    state = edit(edit(start("exp"), "pin", True), "gamma", 2)
    _, pin = picture(state, Store()).content["curves"]
    assert pin["read"]["S"] == pytest.approx(math.exp(-2))
    assert "γ = 2" in pin["full"]


@pytest.mark.parametrize("turns", [1, pytest.param(3, marks=pytest.mark.slow)])
def test_axes_stay_while_sliders_move(turns):
    """Each axis with the heights by turns; under slow with all three."""
    heights = ("S", "log S", "n_eff")
    for i, (x, axis) in enumerate(CONTROLS.items()):
        for y in (heights[(i + k) % 3] for k in range(turns)):
            state = start("exp", "decayed", x=x, y=y)  # curves that move by what the others do
            marks = picture(state, Store()).content["axis"]
            for name in start(x=x, y=y).uses():
                control = CONTROLS[name]
                for value in control.stops(control.start)[::120]:
                    moved = picture(edit(state, name, value), Store()).content["axis"]
                    assert moved["marks"] == marks["marks"]
                    assert moved["y_marks"] == marks["y_marks"]
            assert axis.name == x


# --- filling in --------------------------------------------------------------------------------


def test_laws_fill_in_from_the_marker_to_every_point():
    state, store = start("relu2", "identity"), Store()
    count = sum(1 for _ in background.fill_laws(state, store))
    assert count == 2 * 66  # 65 along the axis, and the marker
    content, data = picture(state, store)
    for curve in content["curves"]:
        assert curve["exact"]["whole"]
        assert curve["read"]["n_eff"] is not None
    u, v = arrays(content, data)["live relu2", "exact"]
    gamma = 0.05 * 400 ** float(u[40])
    law = exact_law("relu2", length=1024, beta=-1, gamma=gamma)
    assert float(v[40]) == pytest.approx(float(law.S_rms), rel=1e-5)
    assert sum(1 for _ in background.fill_laws(state, store)) == 0  # nothing is computed twice


def test_a_kernel_without_a_closed_form_is_drawn_at_once_and_proven_after():
    """The first picture has the curve, marked as not whole; then every point is proven."""
    softplus = score_kernel("softplus", sympy.log(1 + sympy.exp(sympy.Symbol("s"))))
    state = initial((*ALL, softplus), ("softplus",), "beta", gamma=3.0)
    store, key = Store(), ("live softplus", "limit")
    content, data = picture(state, store)
    first = arrays(content, data)[key]
    assert not content["curves"][0]["limit"]["whole"]
    assert content["curves"][0]["read"]["S"] is None  # numbers are read only when proven
    for _ in background.fill_laws(state, store):
        pass
    content, data = picture(state, store)
    assert content["curves"][0]["limit"]["whole"]
    axes, (spec,) = Axes(state), state.specs()
    at = axes.x[axes.nodes(spec, "limit", store)]
    assert len(at) >= 65
    wanted = evaluate(softplus, beta=at, gamma=3.0).S
    np.testing.assert_allclose(arrays(content, data)[key][1], wanted, atol=1e-6)
    np.testing.assert_allclose(first[1], wanted, atol=3e-3)


@pytest.mark.parametrize("name", ["relu2", "identity", "exp"])
def test_a_first_look_is_close_to_the_closed_form(name):
    beta = np.linspace(-4, 4, 50)
    for gamma in (0.3, 2.0, 6.0):
        found = preview(named(name), beta, np.full(50, gamma))
        np.testing.assert_allclose(found, evaluate(name, beta=beta, gamma=gamma).S, atol=3e-3)


def _worst(u, at, truth):
    """The farthest that lines between nodes are from a curve, as drawn."""
    return float(np.max(np.abs(np.interp(u, u[at], truth[at]) - truth)))


def _equal(count, of):
    return np.unique(np.linspace(0, of - 1, count).round().astype(int))


@pytest.mark.parametrize("knee", [0.21, 0.5, 0.83])
def test_the_next_node_is_where_the_curve_bends_most(knee):
    """One node after the other: evenly at first, then at the knee, then wherever it is widest."""
    u = np.linspace(0, 1, 400)
    truth = 0.9 * np.logaddexp(0, (u - knee) * 150) / 150
    at, order = [], []
    while new := next_places(u, at, truth[at], 1):
        at = sorted([*at, *new])
        order += new
    assert len(at) == len(set(order)) == LEAST_NODES
    assert sorted(order[:FIRST_NODES]) == _equal(FIRST_NODES, 400).tolist()
    near = np.abs(u[order[FIRST_NODES:][:12]] - knee) < 2 / (FIRST_NODES - 1)
    assert near.all()  # before it is refined elsewhere, and at last
    assert (np.abs(u[at] - knee) < 1 / 16).sum() > 1.5 * len(at) / 8
    assert _worst(u, at, truth) < _worst(u, _equal(len(at), 400), truth) / 5
    assert np.max(np.diff(u[at])) < 0.04  # and nothing stays wide
    straight = sorted(even_places(400))
    new = next_places(u, straight, (0.3 + 0.4 * u)[straight])
    assert max(np.diff(sorted({*straight, *new}))) <= 13  # no bend: everywhere


def test_a_curve_that_is_not_resolved_gets_more_nodes_and_one_off_the_chart_none():
    u = np.linspace(0, 1, 400)
    for truth, least in (
        (0.5 + 0.4 * np.sin(40 * u), LEAST_NODES + 1),
        (2 + u * 0, LEAST_NODES),
    ):
        at = []
        while new := next_places(u, at, truth[at]):
            at = sorted([*at, *new])
        assert least <= len(at) <= MOST_NODES
    bent_above = np.where(u < 0.5, 0.5, 1.5 + 8 * (u - 0.9) ** 2)
    at = sorted(even_places(400))
    first = next_places(u, at, bent_above[at], 6)
    assert np.all(np.abs(u[first] - 0.5) < 1 / 8)
    known = np.where(np.arange(len(at)) == 8, np.nan, bent_above[at])
    assert next_places(u, at, known, 4) != []  # a value that is missing stops nothing
    assert next_places(u[:9], range(9), truth[:9]) == []  # as many as there are


def test_an_exact_law_with_a_knee_is_drawn_closer_than_by_equal_steps():
    """A window as wide as the row: the knee of n_eff against w, from laws at every place."""
    state = opened("exp", x="window", rows="window", length=1024, gamma=1.0)
    store, axes, (spec,) = Store(), Axes(state), state.specs()
    for _ in background.fill_laws(state, store):
        pass
    at = axes.nodes(spec, "exact", store)
    laws = [exact_value(spec.at("window", x)) for x in axes.x.tolist()]
    truth = axes.heights(spec, list(range(len(axes.x))), laws)
    worst, equal = (_worst(axes.along, k, truth) for k in (at, _equal(len(at), len(axes.x))))
    assert worst < 1e-3 < 5e-3 < equal
    (curve,) = picture(state, store).content["curves"]
    assert curve["exact"]["whole"]


def test_the_first_look_at_a_kernel_is_closest_where_it_bends():
    state = edit(opened("exp", x="beta", gamma=0.3), "formula", "max(s, 0)**1.5 + exp(s)/1e4")
    state = edit(state, "shown", [state.shown[-1]])
    content, data = picture(state, Store())
    (u, v) = arrays(content, data)[content["curves"][0]["id"], "limit"]
    axes, (spec,) = Axes(state), state.specs()
    truth = np.sqrt(previewed_limit(spec, "beta", axes.x) / 1024)
    assert len(u) == LEAST_NODES
    equal = _equal(len(u), len(axes.x))
    drawn = np.max(np.abs(np.interp(axes.along, u, v) - truth))
    assert drawn < _worst(axes.along, equal, truth) / 2


def test_a_few_points_are_not_drawn_as_a_line():
    state, store = start("exp"), Store()
    work = background.fill_laws(state, store)
    for _ in range(4):
        next(work)
    assert picture(state, store).content["curves"][0]["exact"] is None


def test_along_n_one_table_serves_many_lengths():
    state, store = start("exp", "relu2", x="length"), Store()
    count = sum(1 for _ in background.fill_laws(state, store))
    assert count <= 6  # of each curve: the marker, where it lies evenly, where it bends
    assert all(c["exact"]["whole"] for c in picture(state, store).content["curves"])


@pytest.fixture(scope="module")
def sampled():
    """A state with one round of samples."""
    state, store = start("exp", "decayed", length=64), Store()
    for count, _ in enumerate(background.fill_samples(state, store, lambda: None)):
        if count == 7:
            break
    return state, store


def test_samples_hold_the_exact_law(sampled):
    state, store = sampled
    content, _ = picture(state, store)
    points = [point for curve in content["curves"] for point in curve["points"]]
    assert len(points) == 8
    for point in content["curves"][0]["points"]:
        law = exact_law("exp", length=64, gamma=point["x"])
        if point["warning"] is None:
            assert abs(point["value"] - float(law.S_rms)) < 3 * point["half"]
    assert sum(p["warning"] is None for p in points) >= 6
    assert edit(state, "sampling", False) != state
    assert picture(edit(state, "sampling", False), store).content["curves"][0]["points"] == []


def test_samples_tighten_in_place(sampled):
    state, store = sampled
    state = edit(edit(state, "shown", ["exp"]), "x", "beta")  # level: one point, at the marker
    (before,) = picture(state, store).content["curves"][0]["points"]
    for _ in background.fill_samples(state, store, lambda: None):
        pass
    (after,) = picture(state, store).content["curves"][0]["points"]
    assert after["u"] == before["u"]
    assert after["samples"] > before["samples"]
    assert after["half"] < 0.6 * before["half"]


def test_sampling_is_left_when_the_state_moves_on(sampled):
    state, store = sampled

    def moved():
        raise background.StateMoved

    with pytest.raises(background.StateMoved):
        for _ in background.fill_samples(edit(state, "gamma", 1.7), store, moved):
            pass


def test_sampling_does_not_disturb_the_pictures(sampled):
    """Pictures made while another thread samples and compiles are those made alone."""
    state, _ = sampled
    stop = threading.Event()
    states = [edit(start(), "gamma", 1 + k / 100) for k in range(20)]
    alone = [picture(each, Store()).content for each in states]

    def work():
        store = Store()
        for _ in background.fill_samples(edit(state, "length", 96), store, lambda: None):
            if stop.is_set():
                return

    thread = threading.Thread(target=work)
    thread.start()
    store = Store()
    beside = [picture(each, store).content for each in states]
    assert thread.is_alive()
    stop.set()
    thread.join()
    assert beside == alone


def test_memory_forgets_the_oldest():
    memory = LruCache(2)
    for k in range(3):
        memory.put(k, k)
    assert 0 not in memory
    assert memory.get(1) == 1
    memory.put(3, 3)
    assert 2 not in memory


def test_formulas_of_all_kernels():
    mine = score_kernel("sine", 2 + sympy.sin(sympy.Symbol("s")))
    known = (*ALL, mine)
    state, store = initial(known, tuple(kernel.name for kernel in known), "gamma"), Store()
    assert sum(1 for _ in background.fill_formulas(state, store)) == len(known)
    for name in NAMES:
        weight, S = store.formulas.get(name) or ("", "")
        assert "<mi>a</mi>" in weight
        assert "<mi>S</mi>" in S


@pytest.mark.parametrize(
    ("kernel", "change", "rows"),
    [
        ("exp", {}, "long rows"),
        ("relu2", {"y": "log S", "x": "length"}, "long rows"),
        ("exp", {"y": "S_n"}, "long rows"),
        ("nonnegative", {"query": "one-hot"}, "long rows"),
        ("decayed", {}, "rows of n"),
        ("decayed", {"rows": "alibi"}, "rows of n"),  # which it does not have
        ("exp", {"rows": "alibi"}, ""),
        ("exp", {"rows": "sink-logit"}, ""),
        ("exp", {"y": "entropy"}, ""),
        ("decayed", {"y": "participation"}, ""),
        ("sparsemax", {}, ""),
    ],
)
def test_a_formula_is_that_of_the_curve_or_none(kernel, change, rows):
    (curve,) = picture(opened(kernel, **change), Store()).content["curves"]
    assert curve["formula"] == rows


# --- no compilation in a tick ------------------------------------------------------------------


def test_ticks_never_touch_jax():
    code = """
import sys
from sparsity.panel.state import edit, initial
from sparsity.panel.picture import picture
from sparsity.panel.export import python_source
from sparsity.panel.store import Store
from sparsity.axes import row_choices as rowlaws
from sparsity.kernels import ALL
store, ticks = Store(), 0
for rows in rowlaws.ALL:
    state = initial(ALL, tuple(k.name for k in ALL), "gamma", rows=rows.name)
    for name in ("beta", "gamma", "length", "decay", "ratio", "dim"):
        for value in (2, 3) if name != "decay" else (0.2, 0.3):
            state = edit(state, name, value)
            picture(state, store), python_source(state)
            ticks += 1
assert ticks == 12 * len(rowlaws.ALL) >= 190, ticks
print("jax" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


# --- Python and CSV ----------------------------------------------------------------------------


@pytest.mark.parametrize("rows", [rows.name for rows in rowlaws.ALL])
def test_the_python_call_computes_what_is_shown(rows):
    state = start("exp", rows=rows, length=64, gamma=0.8, dim=8)
    (spec,) = state.specs()
    *setup, limit, row = python_source(state).splitlines()
    names = {}
    exec("\n".join(setup), names)
    wanted = closed_limit(spec, "gamma", np.array([0.8]))
    long = limit_at_point(spec) if wanted is None else float(wanted[0])
    assert float(np.log(eval(limit, names))) == pytest.approx(log_S_of(long, 64), rel=1e-9)
    assert float(eval(row, names)) == pytest.approx(exact_value(spec), rel=1e-9)


@pytest.mark.parametrize("rows", [rows.name for rows in rowlaws.ALL])
def test_the_python_call_imports_public_names_only(rows):
    state = start(*NAMES, rows=rows, length=64, dim=8)
    imports = [line for line in python_source(state).splitlines() if "import" in line]
    public = [line for line in imports if line.startswith("from sparsity import ")]
    assert len(public) == 1
    assert set(imports) - set(public) <= {"import numpy as np"}
    names = public[0].removeprefix("from sparsity import ").split(", ")
    assert set(names) <= set(sparsity.__all__)


def test_a_row_that_cannot_be_is_a_comment_in_the_call():
    (line,) = python_source(start("exp", rows="rope", dim=3)).splitlines()
    assert line.startswith("# exp, RoPE")
    assert "3" in line


def test_the_python_call_of_your_own_kernel_runs():
    mine = score_kernel("softplus", sympy.log(1 + sympy.exp(sympy.Symbol("s"))))
    state = initial((*ALL, mine), ("softplus",), "gamma")
    *setup, limit, _ = python_source(state).splitlines()
    names = {}
    exec("\n".join(setup), names)
    assert float(eval(limit, names)) == pytest.approx(float(evaluate(mine, beta=-1, gamma=1).S))


@pytest.mark.parametrize("rows", ["iid", "sink", "rope"])
def test_the_python_call_of_a_formula_runs(rows):
    state = edit(start("exp", rows=rows, dim=8, length=16), "formula", "log(2 + exp(s))")
    *setup, limit, law = python_source(edit(state, "shown", ["log(2 + exp(s))"])).splitlines()
    names = {}
    exec("\n".join(setup), names)
    (spec,) = edit(state, "shown", ["log(2 + exp(s))"]).specs()
    assert spec.kernel.weight == sympy.log(2 + sympy.exp(sympy.Symbol("s", real=True)))
    assert float(eval(limit, names)) == pytest.approx(
        math.sqrt(limit_at_point(spec) / 16), rel=1e-12
    )
    assert float(eval(law, names)) > 1


# --- rows of one's own ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Damped:
    """A step that is not in the library: γ_m = γ/(1 + rate·m^power)."""

    name: ClassVar[str] = "damped"
    example: ClassVar[tuple] = (0.2, 1.0)

    rate: float
    power: float

    def breaks(self, length):
        return np.arange(length + 1.0)

    def __call__(self, tokens, length):
        return replace(tokens, gamma=tokens.gamma / (1 + self.rate * tokens.distance**self.power))


SEVERAL = (Alibi(0.02), Window(20), Sink(1.5, 0.3), SinkLogit(4.0))
ROPE = Rope((0.5, -0.4, 0.3, 0.7), (0.1, 0.2, -0.3, 0.4), 0.8)


@pytest.mark.parametrize(
    ("row", "name", "moved"),
    [
        (Row("exp", gamma=2), "iid", {}),
        (Row("relu2", beta=-0.5, gamma=2, steps=(Alibi(0.03),)), "alibi", {"slope": 0.03}),
        (Row("identity", beta=1, gamma=2, steps=(Window(9),)), "window", {"window": 9}),
        (
            Row("exp", gamma=1.2, steps=SEVERAL),
            "alibi:0.02 window:20 sink:1.5,0.3 sink-logit:4.0",
            {"slope": 0.02, "window": 20, "logit": 4.0},
        ),
        (Row("exp", gamma=1.2, steps=(Damped(0.1, 0.5),)), "damped:0.1,0.5", {}),
        (Row("exp", gamma=1, steps=(Decay(0.9), ROPE)), None, {"decay": 0.9}),
    ],
)
def test_a_row_is_opened_as_it_is_and_its_call_is_its_exact_law(row, name, moved):
    state = opened(row, length=24)
    (spec,) = state.specs()
    assert name in (None, spec.rows)
    assert {key: state.value(key) for key in moved} == moved
    assert {key for key, _ in spec.values} - {"beta", "gamma", "length"} == set(moved)
    assert spec.law.row(spec.kernel, spec.given()) == row
    wanted = exact_law(row, length=24)
    point = exact_value(spec)
    assert (point is None) == bool(why_no_law(spec))
    if point is not None:
        assert point == pytest.approx(float(wanted.value), rel=1e-12)
    *setup, limit, of_rows = python_source(state).splitlines()
    names = {}
    exec("\n".join(setup), names)
    assert float(eval(of_rows, names)) == pytest.approx(float(wanted.value), rel=1e-12)
    shown = float(evaluate(row, length=24).S)
    assert float(eval(limit, names)) == pytest.approx(shown, rel=1e-12)
    json.dumps(picture(state, Store()).content, allow_nan=False)


def test_the_steps_of_a_row_are_moved_by_their_sliders():
    state = edit(opened(Row("exp", gamma=1.2, steps=SEVERAL)), "window", 7)
    (spec,) = state.specs()
    moved = (SEVERAL[0], Window(7), *SEVERAL[2:])
    assert spec.law.row(spec.kernel, spec.given()) == Row("exp", gamma=1.2, steps=moved)


def test_further_rows_are_pinned_and_kernels_stay():
    rows = Row("exp", gamma=2, steps=(Alibi(0.03),)), Row("relu2", beta=-1, gamma=3, steps=SEVERAL)
    state = opened(*rows, "identity", Row("decayed", decay=0.5), length=30)
    assert state.shown == ("exp", "identity")
    assert state.rows == "alibi"
    pinned, decayed = state.pins
    assert pinned.law.row(pinned.kernel, pinned.given()) == rows[1]
    assert decayed.given() == {"decay": 0.5, "length": 30}
    assert edit(state, "rows", pinned.rows).specs()[0].law == pinned.law


def test_a_new_step_has_a_slider_of_its_own():
    *known, new = rowlaws.of_steps((*steps.ALL, Damped))
    assert [law.name for law in known] == [law.name for law in rowlaws.ALL]
    (control,) = new.controls
    row = new.row(score_kernel("mine", sympy.Symbol("s") ** 4), {"beta": 0, "gamma": 2, control: 3})
    assert row.steps == (Damped(3, 1.0),)
    own = controls_of((*steps.ALL, Damped))
    assert own[control].low < 0.2 < own[control].high
    assert list(own) == [*CONTROLS, control]


def test_points_say_of_what_they_are(sampled):
    """√(n_eff/n) of rows is not E S_n, and is not called S."""
    state, store = sampled
    for curve in picture(state, store).content["curves"]:
        name = "√(n_eff/n)" if curve["kernel"] == "exp" else "S"
        assert {point["of"] for point in curve["points"]} == {name}
    table_rows = csv.DictReader(io.StringIO(csv_table(state, store)))
    said = {(row["kernel"], row["sampled"]) for row in table_rows if row["S_mc"]}
    assert said == {("exp", "√(n_eff/n)"), ("decayed", "S")}


def test_the_table_has_everything_drawn(sampled):
    state, store = sampled
    rows = list(csv.DictReader(io.StringIO(csv_table(state, store))))
    own = [row for row in rows if row["kernel"] == "exp"]
    assert len(own) >= 400
    for row in own[::50]:
        assert float(row["S_limit"]) == pytest.approx(math.exp(-(float(row["gamma"]) ** 2) / 2))
    assert sum(row["S_mc"] != "" for row in own) == 4 + 3  # of the eight, one is the other's
    assert {curve.id for curve in curves(state)} == {row["curve"] for row in rows}


# --- the front ---------------------------------------------------------------------------------


def _light(colour):
    parts = [int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5)]
    linear = [x / 12.92 if x <= 0.04045 else ((x + 0.055) / 1.055) ** 2.4 for x in parts]
    return float(np.dot([0.2126, 0.7152, 0.0722], linear))


def test_curves_stand_out_on_both_grounds_and_differ_by_marker():
    text = (FRONT / "chart.js").read_text("utf-8")
    looks = re.findall(r'light: "(#\w+)", dark: "(#\w+)", mark: "([^"]+)"', text)
    grounds = re.findall(r'ground: "(#\w+)"', text)
    assert len(looks) == 7
    assert len({mark for *_, mark in looks}) == 7
    for light, dark, _ in looks:
        for colour, ground in zip((light, dark), grounds, strict=True):
            high, low = sorted((_light(colour), _light(ground)), reverse=True)
            assert (high + 0.05) / (low + 0.05) >= 4.5, colour


def test_the_front_asks_nothing_of_the_world():
    for path in FRONT.iterdir():
        addresses = re.findall(r"https?://[^\s\"']+", path.read_text("utf-8"))
        assert set(addresses) <= {"http://www.w3.org/2000/svg"}
        assert "import " not in path.read_text("utf-8").replace("!important", "")


def test_the_axis_of_a_marker_beyond_it():
    axes = Axes(edit(start(), "gamma", 5000))
    assert axes.control.ends(5000)[1] == 10_000
    assert 0 < float(axes.u(5000)) < 1


# --- the widget's edge -------------------------------------------------------------------------


def test_without_the_extra_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "anywidget", None)
    monkeypatch.delitem(sys.modules, "sparsity.panel.widget", raising=False)
    with pytest.raises(ModuleNotFoundError, match=r'pip install "sparsity\[notebook\]"'):
        sparsity.explore()


@pytest.fixture
def panel(monkeypatch):
    """A widget whose messages are caught; (message) -> the answers."""
    widget = sparsity.explore("exp", gamma=2)
    sent = []
    monkeypatch.setattr(widget, "send", lambda content, buffers=None: sent.append(content))

    def ask(message):
        sent.clear()
        widget._receive(None, message, [])
        return [answer for answer in list(sent) if "seq" in answer]

    yield widget, ask
    widget.close()


@pytest.mark.notebook
@pytest.mark.parametrize(
    "message",
    [
        None,
        {},
        {"edits": 3},
        {"edits": [3]},
        {"edits": [["gamma"]]},
        {"edits": [["gamma", [1, [2]]]]},
        {"edits": [[["gamma"], 1]]},
        {"edits": [["unpin", None]]},
        {"edits": [["pin", None]], "csv": True},
        {"edits": {"gamma": 1}},
    ],
)
def test_every_message_is_answered_and_the_panel_lives(panel, message):
    widget, ask = panel
    assert len(ask(message)) >= 1
    (answer,) = ask({"view": "v", "seq": 7, "edits": [["gamma", "3"], ["beta", "abc"]]})
    assert (answer["kind"], answer["to"], answer["seq"]) == ("picture", "v", 7)
    assert list(answer["errors"]) == ["beta"]
    assert widget.state.value("gamma") == 3
    json.dumps(answer, allow_nan=False)
    assert 'evaluate("exp"' in widget.python().replace("'", '"')
    assert widget.csv().startswith("curve,kernel")


@pytest.mark.notebook
def test_a_nudge_is_received_and_nothing_more(panel):
    _, ask = panel
    assert ask({"nudge": True}) == []


@pytest.mark.notebook
def test_reset_goes_back_to_where_it_started(panel):
    widget, ask = panel
    ask({"edits": [["gamma", 5], ["pin", True], ["rows", "sink"]]})
    ask({"edits": [["reset", True]]})
    assert widget.state.value("gamma") == 2
    assert widget.state.pins == ()


@pytest.mark.notebook
def test_a_typed_formula_is_drawn_or_its_mistake_is_named(panel):
    widget, ask = panel
    (answer,) = ask({"edits": [["formula", "log(2 + exp(s))"]]})
    assert answer["errors"] == {}
    assert [curve["kernel"] for curve in answer["curves"]] == ["exp", "log(2 + exp(s))"]
    assert answer["state"]["kernels"][-1]["name"] == "log(2 + exp(s))"
    (answer,) = ask({"edits": [["formula", "log(1 + exp(q))"]]})
    assert list(answer["errors"]) == ["formula"]
    assert "exp(^q)" in answer["errors"]["formula"]
    ask({"edits": [["reset", True]]})
    assert [kernel.name for kernel in widget.state.known] == [k.name for k in (*ALL, *MAPS)]


def _until(condition, seconds=10):
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.01)
    return condition()


@pytest.mark.notebook
def test_a_formula_found_while_the_hand_moved_is_sent(panel, monkeypatch):
    widget, ask = panel
    widget._store.formulas.put("exp", ("<math>found</math>", ""))
    sent = []
    monkeypatch.setattr(widget, "send", lambda content, buffers=None: sent.append(content))
    ask({"seq": 1, "edits": [["gamma", 1.5]]})
    assert _until(lambda: any(m.get("kind") == "formulas" for m in sent))


@pytest.mark.notebook
def test_an_error_while_filling_in_leaves_the_thread_alive(panel, monkeypatch):
    widget, ask = panel
    calls = []

    def fails_when_the_state_has_moved_on(state, seen):
        calls.append(seen)
        if len(calls) == 1:
            widget._generation += 1
            raise ValueError("planted")

    monkeypatch.setattr(widget, "_fill_in", fails_when_the_state_has_moved_on)
    ask({"seq": 1, "edits": []})
    assert _until(lambda: len(calls) == 2)
