"""Which tokens of a row count, and from which laws the transforms of the others are interpolated.

A row of many tokens that differ, such as one with ALiBi, has thousands of laws. Its light tokens
are nothing wherever the integrand is something; the others are smooth in one parameter, in pieces
(`rows.classes`), and the laws at a few nodes of each piece tell those of all its tokens.
"""

from __future__ import annotations

import math

import numpy as np

from sparsity.exact_law.integration import refuse_slow
from sparsity.exact_law.transforms.laplace import Laplace, Orders, laplace, order_of
from sparsity.exact_law.transforms.nodes import TAIL
from sparsity.exact_law.transforms.shared_nodes import reference
from sparsity.kernels.numeric.definition import definition
from sparsity.kernels.numeric.intervals import Interval
from sparsity.kernels.numeric.points import Approx
from sparsity.rows.classes import Class, InterpolatedLaws, TokenClasses, pieces

DEEP = 40.0  # e-folds below the heaviest token down to which n equal tokens count, plus ln n
_FAR = 14.0  # standard deviations that light tokens are bounded over: 10⁻⁴⁴ of a normal lies beyond
FEW_LAWS = 32  # laws up to which light tokens are not looked for
# Groups that tell where a row ends. Any of them give a valid end; more give a nearer one, at one
# law each.
_HEAVY = 12
_RARE = 1e-6  # chance of a weight beside which one of 10⁻⁴⁴ is none
# Seconds, measured: of a node, of one under scores that are not Gaussian (t, on a sphere), of the
# work of a cut, of nodes however few, and of a law.
_NODE, _NODE_OF_SCORES, _CUT, _FAMILY, _LAW = 1e-5, 4e-5, 3.5e-6, 0.002, 0.0015


def _law(one: Class, c: int, k: Orders) -> Laplace:
    """Return the transforms of a class of tokens."""
    kernel, beta, gamma, scores = one
    return laplace(kernel, beta, gamma, c, k, scores)


def _seconds(one: Class, c: int, k: Orders) -> float:
    """Return what it takes to find the nodes of a class of tokens, and to sum over them."""
    nodes, scores = _law(one, c, k).law_nodes.points, one[3]
    gaussian = scores is None or scores.parts is not None
    node = _NODE if gaussian else _NODE_OF_SCORES
    return node * len(nodes.log_f) + _CUT * nodes.work + _FAMILY


def _sizes(row: TokenClasses) -> tuple[np.ndarray, np.ndarray]:
    """Return the log of a bound on each group's weight, and of its weight at one deviation.

    The bound holds but for a chance of 10⁻⁴⁴, and is ∞ if unknown. The weight at one standard
    deviation of the score only ranks the groups, and is −∞ if unknown.
    """
    # One enclosure of |f| over the scores of all classes at once bounds thousands of laws for the
    # price of a call. It takes one kernel and one law of scores: other classes stay unknown.
    beta, gamma = (np.array([law[i] for law in row.classes]) for i in (1, 2))
    most, (kernel, _, _, scores) = np.full(len(beta), np.inf), row.classes[0]
    typical = np.full(len(beta), -np.inf)
    same = np.array([law[0] == kernel and law[3] == scores for law in row.classes])
    ends = (-_FAR, _FAR) if scores is None else scores.ends
    if np.all(np.isfinite(ends)):
        low, high = (end * gamma[same] * (1 + 1e-9) for end in ends)
        known = definition(kernel)
        with np.errstate(all="ignore"):
            bound = known.bounds_on_segments(beta[same], Interval.between(low, high), False)[1]
            near = [known.values_at(beta[same], Approx(x)).log for x in (gamma[same], -gamma[same])]
        typical[same] = np.nan_to_num(np.max(near, axis=0), nan=-np.inf)
        most[same] = np.where(np.isnan(bound), np.inf, bound)
    return row.log_w + most[row.member], row.log_w + typical[row.member]


