"""Estimates by JAX Monte Carlo. `estimate` chooses the estimator; the result says which ran.

    estimate, draw, draw_each
      ├─ scalars, keys, features: estimators ─ samplers ─ proposals ─ supports
      └─ whole rows: row_sampling, iid_rows ─ row_plans ─ row_sources
                       │
      running: when to stop, and what comes of it ─ combining: batches to an error bar
      batches: what a seed draws, chunk by chunk ─ devices: where, and how it is compiled
      random_numbers: keys and normals

`proposals` decides where to draw, `running` until when. A sampler is a frozen record that draws one
batch from a key; batches of any sampler are run, combined and concluded alike.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Unpack

import numpy as np

from sparsity import kernels, quantities
from sparsity.checks import check_choice
from sparsity.errors import InputError
from sparsity.kernels import Kernel, Law, RowMap
from sparsity.kernels.parameters import One, names_parameters
from sparsity.kernels.queries import check_features
from sparsity.kernels.queries import named as named_query
from sparsity.limit.score_moments import log_moment
from sparsity.quantities import POWERS_OF_S_AND_N, Quantity
from sparsity.results import Estimate
from sparsity.rows.classes import ANY_LENGTH, same_at_any_length
from sparsity.rows.row import OfRows, Row, RowLike, assumed_of, row_of, with_steps
from sparsity.rows.score_laws import StudentT
from sparsity.rows.steps import Decay
from sparsity.sampling import estimators
from sparsity.sampling.row_sampling import draw_rows, sample_rows
from sparsity.sampling.running import Sampling
from sparsity.sampling.samplers import LONGEST, keys_at

__all__ = ["METHODS", "Sampling", "draw", "draw_each", "estimate", "estimators", "sample_rows"]

METHODS = ("stratified", "plain")
_MOST_DRAWN = 1e9  # scores, where nothing is said: of rows a minute or two of one core
_CALM = 8  # power of |a| whose mean exists where the scatter of Σa² can be believed
_MAX_QUERIES = 64  # that share the noise of their keys, where whole keys are drawn


@names_parameters()
def estimate(
    kernel: RowLike,
    *,
    length: One = None,
    of: str | Quantity | None = None,
    rel_error: float = 1e-3,
    max_samples: float | None = None,
    seed: int = 0,
    dtype: Any = None,
    method: str | None = None,
    progress: Callable[[int, int], None] | None = None,
    **parameters: Unpack[OfRows[One]],
) -> Estimate:
    """Estimate a quantity of a kernel or a row by sampling.

    Without a length it is S = E|a| / √(E a²) of long rows. Scores and positions are drawn as
    scalars under a change of measure; for a score kernel, `dim` draws whole keys k ∈ R^dim
    instead. `nonnegative` draws whole log-normal features whose σ̃/μ̃ is `ratio`, or whose `mean`
    and `covariance` are given, with a `query`, as in `evaluate`.

    With a length it is the mean of the quantity over whole rows of n tokens: S is then the mean
    of ‖a‖₁/(√n‖a‖₂). RoPE or CoCA as the only step is drawn from first principles.

    Args:
        kernel: a `Row`, a built-in kernel's name, a `Kernel` or a `RowMap`.
        length: n, the tokens of a row; for decayed the length of its row.
        of: the quantity, by name: "S", "n_eff", "participation", "entropy", "max_weight",
            "gini", "sink_mass", "support", or with a number, "top_k_mass:8"; see
            `sparsity.quantities`. None is n_eff of rows of n, as in `exact`, and S without a length
            or where nothing is random.
        rel_error: the relative standard error to reach, in (0, 1); for S of rows that of n·S².
        max_samples: the most keys or rows to draw beyond a first batch, which is always drawn; None
            is 10⁹ keys, or rows of 10⁹ in all.
        seed: 0 … 2³²−1.
        dtype: float32 or float64; None takes float64 where JAX has it enabled, but float32 for
            n_eff, S or entropy of 65,536 to 1,048,576 tokens to a `rel_error` of 1e-3 or more.
        method: "stratified" or "plain" for scalar draws; None is "stratified".
        progress: called with (chunks done, chunks in all).
        **parameters: of a kernel its own, scalars, with `steps` and `scores` as for `Row` or,
            for score kernels, the `decay` of their rows; for score kernels and rows of them `dim`.

    Returns:
        The estimate with its error bar; `warning` says when the error bar cannot be trusted.
        Ctrl-C returns the estimate so far, with `stopped` = "interrupted"; a second one raises.

    Raises:
        InputError: an unknown name, a value outside its domain, a length that is missing, or
            options that do not go together.
    """
    n: Any = kernel.length if length is None and isinstance(kernel, Row) else length
    if max_samples is None:
        # Where hardly any row counts no error bar is small enough: 10⁹ rows would take hours.
        record = kernel.kernel if isinstance(kernel, Row) else kernels.named(kernel)
        of_rows = isinstance(n, (int, float, np.number)) and record.law is not Law.POSITION
        max_samples = max(1.0, _MOST_DRAWN / max(n if of_rows else 1.0, 1.0))
    sampling = Sampling(rel_error, max_samples, seed, dtype, progress, partial=True)
    drawn = draw(kernel, sampling, length=n, of=of, method=method, **parameters)
    return replace(drawn, assumed=assumed_of(kernel, parameters))


def _bind(
    kernel: RowLike, length: Any, parameters: dict[str, Any]
) -> tuple[Row, dict[str, Any], int | None, int]:
    """Return the row, its kernel's parameters, the length, and the dimension of whole keys or 0."""
    kernel, parameters = with_steps(kernel, parameters)
    given = parameters | ({} if length is None else {"length": length})
    if isinstance(kernel, Row):
        # A row has parameters of its own; of whole keys it is told the dimension all the same.
        whole = kernel.kernel.law in (Law.SCORE, Law.ROW)
        row = row_of(kernel, {k: v for k, v in parameters.items() if not (whole and k == "dim")})
        bound, extra = row.kernel.bind_row(dict(row.parameters) | given)
    else:
        record = kernels.named(kernel)
        bound, extra = record.bind_row(given)
        steps = (Decay(float(extra["decay"])),) if "decay" in extra else ()
        row = Row(record, steps=steps, **{k: v for k, v in bound.items() if k != "length"})
    n = bound.get("length", extra.get("length"))
    return row, bound, None if n is None else int(n), int(extra.get("dim", 0))


