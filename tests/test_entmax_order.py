"""The exact law of entmax of any order, against what does not share its integrals."""

import functools
import itertools
import math

import mpmath
import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.integrate import quad
from scipy.optimize import brentq
from scipy.special import ndtr

import sparsity
from sparsity import InputError, Row
from sparsity.crosscheck.reference_grid import of_rows
from sparsity.crosscheck.verify import check
from sparsity.exact_law.integration import narrowed
from sparsity.exact_law.maps import entmax, gaussian_tail, sparsemax, threshold_maps
from sparsity.kernels.entmax import entmax as of_order
from sparsity.sampling import Sampling
from sparsity.sampling.row_sampling import draw_rows
from sparsity.special import ndtri_exp

ORDERS = ((1, 1), (2, 0), (3, 1))


def on_the_contour(saddle, width, t):
    place = threshold_maps.Place(*(np.array([[float(x)]]) for x in (t, saddle, width, 0)))
    z = threshold_maps.ThresholdMap().contour(place)[0][0]
    return np.full(z.shape, t), z


def found_on(t, z, weight, count=256):
    with np.errstate(all="ignore"):
        return gaussian_tail.along_rays(
            t, z, weight, ORDERS, gaussian_tail.best_rays(t, z, weight), count
        )


# The transforms of one key.


@pytest.mark.parametrize("t", [-4.0, 0.0, 3.0])
@pytest.mark.parametrize(("saddle", "width"), [(1.0, 2.0), (30.0, 10.0)])
def test_transforms_are_the_closed_ones(t, saddle, width):
    """Of sparsemax, q = 1, and of entmax-1.5, q = 2, with c = 1."""
    at, z = on_the_contour(saddle, width, t)
    g, log_h, h = gaussian_tail.of_squared_excess(at, z)
    square = found_on(at, z, gaussian_tail.Power(2.0, 1.0))
    for mine, true in zip((square.above, *square.orders), (g[0], g[1], g[4], g[5]), strict=True):
        assert_allclose(mine, true, rtol=1e-9)
    assert_allclose(square.all, h, atol=1e-13)
    assert_allclose(square.log_all, log_h, atol=1e-13)
    if saddle > 1:  # near 0 the rule of q = 1 takes more nodes, where nothing turns zx enough
        closed = gaussian_tail.of_excess(at, z)
        line = found_on(at, z, gaussian_tail.Power(1.0, 1.0))
        for mine, true in ((line.above, closed.above), (line.orders[1], closed.second)):
            assert_allclose(mine, true, rtol=1e-9)


def test_a_ray_beyond_half_a_turn():
    """Of q = ½ a ray may lead around 0: there x^q is no principal power."""
    weight = gaussian_tail.Power(0.5, 1.0)
    t, z = np.zeros((2, 1)), np.full((2, 1), 400 * np.exp(1.7j))
    angle = np.array([[0.6], [3.4]])
    fall = np.abs(z) * np.cos(np.angle(z) - 0.5 * angle)
    rays = gaussian_tail.RayPiece(angle, np.zeros((2, 1)), (40 / fall) ** 2)
    found = gaussian_tail.along_rays(t, z, weight, ORDERS, rays, 256)
    for one in (found.above, *found.orders):
        assert_allclose(one[1], one[0], rtol=1e-5)  # x^(−½) at 0 loses 1e-7 of the ray's end


@pytest.mark.parametrize("q", [10.0, 4.0, 10 / 7])
def test_transforms_along_another_ray(q):
    """By mpmath on a ray of its own, at arguments on either side of the imaginary axis."""
    t, c = 0.5, 2.0
    z = np.repeat([[1.0, 3 + 4j, -1 + 8j, -4 + 11j]], 3, axis=1)  # that share their rays
    mine = found_on(np.full(z.shape, t), z.astype(complex), gaussian_tail.Power(q, c))
    for i, at in enumerate(z[0][::3]):
        angle = mpmath.expj(-0.8 * max(float(np.angle(at)) - 1.0, 0) / min(q, 4))

        @functools.cache  # of all powers
        def weight(r, at=at, angle=angle):
            x = r * angle
            return x, mpmath.exp(-((t + x) ** 2) / 2 - at * (x / c) ** q) * angle

        for power, value in zip((q - 1, 2 * q, 3 * q - 1), mine.orders, strict=True):

            def body(r, power=power, weight=weight):
                x, weighed = weight(r)
                return (x / c) ** power * weighed

            true = mpmath.quad(body, [0, 0.5, 1, 2, 3, 5, 12]) / mpmath.sqrt(2 * mpmath.pi)
            assert abs(complex(true) / value[0, 3 * i] - 1) < 1e-9


# The law.


