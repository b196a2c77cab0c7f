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

from sparsity.exact_law.bands import Orders, order_of
from sparsity.exact_law.families import reference
from sparsity.exact_law.laplace import TAIL, Laplace, laplace
from sparsity.exact_law.work import plan
from sparsity.kernels.numeric.definition import definition
from sparsity.kernels.numeric.intervals import Interval
from sparsity.kernels.numeric.points import Approx
from sparsity.quantities.base import LogMoment
from sparsity.rows.classes import InterpolatedLaws, TokenClasses, pieces

STEP = 0.08  # of u
SLOW = -math.log(TAIL)  # of u: how much further down a summand of order √t matters than one of t
_TAPS = 16  # of the local polynomial between the points of the grid, for moments up to order 4
_MANY_TAPS = 28  # above, up to 8: e^(8u) is off by (8·STEP)^taps·(taps/2)!²/taps!, at 16 by 1e-9
_AT_ONCE = 128  # classes
_LEAST = 1e-290  # of a transform
_DEEP = 40.0  # e-folds below the heaviest token down to which n equal tokens count, plus ln n
_FAR = 14.0  # standard deviations of a score that light tokens are bounded over
_FEW = 32  # laws up to which light tokens are not looked for
_HEAVY = 12  # groups that tell where a row ends
_RARE = 1e-6  # chance of a weight beside which one of 10⁻⁴⁴ is none
_ALIKE = 1e-11  # error of summands, relative, up to which they are interpolated between laws
_NODE, _LAW, _TOKEN = 1e-5, 0.001, 0.001  # seconds of a node, of a law and of a token; measured
_SHARED = 256  # steps: tables begin at whole multiples, so that the points of a curve share them


