"""Routed softmax: the captured mass and n_eff of what is read, by law, by rows and in the limit."""

import numpy as np
import pytest
from scipy.special import expit, ndtr, ndtri

from experiments.rules.routers import correlation_of_blocks
from sparsity import InputError, Row, estimate, exact, kernels, verify

OF = ("abs_sum", "n_eff", "participation", "S")


def rows_of(gamma, rho, k, n, rows, seed=5):
    """Every quantity of rows by NumPy alone: mean and standard error."""
    rng = np.random.default_rng(seed)
    found = {name: [] for name in OF}
    for _ in range(max(1, rows * n // 10**7)):
        size = (min(rows, 10**7 // n), n)
        proxy, other = rng.standard_normal(size), rng.standard_normal(size)
        s = gamma * (rho * proxy + np.sqrt(1 - rho * rho) * other)
        a = np.exp(s - s.max(1, keepdims=True))
        kept = np.take_along_axis(a, np.argpartition(-proxy, k - 1, axis=1)[:, :k], axis=1)
        l1, l2 = kept.sum(1), (kept * kept).sum(1)
        found["abs_sum"].append(l1 / a.sum(1))
        found["n_eff"].append(l1 * l1 / l2)
        found["participation"].append(l2 / l1**2)
        found["S"].append(l1 / np.sqrt(n * l2))
    joined = {name: np.concatenate(x) for name, x in found.items()}
    return {k: (x.mean(), x.std() / np.sqrt(len(x))) for k, x in joined.items()}


def test_law_against_rows():
    gamma, rho, k, n = 1.5, 0.8, 1, 2
    drawn = rows_of(gamma, rho, k, n, 100_000)
    row = Row(f"router:{k}", gamma=gamma, rho=rho)
    for of, (mean, error) in drawn.items():
        law = exact(row, length=n, of=of)
        assert law.error_bound < 1e-9
        assert abs(mean - float(law)) <= 4.5 * error + 1e-12, of
        if of == "abs_sum":  # an error of a twentieth would be seen
            assert abs(mean - 1.05 * float(law)) > 4.5 * error


@pytest.mark.parametrize(
    ("gamma", "rho"), [(0.7, 0.2), pytest.param(4.0, 0.99, marks=pytest.mark.thorough)]
)
def test_one_of_two_keys_by_a_single_integral(gamma, rho):
    """E σ(√2γx) given that the proxies' difference is positive, over x by quadrature."""
    x, w = np.polynomial.hermite_e.hermegauss(199)
    chosen = 2 * ndtr(rho * x / np.sqrt(1 - rho * rho)) * expit(np.sqrt(2) * gamma * x)
    if gamma * rho < 3:
        law = exact(Row("router:1", gamma=gamma, rho=rho), length=2, of="abs_sum")
        assert float(law) == pytest.approx(w @ chosen / w.sum(), rel=2e-5)
    assert float(exact(Row("router:1", gamma=gamma, rho=rho), length=5)) == pytest.approx(
        1, abs=1e-9
    )


def captured_in_long_rows(gamma, rho, share):
    """Φ(ργ + Φ⁻¹(k/n)), the limit of the captured mass."""
    return float(ndtr(rho * gamma + ndtri(share)))


def test_long_rows_tend_to_the_limit():
    for gamma, rho, share, limit in ((1.5, 0.8, 0.05, 0.3282), (1.0, 0.9, 0.1, 0.3514)):
        assert captured_in_long_rows(gamma, rho, share) == pytest.approx(limit, abs=5e-5)
        off = []
        for n in (1000, 10**4, 10**6):
            row = Row(f"router:{int(share * n)}", gamma=gamma, rho=rho)
            law = exact(row, length=n, of="abs_sum")
            off.append(abs(float(law) / captured_in_long_rows(gamma, rho, share) - 1))
        assert off[0] > off[1] > off[2]
        assert off[2] < 1e-4


def test_the_weights_of_a_row():
    kernel = kernels.router(2)
    assert kernel.drawn is not None
    of = kernel.drawn.read(np.array([[[1.0, 0], [3.0, 0], [2.0, 0]]]), None, gamma=0.5, rho=1.0)
    weights = kernel.weights(of)
    a = np.exp([0.5, 1.5, 1.0])
    np.testing.assert_allclose(weights, [[0, a[1] / a.sum(), a[2] / a.sum()]], rtol=1e-14)
    assert kernels.named("router:16").name == "router:16"


def test_errors():
    for make, match in (
        (lambda: exact(Row("router:4", gamma=1.0, rho=0.99999), length=9), "rho = 0.99999"),
        (lambda: Row("router:4", gamma=1.0, rho=1.5), "rho = 1.5"),
        (lambda: Row("router:0", gamma=1.0, rho=0.5), "router = 0.*>= 1"),
        (
            lambda: exact(Row("router:4", gamma=1.0, rho=0.5), length=9, of="entropy"),
            "of = entropy",
        ),
        (lambda: exact(Row("router:4", gamma=500.0, rho=0.5), length=9), "gamma = 500"),
    ):
        with pytest.raises(InputError, match=match):
            make()


# The chance that the top key is read.


@pytest.mark.parametrize("rho", [-0.5, 0.9999])
def test_the_top_of_two_keys_is_read_with_a_known_chance(rho):
    """P = ½ + arcsin(ρ)/π, of two differences of correlation ρ; an error of 1 % would be seen."""
    law = exact(Row("router:1", gamma=1.0, rho=rho), length=2, of="recall")
    known = 0.5 + np.arcsin(rho) / np.pi
    assert float(law) == pytest.approx(known, rel=1e-11)
    assert abs(1.01 * float(law) - known) > 1e-3
    assert law.error_bound < 1e-11


@pytest.mark.thorough
def test_the_top_of_three_keys_by_a_double_sum():
    """Over the score e and the proxy x of the top key: how many of two lower ones are above x."""
    k, rho = 2, 0.4
    e, w = np.polynomial.legendre.leggauss(240)
    e, w = 8 * e, 8 * w
    z, v = np.polynomial.hermite_e.hermegauss(60)
    rest = np.sqrt(1 - rho * rho)
    x = rho * e[:, None] + rest * z
    # P(proxy > x, score < e) of another key, by a sum over its score
    inner = np.exp(-0.5 * e * e) / np.sqrt(2 * np.pi) * w
    found = 0.0
    for i, top in enumerate(e):
        s = np.linspace(-8.0, top, 2001)
        density = np.exp(-0.5 * s * s) / np.sqrt(2 * np.pi)
        tail = ndtr((rho * s[:, None] - x[i]) / rest) * density[:, None]
        above = np.trapezoid(tail, s, axis=0)
        below = ndtr(top) - above
        few = below**2 + 2 * above * below
        found += 3 * inner[i] * (v @ few) / v.sum()
    law = exact(Row(f"router:{k}", gamma=1.0, rho=rho), length=3, of="recall")
    assert float(law) == pytest.approx(found, rel=2e-6)
    assert abs(1.01 * float(law) - found) > 1e-3


@pytest.mark.parametrize(("k", "n"), [(8, 64), (100, 10**9)])
def test_a_proxy_that_knows_nothing_reads_the_top_key_by_luck(k, n):
    law = exact(Row(f"router:{k}", gamma=1.0, rho=0.0), length=n, of="recall")
    assert float(law) == pytest.approx(k / n, rel=1e-12)


# Blocks.


@pytest.mark.slow
def test_sampled_rows_of_blocks_tend_to_the_limit():
    size, within = 16, 0.3
    limit = captured_in_long_rows(2.0, correlation_of_blocks(within, size), 0.1)
    row = Row(f"block-router:10,{size}", gamma=2.0, within=within)
    found = estimate(row, length=100 * size, of="abs_sum", rel_error=5e-3, seed=1)
    assert abs(float(found) / limit - 1) < 0.05
    assert abs(float(found) / limit - 1.2) > 0.1


def test_the_weights_of_blocks():
    s = np.array([[1.0, 2.0, 5.0, -9.0, 2.5]])  # means 1.5, −2 and, of the last alone, 2.5
    weights = kernels.block_router((1, 2)).weights(s)
    assert np.flatnonzero(weights[0]).tolist() == [4]
    both = kernels.block_router((2, 2))
    np.testing.assert_array_equal(both.weights(s)[0] > 0, [1, 1, 0, 0, 1])
    assert both.reads_top is not None
    assert both.reads_top(s).tolist() == [False]
    assert kernels.named("block-router:8,64").name == "block-router:8,64"


@pytest.mark.thorough
def test_a_row_whose_last_block_is_short_can_be_sampled():
    sampled = estimate(Row("block-router:2,4", gamma=1.0, within=0.3), length=18, of="abs_sum")
    assert 0.4 < sampled.value < 1


def test_errors_of_blocks():
    for make, match in (
        (lambda: exact(Row("block-router:2,8", gamma=1.0, within=0.1), length=32, of="abs_sum"),
         "of = abs_sum: block-router:2,8 has no exact law; estimate samples it"),
        (lambda: verify(Row("block-router:2,8", gamma=1.0, within=0.1), length=32),
         "kernel = block-router:2,8: has no exact law; estimate samples it"),
        (lambda: Row("router:2,3,4,5", gamma=1.0, rho=0.1), "keys of the window and a sink"),
        (lambda: Row("router:2,3,1e39", gamma=1.0, rho=0.1), "keys of the window and a sink"),
        (lambda: Row("router:2.5", gamma=1.0, rho=0.1), "must be a whole number"),
        (lambda: Row("block-router:2", gamma=1.0, within=0.1), "give blocks read, keys of a block"),
        (lambda: Row("block-router:0,8", gamma=1.0, within=0.1), "block-router = 0"),
        (lambda: kernels.block_router(3), "block-router = 3"),  # type: ignore[arg-type]
        (lambda: Row("block-router:2,8", gamma=1.0, within=-0.1), "within = -0.1"),
    ):  # fmt: skip
        with pytest.raises(InputError, match=match):
            make()


@pytest.mark.slow
def test_a_large_spread_is_a_number_or_a_line_at_once():
    """x² of e^(−x) overflowed from γ = 17 on; there the law takes seconds, and soon too many."""
    mean, error = rows_of(17.0, 0.5, 3, 4, 200_000)["abs_sum"]
    law = exact(Row("router:3", gamma=17.0, rho=0.5), length=4, of="abs_sum")
    assert abs(float(law) - mean) < 4.5 * error
    with pytest.raises(InputError, match=r"gamma = 24.*more than seconds"):
        exact(Row("router:3", gamma=24.0, rho=0.5), length=4)


def test_a_perfect_proxy_reads_the_largest_scores():
    """ρ = 1 is softmax of the k largest, of the mass of all; ρ = 0.999 reads little less."""
    perfect, good = (Row("router:16", gamma=1.5, rho=rho) for rho in (1.0, 0.999))
    top, alone = Row("exp", gamma=1.5), Row("topk:16", gamma=1.5)
    for of, same, name in (("abs_sum", top, "top_k_mass:16"), ("n_eff", alone, "n_eff")):
        found = exact(perfect, length=[9, 300], of=of)
        np.testing.assert_allclose(found.value[1], exact(same, length=300, of=name).value)
        near = exact(good, length=300, of=of).value
        assert 1e-5 < abs(near / found.value[1] - 1) < 0.02
    assert np.all(exact(perfect, length=[9, 300], of="recall").value == 1)


@pytest.mark.parametrize(
    ("name", "sink"),
    [("router:3,5", None), ("block-router:2,4,1", None), ("router:3,0,1.5", 1.5),
     ("router:3,5,-1", -1.0), ("block-router:2,4,1,300", 300.0)],
)  # fmt: skip
def test_what_is_read_or_weighs_besides(name, sink):
    """The same rows by NumPy: the k of the others, the window or the query's own block, a sink."""
    kernel = kernels.named(name)
    rng = np.random.default_rng(6)
    normals = rng.standard_normal((200, 22, 2))
    routed = name.startswith("router")
    own = {"rho": 0.8} if routed else {"within": 0.3}
    of = kernel.drawn.read(normals, None, gamma=1.0, **own)
    scores, values = (of.scores, of.proxies) if routed else (of, of)
    size, k, last = (1, 3, int(name.split(",")[1])) if routed else (4, 2, 1)
    weights, read = kernel.weights(of), []
    for row in values:
        means = [row[i : i + size].mean() for i in range(0, 22, size)]
        ranked = np.argsort(means[: len(means) - last])
        best = [*ranked[-k:], *range(len(means) - last, len(means))]
        read.append(np.isin(np.arange(22) // size, best))
    of_sink = 0.0 if sink is None else np.exp(sink)
    p = np.exp(scores) / (np.exp(scores).sum(-1, keepdims=True) + of_sink)
    np.testing.assert_allclose(weights, p * read, rtol=1e-12)
    assert kernel.name == name
    with pytest.raises(InputError, match="no exact law"):
        exact(Row(kernel, gamma=1.0, **own), length=22, of="abs_sum")
    drawn = estimate(kernel, gamma=1.0, **own, length=22, of="abs_sum", rel_error=0.02)
    assert abs(drawn.value / (p * read).sum(-1).mean() - 1) < 0.1
