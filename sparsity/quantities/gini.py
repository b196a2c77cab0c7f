"""The Gini coefficient of the attention weights."""

from __future__ import annotations

import numpy as np

from sparsity import metric
from sparsity.quantities.base import Layers, Quantity

gini = Quantity(
    name="gini",
    symbol="E Gini",
    title="Gini coefficient of the weights, 0 for uniform, 1 − 1/n for one-hot",
    average="E Σ_jk |p_j − p_k|/(2n) over tokens, p_j = |a_j|/Σ|a|, over nonzero rows",
    unit="1",
    of=lambda row: metric.gini(row.weights),
    whole=True,
    limit=lambda rows: rows.gini(),
    # Σ_jk |a_j − a_k|/2 = ∫ N(a)(n − N(a)) da, and E N(n − N)/n = (n − 1)q(1 − q)
    layers=Layers(
        mean=lambda n, log_rest: (1 - n) * np.expm1(log_rest) * np.exp(log_rest),
        keys=0,
        ends=lambda n: (0.0, 1 - 1 / n),
    ),
)
