"""The values that the panel shows are those of evaluate and exact, of every quantity on offer."""

import math

import numpy as np
import pytest
from panel_states import OF_SOFTMAX, PLOTS, log_S_of, of_plot, start

from sparsity import Row, evaluate, quantities
from sparsity import exact as exact_law
from sparsity.kernels import named
from sparsity.limit.evaluation import preview
from sparsity.panel import background, opened
from sparsity.panel.curve import (
    bounded_limit,
    exact_at_lengths,
    exact_value,
    has_limit,
    limit_at_point,
    previewed_limit,
    why_no_law,
)
from sparsity.panel.picture import picture
from sparsity.panel.state import edit, why_not_plotted
from sparsity.panel.store import Store
from sparsity.plots.axes import quantity_axis as plots
from sparsity.plots.axes import row_choices as rowlaws


@pytest.mark.parametrize("kernel", ["exp", "relu2"])
@pytest.mark.parametrize("rows", [rows.name for rows in rowlaws.ALL])
def test_limits_at_once_are_the_limits_of_the_row_law(kernel, rows):
    """Composed of closed forms here, by quadrature and sums over the row there."""
    state = start(kernel, rows=rows, length=48, beta=0.4, gamma=0.7, dim=8, window=10, slope=0.1)
    (spec,) = state.specs()
    found = bounded_limit(spec, "gamma", np.array([0.7]))
    if found is None:
        summed = ("sink", "qk-norm", "rope", "chunk", "scale-invariant", "soft-cap",
                  "needle", "needle-above")  # fmt: skip
        assert rows in summed or (rows == "alibi" and kernel != "exp")
        return
    row = spec.law.row(spec.kernel, spec.given())
    wanted = float(evaluate(row, length=48).log_S)
    assert log_S_of(float(found[0][0]), 48) == pytest.approx(wanted, rel=1e-9)
    assert log_S_of(limit_at_point(spec).value, 48) == pytest.approx(wanted, rel=1e-9)
    wrong = float(evaluate(row, length=49).log_S)  # one token more is another law
    no_n = rows in ("iid", "sink-logit", "gate") or (
        rows == "scalable-softmax" and kernel != "exp"
    )  # β/γ is all that matters
    no_n |= (rows, kernel) == ("length-bias", "exp")  # a factor on all weights
    no_n |= rows in (
        "floor-log",
        "yarn",
        "longrope",
    )  # short of the trained length, or whatever the length
    no_n |= rows == "log-n" and kernel != "exp"
    assert no_n or abs(wrong / wanted - 1) > 1e-6


def test_exact_points():
    (spec,) = start("relu2", length=100, gamma=0.5).specs()
    law = exact_law("relu2", length=100, beta=-1, gamma=0.5)
    point = exact_value(spec).value
    assert point == float(law.value)
    many = exact_at_lengths(spec, np.array([10.0, 100.0]))[0]
    assert many[1] == pytest.approx(point, rel=1e-12)
    (features,) = start("nonnegative").specs()
    assert exact_value(features) is None
    (slow,) = start("relu2", rows="alibi").specs()
    assert exact_value(slow) is None


def test_every_quantity_is_offered():
    offered = {plots.named(y).of for y in PLOTS}
    assert {*quantities.ALL, *quantities.OF_MAPS} <= offered
    assert {of_plot(y).partition(":")[0] for y in PLOTS} >= {f.name for f in quantities.FAMILIES}
    assert len(PLOTS) == len(set(PLOTS)) == 33


@pytest.mark.parametrize("y", [*OF_SOFTMAX, "power_sum:0.5"])
def test_values_are_those_of_the_instruments(y):
    (spec,) = start("exp", y=y, length=96, gamma=1.3).specs()
    of, asked = of_plot(y), 0
    found = exact_value(spec)
    assert (found is None) == bool(why_no_law(spec))
    if found is not None:
        asked += 1
        law = exact_law("exp", gamma=1.3, length=96, of=of)
        assert found == (float(law.value), float(law.error_bound))
        assert exact_value(spec.at("length", 97)).value != found.value
    if has_limit(spec):
        asked += 1
        wanted = float(evaluate(Row("exp", gamma=1.3), length=96, of=of).value)
        assert limit_at_point(spec).value == pytest.approx(wanted, rel=1e-12)
        known = bounded_limit(spec, "", np.zeros(1))
        assert known is None or float(known[0][0]) == pytest.approx(wanted, rel=1e-9)
        (sketch,) = previewed_limit(spec, "", np.zeros(1))
        assert float(sketch) == pytest.approx(wanted, rel=0.02)
    assert asked or y.partition(":")[0] in ("support", "keys_for_mass")  # which are sampled


