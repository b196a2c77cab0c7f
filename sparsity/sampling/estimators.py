"""Estimators of S for long rows: scalar scores, whole keys, real features; each says its name.

kernel, parameters ─> proposals.build ─> Table ─┐
                      Sampling ─────────────────┴> run ─> conclude ─> Estimate
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from sparsity.kernels import Kernel, Law
from sparsity.results import Estimate
from sparsity.sampling import proposals
from sparsity.sampling.batches import CHUNK, Pilot, batch_size, draw_pilots, is_small
from sparsity.sampling.devices import runs_on_cpu
from sparsity.sampling.proposals import Table
from sparsity.sampling.running import Sampling, conclude, run
from sparsity.sampling.samplers import Features, FullKeys, Plain, Stratified

_PLAIN_SIZE = 2**16  # draws of a plain scalar batch
# Queries share the noise of a key. In batches as small as if each had its own, the products of
# matrices are so small that a target of 3e-4 takes 2.5 times as long at d = 64; in batches as large
# as for one query, the first chunk draws twice what a target of 1e-3 needs.
_QUERIES_OF_A_BATCH = 4
_RATIO = (1.0, -0.5)  # S = m₁ · m₂^(−½)
_COORDINATE = {Law.SCORE: "scalar", Law.POSITION: "position"}  # in the name of the method


def stratified_size(rel_error: float, resolved: bool) -> int:
    """Return the draws of a stratified batch; its error falls like size^(−3/2), so few batches do.

    Where features may hide, two chunks should make 3/draws, the weight that may have been missed,
    less than the target.
    """
    if resolved:
        return 32 if rel_error >= 1e-4 else 256 if rel_error >= 1e-6 else 4096
    return next((n for n in (128, 512) if 2 * CHUNK * n * rel_error >= 3.2), 8192)


def parameter_values(
    kernel: Kernel, parameters: Mapping[str, float], real: np.dtype
) -> tuple[Any, ...]:
    """Return the kernel's parameters as the lowered functions take them: −log λ for λ."""
    given = dict(parameters)
    if "decay" in given:
        given["decay"] = -math.log(given["decay"])
    return tuple(real.type(given[p.name]) for p in kernel.parameters)


class _Prepared(NamedTuple):
    """A stratified estimation before anything is drawn: its table, and whether that resolves f."""

    sampler: Stratified
    arguments: Any
    table: Table
    resolved: bool


def _prepare(
    kernel: Kernel, parameters: dict[str, float], sampling: Sampling, table: Table
) -> _Prepared:
    resolved, real = proposals.is_resolved(kernel, parameters), sampling.real
    size = stratified_size(sampling.rel_error, resolved)
    arguments = parameter_values(kernel, parameters, real), table.astype(real)
    return _Prepared(Stratified(kernel, size, real.type.__name__), arguments, table, resolved)


def stratified(
    kernel: Kernel,
    parameters: dict[str, float],
    sampling: Sampling,
    *,
    power: float = 1.0,
    log_factor: float = 0.0,
    prepared: _Prepared | None = None,
    pilot: Pilot | None = None,
) -> Estimate:
    """Estimate S from one scalar draw per stratum of a law near |a|^p, weighted to the base law.

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
        prepared: the estimation, where it has been prepared with others.
        pilot: its pilot, where that has been drawn with those of others.
    """
    if prepared is None:
        prepared = _prepare(kernel, parameters, sampling, proposals.build(kernel, parameters))
    table, powers = prepared.table, (power * _RATIO[0], power * _RATIO[1])
    done = run(
        prepared.sampler,
        prepared.arguments,
        (powers,),
        sampling,
        resolution=abs(power) * proposals.rounding(kernel, parameters, table, sampling.real),
        resolved=prepared.resolved,
        pilot=pilot,
    )
    return conclude(
        done,
        powers,
        method=f"{_COORDINATE[kernel.law]}-stratified",
        sampling=sampling,
        # Undoes the scales that kept the moments near one.
        log_shift=float(table.log_mass @ powers) + log_factor,
    )


