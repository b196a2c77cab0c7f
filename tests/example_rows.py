"""Rows of every step, alone and together, and their quantities by NumPy alone."""

import functools

import numpy as np

from sparsity import Alibi, Decay, Row, Sink, SinkLogit, SoftCap, Window
from sparsity.rows.steps import ALL

WEIGHT = {"exp": np.exp, "relu2": lambda x: np.maximum(x, 0) ** 2, "identity": np.abs}
MIXED = (Decay(0.95), Alibi(0.02), Window(12), Sink(2.0, 0.5), SinkLogit(1.0))


def every_row(kernel):
    """A row without steps, one of every step, and one of many."""
    alone = ((), *((step(*step.example),) for step in ALL))
    rows = [Row(kernel, beta=0.0, gamma=1.0, steps=steps) for steps in alone]
    return (*rows, Row(kernel, beta=0.5, gamma=0.8, steps=MIXED))


@functools.lru_cache(maxsize=2)
def _drawn(rows, n, dim):
    """Scores of mean 0 and variance 1, the same for every row of a test; of a sphere with `dim`."""
    rng = np.random.default_rng(20231212)
    z = rng.standard_normal((rows, n))
    if dim:  # √dim times an entry of k/|k|: |k|² is its square and a χ² of all the others
        z *= np.sqrt(dim / (z * z + rng.chisquare(dim - 1, (rows, n))))
    z.flags.writeable = False
    return z


def sampled(row, n, rows=200_000, weight=None):
    """Rows from β_j, γ_j, w_j by NumPy: quantity -> mean and its error, over rows ≠ 0."""
    beta, gamma, w = row.positions(n)
    tokens = row.tokens(n)
    z = _drawn(rows, n, tokens.scores.dim if tokens.scores else 0)
    scores = beta + gamma * z
    for step in row.steps:
        if isinstance(step, SoftCap):  # the last of what changes scores
            scores = step.cap * np.tanh(scores / step.cap)
    name = getattr(row.kernel, "uncapped", row.kernel).name
    a = w * (weight or WEIGHT[name])(scores)
    unit = np.exp(tokens.units).sum() if tokens.units else 0.0
    sink = np.repeat(tokens.sink, tokens.count.astype(int))[::-1]
    l1, l2 = a.sum(axis=1), (a * a).sum(axis=1)
    live = l1 > 0
    whole = live | (unit > 0)
    values = {
        "S": l1[live] / np.sqrt(n * l2[live]),
        "n_eff": l1[live] ** 2 / l2[live],
        "participation": l2[whole] / (l1[whole] + unit) ** 2,
        "sink_mass": ((a * sink).sum(axis=1) + unit)[whole] / (l1[whole] + unit),
        "live": live,
    }
    return {k: (v.mean(), v.std() / np.sqrt(len(v))) for k, v in values.items()}
