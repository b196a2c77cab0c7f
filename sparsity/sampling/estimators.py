"""Estimators of S for long rows: scalar scores, whole keys, real features; each says its name.

    kernel, parameters ─> proposals.build ─> Table ─┐
                          Sampling ─────────────────┴> _Prepared ─> run ─> conclude ─> Estimate

Several points of a curve are prepared on the host while the device begins with earlier ones.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from sparsity.errors import InputError
from sparsity.kernels import Kernel, Law
from sparsity.results import Estimate
from sparsity.sampling import proposals
from sparsity.sampling.batches import (
    CHUNK,
    ESTIMATIONS_PER_CALL,
    Prefetched,
    batch_size,
    dispatch_each,
    is_small,
)
from sparsity.sampling.combining import combine_each
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
    """A stratified estimation of S^power that has not been drawn.

    Args:
        sampler: the sampler.
        arguments: its arguments, traced.
        powers: exponent per moment.
        log_shift: undoes the scales that kept the moments near one.
        resolution: relative rounding error of the draws' arithmetic.
        resolved: whether nothing can hide from the draws.
        sampling: the settings.
    """

    sampler: Stratified
    arguments: Any
    powers: tuple[float, ...]
    log_shift: float
    resolution: float
    resolved: bool
    sampling: Sampling

    @classmethod
    def of(
        cls,
        kernel: Kernel,
        parameters: dict[str, float],
        table: Table,
        sampling: Sampling,
        power: float = 1.0,
    ) -> _Prepared:
        """Make ready to estimate S^power; the other arguments as in `stratified`."""
        real, resolved = sampling.real, proposals.is_resolved(kernel, parameters)
        powers = (power * _RATIO[0], power * _RATIO[1])
        rounding = proposals.rounding(kernel, parameters, table, real)
        size = stratified_size(sampling.rel_error, resolved)
        return cls(
            Stratified(kernel, size, real.type.__name__),
            (parameter_values(kernel, parameters, real), table.astype(real)),
            powers,
            float(table.log_mass @ powers),
            abs(power) * rounding,
            resolved,
            sampling,
        )

    def finish(self, log_factor: float = 0.0, begun: Prefetched | None = None) -> Estimate:
        """Draw what is left to draw, and conclude e^log_factor · S^power."""
        done = run(
            self.sampler,
            self.arguments,
            (self.powers,),
            self.sampling,
            resolution=self.resolution,
            resolved=self.resolved,
            begun=begun,
        )
        return conclude(
            done,
            self.powers,
            method=f"{_COORDINATE[self.sampler.kernel.law]}-stratified",
            sampling=self.sampling,
            log_shift=self.log_shift + log_factor,
        )


def stratified(
    kernel: Kernel,
    parameters: dict[str, float],
    sampling: Sampling,
    *,
    power: float = 1.0,
    log_factor: float = 0.0,
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
    """
    table = proposals.build(kernel, parameters)
    return _Prepared.of(kernel, parameters, table, sampling, power).finish(log_factor)


def stratified_each(
    kernel: Kernel, parameters: Sequence[dict[str, float]], samplings: Sequence[Sampling]
) -> Iterator[Estimate]:
    """Do `stratified` for several parameters: they compile once and begin in a few calls.

    The device draws some of them while the host prepares the next ones. They share no draws.

    Args:
        kernel: as in `stratified`.
        parameters: of each estimate.
        samplings: of each estimate.

    Returns:
        The estimates in order, the same bits as one by one.
    """
    # One call ahead: while the device draws the next points, the host concludes these.
    begun: list[Callable[[], Iterator[Estimate]]] = []
    for start in range(0, len(parameters), ESTIMATIONS_PER_CALL):
        some = slice(start, start + ESTIMATIONS_PER_CALL)
        begun.append(_begin_some(kernel, parameters[some], samplings[some]))
        if len(begun) > 1:
            yield from begun.pop(0)()
    for last in begun:
        yield from last()


