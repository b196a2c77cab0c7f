"""The claims of [Su] on what attention can focus: `scores`, then `linear`, then `matrices`."""

from __future__ import annotations

from sparsity.claims_ledger.su import linear, matrices, scores

__all__ = ["CLAIMS"]

CLAIMS = (*scores.CLAIMS, *linear.CLAIMS, *matrices.CLAIMS)
