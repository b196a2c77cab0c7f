"""The claim about CoCA with dynamic NTK, and its judge: what is attended to beyond training."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from sparsity.claims_ledger.coca_forms import CocaRoutes, coca_claim
from sparsity.claims_ledger.findings import Judged, core, instead, letter
from sparsity.claims_ledger.judging import Claim, ZTest, sampling, z_tests
from sparsity.rows.rope_planes import join, planes
from sparsity.rows.rope_scaling import DynamicNtkScaling, RopeScaling
from sparsity.rows.row import Row
from sparsity.rows.steps import Coca, Rope

TRAINED = 512  # as in the source
_LENGTHS = (512, 2048, 8192)
_QUERIES = 8  # random ones, of whose mean scores the findings speak
# Of them, of whose rows there is the exact law: all findings hold for each, or for their mean.
_ATTENDED = 3
_DIM, _STRENGTH = 64, 6.0  # mean collinear score of a key beside the query
# Trained and actual length of sampled rows: twice and four times the trained length. They are short
# as each row draws whole vectors; the law under test is the same at any length.
_CELLS = ((32, 64), (32, 128))
_RARE = 0.05  # the share of keys up to which new mean scores count as "hardly any"


def _laws(seed: int) -> list[tuple[Coca, Rope]]:
    """Return CoCA of random queries, ‖q‖² = d, and with each RoPE with a mean key to match.

    Both have the same |q_i||k_i| in every plane and the same γ at distance 0, so that what differs
    is the angle Θ_i between q_i and k_i alone: 0 with CoCA, random with RoPE.
    """
    rng, laws = np.random.default_rng([seed, 25]), []
    for query in rng.standard_normal((_QUERIES, _DIM)):
        query *= _DIM**0.5 / np.linalg.norm(query)
        center = _STRENGTH / _DIM
        # t ~ N(c, (c/8)²) is cut at 0 eight standard deviations below its mean: hardly ever, so
        # that its mean, which the key of RoPE is made from, is c.
        coca = Coca(query, center, center / 8)
        mean = center * planes(query) * np.exp(1j * rng.uniform(0, 2 * np.pi, _DIM // 2))
        key = join(mean.real, mean.imag, coca.pairing)
        laws.append((coca, Rope(query, key, float(coca.gamma(0)) / _DIM**0.5)))
    return laws


def extends(routes: CocaRoutes, seed: int) -> Judged:
    """Compare mean scores and the tokens attended to with those up to the trained length."""
    laws, rule = _laws(seed), DynamicNtkScaling(1.0, TRAINED)
    coca, rope = zip(*laws, strict=True)
    plain, scaled, turned, turned_scaled = (
        _shares(routes, law[:_ATTENDED], scaling)
        for law in (coca, rope)
        for scaling in (None, rule)
    )
    # Geometric means over queries of how the share changes: of ratios, the logarithms are averaged.
    kept, left = (np.exp(np.log(x[:, 1:] / x[:, :1]).mean(axis=0)) for x in (scaled, plain))
    outside, outside_plain = (_new_scores(routes, coca, x) for x in (rule, None))
    outside_rope = _new_scores(routes, rope, None)
    test = _sampled(routes, coca[0], seed)
    # n_eff in the longest context over that in the trained one, of each query.
    tokens = _LENGTHS[-1] / TRAINED * scaled[:, -1] / scaled[:, 0]
    findings = [
        core(
            f"n_eff is that of sampled rows of rotated vectors in {len(_CELLS)} cells", test.agree
        ),
        core(
            "with the rule a key's mean score is one that training has seen: at "
            f"{_LENGTHS[-1]} tokens {outside[-1]:.1%} of the keys have one outside the range up to "
            f"{TRAINED}; without it {outside_plain[-1]:.0%} (mean of {_QUERIES} random queries)",
            bool(np.all(outside < _RARE) and outside_plain[-1] > 4 * _RARE),
        ),
        letter(
            f"the number of tokens attended to is that of {TRAINED} tokens",
            np.all(np.abs(tokens - 1) < 0.1),
        ),
        letter(
            f"the share of the context attended to is that of {TRAINED} tokens",
            np.all(np.abs(kept - 1) < 0.1),
        ),
        instead(
            f"the number is {tokens.min():.0f} to {tokens.max():.0f} times that at {TRAINED} "
            f"tokens in 16 times the context, for {len(tokens)} of the queries: the share grows to "
            f"{kept[0]:.2f} and {kept[1]:.2f} times at 4 and 16 times; without the rule it falls, "
            f"to {left[0]:.2f} and {left[1]:.2f}",
            bool(np.all(kept > 1) and np.all(left < 1)),
        ),
        instead(
            "CoCA attends to fewer tokens than RoPE with mean keys of random direction, with the "
            "rule and without, at every length and for every query",
            bool(np.all(plain < turned) and np.all(scaled < turned_scaled)),
        ),
        instead(
            f"RoPE's mean scores hardly leave their range, with or without the rule: "
            f"{outside_rope[-1]:.1%}",
            bool(outside_rope[-1] < outside_plain[-1] / 2),
        ),
    ]
    numbers = {
        "length": _LENGTHS,
        "CoCA": plain.mean(axis=0),
        "CoCA + dynamic NTK": scaled.mean(axis=0),
        "RoPE": turned.mean(axis=0),
        "RoPE + dynamic NTK": turned_scaled.mean(axis=0),
        "new": outside_plain,
        "new + dynamic NTK": outside,
        "new, RoPE": outside_rope,
        "sampling": test.numbers,
    }
    return findings, numbers


def _shares(
    routes: CocaRoutes, steps: Sequence[Rope | Coca], scaling: RopeScaling | None
) -> np.ndarray:
    """Return n_eff/n of rows under each step, [queries, lengths]."""
    rows = [Row("exp", steps=(replace(step, scaling=scaling),)) for step in steps]
    return np.array([routes.n_eff(row, _LENGTHS) for row in rows]) / _LENGTHS


def _new_scores(
    routes: CocaRoutes, steps: Sequence[Rope | Coca], scaling: RopeScaling | None
) -> np.ndarray:
    """Return the share of keys with a mean score outside those up to the trained length, [lengths].

    Such a score is one that the model has never met in training, whatever the distance.
    """
    outside = np.zeros(len(_LENGTHS))
    for step in (replace(step, scaling=scaling) for step in steps):
        # Training has seen every distance up to L, under the angles of a context of L tokens.
        seen = routes.mean_scores(step, np.arange(TRAINED), TRAINED)
        for i, n in enumerate(_LENGTHS):
            beta = routes.mean_scores(step, np.arange(n), n)
            outside[i] += np.mean((beta < seen.min()) | (beta > seen.max()))
    return outside / len(steps)


def _sampled(routes: CocaRoutes, step: Coca, seed: int) -> ZTest:
    """Compare the exact law of rows under the rule with rows of rotated vectors."""
    cells = []
    for i, (trained, n) in enumerate(_CELLS):
        row = Row("exp", steps=(replace(step, scaling=DynamicNtkScaling(1.0, trained)),))
        theory = float(np.log(routes.n_eff(row, n)))
        drawn = routes.rows(row, n, sampling(3e-3, seed + 250 + i))
        cells.append(({"trained": trained, "n": n}, theory, drawn))
    return z_tests(cells)


CLAIMS: tuple[Claim, ...] = (
    coca_claim(
        key="coca-ntk",
        statement="With dynamic NTK, CoCA extends its context: beyond the trained length L a "
        "query's scores, and what it attends to, are as at L.",
        formula="θ_i of base·(n/L)^(d/(d−2)) in contexts of n > L",
        proof="The slowest plane turns by n·θ_min·L/n = L·θ_min from end to end, as at L; the "
        "fastest by a radian a token, as ever. What lies between is computed.",
        judge=extends,
        labels={
            "length": "context length n",
            "trained": "trained length L",
            "CoCA": "mean share n_eff/n, CoCA",
            "CoCA + dynamic NTK": "n_eff/n, CoCA with dynamic NTK",
            "RoPE": "n_eff/n, RoPE with mean keys of random direction",
            "RoPE + dynamic NTK": "n_eff/n, RoPE with dynamic NTK",
            "new": "keys with a mean score outside those up to 512 tokens, CoCA",
            "new + dynamic NTK": "the same, CoCA with dynamic NTK",
            "new, RoPE": "the same, RoPE",
        },
        rough=("CoCA", "CoCA + dynamic NTK", "RoPE", "RoPE + dynamic NTK"),
    ),
)