def _begin_some(
    kernel: Kernel, parameters: Sequence[dict[str, float]], samplings: Sequence[Sampling]
) -> Callable[[], Iterator[Estimate]]:
    """Begin to draw some estimations of `stratified_each`; return what concludes them."""
    tables = proposals.build_each(kernel, parameters)
    laws = zip(parameters, tables, samplings, strict=True)
    every = [_Prepared.of(kernel, *law) for law in laws]
    # Those of one program and one pilot begin together; of a large batch nothing is gained by that.
    alike: dict[Any, list[int]] = {}
    for i, ready in enumerate(every):
        alike.setdefault((ready.sampler, ready.sampling.pilot), []).append(i)
    waiting = [
        (who, _begin_pilots([every[i] for i in who]))
        for (sampler, _), who in alike.items()
        if len(who) > 1 and is_small(sampler)
    ]

    def concluded() -> Iterator[Estimate]:
        begun: dict[int, Prefetched] = {}
        for who, wait in waiting:
            begun |= dict(zip(who, wait(), strict=True))
        for i, ready in enumerate(every):
            yield ready.finish(begun=begun.get(i))

    return concluded


def _begin_pilots(every: Sequence[_Prepared]) -> Callable[[], list[Prefetched]]:
    """Begin to draw the pilots of estimations that are alike; return what waits for them."""
    started, sampler, chunks = time.perf_counter(), every[0].sampler, every[0].sampling.pilot
    firsts = [k * CHUNK for k in range(chunks)]
    wait = dispatch_each(
        sampler,
        [ready.arguments for ready in every for _ in firsts],
        [int(ready.sampling.seed) for ready in every for _ in firsts],
        [first for _ in every for first in firsts],
    )
    called = time.perf_counter() - started

    def begun() -> list[Prefetched]:
        started = time.perf_counter()
        drawn = np.stack(wait())
        share = (called + time.perf_counter() - started) / len(every)
        batches = drawn.reshape(len(every), chunks * CHUNK, *drawn.shape[2:])
        powers = every[0].powers
        known = combine_each(batches, powers, sampler.size)
        return [
            Prefetched(own, (powers, one), share) for own, one in zip(batches, known, strict=True)
        ]

    return begun


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

    Raises:
        InputError: shapes that do not match, or values outside their domains.
    """
    real = sampling.real
    q, mu = np.atleast_2d(np.asarray(query, np.float64)), np.asarray(mean, np.float64)
    if q.ndim != 2 or not np.all(np.isfinite(q)) or not np.all(np.any(q, axis=1)):
        raise InputError("query", query, "must be a finite, nonzero vector (or a stack of them)")
    if mu.shape != q.shape[1:] or not np.all(np.isfinite(mu)):
        fix = f"must be a finite vector of shape {q.shape[1:]}, like query"
        raise InputError("mean", mean, fix)
    if not 0 < spread < np.inf:
        raise InputError("spread", spread, "must be > 0")
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


def features(
    feature: Kernel, query: Any, center: float, spread: float, sampling: Sampling
) -> Estimate:
    """Estimate S of nonnegative linear attention, a = q̃·h(k), k ~ N(center, spread²), from keys.

    Args:
        feature: the SCORE kernel whose f is the feature map h ≥ 0.
        query: the features q̃ of the query, [d].
        center: mean of each entry of the key.
        spread: standard deviation of each entry, > 0.
        sampling: the settings; samples are keys.

    Raises:
        InputError: q̃ with a negative entry, or without a positive one.
    """
    real = sampling.real
    q = np.asarray(query, np.float64)
    if q.ndim != 1 or not np.all(q >= 0) or not np.any(q):
        raise InputError("query", q, "must be a nonnegative, nonzero vector")
    q = q[q > 0]  # what is multiplied by zero need not be drawn
    arguments = (q.astype(real), real.type(center), real.type(spread))
    sampler = Features(feature, len(q), batch_size(len(q)), real.name)
    rounding = proposals.SUMMATION_ULPS * float(np.finfo(real).eps)
    done = run(sampler, arguments, (_RATIO,), sampling, resolution=rounding)
    return conclude(done, _RATIO, method=f"features-{feature.name}", sampling=sampling)
