"""What an estimation comes to: the `Estimate` of its batches."""

from __future__ import annotations

import math

import jax
import numpy as np

from sparsity.results import Estimate
from sparsity.sampling.combining import anytime_factor, combine, student
from sparsity.sampling.running import Run, Sampling

_NO_DIGITS = "rounding leaves the estimate no digit"
_PLAIN = 5.0  # times what scatter cannot show, below which the scatter is the error bar


def conclude(
    done: Run,
    powers: tuple[float, ...],
    *,
    method: str,
    sampling: Sampling,
    log_shift: float = 0.0,
    samples_per_draw: int = 1,
) -> Estimate:
    """The estimate of e^log_shift · Π mean_i^power_i.

    Args:
        done: the run.
        powers: exponent per moment: (1, −½) for S = m₁/√m₂, (1, −1) for a conditional mean.
        method: the name to report.
        sampling: the settings it ran under.
        log_shift: undoes the scales that kept the moments near one.
        samples_per_draw: scores that one draw of the sampler yields.
    """
    drawn = done.draws * samples_per_draw
    combined = done.combined
    if samples_per_draw > 1 or powers != done.powers:
        combined = combine(done.batches, powers, drawn)
    rel = math.hypot(combined.rel_stderr, done.floor)
    log_value = combined.log_value + log_shift
    count = len(done.batches)
    half, wide = student(0.975, combined.dof) * rel, anytime_factor(count, done.planned) * rel
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        ends = np.exp(log_value + np.array([0.0, -half, half, -wide, wide]))
        stderr = float(ends[0] * rel)
    value, low, high, wide_low, wide_high = ends.tolist()
    return Estimate(
        value=value,
        log_value=log_value,
        rel_stderr=rel,
        stderr=stderr,
        ci95=(low, high),
        anytime95=(wide_low, wide_high),
        samples=count * drawn,
        ess=combined.ess,
        dof=combined.dof,
        tail_index=combined.tail_index,
        method=method,
        dtype=sampling.real.type.__name__,
        device=jax.devices()[0].device_kind,
        stopped=done.stopped,
        seconds=done.seconds,
        seed=int(sampling.seed),
        warning=combined.warning or (_NO_DIGITS if not rel < 0.5 else None),
        error_kind="standard error" if _PLAIN * done.floor <= combined.rel_stderr else "bound",
    )