def two_keys(alpha, gamma):
    """E K and E Y₂ of two keys: (α − 1)d = x − y of scores d apart, with x^q + y^q = 1."""
    q, s = 1 / (alpha - 1), math.sqrt(2) * gamma

    def mean(weigh):
        def body(y):
            x = (1 - y**q) ** (1 / q)
            d, slope = q * (x - y), q * (1 + (y / x) ** (q - 1))
            density = 2 * math.exp(-d * d / (2 * s * s)) / (s * math.sqrt(2 * math.pi))
            return density * slope * weigh(x ** (2 * q) + y ** (2 * q))

        top = 0.5 ** (1 / q)
        cuts = [0.0, *(top * (1 - 10.0**-k) for k in (0.1, 0.3, 0.6, 1, 1.5, 2, 3)), top]
        ends = itertools.pairwise(cuts)
        return sum(quad(body, a, b, epsabs=1e-16, epsrel=1e-13)[0] for a, b in ends)

    alone = 2 * ndtr(-q / s)
    assert abs(alone + mean(lambda y2: 1) - 1) < 1e-12
    return np.array([alone + 2 * mean(lambda y2: 1), alone + mean(lambda y2: y2)])


@pytest.mark.parametrize(
    ("alpha", "gamma"),
    [
        (1.01, 5.0),
        (1.1, 0.5),
        (1.25, 0.3),
        pytest.param(1.25, 2.0, marks=pytest.mark.slow),
        (1.75, 1.0),
    ],
)
def test_two_keys(alpha, gamma):
    found, true = entmax.law(alpha, gamma, np.array([2])), two_keys(alpha, gamma)
    assert_allclose(found.value[:, 0], true, rtol=1e-12)
    assert (found.error < 1e-7).all()
    assert_allclose(found.total, 1, atol=1e-12)


class OfOrderThree(entmax.Entmax):
    """CONTRIBUTING's map of q = ½ < 1: ends of t without the one that is of a convex x^q."""

    bend = math.pi / 16

    def window(self, n):
        m, depth = n[:, 0], threshold_maps.DEPTH
        low = ndtri_exp(-depth / m) - self.c
        high = -ndtri_exp(-depth - np.log(m)) - self.c * m ** (-1 / self.q)
        return narrowed(low, high, lambda t: self.look(t, n).log_size, depth=depth)


@pytest.mark.parametrize("gamma", [0.3, 1.0, 3.0])
def test_a_map_of_a_power_below_one(gamma, monkeypatch):
    """To the 1e-7 that the rule along a ray has of x^(−½); a contour of π/8 says it has nothing."""
    with np.errstate(all="ignore"):
        found = OfOrderThree(3.0, gamma).law(np.array([2.0]))
        monkeypatch.setattr(OfOrderThree, "bend", math.pi / 8)
        wrong = OfOrderThree(3.0, gamma).law(np.array([2.0]))
    assert_allclose(found.value[:, 0], two_keys(3.0, gamma), rtol=3e-7)
    assert (found.error < 2e-6).all()
    assert not (wrong.error < 1e-4).all()


def of_three_halves(gamma, lengths):
    return entmax.law(1.5, gamma, lengths)


@pytest.mark.parametrize(
    ("alpha", "closed", "gamma"),
    [
        (1.5, of_three_halves, 0.3),
        (2.0, sparsemax.law, 4.0),
        pytest.param(1.5, of_three_halves, 4.0, marks=pytest.mark.slow),
        pytest.param(2.0, sparsemax.law, 0.3, marks=pytest.mark.slow),
    ],
)
def test_the_orders_that_have_closed_transforms(alpha, closed, gamma):
    lengths = np.array([1, 3, 4096])
    found, true = (
        entmax.law_by(entmax.Entmax(alpha, gamma), alpha, gamma, lengths),
        closed(gamma, lengths),
    )
    assert_allclose(found.value, true.value, rtol=1e-10)
    assert (np.abs(found.value / true.value - 1) <= found.error + true.error).all()


@pytest.mark.parametrize(
    ("alpha", "gamma", "length"),
    [pytest.param(1.25, 1.0, 64, marks=pytest.mark.slow), (1.1, 1.0, 4096)],
)
def test_a_finer_rule_agrees(alpha, gamma, length, monkeypatch):
    found = entmax.law(alpha, gamma, np.array([length]))
    monkeypatch.setattr(entmax.Entmax, "points", 401)
    monkeypatch.setattr(entmax, "_NODES", (128, 384))
    monkeypatch.setattr(entmax, "_LEAST_CROSSING", 1.5)  # and another contour
    fine = entmax.law(alpha, gamma, np.array([length]))
    assert (np.abs(fine.value / found.value - 1) <= found.error).all()
    assert (found.error <= 1e-5).all()
    assert_allclose(found.total, 1, atol=1e-9)


def test_between_softmax_and_sparsemax():
    lengths = np.array([2, 1000])
    names = ("sparsemax", "entmax:1.75", "entmax1.5", "entmax:1.25", "exp")
    y2 = [sparsity.exact(name, gamma=1.0, length=lengths, of="participation") for name in names]
    assert (np.diff([found.value for found in y2], axis=0) < 0).all()
    keys = [sparsity.exact(x, gamma=1.0, length=lengths, of="support") for x in names[:4]]
    assert (np.diff([found.value for found in keys], axis=0) > 0).all()


