"""S at many parameters of a kernel: one compilation, a few calls, the bits of one by one."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from sparsity.kernels import Kernel
from sparsity.results import Estimate
from sparsity.sampling import proposals
from sparsity.sampling.batches import CHUNK, TOGETHER, dispatch_each, small
from sparsity.sampling.combining import combine_each
from sparsity.sampling.drawing import Prefetched
from sparsity.sampling.estimators import Prepared, finish, prepare
from sparsity.sampling.running import Sampling, pilot
from sparsity.sampling.samplers import Stratified


def _begin(
    sampler: Stratified, every: Sequence[Prepared], samplings: Sequence[Sampling]
) -> Callable[[], list[Prefetched]]:
    """Begin estimations of one sampler and pilot, in as few calls as can be; returns what waits."""
    started, chunks = time.perf_counter(), pilot(samplings[0])
    starts = [k * CHUNK for k in range(chunks)]
    wait = dispatch_each(
        sampler,
        [ready.arguments for ready in every for _ in starts],
        [int(sampling.seed) for sampling in samplings for _ in starts],
        [start for _ in every for start in starts],
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


def _block(
    kernel: Kernel, parameters: Sequence[dict[str, float]], samplings: Sequence[Sampling]
) -> Callable[[], Iterator[Estimate]]:
    """Begin to draw some estimations of `stratified_each`; returns what concludes them."""
    tables = proposals.build_each(kernel, parameters)
    every = [
        prepare(kernel, *each, 1.0) for each in zip(parameters, tables, samplings, strict=True)
    ]
    alike: dict[Any, list[int]] = {}
    for i, ready in enumerate(every):
        alike.setdefault((ready.sampler, pilot(samplings[i])), []).append(i)
    waiting = [
        (who, _begin(sampler, [every[i] for i in who], [samplings[i] for i in who]))
        for (sampler, _), who in alike.items()
        if len(who) > 1 and small(sampler)
    ]

    def concluded() -> Iterator[Estimate]:
        begun: dict[int, Prefetched] = {}
        for who, wait in waiting:
            begun |= dict(zip(who, wait(), strict=True))
        for i, ready in enumerate(every):
            yield finish(ready, samplings[i], begun=begun.get(i))

    return concluded


def stratified_each(
    kernel: Kernel, parameters: Sequence[dict[str, float]], samplings: Sequence[Sampling]
) -> Iterator[Estimate]:
    """`stratified` of several parameters: they compile once, begin together, and share no draws.

    The device draws some of them while the host prepares the next ones.

    Args:
        kernel: as in `stratified`.
        parameters: likewise, of each estimate.
        samplings: likewise.

    Returns:
        The estimates in order, the same bits as one by one.
    """
    begun: list[Callable[[], Iterator[Estimate]]] = []
    for start in range(0, len(parameters), TOGETHER):
        some = slice(start, start + TOGETHER)
        begun.append(_block(kernel, parameters[some], samplings[some]))
        if len(begun) > 1:
            yield from begun.pop(0)()
    for last in begun:
        yield from last()
