"""Routed softmax: of all keys only some are read, chosen key by key or in blocks.

`tile-softmax:B` reads all of them: the row whose tiles of alike keys a threshold may drop.

`router:k` reads the k keys of the largest proxies, as sparse indexers do. `block-router:k,B` cuts
the row into blocks of B keys and reads the k blocks of the largest mean score, which is the score
of their mean key, as MoBA does. One number more is of what is read whatever its proxy, and is not
chosen: `router:k,w` reads the last w keys besides, as a window, and `block-router:k,B,b` the last b
blocks, as MoBA and NSA do with the query's own. A last number more is a learned sink: a logit in
the softmax of which no key is read, `router:k,w,4`.
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


def _largest_before(values: Any, k: int, last: int) -> Any:
    """Which values of each row are among the k largest of all but the last ones, or those."""
    if not last:
        return largest(values, k)
    xp, chosen = values.__array_namespace__(), values[..., -last:] == values[..., -last:]
    if last >= values.shape[-1]:
        return chosen
    return xp.concatenate([largest(values[..., :-last], k), chosen], axis=-1)


def _shares(scores: Any, kept: Any, sink: float = -math.inf) -> Any:
    """Shares of the softmax over all keys and the logit of a sink, for the keys kept."""
    xp, top = scores.__array_namespace__(), scores.max(-1, keepdims=True).clip(sink)
    a = xp.exp(scores - top)
    return a * kept / (a.sum(-1, keepdims=True) + xp.exp(sink - top))


@dataclass(frozen=True)
class Weights:
    """Shares of the softmax over all keys, for the k keys of the largest proxies; 0 for the rest.

    They add up to the captured mass, so that `abs_sum` is that; n_eff, S and the participation
    ratio are of the keys that are read.

    Args:
        k: how many keys are read, ≥ 1.
        window: how many at the end of the row are read besides, whatever their proxies.
        sink: a logit in the softmax of which no key is read.
    """

    k: int
    window: int = 0
    sink: float = -math.inf

    def __call__(self, of: Routed) -> Any:
        """The weights of rows of scores and proxies."""
        return _shares(of.scores, self.kept(of), self.sink)

    def kept(self, of: Routed) -> Any:
        """Which keys are read."""
        return _largest_before(of.proxies, self.k, self.window)

    def reads_top(self, of: Routed) -> Any:
        """Whether the key of the largest score is read."""
        return (self.kept(of) & (of.scores == of.scores.max(-1, keepdims=True))).any(-1)


def read(normals: Any, shared: Any, *, gamma: Any, rho: Any) -> Routed:
    """Scores N(0, γ²) and proxies N(0, 1) with correlation ρ, from two normals each."""
    z, other = normals[..., 0], normals[..., 1]
    return Routed(gamma * (rho * z + ((1 - rho) * (1 + rho)) ** 0.5 * other), z)


def router(numbers: int | tuple[float, ...]) -> RowMap:
    """Softmax of the k keys that a proxy of correlation ρ with the score chooses.

    Args:
        numbers: k, a whole number ≥ 1: 2048 for DeepSeek's indexer. Or (k, w): the last w keys are
            read besides. Or (k, w, b): with a sink of logit b besides.

    Raises:
        InputError: another number.
    """
    fix = "give k, keys of the window and a sink's logit, such as router:64, 64,128 or 64,0,4"
    weights = Weights(*_checked("router", numbers, 1, fix))
    beside = _beside(weights.window, "", weights.sink)
    return RowMap(
        name=f"router:{_written(numbers)}",
        title=f"softmax of {weights.k} routed keys{beside}",
        weights=weights,
        formula=f"e^s_j/Σ over all, of the {weights.k} largest proxies{beside}",
        source="DeepSeek-AI (2025), DeepSeek-V3.2, sparse attention by an indexer",
        parameters=(GAMMA, RHO),
        drawn=Drawn("rows of scores N(0, γ²) and proxies of correlation ρ", lambda given: 2, read),
        with_number=router,
        parse_number=_parse_numbers,
        reads_top=weights.reads_top,
    )


@dataclass(frozen=True)
class BlockWeights:
    """As `Weights`, of the keys of the blocks with the largest mean score.

    Args:
        blocks: how many blocks are read, ≥ 1.
        size: keys of a block, ≥ 1; the last block of a row has those that are left.
        last: how many blocks at the end of the row are read besides.
        sink: a logit in the softmax of which no key is read.
    """

    blocks: int
    size: int
    last: int = 0
    sink: float = -math.inf

    def __call__(self, scores: Any) -> Any:
        """The weights of rows of scores."""
        return _shares(scores, self.kept(scores), self.sink)

    def kept(self, scores: Any) -> Any:
        """Which keys are read."""
        xp, n = scores.__array_namespace__(), scores.shape[-1]
        count = -(-n // self.size)
        left_over = xp.zeros((*scores.shape[:-1], count * self.size - n), dtype=scores.dtype)
        padded = xp.concatenate([scores, left_over], axis=-1)
        sums = padded.reshape(*scores.shape[:-1], count, self.size).sum(-1)
        keys = xp.minimum(n - self.size * xp.arange(count), self.size).astype(scores.dtype)
        chosen = _largest_before(sums / keys, self.blocks, self.last)
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


def tile_softmax(size: int) -> RowMap:
    """Softmax of keys of which those of one tile are alike.

    Args:
        size: keys of a tile, a whole number ≥ 1.

    Raises:
        InputError: another number.
    """
    size = check_whole("tile-softmax", size, 1)
    return RowMap(
        name=f"tile-softmax:{size}",
        title=f"softmax of keys alike in tiles of {size}",
        weights=lambda scores: _shares(scores, 1),
        formula="e^s_j/Σ over all",
        source="Yuan et al. (2025), BLASST, arXiv 2512.12087, which tiles it skips",
        parameters=(GAMMA, WITHIN),
        drawn=Drawn(
            "rows of scores N(0, γ²) of correlation c in a tile", lambda given: 2, ReadBlocks(size)
        ),
        with_number=tile_softmax,
    )


def _parse_numbers(text: str, argument: str) -> tuple[float, ...]:
    """Return the numbers that "8,64" writes; what is whole is checked behind.

    Raises:
        InputError: it writes others.
    """
    return tuple(parsing.parse_number(part, argument) for part in text.split(","))


def _checked(name: str, numbers: Any, least: int, fix: str) -> list[Any]:
    """Return a map's numbers: `least` whole ones ≥ 1, then those of what is read besides, a sink.

    Raises:
        InputError: too few, too many, or others.
    """
    given = list(numbers) if isinstance(numbers, (tuple, list)) else [numbers]
    if not least <= len(given) <= least + 2:
        raise InputError(name, numbers, fix)
    whole = [check_whole(name, x, int(i < least)) for i, x in enumerate(given[: least + 1])]
    logit = [check_number(name, b, fix, lambda b: abs(b) <= 1e30) for b in given[least + 1 :]]
    return whole + logit  # of a sink, in float32 too


def _written(numbers: Any) -> str:
    """Return a map's numbers as its name has them."""
    given = numbers if isinstance(numbers, (tuple, list)) else [numbers]
    return ",".join(repr(float(x)).removesuffix(".0") for x in given)


