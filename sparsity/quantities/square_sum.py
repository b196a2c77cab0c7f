"""The sum of squares of the weights as they are: what independent values come out with."""

from __future__ import annotations

from typing import Any

from sparsity import metric
from sparsity.quantities.base import Quantity, RowSums


def _of(row: RowSums) -> Any:
    # Weights without a 1 of their own are shares of all there is.
    total = row.l1 + row.unit if row.one is None else row.one
    return metric.participation(total, row.l2)


square_sum = Quantity(
    name="square_sum",
    symbol="E Σa²",
    title="sum of squares of the weights as they are, signed ones too: the variance of Σa_j v_j",
    average="E Σa_j² over tokens, of weights as they are, whatever Σ|a|; over nonzero rows",
    unit="1",
    of=_of,
    units=True,
)
