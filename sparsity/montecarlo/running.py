"""One estimation: the budget it is given, the batches it runs, the `Estimate` it concludes."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import numpy as np
from scipy import stats

from sparsity.errors import InputError
from sparsity.montecarlo.batches import CHUNK, Combined, Sampler, collect, combine, resolve_dtype
from sparsity.results import Estimate

__all__ = ["Run", "Sampling", "conclude", "run"]

_PILOT = 2  # chunks; 64 batches give the error bar 63 degrees of freedom
_LEAST_ESS = 500.0
_LARGEST_SHARE = 0.01


@dataclass(frozen=True)
class Sampling:
    """How an estimate is to be sampled.

    Args:
        rel_error: the relative standard error to reach, in (0, 1).
        max_samples: the most draws (keys, or rows) to spend; the pilot is always run.
        seed: 0 … 2³²−1; the same seed gives the same bits.
        dtype: float32 or float64; None takes float64 where JAX has it enabled.
        progress: called with (chunks done, chunks in all).

    Raises:
        InputError: a value outside its domain.
    """

    rel_error: float = 1e-3
    max_samples: float = 1e9
    seed: int = 0
    dtype: Any = None
    progress: Callable[[int, int], None] | None = None

    def __post_init__(self) -> None:
        """Check the settings."""
        if not 0 < self.rel_error < 1:
            raise InputError("rel_error", self.rel_error, "must be between 0 and 1")
        if not self.max_samples >= 1:
            raise InputError("max_samples", self.max_samples, "must be >= 1")
        if not (isinstance(self.seed, (int, np.integer)) and 0 <= self.seed < 2**32):
            raise InputError("seed", self.seed, "must be a whole number from 0 to 2^32 - 1")
        resolve_dtype(self.dtype)

    @property
    def real(self) -> np.dtype:
        """The dtype in force."""
        return resolve_dtype(self.dtype)


class Run(NamedTuple):
    """What was sampled: [batches, 3, moments], by which sampler, in how many seconds."""

    batches: np.ndarray
    sampler: Sampler
    seconds: float


def run(sampler: Sampler, arguments: Any, powers: tuple[float, ...], sampling: Sampling) -> Run:
    """Run a pilot, then as many batches as the target on Π mean_i^power_i needs.

    Only the size of the error bar is looked at in between, never the estimate; batches already
    drawn count (Stein's rule).
    """
    started = time.perf_counter()
    batches = np.empty((0, 3, len(powers)))
    wanted = _PILOT
    most = max(_PILOT, math.ceil(sampling.max_samples / (CHUNK * sampler.size)))
    while (have := len(batches) // CHUNK) < min(wanted, most):
        more = collect(
            sampler,
            arguments,
            seed=sampling.seed,
            first=have * CHUNK,
            chunks=min(wanted, most) - have,
            progress=sampling.progress,
        )
        batches = np.concatenate([batches, more])
        found = combine(batches, powers, sampler.size)
        excess = (found.rel_stderr / sampling.rel_error) ** 2
        if not 1 < excess < math.inf:
            break
        wanted = math.ceil(len(batches) / CHUNK * (1.03 * excess + 0.02))
    return Run(batches, sampler, time.perf_counter() - started)


def _warning(combined: Combined) -> str | None:
    if not math.isfinite(combined.log_value):
        return "no finite estimate: the draws missed the mass of a moment, or overflowed"
    if combined.largest_share > _LARGEST_SHARE:
        return (
            f"one draw carries {combined.largest_share:.1%} of a moment "
            f"(limit {_LARGEST_SHARE:.0%}): the error bar cannot be trusted"
        )
    if combined.ess < _LEAST_ESS:
        return (
            f"effective sample size {combined.ess:.0f} (least {_LEAST_ESS:.0f}): "
            "the error bar cannot be trusted"
        )
    return None


def conclude(
    done: Run,
    powers: tuple[float, ...],
    *,
    method: str,
    sampling: Sampling,
    log_shift: float = 0.0,
    resolution: float = 0.0,
    samples_per_draw: int = 1,
) -> Estimate:
    """The estimate of e^log_shift · Π mean_i^power_i.

    Args:
        done: the run.
        powers: exponent per moment: (1, −½) for S = m₁/√m₂, (1, −1) for a conditional mean.
        method: the name to report.
        sampling: the settings it ran under.
        log_shift: undoes the scales that kept the moments near one.
        resolution: relative rounding error of the draws' arithmetic; widens the error bar.
        samples_per_draw: scores that one draw of the sampler yields.
    """
    drawn = done.sampler.size * samples_per_draw
    combined = combine(done.batches, powers, drawn)
    rel = math.hypot(combined.rel_stderr, resolution)
    log_value = combined.log_value + log_shift
    half = float(stats.t.ppf(0.975, combined.dof)) * rel
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        value, low, high = np.exp(np.array([log_value, log_value - half, log_value + half]))
        stderr = value * rel
    return Estimate(
        S=float(value),
        log_S=log_value,
        rel_stderr=rel,
        stderr=float(stderr),
        ci95=(float(low), float(high)),
        samples=len(done.batches) * drawn,
        ess=combined.ess,
        dof=combined.dof,
        method=method,
        dtype=sampling.real.name,
        device=jax.devices()[0].device_kind,
        seconds=done.seconds,
        seed=int(sampling.seed),
        warning=_warning(combined),
    )
