"""Laplace transforms of all tokens of a row whose laws differ, on one grid of u = ln t.

Tokens are sorted into classes of the same law up to a factor: weights e^s absorb their β into w,
homogeneous ones their γ. A factor w shifts a class's transforms by c·ln w. Where many classes
differ in one parameter only, their transforms are interpolated in it (they are analytic in it).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import sympy

from sparsity import kernels
from sparsity.definition import EPS, definition
from sparsity.errors import InputError
from sparsity.kernels.base import Kernel, Law
from sparsity.kernels.lowering import log_abs
from sparsity.kernels.symbols import s
from sparsity.laplace import TAIL, Laplace, laplace
from sparsity.scores import RowLaw

__all__ = ["STEP", "Row", "Sums", "interpolated", "pieces", "row", "sums"]

Class = tuple[Kernel, float, float, int | None]  # kernel, β, γ, d of keys on the sphere

STEP = 0.08  # of u
_TAPS = 16  # of the local polynomial between the points of the grid
_AT_ONCE = 128  # classes
_NODES = 20  # of the polynomial in a parameter, over a piece of length 1 of it
_OCTAVE = 0.35  # of ln γ is such a piece


def _degree(f: Any) -> float | None:
    """The p with f(cs) = c^p f(s) for every c > 0, None if there is none; NaN for f = 0."""
    if f == s:
        return 1.0
    if not f.has(s):
        return np.nan if f == 0 else 0.0
    if isinstance(f, sympy.Pow) and not f.exp.has(s):
        inner = _degree(f.base)
        return None if inner is None else float(f.exp) * inner
    if isinstance(f, (sympy.Mul, sympy.Add, sympy.Max, sympy.Min, sympy.Abs)):
        parts = [_degree(part) for part in f.args]
        if None in parts:
            return None
        if isinstance(f, sympy.Mul):
            return float(sum(parts))
        distinct = {p for p in parts if p == p}
        return distinct.pop() if len(distinct) == 1 else None
    return None


@functools.lru_cache(maxsize=128)
def _symmetry(kernel: Kernel) -> tuple[float | None, float | None]:
    """(a, p): f(s + x) = e^(ax) f(s) up to a sign for all x, and f(cs) = c^p f(s); or None."""
    rise = sympy.simplify(log_abs(kernel.weight).diff(s)) if kernel.weight.has(s) else sympy.S(0)
    exponent = float(rise) if rise.is_number and rise.is_real else None
    return exponent, _degree(kernel.weight)


class Row(NamedTuple):
    """The weights of a row, in groups of equals.

    Args:
        n: tokens, those out of sight included.
        classes: (kernel, β, γ, d) of each class.
        member: the class of each group, [groups].
        log_w: ln w of each group.
        count: tokens in each group.
        token: tokens of each group that are tokens: `count`, or 0 for a unit.
        sink: weights of each group that are sinks: units included.
    """

    n: int
    classes: list[Class]
    member: np.ndarray
    log_w: np.ndarray
    count: np.ndarray
    token: np.ndarray
    sink: np.ndarray


def row(kernel: str | Kernel, law: RowLaw, length: Any) -> Row:
    """Sort the tokens of a row into classes.

    Raises:
        InputError: an unknown kernel, one that is not a function of the score, or a bad length.
    """
    kernel = kernels.named(kernel)
    if kernel.law is not Law.SCORE:
        raise InputError("kernel", kernel.name, "needs a kernel that is a function of the score")
    if not isinstance(law, RowLaw):
        raise InputError("law", law, "give a RowLaw of sparsity.scores")
    tokens = law.tokens(length)
    with np.errstate(divide="ignore"):
        log_w = np.log(tokens.w)
    fixed = tokens.gamma == 0
    if fixed.any():  # a fixed score at which f = 0 is out of sight as well
        log_w[fixed] += np.where(definition(kernel)(tokens.beta[fixed])[0] > -np.inf, 0, -np.inf)
    seen = log_w > -np.inf
    if not seen.any():
        raise InputError("law", law, "leaves no token of this row in sight")
    beta, gamma, log_w = (x[seen] for x in (tokens.beta, tokens.gamma, log_w))
    exponent, degree = _symmetry(kernel)
    if exponent is not None:
        log_w, beta = log_w + exponent * beta, np.zeros_like(beta)
    elif degree is not None:
        unit = np.where(gamma > 0, gamma, np.abs(beta))
        log_w, beta, gamma = log_w + degree * np.log(unit), beta / unit, gamma / unit
    pairs, member = np.unique(np.stack([beta, gamma], axis=1), axis=0, return_inverse=True)
    classes = [(kernel, float(b), float(g), tokens.dim if g else None) for b, g in pairs]
    units = np.array(tokens.units)
    if len(units):
        classes.append((kernels.exp, 0.0, 0.0, None))
    count, one, none = tokens.count[seen], np.ones(len(units)), np.zeros(len(units))
    return Row(
        n=int(tokens.count.sum()),
        classes=classes,
        member=np.concatenate([member.reshape(-1), np.full(len(units), len(pairs))]).astype(int),
        log_w=np.concatenate([log_w, units]),
        count=np.concatenate([count, one]),
        token=np.concatenate([count, none]),
        sink=np.concatenate([count * tokens.sink[seen], one]),
    )


def _coordinate(classes: list[Class]) -> np.ndarray | None:
    """The one parameter in which classes differ, in units over which they vary smoothly."""
    _, beta, gamma, _ = zip(*classes, strict=True)
    beta, gamma = np.array(beta), np.array(gamma)
    if np.all(gamma == gamma[0]) and gamma[0] > 0:
        return beta / gamma
    if np.all(beta == beta[0]) and np.all(gamma > 0):
        return np.log(gamma) / _OCTAVE
    return None


class _Piece(NamedTuple):
    """Classes whose transforms come from those of a few laws.

    Args:
        members: numbers of the classes.
        laws: the laws to evaluate; with a matrix, the last of them checks the interpolation.
        matrix: [members, laws − 1], or None: the members are the laws.
        check: [1, laws − 1], what the last law should be.
    """

    members: np.ndarray
    laws: list[Class]
    matrix: np.ndarray | None = None
    check: np.ndarray | None = None


def _barycentric(x: np.ndarray, nodes: np.ndarray) -> np.ndarray:
    """Matrix from values at Chebyshev's nodes to values at x."""
    sign = (-1.0) ** np.arange(len(nodes)) * np.sin(np.pi * (np.arange(len(nodes)) + 0.5) / _NODES)
    gap = x[:, None] - nodes
    hit = gap == 0
    weights = np.where(hit.any(axis=1)[:, None], hit, sign / np.where(hit, 1, gap))
    return weights / weights.sum(axis=1, keepdims=True)


