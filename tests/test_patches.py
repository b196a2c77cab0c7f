"""Whole grids of points from shared nodes: each within its own bound of references by Arb."""

import math

import numpy as np
import pytest
from sympy import Abs, Piecewise, Rational, cosh, erf, exp, floor, log, sin, sqrt, tanh

from sparsity import InputError, evaluate, score_kernel
from sparsity.kernels.symbols import s
from sparsity.limit import patches, quadrature
from sparsity.limit.densities import Gaussian, Neighbour
from sparsity.limit.panels import Axis

pytest.importorskip("flint")
from benchmarks.campaign.reference import log_s

SOFTPLUS = log(1 + exp(s))
USERS = {
    "softplus": SOFTPLUS,
    "gelu": s * (1 + erf(s / sqrt(2))) / 2,
    "root": Abs(s) ** Rational(3, 10),
    "piecewise": Piecewise((exp(s), s < 0), (1 + s, True)),
    "product": SOFTPLUS * tanh(s) ** 2 / (1 + exp(-s)),
}
MORE = {
    "cosh": cosh(s),
    "softplus twice": SOFTPLUS * log(1 + exp(s - 3)),
    "steps": Piecewise((1, s < -2), (exp(-s), s < 1), (s**2, True)),
    "waves": 2 + sin(s),
}
GAMMA = np.geomspace(0.1, 10, 400)
POWERS = (1.0, 2.0)


def _checked(name, weight, beta, gamma):
    kernel = score_kernel(name, weight)
    found = evaluate(kernel, beta=beta, gamma=gamma)
    for b, c, value, bound in zip(beta, gamma, found.log_S, found.error_bound, strict=True):
        reference = log_s(weight, float(b), float(c))
        assert reference.method == "Arb", (name, b, c)
        assert abs(float(reference.log_S) - value) <= bound, (name, b, c)
        assert bound <= 1e-11
    return len(beta)


@pytest.mark.thorough
def test_points_of_a_curve():
    name = "product"
    kernel = score_kernel(name, USERS[name])
    zero = np.zeros(len(GAMMA))
    _, error = patches.log_moments(kernel, POWERS, zero, GAMMA)
    assert np.isfinite(error).all()  # none of them goes point by point
    assert _checked(name, USERS[name], np.zeros(2), GAMMA[[0, 399]]) == 2


@pytest.mark.parametrize("name", ["softplus", "root", "cosh"])
def test_a_point_does_not_depend_on_its_company(name):
    kernel = score_kernel(name, (USERS | MORE)[name])
    beta, gamma = np.random.default_rng(3).normal(size=(2, 6)), np.array([[0.4], [5.0]])
    together = evaluate(kernel, beta=beta, gamma=gamma)  # of wide laws, many in one patch
    for i, j in ((0, 0), (0, 5), (1, 2)):
        alone = evaluate(kernel, beta=beta[i, j], gamma=gamma[i, 0])
        assert alone.log_S == together.log_S[i, j]
        assert alone.error_bound == together.error_bound[i, j]


def test_a_law_of_the_wrong_place_is_seen(monkeypatch):
    """The nodes of a patch with masses that are off by 1e-10 leave the bound."""
    kernel = score_kernel("softplus", SOFTPLUS)
    good = patches.patch(kernel, POWERS, 1.0, 0.0, 0.0)
    assert good is not None
    wrong = good._replace(mass=good.mass * np.array([[1.0], [1 + 1e-10]]))
    monkeypatch.setattr(patches, "patch", lambda *_: wrong)
    found = evaluate(kernel, beta=0.0, gamma=1.0)
    assert abs(float(log_s(SOFTPLUS, 0.0, 1.0).log_S) - found.log_S) > found.error_bound


def test_the_corners_bound_what_is_between():
    """Errors of panels over the mass of another are largest at a corner, as the proof says."""
    kernel = score_kernel("product", USERS["product"])
    frame = Gaussian(0.0, 1.0)
    rng = np.random.default_rng(5)
    corners = [(b, c) for b in (-0.5, 0.5) for c in (2**-0.5, 2**0.5)]
    inside = [(b, 2**c) for b, c in rng.uniform(-0.5, 0.5, (20, 2))]
    axis = Axis(quadrature.definition(kernel), frame)
    laws = [Neighbour(frame, b, c) for b, c in corners + inside]
    for low, high in ((-9.0, -8.0), (-1.5, -1.0), (2.0, 3.0), (12.0, 16.0)):
        centre, half = (low + high) / 2, (high - low) / 2
        tilt = tuple(2 * c for c in axis.f.tilt)
        most = [law.bound_on_boxes(centre, 1.3 * half, 0.9 * half, tilt) for law in laws]
        least = [law.bounds_on_segments(0.5, 1.0, tilt)[0] for law in laws]
        over = np.array(most) - np.array(least)
        assert over[4:].max() <= over[:4].max() + 1e-12


def test_too_far_from_a_patch_goes_point_by_point():
    kernel = score_kernel("cosh", cosh(s))
    for beta, gamma in ((0.0, 300.0), (1e9, 1.0)):
        _, error = patches.log_moments(kernel, POWERS, np.array([beta]), np.array([gamma]))
        assert np.isinf(error).all()
    found = evaluate(kernel, beta=0.0, gamma=300.0)  # E cosh² = (1 + e^(2γ²))/2
    assert abs(found.log_S - (-(300.0**2) / 2 + math.log(2) / 2)) <= found.error_bound


def test_parameters_at_the_end_of_float64_are_refused_in_words():
    with pytest.raises(InputError, match="weight"):
        evaluate(score_kernel("cube", Abs(s) ** 3), beta=0.0, gamma=1.7e308)


def test_a_patch_of_very_many_nodes_is_not_kept():
    """Each point is then by itself; memory stays bounded."""
    kernel = score_kernel("stairs", 2 + floor(30 * s))
    assert patches.patch(kernel, POWERS, 1.0, 2.0, 0.0) is None
    for found in map(patches.patch, [kernel] * 3, [POWERS] * 3, [0.25] * 3, (-8, 0, 4), [0.0] * 3):
        assert found is None or len(found.x) <= 6000


def test_a_wide_gaussian_is_uniform_to_a_periodic_kernel():
    """Then the law of a period serves, whose bound is smaller than that of a patch could be."""
    found = evaluate(score_kernel("ripples", 2 + sin(200 * s)), beta=0.0, gamma=[1.0, 3.0, 10.0])
    assert (found.error_bound < 5e-14).all()
    np.testing.assert_allclose(found.log_S, math.log(2) - math.log(4.5) / 2, atol=5e-14)


@pytest.mark.parametrize("gamma", [1.95, 2.5])
def test_mass_that_the_middle_of_a_patch_cannot_see_is_not_lost(gamma):
    """A far bump that only wide laws reach: whatever route answers, it does within its bound."""
    weight = 1 + exp(440 - 1000 * (s - 60) ** 2)
    found = evaluate(score_kernel("bump", weight), beta=0.0, gamma=gamma)
    reference = log_s(weight, 0.0, gamma)
    assert reference.method == "Arb"
    assert abs(float(reference.log_S) - found.log_S) <= found.error_bound
    assert found.error_bound <= 1e-9


def test_densities_that_rise_too_far_are_not_shared(monkeypatch):
    kernel = score_kernel("softplus", SOFTPLUS)
    assert patches.patch.__wrapped__(kernel, POWERS, 1.0, 1.0, 0.0) is not None
    monkeypatch.setattr(patches, "MAX_LOG_RATIO", 0.0)
    assert patches.patch.__wrapped__(kernel, POWERS, 1.0, 1.0, 0.0) is None
