"""The sum of |a| of the weights as they are: how much signed weights hand on, of either sign."""

from __future__ import annotations

from typing import Any

from sparsity.quantities.base import Quantity, RowSums


def _of(row: RowSums) -> Any:
    # Weights without a 1 of their own are shares of all there is.
    total = row.l1 + row.unit if row.one is None else row.one
    return row.l1 / total


abs_sum = Quantity(
    name="abs_sum",
    symbol="E Σ|a|",
    title="sum of |a| of the weights as they are, signed ones too",
    average="E Σ|a_j| over tokens, of weights as they are; over nonzero rows",
    unit="1",
    of=_of,
    units=True,
)
