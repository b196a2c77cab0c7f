"""Routed softmax: of all keys only some are read, chosen key by key or in blocks.

`router:k` reads the k keys of the largest proxies, as sparse indexers do. `block-router:k,B` cuts
the row into blocks of B keys and reads the k blocks of the largest mean score, which is the score
of their mean key, as MoBA does.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

from sparsity import parsing
from sparsity.checks import check_number, check_whole
from sparsity.errors import InputError
from sparsity.kernels.parameters import GAMMA, RHO, WITHIN
from sparsity.kernels.row_map import Drawn, RowMap
from sparsity.kernels.threshold_maps import TopK
from sparsity.metric import ascending

# From one value down to the next takes k passes; from here on sorting is quicker. Measured on rows
# of 65,536.
_SEARCHED = 200


class Routed(NamedTuple):
    """The score and the proxy of every token, rows along the last axis."""

    scores: Any
    proxies: Any


def largest(values: Any, k: int) -> Any:
    """Which k values of each row are the largest; all of a shorter row, and all equal k-th ones."""
    if k <= _SEARCHED or k >= values.shape[-1]:
        return TopK(k)(values) > 0
    below = values.max(-1, keepdims=True) - values
    return below <= ascending(below)[..., k - 1, None]


def _shares(scores: Any, kept: Any) -> Any:
    """Shares of the softmax over all keys, for the keys kept."""
    a = scores.__array_namespace__().exp(scores - scores.max(-1, keepdims=True))
    return a * kept / a.sum(-1, keepdims=True)


@dataclass(frozen=True)
class Weights:
    """Shares of the softmax over all keys, for the k keys of the largest proxies; 0 for the rest.

    They add up to the captured mass, so that `abs_sum` is that; n_eff, S and the participation
    ratio are of the keys that are read.

    Args:
        k: how many keys are read, ≥ 1.
    """

    k: int

    def __call__(self, of: Routed) -> Any:
        """The weights of rows of scores and proxies."""
        return _shares(of.scores, self.kept(of))

    def kept(self, of: Routed) -> Any:
        """Which keys are read."""
        return largest(of.proxies, self.k)

    def reads_top(self, of: Routed) -> Any:
        """Whether the key of the largest score is read."""
        return (self.kept(of) & (of.scores == of.scores.max(-1, keepdims=True))).any(-1)


def read(normals: Any, shared: Any, *, gamma: Any, rho: Any) -> Routed:
    """Scores N(0, γ²) and proxies N(0, 1) with correlation ρ, from two normals each."""
    z, other = normals[..., 0], normals[..., 1]
    return Routed(gamma * (rho * z + ((1 - rho) * (1 + rho)) ** 0.5 * other), z)


def router(k: int) -> RowMap:
    """Softmax of the k keys that a proxy of correlation ρ with the score chooses.

    Args:
        k: how many, a whole number ≥ 1: 2048 for DeepSeek's indexer.

    Raises:
        InputError: another number.
    """
    k = check_whole("router", k, 1)
    weights = Weights(k)
    return RowMap(
        name=f"router:{k}",
        title=f"softmax of {k} routed keys",
        weights=weights,
        formula=f"e^s_j/Σ over all, of the {k} largest proxies",
        source="DeepSeek-AI (2025), DeepSeek-V3.2, sparse attention by an indexer",
        parameters=(GAMMA, RHO),
        drawn=Drawn("rows of scores N(0, γ²) and proxies of correlation ρ", lambda own: 2, read),
        with_number=router,
        reads_top=weights.reads_top,
    )


@dataclass(frozen=True)
class BlockWeights:
    """As `Weights`, of the keys of the blocks with the largest mean score.

    Args:
        blocks: how many blocks are read, ≥ 1.
        size: keys of a block, ≥ 1; the last block of a row has those that are left.
    """

    blocks: int
    size: int

    def __call__(self, scores: Any) -> Any:
        """The weights of rows of scores."""
        return _shares(scores, self.kept(scores))

    def kept(self, scores: Any) -> Any:
        """Which keys are read."""
        xp, n = scores.__array_namespace__(), scores.shape[-1]
        count = -(-n // self.size)
        left_over = xp.zeros((*scores.shape[:-1], count * self.size - n), dtype=scores.dtype)
        padded = xp.concatenate([scores, left_over], axis=-1)
        sums = padded.reshape(*scores.shape[:-1], count, self.size).sum(-1)
        keys = xp.minimum(n - self.size * xp.arange(count), self.size).astype(scores.dtype)
        chosen = largest(sums / keys, self.blocks)
        return xp.repeat(chosen, self.size, axis=-1)[..., :n]

    def reads_top(self, scores: Any) -> Any:
        """Whether the key of the largest score is read."""
        return (self.kept(scores) & (scores == scores.max(-1, keepdims=True))).any(-1)


@dataclass(frozen=True)
class ReadBlocks:
    """Scores N(0, γ²) of which those of one block have the correlation c.

    Args:
        size: keys of a block.
    """

    size: int

    def __call__(self, normals: Any, shared: Any, *, gamma: Any, within: Any) -> Any:
        """Scores from two normals a token; of the second that of a block's first token counts."""
        xp = normals.__array_namespace__()
        of_token, of_first = normals[..., 0], normals[..., :: self.size, 1]
        of_block = xp.repeat(of_first, self.size, axis=-1)[..., : of_token.shape[-1]]
        return gamma * (within**0.5 * of_block + (1 - within) ** 0.5 * of_token)


def parse_blocks(text: str, argument: str) -> tuple[int, int]:
    """Return the two whole numbers that "8,64" writes.

    Raises:
        InputError: it writes others.
    """
    parts = text.split(",")
    if len(parts) != 2:
        fix = "give blocks read and keys of a block, such as block-router:8,64"
        raise InputError(argument, text, fix)
    blocks, size = (parsing.parse_whole(part, argument) for part in parts)
    return blocks, size


def block_router(numbers: tuple[int, int]) -> RowMap:
    """Softmax of the keys of some blocks, those of the largest mean score.

    Args:
        numbers: how many blocks are read, and the keys of a block, whole numbers ≥ 1.

    Raises:
        InputError: other numbers.
    """
    if not (isinstance(numbers, (tuple, list)) and len(numbers) == 2):
        raise InputError("block-router", numbers, "give (blocks read, keys of a block)")
    blocks, size = (check_whole("block-router", number, 1) for number in numbers)
    weights = BlockWeights(blocks, size)
    return RowMap(
        name=f"block-router:{blocks},{size}",
        title=f"softmax of {blocks} routed blocks of {size}",
        weights=weights,
        formula=f"e^s_j/Σ over all, of the {blocks} blocks of {size} with the largest mean score",
        source="Lu et al. (2025), MoBA, arXiv 2502.13189",
        parameters=(GAMMA, WITHIN),
        drawn=Drawn(
            "rows of scores N(0, γ²) of correlation c in a block", lambda own: 2, ReadBlocks(size)
        ),
        with_number=block_router,
        parse_number=parse_blocks,
        reads_top=weights.reads_top,
    )


def correlation_of_blocks(within: float, size: int) -> float:
    """The correlation ρ = √(c + (1 − c)/B) of a score with the mean score of its block.

    Args:
        within: correlation c of two scores of a block, in [0, 1].
        size: keys B of a block, ≥ 1.

    Raises:
        InputError: a number outside.
    """
    within = check_number("within", within, "must be in [0, 1]", lambda c: 0 <= c <= 1)
    return math.sqrt(within + (1 - within) / check_whole("size", size, 1))
