"""Exact laws against a million sampled rows of 2, 16 and 256 tokens, and fewer of 4096.

Every kernel and every map, every other measure of focus, and every law of scores.
"""

import math

import numpy as np
import pytest
from scipy import stats

import sparsity
from sparsity import Empirical, Mixture, Row, StudentT, Uniform, kernels
from sparsity.exact_law import map_laws
from sparsity.sampling import Sampling
from sparsity.sampling.row_sampling import draw_rows

ROWS, LENGTHS = 10**6, (2, 16, 256, 4096)
FEW = 10**5  # of the longest, each of which scatters little; some more than others
MORE_OF = {"entmax1.5": 3 * FEW, "router:64": 3 * FEW}  # participation scatters by 0.6 and 0.5
FALSE_ALARMS, PLANTED = 1e-4, 0.01  # over all cells; an error of a law that each must reject
FOCUS = ("n_eff", "S", "participation")
SCORE = {"beta": 0.5, "gamma": 1.0}
RISING = ("exp", "relu2", "identity", "relu", "relu3", "power2", "power4", "abs")
NOT_OF_SCORES = ("nonnegative", "decayed")
OTHERS = [k.name for k in kernels.known() if k.name not in (*RISING, *NOT_OF_SCORES)]
FUNCTIONS = dict.fromkeys(RISING, (SCORE, (*FOCUS, "entropy", "max_weight")))
FUNCTIONS |= dict.fromkeys(OTHERS, (SCORE, (*FOCUS, "entropy")))
BELOW = ("below:-0.5", "mass_below:-0.5")  # of tiles: tests/test_thresholds.py
MAPS = {
    "sparsemax": (SCORE, (*FOCUS, "max_weight", "support")),
    "entmax1.5": (SCORE, (*FOCUS, "max_weight", "support")),
    "topk:8": (SCORE, (*FOCUS, "entropy")),
    "router:64": ({"gamma": 1.5, "rho": 0.8}, ("abs_sum", *FOCUS, "recall")),
    "tile-softmax:16": ({"gamma": 1.5, "within": 0.3}, BELOW),
}
MEASURES = ("gini", "top_k_mass:8", "power_sum:0.5", "power_sum:3", "hoyer")
LAWS = {
    "uniform": Uniform(),
    "t": StudentT(12),
    "mixture": Mixture(((0.9, 0.0, 1.0), (0.1, 3.0, 0.5))),
    "empirical": Empirical(np.random.default_rng(20231212).gamma(2.0, size=300)),
}
PLAIN = ("exp", "relu2", "identity")
# E a is infinite: of the participation a million rows know no more than 0.2 %, and less at γ = 1.
NARROW, HEAVY = {("exp", "t"): {"beta": 0.5, "gamma": 0.5}}, {"exp of t scores": 0.02}
MEMBERS = {name: (Row(name, **given), names) for name, (given, names) in (FUNCTIONS | MAPS).items()}
MEMBERS |= {f"measures of {name}": (Row(name, **SCORE), MEASURES) for name in PLAIN}
MEMBERS |= {
    f"{name} of {law} scores": (
        Row(name, scores=scores, **NARROW.get((name, law), SCORE)),
        (*FOCUS, "entropy"),
    )
    for law, scores in LAWS.items()
    for name in PLAIN
}
CELLS = len(LENGTHS) * sum(len(names) for _, names in MEMBERS.values())


def test_every_member_with_an_exact_law_is_there():
    rows = {k.name for k in kernels.known()} - {*NOT_OF_SCORES}
    with_law = {kernel.name for kernel in kernels.MAPS if map_laws.known(kernel)}
    assert set(FUNCTIONS) == rows
    assert set(MAPS) == with_law


@pytest.mark.slow
@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("name", MEMBERS)
def test_the_laws_of_a_million_rows(name, length):
    (row, names), most = MEMBERS[name], stats.norm.isf(FALSE_ALARMS / 2 / CELLS)
    planted = HEAVY.get(name, PLANTED)
    scatters = name in HEAVY or name.startswith("measures")  # Σp³ of exp, and what is heavy
    count = MORE_OF.get(name, FEW) if length == LENGTHS[-1] and not scatters else ROWS
    sampling = Sampling(1e-9, max_samples=count, seed=length, dtype=np.float32)
    drawn = draw_rows(row, length, sampling, names)
    for of in names:
        found, rows = sparsity.exact(row, of=of, length=length), drawn.estimate(of)
        error = math.hypot(rows.rel_stderr, 1e-6)  # the draws are of float32
        z = (rows.log_value - found.log_value) / error
        print(f"{name} n={length} {of}: {found.value:.8g}, {rows.samples:.3g} rows, z = {z:+.2f}")
        assert rows.samples >= count
        assert abs(z) < most
        assert min(abs(z + planted / error), abs(z - planted / error)) > most
