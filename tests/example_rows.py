"""Rows of every step, alone and together, and their quantities by NumPy alone."""

import numpy as np

from sparsity import Alibi, Decay, Row, Sink, SinkLogit, Window
from sparsity.rows.steps import ALL

WEIGHT = {"exp": np.exp, "relu2": lambda x: np.maximum(x, 0) ** 2, "identity": np.abs}
MIXED = (Decay(0.95), Alibi(0.02), Window(12), Sink(2.0, 0.5), SinkLogit(1.0))


def every_row(kernel):
    """A row without steps, one of every step, and one of many."""
    alone = ((), *((step(*step.example),) for step in ALL))
    rows = [Row(kernel, beta=0.0, gamma=1.0, steps=steps) for steps in alone]
    return (*rows, Row(kernel, beta=0.5, gamma=0.8, steps=MIXED))


def sampled(row, n, rows=200_000, weight=None):
    """Rows from β_j, γ_j, w_j by NumPy: quantity -> mean and its error, over rows ≠ 0."""
    rng = np.random.default_rng(20231212)
    beta, gamma, w = row.positions(n)
    tokens = row.tokens(n)
    if tokens.scores:  # keys on a sphere
        dim = tokens.scores.dim
        k = rng.standard_normal((rows, n, dim))
        z = np.sqrt(dim) * k[..., 0] / np.linalg.norm(k, axis=-1)
    else:
        z = rng.standard_normal((rows, n))
    a = w * (weight or WEIGHT[row.kernel.name])(beta + gamma * z)
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
