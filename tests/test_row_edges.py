"""Rows at their edges: constant quantities, weights next to nothing, wrong steps, bad input."""

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import mpmath
import numpy as np
import pytest

from sparsity import (
    Alibi,
    Decay,
    InputError,
    Row,
    ScalableSoftmax,
    Sink,
    SinkLogit,
    Window,
    estimate,
    evaluate,
    exact,
    sweep,
    verify,
)

SOFTMAX = Row("exp", gamma=1.0)
NARROW = Row("exp", gamma=0.25)  # the moments of its weights are known by few rows


def test_constant_quantities_agree_to_rounding():
    """Rounding is part of the error bar: a last digit is no disagreement."""
    row, n = NARROW.then(Window(1)), 8  # tokens of one kernel and length compile once
    found = verify(row, length=n, detectable=1e-2)
    assert found.agree, [(c.quantity, c.z) for c in found.cells if c.verdict != "agree"]
    assert len(found.cells) >= 4
    assert all(cell.detectable > 0 for cell in found.cells)
    drawn = estimate(row, length=n, of="n_eff", rel_error=1e-2)
    assert 0 < drawn.stderr


def light(of, gamma, logit):
    """The quantity of one token of softmax beside a sink logit, by a fine sum of 40 digits."""
    with mpmath.workdps(40):
        g, b = mpmath.mpf(gamma), mpmath.mpf(logit)
        rate = 1 if of == "sink_mass" else -1

        def integrand(t):
            share = 1 / (1 + mpmath.exp(rate * (g * t - b)))
            return mpmath.exp(-t * t / 2) * (share if of == "sink_mass" else share**2)

        many = 5 * gamma  # a unit of t: poles are π/γ away, so the sum is off by e^(−2π²·5)
        step = mpmath.mpf(1) / many
        total = mpmath.fsum(integrand(k * step) for k in range(-45 * many, 45 * many))
        return total * step / mpmath.sqrt(2 * mpmath.pi)


LIGHT = (("participation", 4, 300), ("sink_mass", 14, -600), ("sink_mass", 1, 0))


@pytest.mark.parametrize(("of", "gamma", "logit"), LIGHT)
def test_masses_next_to_nothing_are_within_their_bounds(of, gamma, logit):
    row = Row("exp", gamma=gamma, steps=(SinkLogit(float(logit)),))
    found, truth = exact(row, length=1, of=of), light(of, gamma, logit)
    error = float(abs(mpmath.mpf(float(found.value)) / truth - 1))
    assert error <= float(found.error_bound) < 1e-11


@dataclass(frozen=True)
class Forgetful:
    """ALiBi that does not say where it changes."""

    name: ClassVar[str] = "forgetful"
    example: ClassVar[tuple[Any, ...]] = (0.3,)

    slope: float

    def breaks(self, length):
        return np.empty(0)

    def __call__(self, tokens, length):
        return replace(tokens, beta=tokens.beta - self.slope * tokens.distance)


@pytest.mark.thorough
def test_a_step_that_hides_where_it_changes_is_seen():
    right = verify(NARROW.then(Alibi(0.3)), length=8, detectable=1e-2)
    wrong = verify(NARROW.then(Forgetful(0.3)), length=8, detectable=1e-2)
    assert right.agree
    assert not wrong.agree


@pytest.mark.parametrize(
    ("case", "argument"),
    [
        (lambda: Decay("0.5"), "decay"),
        (lambda: evaluate(SOFTMAX, length=-8), "length"),
        (lambda: evaluate(SOFTMAX, gamma=2), "gamma"),
        (lambda: evaluate(SOFTMAX.then(Window(2)), length=4, method="quadrature"), "method"),
        (lambda: evaluate(SOFTMAX.then(ScalableSoftmax())), "length"),
        (lambda: Row("decayed", decay=0.5).gamma, "kernel"),
        (lambda: SOFTMAX.replace(steps=()), "steps"),
        (lambda: Row(SOFTMAX), "kernel"),
        (lambda: sweep("exp", gamma=[1, 2], montecarlo=True, seed=-1), "seed"),
    ],
)
def test_bad_input_is_refused_by_name(case, argument):
    with pytest.raises(InputError) as refused:
        case()
    assert refused.value.argument == argument


@pytest.mark.parametrize(
    "row", [SOFTMAX.then(Sink(1.0), Window(2)), Row("relu2", beta=1, gamma=1, steps=(Sink(-1.0),))]
)
def test_a_sink_that_weighs_nothing_is_refused_alike(row):
    for instrument in (exact, estimate):
        with pytest.raises(InputError, match="no sink in sight"):
            instrument(row, length=8, of="sink_mass")
