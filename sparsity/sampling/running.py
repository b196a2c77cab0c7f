"""One estimation from its settings to its `Estimate`: when to stop drawing, and what came of it.

Sampling (budget, target) ─> run: BatchLog.draw ⇄ _StoppingRule ─> Run ─> conclude ─> Estimate
"""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import numpy as np

from sparsity.checks import check_budget, check_progress, check_seed
from sparsity.results import ESTIMATED, STANDARD_ERROR, Estimate
from sparsity.sampling.batches import BatchLog, Pilot, Sampler, full_calls
from sparsity.sampling.combining import LEAST_ESS, Combined, anytime_factor, combine, student
from sparsity.sampling.devices import CHUNK, resolve_dtype

# Targets below it begin with 63 degrees of freedom rather than 31: the draws planned from the pilot
# go as the square of its error bar, which is then known to 9 % rather than 13 %. The second chunk
# is a waste where the first one would have met the target.
_TWO_CHUNK_PILOT = 5e-4
# −log 0.05: N draws may all miss a feature of probability 3/N once in 20 times.
_MISSED_WEIGHT = 3.0
# Chunks that a run may plan, whatever its budget: 2³¹ batches, as 32-bit words number their keys.
_MAX_CHUNKS = 2**26
_CHUNKS_FOR_A_FINITE_BAR = 64  # after which an error bar that is not finite will not become so
_SECONDS_BETWEEN_LOOKS = 2.0  # at the clock and at Ctrl-C, about
# Rows of 100,000 tokens are so alike that 32 of them meet a target of 2 %, and so few that their
# scatter cannot be believed: they are drawn on up to this number, until it can. More draws whose
# bar is still in doubt are uneven, and are left at that.
_FEW_DRAWS = 2 * LEAST_ESS
_NO_DIGITS = "rounding leaves the estimate no digit"
# The scatter over the rest of the error, from which it is the error bar: the rest, added in
# quadrature, then widens the bar by no more than √(1 + 1/25) − 1 = 2 %.
_SCATTER_DOMINATES = 5.0


@dataclass(frozen=True)
class Sampling:
    """How an estimate is to be sampled.

    Args:
        rel_error: the relative standard error to reach, in (0, 1).
        max_samples: the most draws (keys, or rows) to spend; the pilot is always run.
        seed: 0 … 2³²−1; with it a machine and its devices draw the same bits again.
        dtype: float32 or float64; None takes float64 where JAX has it enabled.
        progress: called with (chunks done, chunks in all).
        partial: whether Ctrl-C returns the estimate so far instead of raising.

    Raises:
        InputError: a value outside its domain.
    """

    rel_error: float = 1e-3
    max_samples: float = 1e9
    seed: int = 0
    dtype: Any = None
    progress: Callable[[int, int], None] | None = None
    partial: bool = False

    def __post_init__(self) -> None:
        """Check the settings."""
        check_progress(self.progress)
        for name, value in {
            **check_budget(self.rel_error, self.max_samples),
            "seed": check_seed(self.seed),
        }.items():
            object.__setattr__(self, name, value)
        resolve_dtype(self.dtype)

    @property
    def real(self) -> np.dtype:
        """The dtype in force."""
        return resolve_dtype(self.dtype)

    @property
    def pilot(self) -> int:
        """Chunks to begin with."""
        return 1 if self.rel_error >= _TWO_CHUNK_PILOT else 2

    def aim(self, dof: int) -> float:
        """Return the relative standard error to reach, given how well it is known.

        Args:
            dof: its degrees of freedom; the more, the larger it may be, up to `rel_error`.
        """
        return self.rel_error

    def note(self, error: float) -> None:
        """Tell a `progress` that takes notes, as that of the prompt, how exact the draws are."""
        if hasattr(self.progress, "note"):
            self.progress.note(f"± {error:.1e}, wanted {self.rel_error:.1e}")  # type: ignore[union-attr]

    def foresee(self, share: float) -> None:
        """Be told how many times the budget the target takes: here the run ends at its budget."""


