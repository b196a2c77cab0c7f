"""What a quantity can be, and what is done with a value that lies outside: never a silent clip."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest

from benchmarks.campaign import row_reference as reference
from sparsity import InputError, QKNorm, Row, StudentT, Uniform, evaluate, exact, quantities
from sparsity.errors import RESOLVED, check_resolved
from sparsity.exact_law import engine
from sparsity.exact_law.exact import exact_grid
from sparsity.kernels import exp
from sparsity.quantities.base import clip_to_range
from sparsity.rows.steps import ALL

STEPS = {step.name: step for step in ALL}
# Everything that adds mass to a row or takes it from tokens, alone and beside a sink logit.
MASS = (
    (("sink-logit", (0.0,)),),
    (("sink-logit", (10.0,)),),
    (("sink-logit", (0.0,)), ("sink-logit", (3.0,))),
    (("sink", (3.0, 0.0)), ("sink-logit", (1.0,))),
    (("sink", (1.0, 0.5)),),
    (("decay", (0.5,)), ("sink-logit", (2.0,))),
    (("window", (1,)), ("sink-logit", (0.0,))),
    (("alibi", (0.3,)), ("sink-logit", (1.0,))),
    (("qk-norm", (4,)), ("sink-logit", (1.0,))),
)
OF = ("S", "n_eff", "participation", "entropy", "hoyer", "sink_mass",
      "power_sum:0.5", "power_sum:0.9", "power_sum:3", "power_sum:8")  # fmt: skip
RANKS = ("max_weight", "gini", "top_k_mass:2")


def _softmax(gamma, *steps):
    made = tuple(STEPS[name](*own) for name, own in steps)
    return Row("exp", gamma=gamma, steps=made)


@pytest.mark.parametrize(
    ("gamma", "steps", "n", "of", "true"),
    [
        (1.0, (("sink-logit", (3.0,)),), 2, "power_sum:0.5", 0.46189003),
        (0.1, (("sink-logit", (0.0,)), ("window", (2,))), 1000, "entropy", 0.7306013),
        (1.0, (("sink-logit", (10.0,)),), 64, "power_sum:0.9", 0.01179),
    ],
)
def test_the_share_of_a_sink_logit_is_not_forgotten(gamma, steps, n, of, true):
    law = exact(_softmax(gamma, *steps), length=n, of=of)
    assert law.error_bound < 1e-11
    digits = 1e-3 if n == 64 else 1e-7
    assert float(law.value) == pytest.approx(true, rel=digits)
    tokens = reference.tokens_of(0.0, gamma, steps, n)
    found = reference.by_nodes("exp", None, tokens, of)
    if found is None:
        found = reference.by_sampling("exp", None, tokens, of, seed=3, times=1)
    assert abs(law.value - found.value) < 5 * found.error + 1e-11 * found.value


ROWS = (("exp", 1, 0.05), ("exp", 2, 2.0), ("exp", 40, 0.5), ("relu2", 1, 2.0),
        ("gelu", 1, 0.4))  # fmt: skip


def _cells():
    for steps, of, (kernel, n, gamma) in itertools.product(MASS, OF, ROWS):
        sinks = any(name.startswith("sink") for name, _ in steps)
        if sinks or of != "sink_mass":
            yield kernel, steps, of, n, gamma


@pytest.mark.thorough
def test_no_value_is_moved_farther_than_its_bound_and_short_rows_are_as_brute_force_has_them(
    monkeypatch,
):
    """A value that its ends would move is refused, so that every answer here was inside them."""
    moved = []

    def watched(value, error, ends):
        inside = clip_to_range(value, error, ends)
        most = np.abs(value) * error + 1e-14 * np.abs(inside)
        moved.append(np.all(np.abs(value - inside) <= most))
        return inside

    monkeypatch.setattr(engine, "clip_to_range", watched)
    judged = 0
    for kernel, steps, of, n, gamma in itertools.islice(_cells(), 0, None, 12):
        made = tuple(STEPS[name](*own) for name, own in steps)
        row = Row(kernel, beta=0.4, gamma=gamma, steps=made)
        law = exact(row, length=n, of=of)
        if n > 2:
            continue
        scores = next(((name, own) for name, own in steps if name == "qk-norm"), None)
        own = [step for step in steps if step[0] != "qk-norm"]
        tokens = reference.tokens_of(0.4, gamma, own, n)
        found = reference.by_nodes(kernel, scores, tokens, of)
        assert found is not None
        gap = abs(float(law.value) - found.value)
        rounding = 2e-13 * (1.0 if of == "hoyer" else abs(found.value))
        assert gap <= law.error_bound * law.value + 4 * found.error + rounding, (row, n, of)
        judged += found.error <= 1e-7 * abs(found.value)
    assert judged >= 20
    assert len(moved) >= 15
    assert all(moved)


@pytest.mark.parametrize(("of", "logit"), [("entropy", 0.0), ("participation", 3.0)])
def test_ends_that_forget_a_sink_logit_are_found_out(of, logit):
    """The planted mistake: the ends of rows without a sink logit."""
    whole = quantities.named(of)
    assert whole.integral is not None
    ends = whole.integral.ends
    integral = replace(whole.integral, ends=lambda n, seen, unit: ends(n, seen, False))
    wrong = replace(whole, integral=integral)
    with pytest.raises(InputError, match="lies outside"):
        exact(_softmax(0.1, ("sink-logit", (logit,))), length=2, of=wrong)
    without = exact(_softmax(0.1), length=2, of=wrong), exact(_softmax(0.1), length=2, of=whole)
    assert without[0].value == without[1].value


@pytest.mark.parametrize("of", [*OF, *RANKS])
def test_rows_of_any_weights_lie_between_the_ends(of):
    """Rows from one-hot to uniform, with what is beside the tokens from next to nothing on."""
    rng = np.random.default_rng(5)
    quantity = quantities.named(of)
    for n, unit in itertools.product((1, 2, 3, 7), (False, True)):
        spread = rng.choice([1e-6, 0.3, 3.0, 300.0], (400, 1))
        log_a = spread * rng.standard_normal((400, n))
        sink = np.arange(n) == n - 1
        for b in rng.uniform(-30, 30, 8) if unit else [None]:
            tokens = reference.plain(n)._replace(sink=sink, units=[] if b is None else [float(b)])
            found = reference.value(of, log_a, tokens)
            least, most = quantity.ends(n, unit)
            assert np.all(found >= least - 1e-12)
            assert np.all(found <= most + 1e-12)


def test_a_value_is_moved_within_its_bound_and_refused_outside():
    assert clip_to_range(1 + 1e-12, 1e-11, (0.0, 1.0)) == 1.0
    with pytest.raises(InputError, match=r"exact law = 1\.1: lies outside 0 to 1, where it must"):
        clip_to_range(np.array([0.5, 1.1]), 1e-11, (0.0, 1.0))
    assert clip_to_range(1.1, RESOLVED, (0.0, 1.0)) == 1.0  # refused below, as not resolved


def test_a_bound_of_no_use_is_a_refusal():
    with pytest.raises(InputError, match="n_eff: is not resolved at length 2: its relative error"):
        exact(Row("1/s", beta=5.0, gamma=1.0), length=2)
    assert exact(Row("1/s", beta=5.0, gamma=1.0), length=1).value == 1  # whatever its weight is
    with pytest.raises(InputError, match=r"at length 2 and 1 more of 3 values.*leave that out"):
        exact(Row("1/s", beta=5.0, gamma=1.0), length=[1, 2, 3])


def test_every_route_refuses_it(monkeypatch):
    """The same limit for rows without steps on a grid, and for the limit of long rows."""
    tail = engine.integrate_over_u

    def loose(*given):
        value, error = tail(*given)
        return value, error + 1e-2

    monkeypatch.setattr(engine, "integrate_over_u", loose)
    grids = {"beta": np.array([0.0]), "gamma": np.array([0.5, 1.5])}
    with pytest.raises(InputError, match=r"beta 0 and gamma 0\.5 and length 5 and 1 more of 2"):
        exact_grid(exp, grids, np.array([5]), quantities.n_eff)
    rough = replace(quantities.entropy, limit=lambda rows: (rows.n, 0.1 * rows.n))
    with pytest.raises(
        InputError, match=r"gamma 1 and length 7 and 1 more of 2 values: .* 0\.1, not"
    ):
        evaluate("exp", gamma=1.0, of=rough, length=[7, 8])


@pytest.mark.parametrize("error", [RESOLVED, math.inf, math.nan])
def test_the_limit_itself_is_refused(error):
    check_resolved("S", [0.0, 0.99 * RESOLVED], length=[1, 2])
    with pytest.raises(InputError, match="not resolved"):
        check_resolved("S", error)


@pytest.mark.parametrize("kernel", ["relu2", "threshold"])
def test_the_rare_rows_in_which_no_token_has_a_weight_count(kernel):
    """Beside a light sink logit they are all that matters, down to P(f = 0) = 1e-19."""
    judged = 0
    for z, logit, n in itertools.product((6.5, 7.25, 7.5, 8.0, 9.0), (-10.0, -40.0), (1, 2)):
        if n == 2 and (z, logit) != (7.5, -40.0):
            continue
        steps = (("sink-logit", (logit,)),)
        row = Row(kernel, beta=0.4, gamma=0.4 / z, steps=(STEPS["sink-logit"](logit),))
        law = exact(row, length=n, of="sink_mass")
        tokens = reference.tokens_of(0.4, 0.4 / z, steps, n)
        found = reference.by_nodes(kernel, None, tokens, "sink_mass")
        assert found is not None
        gap = abs(law.value - found.value)
        assert gap <= (law.error_bound + 2e-13) * found.value + 4 * found.error, (z, logit, n)
        judged += found.error < 1e-9 * found.value
    assert judged == 11


@pytest.mark.parametrize("scores", [Uniform(), StudentT(5.0), QKNorm(4), None])
def test_the_chance_of_no_weight_has_its_digits_for_every_law_of_scores(scores):
    beta = 1.72 if scores == Uniform() else 1.99 if scores == QKNorm(4) else 1.41
    beta = 30.0 if scores == StudentT(5.0) else 7.5 if scores is None else beta
    law = exact(Row("relu", beta=beta, gamma=1.0, scores=scores,
                    steps=(STEPS["sink-logit"](-60.0),)), length=1, of="sink_mass")  # fmt: skip
    own = {Uniform(): ("uniform", ()), StudentT(5.0): ("t", (5.0,)), None: None,
           QKNorm(4): ("qk-norm", (4,))}[scores]  # fmt: skip
    tokens = reference.tokens_of(beta, 1.0, (("sink-logit", (-60.0,)),), 1)
    found = reference.by_nodes("relu", own, tokens, "sink_mass")
    assert found is not None
    assert 1e-15 < found.value < 0.2
    assert float(law.value) == pytest.approx(found.value, rel=1e-10)


def test_a_fixed_score_at_a_jump_has_the_weight_that_f_has_there():
    at_jump = Row("threshold", beta=1.0, gamma=1.0, steps=(STEPS["sink"](0.0),))
    assert exact(at_jump, length=2).value == 1  # e^s for s > 0: at 0 the sink has no weight
    above = Row("threshold", beta=1.0, gamma=1.0, steps=(STEPS["sink"](1e-9),))
    assert exact(above, length=2).value > 1.4


@pytest.mark.parametrize("order", [4.5, 8.0])
def test_high_orders_hold_their_bound_between_tokens(order):
    """Tokens of different weights, whose transforms are summed on one grid."""
    steps = (("decay", (0.83143,)),)
    row = Row("exp", gamma=0.0176, steps=(STEPS["decay"](0.83143),))
    law = exact(row, length=2, of=f"power_sum:{order:g}")
    tokens = reference.tokens_of(0.0, 0.0176, steps, 2)
    found = reference.by_nodes("exp", None, tokens, f"power_sum:{order:g}")
    assert found is not None
    assert abs(law.value - found.value) <= law.error_bound * law.value + 4 * found.error
    assert law.error_bound < 1e-11
    assert found.error < 1e-13


def test_a_value_below_float64_is_judged_by_its_logarithm():
    far = evaluate("exp", gamma=1e8)
    assert (float(far.value), float(far.log_value)) == (0.0, -5e15)
    assert float(far.error_bound) > RESOLVED
