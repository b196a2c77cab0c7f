"""QK-norm with gains: γ, the bound and the law, from whole queries and keys."""

import numpy as np
import pytest

from sparsity import InputError, QKNorm, Row, exact

D = 8
RNG = np.random.default_rng(11)
G_Q, G_K = RNG.uniform(0.4, 3.0, (2, D))


def normed(x):
    """RMS-normalised vectors, as the models have them."""
    return x / np.sqrt((x * x).mean(-1, keepdims=True))


def scores(q, k, scale, g_q=G_Q, g_k=G_K):
    return scale * ((g_q * normed(q))[..., None, :] * (g_k * normed(k))).sum(-1)


FUNCTIONS = {
    "exp": np.exp,
    "sigmoid": lambda s: 1 / (1 + np.exp(-s)),
    "relu2": lambda s: np.maximum(s, 0) ** 2,
}


@pytest.mark.parametrize(
    ("kernel", "number", "rows"),
    [("sigmoid", 0, 50_000), ("relu2", 2, 50_000),
     pytest.param("exp", 1, 200_000, marks=pytest.mark.thorough)],
)  # fmt: skip
def test_the_law_of_one_query_is_exact(kernel, number, rows):
    """n_eff of rows of whole normalised keys; the normal law and a γ off by 1 % are rejected."""
    n, scale = 12, 0.6
    rng = np.random.default_rng(number)
    query = rng.standard_normal(D) * rng.uniform(0.1, 5)  # its own length does not matter
    own = QKNorm.from_gains(G_Q, G_K, scale, query=query)
    a = FUNCTIONS[kernel](scores(query, rng.standard_normal((rows, n, D)), scale))
    live = a.any(1)
    values = a[live].sum(1) ** 2 / (a[live] ** 2).sum(1)
    mean, error = values.mean(), values.std() / np.sqrt(len(values))
    parameters = {} if kernel == "exp" else {"beta": 0.0}
    law = float(exact(Row(kernel, **parameters, steps=(own,)), length=n))
    assert abs(mean - law) < 4.5 * error
    if kernel == "exp":
        for wrong in (
            Row("exp", gamma=own.gamma),
            Row("exp", gamma=1.01 * float(own.gamma), steps=(own,)),
        ):
            assert abs(mean - float(exact(wrong, length=n))) > 6 * error


def test_gamma_is_the_root_mean_square_over_queries():
    rng, many, scale = np.random.default_rng(5), 100_000, 0.5
    law = QKNorm.from_gains(G_Q, G_K, scale)
    assert law.gamma == pytest.approx(scale * np.sqrt(((G_Q * G_K) ** 2).sum()), rel=1e-14)
    q, k = (normed(x) for x in rng.standard_normal((2, many, D)))
    pairs = scale * (G_Q * q * G_K * k).sum(-1)
    error = (pairs**2).std() / np.sqrt(many)
    assert abs((pairs**2).mean() - float(law.gamma) ** 2) < 4.5 * error
    assert abs((pairs**2).mean() - (scale * D**0.5 * (G_Q * G_K).max()) ** 2) > 10 * error
    own = [QKNorm.from_gains(G_Q, G_K, scale, query=x).gamma for x in q[:4000]]
    assert np.mean(np.square(own)) == pytest.approx(float(law.gamma) ** 2, rel=0.05)
    assert np.std(own) > 0.1 * float(law.gamma)  # of gains that differ, queries have their own γ
    flat = [QKNorm.from_gains(np.full(D, 1.5), np.ones(D), query=x).gamma for x in q[:9]]
    np.testing.assert_allclose(flat, 1.5, rtol=1e-14)
    assert QKNorm.from_gains(np.ones(64), np.ones(64)).gamma == pytest.approx(1.0, rel=1e-14)


def test_the_bound_holds_and_is_reached():
    rng, scale = np.random.default_rng(6), 0.5
    law = QKNorm.from_gains(G_Q, -G_K, scale)
    assert law.bound == pytest.approx(scale * D * (G_Q * G_K).max(), rel=1e-14)
    q, k = rng.standard_normal((2, 200_000, D)) ** 5  # near the axes, where scores are large
    found = np.abs(scale * (G_Q * normed(q) * -G_K * normed(k)).sum(-1))
    assert np.all(found <= float(law.bound) * (1 + 1e-12))
    assert found.max() > 0.9 * float(law.bound)
    axis = np.eye(D)[np.argmax(G_Q * G_K)]
    assert abs(scores(axis, axis, scale)) == pytest.approx(law.bound, rel=1e-12)
    own = QKNorm.from_gains(G_Q, G_K, scale, query=q[0])
    best = G_Q * normed(q[0]) * G_K
    assert scores(q[0], best, scale) == pytest.approx(own.bound, rel=1e-12)
    assert float(own.bound) == pytest.approx(float(own.gamma) * D**0.5, rel=1e-14)
    assert float(own.bound) <= float(law.bound)


def test_rotary_positions_keep_the_law_of_equal_gains_in_a_plane():
    """Planes (i, i + d/2): the spread of v = c·g_k∘R(g_q q̂) at any distance."""
    rng = np.random.default_rng(7)
    g_q, g_k = G_Q, np.tile(G_K[: D // 2], 2)
    query = normed(rng.standard_normal(D))
    turned = (g_q * query)[: D // 2] + 1j * (g_q * query)[D // 2 :]
    for m in (0, 1, 17):
        z = turned * np.exp(1j * m * 100.0 ** (-np.arange(D // 2) / (D // 2)))
        v = g_k * np.concatenate([z.real, z.imag])
        own = QKNorm.from_gains(g_q, g_k, query=query)
        assert np.linalg.norm(v) / D**0.5 == pytest.approx(own.gamma, rel=1e-13)


def test_a_row_takes_the_gamma_of_gains_unless_it_has_one():
    law = QKNorm.from_gains(G_Q, G_K)
    assert Row("exp", steps=(law,)).gamma == law.gamma
    assert Row("exp", gamma=2.0, steps=(law,)) == Row("exp", gamma=2.0, steps=(QKNorm(D),))
    row = Row("exp", steps=(law,))
    assert eval(repr(row), {"Row": Row, "QKNorm": QKNorm}) == row
    assert row.described()["steps"] == [f"qk-norm:{D}"]
    for make, match in (
        (lambda: QKNorm.from_gains(G_Q, G_K[1:]), "g_k"),
        (lambda: QKNorm.from_gains(G_Q, 0 * G_K), "all g_q·g_k are 0"),
        (lambda: QKNorm.from_gains(G_Q, G_K, 0.0), "scale = 0"),
        (lambda: QKNorm.from_gains(G_Q, G_K, query=0 * G_Q), "query"),
        (lambda: QKNorm.from_gains([np.nan], [1.0]), "g_q"),
        (lambda: QKNorm(8, -1.0), "gamma = -1"),
    ):
        with pytest.raises(InputError, match=match):
            make()
