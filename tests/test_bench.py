"""The benchmark: a false peer is found out, and bad questions are refused."""

import pytest

from benchmarks import bench
from benchmarks.bench import resources, target
from benchmarks.bench.grid import Task
from benchmarks.bench.peers import Peer, available
from sparsity import InputError, kernels

PEERS = available()


def _false(cell, draws, dtype):
    """A peer whose a² is 5 % too large: its error bar does not know."""
    honest = PEERS[0].prepare(cell, draws, dtype)
    return lambda seed: honest(seed) * [1.0, 1.05]


@pytest.mark.thorough
def test_a_false_peer_is_found_out():
    cell = Task(kernels.identity, 1.0, 1.0)
    false = Peer("false", "a² is too large", _false)
    slow = Peer("slow", "never done", PEERS[0].prepare)
    speed = {("false", "identity"): 1e8, ("slow", "identity"): 1.0}
    how = {"dtype": "float64", "budget": 0.05, "rounds": 3}
    found = target.timed(cell, 1e-3, [false, slow], speed, **how)
    assert found["peers"]["false"]["how"] == "wrong"
    assert found["peers"]["slow"]["how"] == "computed"
    assert found["peers"]["slow"]["seconds"] == pytest.approx(cell.plain_draws(1e-3))
    assert found["best"][0] == "slow"
    honest = target.timed(cell, 1e-3, [PEERS[0]], {("numpy", "identity"): 1e8}, **how)
    assert honest["peers"]["numpy"]["how"] == "measured"


@pytest.mark.thorough
def test_bad_budgets_and_jobs_are_refused():
    with pytest.raises(InputError, match="budget_seconds"):
        bench.run(budget_seconds=0)
    with pytest.raises(InputError, match="could not be measured"):
        resources.probe("nothing", 1, "no such job")
