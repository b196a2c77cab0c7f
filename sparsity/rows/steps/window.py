"""Windows: the last tokens only, those of the query's chunk, or the last and the first ones."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from sparsity.arguments import keep_checked, whole
from sparsity.rows.tokens import Tokens


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
        keep_checked(self, "size", whole, 1)
        keep_checked(self, "keep", whole, 0)

    @classmethod
    def symmetric(cls, reach: int) -> Window:
        """Return an encoder's window, with `reach` tokens on either side: 2·reach + 1 in sight.

        The row is that of the tokens about the query, whose distances have no meaning then.
        """
        return cls(2 * whole("reach", reach, 0) + 1)

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
        keep_checked(self, "size", whole, 1)

    def _seen(self, length: int) -> int:
        return (length - 1) % self.size + 1

    def breaks(self, length: int) -> np.ndarray:
        """Return the beginning of the chunk."""
        return np.array([float(self._seen(length))])

    def __call__(self, tokens: Tokens, length: int) -> Tokens:
        return replace(tokens, w=np.where(tokens.distance < self._seen(length), tokens.w, 0.0))
