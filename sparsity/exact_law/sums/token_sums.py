"""Laplace transforms of all tokens of a row, summed on one grid of u = ln t.

A factor w shifts a token's transforms by c·ln w: with x = t|w f|^c, ln w stands beside ln t. The
tokens of a class are summed all at once (`spread_weights_on_grid`). How a row passes through:

    TokenClasses ── light tokens left out ──> pieces: laws at a few nodes, interpolated between them
      ── tables of each law on the grid (`laplace`) ──> log φ and the summands of each channel
      ── shifted and weighed, token by token ──> SummedTokens
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from sparsity.exact_law.integration import (
    PRODUCT,
    add_convolved,
    log_complement,
    refuse_slow,
    spread_weights_on_grid,
)
from sparsity.exact_law.sums.token_pieces import DEEP, light_groups, relevant_pieces
from sparsity.exact_law.transforms.laplace import Laplace, Orders, order_of
from sparsity.exact_law.transforms.nodes import TAIL
from sparsity.quantities.laws import LogMoment
from sparsity.rows.classes import InterpolatedLaws, TokenClasses

GRID_STEP = 0.08  # of u: finer than the rule needs, for the local polynomials that shift tables
SQRT_REACH = -math.log(TAIL)  # of u: how much further down a summand of order √t matters than of t
# Points of the local polynomial between those of the grid, for moments up to order 2, and above, up
# to 8: e^(ku) is off by (k·GRID_STEP)^taps·(taps/2)!²/taps!, at k = 2 with 16 points by 1e-17. Next
# to a zero of φ it is off by more, so the second version of the sums has polynomials of two points
# less: what that changes is in the bound.
_TAPS, _MANY_TAPS, _FEWER = 16, 28, 2
_CLASSES_AT_ONCE = 128  # whose tables are held together: more would only take more memory
_LEAST = 1e-290  # the least transform that a logarithm is taken of
# Relative error of summands up to which they are interpolated between laws. It goes into the bound
# as it is found, so this only chooses between a fast sum and a better one.
_ALIKE = 1e-11
_TOKEN = 0.001  # seconds of a token with a table of its own; measured
_SHARED = 256  # steps: tables begin at whole multiples, so that the points of a curve share them

# The GNU C library hands memory back to the system when more is free than twice the largest array
# that was ever freed by itself. Without one of 8 MB freed first, each call faults the same 20 MB in
# again: of six pairs of processes a row of 64 tokens with ALiBi takes 6.3 ms of CPU, with it 4.9.
np.empty(2**20)


class SummedTokens(NamedTuple):
    """Σ over tokens on a grid of u, over e^top.

    Where laws were interpolated, or tables shifted by polynomials, there are two versions of
    everything: the second one has the error of either put in on purpose.

    Args:
        log_phi: Σ log φ, [versions, points].
        channels: Σ of each channel, [channels, versions, points].
        p_row: P(the row is not all zero), over e^top, in each version.
        top: log of the common scale of psi, moments and probabilities.
        transform_error: the relative error of the transforms: the worst of the sets of nodes.
    """

    log_phi: np.ndarray
    channels: np.ndarray
    p_row: np.ndarray
    top: float
    transform_error: float


# (moments/φ -> summand, weights of the groups)
Channel = tuple[Callable[..., np.ndarray], np.ndarray]


@functools.lru_cache(maxsize=64)
def _tables(laws: tuple[Laplace, ...], start: int, stop: int) -> np.ndarray:
    """Return ψ, the moments and P(f ≠ 0) of each law over its own e^top, and P(f = 0).

    [laws, ·, points]. Laws that share their nodes are one product of matrices.
    """
    held = len(laws) * (3 + len(laws[0].k)) * (stop - start)
    held = held if max(-start, stop) < 2**53 else math.inf  # float64 has no longer each of them
    refuse_slow("row", "tokens whose scores lie far apart", 0.0, held)
    tables = np.empty((len(laws), 3 + len(laws[0].k), stop - start))
    by_nodes: dict[int, list[int]] = {}
    for i, law in enumerate(laws):
        by_nodes.setdefault(id(law.law_nodes), []).append(i)
    for members in by_nodes.values():
        together = laws[members[0]].joined([laws[i] for i in members])
        psi, moments = together.at(GRID_STEP * np.arange(start, stop))
        tables[members] = np.stack([psi, *moments, 0 * psi, 0 * psi], axis=1)
    tables[:, -2:] = np.array([(law.p_nonzero, law.p_zero) for law in laws])[..., None]
    return tables


class _Part(NamedTuple):
    """Transforms of some classes: those of a piece, interpolated where it says so.

    Args:
        piece: the piece.
        laws: its transforms.
        start: first point of their grid, in steps of u.
        stop: behind the last one.
    """

    piece: InterpolatedLaws
    laws: list[Laplace]
    start: int
    stop: int

    def table(self, top: float) -> np.ndarray:
        """Return ψ, moments, P(f ≠ 0) over e^top, and P(f = 0) of the laws, [laws, ·, points]."""
        table = _tables(tuple(self.laws), self.start, self.stop).copy()
        table[:, :-1] *= np.exp([law.top - top for law in self.laws])[:, None, None]
        return table

    def expand(self, flat: np.ndarray, versions: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield (classes, their tables [·, ·, versions, points]), given those of the laws.

        Logarithms are smooth between laws, and of a moment with ln x the mean of ln x: these are
        interpolated. The second version is the first times the error of that, where there is one.
        """
        # The laws that check the interpolation stand behind those that make it: their worst miss at
        # a point of the grid is the error of all there. It is added to the second version with its
        # sign, so that a common bias moves the integral as it would, and does not cancel.
        piece = self.piece
        if piece.matrix is None or piece.check is None:
            yield piece.members, flat[:, :, None]  # one version, of all
            return
        flat = flat[:, :, None].repeat(versions, axis=2)
        # Rows of a table that are moments with a power of ln x, and the plain one before each.
        plain, logged = 0, {}
        for i, k in enumerate(self.laws[0].k, 1):
            if isinstance(k, LogMoment):
                logged[i] = plain
            else:
                plain = i
        shape, smooth = flat.shape[1:], np.log(np.maximum(flat, _LEAST))
        for i, plain in logged.items():
            smooth[:, i] = flat[:, i] / np.maximum(flat[:, plain], _LEAST)
        smooth, nodes = smooth.reshape(len(flat), -1), piece.matrix.shape[1]
        gaps = smooth[nodes:] - piece.check @ smooth[:nodes]
        off = np.take_along_axis(gaps, np.abs(gaps).argmax(axis=0)[None], axis=0)[0]
        off = off.reshape(shape)[:, :1]
        for first in range(0, len(piece.members), _CLASSES_AT_ONCE):
            part = slice(first, first + _CLASSES_AT_ONCE)
            between = (piece.matrix[part] @ smooth[:nodes]).reshape(-1, *shape)
            between[:, :, 1:] += off
            tables = np.exp(between)
            for i, plain in logged.items():
                tables[:, i] = between[:, i] * tables[:, plain]
            yield piece.members[part], tables


