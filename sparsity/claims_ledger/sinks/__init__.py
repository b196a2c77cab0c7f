"""The claims of [Barbero] on sinks: `mixing`, and what a longer `context` asks of a sink."""

from __future__ import annotations

from dataclasses import replace

from sparsity.claims_ledger.recorded import OF_SINKS
from sparsity.claims_ledger.sinks import context, mixing
from sparsity.claims_ledger.sinks.mixing import PUBLISHED_BESIDES, SinkRoutes

__all__ = ["CLAIMS", "PUBLISHED_BESIDES", "SinkRoutes"]

_MIX_LESS, _RANK_COLLAPSE, _NO_OP = mixing.CLAIMS
_LONGER_CONTEXT, _OVER_SQUASHING, _LARGER_MODELS = context.CLAIMS
CLAIMS = tuple(  # the order of the report
    replace(claim, recorded=OF_SINKS.get(claim.key, ()))
    for claim in (
        *(_MIX_LESS, _LONGER_CONTEXT, _RANK_COLLAPSE),
        *(_OVER_SQUASHING, _NO_OP, _LARGER_MODELS),
    )
)