@pytest.mark.parametrize(("kernel", "y"), [("relu2", "entropy"), ("exp", "power_sum:3")])
def test_a_first_look_at_a_quantity_is_close_to_its_limit(kernel, y):
    (spec,) = start(kernel, y=y, beta=-0.5).specs()
    gamma, rtol = np.array([0.4, 1.0]), 3e-3
    wanted = [limit_at_point(spec.at("gamma", each)).value for each in gamma.tolist()]
    np.testing.assert_allclose(previewed_limit(spec, "gamma", gamma), wanted, rtol=rtol)
    assert abs(wanted[0] / wanted[1] - 1) > 2 * rtol  # no other curve would do
    n = np.array([300.0])
    along = [limit_at_point(spec.at("length", 300.0)).value]
    np.testing.assert_allclose(previewed_limit(spec, "length", n), along, rtol=rtol)


def test_where_tokens_differ_no_first_look_is_made_up():
    (spec,) = start("exp", y="entropy", rows="decay", length=50).specs()
    assert np.isnan(previewed_limit(spec, "gamma", np.array([1.0]))).all()
    wanted = float(evaluate(spec.row(), length=50, of="entropy").value)
    assert limit_at_point(spec).value == wanted
    (beside,) = start("exp", y="participation", rows="sink-logit", length=50).specs()
    assert bounded_limit(beside, "gamma", np.array([1.0])) is None  # the logit counts
    alone = start("exp", y="participation", length=50).specs()[0]
    assert limit_at_point(beside).value < 0.9 * limit_at_point(alone).value


@pytest.mark.parametrize("name", ["relu2", "exp"])
def test_a_first_look_is_close_to_the_closed_form(name):
    beta = np.linspace(-4, 4, 50)
    for gamma in (0.3, 2.0, 6.0):
        found = preview(named(name), beta, np.full(50, gamma))
        np.testing.assert_allclose(found, evaluate(name, beta=beta, gamma=gamma).S, atol=3e-3)


SIGNED = {"recall"}
OF_SINKS = {"sink_mass", "sink_mass_above"}
OF_A_NEEDLE = {name for name in PLOTS if name.startswith("needle_")}


def test_what_cannot_be_had_says_why():
    assert why_not_plotted(start("exp")).keys() == SIGNED | OF_SINKS | OF_A_NEEDLE
    assert "choose a row law with one" in why_not_plotted(start("exp"))["sink_mass"]
    assert why_not_plotted(start("exp", rows="sink")).keys() == SIGNED | OF_A_NEEDLE
    assert why_not_plotted(start("exp", rows="sink-logit")).keys() == SIGNED | OF_A_NEEDLE
    assert why_not_plotted(start("exp", rows="needle")).keys() == SIGNED | OF_SINKS
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


@pytest.mark.parametrize(("name", "y"), [("sparsemax", "support"), ("topk:8", "power_sum:2")])
def test_maps_of_whole_rows_are_curves(name, y):
    state = opened(name, y=y, length=60, gamma=1.5)
    (spec,) = state.specs()
    own = {key: value for key, value in spec.values if key != "length"}
    assert own.keys() == {p.name for p in spec.kernel.parameters} - {"beta"}
    wanted = float(exact_law(name, length=60, of=of_plot(y), **own).value)
    assert exact_value(spec).value == pytest.approx(wanted, rel=1e-12)
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
    limits = bounded_limit(spec, "", np.zeros(1))
    assert limits is not None
    assert log_S_of(float(limits[0][0]), 50) == pytest.approx(wanted)
    (slow,) = opened("forgetting", length=50).specs()
    assert bounded_limit(slow, "", np.zeros(1)) is None
    own = {key: value for key, value in slow.values if key != "length"}
    wanted = float(evaluate("forgetting", length=50, **own).log_S)
    assert log_S_of(limit_at_point(slow).value, 50) == pytest.approx(wanted)
    (none,) = picture(opened("sparsemax"), Store()).content["curves"]
    assert (none["limit"], none["notes"]) == (None, ["no limit of long rows"])
