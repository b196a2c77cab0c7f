"""Estimates by JAX Monte Carlo. `estimate` chooses the estimator; the result says which ran."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from sparsity import kernels
from sparsity.errors import InputError
from sparsity.kernels import Kernel, Law
from sparsity.kernels.queries import named as named_query
from sparsity.montecarlo import estimators
from sparsity.montecarlo.estimators import RowEstimates
from sparsity.montecarlo.running import Sampling
from sparsity.results import Estimate

__all__ = ["METHODS", "RowEstimates", "Sampling", "draw", "estimate", "estimators"]

METHODS = ("stratified", "plain")
_LARGEST = 10**8  # features that can be sampled whole


def estimate(
    kernel: str | Kernel,
    *,
    rel_error: float = 1e-3,
    max_samples: float = 1e9,
    seed: int = 0,
    dtype: Any = None,
    method: str | None = None,
    max_seconds: float = math.inf,
    progress: Callable[[int, int], None] | None = None,
    **parameters: Any,
) -> Estimate:
    """Estimate S = E|a| / √(E a²) of a kernel by sampling.

    Scores and positions are drawn as scalars under a change of measure. For a score kernel, `dim`
    draws whole keys k ∈ R^dim instead; `length` draws whole rows of n weights and gives the mean
    of ‖a‖₁/(√n‖a‖₂) over rows, with `decay` those of retention, λ^(n−j) f(s_j). `nonnegative`
    draws whole log-normal features whose σ̃/μ̃ is `ratio`.

    Args:
        kernel: a built-in kernel's name, or a `Kernel`.
        rel_error: the relative standard error to reach, in (0, 1).
        max_samples: the most keys or rows to draw.
        seed: 0 … 2³²−1.
        dtype: float32 or float64; None takes float64 where JAX has it enabled.
        method: "stratified" or "plain" for scalar draws; None is "stratified".
        max_seconds: the most wall time to spend, about.
        progress: called with (chunks done, chunks in all).
        **parameters: the kernel's own, scalars; for score kernels also `dim`, `length`, `decay`.

    Returns:
        The estimate with its error bar; `warning` says when the error bar cannot be trusted.
        Ctrl-C returns what there is by then, with `stopped` = "interrupted"; a second one raises.

    Raises:
        InputError: an unknown name, a value outside its domain, or options that do not go together.
    """
    sampling = Sampling(rel_error, max_samples, seed, dtype, progress, max_seconds, partial=True)
    return draw(kernels.named(kernel), sampling, method=method, **parameters)


def draw(
    kernel: Kernel, sampling: Sampling, *, method: str | None = None, **parameters: Any
) -> Estimate:
    """`estimate` under given settings.

    Args:
        kernel: the kernel.
        sampling: the settings.
        method: "stratified" or "plain" for scalar draws; None is "stratified".
        **parameters: as in `estimate`.

    Raises:
        InputError: a value outside its domain, or options that do not go together.
    """
    bound, extra = kernel.bind_row(parameters)
    if method not in (None, *METHODS):
        raise InputError("method", method, f"choose one of {', '.join(METHODS)}")
    if method is not None and (extra or kernel.law is Law.FEATURES):
        raise InputError("method", method, "applies to scalar draws only")

    if kernel.law is Law.FEATURES:
        ratio = float(bound["ratio"])  # σ̃/μ̃ = √(e^spread² − 1); of a large one the square overflows
        spread = math.sqrt(math.log1p(ratio**2) if ratio < 1e100 else 2 * math.log(ratio))
        dim = int(bound["dim"])
        if dim > _LARGEST:
            raise InputError("dim", dim, f"must be <= {_LARGEST:.0e} to be sampled whole")
        query = named_query(bound["query"]).vector(dim)
        return estimators.features(kernels.exp, query, 0.0, spread, sampling)
    plain_values = {name: float(value) for name, value in bound.items()}
    if "length" in extra:
        decay, dim = float(extra.get("decay", 1.0)), extra.get("dim")
        return estimators.rows(
            kernel,
            plain_values["beta"],
            plain_values["gamma"],
            int(extra["length"]),
            sampling,
            decay=decay,
            dim=None if dim is None else int(dim),
        ).S_n
    if "dim" in extra:
        beta, gamma = plain_values["beta"], plain_values["gamma"]
        dim = int(extra["dim"])
        query, mean = estimators.keys_at(beta, gamma, dim, sampling.seed, min(64, dim))
        return estimators.full_keys(kernel, query, mean, sampling)
    scalar = estimators.plain if method == "plain" else estimators.stratified
    return scalar(kernel, plain_values, sampling)
