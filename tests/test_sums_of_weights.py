"""Sums of weights as they are, and the variance of ln p, against rows that NumPy draws."""

from typing import Any

import numpy as np
import pytest

import sparsity
from sparsity import Alibi, Gate, InputError, Row, SinkLogit, Window, exact, quantities
from sparsity.exact_law import engine

N, ROWS = 5, 200_000
OF = ("abs_sum", "square_sum", "varentropy", "kl_uniform")


def drawn(f, beta, gamma):
    """Mean and standard error of each quantity over rows that are not all zero."""
    a = np.abs(f(beta + gamma * np.random.default_rng(0).standard_normal((ROWS, N))))
    a = a[a.sum(1) > 0]
    p = a / a.sum(1, keepdims=True)
    log_p = np.log(np.where(p > 0, p, 1))
    mean = (p * log_p).sum(1)
    each = a.sum(1), (a * a).sum(1), (p * log_p**2).sum(1) - mean**2, np.log(N) + mean
    return {of: (x.mean(), x.std() / len(x) ** 0.5) for of, x in zip(OF, each, strict=True)}


ago = np.arange(N)[::-1]
ROWS_OF = (
    (Row("exp", gamma=0.7), np.exp, 0, 0.7),
    (Row("exp", gamma=0.7, steps=(Gate(0.3),)), lambda s: 0.3 * np.exp(s), 0, 0.7),
    (Row("relu2", beta=-0.5, gamma=1.0, steps=(Alibi(0.3),)),
     lambda s: np.maximum(s, 0) ** 2, -0.5 - 0.3 * ago, 1.0),
    (Row("identity", beta=1.0, gamma=2.0, steps=(Window(3),)), lambda s: s * (ago < 3), 1, 2.0),
    (Row("sigmoid", beta=-3.0, gamma=1.0), lambda s: 1 / (1 + np.exp(-s)), -3, 1.0),
)  # fmt: skip


@pytest.mark.parametrize("case", ROWS_OF, ids=lambda case: repr(case[0]))
def test_laws_against_rows_by_definition(case):
    row, f, beta, gamma = case
    sampled = drawn(f, beta, gamma)
    for of in OF:
        mean, error = sampled[of]
        value = float(exact(row, length=N, of=of))
        assert abs(value - mean) < 4.8 * error, of
        assert abs(value * 1.15 - mean) > 4.8 * error, of  # a planted error is seen


def test_a_sink_logit_is_beside_the_sum():
    plain, beside = (Row("exp", gamma=1.0, steps=x) for x in ((), (SinkLogit(2.0),)))
    for of in ("abs_sum", "square_sum"):
        assert float(exact(beside, length=9, of=of)) == float(exact(plain, length=9, of=of))
    drawn = sparsity.estimate(beside, length=9, of="abs_sum", rel_error=2e-3)
    assert abs(drawn.value - 9 * np.exp(0.5)) < 4.8 * drawn.stderr


@pytest.mark.parametrize("steps", [(), (SinkLogit(1.0),)])
@pytest.mark.parametrize("of", [x.name for x in quantities.ALL if x.linear])
def test_what_is_linear_in_another_follows_it_in_short_rows(steps, of):
    """Beside a sink logit n shares may have more entropy than ln n, and KL is below 0."""
    image: Any = quantities.named(of).linear
    for n in (1, 2, 3):
        row = Row("exp", gamma=1.0, steps=steps)
        value = float(exact(row, length=n, of=of))
        assert value == pytest.approx(image(float(exact(row, length=n, of=image.of)), n), abs=1e-14)
    p = 1 / (1 + np.exp(1 - np.random.default_rng(1).standard_normal(ROWS)))  # n = 1
    if of == "kl_uniform" and steps:
        drawn = p * np.log(p)
        found = float(exact(row, length=1, of=of))
        assert abs(found - drawn.mean()) < 4.8 * drawn.std() / ROWS**0.5


def test_the_bias_at_which_weights_add_up_to_one():
    """As SigLIP and sigmoid attention choose theirs, −ln n: here less the spread's e^(γ²/2)."""
    gamma = 0.1  # at −104 spreads
    found = sparsity.design(
        "sigmoid", length=32768, of="abs_sum", value=1, free="beta", gamma=gamma
    )
    assert found.value == pytest.approx(-np.log(32768) - gamma**2 / 2, abs=1e-4)
    with pytest.raises(InputError, match=r"one quantity to aim at: S, n_eff, .*abs_sum"):
        sparsity.design("sigmoid", length=32768)
    for beta, gamma in ((0.0, 40.0), (-800.0, 1.0)):
        with pytest.raises(InputError, match="beyond float64"):
            exact("exp", beta=beta, gamma=gamma, length=8, of="abs_sum")
    for beta in (-38.0, -40.0):  # chances of 3e-316 and 0 in float64
        with pytest.raises(InputError, match="hardly ever other than 0"):
            exact("relu", beta=beta, gamma=1.0, length=8, of="abs_sum")


def test_sums_of_too_many_laws_are_refused(monkeypatch):
    monkeypatch.setattr(engine, "_SECONDS_PER_CLASS", 1.0)  # as if there were 50,000 times as many
    with pytest.raises(InputError, match="takes too long"):
        exact(Row("relu", beta=-5.0, gamma=1.0, steps=(Alibi(1e-3),)), length=99, of="abs_sum")


def test_varentropy_is_the_variance_of_the_score_in_long_rows():
    """Of softmax, whose attention tilts N(0, γ²) to N(γ², γ²); of two tokens as of a pair."""
    value = exact("exp", gamma=0.5, length=10**9, of="varentropy")
    assert float(value) == pytest.approx(0.25, rel=1e-6)
    x = np.linspace(-12, 12, 200_001) * 2**0.5
    pair = np.exp(-(x**2) / 4) / np.sqrt(4 * np.pi) * x**2 / (4 * np.cosh(x / 2) ** 2)
    law = exact("exp", gamma=1.0, length=2, of="varentropy")
    assert float(law) == pytest.approx(np.trapezoid(pair, x), rel=1e-9)


def test_metrics_take_logarithms_of_weights():
    assert quantities.named("ESS") is quantities.n_eff
    log_w = np.array([[-1e4, -1e4, -np.inf], [800.0, 801.0, 802.0]])
    w = np.array([[1.0, 1.0, 0.0], np.exp([-2.0, -1.0, 0.0])])
    for name in ("S", "n_eff", "entropy", "varentropy", "gini", "hoyer"):
        metric = getattr(sparsity, name)
        np.testing.assert_allclose(metric(log_w, log=True), metric(w), rtol=1e-14)
    with_unit = sparsity.entropy(np.zeros(2), unit=1.0, log=True)
    assert with_unit == pytest.approx(sparsity.entropy(np.ones(2), unit=1.0), rel=1e-15)
