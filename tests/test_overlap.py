"""What two rows have in common: exact laws against definitions, drawn rows, ends and limits."""

import itertools
import math

import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import ndtr

import sparsity
from sparsity import InputError, Row, metric
from sparsity.exact_law.overlap import mean_product

RHOS = (-1.0, -0.6, 0.0, 0.3, 0.9, 0.99, 1.0)


def exact(of, n, gamma=1.0, **given):
    return sparsity.exact("exp", gamma=gamma, length=n, of=of, **given)


def normals(step, far=8.5):
    z = np.arange(-far, far + step, step)
    share = np.exp(-0.5 * z * z)
    return z, share / share.sum()


def test_overlap_of_two_and_three_tokens_by_a_grid_of_normals():
    z, share = normals(0.2)
    for gamma, rho in ((1.0, 0.5), (2.0, -0.9)):
        turned = rho * z[:, None] + math.sqrt(1 - rho**2) * z
        p, other = (1 / (1 + np.exp(-math.sqrt(2) * gamma * x)) for x in (z[:, None], turned))
        true = share @ (p * other + (1 - p) * (1 - other)) @ share
        law = exact(f"overlap:{rho}", 2, gamma)
        assert abs(law.value / true - 1) <= law.error_bound + 1e-12 < 1e-7
        assert abs(exact(f"overlap:{rho}", 2, gamma * (1 + 1e-4)).value / true - 1) > 1e-6
    # Three tokens have two differences a row, of independent normals x and y.
    z, share = normals(0.5)
    rho, gamma, rest = 0.6, 1.0, 0.8
    x, y = (a.ravel() for a in np.meshgrid(z, z, indexing="ij"))
    corners = np.array([[0.0, 2.0], [math.sqrt(3), -1.0], [-math.sqrt(3), -1.0]]) / math.sqrt(6)

    def softmax(x, y):
        a = np.exp(gamma * (corners[:, :1] * x + corners[:, 1:] * y))
        return a / a.sum(0)

    both, first, true = np.multiply.outer(share, share).ravel(), softmax(x, y), 0.0
    for i in range(len(x)):
        other = softmax(rho * x[i] + rest * x, rho * y[i] + rest * y)
        true += both[i] * (first[:, i] @ other @ both)
    law = exact(f"overlap:{rho}", 3)
    assert abs(law.value / true - 1) < 1e-7


def test_top_k_overlap_of_two_and_three_tokens():
    """Of two: P(both differences have one sign). Of three: n E Φ₂(x, y)², by quadrature."""
    z, share = normals(0.02)
    for rho in (-0.8, 0.0, 0.5, 0.95):
        law = exact(f"top_k_overlap:1,{rho}", 2)
        assert law.value == pytest.approx(0.5 + math.asin(rho) / math.pi, abs=1e-9)
        rest = math.sqrt(1 - rho**2)
        u = (z - rho * z[:, None]) / rest
        density = np.exp(-0.5 * u * u)
        # Φ₂ at [x, y] by the trapezoidal rule up to x, less its error h²/12 times the slope there.
        slope = -z[:, None] * ndtr(u) - rho / rest * density / math.sqrt(2 * math.pi)
        part = ndtr(u) * share[:, None]
        below = np.cumsum(part, axis=0) - part / 2 - 0.02 / 12 * slope * share[:, None]
        density *= share[:, None] / density.sum(1, keepdims=True)
        one = float(3 * (below**2 * density).sum())
        law = exact(f"top_k_overlap:1,{rho}", 3)
        assert law.value == pytest.approx(one, abs=1e-7)
        # The two largest are the same if the smallest is, else they share one.
        assert exact(f"top_k_overlap:2,{rho}", 3).value == pytest.approx((1 + law.value) / 2)
        assert abs(law.value * 1.0001 / one - 1) > 1e-5


SETTINGS = [
    *itertools.product((5, 12, 32), (0.5, 1.0), (-0.99, 0.6), (0,)),
    *itertools.product((5, 12, 32), (1.0,), (0.5, 0.999), (2, 4)),
]


