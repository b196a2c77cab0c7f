"""The tokens of a row sorted into classes of the same law up to a factor, and few laws for many.

Weights e^s absorb their β into w, homogeneous ones their γ. Where many classes differ in one
parameter only, what depends on the law is interpolated in it: it is analytic there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from sparsity import kernels
from sparsity.errors import InputError
from sparsity.kernels.base import Kernel
from sparsity.kernels.formulas import symmetry
from sparsity.kernels.numeric.definition import definition
from sparsity.kernels.numeric.intervals import Interval
from sparsity.kernels.numeric.points import EPS, Approx
from sparsity.rows.row import Row

Class = tuple[Kernel, float, float, Any]  # kernel, β, γ, law of x in β + γx, None for Gaussian

ANY_LENGTH = 64  # tokens of the row that stands for rows of any length, where tokens are alike
# The polynomial in a parameter has so many nodes over a piece of length 1 of it. More nodes, or
# shorter pieces, cost a transform each. What the polynomial errs is measured at the checks and goes
# into the bound, so that these numbers decide how fast a row is, not whether it is right.
CHEBYSHEV_NODES = 24
_SPREADS = 2.0  # of β/γ is a piece of length 1
_OCTAVE = 0.5  # of ln γ is one
_CHECKS = (0.02, 0.34, 0.71)  # where the polynomial is checked, in pieces from its end


class TokenClasses(NamedTuple):
    """The weights of a row, in groups of equals.

    Args:
        n: tokens, those out of sight included.
        classes: (kernel, β, γ, law of the scores) of each class.
        member: the class of each group, [groups].
        log_w: ln w of each group.
        count: tokens in each group.
        token: tokens of each group that are tokens: `count`, or 0 for a unit.
        sink: weights of each group that are sinks: units included.
        needle: tokens of each group that are the needle: one in all, or none.
    """

    n: int
    classes: list[Class]
    member: np.ndarray
    log_w: np.ndarray
    count: np.ndarray
    token: np.ndarray
    sink: np.ndarray
    needle: np.ndarray

    def of(self, who: str) -> np.ndarray:
        """Return how many weights of each group are a "token", a "sink" or the "needle"."""
        return {"token": self.token, "sink": self.sink, "needle": self.needle}[who]

    def subset(self, kept: np.ndarray) -> TokenClasses:
        """Return some of the groups and the classes that they need; n stays that of the row."""
        used, member = np.unique(self.member[kept], return_inverse=True)
        classes = [self.classes[i] for i in used]
        return TokenClasses(self.n, classes, member.ravel(), *(x[kept] for x in self[3:]))


def classify_tokens(row: Row, length: Any, token: int | None = None) -> TokenClasses:
    """Sort the tokens of a row of n into classes.

    Args:
        row: the row.
        length: n.
        token: j of a token, counted from the first, to stand as the needle; None leaves the row's.

    Raises:
        InputError: a kernel that is not a function of the score, a bad length, or no token in
            sight, or not the one that is asked for.
    """
    kernel, tokens = row.scored().function, row.tokens(length)
    with np.errstate(divide="ignore"):
        log_w = np.log(tokens.w)
    fixed = tokens.gamma == 0
    if fixed.any():  # a fixed score at which f = 0 is out of sight as well
        score = tokens.beta[fixed], Approx(np.zeros(fixed.sum()))
        values = definition(kernel).values_at(*score, fixed=True)
        log_w[fixed] += np.where(values.log > -np.inf, 0, -np.inf)
    if tokens.scores is not None:
        log_w[_vanishing(kernel, tokens.beta, tokens.gamma, tokens.scores.ends)] = -np.inf
    seen = log_w > -np.inf
    if not seen.any():
        raise InputError(
            "row", row, "leaves no token in sight at this length; give a longer row, or fewer steps"
        )
    beta, gamma, log_w = (x[seen] for x in (tokens.beta, tokens.gamma, log_w))
    factor, beta, gamma = reduced(kernel, beta, gamma)
    log_w = log_w + factor
    pairs, member = np.stack([beta, gamma], axis=1), np.zeros(1, dtype=int)
    if len(pairs) > 1:
        pairs, member = np.unique(pairs, axis=0, return_inverse=True)
    classes = [(kernel, b, g, tokens.scores if g else None) for b, g in pairs.tolist()]
    # The weight e^b of a sink logit is that of softmax at a fixed score, whatever the kernel is.
    units = np.array(tokens.units)
    if len(units):
        classes.append((kernels.exp, 0.0, 0.0, None))
    count, one, none = tokens.count[seen], np.ones(len(units)), np.zeros(len(units))
    needle = count * tokens.needle[seen]
    if token is not None:  # one of the group of equals that it is in
        behind = tokens.count.sum() - token - tokens.distance[seen]
        needle = ((behind >= 0) & (behind < count)).astype(float)
        if not needle.any():
            fix = "is not in sight, or of weight 0, in one of these rows; ask for another token"
            raise InputError("of", f"weight:{token}", fix)
    return TokenClasses(
        n=int(tokens.count.sum()),
        classes=classes,
        member=np.concatenate([member.ravel(), np.full(len(units), len(pairs))]).astype(int),
        log_w=np.concatenate([log_w, units]),
        count=np.concatenate([count, one]),
        token=np.concatenate([count, none]),
        sink=np.concatenate([count * tokens.sink[seen], one]),
        needle=np.concatenate([needle, none]),
    )


def _vanishing(
    kernel: Kernel, beta: np.ndarray, gamma: np.ndarray, ends: tuple[float, float]
) -> np.ndarray:
    """Return which tokens have f = 0 at every score that they can have, x between two ends."""
    if not np.all(np.isfinite(ends)):
        return np.zeros(beta.shape, dtype=bool)
    # Scores within bounded ends, under a threshold for instance, can all have weight 0: proven by
    # interval arithmetic, which is why the ends are moved outwards by their rounding.
    low, high = (end * gamma * (1 + 4 * EPS) for end in ends)
    _, most, _ = definition(kernel).bounds_on_segments(beta, Interval.between(low, high), False)
    return np.asarray(most == -np.inf)


def reduced(
    kernel: Kernel, beta: np.ndarray, gamma: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Take the symmetries of the weight out of laws; return the ln w that they leave, β and γ."""
    # f(s) = e^(rs): a bias is a factor e^(rβ). f of degree d: a spread is a factor γ^d, and of a
    # fixed score |β|^d. Tokens under ALiBi are then one law with weights of their own, not n laws.
    exponent, degree = symmetry(kernel.weight)
    if exponent is not None:
        return exponent * beta, np.zeros_like(beta), gamma
    if degree is not None:
        unit = np.where(gamma > 0, gamma, np.abs(beta))
        with np.errstate(over="ignore"):
            scaled = beta / unit
        if np.all(np.isfinite(scaled)):
            return degree * np.log(unit), scaled, gamma / unit
    return np.zeros_like(beta), beta, gamma


