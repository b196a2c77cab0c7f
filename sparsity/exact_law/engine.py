"""The exact law of rows of n tokens: any kernel, any steps, any quantity that has an integral.

Every quantity is one integral over u = ln t (`quantities.Integral`). The integrand is analytic in a
strip of half-width π/2, and the trapezoidal rule converges like e^(−π²/step). The bound holds the
same rule at twice the step, the inner integrals, and the interpolation between tokens.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from sparsity.errors import InputError
from sparsity.exact_law import sink_chance, transforms
from sparsity.exact_law.laplace import TAIL, Laplace, family, laplace
from sparsity.exact_law.ranked import ranked
from sparsity.exact_law.transforms import SLOW, STEP, Sums, log_rest
from sparsity.exact_law.work import plan
from sparsity.kernels.base import Kernel
from sparsity.kernels.parameters import LENGTH
from sparsity.quantities import Integral, Layers, Quantity
from sparsity.quantities.base import within
from sparsity.rows.classes import (
    TokenClasses,
    classed,
    identical_tokens,
    no_sink,
    reduced,
    rescaled,
)
from sparsity.rows.row import Row

ALIKE = 0.16  # step of u where all tokens are alike, and nothing is interpolated
_DEEPEST = 1e-290  # of a transform
_AT_ONCE = 128  # laws
_BLOCK = 2**17  # numbers of an integrand held at once
_CLASS = 2e-5  # seconds of a law, whatever is left of it; measured
_BEYOND = 10.0  # of u: more than the integral beyond its range is, over the integrand at the end


def integrated(
    sums: Sums, body: np.ndarray, step: float, beyond: float = 0.0
) -> tuple[np.ndarray, np.ndarray]:
    """∫ body du over P(row ≠ 0) of its first version, and a bound on its relative error.

    Args:
        sums: what the body was made of.
        body: [versions, ..., points].
        step: of u.
        beyond: by how much the integral of |body| may exceed that of the body.
    """
    fine = body[0].sum(axis=-1) * step / sums.p_row[0]
    gap = np.abs(fine - body[0, ..., ::2].sum(axis=-1) * 2 * step / sums.p_row[0])
    for other, p_row in zip(body[1:], sums.p_row[1:], strict=True):
        gap = gap + np.abs(fine - other.sum(axis=-1) * step / p_row)
    ends = np.abs(body[0, ..., 0]) + np.abs(body[0, ..., -2])  # it falls on beyond them
    gap = gap + _BEYOND * ends / sums.p_row[0]
    with np.errstate(divide="ignore", invalid="ignore"):
        inner = (sums.error + 100 * TAIL) * (fine + beyond)
        return fine, np.where(fine > 0, (gap + inner) / fine, np.inf)


def _certain(p: np.ndarray, rounding: float) -> np.ndarray:
    """Probabilities, 1 where only rounding keeps them from that."""
    return np.where(p > 1 - rounding, 1.0, p)


def _p_single(one: Laplace) -> np.ndarray:
    """P(f ≠ 0) of one token."""
    return np.where(one.p_zero > 0.5, one.p_nonzero * np.exp(one.top), 1 - one.p_zero)


def _channels(integral: Integral, row: TokenClasses) -> list[transforms.Channel]:
    whose = {"token": row.token, "sink": row.sink}
    return [(function, whose[who]) for function, who in integral.sums]


def _one(row: Row, integral: Integral, n: int, longest: float) -> tuple[float, float, float]:
    """(value, P(row ≠ 0), relative error bound) of a row of n whose tokens may differ."""
    given = rescaled(classed(row, n), integral.units)
    seen, unit = float(given.token.sum()), not given.token.all()
    order, power = integral.moments, integral.power
    ends = integral.ends(n, seen, unit)
    if ends[0] == ends[1]:  # a token that has all the weight there is, whatever it is
        kernel, beta, gamma, scores = given.classes[0]
        one = laplace(kernel, beta, gamma, power, order, scores)
        return ends[0], float(_p_single(one)), 0.0
    reach = SLOW if integral.slow else 0.0
    sums = transforms.sums(given, power, order, _channels(integral, given), longest, reach=reach)
    scale = np.exp(sums.top)
    body = integral.combine(scale, *sums.channels) * np.exp(sums.log_phi)
    value, error = map(float, integrated(sums, body, STEP, integral.beyond))
    value *= integral.factor(n)
    value = float(within(value, error, ends))
    return value, float(_certain(sums.p_row[0] * scale, 1e-15)), error


def _alike(laws: Laplace, integral: Integral, n: np.ndarray) -> list[np.ndarray]:
    """The same for rows of n equal tokens and no unit, [laws, lengths]; the laws share nodes."""
    low, high = laws.range(float(n.max()), float(n.min()))
    low -= SLOW if integral.slow else 0.0
    psi, (phi, *moments) = laws(np.arange(low, high + 2 * ALIKE, ALIKE))
    scale, p_single, p_zero = (x[:, None] for x in (np.exp(laws.top), _p_single(laws), laws.p_zero))
    missing = np.minimum(psi * scale, 1.0)
    with np.errstate(divide="ignore"):
        log_phi = log_rest(missing, np.maximum(phi * scale + p_zero, _DEEPEST))
        log_none = n * log_rest(p_single, p_zero)
    rare = scale < _DEEPEST
    p_row = np.where(rare, n * laws.p_nonzero[:, None], -np.expm1(log_none) / (scale + rare))
    over = np.exp(-log_phi)
    sums = [function(*(m * over for m in moments))[:, None] for function, _ in integral.sums]
    values, errors = np.empty(p_row.shape), np.empty(p_row.shape)
    step = max(1, _BLOCK // log_phi.size)
    for start in range(0, len(n), step):
        part = slice(start, start + step)
        m = n[part, None]
        body = integral.combine(scale[..., None], *(m * x for x in sums))
        body *= np.exp(m * log_phi[:, None])
        found = Sums(log_phi, np.empty(0), p_row[None, :, part], 0.0, laws.rounding)
        values[:, part], errors[:, part] = integrated(found, body[None], ALIKE, integral.beyond)
    factor, *ends = np.array([(integral.factor(m), *integral.ends(m, m, False)) for m in n]).T
    single = n == 1
    values[:, single], errors[:, single] = ends[0][single] / factor[single], 0.0
    values = within(values * factor, errors, ends)
    return [values, _certain(p_row * scale, 1e-15), errors]


def laws(
    kernel: Kernel, beta: np.ndarray, gamma: np.ndarray, quantity: Quantity, length: Any
) -> list[np.ndarray]:
    """As `law` for rows without steps, of many β and γ at once: [laws, lengths].

    Args:
        kernel: a function of a score.
        beta: biases, [laws].
        gamma: spreads γ > 0, [laws].
        quantity: one with an integral, that needs no sink.
        length: row lengths n, [lengths].
    """
    if quantity.linear is not None:
        own = quantity.linear
        return own.columns(laws(kernel, beta, gamma, own.of, length), np.asarray(length, float))
    integral = _integral(quantity)
    _, *columns = reduced(kernel, beta, gamma)
    found, back = np.unique(np.stack(columns), axis=1, return_inverse=True)
    families: dict[Any, list[int]] = {}
    with np.errstate(over="ignore", invalid="ignore"):
        for i, (b, g) in enumerate(found.T.tolist()):
            families.setdefault(family(kernel, b, g, None, integral.power), []).append(i)
        out = np.empty((3, found.shape[1], len(length)))
        for own, members in families.items():
            for start in range(0, len(members), _AT_ONCE):
                part = members[start : start + _AT_ONCE]
                one = Laplace(own, found[0, part], found[1, part], (0.0, *integral.moments))
                out[:, part] = _alike(one, integral, length)
    return list(out[:, back.reshape(-1)])


def _integral(quantity: Quantity) -> Integral:
    if quantity.integral is None:
        raise InputError("of", quantity.name, "has no exact law here; use estimate")
    return quantity.integral


def _ranked(row: Row, quantity: Quantity, layers: Layers, n: np.ndarray) -> tuple[np.ndarray, ...]:
    """The law of what goes by rank, of rows in each of which tokens are alike."""
    if n.size > 1 and not identical_tokens(row, int(n.min()), int(n.max()), units=True):
        each = [_ranked(row, quantity, layers, n[i : i + 1]) for i in range(n.size)]
        return tuple(np.concatenate(columns) for columns in zip(*each, strict=True))
    kernel, beta, gamma, scores = classed(row, int(n.max())).classes[0]
    if scores is not None or not identical_tokens(row, int(n.max()), units=True):
        fix = "its exact law is known for rows of one law of Gaussian scores; use estimate"
        raise InputError("of", quantity.name, fix)
    if gamma == 0:  # all weights are the same
        least = np.array([layers.ends(m)[0] for m in n.tolist()])
        return least, np.ones(n.shape), np.zeros(n.shape)
    return ranked(kernel, beta, gamma, n, layers)


def law(row: Row, quantity: Quantity, length: Any) -> tuple[np.ndarray, ...]:
    """The mean of a quantity over rows of n, exactly.

    Args:
        row: any row whose kernel is a function of a score, and whose scores are independent.
        quantity: one with an integral.
        length: row lengths n, whole numbers ≥ 1, any shape.

    Returns:
        Values, P(the row is not all zero) and bounds on the relative error, in the shape of
        `length`.

    Raises:
        InputError: a quantity without an integral or a sink that it needs, or a bad value.
    """
    n = LENGTH.check(length)
    if not n.size:
        raise InputError("length", length, "give at least one")
    if quantity.linear is not None:
        return tuple(quantity.linear.columns(law(row, quantity.linear.of, n), n))
    flat = n.reshape(-1)
    if quantity.above is not None:
        columns = sink_chance.law(row, quantity.above, flat)
        return tuple(column.reshape(n.shape) for column in columns)
    if quantity.layers is not None:
        columns = _ranked(row, quantity, quantity.layers, flat)
        return tuple(column.reshape(n.shape) for column in columns)
    integral = _integral(quantity)
    longest = float(flat.max())
    with np.errstate(over="ignore", invalid="ignore"):  # far out in the tails, where nothing falls
        first = classed(row, int(longest))
        plan("length", longest, _CLASS * len(first.classes))
        if quantity.sinks and not first.sink.any():
            raise no_sink(row)
        if identical_tokens(row, int(flat.min()), int(longest), units=integral.units):
            kernel, beta, gamma, scores = first.classes[0]
            own = family(kernel, beta, gamma, scores, integral.power)
            one = Laplace(own, [beta], [gamma], (0.0, *integral.moments))
            columns = [column[0] for column in _alike(one, integral, flat)]
        else:
            rows = [_one(row, integral, int(m), longest) for m in flat]
            columns = [np.array(column) for column in zip(*rows, strict=True)]
    return tuple(column.reshape(n.shape) for column in columns)


def shares(row: Row, n: int) -> tuple[tuple[float, float], tuple[float, float]]:
    """Mean share of the sinks and of all others, each with a bound on its relative error."""
    given = rescaled(classed(row, n), units=True)
    who = [(lambda m: m, given.sink), (lambda m: m, given.count - given.sink)]
    sums = transforms.sums(given, 1, (1.0,), who, float(n))
    body = sums.channels * np.exp(sums.log_phi)
    (sinks, off), (others, gap) = (integrated(sums, channel, STEP) for channel in body)
    return (float(sinks), float(off)), (float(others), float(gap))
