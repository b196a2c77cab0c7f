"""Judge of CoCA with dynamic NTK: what a query attends to beyond the trained length."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from sparsity.claims_ledger.coca.forms import CocaRoutes
from sparsity.claims_ledger.judging import (
    Judged,
    ZTest,
    core,
    instead,
    letter,
    sampling,
    z_tests,
)
from sparsity.rows.rope_scaling import DynamicNtkScaling, RopeScaling
from sparsity.rows.rotation import join, planes
from sparsity.rows.row import Row
from sparsity.rows.steps import Coca, Rope

TRAINED = 512  # as in the source
_LENGTHS = (512, 2048, 8192)
_QUERIES = 8
_DIM, _STRENGTH = 64, 6.0  # mean collinear score of a key beside the query
_CELLS = ((32, 32), (32, 64), (32, 128))  # trained and actual length of sampled rows
_RARE = 0.05  # share of keys


def _laws(seed: int) -> list[tuple[Coca, Rope]]:
    """CoCA of random queries, ‖q‖² = d, and RoPE with mean keys of random direction, likewise.

    Both have the same |q_i||k_i| in every plane and the same γ at distance 0.
    """
    rng, found = np.random.default_rng([seed, 25]), []
    for query in rng.standard_normal((_QUERIES, _DIM)):
        query *= _DIM**0.5 / np.linalg.norm(query)
        center = _STRENGTH / _DIM
        coca = Coca(query, center, center / 8)  # t is hardly ever cut at 0
        mean = center * planes(query) * np.exp(1j * rng.uniform(0, 2 * np.pi, _DIM // 2))
        key = join(mean.real, mean.imag, coca.pairing)
        found.append((coca, Rope(query, key, float(coca.gamma(0)) / _DIM**0.5)))
    return found


def extends(routes: CocaRoutes, seed: int) -> Judged:
    """Mean scores beyond the trained length against those up to it, and the tokens attended to."""
    laws, rule = _laws(seed), DynamicNtkScaling(1.0, TRAINED)
    coca, rope = zip(*laws, strict=True)
    plain, scaled = _shares(routes, coca, None), _shares(routes, coca, rule)
    turned, turned_scaled = _shares(routes, rope, None), _shares(routes, rope, rule)
    kept, left = (np.exp(np.log(x[:, 1:] / x[:, :1]).mean(axis=0)) for x in (scaled, plain))
    outside, outside_plain = (_new_scores(routes, coca, x) for x in (rule, None))
    outside_rope = _new_scores(routes, rope, None)
    test = _sampled(routes, coca[0], seed)
    tokens = _LENGTHS[-1] / TRAINED * scaled[:, -1] / scaled[:, 0]
    findings = [
        core(
            f"n_eff is that of sampled rows of rotated vectors in {len(_CELLS)} cells",
            test.agree,
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
            f"tokens in 16 times the context: the share grows to {kept[0]:.2f} and {kept[1]:.2f} "
            f"times at 4 and 16 times; without the rule it falls, to {left[0]:.2f} and "
            f"{left[1]:.2f}",
            bool(np.all(kept > 1) and np.all(left < 1)),
        ),
        instead(
            "CoCA attends to fewer tokens than RoPE with mean keys of random direction, with the "
            "rule and without, at every length and for every query",
            bool(np.all(plain < turned) and np.all(scaled < turned_scaled)),
        ),
        instead(
            f"RoPE's mean scores hardly leave their range, rule or not: {outside_rope[-1]:.1%}",
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
    """n_eff/n, [queries, lengths]."""
    rows = [Row("exp", steps=(replace(step, scaling=scaling),)) for step in steps]
    return np.array([routes.n_eff(row, _LENGTHS) for row in rows]) / _LENGTHS


def _new_scores(
    routes: CocaRoutes, steps: Sequence[Rope | Coca], scaling: RopeScaling | None
) -> np.ndarray:
    """The share of keys whose mean score is outside those up to the trained length, [lengths]."""
    found = np.zeros(len(_LENGTHS))
    for step in (replace(step, scaling=scaling) for step in steps):
        seen = routes.mean_scores(step, np.arange(TRAINED), TRAINED)
        for i, n in enumerate(_LENGTHS):
            beta = routes.mean_scores(step, np.arange(n), n)
            found[i] += np.mean((beta < seen.min()) | (beta > seen.max()))
    return found / len(steps)


def _sampled(routes: CocaRoutes, step: Coca, seed: int) -> ZTest:
    """The exact law of rows with the rule against rows of rotated vectors."""
    cells = []
    for i, (trained, n) in enumerate(_CELLS):
        row = Row("exp", steps=(replace(step, scaling=DynamicNtkScaling(1.0, trained)),))
        theory = float(np.log(routes.n_eff(row, n)))
        drawn = routes.rows(row, n, sampling(1.5e-3, seed + 250 + i))
        cells.append(({"trained": trained, "n": n}, theory, drawn))
    return z_tests(cells)
