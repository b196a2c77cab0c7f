"""Estimators of S for long rows: scalar scores, whole keys, real features; each says its name."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from sparsity.errors import InputError
from sparsity.kernels import ALL, Kernel, Law
from sparsity.kernels.lowering import numpy_weight
from sparsity.results import Estimate
from sparsity.sampling import edges, proposals
from sparsity.sampling.batches import CHUNK, batch_size
from sparsity.sampling.concluding import conclude
from sparsity.sampling.drawing import Prefetched
from sparsity.sampling.precision import SUMMING, rounding
from sparsity.sampling.proposals import Table
from sparsity.sampling.running import Sampling, run
from sparsity.sampling.samplers import Features, FullKeys, Plain, Stratified

_PLAIN_SIZE = 2**16  # draws of a plain scalar batch
_RATIO = (1.0, -0.5)  # S = m₁ · m₂^(−½)

_WHAT = {Law.SCORE: "scalar", Law.POSITION: "position"}


def stratified_size(rel_error: float, resolved: bool) -> int:
    """Draws of a stratified batch; its error falls like size^(−3/2), so few batches do."""
    if resolved:
        return 32 if rel_error >= 1e-4 else 256 if rel_error >= 1e-6 else 4096
    return next((n for n in (128, 512) if 2 * CHUNK * n * rel_error >= 3.2), 8192)


def parameter_values(
    kernel: Kernel, parameters: Mapping[str, float], real: np.dtype
) -> tuple[Any, ...]:
    """The kernel's parameters as the lowered functions take them: −log λ for λ."""
    given = dict(parameters)
    if "decay" in given:
        given["decay"] = -math.log(given["decay"])
    return tuple(real.type(given[p.name]) for p in kernel.parameters)


class Prepared(NamedTuple):
    """A stratified estimation that has not been drawn.

    Args:
        sampler: the sampler.
        arguments: its arguments, traced.
        powers: exponent per moment.
        log_shift: undoes the scales that kept the moments near one.
        resolution: relative rounding error of the draws' arithmetic.
        resolved: whether nothing can hide from the draws.
    """

    sampler: Stratified
    arguments: Any
    powers: tuple[float, ...]
    log_shift: float
    resolution: float
    resolved: bool


def prepare(
    kernel: Kernel, parameters: dict[str, float], table: Table, sampling: Sampling, power: float
) -> Prepared:
    """Make ready to estimate S^power; the other arguments as in `stratified`."""
    real, resolved = sampling.real, edges.resolved(kernel, parameters)
    powers = (power * _RATIO[0], power * _RATIO[1])
    off = rounding(kernel, parameters, table, real, compare=kernel not in ALL)
    return Prepared(
        Stratified(kernel, stratified_size(sampling.rel_error, resolved), real.type.__name__),
        (parameter_values(kernel, parameters, real), table.astype(real)),
        powers,
        float(table.log_mass @ powers),
        abs(power) * off,
        resolved,
    )


def finish(
    ready: Prepared, sampling: Sampling, log_factor: float = 0.0, begun: Prefetched | None = None
) -> Estimate:
    """Draw what is left to draw, and conclude e^log_factor · S^power."""
    sampler, arguments, powers, log_shift, resolution, resolved = ready
    options = {"resolution": resolution, "resolved": resolved, "begun": begun}
    return conclude(
        run(sampler, arguments, (powers,), sampling, **options),
        powers,
        method=f"{_WHAT[sampler.kernel.law]}-stratified",
        sampling=sampling,
        log_shift=log_shift + log_factor,
    )


def stratified(
    kernel: Kernel,
    parameters: dict[str, float],
    sampling: Sampling,
    *,
    power: float = 1.0,
    log_factor: float = 0.0,
) -> Estimate:
    """S from one scalar draw per stratum of a law near |a|^p, weighted back to the base law.

    The error bar holds the scatter between batches, the rounding of the draws' arithmetic, and for
    an f whose smoothness is not known 3/draws: the probability of a feature that no draw has met,
    19 times out of 20. Its weight is taken to be like that of the rest: peaks too fine for the
    table that outweigh all the rest can be missed, and the estimate says nothing of it.

    Args:
        kernel: any kernel of law SCORE (draws ε) or POSITION (draws the distance n − j).
        parameters: the kernel's, as plain floats inside their domains.
        sampling: the settings.
        power: of S, for what is e^log_factor · S^power.
        log_factor: its logarithm.
    """
    table = proposals.build(kernel, parameters)
    return finish(prepare(kernel, parameters, table, sampling, power), sampling, log_factor)


