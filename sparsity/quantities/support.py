"""The support of a row: the tokens with a weight above zero."""

from __future__ import annotations

from sparsity.quantities.base import Quantity

support = Quantity(
    name="support",
    symbol="E K",
    title="support size, the number of nonzero weights",
    average="E #{j: a_j ≠ 0} over rows that are not all zero; sampled, a weight below e^−708 times "
    "the largest (float32: e^−87) counts as zero",
    unit="tokens",
    of=lambda row: (row.weights > 0).astype(row.weights.dtype).sum(-1),
    whole=True,
)
