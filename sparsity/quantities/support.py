"""The support of a row: the tokens with a weight above zero."""

from __future__ import annotations

from sparsity.quantities.base import Quantity

support = Quantity(
    name="support",
    symbol="E K",
    title="support size, the number of nonzero weights",
    # A weight below e^−87 (float32) or e^−708 (float64) times the largest counts as zero.
    average="E #{j: a_j ≠ 0} over rows that are not all zero",
    unit="tokens",
    of=lambda row: (row.weights > 0).astype(row.weights.dtype).sum(-1),
    whole=True,
)