def plain(
    kernel: Kernel,
    parameters: dict[str, float],
    sampling: Sampling,
    *,
    power: float = 1.0,
    log_factor: float = 0.0,
) -> Estimate:
    """S from scalar draws of the base law itself: where this fails, the estimate says so.

    Args:
        kernel: any kernel of law SCORE or POSITION.
        parameters: the kernel's, as plain floats inside their domains.
        sampling: the settings.
        power: of S, for what is e^log_factor · S^power.
        log_factor: its logarithm.
    """
    real = sampling.real
    log_scale = proposals.build(kernel, parameters).log_mass[1] / 2
    arguments = (parameter_values(kernel, parameters, real), real.type(log_scale))
    powers = (power * _RATIO[0], power * _RATIO[1])
    done = run(Plain(kernel, _PLAIN_SIZE, real.name), arguments, (powers,), sampling)
    method = f"{_WHAT[kernel.law]}-plain"
    return conclude(done, powers, method=method, sampling=sampling, log_shift=log_factor)


def full_keys(
    kernel: Kernel, query: Any, mean: Any, sampling: Sampling, *, spread: float = 1.0
) -> Estimate:
    """S from whole keys k ~ N(μ, σ²I) ∈ R^d and scores q·k: tests the isotropy reduction itself.

    Args:
        kernel: any kernel of law SCORE.
        query: q, [d], finite and nonzero; or [queries, d], whose moments are pooled.
        mean: μ, [d], finite.
        sampling: the settings; samples are scores.
        spread: σ > 0.

    Raises:
        InputError: shapes that do not match, or values outside their domains.
    """
    real = sampling.real
    q, mu = np.atleast_2d(np.asarray(query, np.float64)), np.asarray(mean, np.float64)
    if q.ndim != 2 or not np.all(np.isfinite(q)) or not np.all(np.any(q, axis=1)):
        raise InputError("query", query, "must be a finite, nonzero vector (or a stack of them)")
    if mu.shape != q.shape[1:] or not np.all(np.isfinite(mu)):
        raise InputError(
            "mean", mean, f"must be a finite vector of shape {q.shape[1:]}, like query"
        )
    if not 0 < spread < np.inf:
        raise InputError("spread", spread, "must be > 0")
    beta, gamma = float(q[0] @ mu), float(spread * np.linalg.norm(q[0]))
    parameters = {"beta": beta, "gamma": gamma}
    table = proposals.build(kernel, parameters)
    arguments = (
        q.astype(real),
        mu.astype(real),
        real.type(spread),
        real.type(proposals.tilt(kernel, beta, gamma)),
        real.type(table.log_mass[1] / 2),
    )
    sampler = FullKeys(kernel, q.shape[1], batch_size(q.size), real.name)
    off = rounding(kernel, parameters, table, real, compare=kernel not in ALL)
    done = run(sampler, arguments, (_RATIO,), sampling, resolution=off)
    return conclude(done, _RATIO, method="full-keys", sampling=sampling, samples_per_draw=len(q))


def features(
    feature: Kernel,
    query: Any,
    center: float,
    spread: float,
    sampling: Sampling,
    *,
    query_map: Kernel | None = None,
) -> Estimate:
    """S of nonnegative linear attention from real features: a = g(q)·h(k), k ~ N(center, spread²).

    Args:
        feature: the SCORE kernel whose f is the feature map h ≥ 0.
        query: q, [d].
        center: mean of each entry of the key.
        spread: standard deviation of each entry, > 0.
        sampling: the settings; samples are keys.
        query_map: the SCORE kernel whose f is g ≥ 0; None takes q̃ = q.

    Raises:
        InputError: q̃ = g(q) with a negative entry, or without a positive one.
    """
    real = sampling.real
    q = np.asarray(query, np.float64)
    if query_map is not None:
        q = numpy_weight(query_map)(q)
    if q.ndim != 1 or not np.all(q >= 0) or not np.any(q):
        raise InputError("query", q, "must be a nonnegative, nonzero vector")
    q = q[q > 0]  # what is multiplied by zero need not be drawn
    arguments = (q.astype(real), real.type(center), real.type(spread))
    sampler = Features(feature, len(q), batch_size(len(q)), real.name)
    off = SUMMING * float(np.finfo(real).eps)
    done = run(sampler, arguments, (_RATIO,), sampling, resolution=off)
    return conclude(done, _RATIO, method=f"features-{feature.name}", sampling=sampling)
