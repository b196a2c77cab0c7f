"""Arguments of a wrong kind, in Python, are one line that names them."""

import jax
import numpy as np
import pytest

import sparsity
from sparsity import InputError, monitor
from sparsity.attention.measurement.texts import check_beginnings


@pytest.mark.parametrize("bos", [False, None, 1, (), (None,), ("yes",), "no"])
def test_bos_of_runs(bos):
    with pytest.raises(InputError, match=r"^bos .*give \(False,\), \(True,\) or"):
        check_beginnings(bos)


def test_bos_that_is_taken():
    assert check_beginnings((False, True)) == (False, True)
    assert check_beginnings(np.array([True])) == (True,)


@pytest.mark.parametrize("when", [None, "yes", [True], np.array([True, False])])
def test_when_of_a_monitor(when):
    x = np.zeros((1, 4, 8), np.float32)
    with pytest.raises(InputError, match=r"^when ") as caught:
        monitor(x, x, when=when)
    assert "\n" not in str(caught.value)


def test_when_that_is_taken():
    x = np.ones((1, 4, 8), np.float32)
    for when in (np.bool_(True), jax.numpy.array(1) == 1, 1):
        assert np.isfinite(monitor(x, x, "n_eff", when=when)["n_eff"]).all()


def test_an_option_that_torch_penalty_does_not_take():
    with pytest.raises(InputError, match=r"^option = window: torch_penalty takes scale, mask, "):
        sparsity.attention.monitoring.torch_penalty(None, None, low=2, window=4)


LARGE = (  # whole constants beyond JAX's integers, NumPy's, and what float64 holds apart
    "s**2*10000000000", "max(s, 0) + 3000000000", "exp(s)/10**30", "min(s**2, 5000000000)",
    "10**20*tanh(s/10**20)", "10**200*s", "s + 10**25", "s**4294967296", "log(1 + 10**40*exp(s))",
    "sqrt(10**19 + s**2)", "exp(-s*10**10)", "max(s - 10**10, 0)", "abs(s)**(1/10**12)",
)  # fmt: skip


@pytest.mark.parametrize("formula", LARGE)
def test_large_whole_constants(formula):
    """Each instrument gives a number, the same as of the constant as a float, or one line."""
    asked = {"beta": 0.0, "gamma": 1.0}
    told = 0
    for ask in (
        lambda f: sparsity.evaluate(f, **asked).log_S,
        lambda f: sparsity.estimate(f, **asked, rel_error=0.1).log_value,
        lambda f: sparsity.exact(f, **asked, length=4).log_value,
        lambda f: sparsity.estimate(f, **asked, length=4, rel_error=0.1).log_value,
    ):
        try:
            found = float(ask(formula))
        except InputError as error:
            told += str(error).count("\n") == 0
        else:
            told += not np.isnan(found)
    assert told == 4


@pytest.mark.parametrize("value", [2**31, 2**53, 10**19, 2**64, 10**30])
def test_large_whole_numbers_of_steps_and_bounds(value):
    x = np.ones((1, 4, 8), np.float32)
    penalty = sparsity.attention.monitoring.penalty
    assert float(penalty(x, x, high=value)) == 0  # n_eff is never above
    row = sparsity.Row("exp", gamma=1, steps=(sparsity.SoftCap(value),))
    plain = float(sparsity.exact("exp", gamma=1, length=4))
    found = sparsity.estimate(row, length=4, rel_error=0.02)
    assert abs(found.value - plain) < 4.5 * found.stderr