class Run(NamedTuple):
    """What was sampled.

    Args:
        batches: [batches, 3, moments].
        draws: draws of a batch.
        planned: batches that the anytime interval is tightest at.
        stopped: why it stopped.
        seconds: wall time.
        floor: relative error that the scatter between batches cannot show.
        powers: exponent per moment of the goal that is known least well.
        combined: the product of these powers.
    """

    batches: np.ndarray
    draws: int
    planned: int
    stopped: str
    seconds: float
    floor: float
    powers: tuple[float, ...]
    combined: Combined


class _StoppingRule:
    """The rule decides how many chunks to draw, from the size of the error bar alone.

    It never sees the estimate: a rule that did would stop at values that look good, and bias them.

    Rounding adds r to the error bar in quadrature, and no number of draws helps that, so that the
    target for the rest is √(target² − r²). With k times the draws the square of the rest will be
    e²/k + u²/k²: the scatter e falls like the root of the draws, and the weight u that all of them
    may have missed like their number.
    """

    def __init__(self, sampling: Sampling, size: int, resolution: float, missed: float) -> None:
        self.pilot = sampling.pilot
        budget = min(sampling.max_samples / (CHUNK * size), _MAX_CHUNKS)
        self.most = max(self.pilot, math.ceil(budget))
        self.wanted = self.planned = self.pilot
        self.missed, self.resolution, self.sampling = missed, resolution, sampling
        self.chunk = CHUNK * size  # draws of one
        # Where rounding is above the target, draws go on until the scatter is as small as it.
        self.limited = resolution >= sampling.aim(self.pilot * CHUNK - 1)

    @property
    def goal(self) -> int:
        """Chunks until the next look at the error bar."""
        return min(self.wanted, self.most)

    def judge(self, have: int, known: Combined) -> str | None:
        """Return why the draws are enough, or None after raising what is wanted.

        Args:
            have: chunks drawn.
            known: what they say of the goal that is known least well.
        """
        error, unseen = known.rel_stderr, self.missed / have
        # What the draws are planned for is the first of two targets that is not met. The second is
        # the stricter one while degrees of freedom are few, and eases as draws are added; to plan
        # for it at once, as it is now, would draw too much.
        for target in (self.sampling.rel_error, self.sampling.aim(known.dof)):
            square = self.resolution**2
            if not self.limited:
                square = target**2 - square
            if not error**2 + unseen**2 <= square:  # true of an error that is NaN
                break
        else:
            drawn = have * self.chunk
            if known.warning is not None and drawn < _FEW_DRAWS and have < self.most:
                more = 1.1 * LEAST_ESS / max(known.ess, 1.0)
                self.wanted = max(have + 1, math.ceil(have * min(more, 2 * _FEW_DRAWS / drawn)))
                self.planned = max(self.planned, self.goal)
                return None
            limit = f"limit of {self.sampling.real.type.__name__}"
            return limit if self.limited else "target reached"
        if math.isfinite(error):  # error²/k + unseen²/k² = square, solved for k
            root = math.sqrt(error**4 + 4 * unseen**2 * square)
            growth = (error**2 + root) / (2 * square) if square else math.inf
            # A little more than that, so that a second look is seldom followed by a third.
            self.wanted = math.ceil(have * min(1.03 * growth + 0.02, 1e9))
            self.planned = max(self.planned, self.goal)
            self.sampling.foresee(self.wanted / self.most)
        elif have >= _CHUNKS_FOR_A_FINITE_BAR:
            return "no finite estimate"
        else:  # there is no scatter to extrapolate from, so that the next look comes soon
            self.wanted = 4 * have
        return None


@contextmanager
def _deferred_interrupt(wanted: bool) -> Iterator[Callable[[], bool]]:
    """Note the first Ctrl-C rather than raise it; a second one is raised at once.

    Args:
        wanted: False leaves Ctrl-C as it is. So does any thread but the main one, which alone may
            handle signals.

    Yields:
        A function that says whether Ctrl-C was pressed.
    """
    if not wanted or threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    pressed: list[int] = []

    def note(number: int, frame: Any) -> None:
        if pressed:
            raise KeyboardInterrupt
        pressed.append(number)

    previous = signal.signal(signal.SIGINT, note)
    try:
        yield lambda: bool(pressed)
    finally:
        signal.signal(signal.SIGINT, previous)


