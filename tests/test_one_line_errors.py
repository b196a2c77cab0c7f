"""Arguments of a wrong kind, in Python, are one line that names them."""

import jax
import numpy as np
import pytest

import sparsity
from sparsity.attention.measurement.texts import check_beginnings
from sparsity.attention.monitoring.step import monitor
from sparsity.errors import InputError


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
