"""Hoyer's index of a row."""

from __future__ import annotations

import numpy as np

from sparsity import metric
from sparsity.quantities.base import Linear, Quantity
from sparsity.quantities.sparsity import S

hoyer = Quantity(
    name="hoyer",
    symbol="E Hoyer",
    title="Hoyer's index, 0 for uniform, 1 for one-hot; of a single token 0",
    average="E[(√n − ‖a‖₁/‖a‖₂)/(√n − 1)] over rows that are not all zero",
    unit="1",
    of=lambda row: metric.hoyer_of(row.l1, row.l2, row.count),
    # (√n − √n S_n)/(√n − 1): as S, 1 − S in long rows
    linear=Linear(
        of=S,
        shift=lambda n: np.where(np.equal(n, 1), 1.0, 1 / (1 - np.maximum(n, 2.0) ** -0.5)),
        slope=lambda n: np.where(np.equal(n, 1), -1.0, -1 / (1 - np.maximum(n, 2.0) ** -0.5)),
    ),
)
