"""Regimes of softmax rows: the crossover, each law where it holds and where it does not."""

import numpy as np
import pytest
from scipy.integrate import quad

import sparsity
from sparsity import InputError, exact, regime
from sparsity.exact_law.regimes import (
    annealed_n_eff,
    condensed_n_eff,
    critical_spread,
    limit_reach,
)


def n_eff(n, gamma):
    return exact("exp", length=n, gamma=gamma).value


def participation(n, gamma):
    return exact("exp", length=n, of="participation", gamma=gamma).value


def crossover(lengths):
    """E Y₂ √(ln n) at γ = γ_c, by the exact law."""
    at = [participation(n, critical_spread(n)) for n in np.asarray(lengths).tolist()]
    return np.array(at) * np.sqrt(np.log(lengths))


def test_crossover_as_printed():
    """0.61 to 0.63 for n = 64 … 16384, falling on towards 1/√π = 0.564; γ_c itself matters."""
    n = 2.0 ** np.arange(6, 15)
    value = crossover(n)
    assert value.shape == n.shape
    assert value[0] == pytest.approx(0.62880, abs=5e-6)
    assert value[-1] == pytest.approx(0.61427, abs=5e-6)
    assert np.all((value > 0.61) & (value < 0.63))
    assert np.all(np.diff(value) < 0)
    far = crossover([1e6, 1e12, 1e15])
    assert np.all(np.diff(far) < 0)
    root = 1 / np.sqrt(np.log([1e12, 1e15]))
    at_zero = far[2] - (far[1] - far[2]) / (root[0] - root[1]) * root[1]  # linear in 1/√ln n
    assert at_zero == pytest.approx(1 / np.sqrt(np.pi), abs=0.01)
    off = participation(1024, 1.1 * critical_spread(1024)) * np.sqrt(np.log(1024))
    assert not 0.61 < off < 0.63


def test_annealed_laws_where_they_hold_and_where_not():
    for n in (1e6, 1e9, 1e12):
        for gamma in (0.1, 0.5, 1.0):
            correction = 20 * np.exp(5 * gamma**2) / n  # of order 1/n, with its growth in γ
            tokens, y2 = (n_eff(n, gamma), participation(n, gamma))
            assert tokens / annealed_n_eff(n, gamma) == pytest.approx(1, abs=correction + 1e-11)
            assert y2 * annealed_n_eff(n, gamma) == pytest.approx(1, abs=correction + 1e-11)
        beyond = 1.2 * np.sqrt(np.log(n))
        assert n_eff(n, beyond) > 10 * annealed_n_eff(n, beyond)
        assert participation(n, beyond) * annealed_n_eff(n, beyond) < 1 / 1.5


@pytest.mark.parametrize("alpha", [0.2, 0.9])
def test_condensed_n_eff_is_the_law_of_a_power_tail(alpha):
    """The integral of the exact law with Poisson weights α a^(−1−α) da, done numerically."""

    def power(k, t):  # ∫ a^k e^(−ta²) α a^(−1−α) da, in a = e^x
        return quad(
            lambda x: alpha * np.exp((k - alpha) * x - t * np.exp(2 * x)), -200, 20, limit=400,
            points=[-0.5 * np.log(t)],
        )[0]  # fmt: skip

    unit = quad(  # ∫ (1 − e^(−a²)) α a^(−1−α) da
        lambda x: -alpha * np.exp(-alpha * x) * np.expm1(-np.exp(2 * x)), -60, 300, limit=400
    )[0]
    one, two = power(1, 1.0), power(2, 1.0)

    def integrand(v):  # t = v^(2/α): Σm1 ∝ t^((α−1)/2), Σm2 ∝ t^(α/2−1), Σ(1−φ) = unit·v
        return (two + one**2 * v) * 2 / alpha * np.exp(-unit * v)

    value = quad(integrand, 0, np.inf)[0]
    n = 10**6
    gamma = critical_spread(n) / alpha
    assert condensed_n_eff(n, gamma) == pytest.approx(value, rel=1e-7)
    assert power(1, 4.0) == pytest.approx(one * 4 ** ((alpha - 1) / 2), rel=1e-7)