def pieces(classes: list[Class]) -> Iterator[_Piece]:
    """Few laws for many classes: all of them, or nodes in the parameter in which they differ."""
    families: dict[Any, list[int]] = {}
    for i, (kernel, _, gamma, dim) in enumerate(classes):
        families.setdefault((kernel, gamma == 0, dim), []).append(i)
    for family in map(np.array, families.values()):
        x = _coordinate([classes[i] for i in family]) if len(family) > 2 * _NODES else None
        piece = np.arange(len(family)) if x is None else np.floor(x - x.min())
        for number in np.unique(piece):
            inside = np.flatnonzero(piece == number)
            if x is None or len(inside) <= _NODES + 1:
                yield from (_Piece(np.array([i]), [classes[i]]) for i in family[inside])
                continue
            low, high = x[inside].min(), x[inside].max()
            angle = np.pi * (np.arange(_NODES) + 0.5) / _NODES
            nodes = (low + high) / 2 + (high - low) / 2 * np.cos(angle)
            check = np.array([0.98 * high + 0.02 * low])
            kernel, beta, gamma, dim = classes[family[inside[0]]]
            fixed_spread = classes[family[inside[-1]]][2] == gamma
            at: list[Class] = [
                (kernel, v * gamma, gamma, dim)
                if fixed_spread
                else (kernel, beta, math.exp(_OCTAVE * v), dim)
                for v in (*nodes.tolist(), float(check[0]))
            ]
            matrix = _barycentric(x[inside], nodes)
            yield _Piece(family[inside], at, matrix, _barycentric(check, nodes))


def interpolated(
    classes: list[Class], evaluate: Callable[[Class], np.ndarray]
) -> tuple[np.ndarray, float]:
    """A function of the law, smooth in its parameters, at every class.

    Args:
        classes: the laws.
        evaluate: law -> [values].

    Returns:
        [classes, values] and the largest error of the interpolation, measured at a point a piece.
    """
    found: list[Any] = [None] * len(classes)
    worst = 0.0
    for piece in pieces(classes):
        values = np.stack([evaluate(law) for law in piece.laws])  # [laws, values]
        if piece.matrix is not None and piece.check is not None:
            worst = max(worst, float(np.abs(piece.check @ values[:-1] - values[-1]).max()))
            values = piece.matrix @ values[:-1]
        for i, value in zip(piece.members, values, strict=True):
            found[i] = value
    return np.stack(found), worst