_TO_ADD = {"sink": "a SinkLogit or a Sink", "needle": "a Needle"}


def refuse_without(row: Row, who: str | None, there: Any) -> None:
    """Refuse a quantity of a sink or of the needle in a row that has none.

    Args:
        row: the row.
        who: what the quantity needs, "sink" or "needle"; None for nothing.
        there: whether the row has it, one or several.

    Raises:
        InputError: it is needed, and not there.
    """
    if who is not None and not np.any(there):
        fix = f"has no {who} in sight whose weight can be other than 0; add {_TO_ADD[who]}"
        raise InputError("row", row, fix)


def rescaled(given: TokenClasses, units: bool) -> TokenClasses:
    """Scale the largest weight, fixed or typical, to about one; drop units unless they count."""
    if not units and not given.token.all():
        given = given.subset(given.token > 0)
    return given._replace(log_w=given.log_w - given.log_w.max())


def alike_in_sight(given: TokenClasses) -> bool:
    """Return whether all that is in sight are tokens of one law and one factor, and no unit."""
    return len(given.classes) == 1 and not np.ptp(given.log_w) and bool(given.token.all())


def normal_law_in_sight(row: Row, length: int, name: str) -> tuple[float, float]:
    """Return γ of softmax rows whose tokens in sight are alike, and how many there are.

    Raises:
        InputError: another kernel, tokens that differ, or scores that are not Gaussian.
    """
    given = classify_tokens(row, length)
    kernel, _, gamma, scores = given.classes[0]
    if kernel.weight != kernels.exp.weight or scores is not None or not alike_in_sight(given):
        fix = "is known for softmax rows of one law of Gaussian scores; use estimate"
        raise InputError("of", name, fix)
    return gamma, float(given.count.sum())


def identical_tokens(row: Row, *lengths: int, units: bool) -> bool:
    """Return whether all tokens are in sight, of one law, the same at these lengths.

    Args:
        row: the row.
        *lengths: row lengths n.
        units: whether sink logits count: they are no tokens, but stand in some quantities.
    """
    # Without steps nothing depends on the length: one of them stands for all.
    seen: list[list[Class]] = []
    for n in dict.fromkeys(lengths if row.steps else lengths[:1]):
        given = rescaled(classify_tokens(row, n), units)
        if len(given.count) > 1 or given.token[0] != given.n:
            return False
        seen.append(given.classes)
    return all(classes == seen[0] for classes in seen)


def same_at_any_length(row: Row) -> bool:
    """Return whether the tokens are of one law that does not change with the length of the row.

    Its limit S is then the same at every length, and no length has to be given. Two lengths are
    compared: a step that goes by the length tells them apart, as does one that goes by the distance
    within `ANY_LENGTH` tokens.
    """
    return row.length is None and identical_tokens(row, ANY_LENGTH, 2 * ANY_LENGTH, units=False)