@pytest.mark.parametrize("ratio", [1.5, 3.0])
def test_condensed_laws_are_approached(ratio):
    """The gaps close as ln n grows; the law of another γ_c would not be approached."""
    n = np.array([1e3, 1e6, 1e12, 1e15])
    tokens, y2 = [], []
    for m in n:
        gamma = ratio * critical_spread(m)
        tokens.append(n_eff(m, gamma) / condensed_n_eff(m, gamma) - 1)
        y2.append(participation(m, gamma) - (1 - 1 / ratio))  # Derrida & Toulouse (1985)
    for gap in (np.abs(tokens), np.abs(y2)):
        assert np.all(np.diff(gap) < 0)
        assert gap[-1] < gap[0] / 2
    wrong = 1 - np.sqrt(0.5) / ratio  # with γ_c = √(ln n)
    assert abs(y2[-1]) < abs(y2[-1] + 1 - 1 / ratio - wrong) / 3


@pytest.mark.thorough
def test_where_the_limit_holds():
    """γ₁₀(n): the error is 10 % there, less before, more after; ½√ln n is always inside."""
    n = np.array([1, 2, 16, 64, 1024, 1e6, 1e12])
    reach = limit_reach(n)
    assert reach[0] == pytest.approx(np.sqrt(2 * np.log(1.1)), rel=1e-12)
    assert reach[4] == pytest.approx(1.40086, abs=5e-6)
    assert np.all(reach >= 0.5 * np.sqrt(np.log(n)))
    assert np.all(reach[3:] < np.sqrt(np.log(n[3:]) / 2))
    for m, gamma in zip(n[1:], reach[1:], strict=True):
        for factor, holds in ((0.3, True), (0.7, True), (0.99, True), (1.01, False), (2, False)):
            spread = factor * gamma
            error = exact("exp", length=m, gamma=spread).S_rms / np.exp(-(spread**2) / 2) - 1
            assert error > 0
            assert (error < 0.1) == holds
    for tolerance in (1e-9, 1e-6, 1e-3):  # γ²/(2n) + … is the error of a narrow row
        spread = limit_reach(1000, tolerance)
        error = exact("exp", length=1000, gamma=spread).S_rms / np.exp(-(spread**2) / 2) - 1
        assert error == pytest.approx(tolerance, rel=2e-3)
    assert limit_reach(1000, 1e-9) == pytest.approx(np.sqrt(2000 * 1e-9), rel=2e-3)
    assert limit_reach(1024, 0.01) < limit_reach(1024, 0.1) < limit_reach(1024, 0.5)


def test_regime():
    found = regime(1024, 3)
    assert found.name == "extremes"
    assert found.n_eff == pytest.approx(13.8665307457, rel=1e-10)
    assert not found.limit_holds
    assert found.annealed_n_eff == pytest.approx(1024 * np.exp(-9))
    assert repr(found) == "Regime(extremes: n = 1024, γ = 3 = 0.806 γ_c, n_eff = 13.8665)"
    assert regime(1024, 1).name == "annealed"
    assert regime(1024, 1).limit_holds
    assert regime(1024, 4).name == "condensed"
    assert regime(1024, 4).summary()["length"] == 1024


def test_errors():
    for call, match in (
        (lambda: regime(1, 1), "length"),
        (lambda: regime(8, -1), "gamma = -1"),
        (lambda: limit_reach(0.5), "length"),
        (lambda: limit_reach(8, 0.0), "tolerance"),
        (lambda: limit_reach(8, np.nan), "tolerance"),
        (lambda: limit_reach(8, 1e-10), "tolerance"),
        (lambda: limit_reach(8, "x"), "tolerance"),  # type: ignore[arg-type]
        (lambda: regime([10, 20], 1.0), "length"),
        (lambda: regime(10, [1.0, 2.0]), "gamma"),
        (lambda: condensed_n_eff(8, 0), "gamma"),
    ):
        with pytest.raises(InputError, match=match):
            call()


@pytest.mark.thorough
def test_a_callers_errors_of_numpy_are_not_the_librarys():
    """An e^(−x) that underflows is 0, also where NumPy is told to raise; nor is there a warning."""
    with np.errstate(all="raise"):
        assert regime(2, 100.0).name == "condensed"
        assert sparsity.exact("exp", length=64, gamma=100.0).value == pytest.approx(1, abs=0.1)
        assert sparsity.sweep("exp", gamma=[1.0, 30.0], length=[4, 64])["n_eff"].shape == (2, 2)
        assert sparsity.needle_capacity("exp", dim=16, query=50.0).value == 0
