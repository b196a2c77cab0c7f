"""Limits of long rows: any quantity, any kernel, against closed forms, integrals and long rows."""

import math
from dataclasses import replace

import pytest
from numpy.testing import assert_allclose
from scipy.integrate import quad
from scipy.special import expit

import sparsity
from sparsity import Alibi, Decay, InputError, QKNorm, Row, SinkLogit, Window, quantities

N = 4096


def limit(kernel, of, length=N, **asked):
    length = {} if of == "S" else {"length": length}
    return sparsity.evaluate(kernel, of=of, **length, **asked)


def of_softmax(g):
    """Closed forms of a = e^s: lognormal weights."""
    return {
        "entropy": math.log(N) - g * g / 2,
        "n_eff": N * math.exp(-g * g),
        "participation": math.exp(g * g) / N,
        "hoyer": (1 - math.exp(-g * g / 2)) / (1 - N**-0.5),
        "power_sum:3": math.exp(3 * g * g) / N**2,  # ln n − 3γ²/2 for the Rényi entropy of order 3
        "power_sum:0.5": math.exp(-g * g / 8) * N**0.5,
    }


def agrees(found, true):
    return abs(found.value / true - 1) <= found.error_bound + 2e-14


@pytest.mark.parametrize("gamma", [1.0, 8.0])
def test_closed_forms_of_softmax(gamma):
    for of, true in of_softmax(gamma).items():
        found = limit("exp", of, gamma=gamma)
        assert agrees(found, true), of
        assert found.error_bound < 1e-10
        assert (found.quantity, found.method) == (of, "limit of long rows")


def test_planted_wrong_limits_are_rejected():
    """A lost n, a lost square, a wrong order, sign, share or count."""
    true = of_softmax(1.0)
    for of, wrong in (
        ("n_eff", lambda rows: rows.product((1, 1.0), (2, -0.5))),
        ("participation", lambda rows: rows.product((2, 1.0), (1, -1.0))),
        ("power_sum:3", lambda rows: rows.product((2, 1.0), total=-3.0)),
        ("entropy", lambda rows: (math.log(rows.n) + 0.5, 1e-12)),
    ):
        right = quantities.named(of)
        assert agrees(limit("exp", right, gamma=1.0), true[of])
        assert not agrees(limit("exp", replace(right, limit=wrong), gamma=1.0), true[of])


def normal(x):
    return math.exp(-x * x / 2) / math.sqrt(2 * math.pi)


def mean(f, points=()):
    return quad(lambda x: f(x) * normal(x), -12, 12, epsabs=1e-14, limit=400, points=points)[0]


@pytest.mark.parametrize(
    ("kernel", "f", "cut"),
    [("relu2", lambda s: max(s, 0.0) ** 2, (-0.375,)), ("sigmoid", expit, ())],
)
def test_rising_weights_by_integrals(kernel, f, cut):
    beta, gamma = 0.3, 0.8
    a = lambda x: f(beta + gamma * x)  # noqa: E731
    m1 = mean(a, cut)
    log = lambda x: a(x) * math.log(a(x)) if a(x) > 0 else 0.0  # noqa: E731
    for of, true in (
        ("entropy", math.log(N * m1) - mean(log, cut) / m1),
        ("power_sum:1.5", mean(lambda x: a(x) ** 1.5, cut) / m1**1.5 / N**0.5),
        ("n_eff", N * m1**2 / mean(lambda x: a(x) ** 2, cut)),
    ):
        found = limit(kernel, of, beta=beta, gamma=gamma)
        assert abs(found.value / true - 1) < 1e-9, of
        assert found.error_bound < 1e-9


LONG = 10**8


@pytest.mark.parametrize("kernel", ["exp", "relu2"])
def test_exact_laws_of_long_rows_tend_to_them(kernel):
    """The exact laws at n = 10⁸ share neither their integrals nor their rule."""
    given = {"beta": 0.3, "gamma": 0.8}
    names = ("S", "n_eff", "participation", "entropy", "hoyer", "power_sum:3", "power_sum:0.5")
    for of in names:
        far = limit(kernel, of, length=LONG, **given)
        law = sparsity.exact(kernel, of=of, length=LONG, **given)
        assert abs(far.value / law.value - 1) < 1e-6, of


def test_rows_of_steps():
    row = Row("exp", gamma=0.5, steps=(SinkLogit(12.0),))
    for of in ("sink_mass", "participation", "entropy", "power_sum:2"):
        far = limit(row, of, length=10**6)
        law = sparsity.exact(row, length=10**6, of=of)
        assert abs(far.value / law.value - 1) < 1e-5, of
    share = math.exp(12) / (math.exp(12) + 1e6 * math.exp(0.125))
    assert_allclose(limit(row, "sink_mass", length=10**6).value, share, rtol=1e-12)
    for steps in ((Decay(0.99),), (QKNorm(8), Window(300))):
        row = Row("relu2", beta=1.0, gamma=0.5, steps=steps)
        S = sparsity.evaluate(row, length=512)
        assert_allclose(limit(row, "n_eff", length=512).value, 512 * S.S**2, rtol=1e-9)
    # Equal weights in a window: ln 300 − γ²/2, whatever the rest of the row.
    window = Row("exp", gamma=0.3, steps=(Window(300),))
    assert_allclose(limit(window, "entropy", length=512).value, math.log(300) - 0.045, rtol=1e-9)


@pytest.mark.parametrize(
    ("row", "of", "length", "says"),
    [
        (Row("exp", gamma=1.0), "entropy", None, "depends on it; give the row length"),
        (Row("exp", gamma=1.0), "participation", None, "depends on it"),
        *(
            (Row("exp", gamma=1.0), of, 64, "has no limit for long rows; use exact or estimate")
            for of in ("max_weight", "gini", "top_k_mass:4", "keys_for_mass:0.5")
        ),
        (Row("exp", gamma=1.0), "sink_mass", 64, "no sink"),
        (Row("exp", gamma=1.0, steps=(Alibi(0.1),)), "hoyer", None, "depends on its length"),
        (Row("exp", gamma=1.0), "n_eff", 0, "length = 0"),
        (Row("sparsemax", gamma=1.0), "entropy", 64, "depend on the whole row"),
    ],
)
def test_what_has_no_limit_says_so(row, of, length, says):
    with pytest.raises(InputError, match=says):
        sparsity.evaluate(row, of=of, length=length)


def test_at_the_prompt(command):
    line = ["eval", "exp", "--gamma", "2", "--of", "entropy"]
    code, out, err = command(*line, "--length", "4096")
    assert (code, err) == (0, "")
    assert "entropy = 6.31776616672" in out
    assert "limit of long rows" in out
    code, out, err = command(*line)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith("sparsity: length is missing: the limit of entropy")
