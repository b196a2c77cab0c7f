"""The claims of [CoCA] on rotary positions: where scores rise, the `forms`, and long contexts."""

from __future__ import annotations

from dataclasses import replace

from sparsity.claims_ledger.coca import forms, long_contexts, positions
from sparsity.claims_ledger.coca.forms import CocaRoutes
from sparsity.claims_ledger.recorded import OF_COCA

__all__ = ["CLAIMS", "PUBLISHED_PERPLEXITY", "CocaRoutes"]

# Published in the source, trained at 512 tokens; not recomputed here, and no claim rests on them.
PUBLISHED_PERPLEXITY: dict[str, dict[int, float]] = {
    "RoFormer": {512: 19.66, 2048: 3276.0, 8192: 3028.0, 32768: float("inf")},
    "RoFormer + dynamic NTK": {512: 19.66, 2048: 38.00, 8192: 138.13, 32768: 380.75},
    "CoCA": {512: 20.11, 2048: 69.06, 8192: 157.38, 32768: 171.63},
    "CoCA + dynamic NTK": {512: 20.11, 2048: 25.88, 8192: 55.75, 32768: 101.13},
}

CLAIMS = tuple(
    replace(claim, recorded=OF_COCA.get(claim.key, ()))
    for claim in (*positions.CLAIMS, *forms.CLAIMS, *long_contexts.CLAIMS)
)