class _Layout(NamedTuple):
    """Where the sums lie on the grid, and what they are made of.

    Args:
        parts: with the ranges of their tables.
        counted: the groups of each class that count.
        first: first point of the grid, in steps of u.
        size: its points.
    """

    parts: list[_Part]
    counted: list[np.ndarray]
    first: int
    size: int


def _grid_layout(
    row: TokenClasses,
    c: int,
    orders: Orders,
    channels: Sequence[Channel],
    longest: float,
    reach: float,
    end: float,
) -> _Layout:
    """Return the layout for a row whose integrand ends at the latest at u = `end`; as `sums`."""
    # Tables are over each law's own u; a token's is shifted by c·ln w to the u of the sums, so that
    # ranges of laws and of the row differ by the shifts of the class.
    # The grid of the sums reaches from where the first piece has mass to where none of the row is
    # left: at the latest `end`, or behind a token that never vanishes, whose φ alone is 0 there.
    shift = c * row.log_w
    order = np.argsort(row.member, kind="stable")
    groups = np.split(order, np.cumsum(np.bincount(row.member))[:-1])  # of each class
    pieces = relevant_pieces(row, c, orders)
    starts, ends, certain, ranges = [], [], [], []
    for piece, laws in pieces:
        low = min(law.range(longest + 1)[0] for law in laws) - reach
        alone = piece.matrix is None
        right = max(law.law_nodes.right if alone else law.law_nodes.smooth for law in laws)
        mine = shift[np.concatenate([groups[i] for i in piece.members])]
        ranges.append((low, math.ceil(right / GRID_STEP) + 1, mine.max()))
        starts.append(low - mine.max())
        ends.append(right - mine.min())
        if not any(law.p_zero for law in laws):
            certain.append(right - mine.max())  # behind a token that never vanishes all is over
    first = math.floor(min(starts) / GRID_STEP)
    size = math.ceil(min(*certain, end, max(ends)) / GRID_STEP) + 1 - first
    # A table reaches down to where its tokens no longer matter: light ones add to a channel like
    # e^(k·shift) beside its own heaviest ones.
    heaviest = min(shift[weight > 0].max() for _, weight in channels if weight.any())
    light = (DEEP + math.log(longest)) / min(1.0, *map(order_of, orders[1:]))
    parts = []
    for (piece, laws), (low, most, top) in zip(pieces, ranges, strict=True):
        begin = (min(low, first * GRID_STEP + heaviest) - light) / GRID_STEP
        start = min(math.floor(begin / _SHARED) * _SHARED, most - 1)
        last = first + size + math.ceil(top / GRID_STEP) + 2 * _MANY_TAPS  # none is asked beyond
        stop = max(min(most, math.ceil(last / _SHARED) * _SHARED), start + 1)
        parts.append(_Part(piece, laws, start, stop))
        for member in piece.members:
            group = groups[member]
            groups[member] = group[shift[group] >= (start - first - size) * GRID_STEP]
    return _Layout(parts, groups, first, size)


