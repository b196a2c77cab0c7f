"""What the experiments found: the explicit tuple of them, and the claims that they alone judge.

    experiments/results/NAME.csv ── python -m experiments.recorded ── EXPERIMENTS (numbers, as data)
                                                                        │ an outcome finds in them
       CLAIMS: claims of their own ────────────────────────┐            │
       OF_SINKS, OF_COCA: more findings for other claims ──┴────────────┴── verdict

A further experiment is one module here with its `Recorded` and what it finds, and an entry below.
"""

from __future__ import annotations

from sparsity.claims_ledger.findings import Recorded
from sparsity.claims_ledger.judging import Claim
from sparsity.claims_ledger.recorded import coca, real_sinks, recall, sinks, temperature

__all__ = ["CLAIMS", "EXPERIMENTS", "OF_COCA", "OF_SINKS"]

EXPERIMENTS: tuple[Recorded, ...] = (
    *(recall.RECALL, sinks.SINKS, temperature.TEMPERATURE),
    *(real_sinks.REAL_SINKS, coca.COCA),
)
CLAIMS: tuple[Claim, ...] = (
    *(*recall.CLAIMS, *sinks.CLAIMS, *temperature.CLAIMS),
    *coca.CLAIMS,
)
# What is found beside the judge of a claim, by its key.
OF_SINKS = real_sinks.OF_SINKS
OF_COCA = coca.OF_COCA