def run(
    sampler: Sampler,
    arguments: Any,
    goals: Sequence[tuple[float, ...]],
    sampling: Sampling,
    *,
    resolution: float = 0.0,
    resolved: bool = True,
    pilot: Pilot | None = None,
) -> Run:
    """Run a pilot, then as many batches as the target on every Π mean_i^power_i needs.

    With `sampling.partial`, Ctrl-C ends the run with the batches it has.

    Args:
        sampler: the sampler.
        arguments: its arguments, traced.
        goals: exponents per moment, of each product that is wanted.
        sampling: the settings.
        resolution: relative rounding error of the draws' arithmetic; no number of draws helps.
        resolved: False adds 3/draws to the error bar, for features that no draw has met.
        pilot: what was drawn with the pilots of others.
    """
    started = time.perf_counter() - (pilot.seconds if pilot else 0.0)
    drawn = BatchLog(sampler, arguments, sampling.seed, pilot)
    missed = 0.0 if resolved else _MISSED_WEIGHT / (CHUNK * sampler.size)
    rule = _StoppingRule(sampling, sampler.size, resolution, missed)
    # Chunks are drawn in steps, between which Ctrl-C is looked at; the error bar is
    # looked at only when the goal is reached, as each look is a chance to stop too early.
    step, stopped, least_known, until = rule.wanted, "sample budget", None, 0
    with _deferred_interrupt(sampling.partial) as interrupted:
        while (have := drawn.chunks) < rule.most:
            if have >= until:
                # A goal is rounded up to full calls once: the clock, which cuts the way there into
                # steps, has no say in how much is drawn.
                until = have + full_calls(sampler, max(rule.goal - have, 1))
                until = min(until, rule.most)
            before, asked = time.perf_counter(), min(until, have + step) - have
            have = drawn.draw(asked, until - have)
            quick = time.perf_counter() - before < _SECONDS_BETWEEN_LOOKS / 2
            step = 2 * step if quick else max(1, step // 2)
            ended = interrupted()
            if sampling.progress is not None:
                sampling.progress(have, max(rule.goal, have))
            enough = least_known = None
            if have >= until:
                least_known = drawn.least_known(goals)
                sampling.note(least_known[1].rel_stderr)
                enough = rule.judge(have, least_known[1])
            if enough or ended:  # the pilot is always there: it is drawn before
                stopped = enough or "interrupted"
                break
    powers, combined = least_known or drawn.least_known(goals)
    return Run(
        batches=drawn.batches(),
        draws=sampler.size * drawn.batches_in_one,
        planned=rule.planned * CHUNK // drawn.batches_in_one,
        stopped=stopped,
        seconds=time.perf_counter() - started,
        floor=math.hypot(resolution, missed / drawn.chunks),
        powers=powers,
        combined=combined,
    )


def conclude(
    done: Run,
    powers: tuple[float, ...],
    *,
    method: str,
    sampling: Sampling,
    log_shift: float = 0.0,
    samples_per_draw: int = 1,
) -> Estimate:
    """Return the estimate of e^log_shift · Π mean_i^power_i.

    Args:
        done: the run.
        powers: exponent per moment: (1, −½) for S = m₁/√m₂, (1, −1) for a conditional mean.
        method: the name to report.
        sampling: the settings it ran under.
        log_shift: undoes the scales that kept the moments near one.
        samples_per_draw: scores that one draw of the sampler yields.
    """
    drawn = done.draws * samples_per_draw
    combined = done.combined  # of the goal that was known least well: mostly the one asked for
    if samples_per_draw > 1 or powers != done.powers:
        combined = combine(done.batches, powers, drawn)
    rel = math.hypot(combined.rel_stderr, done.floor)
    log_value = combined.log_value + log_shift
    count = len(done.batches)
    half, wide = student(0.975, combined.dof) * rel, anytime_factor(count, done.planned) * rel
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        # Intervals are symmetric in the logarithm, where the delta method was applied: none of
        # them reaches below 0, as value ± t·stderr would where few digits are known.
        ends = np.exp(log_value + np.array([0.0, -half, half, -wide, wide]))
        stderr = float(ends[0] * rel)
    value, low, high, wide_low, wide_high = ends.tolist()
    scatter = combined.rel_stderr >= _SCATTER_DOMINATES * done.floor
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
        error_kind=STANDARD_ERROR if scatter else ESTIMATED,
    )