def draw(
    kernel: RowLike,
    sampling: Sampling,
    *,
    length: Any = None,
    of: str | Quantity | None = None,
    method: str | None = None,
    **parameters: Any,
) -> Estimate:
    """Do `estimate` under given settings.

    Args:
        kernel: as in `estimate`.
        sampling: the settings.
        length: as in `estimate`.
        of: as in `estimate`.
        method: "stratified" or "plain" for scalar draws; None is "stratified".
        **parameters: as in `estimate`.

    Raises:
        InputError: as in `estimate`.
    """
    measured = {"mean", "covariance"} & parameters.keys()
    if measured and not isinstance(kernel, Row) and kernels.named(kernel) is kernels.nonnegative:
        return _estimate_measured_features(parameters | {"length": length}, of, sampling)
    row, bound, n, dim = _bind(kernel, length, parameters)
    law = row.kernel.law
    of_rows = n is not None and law is not Law.POSITION
    quantity = quantities.default(of_rows) if of is None else quantities.named(of)
    if method is not None:
        check_choice("method", method, METHODS)
        if law in (Law.FEATURES, Law.ROW) or (
            law is Law.SCORE and (n is not None or dim or row.steps)
        ):
            fix = "applies to draws of single scores only; leave it out"
            raise InputError("method", method, fix)
    scalar = estimators.plain if method == "plain" else estimators.stratified
    if isinstance(row.kernel, RowMap):
        if n is not None:
            return sample_rows(row, n, sampling, quantity, dim=dim or None)
        pooled = row.kernel.unnormalised and row.kernel.identically_distributed
        if quantity is quantities.S and pooled:
            return draw_rows(row, ANY_LENGTH, sampling, None).limit_form()
        fix = f"the weights of {row.kernel.name} depend on the whole row; give its length n"
        raise InputError("length", None, fix)
    if law is Law.FEATURES:
        drawn = _estimate_features(row.kernel, bound, quantity, sampling)
    elif law is Law.POSITION:
        if quantity.name not in POWERS_OF_S_AND_N:
            raise InputError("of", quantity.name, f"choose one of {', '.join(POWERS_OF_S_AND_N)}")
        power, power_of_n = POWERS_OF_S_AND_N[quantity.name]
        values = {name: float(value) for name, value in bound.items()}
        log_factor = power_of_n * math.log(values["length"])
        drawn = scalar(row.kernel, values, sampling, power=power, log_factor=log_factor)
    elif n is not None:
        return sample_rows(row, n, sampling, quantity, dim=dim or None)
    elif quantity is not quantities.S:
        raise InputError("length", None, f"{quantity.name} is a mean over rows of n tokens; give n")
    elif row.steps:
        drawn = _estimate_any_length(row, dim, sampling)
    elif dim:
        query, mean = keys_at(row.beta, row.gamma, dim, sampling.seed, min(_MAX_QUERIES, dim))
        drawn = estimators.full_keys(row.kernel, query, mean, sampling)
    else:
        drawn = scalar(row.kernel, {"beta": row.beta, "gamma": row.gamma}, sampling)
    return replace(drawn, quantity=quantity.name, length=n)


