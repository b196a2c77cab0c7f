"""Claims on whole matrices of attention: what all queries share, and the rank; and their judges."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import sympy
from scipy import stats

from sparsity.claims_ledger.article_scores import su_claim
from sparsity.claims_ledger.findings import ALARM, Judged, core, instead, letter, listed, table_rows
from sparsity.claims_ledger.judging import Claim
from sparsity.crosscheck.cells import FEATURE_MAPS, feature_ratio
from sparsity.kernels.lowering import numpy_log_abs

_FEATURES = ("relu", "elu+1", "softplus", "exp")  # h of normal entries of unit spread
_SIZE, _DIM, _DRAWS = 256, 16, 16  # queries and keys of a matrix, features, matrices
_RANKED = 8  # matrices of each kind whose ranks are taken: their means are known to one per cent
_KINDS = ("identity", "elu+1", "exp")  # signed linear, linear with features, and softmax


def _parts(a: np.ndarray) -> tuple[float, float]:
    """Return unbiased variances of the columns' effect and of the rest of a [queries, keys] matrix.

    a_ij = mean + row_i + column_j + rest_ij, the analysis of variance of two ways. The variance of
    the columns' means is too large by that of the mean of their rests, Var(rest)/queries.
    """
    queries, keys = a.shape
    rest = a - a.mean(0) - a.mean(1, keepdims=True) + a.mean()
    left = float((rest**2).sum()) / ((queries - 1) * (keys - 1))
    return float(a.mean(0).var(ddof=1)) - left / queries, left


def _effective_rank(a: np.ndarray) -> float:
    """Return e^H of the singular values as shares (Roy & Vetterli 2007): n of the identity."""
    share = np.linalg.svd(a, compute_uv=False)
    share = share[share > 0] / share.sum()
    return float(np.exp(-(share * np.log(share)).sum()))


@dataclass(frozen=True)
class MatrixRoutes:
    """Routes say where these judges take their quantities from.

    Args:
        feature: (name of a feature map, entries) -> features h ≥ 0.
        noise: name -> σ̃/μ̃ of a feature of normal entries, by quadrature of its definition.
        share: r -> the share of the columns in what varies along rows, μ̃²/(μ̃² + σ̃²) by theory.
        parts: a matrix -> variance of the columns' effect, and of what is left.
        mask: a matrix -> the same under a causal mask.
        effective_rank: a matrix -> its effective rank.
    """

    feature: Callable[..., np.ndarray] = lambda name, x: np.exp(
        numpy_log_abs(FEATURE_MAPS[name])(x)
    )
    noise: Callable[[str], float] = lambda name: feature_ratio(name, 0.0, 1.0)
    share: Callable[[Any], Any] = lambda ratio: 1 / (1 + ratio**2)
    parts: Callable[[np.ndarray], tuple[float, float]] = _parts
    mask: Callable[[np.ndarray], np.ndarray] = np.tril
    effective_rank: Callable[[np.ndarray], float] = _effective_rank


def _mean(expression: sympy.Expr, variables: list[sympy.Symbol]) -> sympy.Expr:
    """Return the mean of a polynomial over independent variables of mean 0 and variance 1.

    No other moment is needed, so that the result holds for features of any law: a variable may
    stand in a term as x⁰ or x², whose means are 1, or as x¹, whose mean is 0.
    """
    poly = sympy.Poly(expression, *variables)
    if any(power > 2 for powers, _ in poly.terms() for power in powers):
        raise ValueError("powers above 2 have no mean here")
    return sympy.Add(*(c for powers, c in poly.terms() if 1 not in powers))


def derived_share(dim: int) -> sympy.Expr:
    """Derive the share of the columns in what varies along rows of a = q̃·k̃ in `dim` dimensions.

    The mean over queries of the variance over keys is what varies along rows; the variance over
    keys of the mean over queries is the part that all queries share.

    Returns:
        An expression in μ and σ of the queries' features, and σ_k, μ_k of the keys'.
    """
    mu, sigma, mu_k, sigma_k = sympy.symbols("mu sigma mu_k sigma_k", positive=True)
    x, y = (list(sympy.symbols(f"{name}:{dim}")) for name in "xy")
    a: Any = sum((mu + sigma * p) * (mu_k + sigma_k * s) for p, s in zip(x, y, strict=True))
    along = _mean(_mean(a**2, y) - _mean(a, y) ** 2, x)
    shared = _mean(_mean(a, x) ** 2, y) - _mean(_mean(a, x), y) ** 2
    return sympy.simplify(shared / along)


def column_share(routes: MatrixRoutes, seed: int) -> Judged:
    """Judge the part of q̃·k̃ that is the same for every query: derived, and in sampled matrices."""
    mu, sigma = sympy.symbols("mu sigma", positive=True)
    noise = {name: routes.noise(name) for name in _FEATURES}
    theory = {name: float(routes.share(r)) for name, r in noise.items()}
    critical = float(stats.t.isf(ALARM / (2 * len(_FEATURES)), _DRAWS - 1))
    rows = []
    for i, name in enumerate(_FEATURES):
        rng = np.random.default_rng([seed, 7, i])
        variances = []
        for _ in range(_DRAWS):
            q, k = routes.feature(name, rng.standard_normal((2, _SIZE, _DIM)))
            variances.append(routes.parts(q @ k.T))
        column, left = np.array(variances).T
        # A ratio of means of unbiased variances; its error to first order is that of the numerator
        # less the ratio times the denominator (the delta method), matrix by matrix.
        value = column.mean() / (column + left).mean()
        scatter = (column - value * (column + left)).std(ddof=1) / (column + left).mean()
        stderr = scatter / math.sqrt(_DRAWS)
        rows.append(
            {
                "feature": name,
                "noise": noise[name],
                "theory": theory[name],
                "estimate": value,
                "stderr": stderr,
                "z": (value - theory[name]) / stderr,
            }
        )
    ratios = np.geomspace(1e-2, 1e2, 41)  # of σ̃/μ̃
    least = routes.share(1 / 3)  # 1/(1 + 1/9) = 0.9; S² of one such feature is the same number
    findings = [
        core(
            "with i.i.d. features the part of a = q̃·k̃ that is the same for every query holds "
            "μ̃²/(μ̃² + σ̃²) of the variance along a row, μ̃ and σ̃ of the query's features: derived "
            "for d = 1, 2, 3, whatever the keys",
            all(
                sympy.simplify(derived_share(d) - routes.share(sigma / mu)) == 0 for d in (1, 2, 3)
            ),
        ),
        core(
            f"{_DRAWS} matrices of {_SIZE} real features in {_DIM} dimensions agree, for "
            + listed(f"{row['feature']} {row['estimate']:.3f}" for row in rows),
            all(abs(row["z"]) <= critical for row in rows),
        ),
        core(
            "the share rises to 1 as the signal-to-noise ratio μ̃/σ̃ grows",
            np.all(np.diff(routes.share(ratios)) < 0) and routes.share(1e-9) > 1 - 1e-12,
        ),
        letter(
            "features of normal entries of unit spread (relu, elu+1, softplus, exp) leave less "
            "than a tenth of that variance to the query",
            min(theory.values()) > 0.9,
        ),
        instead(
            "the query determines "
            + listed(f"{100 * (1 - x):.0f} % with {name}" for name, x in theory.items())
            + " of the variance along a row",
            all(0 < x < 1 for x in theory.values()),
        ),
        instead(
            "position alone determines nine tenths only at σ̃/μ̃ ≤ 1/3, where keys of the same "
            f"features have S ≥ {math.sqrt(least):.3f}: such rows are nearly uniform",
            abs(least - 0.9) < 1e-12,
        ),
    ]
    return findings, {"share": rows, "critical": critical}


def _attention(routes: MatrixRoutes, kind: str, q: np.ndarray, k: np.ndarray) -> np.ndarray:
    """Return the weights of a kind before their rows are divided by their sums."""
    if kind == "elu+1":
        return routes.feature(kind, q) @ routes.feature(kind, k).T
    scores = q @ k.T / math.sqrt(q.shape[-1])  # γ = 1
    return np.exp(scores) if kind == "exp" else scores


def masked_rank(routes: MatrixRoutes, seed: int) -> Judged:
    """Judge rank and effective rank of identity, elu+1 and exp, with and without a causal mask."""
    # Of each matrix: effective rank, numerical rank, and the mean n_eff of its rows.
    drawn_ranks: dict[tuple[str, bool], list[tuple[float, float, float]]] = {}
    triangular = True
    for draw in range(_RANKED):
        q, k = np.random.default_rng([seed, 8, draw]).standard_normal((2, _SIZE, _DIM))
        for kind in _KINDS:
            whole = _attention(routes, kind, q, k)
            for masked, a in ((False, whole), (True, routes.mask(whole))):
                # A planted mask may leave a row without weights, 0/0: it counts as a row of zeros.
                with np.errstate(invalid="ignore"):
                    p = np.nan_to_num(a / np.abs(a).sum(1, keepdims=True))
                diagonal = np.abs(np.diag(p))
                if masked:  # det = Π p_ii: no zero on the diagonal is full rank
                    triangular &= bool(np.all(np.triu(p, 1) == 0) and diagonal.min() > 0)
                # Not by the metric, which has no number for a row of zeros; here it is 0.
                focus = float((np.abs(p).sum(1) ** 2 / np.maximum((p**2).sum(1), 1e-300)).mean())
                ranks = routes.effective_rank(p), float(np.linalg.matrix_rank(p)), focus
                drawn_ranks.setdefault((kind, masked), []).append(ranks)
    ranked = {key: np.transpose(x) for key, x in drawn_ranks.items()}  # [3, matrices] each
    effective, numerical, n_eff = (
        {key: float(x[i].mean()) for key, x in ranked.items()} for i in range(3)
    )
    root = math.sqrt(_RANKED)
    # The formula det = Π a_ii holds at every n; four rows show that the mask is the right triangle.
    entries = sympy.Matrix(4, 4, lambda i, j: sympy.Symbol(f"a{i}{j}") if j <= i else 0)
    determinant: Any = entries.det()
    product: Any = sympy.prod([entries[i, i] for i in range(4)])

    def against_softmax(kind: str) -> tuple[float, float]:
        """Return the masked effective rank over softmax's, and its error.

        Both are of the same queries and keys, so that the ratio of a draw scatters less than its
        parts.
        """
        ratios = ranked[kind, True][0] / ranked["exp", True][0]
        return float(ratios.mean()), float(ratios.std(ddof=1) / root)

    # Four standard errors on either side of 0.8 decide what is "as much as softmax".
    (signed, off), (features, more) = against_softmax("identity"), against_softmax("elu+1")
    linear = ("identity", "elu+1")
    findings = [
        core(
            "under a causal mask the matrix is triangular, its determinant the product of its "
            f"diagonal (derived), and no such entry of {len(_KINDS) * _RANKED} matrices is zero: "
            "full rank",
            sympy.expand(determinant - product) == 0 and triangular,
        ),
        core(
            f"without it the rank of linear attention is d = {_DIM}, that of softmax n = {_SIZE}",
            all(numerical[kind, False] == _DIM for kind in linear)
            and numerical["exp", False] > 0.9 * _SIZE,
        ),
        core(
            "the mask raises the effective rank of linear attention, "
            + listed(
                f"{kind} from {effective[kind, False]:.1f} to {effective[kind, True]:.1f}"
                for kind in linear
            )
            + f", and signed linear attention has {signed:.2f} of softmax's under it",
            all(effective[kind, True] > 2 * effective[kind, False] for kind in linear)
            and signed - 4 * off > 0.8,
        ),
        letter(
            "under the mask linear attention with elu+1 features has the effective rank of "
            "softmax, within a fifth",
            features - 4 * more > 0.8,
        ),
        instead(
            f"full rank is not a high effective rank: elu+1 features have {features:.2f} ± "
            f"{more:.3f} of softmax's effective rank",
            features + 4 * more < 0.8,
        ),
        instead(
            "where the ranks are alike, focus differs: under the mask rows attend to "
            + listed(f"{n_eff[kind, True]:.0f} tokens with {kind}" for kind in _KINDS),
            all(n_eff[kind, True] > 1.2 * n_eff["exp", True] for kind in linear),
        ),
    ]
    table = table_rows(
        kernel=(kind for kind, _ in ranked),
        masked=(masked for _, masked in ranked),
        effective_rank=effective.values(),
        stderr=(x[0].std(ddof=1) / root for x in ranked.values()),
        rank=numerical.values(),
        n_eff=n_eff.values(),
    )
    return findings, {"n": _SIZE, "dim": _DIM, "draws": _RANKED, "ranks": table}


CLAIMS: tuple[Claim, ...] = (
    su_claim(
        key="absolute-position",
        statement="Nonnegative linear attention can express only absolute position: its weights "
        "hardly depend on the query.",
        formula="Var_j(E_i a_ij) / E_i Var_j(a_ij) = μ̃²/(μ̃² + σ̃²)",
        proof="Given the query, a = q̃·k̃ varies over keys by σ̃_k²‖q̃‖², on the average by "
        "σ̃_k² d(μ̃² + σ̃²). Its mean over queries, μ̃ Σ_l k̃_l, varies by σ̃_k² d μ̃². The ratio is S² "
        "of one feature of the query.",
        judge=column_share,
        routes=MatrixRoutes,
        labels={
            "share": "Share of the variance along rows that all queries have in common",
            "noise": "noise to signal σ̃/μ̃",
            "theory": "μ̃²/(μ̃² + σ̃²)",
            "estimate": "in sampled matrices",
        },
    ),
    su_claim(
        key="masked-rank",
        statement="A causal mask makes the attention matrix full rank, so low rank is not the "
        "whole reason why linear attention falls behind softmax.",
        formula="det tril(A) = Π_i a_ii ≠ 0",
        proof="A triangular matrix has full rank if no entry of its diagonal is zero. The "
        "effective rank is e^H, H the entropy of the singular values as shares (Roy and Vetterli "
        "2007); rows are divided by the sum of their absolute weights.",
        judge=masked_rank,
        routes=MatrixRoutes,
        labels={
            "draws": "matrices drawn",
            "ranks": "Rank of attention matrices",
            "masked": "causal mask",
            "effective_rank": "effective rank",
            "rank": "numerical rank",
            "n_eff": "attended tokens of a row",
        },
    ),
)
