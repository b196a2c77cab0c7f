"""Claims on powers of scores and bounded scores (`powers`), and on maps of whole rows (`maps`)."""

from __future__ import annotations

from sparsity.claims_ledger.weights import maps, powers

__all__ = ["CLAIMS"]

CLAIMS = (*powers.CLAIMS, *maps.CLAIMS)
