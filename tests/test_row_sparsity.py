"""E S_n, the mean of ‖a‖₁/(√n‖a‖₂) over rows: printed values, other integrals, sampled rows."""

import numpy as np
import pytest
from scipy.special import comb
from sympy import Heaviside

from sparsity.errors import InputError
from sparsity.finite import finite_length, finite_rows, transforms
from sparsity.kernels import score_kernel
from sparsity.kernels.symbols import s
from sparsity.rows.steps import ALL, Decay, RowLaw, Spherical, Unit, Window
from sparsity.theory.evaluation import evaluate

WEIGHT = {"exp": np.exp, "relu2": lambda x: np.maximum(x, 0) ** 2, "identity": np.abs}
LENGTHS = np.unique(np.round(np.geomspace(1, 1e12, 13)))
CURVES = [
    ("exp", 0, 1e-3), ("exp", 0, 1), ("exp", 7, 5), ("exp", 0, 30),
    ("relu2", 0, 1), ("relu2", -30, 1), ("relu2", -3, 1), ("relu2", 60, 2),
    ("identity", 0, 1), ("identity", 3, 1), ("identity", -30, 1),
]  # fmt: skip


def test_the_printed_value():
    value, bound = finite_length.row_sparsity("exp", 1024, gamma=3)
    assert abs(value - 0.10937) <= 0.5001e-5
    assert bound < 1e-10


@pytest.mark.parametrize(("name", "beta", "gamma"), CURVES)
def test_curves(name, beta, gamma):
    """Tight bounds for n from 1 to 10¹²; between 1/√n and √(n_eff/n); → S where annealed."""
    value, bound = finite_length.row_sparsity(name, LENGTHS, beta=beta, gamma=gamma)
    rms = finite_length.n_eff(name, LENGTHS, beta=beta, gamma=gamma)
    assert np.max(bound) < 1e-10
    assert (value[0], bound[0]) == (1, 0)
    assert np.all(value >= LENGTHS**-0.5)
    assert np.all(value <= rms.S_rms * (1 + bound + rms.error_bound))  # E X ≤ √(E X²)
    limit = evaluate(name, beta=beta, gamma=gamma)
    if limit.log_S > -1.1:  # annealed: the corrections are of order 1/n
        assert value[-1] == pytest.approx(float(limit.S), rel=1e-9)
    law = RowLaw(beta, gamma)
    other, other_bound = finite_rows.row_sparsity(name, law, LENGTHS)
    assert np.max(other_bound) < 1e-9
    assert np.all(np.abs(other / value - 1) <= bound + other_bound)


def test_half_the_step_agrees(monkeypatch):
    iid = [finite_length.row_sparsity(k, LENGTHS, beta=b, gamma=g) for k, b, g in CURVES]
    laws = [(name, law) for name in WEIGHT for law in ALL]
    rows = [finite_rows.row_sparsity(name, law, 30) for name, law in laws]
    monkeypatch.setattr(finite_length, "_STEP", 0.07)
    monkeypatch.setattr(transforms, "STEP", 0.05)
    monkeypatch.setattr(finite_rows, "STEP", 0.05)
    new = [finite_length.row_sparsity(k, LENGTHS, beta=b, gamma=g) for k, b, g in CURVES]
    new += [finite_rows.row_sparsity(name, law, 30) for name, law in laws]
    cells = 0
    for (value, bound), (old, old_bound) in zip(new, iid + rows, strict=True):
        assert np.all(np.abs(value / old - 1) <= bound + old_bound)
        cells += np.size(value)
    assert cells == len(CURVES) * len(LENGTHS) + len(laws)


def test_two_gaussian_tokens():
    """E (|cos θ| + |sin θ|)/√2 = 4/(π√2)."""
    value, _ = finite_length.row_sparsity("identity", 2, beta=0, gamma=1)
    assert value == pytest.approx(4 / np.pi / np.sqrt(2), rel=1e-11)


@pytest.mark.parametrize("w", [0.9, 0.1, 1e-3])
def test_two_gaussian_tokens_of_different_weight(w):
    """E (|x| + w|y|)/√(2(x² + w²y²)), over the angle."""
    from scipy.integrate import quad

    def at(angle):
        x, y = np.cos(angle), w * np.sin(angle)
        return (x + y) / np.sqrt(2 * (x * x + y * y))

    knee = float(np.arctan(1 / w))
    direct = (quad(at, 0, knee, epsrel=1e-12)[0] + quad(at, knee, np.pi / 2, epsrel=1e-12)[0]) * (
        2 / np.pi
    )
    value, bound = finite_rows.row_sparsity("identity", RowLaw(0, 1, (Decay(w),)), 2)
    assert bound < 1e-9
    assert value == pytest.approx(direct, rel=1e-10)


