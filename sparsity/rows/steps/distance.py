"""What the distance of a token does to it: decay, ALiBi's bias, windows and chunks."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from sparsity.checks import check_number, check_whole, keep_checked
from sparsity.errors import InputError
from sparsity.rows.tokens import MOST, Tokens, every

_SMALLEST = 745.0  # e^−745 is the smallest number there is: weights below are 0


@dataclass(frozen=True)
class Decay:
    """Retention: weights fall by a factor λ for each token of distance.

    Each w_j is multiplied by λ^(n−j); weights below 1e−323 are 0.

    Args:
        decay: λ in (0, 1].
    """

    name: ClassVar[str] = "decay"
    example: ClassVar[tuple[Any, ...]] = (0.9,)

    decay: float

    def __post_init__(self) -> None:
        keep_checked(self, "decay", check_number, "give one number in (0, 1]", lambda x: 0 < x <= 1)

    def breaks(self, length: int) -> np.ndarray:
        """Return every distance up to where the weight underflows."""
        if self.decay == 1:
            return np.empty(0)
        # Far tokens, of weight 0, are one group: a row of 10¹² tokens has thousands of groups only.
        seen = math.ceil(min(length, 1 + _SMALLEST / -math.log(self.decay)))
        if seen > MOST:
            fix = f"{seen:.3g} tokens of this row differ, at most {MOST} may; shorten the row"
            raise InputError("decay", self.decay, fix)
        return np.arange(seen + 1, dtype=np.float64)

    def __call__(self, tokens: Tokens, length: int) -> Tokens:
        w = np.exp(tokens.distance * math.log(self.decay))
        return replace(tokens, w=tokens.w * w)


@dataclass(frozen=True)
class Alibi:
    """ALiBi: scores fall by slope·(n − j), n − j the distance.

    Args:
        slope: ≥ 0, per token.

    Source: Press et al., "Train Short, Test Long" (2022), arXiv:2108.12409.
    """

    name: ClassVar[str] = "alibi"
    example: ClassVar[tuple[Any, ...]] = (0.1,)

    slope: float

    def __post_init__(self) -> None:
        keep_checked(self, "slope", check_number, "give one number >= 0", lambda x: x >= 0)

    def breaks(self, length: int) -> np.ndarray:
        """Return every distance."""
        # A slope of 0 keeps tokens equal, so that rows of any length are within reach.
        return every(length) if self.slope else np.empty(0)

    def __call__(self, tokens: Tokens, length: int) -> Tokens:
        return replace(tokens, beta=tokens.beta - self.slope * tokens.distance)


@dataclass(frozen=True)
class Window:
    """Sliding window: only the last tokens, and the first ones kept, are in sight.

    The others have weight 0. A kept token is no sink by that alone: add a `Sink` for its score.

    Args:
        size: tokens in sight at the end of the row, ≥ 1.
        keep: tokens in sight at its beginning, ≥ 0: 4 in StreamingLLM.

    Source: of `keep`, Xiao et al., "Efficient Streaming Language Models with Attention Sinks"
    (2023), arXiv:2309.17453.
    """

    name: ClassVar[str] = "window"
    example: ClassVar[tuple[Any, ...]] = (8,)

    size: int
    keep: int = 0

    def __post_init__(self) -> None:
        keep_checked(self, "size", check_whole, 1)
        keep_checked(self, "keep", check_whole, 0)

    @classmethod
    def symmetric(cls, reach: int) -> Window:
        """Return an encoder's window, with `reach` tokens on either side: 2·reach + 1 in sight.

        The row is that of the tokens about the query, whose distances have no meaning then.
        """
        return cls(2 * check_whole("reach", reach, 0) + 1)

    def breaks(self, length: int) -> np.ndarray:
        """Return the edges of what is in sight."""
        return np.array([float(self.size), float(length - self.keep)])

    def __call__(self, tokens: Tokens, length: int) -> Tokens:
        seen = (tokens.distance < self.size) | (tokens.distance >= length - self.keep)
        return replace(tokens, w=np.where(seen, tokens.w, 0.0))


@dataclass(frozen=True)
class Chunk:
    """Chunked attention: only the tokens of the query's own chunk are in sight.

    A row of n tokens sees its last (n − 1) mod size + 1, so that each chunk begins anew.

    Args:
        size: tokens of a chunk, ≥ 1: 8192 in Llama 4.

    Source: Meta, Llama 4 (2025), `attention_chunk_size` of its configuration.
    """

    name: ClassVar[str] = "chunk"
    example: ClassVar[tuple[Any, ...]] = (9,)

    size: int

    def __post_init__(self) -> None:
        keep_checked(self, "size", check_whole, 1)

    def _seen(self, length: int) -> int:
        return (length - 1) % self.size + 1

    def breaks(self, length: int) -> np.ndarray:
        """Return the beginning of the chunk."""
        return np.array([float(self._seen(length))])

    def __call__(self, tokens: Tokens, length: int) -> Tokens:
        return replace(tokens, w=np.where(tokens.distance < self._seen(length), tokens.w, 0.0))