def stratified_each(
    kernel: Kernel, parameters: Sequence[dict[str, float]], samplings: Sequence[Sampling]
) -> Iterator[Estimate]:
    """Do `stratified` for several parameters, with the same bits.

    Their tables are built at once, and their pilots are drawn together if all have one sampler.

    Args:
        kernel: as in `stratified`.
        parameters: of each estimate.
        samplings: of each estimate.
    """
    tables = proposals.build_each(kernel, parameters)
    cells = zip(parameters, samplings, tables, strict=True)
    prepared = [_prepare(kernel, *cell) for cell in cells]
    pilots: Sequence[Pilot | None] = [None] * len(tables)
    samplers, lengths = {x.sampler for x in prepared}, {sampling.pilot for sampling in samplings}
    alike = len(tables) > 1 and len(samplers) == len(lengths) == 1
    # A call of an accelerator draws more than a pilot.
    if alike and is_small(prepared[0].sampler) and runs_on_cpu():
        arguments, seeds = [x.arguments for x in prepared], [x.seed for x in samplings]
        pilots = draw_pilots(prepared[0].sampler, arguments, seeds, samplings[0].pilot)
    for values, sampling, one, pilot in zip(parameters, samplings, prepared, pilots, strict=True):
        yield stratified(kernel, values, sampling, prepared=one, pilot=pilot)


def plain(
    kernel: Kernel,
    parameters: dict[str, float],
    sampling: Sampling,
    *,
    power: float = 1.0,
    log_factor: float = 0.0,
) -> Estimate:
    """Estimate S from scalar draws of the base law itself: where this fails, the estimate says so.

    Args:
        kernel: any kernel of law SCORE or POSITION.
        parameters: the kernel's, as plain floats inside their domains.
        sampling: the settings.
        power: of S, for what is e^log_factor · S^power.
        log_factor: its logarithm.
    """
    real = sampling.real
    # The table gives the scale alone here, which keeps the moments near one.
    log_scale = proposals.build(kernel, parameters).log_mass[1] / 2
    arguments = (parameter_values(kernel, parameters, real), real.type(log_scale))
    powers = (power * _RATIO[0], power * _RATIO[1])
    done = run(Plain(kernel, _PLAIN_SIZE, real.name), arguments, (powers,), sampling)
    method = f"{_COORDINATE[kernel.law]}-plain"
    return conclude(done, powers, method=method, sampling=sampling, log_shift=log_factor)


def full_keys(
    kernel: Kernel, query: Any, mean: Any, sampling: Sampling, *, spread: float = 1.0
) -> Estimate:
    """Estimate S from whole keys k ~ N(μ, σ²I) ∈ R^d and scores q·k: tests the isotropy reduction.

    Args:
        kernel: any kernel of law SCORE.
        query: q, [d], finite and nonzero; or [queries, d], whose moments are pooled.
        mean: μ, [d], finite.
        sampling: the settings; samples are scores.
        spread: σ > 0.
    """
    real = sampling.real
    q, mu = np.atleast_2d(np.asarray(query, np.float64)), np.asarray(mean, np.float64)
    # The first query stands for all in the scale and the tilt, which bias nothing.
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
    size = batch_size(q.shape[1] * min(len(q), _QUERIES_OF_A_BATCH))
    sampler = FullKeys(kernel, q.shape[1], size, real.name)
    rounding = proposals.rounding(kernel, parameters, table, real)
    done = run(sampler, arguments, (_RATIO,), sampling, resolution=rounding)
    return conclude(done, _RATIO, method="full-keys", sampling=sampling, samples_per_draw=len(q))


def features(feature: Kernel, query: Any, center: Any, spread: Any, sampling: Sampling) -> Estimate:
    """Estimate S of nonnegative linear attention, a = q̃·h(k), k ~ N(center, spread²), from keys.

    Args:
        feature: the SCORE kernel whose f is the feature map h ≥ 0.
        query: the features q̃ ≥ 0 of the query, [d], one of them above 0.
        center: mean of each entry of the key, or [d].
        spread: standard deviation of each entry, > 0, or the matrix [d, d] that mixes normals.
        sampling: the settings; samples are keys.
    """
    real = sampling.real
    q = np.asarray(query, np.float64)
    if np.ndim(spread) == 0:
        q = q[q > 0]  # what is multiplied by zero need not be drawn
    arguments = (q.astype(real), np.asarray(center, real), np.asarray(spread, real))
    sampler = Features(feature, len(q), batch_size(len(q)), real.name)
    rounding = proposals.SUMMATION_ULPS * float(np.finfo(real).eps)
    done = run(sampler, arguments, (_RATIO,), sampling, resolution=rounding)
    return conclude(done, _RATIO, method=f"features-{feature.name}", sampling=sampling)