@pytest.mark.thorough
@pytest.mark.parametrize("n", sorted({n for n, *_ in SETTINGS}))
def test_a_million_drawn_rows(n):
    """Definitions in NumPy on drawn pairs: 24 settings, an error of 1 % seen in each."""
    settings = [x for x in SETTINGS if x[0] == n]
    rng, sums = np.random.default_rng(n), np.zeros((len(settings), 2))
    rows, parts = 10**6, 50
    for _ in range(parts):
        x, other = rng.standard_normal((2, rows // parts, n), np.float32)
        for i, (_, gamma, rho, k) in enumerate(settings):
            y = rho * x + math.sqrt(1 - rho**2) * other
            if k:
                least, next_ = (np.partition(s, -k, -1)[:, -k, None] for s in (x, y))
                drawn = ((x >= least) & (y >= next_)).sum(-1) / k
            else:
                a, b = np.exp(gamma * x), np.exp(gamma * y)
                drawn = (a * b).sum(-1) / (a.sum(-1) * b.sum(-1))
            sums[i] += drawn.sum(), (drawn**2).sum()
    for (_, gamma, rho, k), (total, squares) in zip(settings, sums, strict=True):
        mean = total / rows
        error = math.sqrt((squares / rows - mean**2) / rows)
        of = f"top_k_overlap:{k},{rho}" if k else f"overlap:{rho}"
        value = exact(of, n, gamma).value
        assert abs(mean - value) < 4.5 * error, (of, n)
        assert abs(mean - 1.01 * value) > 4.5 * error, (of, n)


@pytest.mark.parametrize(
    ("gamma", "n"), [(0.5, 7), (1.5, 64), pytest.param(3.0, 4096, marks=pytest.mark.thorough)]
)
def test_both_grow_with_the_correlation_between_their_ends(gamma, n):
    values = [exact(f"overlap:{rho}", n, gamma).value for rho in RHOS]
    assert np.all(np.diff(values) > 0)
    assert values[RHOS.index(0.0)] == pytest.approx(1 / n, rel=1e-10)
    assert values[-1] == pytest.approx(float(exact("participation", n, gamma)), rel=1e-9)
    k = max(n // 8, 2)
    shares = [exact(f"top_k_overlap:{k},{rho}", n, gamma).value for rho in RHOS]
    assert np.all(np.diff(shares) > 0)
    assert shares[RHOS.index(0.0)] == pytest.approx(k / n, rel=1e-7)
    assert (shares[0], shares[-1]) == (0, 1)
    assert exact(f"top_k_overlap:{n},0.5", n).value == 1
    beyond, few = n - k, float(exact(f"top_k_overlap:{k},0.5", n))  # those left out are alike
    kept = exact(f"top_k_overlap:{beyond},0.5", n)
    assert float(kept) == pytest.approx((beyond - k + k * few) / beyond, rel=1e-9)
    assert exact(f"top_k_overlap:{n - 1},-1", n).value == pytest.approx((n - 2) / (n - 1))
    assert exact("overlap:0.5", 1).value == 1


def test_rows_tend_to_their_limit():
    """E^(ργ²)/n; and P(Z > z, Z′ > z)/q, for q = 1/2 the well-known 1/2 + asin(ρ)/π."""
    for of, scale in (("overlap:0.7", 0.5), ("top_k_overlap:{k},0.7", 1.0)):
        gaps = []
        for n in (256, 4096, 65536):
            name = of.format(k=n // 16)
            law = exact(name, n, scale)
            limit = sparsity.evaluate("exp", gamma=scale, length=n, of=name)
            gaps.append(float(law.value / limit.value - 1))
        assert abs(gaps[2]) < abs(gaps[1]) / 8 < abs(gaps[0]) / 64
        assert abs(gaps[2]) < 1e-3
    # Of half of the keys, what is not shared at ρ is shared at −ρ.
    for n, rho in ((64, 0.999), (4096, 0.99)):
        laws = [exact(f"top_k_overlap:{n // 2},{x}", n) for x in (rho, -rho)]
        assert abs(sum(map(float, laws)) - 1) < sum(x.value * x.error_bound for x in laws) < 1e-8
    known = sparsity.evaluate("exp", gamma=1, length=100, of="top_k_overlap:50,0.7")
    assert float(known.value) == pytest.approx(0.5 + math.asin(0.7) / math.pi, rel=1e-13)
    overlap = sparsity.evaluate("exp", gamma=1.5, length=100, of="overlap:-0.3")
    assert float(overlap.value) == pytest.approx(math.exp(-0.3 * 1.5**2) / 100, rel=1e-13)
    assert float(sparsity.evaluate("exp", gamma=1, length=9, of="top_k_overlap:9,0").value) == 1


def test_windows_temperatures_and_equal_weights():
    window = Row("exp", gamma=1.3, steps=(sparsity.Window(20),))
    for of in ("overlap:0.4", "top_k_overlap:3,0.4"):
        alone = sparsity.exact("exp", gamma=1.3, length=20, of=of).value
        assert sparsity.exact(window, length=99, of=of).value == pytest.approx(alone, rel=1e-12)
    steeper = Row("exp", gamma=1.0, steps=(sparsity.ScalableSoftmax(1.3 / math.log(20)),))
    assert sparsity.exact(steeper, length=20, of="overlap:0.4").value == pytest.approx(
        float(exact("overlap:0.4", 20, 1.3)), rel=1e-12
    )


@pytest.mark.thorough
@pytest.mark.parametrize("of", ["overlap:0.6", "top_k_overlap:3,0.6"])
def test_rows_are_drawn_by_the_definition(of):
    """With steps: of rows without any the committed cross-check has both, and would see 0.2 %."""
    row = Row("exp", gamma=1.2, steps=(sparsity.Window(12),))
    drawn = sparsity.estimate(row, length=24, of=of, rel_error=4e-3, seed=5)
    law = sparsity.exact(row, length=24, of=of)
    assert abs(drawn.value - law.value) < 4.5 * drawn.stderr
    assert abs(drawn.value - 1.04 * law.value) > 4.5 * drawn.stderr
    alibi = Row("exp", gamma=1.2, steps=(sparsity.Alibi(0.3),))
    drawn = sparsity.estimate(alibi, length=24, of=of, rel_error=1e-2)
    x, other = np.random.default_rng(3).standard_normal((2, 40_000, 24))
    bias = -0.3 * np.arange(24)
    a, b = (np.exp(1.2 * s + bias) for s in (x, 0.6 * x + 0.8 * other))
    plain = metric.overlap(a, b) if of.startswith("overlap") else metric.top_k_overlap(a, b, 3)
    assert float(drawn) == pytest.approx(plain.mean(), rel=0.03)


def test_metrics_of_two_rows():
    a, b = np.array([[1.0, 2, 0, -5], [1, 1, 1, 1]]), np.array([[0.0, 1, 0, 3], [4, 3, 2, 1]])
    assert_allclose(metric.overlap(a, b), [(2 + 15) / (8 * 4), 0.25])
    assert_allclose(metric.top_k_overlap(a, b, 2), [1, 1])
    assert_allclose(metric.top_k_overlap(a, b[:, [1, 3, 0, 2]], 2), [0.5, 0.5])
    assert_allclose(metric.top_k_overlap(a, b, 3), [2 / 3, 1])  # a weight of 0 is in neither set
    with np.errstate(divide="ignore"):
        logs = np.log(abs(a)), np.log(b)
    assert_allclose(metric.overlap(*logs, log=True), metric.overlap(a, b))
    assert_allclose(metric.top_k_overlap(*logs, 3, log=True), metric.top_k_overlap(a, b, 3))
    assert_allclose(metric.overlap(a.T, b.T, axis=0), metric.overlap(a, b))
    assert_allclose(metric.top_k_overlap(a.T, b.T, 2, axis=0), metric.top_k_overlap(a, b, 2))


@pytest.mark.parametrize("array", [np.asarray, jnp.asarray])
def test_top_k_overlap_counts_the_first_of_equal_weights(array):
    logs = np.random.default_rng(1).integers(-3, 4, (2, 40, 7)).astype(np.float32)
    logs[0, 0], logs[1, 1, :5] = -0.0, -np.inf
    order = np.argsort(-logs, axis=-1, stable=True)
    for k in (1, 3, 7, 9):
        chosen = np.zeros(logs.shape, bool)
        np.put_along_axis(chosen, order[..., :k], values=True, axis=-1)
        chosen &= logs > -np.inf
        shares = (chosen[0] & chosen[1]).sum(-1) / chosen[0].sum(-1)
        drawn = metric.top_k_overlap(array(logs[0]), array(logs[1]), k, log=True)
        assert_allclose(drawn, shares)
    assert_array_equal(metric.ascending(array(logs)), np.sort(logs, axis=-1))


@pytest.mark.parametrize(
    ("ask", "says"),
    [
        (lambda: exact("overlap:1.5", 9), "ρ must be a correlation from -1 to 1"),
        (lambda: exact("top_k_overlap:4", 9), "k,ρ must be a whole number"),
        (lambda: exact("top_k_overlap:4,0.5,1", 9), "k,ρ must be a whole number"),
        (lambda: exact("top_k_overlap:4,0.99999", 9), "must be 1, or within 0.9999 of 0"),
        (lambda: exact("overlap:0.5", 9, steps=(sparsity.Alibi(0.1),)), "rows of one law"),
        (lambda: exact("overlap:0.5", 9, scores=sparsity.Uniform()), "rows of one law"),
        (
            lambda: sparsity.exact("relu2", beta=0, gamma=1, length=9, of="overlap:0.5"),
            "softmax rows",
        ),
        (
            lambda: sparsity.evaluate("relu2", beta=0, gamma=1, length=9, of="overlap:0.5"),
            "softmax rows",
        ),
        (lambda: exact("overlap:0.5", 9, 300.0), "too long"),
        (lambda: sparsity.estimate("exp", gamma=1, dim=8, length=9, of="overlap:0"), "pairs of"),
        (
            lambda: sparsity.measure(queries=np.ones((9, 4)), keys=np.eye(9, 4), of="overlap:0.5"),
            "is of two rows; give sparsity.metric.overlap",
        ),
    ],
)
def test_what_has_no_pairs_says_so(ask, says):
    with pytest.raises(InputError, match=says):
        ask()


def test_an_overlap_that_is_below_the_ends_of_its_rules_is_refused():
    """At ρ = −1 and γ = 12 it is 4e-28, and what the rules cut off is not below that."""
    for of, gamma in (("overlap:-1", 12.0), ("top_k_overlap:20,-0.999", 1.0)):
        with pytest.raises(InputError, match="relative error"):
            exact(of, 1024, gamma)
    value, error = mean_product(3.0, 3.0, -1.0, np.array([1024]))
    assert error[0] < 1e-6
    assert value[0] < 3e-7