def test_rows_that_are_all_zero_are_left_out():
    """f = 1[s > 0]: E[√(K/n); K > 0]/P(K > 0) with K binomial."""
    step = score_kernel("step", Heaviside(s))
    for n in (1, 2, 9):
        k = np.arange(1, n + 1)
        p = comb(n, k) / 2**n
        wanted = (p * np.sqrt(k / n)).sum() / p.sum()
        value, _ = finite_length.row_sparsity(step, n, beta=0, gamma=1)
        assert value == pytest.approx(wanted, rel=1e-11)
        value, _ = finite_rows.row_sparsity(step, RowLaw(0, 1, (Window(n),)), n)
        assert value == pytest.approx(wanted, rel=1e-11)


def _sampled(name, law, n, rows):
    rng = np.random.default_rng(20231212)
    beta, gamma, w = law.positions(n)
    dim = law.tokens(n).dim
    if dim:
        k = rng.standard_normal((rows, n, dim))
        z = np.sqrt(dim) * k[..., 0] / np.linalg.norm(k, axis=-1)
    else:
        z = rng.standard_normal((rows, n))
    a = w * WEIGHT[name](beta + gamma * z)
    a = a[a.any(axis=1)]
    S = a.sum(axis=1) / np.sqrt(n * (a * a).sum(axis=1))
    return S.mean(), S.std() / np.sqrt(len(S))


@pytest.mark.parametrize("name", WEIGHT)
@pytest.mark.parametrize("law", ALL, ids=str)
def test_sampled_rows_of_every_law(name, law):
    value, bound = finite_rows.row_sparsity(name, law, 12)
    mean, error = _sampled(name, law, 12, 100_000)
    assert bound < 1e-9
    assert abs(mean - value) < 4.5 * error


PLANTED = {
    "φ^n for φ^(n−1)": lambda n, lp, m1: n * m1 * np.exp(n * lp) / np.sqrt(np.pi * n),
    "no √π": lambda n, lp, m1: n * m1 * np.exp((n - 1) * lp) / np.sqrt(n),
    "n for √n": lambda n, lp, m1: m1 * np.exp((n - 1) * lp) / np.sqrt(np.pi),
}


@pytest.mark.parametrize("planted", [None, *PLANTED])
def test_planted_errors_are_rejected(planted, monkeypatch):
    """The right integrand (None) passes the very test that each wrong one fails."""
    if planted:
        monkeypatch.setattr(finite_length, "_row_sparsity", PLANTED[planted])
    value, _ = finite_length.row_sparsity("exp", 5, gamma=1.0)
    mean, error = _sampled("exp", RowLaw(0, 1), 5, 400_000)
    assert (abs(mean - value) < 4 * error) == (planted is None)


def test_units_do_not_enter_and_one_token_is_one_hot():
    law = RowLaw(0.3, 1.2)
    value, _ = finite_rows.row_sparsity("relu2", law, 9)
    assert finite_rows.row_sparsity("relu2", law.then(Unit(2.0)), 9)[0] == value
    alone, bound = finite_rows.row_sparsity("exp", RowLaw(0, 1, (Window(1),)), [1, 16])
    np.testing.assert_array_equal(alone, [1, 0.25])
    np.testing.assert_array_equal(bound, 0)
    # Out of sight counts in n only.
    few, _ = finite_rows.row_sparsity("exp", RowLaw(0, 1, (Window(8), Spherical(16))), [8, 32])
    assert few[1] == pytest.approx(few[0] / 2, rel=1e-11)


def test_bad_input_is_refused():
    cases = [
        lambda: finite_length.row_sparsity("decayed", 8, decay=0.5),
        lambda: finite_length.row_sparsity("exp", 0, gamma=1),
        lambda: finite_length.row_sparsity("exp", 8, gamma=[1, 2]),
        lambda: finite_rows.row_sparsity("decayed", RowLaw(), 8),
        lambda: finite_rows.row_sparsity("exp", RowLaw(), []),
    ]
    for case in cases:
        with pytest.raises(InputError):
            case()