class _Summation:
    """The sums over tokens so far, part by part.

    Args:
        row: the tokens.
        c: the power of |a| in x.
        k: the powers of x.
        channels: as in `sums`.
        layout: of the grid.
    """

    def __init__(
        self, row: TokenClasses, c: int, k: Orders, channels: Sequence[Channel], layout: _Layout
    ) -> None:
        self.row, self.channels, self.layout = row, channels, layout
        self.shift, self.times = c * row.log_w, np.bincount(row.member, row.count)
        self.weights = np.stack([row.count, *(weight for _, weight in channels)])  # Σ log φ first
        self.taps = _TAPS if max(map(order_of, k)) <= 2 else _MANY_TAPS
        self.top = max(law.top for part in layout.parts for law in part.laws)
        self.scale = np.exp(self.top)
        exact = all(part.piece.matrix is None for part in layout.parts)
        self.versions = 1 if exact and not self.shift.any() else 2
        self.total = np.zeros((len(self.weights), self.versions, layout.size))
        self.log_miss, self.expected = np.zeros(self.versions), np.zeros(self.versions)
        self.products = 0

    def _versions(self) -> list[tuple[np.ndarray, int]]:
        """Return the totals of each version, and the points of its polynomials."""
        taps = (self.taps, self.taps - _FEWER)
        return [(self.total[:, i : i + 1], taps[i]) for i in range(self.versions)]

    def summands(self, tables: np.ndarray) -> np.ndarray:
        """Return log φ and what the channels sum, [1 + channels, laws, ..., points], of tables."""
        # From here on φ is in its own units: a product over tokens has to be one of probabilities.
        # Moments stay over e^top, as their sums are.
        missing = np.minimum(tables[:, 0] * self.scale, 1.0)  # 1 − φ
        kept = tables[:, 1] * self.scale + _never(tables[:, -1])
        log = log_complement(missing, np.maximum(kept, _LEAST))
        ratios = np.moveaxis(tables[:, 2:-2], 1, 0) * np.exp(-log)
        terms = np.stack([log, *(channel(*ratios) for channel, _ in self.channels)])
        terms[1:, ..., -1] = 0.0  # a table goes on with its last value, but moments are over there
        return terms

    def count(self, times: np.ndarray, chance: np.ndarray, zero: np.ndarray) -> None:
        """Add tokens to what is known of P(the row is not all zero)."""
        self.expected = self.expected + times @ chance
        with np.errstate(divide="ignore"):
            log = log_complement(chance * self.scale, _never(zero))
        # Weights of an interpolation have both signs.
        self.log_miss = self.log_miss + (times @ log if np.isfinite(log).all() else -np.inf)

    def add(self, part: _Part) -> None:
        """Add the tokens of a part: by the summands of its laws, if they are smooth enough."""
        flat, piece = part.table(self.top), part.piece
        if piece.matrix is None or piece.check is None:
            self._add_each(part, flat)
            return
        # Two ways to use laws in between. Adding the summands of the nodes, each with its share of
        # all tokens, takes no transform per token, but needs log φ and ratios of moments to be
        # smooth in the parameter. Else logarithms of the transforms are interpolated, token by
        # token.
        nodes, values = piece.matrix.shape[1], self.summands(flat)
        gap = values[:, nodes:] - np.einsum("kn,cnu->cku", piece.check, values[:, :nodes])
        gap = np.abs(gap).max(axis=1)
        # Where these tokens alone leave no integrand, no more is asked.
        alive = self.times[piece.members].sum() * values[0].max(axis=0) > -DEEP
        if (gap <= _ALIKE * np.abs(values).max(axis=1))[:, alive].all():
            self._add_by_nodes(part, piece.matrix, flat, values, gap)
        else:
            number = sum(len(self.layout.counted[i]) for i in piece.members)
            refuse_slow("length", self.row.n, _TOKEN * number)
            self._add_each(part, flat)

    def _add_by_nodes(
        self, part: _Part, matrix: np.ndarray, flat: np.ndarray, values: np.ndarray, gap: np.ndarray
    ) -> None:
        """Add all tokens of a part node by node: a token's share of each is its weight there.

        Args:
            part: the part.
            matrix: shares of the nodes in each class, [classes, nodes].
            flat: the table of its laws.
            values: the summands of these.
            gap: the error of the summands between nodes, which the second version has on top.
        """
        members, nodes = part.piece.members, matrix.shape[1]
        ends = (flat[:nodes, i, :1].repeat(self.versions, axis=1) for i in (-2, -1))
        self.count(self.times[members] @ matrix, *ends)
        groups = np.concatenate([self.layout.counted[i] for i in members])
        if not len(groups):
            return
        place = np.empty(len(self.row.classes), dtype=int)
        place[members] = np.arange(len(members))
        share = matrix[place[self.row.member[groups]]].T  # [nodes, groups]
        spread = (self.weights[:, None, groups] * share).reshape(-1, len(groups))
        spread = np.concatenate([spread, self.weights[:, groups]])
        rows = len(self.weights)
        for total, taps in self._versions():
            offset, h = spread_weights_on_grid(self.shift[groups], spread, taps, GRID_STEP)
            begin = self.layout.first - part.start + offset
            for node, of_node in enumerate(h[:-rows].reshape(rows, nodes, -1).swapaxes(0, 1)):
                # A table of the sum over nodes would be one convolution, but a node's tokens have
                # their own shifts: each node is convolved with its tokens' weights.
                add_convolved(total, values[:, node, None], begin, of_node)
        add_convolved(self.total[:, 1:], gap[:, None], begin, h[-rows:])

    def _add_each(self, part: _Part, flat: np.ndarray) -> None:
        """Add the tokens of a part class by class, each with a table of its own."""
        begin = self.layout.first - part.start
        for members, tables in part.expand(flat, self.versions):
            self.count(self.times[members], tables[:, -2, :, 0], tables[:, -1, :, 0])
            values = self.summands(tables)
            # Classes of one group each, without shifts, are summed as they stand, in one product.
            groups = np.concatenate([self.layout.counted[i] for i in members])
            if len(groups) == len(members) > 1 and not self.shift[groups].any():
                summed = np.einsum("cb,cbru->cru", self.weights[:, groups], values)
                add_convolved(self.total, summed, begin, np.ones((len(self.weights), 1)))
                continue
            for i, member in enumerate(members):
                if len(mine := self.layout.counted[member]):
                    shift, weights = self.shift[mine], self.weights[:, mine]
                    for version, (total, taps) in enumerate(self._versions()):
                        offset, h = spread_weights_on_grid(shift, weights, taps, GRID_STEP)
                        own_values = values[:, i, version % values.shape[2], None]
                        self.products += np.count_nonzero(h) * self.layout.size
                        refuse_slow("length", self.row.n, PRODUCT * self.products)
                        add_convolved(total, own_values, begin + offset, h)


