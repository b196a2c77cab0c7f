"""What a row gives out whose keys are its values, exactly at every length; with its judge."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from sparsity.claims_ledger.findings import CHANCE_BELOW_1E5, Judged, core, instead, letter, listed
from sparsity.claims_ledger.judging import Claim, Routes

_ROWS = ((64, 2.0), (1024, 3.0))  # n and ‖q‖ of drawn rows
_DIM, _DRAWN, _BLOCK = 4, 20_000, 2_000
_LENGTHS = (4096, 131_072)  # between which the rate is taken
_QUERIES = (1.0, 2.0, 3.0, 4.0)  # ‖q‖


def drawn_outputs(rng: Any, n: int, query: float, count: int) -> np.ndarray:
    """Return Σ p k of rows of n keys k ~ N(0, I), the query along the first axis, [count, d]."""
    blocks = []
    for _ in range(count // _BLOCK):
        keys = rng.standard_normal((_BLOCK, n, _DIM))
        weights = np.exp(query * keys[..., 0])
        blocks.append(np.einsum("rn,rnd->rd", weights, keys) / weights.sum(1)[:, None])
    return np.concatenate(blocks)


def z_scores(outputs: np.ndarray, query: float, participation: float) -> tuple[float, float]:
    """Return the errors by which the mean is off (1 − E Y₂)‖q‖, and the variance across E Y₂."""
    along, across = outputs[:, 0], outputs[:, 1:] ** 2
    root = math.sqrt(len(outputs))
    mean = (along.mean() - (1 - participation) * query) / (along.std() / root)
    # The entries of a row share its Y₂: their squares are averaged before they are compared.
    squares = across.mean(1)
    return float(mean), float((squares.mean() - participation) / (squares.std() / root))


def output(routes: Routes, seed: int) -> Judged:
    """Compare drawn outputs with Stein's identity, and its rate with 1/√n."""
    rng, z = np.random.default_rng(seed), []
    for n, query in _ROWS:
        participation = float(routes.mean("exp", n, of="participation", gamma=query))
        z += z_scores(drawn_outputs(rng, n, query, _DRAWN), query, participation)
    rates = []
    for query in _QUERIES:
        few, many = (
            float(routes.mean("exp", n, of="participation", gamma=query)) for n in _LENGTHS
        )
        rates.append(math.log(many / few) / math.log(_LENGTHS[1] / _LENGTHS[0]) / 2)
    span = f"from n = {_LENGTHS[0]} to {_LENGTHS[1]}"
    findings = [
        core(
            f"{_DRAWN} drawn rows of (n, ‖q‖) = {listed(_ROWS)} have that mean along q and that "
            f"variance across it: z = {listed(z, '+.1f')}",
            all(abs(x) < CHANCE_BELOW_1E5 for x in z),
        ),
        letter(
            f"that first rate is what rows show, √E Y₂ ∝ 1/√n, {span}: exponents "
            f"{listed(rates, '.2f')} at "
            f"‖q‖ = {listed(_QUERIES, 'g')}",
            all(abs(x + 0.5) < 0.05 for x in rates),
        ),
        instead(
            "it is a smaller power of n the longer the query, as the second rate allows: the mean "
            "falls short of q by "
            "‖q‖·E Y₂, and the exponent of both is that of E Y₂, known at every n",
            bool(np.all(np.diff(rates) > 0)),
        ),
    ]
    return findings, {"z": z, "rates": rates}


CLAIMS = (
    Claim(
        key="row-output",
        source="Bohbot, Letrouit, Peyré & Vialard (2025), arXiv:2512.10656",
        statement="Attention to n Gaussian tokens tends to that to infinitely many at a rate of "
        "C(R)/√n for queries of length R, C exponential in R, or of a smaller power of n.",
        formula="k = v ~ N(0, I): E Σp k = (1 − E Y₂)·q, Var ⟂ q = E Y₂, at every n",
        proof="Stein: E Σ p_j k_j = E Σ ∂p_j/∂k_j = E Σ p_j(1 − p_j)·q; across q keys and weights "
        "are independent, and Σ p_j k_j has variance Σ p_j² given the weights.",
        judge=output,
        labels={"z": "z of mean and variance", "rates": "exponents of n of the error"},
    ),
)