def draw_each(
    kernel: Kernel, cells: Sequence[dict[str, Any]], samplings: Sequence[Sampling]
) -> Iterator[Estimate]:
    """Do `draw` of S of long rows for several parameters, with the same bits as one by one.

    Args:
        kernel: the kernel.
        cells: its parameters, for each estimate.
        samplings: the settings of each.

    Raises:
        InputError: as in `estimate`.
    """
    names = [p.name for p in kernel.parameters]
    same = all(list(cell) == list(cells[0]) and set(cell) <= set(names) for cell in cells)
    if kernel.law is Law.FEATURES or not (cells and same):
        for cell, sampling in zip(cells, samplings, strict=True):
            yield draw(kernel, sampling, **cell)
        return
    columns = kernel.bind({name: np.array([cell[name] for cell in cells]) for name in cells[0]})
    rows = np.stack(np.broadcast_arrays(*columns.values()), axis=-1).reshape(len(cells), -1)
    places = [dict(zip(names, map(float, row), strict=True)) for row in rows.tolist()]
    estimates = estimators.stratified_each(kernel, places, samplings)
    for place, estimate in zip(places, estimates, strict=True):
        yield replace(estimate, length=int(place["length"])) if "length" in place else estimate


def _estimate_any_length(row: Row, dim: int, sampling: Sampling) -> Estimate:
    """Estimate S of long rows whose tokens are alike whatever their number.

    Raises:
        InputError: tokens differ, or heavy tails leave no S.
    """
    if not same_at_any_length(row):
        raise InputError("length", None, "this row depends on its length; give one")
    doubt = doubt_of_heavy_tails(row)
    drawn = draw_rows(row, ANY_LENGTH, sampling, None, dim=dim or None).limit_form()
    return replace(drawn, warning=drawn.warning or doubt)


def doubt_of_heavy_tails(row: Row) -> str | None:
    """Return why heavy tails leave the error bar in doubt, or None.

    Raises:
        InputError: they leave no S.
    """
    law = next((step for step in row.steps if isinstance(step, StudentT)), None)
    if law is None:
        return None
    log_moment(row.function, 2, row.beta, row.gamma, law)
    try:
        log_moment(row.function, _CALM, row.beta, row.gamma, law)
    except InputError:
        return f"E|a|^{_CALM} is infinite under {law.typed} scores: the error bar cannot be trusted"
    return None


def _estimate_features(
    kernel: Kernel, values: dict[str, Any], quantity: Quantity, sampling: Sampling
) -> Estimate:
    """Estimate S from whole log-normal features."""
    if quantity is not quantities.S:
        raise InputError("of", quantity.name, f"only S of long rows is sampled for {kernel.name}")
    ratio = float(values["ratio"])  # σ̃/μ̃ = √(e^spread² − 1); of a large one the square overflows
    spread = math.sqrt(math.log1p(ratio**2) if ratio < 1e100 else 2 * math.log(ratio))
    dim = int(values["dim"])
    if dim > LONGEST:
        raise InputError("dim", dim, f"must be <= {LONGEST:.0e} to be sampled whole")
    query = named_query(values["query"]).vector(dim)
    return estimators.features(kernels.exp, query, 0.0, spread, sampling)


def _estimate_measured_features(
    parameters: dict[str, Any], of: str | Quantity | None, sampling: Sampling
) -> Estimate:
    """Estimate S from log-normal features of the mean and covariance that were measured.

    S depends on these alone: log k̃ ~ N(ln μ̃ − C_ii/2, C) with C_ij = ln(1 + Σ̃_ij/(μ̃_i μ̃_j)).
    """
    mean, covariance, query = check_features(**parameters)
    if query.ndim != 1:
        raise InputError("query", f"array of shape {query.shape}", "give one query, [d]")
    if of is not None and quantities.named(of) is not quantities.S:
        raise InputError("of", of, "only S of long rows is sampled for nonnegative")
    read = (query > 0) & (mean > 0)
    m, sigma = mean[read], covariance[np.ix_(read, read)]
    with np.errstate(invalid="ignore", divide="ignore"):
        of_logs = np.log1p(sigma / np.outer(m, m))
    ends, axes = np.linalg.eigh(of_logs) if np.isfinite(of_logs).all() else (np.full(1, -1.0), None)
    if axes is None or ends[0] < -1e-9 * ends[-1]:
        fix = "no log-normal features have it, so that it is not sampled; evaluate needs none"
        raise InputError("covariance", f"array of shape {covariance.shape}", fix)
    mixed, center = axes * np.sqrt(np.maximum(ends, 0)), np.log(m) - np.diag(of_logs) / 2
    drawn = estimators.features(kernels.exp, query[read], center, mixed, sampling)
    return replace(drawn, quantity=quantities.S.name)