def _beside(last: int, of: str, sink: float) -> str:
    """Return in words what is read, or takes weight, beside the keys that are chosen."""
    words = [f"the last {last}{of}"] if last else []
    words += [f"a sink of logit {sink:g}"] if sink > -math.inf else []
    return " beside " + " and ".join(words) if words else ""


def block_router(numbers: tuple[float, ...]) -> RowMap:
    """Softmax of the keys of some blocks, those of the largest mean score.

    Args:
        numbers: how many blocks are read, the keys of a block and, if there are any, the blocks at
            the end that are read besides, and the logit of a sink.

    Raises:
        InputError: other numbers.
    """
    fix = "give blocks read, keys of a block, blocks besides and a sink's logit; or the first two"
    weights = BlockWeights(*_checked("block-router", numbers, 2, fix))
    blocks, size = weights.blocks, weights.size
    beside = _beside(weights.last, " of them", weights.sink)
    return RowMap(
        name=f"block-router:{_written(numbers)}",
        title=f"softmax of {blocks} routed blocks of {size}{beside}",
        weights=weights,
        formula=f"e^s_j/Σ over all, of the {blocks} blocks of {size} with the largest mean score"
        + beside,
        source="Lu et al. (2025), MoBA, arXiv 2502.13189",
        parameters=(GAMMA, WITHIN),
        drawn=Drawn(
            "rows of scores N(0, γ²) of correlation c in a block", lambda given: 2, ReadBlocks(size)
        ),
        with_number=block_router,
        parse_number=_parse_numbers,
        reads_top=weights.reads_top,
    )
