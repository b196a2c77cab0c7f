"""How whole rows are drawn: the source of their scores, its numbers, and their scale."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from sparsity.errors import InputError
from sparsity.kernels import Kernel, RowMap
from sparsity.kernels.lowering import numpy_log_abs
from sparsity.rows.row import Row
from sparsity.rows.scores import Scores
from sparsity.rows.steps import Coca, Decay, QKNorm, Rope
from sparsity.sampling import proposals
from sparsity.sampling.keys import LONGEST, keys_at
from sparsity.sampling.rotary_sampling import rotated
from sparsity.sampling.sources import DistinctTokens, IidTokens, MapRows, Source, numbers

_MOST = 2**24  # numbers of a row whose tokens differ: it is drawn at once
WHOLE = 2**20  # numbers of a row of like tokens that are drawn at once


class Plan(NamedTuple):
    """How a row is drawn.

    Args:
        source: of the scores.
        law: the source's numbers.
        log_scale: about the log of the largest weight.
        method: the name to report.
        sinks: whether there are sinks or sink logits.
        log_unit: log of the sum of the sink logits' weights.
    """

    source: Source
    law: tuple[Any, ...]
    log_scale: float
    method: str
    sinks: bool = False
    log_unit: float = -math.inf


def _like(row: Row, n: int, dim: int, seed: int) -> Plan:
    """A row of like tokens under retention; whole keys if a dimension is given."""
    law = _scores(row)
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
        log_scale = _scale(row.function, row.beta, row.gamma)
    else:
        table = proposals.build(row.function, {"beta": row.beta, "gamma": row.gamma})
        log_scale = table.log_mass[1] / 2
    rate = -sum(math.log(step.decay) for step in row.steps if isinstance(step, Decay))
    source = IidTokens(n, min(n, max(1, WHOLE // max(dim, numbers(law)))), dim, law)
    return Plan(source, (*scores, rate), log_scale, "rows-full-keys" if dim else "rows")


def _whole(row: Row, kernel: RowMap, n: int) -> Plan:
    """A row of a map that has more than a score a token."""
    assert kernel.drawn is not None
    token, shared = kernel.drawn.token(row.params), kernel.drawn.row(row.params)
    source = MapRows(n, kernel, token, shared)
    _refuse_long(n, source.width)
    return Plan(source, tuple(row.params.values()), 0.0, "rows-drawn")


def _scores(row: Row) -> Scores | None:
    """The law of its scores, all of whose numbers are drawn block by block."""
    found = (step for step in row.steps if isinstance(step, Scores))
    return next((step for step in found if not isinstance(step, QKNorm)), None)


def _scale(kernel: Kernel, beta: Any, gamma: Any, log_w: Any = 0.0) -> float:
    """About the log of the largest weight: it divides out, and keeps the pooled moments finite."""
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        log_scale = np.max(numpy_log_abs(kernel)(beta + 2 * gamma) + log_w)
    return float(log_scale) if np.isfinite(log_scale) else 0.0


def _refuse_long(n: int, width: int) -> None:
    if n * width > _MOST:
        fix = f"a row of {n * width:.3g} numbers is too large to sample; shorten it"
        raise InputError("length", n, fix)


def _rotary(row: Row, n: int) -> Plan:
    """RoPE or CoCA alone, from first principles."""
    step: Any = row.steps[0]
    _refuse_long(n, step.query.size)
    distance = np.arange(n)
    source, law = rotated(step, distance, beta=row.beta)
    scale = _scale(row.function, row.beta + step.beta(distance), step.gamma(distance))
    return Plan(source, law, scale, f"rows-{source.form}")


def _each(row: Row, n: int) -> Plan:
    """A row whose tokens differ, or that has sinks."""
    _refuse_long(n, 1)
    tokens = row.each(n)  # not in groups: where the steps change is for the exact law to know
    _refuse_long(n, numbers(tokens.scores))
    beta, gamma = tokens.beta, tokens.gamma
    with np.errstate(divide="ignore"):
        log_w = np.log(tokens.w)
        fixed = (gamma == 0) & (numpy_log_abs(row.function)(beta) == -np.inf)
    sinks = tokens.sink & (log_w > -np.inf) & ~fixed
    source = DistinctTokens(n, tokens.scores)
    return Plan(
        source,
        (beta, gamma, log_w, tokens.sink),
        _scale(row.function, beta, gamma, log_w),
        "rows-sphere" if isinstance(tokens.scores, QKNorm) else "rows-law",
        bool(sinks.any() or tokens.units),
        float(np.logaddexp.reduce(tokens.units)) if tokens.units else -math.inf,
    )


def planned(row: Row, n: int, dim: int, seed: int) -> Plan:
    """The way to draw rows of n tokens.

    Args:
        row: any row whose kernel is a function of the score, or a map of the whole row.
        n: tokens.
        dim: of whole keys; 0 draws scalar scores.
        seed: of the queries of whole keys.

    Raises:
        InputError: rows too long to hold, or whole keys of a row with steps.
    """
    if isinstance(row.kernel, RowMap) and row.kernel.drawn is not None:
        if dim:
            raise InputError("dim", dim, f"{row.kernel.name} draws its own tokens; leave it out")
        return _whole(row, row.kernel, n)
    law = _scores(row)
    if dim and law is not None:
        raise InputError(
            "dim", dim, "whole keys give Gaussian scores, and this row has others; leave it out"
        )
    if all(isinstance(step, Decay) or step is law for step in row.steps):
        return _like(row, n, dim, seed)
    if dim:
        raise InputError(
            "dim", dim, "whole keys are drawn only for rows without steps; leave it out"
        )
    if isinstance(row.kernel, RowMap):
        raise InputError("steps", row.steps, f"{row.kernel.name} is drawn for other laws of scores")
    if len(row.steps) == 1 and isinstance(row.steps[0], (Rope, Coca)):
        return _rotary(row, n)
    return _each(row, n)
