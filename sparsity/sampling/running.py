"""One estimation: the budget it is given, and the batches it runs."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from sparsity.arguments import bound, check_budget, check_seed, progress
from sparsity.sampling.batches import CHUNK, Sampler, resolve_dtype
from sparsity.sampling.combining import Combined
from sparsity.sampling.devices import from_first_process
from sparsity.sampling.drawing import BatchLog, Prefetched
from sparsity.sampling.interrupting import deferred_interrupt

_FINE = 5e-4  # targets below it start with two chunks: 63 degrees of freedom rather than 31
_UNSEEN = 3.0  # over the draws: the largest probability that N draws miss 19 times out of 20
_HOPELESS = 64  # chunks after which an error bar that is not finite will not become so
_LOOK = 2.0  # seconds between looks at the clock and at Ctrl-C, about


@dataclass(frozen=True)
class Sampling:
    """How an estimate is to be sampled.

    Args:
        rel_error: the relative standard error to reach, in (0, 1).
        max_samples: the most draws (keys, or rows) to spend; the pilot is always run.
        seed: 0 … 2³²−1; the same seed gives the same bits.
        dtype: float32 or float64; None takes float64 where JAX has it enabled.
        progress: called with (chunks done, chunks in all).
        max_seconds: the most wall time to spend, about; the pilot is always run.
        partial: whether Ctrl-C returns the estimate so far instead of raising.

    Raises:
        InputError: a value outside its domain.
    """

    rel_error: float = 1e-3
    max_samples: float = 1e9
    seed: int = 0
    dtype: Any = None
    progress: Callable[[int, int], None] | None = None
    max_seconds: float = math.inf
    partial: bool = False

    def __post_init__(self) -> None:
        """Check the settings."""
        progress(self.progress)
        for name, value in {
            **check_budget(self.rel_error, self.max_samples),
            "max_seconds": bound("max_seconds", self.max_seconds, "must be > 0", lambda x: x > 0),
            "seed": check_seed(self.seed),
        }.items():
            object.__setattr__(self, name, value)
        resolve_dtype(self.dtype)

    @property
    def real(self) -> np.dtype:
        """The dtype in force."""
        return resolve_dtype(self.dtype)

    def aim(self, dof: int) -> float:
        """The relative standard error to reach where so many degrees of freedom know it.

        Args:
            dof: degrees of freedom; the more, the larger it may be, up to `rel_error`.
        """
        return self.rel_error


class Run(NamedTuple):
    """What was sampled.

    Args:
        batches: [batches, 3, moments].
        draws: of a batch.
        planned: batches that the anytime interval is tightest at.
        stopped: why it stopped.
        seconds: wall time; of draws made with those of others, its share.
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


def run(
    sampler: Sampler,
    arguments: Any,
    goals: Sequence[tuple[float, ...]],
    sampling: Sampling,
    *,
    resolution: float = 0.0,
    resolved: bool = True,
    begun: Prefetched | None = None,
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
        begun: the first chunks, where they have been drawn.
    """
    started = time.perf_counter() - (begun.seconds if begun else 0.0)
    drawn = BatchLog(sampler, arguments, sampling.seed, begun)
    missed = 0.0 if resolved else _UNSEEN / (CHUNK * sampler.size)
    plan = _Plan(sampling, sampler.size, resolution, missed)
    step, stopped, worst = plan.wanted, "sample budget", None
    with deferred_interrupt(sampling.partial) as interrupted:
        while (have := drawn.chunks) < plan.most:
            before, chunks = time.perf_counter(), min(plan.goal, have + step) - have
            have = drawn.draw(chunks)
            now = time.perf_counter()
            left = max(sampling.max_seconds - (now - started), 0.0)
            if have > plan.pilot:  # the pilot's time is mostly compilation
                pace = chunks / max(now - before, 1e-9)
                step = max(1, int(min(pace * min(_LOOK, left), 8 * chunks)))
            step, left, ended = from_first_process(step, left, bool(interrupted()))
            step = int(step)
            if sampling.progress is not None:
                sampling.progress(have, max(plan.goal, have))
            enough = worst = None
            if have >= plan.goal:
                worst = drawn.worst(goals)
                enough = plan.judge(have, worst[1])
            if enough or ended or not left:
                stopped = enough or ("interrupted" if ended else "time budget")
                break
    powers, combined = worst or drawn.worst(goals)
    return Run(
        batches=drawn.batches(),
        draws=sampler.size * drawn.kept,
        planned=plan.planned * CHUNK // drawn.kept,
        stopped=stopped,
        seconds=time.perf_counter() - started,
        floor=math.hypot(resolution, missed / drawn.chunks),
        powers=powers,
        combined=combined,
    )


def pilot(sampling: Sampling) -> int:
    """Chunks to begin with."""
    return 1 if sampling.rel_error >= _FINE else 2


class _Plan:
    """How many chunks to draw; only the size of the error bar is looked at, never the estimate."""

    def __init__(self, sampling: Sampling, size: int, resolution: float, missed: float) -> None:
        self.pilot = pilot(sampling)
        self.most = max(self.pilot, math.ceil(min(sampling.max_samples / (CHUNK * size), 2**26)))
        self.wanted = self.planned = self.pilot
        self.missed = missed  # over the chunks: the error that the scatter does not show
        self.aim, self.resolution = sampling.aim, resolution
        self.limited = resolution >= sampling.aim(self.pilot * CHUNK - 1)
        self.square = self._square(sampling.rel_error)
        limit = f"limit of {sampling.real.type.__name__}"
        self.reached = limit if self.limited else "target reached"

    def _square(self, target: float) -> float:
        """The square of a target without what rounding takes of it."""
        return self.resolution**2 if self.limited else target**2 - self.resolution**2

    @property
    def goal(self) -> int:
        """Chunks until the next look at the error bar."""
        return min(self.wanted, self.most)

    def judge(self, have: int, known: Combined) -> str | None:
        """Why so many are enough, or None: then more are wanted."""
        error, unseen = known.rel_stderr, self.missed / have
        square = self.square
        if error**2 + unseen**2 <= square:
            square = self._square(self.aim(known.dof))
            if error**2 + unseen**2 <= square:
                return self.reached
        if math.isfinite(error):  # error²/k + unseen²/k² = target², k times the draws
            root = math.sqrt(error**4 + 4 * unseen**2 * square)
            excess = (error**2 + root) / (2 * square) if square else math.inf
            self.wanted = math.ceil(have * min(1.03 * excess + 0.02, 1e9))
            self.planned = max(self.planned, self.goal)
        elif have >= _HOPELESS:
            return "no finite estimate"
        else:
            self.wanted = 4 * have
        return None
