"""The Python call that the panel shows computes what is drawn, of rows of one's own too."""

import json
import math
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pytest
import sympy
from panel_states import OF_SOFTMAX, log_S_of, of_plot, start

from sparsity import Alibi, Decay, Rope, Row, Sink, SinkLogit, Window, evaluate, score_kernel
from sparsity import exact as exact_law
from sparsity.exact_law.capabilities import capabilities
from sparsity.panel import opened
from sparsity.panel.curve import bounded_limit, exact_value, has_limit, limit_at_point, why_no_law
from sparsity.panel.export import python_source
from sparsity.panel.picture import picture
from sparsity.panel.state import edit
from sparsity.panel.store import Store
from sparsity.plots.axes import row_choices as rowlaws
from sparsity.plots.axes.controls import CONTROLS, controls_of
from sparsity.rows import steps


@pytest.mark.parametrize("rows", [rows.name for rows in rowlaws.ALL])
def test_the_python_call_computes_what_is_shown(rows):
    state = start("exp", rows=rows, length=64, gamma=0.8, dim=8)
    (spec,) = state.specs()
    *setup, limit, row = python_source(state).splitlines()
    names = {}
    exec("\n".join(setup), names)
    wanted = bounded_limit(spec, "gamma", np.array([0.8]))
    long = limit_at_point(spec).value if wanted is None else float(wanted[0][0])
    assert float(np.log(eval(limit, names))) == pytest.approx(log_S_of(long, 64), rel=1e-9)
    assert float(eval(row, names)) == pytest.approx(exact_value(spec).value, rel=1e-9)


def test_the_python_call_of_a_formula_runs():
    state = edit(start("exp", rows="rope", dim=8, length=16), "formula", "log(2 + exp(s))")
    *setup, limit, law = python_source(edit(state, "shown", ["log(2 + exp(s))"])).splitlines()
    names = {}
    exec("\n".join(setup), names)
    (spec,) = edit(state, "shown", ["log(2 + exp(s))"]).specs()
    assert spec.kernel.weight == sympy.log(2 + sympy.exp(sympy.Symbol("s", real=True)))
    assert float(eval(limit, names)) == pytest.approx(
        math.sqrt(limit_at_point(spec).value / 16), rel=1e-12
    )
    assert float(eval(law, names)) > 1


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
            math.sqrt(limit_at_point(spec).value / 40)
            if of_plot(y) == "n_eff"
            else limit_at_point(spec).value
        )
        assert value == pytest.approx(wanted, rel=1e-9)
    if capabilities(spec.kernel, spec.quantity).exact:
        shown_value = exact_value(spec)  # None where a point takes seconds
        assert (shown_value is None) == bool(why_no_law(spec))
        if shown_value is not None:
            assert float(eval(last, names)) == pytest.approx(shown_value.value, rel=1e-12)
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
    assert float(eval(line, names)) == pytest.approx(exact_value(decayed.specs()[0]).value)


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
        (Row("relu2", beta=-0.5, gamma=2, steps=(Alibi(0.03),)), "alibi", {"slope": 0.03}),
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
        assert point.value == pytest.approx(float(wanted.value), rel=1e-12)
    *setup, limit, of_rows = python_source(state).splitlines()
    names = {}
    exec("\n".join(setup), names)
    assert float(eval(of_rows, names)) == pytest.approx(float(wanted.value), rel=1e-12)
    shown = float(evaluate(row, length=24).S)
    assert float(eval(limit, names)) == pytest.approx(shown, rel=1e-12)
    json.dumps(picture(state, Store()).content, allow_nan=False)


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
