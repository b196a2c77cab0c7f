"""What the experiments found: the explicit tuple of them, and the claims that they alone judge.

    experiments/results/NAME.csv ── python -m experiments.recorded ── EXPERIMENTS (numbers, as data)
                                                                        │ an outcome finds in them
              CLAIMS: claims of their own ──┐                           │
              OF_SINKS: more findings for the claims on sinks ──────────┴── verdict

A further experiment is one module here with its `Recorded` and what it finds, and an entry below.
"""

from __future__ import annotations

from collections.abc import Mapping

from sparsity.claims_ledger.judging import Claim
from sparsity.claims_ledger.recorded import recall, sinks, temperature
from sparsity.claims_ledger.recording import Outcome, Recorded

__all__ = ["CLAIMS", "EXPERIMENTS", "OF_SINKS"]

EXPERIMENTS: tuple[Recorded, ...] = (recall.RECALL, sinks.SINKS, temperature.TEMPERATURE)
CLAIMS: tuple[Claim, ...] = (*recall.CLAIMS, *sinks.CLAIMS, *temperature.CLAIMS)
# What is measured on real weights, by the key of the claim of `sinks` that it speaks of.
OF_SINKS: Mapping[str, tuple[Outcome, ...]] = {}
