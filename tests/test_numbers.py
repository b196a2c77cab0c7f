"""A few hundred numbers stand: of all kernels, maps, steps and quantities, and their ends.

`benchmarks/few_numbers.py` writes the table, and `benchmarks/few_numbers_check.py` holds it against
ball arithmetic, brute force and samples that use nothing of the library.
"""

import pytest
from numpy.testing import assert_allclose

from benchmarks.few_numbers import ask, load
from sparsity import InputError, kernels, quantities
from sparsity.rows import steps, tokens

TABLE = load()


@pytest.mark.parametrize("asked", TABLE, ids=lambda asked: f"{asked['kernel']}-{asked['of']}")
def test_numbers_stand(asked):
    """To 1e-11, on any processor; bounds of exact laws, in which there is rounding, roughly."""
    values, bounds = ask(asked)
    assert_allclose(values, asked["values"], rtol=1e-11, atol=1e-11)
    if bounds is not None:
        assert_allclose(bounds, asked["bounds"], 0.1, 1e-13 if asked["call"] == "exact" else 0)


def test_every_member_has_its_numbers():
    quantity = [*quantities.ALL, *quantities.OF_MAPS, *quantities.FAMILIES]
    assert {x.name for x in quantity} <= {x["of"].partition(":")[0] for x in TABLE}
    assert {step.name for step in steps.ALL} <= {name for x in TABLE for name, _ in x["steps"]}
    asked = {x["kernel"].partition(":")[0] for x in TABLE}
    assert {x.name for x in kernels.known()} - asked == set()
    assert {x.family for x in kernels.MAPS} - asked == set()


def test_the_longest_row_of_tokens_that_all_differ():
    assert tokens.every(tokens.MOST)[-1] == tokens.MOST - 1
    with pytest.raises(InputError, match="at most 4194304 tokens"):
        tokens.every(tokens.MOST + 1)