@pytest.mark.parametrize(("alpha", "gamma", "length"), [(1.05, 0.1, 2), (1.25, 0.1, 8)])
def test_even_rows(alpha, gamma, length, monkeypatch):
    """Powers of γ, which stand where no rule is needed, against the rule and two keys."""
    n = np.array([length])
    even = entmax.even_rows(alpha, gamma, n.astype(float))
    ruled = entmax.law(alpha, gamma, n)
    assert (np.abs(even.value / ruled.value - 1) <= even.error + ruled.error).all()
    assert (ruled.error <= even.error + 1e-10).all()
    tiny = entmax.law(alpha, 0.01, n)
    assert (tiny.error < 1e-8).all()
    assert_allclose(tiny.value[0], length)
    if length == 2:
        assert_allclose(even.value[:, 0], two_keys(alpha, gamma), rtol=2e-6)
        assert np.abs(even.value[1, 0] / two_keys(alpha, gamma)[1] - 1) > 1e-8
        assert_allclose(tiny.value[:, 0], two_keys(alpha, 0.01), rtol=1e-11)


def test_what_is_not_resolved_is_refused(command, monkeypatch):
    monkeypatch.setattr(entmax, "_NODES", (8, 16))
    line = "exact entmax:1.05 --gamma 2 --length 4 --of support"
    code, out, err = command(*line.split())
    assert (code, out) == (2, "")
    assert err.startswith("sparsity: gamma = 2.0: the exact law of entmax of order 1.05 is not")
    assert len(err.splitlines()) == 1


# Sampled rows.


def held(alpha, cells, sampling):
    """|z| of each law against the same draws of both quantities."""
    z = []
    for gamma, length in cells:
        row, names = Row(of_order(alpha), gamma=gamma), ("participation", "support")
        drawn = draw_rows(row, length, sampling, names)
        for of in names:
            found, rows = sparsity.exact(row, of=of, length=length), drawn.estimate(of)
            error = math.hypot(rows.rel_stderr, 1e-6)  # the draws are of float32
            z.append(abs(rows.log_value - found.log_value) / error)
    return np.array(z)


@pytest.mark.slow
@pytest.mark.parametrize("alpha", [1.1, 1.25, 1.75])
def test_many_sampled_rows(alpha):
    """10⁶ rows of up to 256 keys, 10⁵ of 4096."""
    many = Sampling(1e-9, max_samples=1e6, seed=21, dtype=np.float32)
    long = Sampling(1e-9, max_samples=1e5, seed=22, dtype=np.float32)
    z = held(alpha, [(g, n) for n in (2, 16, 256) for g in (0.5, 2.0)], many)
    z = np.concatenate([z, held(alpha, [(2.0, 4096)], long)])
    print(f"α = {alpha}: |z| {np.round(z, 2)}")
    assert len(z) == 14
    assert z.max() < 4


# Planted errors.


@functools.cache
def right_law():
    """Of rows of 8, before anything is planted."""
    return entmax.law(1.25, 1.0, np.array([8]))


def mean_field(q, c, n):
    """n E p² at the threshold where n E p is 1."""

    def mean(t, power):
        def body(x):
            return ((x - t) / c) ** power * math.exp(-x * x / 2) / math.sqrt(2 * math.pi)

        return n * quad(body, t, 12)[0]

    t: float = brentq(lambda t: mean(t, q) - 1, -9, 9)  # type: ignore[assignment]
    return mean(t, 2 * q)


def test_planted_wrong_laws_are_rejected():
    """A threshold at which the mean of the sum is 1, q − 1 for q, and |dΣp/dt| left out."""
    q, gamma, n = 4, 1.0, 8
    cell = of_rows(Row(of_order(1 + 1 / q), gamma=gamma), n, "participation")
    keys = sparsity.exact(cell.row, of="support", length=n).value
    other = entmax.law(1 + 1 / (q - 1), gamma * (q - 1) / q, np.array([n]))  # c is the same
    wrong = (
        math.log(mean_field(q, q / gamma, n)),
        math.log(other.value[1, 0]),
        cell.theory() - math.log(keys),
    )
    (right,) = check([cell], seed=4, detectable=5e-3)
    assert right.verdict == "agree"
    for value in wrong:
        given = {"theory": lambda asked, value=value: value, "sample": lambda *_: right.estimate}
        (judged,) = check([cell], detectable=5e-3, **given)
        assert judged.verdict == "disagree"
    assert len(wrong) == 3


@pytest.mark.parametrize("planted", ["slope of x", "power of the weights"])
def test_a_wrong_integrand_is_refused(planted, monkeypatch):
    """The probability that it finds is not 1: the bound says so."""
    assert (right_law().error < 1e-7).all()
    if planted == "slope of x":  # (x/c)^q for (x/c)^(q−1)
        monkeypatch.setattr(entmax, "_ORDERS", ((1, 0), (2, 0), (3, 0)))
    if planted == "power of the weights":
        honest = gaussian_tail.along_rays

        def wrong(t, z, weight, *rest):
            return honest(t, z, weight._replace(q=weight.q - 1), *rest)

        monkeypatch.setattr(entmax, "along_rays", wrong)
    with pytest.raises(InputError, match="is not resolved there"):
        entmax.law(1.25, 1.0, np.array([8]))
