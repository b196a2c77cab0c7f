"""The batches of one estimation as they are drawn, in bounded memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from sparsity.sampling.batches import (
    CHUNK,
    TOGETHER,
    Sampler,
    collect,
    dispatch_each,
    folded,
)
from sparsity.sampling.combining import Combined, combine

FOLD = 2**17  # batches beyond which a chunk of them is kept as one

LeastKnown = tuple[tuple[float, ...], Combined]


class Prefetched(NamedTuple):
    """The first chunks of an estimation, drawn with those of others.

    Args:
        batches: [batches, 3, moments].
        worst: what `Drawn.worst` says of them.
        seconds: its share of what drawing them took.
    """

    batches: np.ndarray
    worst: LeastKnown
    seconds: float


class BatchLog:
    """The batches so far; of a long run each chunk is kept as one batch.

    Args:
        sampler: the sampler.
        arguments: its arguments, traced.
        seed: of the estimation.
        begun: the first chunks, where they have been drawn.
    """

    def __init__(
        self, sampler: Sampler, arguments: Any, seed: int, begun: Prefetched | None = None
    ) -> None:
        """Nothing is drawn, but for what has begun."""
        self.sampler, self.arguments, self.seed = sampler, arguments, seed
        self.chunks, self.kept = 0, 1  # batches of the sampler in one that is kept
        self.parts: list[np.ndarray] = []
        self.begun = begun

    def _new(self, chunks: int) -> np.ndarray:
        first, given, fold = self.chunks * CHUNK, [], self.kept == CHUNK
        if self.begun is not None and not first:
            there = self.begun.batches
            given, first = [folded(there) if fold else there], len(there)
            chunks -= first // CHUNK
        if self.begun is not None and not fold and 0 < chunks <= TOGETHER:
            given += self._each(first, chunks)  # what has begun them is compiled
        elif chunks:
            asked = {"seed": self.seed, "first": first, "chunks": chunks, "fold": fold}
            given.append(collect(self.sampler, self.arguments, **asked))
        return np.concatenate(given) if len(given) > 1 else given[0]

    def _each(self, first: int, chunks: int) -> list[np.ndarray]:
        numbers = range(first, first + chunks * CHUNK, CHUNK)
        given, seeds = [self.arguments] * chunks, [self.seed] * chunks
        return dispatch_each(self.sampler, given, seeds, numbers)()

    def draw(self, chunks: int) -> int:
        """Draw that many chunks more; returns how many there are."""
        if self.kept == 1 and (self.chunks + chunks) * CHUNK > FOLD:
            self.kept = CHUNK
            self.parts = [folded(np.concatenate(self.parts))] if self.parts else []
        self.parts.append(self._new(chunks))
        self.chunks += chunks
        return self.chunks

    def batches(self) -> np.ndarray:
        """All of them, [batches, 3, moments]."""
        return np.concatenate(self.parts)

    def _known(self) -> LeastKnown | None:
        """What was computed of the first chunks, where nothing has been drawn since."""
        if self.begun is None or self.kept != 1:
            return None
        return self.begun.worst if len(self.begun.batches) == self.chunks * CHUNK else None

    def worst(self, goals: Sequence[tuple[float, ...]]) -> LeastKnown:
        """The product of powers of their means that is known least well, and its exponents."""
        if (known := self._known()) is not None and tuple(goals) == (known[0],):
            return known
        batches, size = self.batches(), self.sampler.size * self.kept
        every = [(powers, combine(batches, powers, size)) for powers in goals]
        return max(every, key=lambda each: each[1].rel_stderr)