def light_groups(row: TokenClasses, c: int, k: Orders) -> tuple[np.ndarray, float]:
    """Return which groups are nothing wherever the row has an integrand left, and the last u.

    The row has no integrand left beyond the u at which its heaviest tokens alone leave none, as
    φ ≤ 1 for all others. Before that u a light token enters every sum by E min(x, 1)^order at most,
    which is largest at that u.
    """
    if len(row.classes) <= FEW_LAWS:
        return np.zeros(row.count.shape, dtype=bool), math.inf
    sizes, typical = _sizes(row)
    heaviest = np.argsort(-typical)[:_HEAVY]
    groups = [row.classes[row.member[i]] for i in heaviest]
    refuse_slow("length", row.n, len(groups) * _seconds(groups[0], c, k))
    laws = [_law(group, c, k) for group in groups]
    # The search starts at the u at which the largest node of all has x = 1: there, and below, each
    # of these φ is at least 1/e.
    tops = [
        c * row.log_w[i] + law.law_nodes.c_log_f[-1] for i, law in zip(heaviest, laws, strict=True)
    ]
    u = np.arange(-max(tops), -max(tops) + 400.0)
    log_phi = sum(
        row.count[i] * law.law_nodes.log_phi(u + c * row.log_w[i])
        for i, law in zip(heaviest, laws, strict=True)
    )
    # 3 ln n more than DEEP, as sums over tokens, and over pairs of them, stand beside Πφ.
    tokens = math.log(row.count.sum())
    gone = np.flatnonzero(log_phi < -DEEP - 3 * tokens)
    end = float(u[gone[0]]) if len(gone) else math.inf
    # Beside a weight that has more than a tiny chance, one of 10⁻⁴⁴ is none.
    seen = any(law.top + math.log(law.p_nonzero) > math.log(_RARE) for law in laws)
    with np.errstate(invalid="ignore"):
        size = min(1.0, *map(order_of, k[1:])) * (end + c * sizes)
        size = np.where(seen & (sizes == -np.inf), -np.inf, size)
    return (np.maximum(row.sink, row.needle) == 0) & (size < -DEEP - tokens), end


def _merge_single_laws(every: list[InterpolatedLaws]) -> list[InterpolatedLaws]:
    """Return the pieces, those of one law each together where these laws share their nodes."""
    # A piece per class, as of rows of a few classes, would be one transform each; laws that share
    # nodes are columns of one product instead.
    merged, shared = [], {}
    for piece in every:
        kernel, beta, gamma, scores = piece.laws[0]
        near = reference(kernel, beta, gamma, scores) if piece.matrix is None else None
        if near is None:
            merged.append(piece)
        else:
            shared.setdefault((kernel, near), []).append(piece)
    for same in shared.values():
        members = np.concatenate([piece.members for piece in same])
        merged.append(InterpolatedLaws(members, [law for piece in same for law in piece.laws]))
    return merged


def relevant_pieces(
    row: TokenClasses, c: int, k: Orders
) -> list[tuple[InterpolatedLaws, list[Laplace]]]:
    """Return pieces and their laws, without those that are together too rarely nonzero to matter.

    Raises:
        TooFine: so many laws that they take more than seconds.
    """
    every, longest = _merge_single_laws(list(pieces(row.classes))), float(row.count.sum())
    laws = {law for piece in every for law in piece.laws}
    # The work is told from three laws before all are made: nodes vary slowly along a row.
    references = {(law[0], reference(*law) or law[1:]) for law in laws}
    samples = {every[0].laws[0], every[len(every) // 2].laws[0], every[-1].laws[0]}
    seconds = sum(_seconds(one, c, k) for one in samples) / len(samples)
    refuse_slow("length", row.n, seconds * len(references) + _LAW * len(laws))
    times = np.bincount(row.member, row.count)
    pairs = [(piece, [_law(one, c, k) for one in piece.laws]) for piece in every]
    chances = []  # log P(f ≠ 0) of a token at the likelier end of a piece
    for piece, of_piece in pairs:
        ends = of_piece if piece.matrix is None else [of_piece[0], of_piece[-1]]
        chances.append(max(math.log(law.p_nonzero) + law.top for law in ends))
    # A piece that is nonzero n/TAIL times more rarely than another changes rows, of which n_eff is
    # at most n, by less than TAIL; ten e-folds are for both being rough.
    margin = math.log(longest / TAIL) + 10
    return [
        pair
        for pair, chance in zip(pairs, chances, strict=True)
        if chance + math.log(times[pair[0].members].sum()) + margin > max(chances)
    ]
