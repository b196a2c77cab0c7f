"""The exact law of rows of n tokens: any kernel, any steps, any quantity that has an integral.

Every quantity is one integral over u = ln t (`quantities.Integral`). The integrand is analytic in a
strip of half-width π/2, and the trapezoidal rule converges like e^(−π²/step). The bound
(`integrate_over_u`) is the sum of the difference to the rule at twice the step, ten times the
integrand at both ends, `LawNodes.transform_error`, an allowance of 100·TAIL for what is left out
and, where a stretch of tokens (of 2 in β/γ or ½ in ln γ: `rows.classes.pieces`) has over 27
classes, the interpolation between tokens.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from sparsity import kernels
from sparsity.errors import InputError
from sparsity.exact_law import below, needle, overlap, sink_chance
from sparsity.exact_law.integration import grid_points, log_complement, refuse_slow
from sparsity.exact_law.keys_for_mass import fewest_keys
from sparsity.exact_law.ranked import LAWS, ranked
from sparsity.exact_law.sums import token_sums
from sparsity.exact_law.sums.token_sums import GRID_STEP, SQRT_REACH, SummedTokens
from sparsity.exact_law.transforms.laplace import Laplace, laplace
from sparsity.exact_law.transforms.nodes import TAIL
from sparsity.exact_law.transforms.shared_nodes import nodes_of_law
from sparsity.kernels.base import Kernel
from sparsity.kernels.numeric.points import EPS
from sparsity.kernels.parameters import LENGTH
from sparsity.limit.long_rows import log_sums
from sparsity.quantities import BelowLaw, Integral, KeysLaw, Quantity, RankLaw
from sparsity.quantities.base import Means, clip_to_range
from sparsity.rows.classes import (
    Class,
    TokenClasses,
    alike_in_sight,
    classify_tokens,
    identical_tokens,
    interpolated,
    reduced,
    refuse_without,
    rescaled,
)
from sparsity.rows.row import Row

STEP_OF_IDENTICAL = 0.16  # of u where all tokens are alike, and nothing is interpolated
_LEAST_TRANSFORM = 1e-290  # the least φ that a logarithm is taken of, and that divides
_LAWS_AT_ONCE = 128  # in one `Laplace`: more of them only hold more memory
_BLOCK = 2**17  # numbers of an integrand held at once
_SECONDS_PER_CLASS = 2e-5  # of tokens, also if it turns out not to count; measured
# What lies beyond an end of the range is at most this many times the integrand there: of a tail
# that falls like e^(−k|u|) it is 1/k times that, and k is ½ for a summand of order √t.
_BEYOND = 10.0
_MOST_LOG = 708.0  # of a float64 with all its digits, and least −_MOST_LOG
_CERTAIN = 1 - 1e-15  # a probability that only rounding keeps from 1


def integrate_over_u(
    sums: SummedTokens, body: np.ndarray, step: float, excess_of_abs: Any = 0.0
) -> tuple[np.ndarray, np.ndarray]:
    """Return ∫ body du over P(row ≠ 0) of its first version, and a bound on its relative error.

    Args:
        sums: the sums over tokens that the body was made of.
        body: the integrand at the points of u, [versions, ..., points].
        step: the distance of two points of u.
        excess_of_abs: by how much the integral of |body| may exceed that of the body.
    """
    # The error of the trapezoidal rule is e^(−π²/step), so that of twice the step is its square
    # root: their difference is the error of the coarse rule, and far above that of the fine one.
    fine = body[0].sum(axis=-1) * step / sums.p_row[0]
    gap = np.abs(fine - body[0, ..., ::2].sum(axis=-1) * 2 * step / sums.p_row[0])
    # The other version has the errors of interpolation put in on purpose: between the laws of
    # tokens, and between points of u.
    for other, p_row in zip(body[1:], sums.p_row[1:], strict=True):
        gap = gap + np.abs(fine - other.sum(axis=-1) * step / p_row)
    # The grid ends where little is left, and the integrand falls on beyond. Tables of tokens have a
    # 0 at their last point (`token_sums`), so that the one before it tells the size.
    ends = np.abs(body[0, ..., 0]) + np.abs(body[0, ..., -2])
    gap = gap + _BEYOND * ends / sums.p_row[0]
    with np.errstate(divide="ignore", invalid="ignore"):
        # Inner errors are relative to the parts of the body, which may cancel (entropy has a ln x):
        # they count by the integral of its absolute value. 100·TAIL is an allowance, not a count:
        # some ten places leave out a TAIL each (light groups and pieces of tokens, ends of u, of
        # tables and of a law's nodes, series).
        inner = (sums.transform_error + 100 * TAIL) * (fine + excess_of_abs)
        return fine, np.where(fine > 0, (gap + inner) / fine, np.inf)


def _p_nonzero(one: Laplace) -> np.ndarray:
    """Return P(f ≠ 0) of one token."""
    # Whichever of the two chances is small has all its digits.
    return np.where(one.p_zero > 0.5, one.p_nonzero * np.exp(one.top), 1 - one.p_zero)


def _of_different_tokens(
    given: TokenClasses, integral: Integral, longest: float
) -> tuple[float, float, float]:
    """Return (value, P(row ≠ 0), relative error bound) of a row whose tokens may differ."""
    n, given = given.n, rescaled(given, integral.units)
    ends = integral.ends(n, float(given.token.sum()), not given.token.all())
    order, power = integral.moments, integral.power
    if ends[0] == ends[1]:  # a token that has all the weight there is, whatever it is
        kernel, beta, gamma, scores = given.classes[0]
        one = laplace(kernel, beta, gamma, power, order, scores)
        return ends[0], float(_p_nonzero(one)), 0.0
    channels = [(function, given.of(who)) for function, who in integral.sums]
    reach = SQRT_REACH if integral.sqrt_tail else 0.0
    sums = token_sums.sums(given, power, order, channels, longest, reach=reach)
    # φ, moments and P(row ≠ 0) are all over e^top, so that rows of weights that are hardly ever
    # nonzero stay within float64: the scale cancels in the quotient of the integral and p_row.
    scale = np.exp(sums.top)
    body = integral.combine(scale, *sums.channels) * np.exp(sums.log_phi)
    integrals = integrate_over_u(sums, body, GRID_STEP, integral.excess_of_abs(n))
    value, error = map(float, integrals)
    value = float(clip_to_range(value * integral.factor(n), error, ends))
    p_row = sums.p_row[0] * scale
    return value, float(np.where(p_row > _CERTAIN, 1.0, p_row)), error


def _of_identical_tokens(laws: Laplace, integral: Integral, n: np.ndarray) -> list[np.ndarray]:
    """Return value, P(row ≠ 0) and error of rows of n equal tokens and no unit, [laws, lengths].

    The laws share nodes, so that their transforms are one product, and Σ log φ is n log φ.
    """
    # One grid of u serves all lengths: from where the longest row has mass to where the shortest
    # has none. At these points nothing turns on n but powers, so that a length costs no transform.
    low, high = laws.range(float(n.max()), float(n.min()))
    low -= SQRT_REACH if integral.sqrt_tail else 0.0
    step = STEP_OF_IDENTICAL
    psi, (phi, *moments) = laws.at(grid_points(low, high + 2 * step, step))
    scale, p_one, p_zero = (x[:, None] for x in (np.exp(laws.top), _p_nonzero(laws), laws.p_zero))
    missing = np.minimum(psi * scale, 1.0)
    with np.errstate(divide="ignore"):
        log_phi = log_complement(missing, np.maximum(phi * scale + p_zero, _LEAST_TRANSFORM))
        log_none = n * log_complement(p_one, p_zero)
    # 1 − P(f = 0)^n over the scale. Where float64 cannot divide by the scale, two weights are never
    # nonzero together, and n times the chance of one is the same to all digits.
    rare = scale < _LEAST_TRANSFORM
    p_row = np.where(rare, n * laws.p_nonzero[:, None], -np.expm1(log_none) / (scale + rare))
    over = np.exp(-log_phi)
    sums = [function(*(m * over for m in moments))[:, None] for function, _ in integral.sums]
    values, errors = np.empty(p_row.shape), np.empty(p_row.shape)
    size = max(1, _BLOCK // log_phi.size)
    for start in range(0, len(n), size):
        part = slice(start, start + size)
        m = n[part, None]
        body = integral.combine(scale[..., None], *(m * x for x in sums))
        body *= np.exp(m * log_phi[:, None])
        error = laws.law_nodes.transform_error
        summed = SummedTokens(log_phi, np.empty(0), p_row[None, :, part], 0.0, error)
        excess = np.array([integral.excess_of_abs(length) for length in n[part].tolist()])
        integrals = integrate_over_u(summed, body[None], step, excess)
        values[:, part], errors[:, part] = integrals
    factor, *ends = np.array([(integral.factor(m), *integral.ends(m, m, False)) for m in n]).T
    single = n == 1
    values[:, single], errors[:, single] = ends[0][single] / factor[single], 0.0
    values = clip_to_range(values * factor, errors, ends)
    return [values, np.where(p_row * scale > _CERTAIN, 1.0, p_row * scale), errors]


def _integral_of(quantity: Quantity) -> Integral:
    """Return the integral of a quantity; refuse one that has none."""
    if quantity.integral is None:
        raise InputError("of", quantity.name, "has no exact law here; use estimate")
    return quantity.integral


def means_over_grid(
    kernel: Kernel, beta: np.ndarray, gamma: np.ndarray, quantity: Quantity, length: Any
) -> Means:
    """Return `mean_over_rows` of rows without steps, of many β and γ at once: [laws, lengths].

    Args:
        kernel: a function of a score.
        beta: biases, [laws].
        gamma: spreads γ > 0, [laws].
        quantity: one with an integral, that needs neither a sink nor a needle.
        length: row lengths n, [lengths].
    """
    if quantity.linear is not None:
        image = quantity.linear
        of_other = means_over_grid(kernel, beta, gamma, image.of, length)
        return image.means(of_other, np.asarray(length, float))
    integral = _integral_of(quantity)
    _, *columns = reduced(kernel, beta, gamma)
    unique, back = np.unique(np.stack(columns), axis=1, return_inverse=True)
    by_nodes: dict[Any, list[int]] = {}
    # Laws with the same symmetries are one law, and those near each other share their nodes.
    with np.errstate(over="ignore", invalid="ignore"):
        for i, (b, g) in enumerate(unique.T.tolist()):
            by_nodes.setdefault(nodes_of_law(kernel, b, g, None, integral.power), []).append(i)
        out = np.empty((3, unique.shape[1], len(length)))
        for shared, members in by_nodes.items():
            for start in range(0, len(members), _LAWS_AT_ONCE):
                part = members[start : start + _LAWS_AT_ONCE]
                one = Laplace(shared, unique[0, part], unique[1, part], (0.0, *integral.moments))
                out[:, part] = _of_identical_tokens(one, integral, length)
    return Means(*out[:, back.ravel()])


def _of_ranks(
    row: Row, quantity: Quantity, of: RankLaw | KeysLaw | BelowLaw, n: np.ndarray
) -> Means:
    """Return the law of what goes by rank, of rows in each of which tokens are alike."""
    # Steps may give the tokens another law at each length: then each length is a law of its own.
    if n.size > 1 and not identical_tokens(row, int(n.min()), int(n.max()), units=True):
        by_length = [_of_ranks(row, quantity, of, n[i : i + 1]) for i in range(n.size)]
        return Means(*map(np.concatenate, zip(*by_length, strict=True)))
    given = classify_tokens(row, int(n.max()))
    kernel, beta, gamma, scores = given.classes[0]
    if scores is not None or not alike_in_sight(given):
        fix = "its exact law is known for rows of one law of Gaussian scores; use estimate"
        raise InputError("of", quantity.name, fix)
    seen = float(given.count.sum())
    share = seen / given.n  # below 1 only where there is one length
    m = n if share == 1 else np.array([seen])
    if gamma == 0:  # all weights are the same
        value = np.array([of.alike(x) for x in m.tolist()], float)
        p_row, error = np.ones(n.shape), np.zeros(n.shape)
    elif isinstance(of, KeysLaw):
        value, p_row, error = fewest_keys(kernel, beta, gamma, m, of)
    elif isinstance(of, BelowLaw):
        value, p_row, error = below.of_independent(kernel, beta, gamma, m, of)
    else:
        value, p_row, error = ranked(kernel, beta, gamma, m, of)
    if share == 1:
        return Means(value, p_row, error)
    of_all = of.beside_hidden(value, share)
    return Means(of_all, p_row, of.beside_hidden(value * (1 + error), share) / of_all - 1)


def _of_integral(row: Row, quantity: Quantity, n: np.ndarray) -> Means:
    """Return the law of a quantity that has an integral over u."""
    integral, longest = _integral_of(quantity), float(n.max())
    with np.errstate(over="ignore", invalid="ignore"):  # far out in the tails, where nothing falls
        first = classify_tokens(row, int(longest), quantity.token)
        refuse_slow("length", longest, _SECONDS_PER_CLASS * len(first.classes))
        if quantity.needs is not None:
            refuse_without(row, quantity.needs, first.of(quantity.needs))
        alike = identical_tokens(row, int(n.min()), int(longest), units=integral.units)
        if alike and quantity.token is None:
            kernel, beta, gamma, scores = first.classes[0]
            shared = nodes_of_law(kernel, beta, gamma, scores, integral.power)
            one = Laplace(shared, [beta], [gamma], (0.0, *integral.moments))
            return Means(*(x[0] for x in _of_identical_tokens(one, integral, n)))
        classes = (
            first if m == longest else classify_tokens(row, int(m), quantity.token)
            for m in n.tolist()
        )
        rows = [_of_different_tokens(given, integral, longest) for given in classes]
        return Means(*map(np.array, zip(*rows, strict=True)))


def _p_row(given: TokenClasses) -> tuple[float, float]:
    """Return P(the row is not all zero), and a bound on its relative error."""

    def log_zero(law: Class) -> np.ndarray:
        kernel, beta, gamma, scores = law
        one = laplace(kernel, beta, gamma, 1, (0.0,), scores)
        return log_complement(_p_nonzero(one), one.p_zero)[None]

    with np.errstate(divide="ignore"):
        if log_zero(given.classes[0])[0] == -np.inf:  # and so is the row of one such token
            return 1.0, 0.0
        logs, off = interpolated(given.classes, log_zero)
    log_none = float(given.token @ logs[given.member, 0])
    return -math.expm1(log_none), given.n * off / max(abs(log_none), _LEAST_TRANSFORM)


def _of_moment(row: Row, quantity: Quantity, power: int, n: np.ndarray) -> Means:
    """Return the law of Σ|a|^p of weights as they are: its mean is the sum of their means."""
    means = []
    for length in n.tolist():
        given = classify_tokens(row, int(length))
        refuse_slow("length", int(length), _SECONDS_PER_CLASS * len(given.classes))
        given = given.subset(given.token > 0)
        (log_sum, error), *_ = log_sums(given, (power,))
        p_row, off = _p_row(given)
        if p_row < given.n * math.exp(-_MOST_LOG):  # a chance without all its digits, or 0
            raise InputError("row", row, "is hardly ever other than 0; give a larger beta or gamma")
        log_sum += power * math.log(row.tokens(length).gate) - math.log(p_row)
        if abs(log_sum) > _MOST_LOG:
            fix = f"is e^{log_sum:.6g}, beyond float64; give another gamma or beta"
            raise InputError("of", quantity.name, fix)
        means.append((math.exp(log_sum), p_row, error + off + 4 * EPS * (1 + abs(log_sum))))
    return Means(*np.array(means).T)


def has_law(kernel: Kernel, quantity: Quantity) -> bool:
    """Return whether the law of a quantity is known for a kernel, in some rows at least.

    What is an integral over u is known for every kernel. Chances need the transform of a weight at
    complex places, and ranks its distribution function, which a few kernels have.
    """
    of = quantity if quantity.linear is None else quantity.linear.of
    if of.above is not None:
        return sink_chance.has_law(kernel)
    if of.needle_law is not None:
        return needle.has_law(kernel, of.needle_law)
    if of.rank_law is not None:
        return kernel.weight in LAWS
    if of.pair is not None:
        return kernel.weight == kernels.exp.weight
    return of.integral is not None or of.moment is not None


def mean_over_rows(row: Row, quantity: Quantity, length: Any) -> Means:
    """Return the mean of a quantity over rows of n, exactly.

    Args:
        row: any row whose kernel is a function of a score, and whose scores are independent.
        quantity: one with an integral.
        length: row lengths n, whole numbers ≥ 1, any shape.

    Returns:
        Values, P(the row is not all zero) and bounds on the relative error, in the shape of
        `length`.

    Raises:
        InputError: a quantity without an integral, a sink or a needle that is not there, or a bad
            value.
    """
    n = LENGTH.check(length)
    if not n.size:
        raise InputError("length", length, "give at least one")
    if quantity.linear is not None:
        return quantity.linear.means(mean_over_rows(row, quantity.linear.of, n), n)
    flat = n.ravel()
    if quantity.above is not None:
        means = sink_chance.chances_by_length(row, quantity.above, flat, quantity.name)
    elif quantity.needle_law is not None:
        means = needle.chances_by_length(row, quantity, flat)
    elif quantity.pair is not None:
        means = overlap.mean_over_pairs(row, quantity, flat)
    elif quantity.rank_law is not None:
        means = _of_ranks(row, quantity, quantity.rank_law, flat)
    elif quantity.moment is not None:
        means = _of_moment(row, quantity, quantity.moment, flat)
    else:
        means = _of_integral(row, quantity, flat)
    return Means(*(x.reshape(n.shape) for x in means))


def shares(row: Row, n: int) -> tuple[tuple[float, float], tuple[float, float]]:
    """Return the mean share of the sinks and of all others, each with a relative error bound."""
    given = rescaled(classify_tokens(row, n), units=True)
    who = [(lambda m: m, given.sink), (lambda m: m, given.count - given.sink)]
    sums = token_sums.sums(given, 1, (1.0,), who, float(n))
    body = sums.channels * np.exp(sums.log_phi)
    (sinks, off), (others, gap) = (integrate_over_u(sums, channel, GRID_STEP) for channel in body)
    return (float(sinks), float(off)), (float(others), float(gap))