def _coordinate(classes: list[Class]) -> np.ndarray | None:
    """Return the one parameter in which classes differ, in units over which they vary smoothly."""
    _, beta, gamma, _ = zip(*classes, strict=True)
    beta, gamma = np.array(beta), np.array(gamma)
    if np.all(gamma == gamma[0]) and gamma[0] > 0:
        return beta / gamma / _SPREADS
    if np.all(beta == beta[0]) and np.all(gamma > 0):
        return np.log(gamma) / _OCTAVE
    return None


class InterpolatedLaws(NamedTuple):
    """Classes whose transforms come from those of a few laws.

    Args:
        members: numbers of the classes.
        laws: the laws to evaluate; with a matrix, the last of them check the interpolation.
        matrix: [members, nodes], or None: the members are the laws.
        check: [checks, nodes], what the last laws should be.
    """

    members: np.ndarray
    laws: list[Class]
    matrix: np.ndarray | None = None
    check: np.ndarray | None = None


def _barycentric(x: np.ndarray, nodes: np.ndarray) -> np.ndarray:
    """Return the matrix from values at Chebyshev's nodes to values at x."""
    # The barycentric formula: it is stable, and 0/0 at a node is replaced by the node's own value.
    i = np.arange(len(nodes))
    sign = (-1.0) ** i * np.sin(np.pi * (i + 0.5) / CHEBYSHEV_NODES)
    gap = x[:, None] - nodes
    hit = gap == 0
    weights = np.where(hit.any(axis=1)[:, None], hit, sign / np.where(hit, 1, gap))
    return weights / weights.sum(axis=1, keepdims=True)


def pieces(classes: list[Class]) -> Iterator[InterpolatedLaws]:
    """Yield few laws for many classes: all, or nodes in the parameter in which they differ."""
    families: dict[Any, list[int]] = {}
    for i, (kernel, _, gamma, scores) in enumerate(classes):
        families.setdefault((kernel, gamma == 0, scores), []).append(i)
    for (_, _, scores), members in families.items():
        family = np.array(members)
        # Below as many classes as nodes and checks, each class by itself is less work.
        smooth = scores is None or scores.smooth
        x = (
            _coordinate([classes[i] for i in family])
            if smooth and len(family) > CHEBYSHEV_NODES + len(_CHECKS)
            else None
        )
        piece = np.arange(len(family)) if x is None else np.floor(x - x.min())
        # Chebyshev's nodes resolve an analytic function over a piece of fixed length; with a spread
        # of many lengths one polynomial over all of it would need ever more nodes.
        for number in np.unique(piece):
            inside = np.flatnonzero(piece == number)
            if x is None or len(inside) <= CHEBYSHEV_NODES + len(_CHECKS):
                yield from (InterpolatedLaws(np.array([i]), [classes[i]]) for i in family[inside])
                continue
            low, high = x[inside].min(), x[inside].max()
            angle = np.pi * (np.arange(CHEBYSHEV_NODES) + 0.5) / CHEBYSHEV_NODES
            nodes = (low + high) / 2 + (high - low) / 2 * np.cos(angle)
            check = high - np.array(_CHECKS) * (high - low)
            kernel, beta, gamma, _ = classes[family[inside[0]]]
            fixed_spread = classes[family[inside[-1]]][2] == gamma
            at: list[Class] = [
                (kernel, _SPREADS * v * gamma, gamma, scores)
                if fixed_spread
                else (kernel, beta, math.exp(_OCTAVE * v), scores)
                for v in (*nodes.tolist(), *check.tolist())
            ]
            matrix = _barycentric(x[inside], nodes)
            yield InterpolatedLaws(family[inside], at, matrix, _barycentric(check, nodes))


def interpolated(
    classes: list[Class], evaluate: Callable[[Class], np.ndarray]
) -> tuple[np.ndarray, float]:
    """Return a function of the law, smooth in its parameters, at every class.

    Args:
        classes: the laws.
        evaluate: law -> [values].

    Returns:
        [classes, values] and the largest error of the interpolation, measured at a point a piece.
    """
    by_class: list[Any] = [None] * len(classes)
    worst = 0.0
    for piece in pieces(classes):
        values = np.stack([evaluate(law) for law in piece.laws])  # [laws, values]
        if piece.matrix is not None and piece.check is not None:
            values, checks = values[:CHEBYSHEV_NODES], values[CHEBYSHEV_NODES:]
            worst = max(worst, float(np.abs(piece.check @ values - checks).max()))
            values = piece.matrix @ values
        for i, value in zip(piece.members, values, strict=True):
            by_class[i] = value
    return np.stack(by_class), worst
