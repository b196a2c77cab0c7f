"""Claims behind rules that people ship for long contexts, and of what a row can hold."""

from __future__ import annotations

from sparsity.claims_ledger.rules import needle, routers, temperature

__all__ = ["CLAIMS"]

CLAIMS = (*temperature.CLAIMS, *routers.CLAIMS, *needle.CLAIMS)