def _deposit(shift: np.ndarray, weights: np.ndarray) -> tuple[int, np.ndarray]:
    """H with Σ_s H[c, s] F[i + s] = Σ_j weights[c, j] F(u_i + shift_j): (first s, H)."""
    steps = np.floor(shift / STEP).astype(int)
    if np.all(shift == steps * STEP) and np.ptp(steps) == 0:
        return int(steps[0]), weights.sum(axis=1, keepdims=True)
    first = int(steps.min())
    total = np.zeros((len(weights), int(steps.max()) - first + _TAPS))
    k = np.arange(_TAPS)
    scale = (k[:, None] - k + np.eye(_TAPS)).prod(axis=1)
    for start in range(0, len(shift), 2**16):
        part = slice(start, start + 2**16)
        gap = (_TAPS // 2 - 1 + shift[part] / STEP - steps[part])[:, None] - k
        ones = np.ones((len(gap), 1))
        before = np.cumprod(np.concatenate([ones, gap[:, :-1]], axis=1), axis=1)
        after = np.cumprod(np.concatenate([ones, gap[:, :0:-1]], axis=1), axis=1)[:, ::-1]
        taps = before * after / scale
        where = (steps[part] - first)[:, None] + k
        for channel, weight in zip(total, weights[:, part], strict=True):
            np.add.at(channel, where, taps * weight[:, None])
    return first - _TAPS // 2 + 1, total


def _add(out: np.ndarray, table: np.ndarray, begin: int, h: np.ndarray) -> None:
    """out[c, r, i] += Σ_s h[c, s] F[c, r, begin + i + s]; F is 0 before, its last value behind."""
    length, points = out.shape[-1] + h.shape[-1] - 1, table.shape[-1]
    zeros = min(max(-begin, 0), length)
    inside = table[..., max(begin, 0) : max(begin + length, 0)]
    behind = length - zeros - inside.shape[-1] if begin < points else length
    last = np.repeat(table[..., -1:], max(behind, 0), axis=-1)
    values = np.concatenate([np.zeros((*table.shape[:-1], zeros)), inside, last], axis=-1)
    if h.shape[-1] <= _TAPS:
        windows = np.lib.stride_tricks.sliding_window_view(values, h.shape[-1], axis=-1)
        out += np.matmul(windows, h[:, None, :, None])[..., 0]
        return
    for total, channel, own in zip(out, values, h, strict=True):
        if own.any():
            for rule in range(len(total)):
                total[rule] += np.convolve(channel[rule], own[::-1], "valid")


class Sums(NamedTuple):
    """Σ over tokens on a grid of u, by two rules or three, over e^top.

    The second rule is a coarser one, to be summed in every other point; the third is the first with
    the error of the interpolation between laws put in on purpose.

    Args:
        log_phi: Σ log φ, [rules, points].
        channels: Σ of each channel, [channels, rules, points].
        p_row: P(the row is not all zero), over e^top, by each rule.
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


class _Part(NamedTuple):
    """Transforms of some classes: those of a piece, interpolated where it says so.

    Args:
        piece: the piece.
        laws: its transforms.
        start: first point of their grid, in steps of u.
        stop: behind the last one.
    """

    piece: _Piece
    laws: list[Laplace]
    start: int
    stop: int

    def tables(self, top: float, rules: int) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """(classes, ψ and moments [·, 1 + k, rules, points], P(f ≠ 0) [·, rules]), over e^top.

        The third rule is the first times the error of the interpolation, where there is one.
        """
        u = STEP * np.arange(self.start, self.stop)
        raw, single = [], []
        for law in self.laws:
            psi, moments = law(u)
            scale = np.exp(law.top - top)
            raw.append(np.stack([psi.T, *(m.T for m in moments)]) * scale)
            single.append(law.p_nonzero * scale)
        flat = np.concatenate([np.stack(raw), np.stack(single)[:, None, :, None] + 0 * u], axis=1)
        use = [0, 1, 0][:rules]
        piece = self.piece
        if piece.matrix is None or piece.check is None:
            yield piece.members, flat[:, :-1, use], flat[:, -1, use, 0]
            return
        shape, flat = flat.shape[1:], np.log(np.maximum(flat, 1e-300)).reshape(len(flat), -1)
        off = np.exp(flat[-1] - (piece.check @ flat[:-1])[0]).reshape(shape)
        for first in range(0, len(piece.members), _AT_ONCE):
            part = slice(first, first + _AT_ONCE)
            found = np.exp(piece.matrix[part] @ flat[:-1]).reshape(-1, *shape)[:, :, use]
            found[:, :, 2:] *= off[:, :1]
            yield piece.members[part], found[:, :-1], found[:, -1, :, 0]


def _mattering(row: Row, c: int, k: tuple[float, ...]) -> list[_Piece]:
    """The pieces without those whose tokens are, all together, too rarely nonzero to be felt."""
    every, longest = list(pieces(row.classes)), float(row.count.sum())
    times = np.bincount(row.member, row.count)
    chances = []  # log P(f ≠ 0) of a token at the likelier end of a piece
    for piece in every:
        ends = [laplace(*law[:3], c, k, law[3]) for law in {piece.laws[0], piece.laws[-1]}]
        chances.append(max(math.log(law.p_nonzero[0]) + law.top for law in ends))
    margin = math.log(longest / TAIL) + 10  # n_eff is at most n
    return [
        piece
        for piece, chance in zip(every, chances, strict=True)
        if chance + math.log(times[piece.members].sum()) + margin > max(chances)
    ]


def sums(row: Row, c: int, k: tuple[float, ...], channels: Sequence[Channel]) -> Sums:
    """Sum the transforms E[x^k e^(−x)]/φ, x = t|a|^c, of all tokens.

    Args:
        row: the tokens; their largest weight is of order one.
        c: the power of |a| in x.
        k: the powers of x.
        channels: what is to be summed beside log φ, given (m_1/φ, m_2/φ, …), and how often.
    """
    order = np.argsort(row.member, kind="stable")
    groups = np.split(order, np.cumsum(np.bincount(row.member))[:-1])
    shift, weights = c * row.log_w, np.stack([row.count, *(weight for _, weight in channels)])
    longest, starts, ends, certain, parts = float(row.count.sum()), [], [], [], []
    for piece in _mattering(row, c, k):
        laws = [laplace(*law[:3], c, k, law[3]) for law in piece.laws]
        low = min(law.range(longest)[0] for law in laws)
        right = max(law.right for law in laws)
        parts.append(_Part(piece, laws, math.floor(low / STEP), math.ceil(right / STEP) + 1))
        mine = shift[np.concatenate([groups[i] for i in piece.members])]
        starts.append(low - mine.max())
        ends.append(right - mine.min())
        if all(law.p_nonzero[0] * np.exp(law.top) > 1 - 1e-13 for law in laws):
            certain.append(right - mine.max())  # no row lives beyond a token that never vanishes
    first = math.floor(min(starts) / STEP)
    size = math.ceil(min(certain, default=max(ends)) / STEP) + 1 - first
    top = max(law.top for part in parts for law in part.laws)
    rules = 2 if all(part.piece.matrix is None for part in parts) else 3
    scale, total = np.exp(top), np.zeros((len(weights), rules, size))
    log_miss, expected, error = np.zeros(rules), np.zeros(rules), 0.0
    for part in parts:
        error = max(error, *(law.rounding for law in part.laws))
        for members, tables, chance in part.tables(top, rules):
            times = np.array([row.count[groups[i]].sum() for i in members])
            expected += times @ chance
            hit = np.minimum(chance * scale, 1.0)
            with np.errstate(divide="ignore"):
                log_miss += times @ np.log1p(-np.where(hit > 1 - 1e-13, 1.0, hit))
            log = np.log1p(-np.minimum(tables[:, 0] * scale, 1 - EPS / 2))
            ratios = np.moveaxis(tables[:, 1:], 1, 0) * np.exp(-log)
            summands = np.stack([log, *(channel(*ratios) for channel, _ in channels)])
            summands[1:, ..., -1] = 0.0
            own = np.concatenate([groups[i] for i in members])
            if len(own) == len(members) > 1 and not shift[own].any():
                summed = np.einsum("cb,cbru->cru", weights[:, own], summands)
                _add(total, summed, first - part.start, np.ones((len(weights), 1)))
                continue
            for i, member in enumerate(members):
                offset, h = _deposit(shift[groups[member]], weights[:, groups[member]])
                _add(total, summands[:, i], first - part.start + offset, h)
    p_row = expected if scale < 1e-290 else -np.expm1(log_miss) / scale
    return Sums(total[0], total[1:], p_row, top, error)
