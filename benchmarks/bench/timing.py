"""Timing contestants side by side: rounds of A B C, then B C A …, so that drift cancels."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from statistics import mean, median, stdev
from typing import Any, NamedTuple


class Paired(NamedTuple):
    """Seconds and results by contestant, in the order of the rounds."""

    seconds: dict[str, list[float]]
    results: dict[str, list[Any]]


def paired(
    contestants: Mapping[str, Callable[[int], Any]],
    rounds: int,
    clock: Callable[[], float] = time.perf_counter,
) -> Paired:
    """Run every contestant once a round, each round starting with another one.

    Args:
        contestants: name -> work, called with the number of the round (its seed).
        rounds: how often.
        clock: seconds since any moment.
    """
    names = list(contestants)
    done = Paired({name: [] for name in names}, {name: [] for name in names})
    for round_ in range(rounds):
        turn = round_ % max(len(names), 1)
        for name in names[turn:] + names[:turn]:
            started = clock()
            result = contestants[name](round_)
            done.seconds[name].append(clock() - started)
            done.results[name].append(result)
    return done


def against_first(
    contestants: Mapping[str, Callable[[int], Any]], rounds: int, steps: int
) -> dict[str, tuple[float, float, float]]:
    """Return CPU milliseconds a step, times those of the first, and the standard error of that.

    The ratio is of all CPU time, so that work done in some of the steps has its share.

    Args:
        contestants: name -> work of so many steps, called with the number of the round.
        rounds: how often.
        steps: of a work.
    """
    seconds = paired(contestants, rounds, time.process_time).seconds
    first = next(iter(seconds.values()))

    def against(own: list[float]) -> tuple[float, float, float]:
        times = sum(own) / sum(first)
        off = [x - times * y for x, y in zip(own, first, strict=True)]
        return 1e3 * median(own) / steps, times, stdev(off) / mean(first) / math.sqrt(rounds)

    return {name: against(own) for name, own in seconds.items()}


def ratio(slower: list[float], faster: list[float]) -> float:
    """How many times longer the first took: the median over rounds of the rounds' own ratios."""
    return median(a / b for a, b in zip(slower, faster, strict=True))
