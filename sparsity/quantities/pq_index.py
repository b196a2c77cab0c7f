"""The pq-index of a row: 1 − n^(1/q − 1/p) ‖a‖_p/‖a‖_q."""

from __future__ import annotations

from typing import Any

import numpy as np

from sparsity.quantities.base import Family, Linear, LongRows, Quantity, RowSums
from sparsity.quantities.sparsity import S


def _member(name: str, p: float, q: float) -> Quantity:
    def limit(rows: LongRows) -> tuple[float, float]:
        ratio, error = rows.product((p, 1 / p), (q, -1 / q), count=1 / q - 1 / p)
        return 1 - ratio, error

    def of(row: RowSums) -> Any:
        a = row.weights / row.weights.max(-1)[..., None]
        low, high = ((a**order).mean(-1) ** (1 / order) for order in (p, q))
        return 1 - low / high

    return Quantity(
        name=name,
        symbol=f"E I_{p:g},{q:g}",
        title=f"pq-index 1 − n^(1/{q:g} − 1/{p:g}) ‖a‖_{p:g}/‖a‖_{q:g}",
        average="E[1 − n^(1/q − 1/p) ‖a‖_p/‖a‖_q] over rows that are not all zero",
        unit="1",
        of=of,
        whole=True,
        limit=limit,
        # 1 − S_n, of p = 1 and q = 2
        linear=Linear(of=S, shift=np.ones_like, slope=lambda n: -np.ones_like(n))
        if (p, q) == (1, 2)
        else None,
    )


pq_index = Family(
    name="pq_index",
    symbol="p,q",
    title="pq-index 1 − n^(1/q − 1/p) ‖a‖_p/‖a‖_q, 0 for uniform (Diao et al., arXiv 2302.05601)",
    domain="two orders p < q, p from 0.05 to 8 and q up to 16",
    admits=lambda p, q: 0.05 <= p <= 8 and p < q <= 16,
    member=_member,
    example="1,2",
)
