"""Routed softmax: the captured mass and n_eff of what is read, by law, by rows and in the limit."""

import numpy as np
import pytest
from scipy.special import expit, ndtr

from sparsity import Row, estimate, exact, kernels, sweep, verify
from sparsity.errors import InputError
from sparsity.exact_law.router import captured_in_long_rows

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


CELLS = [
    (gamma, rho, k, n)
    for gamma, rho in ((0.5, 0.3), (1.5, 0.8), (3.0, 0.9), (2.0, -0.5))
    for k, n in ((1, 2), (2, 3), (8, 64))
]


@pytest.mark.parametrize(("gamma", "rho", "k", "n"), CELLS)
def test_law_against_rows(gamma, rho, k, n):
    drawn = rows_of(gamma, rho, k, n, 400_000 if n < 10 else 50_000)
    row = Row(f"router:{k}", gamma=gamma, rho=rho)
    for of, (mean, error) in drawn.items():
        law = exact(row, length=n, of=of)
        assert law.error_bound < 1e-9
        assert abs(mean - float(law)) <= 4.5 * error + 1e-12, of
        if of == "abs_sum":  # an error of a twentieth would be seen
            assert abs(mean - 1.05 * float(law)) > 4.5 * error


@pytest.mark.parametrize(("gamma", "rho"), [(0.7, 0.2), (2.0, 0.9), (4.0, 0.99)])
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


def test_reading_all_keys_is_softmax():
    row = Row("router:8", gamma=1.5, rho=0.4)
    for of in OF[1:]:
        own, softmax = (exact(r, length=5, of=of) for r in (row, Row("exp", gamma=1.5)))
        assert float(own) == float(softmax)
    assert float(exact(row, length=8, of="abs_sum")) == 1.0


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
        (lambda: Row("router:0", gamma=1.0, rho=0.5), "router = 0"),
        (
            lambda: exact(Row("router:4", gamma=1.0, rho=0.5), length=9, of="entropy"),
            "of = entropy",
        ),
        (lambda: exact(Row("router:4", gamma=500.0, rho=0.5), length=9), "gamma = 500"),
    ):
        with pytest.raises(InputError, match=match):
            make()


def test_it_is_first_class():
    """Sampled, swept and verified like any map, with the law beside it."""
    row = Row("router:4", gamma=1.2, rho=0.7)
    for of in OF:
        drawn = estimate(row, length=24, of=of, rel_error=5e-3, seed=2)
        assert abs(drawn.beside(exact(row, length=24, of=of)).z) < 4.5
    swept = sweep("router:4", gamma=[0.5, 1.2], rho=0.7, length=[8, 24], of="abs_sum")
    assert float(swept["abs_sum"][1, 1]) == float(exact(row, length=24, of="abs_sum"))
    checked = verify(row, length=24)
    assert checked.agree
    assert {cell.quantity for cell in checked.cells} >= set(OF)