def _spread_weights_on_grid(
    shift: np.ndarray, weights: np.ndarray, taps: int
) -> tuple[int, np.ndarray]:
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
def _tables(laws: tuple[Laplace, ...], start: int, stop: int) -> np.ndarray:
    """ψ, the moments and P(f ≠ 0) of each law over its own e^top, and P(f = 0), [laws, ·, points].

    Laws that share their nodes are one product of matrices.
    """
    u, found = (
        STEP * np.arange(start, stop),
        np.empty((len(laws), 3 + len(laws[0].k), stop - start)),
    )
    families: dict[int, list[int]] = {}
    for i, law in enumerate(laws):
        families.setdefault(id(law.family), []).append(i)
    for members in families.values():
        together = laws[members[0]].joined([laws[i] for i in members])
        psi, moments = together(u)
        found[members] = np.stack([psi, *moments, 0 * psi, 0 * psi], axis=1)
    found[:, -2:] = np.array([(law.p_nonzero, law.p_zero) for law in laws])[..., None]
    return found


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

    def table(self, top: float) -> np.ndarray:
        """ψ, moments and P(f ≠ 0) of the laws over e^top, and P(f = 0), [laws, ·, points]."""
        found = _tables(tuple(self.laws), self.start, self.stop).copy()
        found[:, :-1] *= np.exp([law.top - top for law in self.laws])[:, None, None]
        return found

    def each(self, flat: np.ndarray, versions: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """(classes, their tables [·, ·, versions, points]), given those of the laws.

        The second version is the first times the error of the interpolation, where there is one.
        """
        flat = flat[:, :, None].repeat(versions, axis=2)
        piece = self.piece
        if piece.matrix is None or piece.check is None:
            yield piece.members, flat
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
            yield piece.members[part], self._rough(found)


def log_rest(p: np.ndarray, rest: np.ndarray) -> np.ndarray:
    """Log of 1 − p, given both: each where it has its digits."""
    return np.where(p < 0.5, np.log1p(-np.minimum(p, 0.5)), np.log(rest))


def _sizes(row: TokenClasses) -> tuple[np.ndarray, np.ndarray]:
    """Log of the most that a weight of each group is, but for a chance of 10⁻⁴⁴; ∞ if unknown.

    And of its weight at one standard deviation, −∞ if unknown.
    """
    beta, gamma = (np.array([law[i] for law in row.classes]) for i in (1, 2))
    most, (kernel, _, _, scores) = np.full(len(beta), np.inf), row.classes[0]
    typical = np.full(len(beta), -np.inf)
    own = np.array([law[0] == kernel and law[3] == scores for law in row.classes])
    ends = (-_FAR, _FAR) if scores is None else scores.ends
    if np.all(np.isfinite(ends)):
        low, high = (end * gamma[own] * (1 + 1e-9) for end in ends)
        with np.errstate(all="ignore"):
            bound = definition(kernel).bounds_on_segments(
                beta[own], Interval.between(low, high), False
            )[1]
            near = [
                definition(kernel).values_at(beta[own], Approx(x)).log
                for x in (gamma[own], -gamma[own])
            ]
        typical[own] = np.nan_to_num(np.max(near, axis=0), nan=-np.inf)
        most[own] = np.where(np.isnan(bound), np.inf, bound)
    return row.log_w + most[row.member], row.log_w + typical[row.member]


def _end(row: TokenClasses, c: int, k: Orders, typical: np.ndarray) -> tuple[float, bool]:
    """The u beyond which the row has no integrand left: that of its heaviest tokens is enough.

    And whether one of them has a weight with more than a tiny chance.
    """
    heaviest = np.argsort(-typical)[:_HEAVY]
    laws = [laplace(*row.classes[row.member[i]][:3], c, k, row.classes[row.member[i]][3])
            for i in heaviest]  # fmt: skip
    tops = [c * row.log_w[i] + law.c_log_f[-1] for i, law in zip(heaviest, laws, strict=True)]
    u = np.arange(-max(tops), -max(tops) + 400.0)
    log_phi = sum(
        row.count[i] * law.family.log_phi(u + c * row.log_w[i])
        for i, law in zip(heaviest, laws, strict=True)
    )
    gone = np.flatnonzero(log_phi < -_DEEP - 3 * math.log(row.count.sum()))
    seen = any(law.top + math.log(law.p_nonzero) > math.log(_RARE) for law in laws)
    return float(u[gone[0]]) if len(gone) else math.inf, seen


def _light(row: TokenClasses, c: int, k: Orders) -> tuple[np.ndarray, float]:
    """Which groups are nothing at every u at which the row has an integrand left, and its end.

    They enter every sum by E min(x, 1)^order at most.
    """
    if len(row.classes) <= _FEW:
        return np.zeros(row.count.shape, dtype=bool), math.inf
    sizes, typical = _sizes(row)
    (end, seen), order = _end(row, c, k, typical), min(1.0, *map(order_of, k[1:]))
    with np.errstate(invalid="ignore"):
        size = np.where(seen & (sizes == -np.inf), -np.inf, order * (end + c * sizes))
    return (row.sink == 0) & (size < -_DEEP - math.log(row.count.sum())), end


def _kept(row: TokenClasses, keep: np.ndarray) -> TokenClasses:
    """The row of some of its groups."""
    used, member = np.unique(row.member[keep], return_inverse=True)
    rest = (x[keep] for x in row[3:])
    return TokenClasses(row.n, [row.classes[i] for i in used], member.reshape(-1), *rest)


def _together(every: list[InterpolatedLaws]) -> list[InterpolatedLaws]:
    """The patches, those of one law each together where these laws share their nodes."""
    found, shared = [], {}
    for piece in every:
        kernel, beta, gamma, scores = piece.laws[0]
        near = reference(kernel, beta, gamma, scores) if piece.matrix is None else None
        if near is None:
            found.append(piece)
        else:
            shared.setdefault((kernel, near), []).append(piece)
    for same in shared.values():
        members = np.concatenate([piece.members for piece in same])
        found.append(InterpolatedLaws(members, [law for piece in same for law in piece.laws]))
    return found


def _relevant_pieces(
    row: TokenClasses, c: int, k: Orders
) -> list[tuple[InterpolatedLaws, list[Laplace]]]:
    """The pieces and their laws, without those that are all together too rarely nonzero to matter.

    Raises:
        TooFine: so many laws that they take more than seconds.
    """
    every, longest = _together(list(pieces(row.classes))), float(row.count.sum())
    laws = {law for piece in every for law in piece.laws}
    families = {(law[0], reference(*law) or law[1:]) for law in laws}
    samples = {every[0].laws[0], every[len(every) // 2].laws[0], every[-1].laws[0]}
    nodes = sum(len(laplace(*law[:3], c, k, law[3]).c_log_f) for law in samples) / len(samples)
    plan("length", row.n, _NODE * nodes * len(families) + _LAW * len(laws))
    times = np.bincount(row.member, row.count)
    found, chances = [], []  # log P(f ≠ 0) of a token at the likelier end of a piece
    for piece in every:
        own = [laplace(*law[:3], c, k, law[3]) for law in piece.laws]
        ends = own if piece.matrix is None else [own[0], own[-1]]
        chances.append(max(math.log(law.p_nonzero) + law.top for law in ends))
        found.append((piece, own))
    margin = math.log(longest / TAIL) + 10  # n_eff is at most n
    return [
        (piece, own)
        for (piece, own), chance in zip(found, chances, strict=True)
        if chance + math.log(times[piece.members].sum()) + margin > max(chances)
    ]


def _grid_layout(
    row: TokenClasses,
    groups: list[np.ndarray],
    c: int,
    orders: Orders,
    channels: Sequence[Channel],
    longest: float,
    reach: float,
    end: float,
) -> tuple[list[_Part], list[np.ndarray], int, int]:
    """Parts with the ranges of their tables, the tokens of each class that count, and the grid.

    The grid is given by its first point, in steps of u, and its size; the rest as in `sums`.
    """
    shift = c * row.log_w
    starts, ends, certain, lows, parts = [], [], [], [], []
    for piece, laws in _relevant_pieces(row, c, orders):
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
    size = math.ceil(min(*certain, end, max(ends)) / STEP) + 1 - first
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
        mine = shift[np.concatenate([groups[member] for member in parts[i].piece.members])]
        last = first + size + math.ceil(mine.max() / STEP) + 2 * _MANY_TAPS  # none is asked beyond
        stop = max(min(parts[i].stop, math.ceil(last / _SHARED) * _SHARED), start + 1)
        parts[i] = parts[i]._replace(start=start, stop=stop)
        for member in parts[i].piece.members:
            group = groups[member]
            counted[member] = group[shift[group] >= (start - first - size) * STEP]
    return parts, counted, first, size


def sums(
    row: TokenClasses,
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
    light, end = _light(row, c, (0.0, *k))
    if light.any():
        keep = ~light
        row, channels = _kept(row, keep), [(f, weight[keep]) for f, weight in channels]
    order = np.argsort(row.member, kind="stable")
    groups = np.split(order, np.cumsum(np.bincount(row.member))[:-1])
    shift, weights = c * row.log_w, np.stack([row.count, *(weight for _, weight in channels)])
    parts, counted, first, size = _grid_layout(
        row, groups, c, (0.0, *k), channels, longest, reach, end
    )
    top = max(law.top for part in parts for law in part.laws)
    taps = _TAPS if max(map(order_of, k)) <= 4 else _MANY_TAPS
    versions = 1 if all(part.piece.matrix is None for part in parts) else 2
    scale, total = np.exp(top), np.zeros((len(weights), versions, size))
    log_miss, expected, error = np.zeros(versions), np.zeros(versions), 0.0

    def never(zero: np.ndarray) -> np.ndarray:
        return np.where(zero > 2 * _LEAST, zero, 0.0)  # interpolated, none is exactly 0

    def summands(tables: np.ndarray) -> np.ndarray:
        """Log φ and what the channels sum, [1 + channels, laws, ..., points], of tables."""
        missing = np.minimum(tables[:, 0] * scale, 1.0)  # 1 − φ
        log = log_rest(missing, np.maximum(tables[:, 1] * scale + never(tables[:, -1]), _LEAST))
        ratios = np.moveaxis(tables[:, 2:-2], 1, 0) * np.exp(-log)
        found = np.stack([log, *(channel(*ratios) for channel, _ in channels)])
        found[1:, ..., -1] = 0.0
        return found

    def count(times: np.ndarray, chance: np.ndarray, zero: np.ndarray) -> None:
        """Add to what is known of P(the row is not all zero)."""
        nonlocal log_miss, expected
        expected = expected + times @ chance
        with np.errstate(divide="ignore"):
            log = log_rest(chance * scale, never(zero))
        # Weights of an interpolation have both signs.
        log_miss = log_miss + (times @ log if np.isfinite(log).all() else -np.inf)

    for part in parts:
        error = max(error, *(law.rounding for law in part.laws))
        piece, flat, begin = part.piece, part.table(top), first - part.start
        own = np.concatenate([counted[i] for i in piece.members])
        times = np.array([row.count[groups[i]].sum() for i in piece.members])
        if piece.matrix is not None and piece.check is not None:
            nodes, values = piece.matrix.shape[1], summands(flat)
            gap = values[:, nodes:] - np.einsum("kn,cnu->cku", piece.check, values[:, :nodes])
            gap = np.abs(gap).max(axis=1)
            # Where these tokens alone leave no integrand, no more is asked.
            alive = times.sum() * values[0].max(axis=0) > -_DEEP
            if (gap <= _ALIKE * np.abs(values).max(axis=1))[:, alive].all():
                place = np.empty(len(row.classes), dtype=int)
                place[piece.members] = np.arange(len(piece.members))
                share = piece.matrix[place[row.member[own]]].T  # [nodes, groups]
                ends = (flat[:nodes, i, :1].repeat(versions, axis=1) for i in (-2, -1))
                count(times @ piece.matrix, *ends)
                if len(own):
                    spread = (weights[:, None, own] * share).reshape(-1, len(own))
                    spread = np.concatenate([spread, weights[:, own]])
                    offset, h = _spread_weights_on_grid(shift[own], spread, taps)
                    h, rest = h[: -len(weights)], h[-len(weights) :]
                    for node, each in enumerate(h.reshape(len(weights), nodes, -1).swapaxes(0, 1)):
                        same = values[:, node, None].repeat(versions, axis=1)
                        _add(total, same, begin + offset, each)
                    _add(total[:, 1:], gap[:, None], begin + offset, rest)
                continue
            plan("length", row.n, _TOKEN * len(own))
        for members, tables in part.each(flat, versions):
            chosen = np.isin(piece.members, members)
            count(times[chosen], tables[:, -2, :, 0], tables[:, -1, :, 0])
            values = summands(tables)
            own = np.concatenate([counted[i] for i in members])
            if len(own) == len(members) > 1 and not shift[own].any():
                summed = np.einsum("cb,cbru->cru", weights[:, own], values)
                _add(total, summed, begin, np.ones((len(weights), 1)))
                continue
            for i, member in enumerate(members):
                if not len(counted[member]):
                    continue
                offset, h = _spread_weights_on_grid(
                    shift[counted[member]], weights[:, counted[member]], taps
                )
                _add(total, values[:, i], begin + offset, h)
    p_row = expected if scale < 1e-290 else -np.expm1(log_miss) / scale
    return Sums(total[0], total[1:], p_row, top, error)