def _never(zero: np.ndarray) -> np.ndarray:
    """Return P(f = 0), 0 where it is interpolated between laws that never are."""
    return np.where(zero > 2 * _LEAST, zero, 0.0)


def sums(
    row: TokenClasses,
    c: int,
    k: Orders,
    channels: Sequence[Channel],
    longest: float,
    reach: float = 0.0,
) -> SummedTokens:
    """Sum the transforms E[x^k e^(−x)]/φ, x = t|a|^c, of all tokens.

    Args:
        row: the tokens; their largest weight is of order one.
        c: the power of |a| in x.
        k: the powers of x.
        channels: what is to be summed beside log φ, given (m_1/φ, m_2/φ, …), and how often.
        longest: the longest row of a curve, so that all its points share their tables.
        reach: how far below the range of a summand of order t the sums still matter, in u.
    """
    orders = (0.0, *k)  # E e^(−x) is the moment of order 0
    # Light tokens are taken out of the list before any of their transforms is computed.
    light, end = light_groups(row, c, orders)
    if light.any():
        row, channels = row.subset(~light), [(f, weight[~light]) for f, weight in channels]
    layout = _grid_layout(row, c, orders, channels, longest, reach, end)
    every = _Summation(row, c, k, channels, layout)
    for part in layout.parts:
        every.add(part)
    # Where a scale is too small for float64, the union of rare chances is their sum.
    scale, rare = every.scale, every.scale < _LEAST
    p_row = every.expected if rare else -np.expm1(every.log_miss) / scale
    error = max(law.law_nodes.transform_error for part in layout.parts for law in part.laws)
    return SummedTokens(every.total[0], every.total[1:], p_row, every.top, error)
