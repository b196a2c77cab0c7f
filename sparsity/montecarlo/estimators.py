"""The estimators: scalar scores, whole keys, real features, whole rows; each names its method."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from sparsity.errors import InputError
from sparsity.kernels import ALL, Kernel, Law
from sparsity.kernels.lowering import numpy_weight
from sparsity.montecarlo import proposals
from sparsity.montecarlo.batches import CHUNK
from sparsity.montecarlo.precision import rounding
from sparsity.montecarlo.running import Sampling, conclude, run
from sparsity.montecarlo.samplers import Features, FullKeys, Plain, Rows, Stratified
from sparsity.results import Estimate

__all__ = ["RowEstimates", "features", "full_keys", "keys_at", "plain", "rows", "stratified"]

_PLAIN_SIZE = 2**16  # draws of a plain scalar batch
_BATCH_NORMALS = 2**16  # normals of a full-key, feature or row batch: fits a core's cache
_LONGEST = 10**8  # tokens of a row, and entries of a key, that can be sampled whole
_WIDEST = 1e100  # whose square float64 holds
_ALONE = 2**20  # normals of one draw beyond which a batch is a single draw
_RATIO = (1.0, -0.5)  # S = m₁ · m₂^(−½)

_WHAT = {Law.SCORE: "scalar", Law.POSITION: "position"}


def _stratified_size(rel_error: float, resolved: bool) -> int:
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


def stratified(kernel: Kernel, parameters: dict[str, float], sampling: Sampling) -> Estimate:
    """S from one scalar draw per stratum of a law near |a|^p, weighted back to the base law.

    The error bar holds the scatter between batches, the rounding of the draws' arithmetic, and for
    an f whose smoothness is not known 3/draws: the weight of a feature that no draw has met.

    Args:
        kernel: any kernel of law SCORE (draws ε) or POSITION (draws the distance n − j).
        parameters: the kernel's, as plain floats inside their domains.
        sampling: the settings.
    """
    real, resolved = sampling.real, proposals.resolved(kernel, parameters)
    table = proposals.build(kernel, parameters)
    arguments = (parameter_values(kernel, parameters, real), table.astype(real))
    sampler = Stratified(kernel, _stratified_size(sampling.rel_error, resolved), real.name)
    resolution = rounding(kernel, parameters, table, real, compare=kernel not in ALL)
    done = run(sampler, arguments, _RATIO, sampling, resolution=resolution, resolved=resolved)
    return conclude(
        done,
        _RATIO,
        method=f"{_WHAT[kernel.law]}-stratified",
        sampling=sampling,
        log_shift=float(table.log_mass @ _RATIO),
    )


def plain(kernel: Kernel, parameters: dict[str, float], sampling: Sampling) -> Estimate:
    """S from scalar draws of the base law itself: where this fails, the estimate says so.

    Args:
        kernel: any kernel of law SCORE or POSITION.
        parameters: the kernel's, as plain floats inside their domains.
        sampling: the settings.
    """
    real = sampling.real
    log_scale = proposals.build(kernel, parameters).log_mass[1] / 2
    arguments = (parameter_values(kernel, parameters, real), real.type(log_scale))
    done = run(Plain(kernel, _PLAIN_SIZE, real.name), arguments, _RATIO, sampling)
    return conclude(done, _RATIO, method=f"{_WHAT[kernel.law]}-plain", sampling=sampling)


def keys_at(
    beta: float, gamma: float, dim: int, seed: int, queries: int = 1
) -> tuple[np.ndarray, np.ndarray]:
    """Orthogonal queries q, [queries, d], and a key mean μ, [d], with q·μ = β and ‖q‖ = γ for each.

    Directions are random; where queries < d, μ also has a part across them, which S must not feel.
    """
    if dim > _LONGEST:
        raise InputError("dim", dim, f"must be <= {_LONGEST:.0e} to be sampled whole")
    for name, size in (("beta", abs(beta)), ("gamma", gamma), ("beta/gamma", abs(beta / gamma))):
        if not size <= _WIDEST:
            raise InputError(name, size, f"must be <= {_WIDEST:.0e} for whole keys to be drawn")
    rng = np.random.default_rng([seed, dim])
    q = np.linalg.qr(rng.standard_normal((dim, queries)))[0].T
    mu = rng.standard_normal(dim)
    mu += q.T @ (beta / gamma - q @ mu)
    return q * gamma, mu


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
        raise InputError("mean", mean, f"must be a finite vector of shape {q.shape[1:]}, as query")
    if not 0 < spread < np.inf:
        raise InputError("spread", spread, "must be > 0")
    beta, gamma = float(q[0] @ mu), float(spread * np.linalg.norm(q[0]))
    arguments = (
        q.astype(real),
        mu.astype(real),
        real.type(spread),
        real.type(proposals.tilt(kernel, beta, gamma)),
        real.type(proposals.build(kernel, {"beta": beta, "gamma": gamma}).log_mass[1] / 2),
    )
    sampler = FullKeys(kernel, q.shape[1], _batch(q.size), real.name)
    done = run(sampler, arguments, _RATIO, sampling)
    return conclude(done, _RATIO, method="full-keys", sampling=sampling, samples_per_draw=len(q))


def _batch(normals_per_draw: int) -> int:
    """Draws in a batch of about _BATCH_NORMALS numbers; 8 at least, where they fit."""
    return max(8 if normals_per_draw < _ALONE else 1, _BATCH_NORMALS // normals_per_draw)


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
    arguments = (q.astype(real), real.type(center), real.type(spread))
    sampler = Features(feature, len(q), _batch(len(q)), real.name)
    done = run(sampler, arguments, _RATIO, sampling)
    return conclude(done, _RATIO, method=f"features-{feature.name}", sampling=sampling)


class RowEstimates(NamedTuple):
    """Averages over whole rows of n weights.

    Args:
        S_n: mean of ‖a‖₁/(√n‖a‖₂) over nonzero rows.
        n_eff: mean of ‖a‖₁²/‖a‖₂² over nonzero rows.
        pooled: S of the moments pooled over rows and positions, the limit form of the law.
    """

    S_n: Estimate
    n_eff: Estimate
    pooled: Estimate


def rows(
    kernel: Kernel,
    beta: float,
    gamma: float,
    length: int,
    sampling: Sampling,
    *,
    decay: float = 1.0,
    dim: int | None = None,
) -> RowEstimates:
    """Whole rows of n real weights a_j = λ^(n−j) f(s_j), each row's metric averaged.

    Args:
        kernel: any kernel of law SCORE.
        beta: bias β.
        gamma: spread γ > 0.
        length: n ≥ 1.
        sampling: the settings; samples are rows; rel_error is that of n_eff.
        decay: λ in (0, 1]; 1 for i.i.d. rows.
        dim: draw whole keys in R^dim; None draws scalar scores.
    """
    real = sampling.real
    if length > _LONGEST:
        raise InputError("length", length, f"must be <= {_LONGEST:.0e} to be sampled whole")
    if dim:
        query, mean = keys_at(beta, gamma, dim, sampling.seed)
        law: tuple[Any, ...] = (query[0], mean, 1.0)
    else:
        law = (beta, gamma)
    log_scale = proposals.build(kernel, {"beta": beta, "gamma": gamma}).log_mass[1] / 2
    arguments = tuple(np.asarray(x, dtype=real) for x in (*law, -math.log(decay), log_scale))
    block = min(length, max(1, _ALONE // (dim or 1)))
    size = _batch(length * (dim or 1))
    sampler = Rows(kernel, length, block, dim or 0, size, real.name)
    done = run(sampler, arguments, (0.0, 1.0, -1.0, 0.0, 0.0), sampling)
    method = "rows-full-keys" if dim else "rows"

    def concluded(*powers: float) -> Estimate:
        return conclude(done, powers, method=method, sampling=sampling)

    return RowEstimates(
        S_n=concluded(1, 0, -1, 0, 0),
        n_eff=concluded(0, 1, -1, 0, 0),
        pooled=concluded(0, 0, 0, 1, -0.5),
    )
