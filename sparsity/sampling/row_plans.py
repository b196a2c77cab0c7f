"""How a row is drawn: the source of its scores, the numbers of that source, and a common scale.

A map of rows with a draw of its own is drawn by `MapRows`; no steps, or retention alone, by
`IidTokens`; RoPE or CoCA alone from rotated vectors; and every other row by `DistinctTokens`.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from sparsity.errors import InputError
from sparsity.kernels import Kernel, RowMap
from sparsity.kernels.lowering import numpy_log_abs
from sparsity.rows.row import Row
from sparsity.rows.score_laws import Scores
from sparsity.rows.steps import Coca, Decay, QKNorm, Rope
from sparsity.sampling import proposals
from sparsity.sampling.row_sources import (
    DistinctTokens,
    IidTokens,
    MapRows,
    Source,
    numbers_per_score,
    rotary_tokens,
)
from sparsity.sampling.samplers import LONGEST, keys_at

_MAX_NUMBERS_OF_DISTINCT_TOKENS = 2**24  # of a row that is drawn at once: 128 MB


class RowPlan(NamedTuple):
    """How a row is drawn.

    Args:
        source: of the scores.
        law: the source's numbers.
        log_scale: about the log of the largest weight.
        method: the name to report.
        sinks: whether there are sinks or sink logits.
        log_unit: log of the sum of the sink logits' weights.
        gate: factor on the shares of the weights.
        needle: whether there is a needle.
    """

    source: Source
    law: tuple[Any, ...]
    log_scale: float
    method: str
    sinks: bool = False
    log_unit: float = -math.inf
    gate: float = 1.0
    needle: bool = False


def plan_rows(row: Row, n: int, dim: int, seed: int) -> RowPlan:
    """Choose how rows of n tokens are drawn.

    Args:
        row: any row whose kernel is a function of the score, or a map of the whole row.
        n: tokens.
        dim: of whole keys; 0 draws scalar scores.
        seed: of the queries of whole keys.

    Raises:
        InputError: rows too long to hold, or whole keys of a row with steps.
    """
    kernel, steps = row.kernel, row.steps
    if isinstance(kernel, RowMap) and kernel.drawn is not None:  # more than a score a token
        if dim:
            raise InputError("dim", dim, f"{kernel.name} draws its own tokens; leave it out")
        source = MapRows(n, kernel, kernel.drawn.token(row.params), kernel.drawn.row(row.params))
        _refuse_long(n, source.width)
        return RowPlan(source, tuple(row.params.values()), 0.0, "rows-drawn")
    # Retention only shifts logs by −j·ln(1/λ): such tokens are drawn block by block, as like ones.
    laws = (step for step in steps if isinstance(step, Scores) and not isinstance(step, QKNorm))
    law = next(laws, None)  # whose numbers are drawn block by block; None is Gaussian
    if dim and law is not None:
        fix = "whole keys give Gaussian scores, and this row has others; leave it out"
        raise InputError("dim", dim, fix)
    if all(isinstance(step, Decay) or step is law for step in steps):
        return _plan_iid_tokens(row, n, dim, seed, law)
    if dim:
        fix = "whole keys are drawn only for rows without steps; leave it out"
        raise InputError("dim", dim, fix)
    if isinstance(kernel, RowMap) and any(isinstance(step, QKNorm) for step in steps):
        raise InputError("steps", steps, f"{kernel.name} is drawn for other laws of scores")
    if len(steps) == 1 and isinstance(steps[0], (Rope, Coca)):  # from first principles
        step: Any = steps[0]
        _refuse_long(n, step.query.size)
        distance = np.arange(n)
        source, numbers = rotary_tokens(step, distance, n, beta=row.beta)
        mean, spread = row.beta + step.beta(distance, n), step.gamma(distance, n)
        scale = _log_scale(row.function, mean, spread)
        return RowPlan(source, numbers, scale, f"rows-{source.form}")
    return _plan_distinct_tokens(row, n)


def _plan_iid_tokens(row: Row, n: int, dim: int, seed: int, law: Scores | None) -> RowPlan:
    """Plan a row of like tokens under retention; whole keys if a dimension is given."""
    if n > LONGEST:
        raise InputError("length", n, f"must be <= {LONGEST:.0e} to be sampled whole")
    if dim:
        query, mean = keys_at(row.beta, row.gamma, dim, seed)
        scores: tuple[Any, ...] = (query[0], mean, 1.0)
    else:
        scores = (row.beta, row.gamma)
    if isinstance(row.kernel, RowMap):  # its weights are at most 1
        log_scale = 0.0
    elif law is not None:
        log_scale = _log_scale(row.function, row.beta, row.gamma)
    else:
        # √E a² is a better scale than a large weight where f is steep: it is what is pooled.
        table = proposals.build(row.function, {"beta": row.beta, "gamma": row.gamma})
        log_scale = table.log_mass[1] / 2
    rate = -sum(math.log(step.decay) for step in row.steps if isinstance(step, Decay))
    method = "rows-full-keys" if dim else "rows"
    return RowPlan(IidTokens(n, dim, law), (*scores, rate), log_scale, method)


def _plan_distinct_tokens(row: Row, n: int) -> RowPlan:
    """Plan a row whose tokens differ, or that has sinks."""
    _refuse_long(n, 1)
    # Not in groups: where the steps change is for the exact law to know.
    tokens = row.tokens_one_by_one(n)
    _refuse_long(n, numbers_per_score(tokens.scores))
    beta, gamma = tokens.beta, tokens.gamma
    with np.errstate(divide="ignore"):
        log_w = np.log(tokens.w)
    seen = log_w > -np.inf
    sinks, needle, log_scale = tokens.sink, tokens.needle, 0.0
    if isinstance(row.kernel, RowMap):
        # Its weights are at most 1, and its rows have the token of the query last: `Row` has it
        # first, which stick-breaking would not forgive.
        beta, gamma, log_w, sinks, needle, seen = (
            x[::-1] for x in (beta, gamma, log_w, sinks, needle, seen)
        )
    else:
        # A sink whose fixed score has weight 0 is none.
        seen &= (gamma != 0) | (numpy_log_abs(row.function)(beta) > -np.inf)
        log_scale = _log_scale(row.function, beta, gamma, log_w)
    if not seen.any():
        fix = "leaves no token in sight at this length; give a longer row, or fewer steps"
        raise InputError("row", row, fix)
    return RowPlan(
        DistinctTokens(n, tokens.scores),
        (beta, gamma, log_w, sinks, needle),
        log_scale,
        "rows-sphere" if isinstance(tokens.scores, QKNorm) else "rows-law",
        bool((sinks & seen).any() or tokens.units),
        float(np.logaddexp.reduce(tokens.units)) if tokens.units else -math.inf,
        tokens.gate,
        bool((needle & seen).any()),
    )


def _log_scale(kernel: Kernel, beta: Any, gamma: Any, log_w: Any = 0.0) -> float:
    """Return about the log of the largest weight, which keeps the pooled moments finite.

    Only their ratio is used, so that any scale within a float's range of the weights will do: that
    of a score of two spreads above the bias.
    """
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        log_scale = np.max(numpy_log_abs(kernel)(beta + 2 * gamma) + log_w)
    return float(log_scale) if np.isfinite(log_scale) else 0.0


def _refuse_long(n: int, width: int) -> None:
    """Refuse rows of distinct tokens that would not be held at once, of n·width numbers."""
    if n * width > _MAX_NUMBERS_OF_DISTINCT_TOKENS:
        fix = f"a row of {n * width:.3g} numbers is too large to sample; shorten it"
        raise InputError("length", n, fix)
