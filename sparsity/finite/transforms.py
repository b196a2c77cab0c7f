"""Laplace transforms of all tokens of a row, summed on one grid of u = ln t.

A factor w shifts a token's transforms by c·ln w. The tokens of a class are summed all at once: as
weights deposited on the grid by local polynomials, and one convolution.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from sparsity.finite.bands import Orders, order_of
from sparsity.finite.laplace import TAIL, Laplace, laplace
from sparsity.quantities.base import LogMoment
from sparsity.rows.classes import Classed, Patch, pieces

STEP = 0.08  # of u
SLOW = -math.log(TAIL)  # of u: how much further down a summand of order √t matters than one of t
_TAPS = 16  # of the local polynomial between the points of the grid, for moments up to order 4
_MANY_TAPS = 28  # above, up to 8: e^(8u) is off by (8·STEP)^taps·(taps/2)!²/taps!, at 16 by 1e-9
_AT_ONCE = 128  # classes
_LEAST = 1e-290  # of a transform
_DEEP = 40.0  # e-folds below the heaviest token down to which n equal tokens count, plus ln n
_SHARED = 256  # steps: tables begin at whole multiples, so that the points of a curve share them


def _deposit(shift: np.ndarray, weights: np.ndarray, taps: int) -> tuple[int, np.ndarray]:
    """H with Σ_s H[c, s] F[i + s] = Σ_j weights[c, j] F(u_i + shift_j): (first s, H)."""
    steps = np.floor(shift / STEP).astype(int)
    if np.all(shift == steps * STEP) and np.ptp(steps) == 0:
        return int(steps[0]), weights.sum(axis=1, keepdims=True)
    first = int(steps.min())
    total = np.zeros((len(weights), int(steps.max()) - first + taps))
    k = np.arange(taps)
    scale = (k[:, None] - k + np.eye(taps)).prod(axis=1)
    for start in range(0, len(shift), 2**16):
        part = slice(start, start + 2**16)
        gap = (taps // 2 - 1 + shift[part] / STEP - steps[part])[:, None] - k
        ones = np.ones((len(gap), 1))
        before = np.cumprod(np.concatenate([ones, gap[:, :-1]], axis=1), axis=1)
        after = np.cumprod(np.concatenate([ones, gap[:, :0:-1]], axis=1), axis=1)[:, ::-1]
        share = before * after / scale
        where = (steps[part] - first)[:, None] + k
        for channel, weight in zip(total, weights[:, part], strict=True):
            np.add.at(channel, where, share * weight[:, None])
    return first - taps // 2 + 1, total


def _add(out: np.ndarray, table: np.ndarray, begin: int, h: np.ndarray) -> None:
    """out[c, r, i] += Σ_s h[c, s] F[c, r, begin + i + s]; F is 0 before, its last value behind.

    Tables begin where the lightest token that counts does, so what lies before them is zero.
    """
    length, points = out.shape[-1] + h.shape[-1] - 1, table.shape[-1]
    zeros = min(max(-begin, 0), length)
    inside = table[..., max(begin, 0) : max(begin + length, 0)]
    behind = length - zeros - inside.shape[-1] if begin < points else length
    last = np.repeat(table[..., -1:], max(behind, 0), axis=-1)
    values = np.concatenate([np.zeros((*table.shape[:-1], zeros)), inside, last], axis=-1)
    if h.shape[-1] <= _MANY_TAPS:
        windows = np.lib.stride_tricks.sliding_window_view(values, h.shape[-1], axis=-1)
        out += np.matmul(windows, h[:, None, :, None])[..., 0]
        return
    for total, channel, own in zip(out, values, h, strict=True):
        if own.any():
            for rule in range(len(total)):
                total[rule] += np.convolve(channel[rule], own[::-1], "valid")


class Sums(NamedTuple):
    """Σ over tokens on a grid of u, over e^top.

    Where laws were interpolated there are two versions of everything: the second one has the error
    of the interpolation put in on purpose.

    Args:
        log_phi: Σ log φ, [versions, points].
        channels: Σ of each channel, [channels, versions, points].
        p_row: P(the row is not all zero), over e^top, in each version.
        top: log of the common scale of psi, moments and probabilities.
        error: of the inner integrals, relative.
    """

    log_phi: np.ndarray
    channels: np.ndarray
    p_row: np.ndarray
    top: float
    error: float


# (moments/φ -> summand, weights of the groups)
Channel = tuple[Callable[..., np.ndarray], np.ndarray]


@functools.lru_cache(maxsize=64)
def _table(law: Laplace, start: int, stop: int, step: float) -> np.ndarray:
    """ψ, the moments and (constant) P(f ≠ 0), over e^top, and P(f = 0), [·, points]."""
    psi, moments = law(step * np.arange(start, stop))
    return np.stack([psi, *moments, *(np.full_like(psi, p) for p in (law.p_nonzero, law.p_zero))])


class _Part(NamedTuple):
    """Transforms of some classes: those of a piece, interpolated where it says so.

    Args:
        piece: the piece.
        laws: its transforms.
        start: first point of their grid, in steps of u.
        stop: behind the last one.
    """

    piece: Patch
    laws: list[Laplace]
    start: int
    stop: int

    @property
    def _logged(self) -> list[int]:
        """Rows of a table that are moments with a factor ln x; each follows its plain one."""
        return [1 + i for i, k in enumerate(self.laws[0].k) if isinstance(k, LogMoment)]

    def _smooth(self, tables: np.ndarray) -> np.ndarray:
        """What is interpolated between laws: logarithms; of a moment with ln x the mean of ln x."""
        found = np.log(np.maximum(tables, _LEAST))
        for i in self._logged:
            found[:, i] = tables[:, i] / np.maximum(tables[:, i - 1], _LEAST)
        return found

    def _rough(self, smooth: np.ndarray) -> np.ndarray:
        """Undo `_smooth`."""
        found = np.exp(smooth)
        for i in self._logged:
            found[:, i] = smooth[:, i] * found[:, i - 1]
        return found

    def tables(self, top: float, versions: int) -> Iterator[tuple[np.ndarray, ...]]:
        """Classes, ψ and moments [·, 1 + k, versions, points], P(f ≠ 0) and P(f = 0) [·, versions].

        All but P(f = 0) are over e^top. The second version is the first times the error of the
        interpolation, where there is one.
        """
        flat = np.stack([_table(law, self.start, self.stop, STEP) for law in self.laws])
        flat[:, :-1] *= np.exp([law.top - top for law in self.laws])[:, None, None]
        flat = flat[:, :, None].repeat(versions, axis=2)
        piece = self.piece
        if piece.matrix is None or piece.check is None:
            yield piece.members, flat[:, :-2], flat[:, -2, :, 0], flat[:, -1, :, 0]
            return
        shape, flat = flat.shape[1:], self._smooth(flat).reshape(len(flat), -1)
        nodes = piece.matrix.shape[1]
        gaps = flat[nodes:] - piece.check @ flat[:nodes]
        off = np.take_along_axis(gaps, np.abs(gaps).argmax(axis=0)[None], axis=0)[0]
        off = off.reshape(shape)[:, :1]
        for first in range(0, len(piece.members), _AT_ONCE):
            part = slice(first, first + _AT_ONCE)
            found = (piece.matrix[part] @ flat[:nodes]).reshape(-1, *shape)
            found[:, :, 1:] += off
            found = self._rough(found)
            yield piece.members[part], found[:, :-2], found[:, -2, :, 0], found[:, -1, :, 0]


def log_rest(p: np.ndarray, rest: np.ndarray) -> np.ndarray:
    """Log of 1 − p, given both: each where it has its digits."""
    return np.where(p < 0.5, np.log1p(-np.minimum(p, 0.5)), np.log(rest))


def _mattering(row: Classed, c: int, k: Orders) -> list[Patch]:
    """The pieces without those whose tokens are, all together, too rarely nonzero to matter."""
    every, longest = list(pieces(row.classes)), float(row.count.sum())
    times = np.bincount(row.member, row.count)
    chances = []  # log P(f ≠ 0) of a token at the likelier end of a piece
    for piece in every:
        ends = [laplace(*law[:3], c, k, law[3]) for law in {piece.laws[0], piece.laws[-1]}]
        chances.append(max(math.log(law.p_nonzero) + law.top for law in ends))
    margin = math.log(longest / TAIL) + 10  # n_eff is at most n
    return [
        piece
        for piece, chance in zip(every, chances, strict=True)
        if chance + math.log(times[piece.members].sum()) + margin > max(chances)
    ]


def _laid_out(
    row: Classed,
    groups: list[np.ndarray],
    c: int,
    orders: Orders,
    channels: Sequence[Channel],
    longest: float,
    reach: float,
) -> tuple[list[_Part], list[np.ndarray], int, int]:
    """Parts with the ranges of their tables, the tokens of each class that count, and the grid.

    The grid is given by its first point, in steps of u, and its size; the rest as in `sums`.
    """
    shift = c * row.log_w
    starts, ends, certain, lows, parts = [], [], [], [], []
    for piece in _mattering(row, c, orders):
        laws = [laplace(*law[:3], c, orders, law[3]) for law in piece.laws]
        low = min(law.range(longest + 1)[0] for law in laws) - reach
        right = max(law.right if piece.matrix is None else law.smooth for law in laws)
        lows.append(low)
        parts.append(_Part(piece, laws, 0, math.ceil(right / STEP) + 1))
        mine = shift[np.concatenate([groups[i] for i in piece.members])]
        starts.append(low - mine.max())
        ends.append(right - mine.min())
        if not any(law.p_zero for law in laws):
            certain.append(right - mine.max())  # behind a token that never vanishes all is over
    first = math.floor(min(starts) / STEP)
    size = math.ceil(min(certain, default=max(ends)) / STEP) + 1 - first
    # A table reaches down to where its tokens no longer matter: light ones add to a channel like
    # e^(k·shift) beside its own heaviest ones.
    heaviest = min(shift[weight > 0].max() for _, weight in channels if weight.any())
    counted, light = (
        list(groups),
        (_DEEP + math.log(longest)) / min(1.0, *map(order_of, orders[1:])),
    )
    for i, low in enumerate(lows):
        begin = (min(low, first * STEP + heaviest) - light) / STEP
        start = min(math.floor(begin / _SHARED) * _SHARED, parts[i].stop - 1)
        parts[i] = parts[i]._replace(start=start)
        for member in parts[i].piece.members:
            group = groups[member]
            counted[member] = group[shift[group] >= (start - first - size) * STEP]
    return parts, counted, first, size


def sums(
    row: Classed,
    c: int,
    k: Orders,
    channels: Sequence[Channel],
    longest: float,
    reach: float = 0.0,
) -> Sums:
    """Sum the transforms E[x^k e^(−x)]/φ, x = t|a|^c, of all tokens.

    Args:
        row: the tokens; their largest weight is of order one.
        c: the power of |a| in x.
        k: the powers of x.
        channels: what is to be summed beside log φ, given (m_1/φ, m_2/φ, …), and how often.
        longest: the longest row of a curve, so that all its points share their tables.
        reach: how far below the range of a summand of order t the sums still matter, in u.
    """
    order = np.argsort(row.member, kind="stable")
    groups = np.split(order, np.cumsum(np.bincount(row.member))[:-1])
    shift, weights = c * row.log_w, np.stack([row.count, *(weight for _, weight in channels)])
    parts, counted, first, size = _laid_out(row, groups, c, (0.0, *k), channels, longest, reach)
    top = max(law.top for part in parts for law in part.laws)
    taps = _TAPS if max(map(order_of, k)) <= 4 else _MANY_TAPS
    versions = 1 if all(part.piece.matrix is None for part in parts) else 2
    scale, total = np.exp(top), np.zeros((len(weights), versions, size))
    log_miss, expected, error = np.zeros(versions), np.zeros(versions), 0.0
    for part in parts:
        error = max(error, *(law.rounding for law in part.laws))
        for members, tables, chance, zero in part.tables(top, versions):
            times = np.array([row.count[groups[i]].sum() for i in members])
            expected += times @ chance
            zero = np.where(zero > 2 * _LEAST, zero, 0.0)
            with np.errstate(divide="ignore"):
                log_miss += times @ log_rest(chance * scale, zero)
            missing = np.minimum(tables[:, 0] * scale, 1.0)  # 1 − φ
            phi = np.maximum(tables[:, 1] * scale + zero[..., None], _LEAST)
            log = log_rest(missing, phi)
            ratios = np.moveaxis(tables[:, 2:], 1, 0) * np.exp(-log)
            summands = np.stack([log, *(channel(*ratios) for channel, _ in channels)])
            summands[1:, ..., -1] = 0.0
            own = np.concatenate([counted[i] for i in members])
            if len(own) == len(members) > 1 and not shift[own].any():
                summed = np.einsum("cb,cbru->cru", weights[:, own], summands)
                _add(total, summed, first - part.start, np.ones((len(weights), 1)))
                continue
            for i, member in enumerate(members):
                if not len(counted[member]):
                    continue
                offset, h = _deposit(shift[counted[member]], weights[:, counted[member]], taps)
                _add(total, summands[:, i], first - part.start + offset, h)
    p_row = expected if scale < 1e-290 else -np.expm1(log_miss) / scale
    return Sums(total[0], total[1:], p_row, top, error)
