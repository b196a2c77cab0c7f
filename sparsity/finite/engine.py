"""The exact law of rows of n tokens: any kernel, any steps, any quantity that has an integral.

Every quantity is one integral over u = ln t (`quantities.Integral`). The integrand is analytic in a
strip of half-width π/2, and the trapezoidal rule converges like e^(−π²/step). The bound holds the
same rule at twice the step, the inner integrals, and the interpolation between tokens.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from sparsity.errors import InputError
from sparsity.finite import transforms
from sparsity.finite.laplace import TAIL, Laplace, laplace
from sparsity.finite.transforms import SLOW, STEP, Sums
from sparsity.kernels.parameters import LENGTH
from sparsity.quantities import Integral, Quantity
from sparsity.rows.classes import Classed, alike, classed, no_sink, relative
from sparsity.rows.row import Row

ALIKE = 0.16  # step of u where all tokens are alike, and nothing is interpolated
_DEEPEST = 1e-290  # of a transform
_BEYOND = 10.0  # of u: more than the integral beyond its range is, over the integrand at the end


def integrated(sums: Sums, body: np.ndarray, step: float) -> tuple[float, float]:
    """∫ body du over P(row ≠ 0) of its first version, and a bound on its relative error.

    Args:
        sums: what the body was made of.
        body: [versions, points].
        step: of u.
    """
    fine = float(body[0].sum()) * step / sums.p_row[0]
    others = [float(body[0, ::2].sum()) * 2 * step / sums.p_row[0]]
    for other, p_row in zip(body[1:], sums.p_row[1:], strict=True):
        others.append(float(other.sum()) * step / p_row)
    gap = sum(abs(fine - other) for other in others)
    ends = np.abs(body[0, [0, -2]]).sum() / sums.p_row[0]  # the integrand falls on beyond them
    gap += _BEYOND * float(ends)
    return fine, (gap / fine if fine > 0 else math.inf) + sums.error + 100 * TAIL


def _p_single(one: Laplace) -> float:
    """P(f ≠ 0) of one token; 1 where only rounding keeps it from that."""
    p = one.p_nonzero * float(np.exp(one.top))
    return 1.0 if p > 1 - 1e-13 else p


def _channels(integral: Integral, row: Classed) -> list[transforms.Channel]:
    whose = {"token": row.token, "sink": row.sink}
    return [(function, whose[who]) for function, who in integral.sums]


def _one(row: Row, integral: Integral, n: int, longest: float) -> tuple[float, float, float]:
    """(value, P(row ≠ 0), relative error bound) of a row of n whose tokens may differ."""
    given = relative(classed(row, n), integral.units)
    seen = float(given.token.sum())
    order, power = integral.moments, integral.power
    if seen == 1 and len(given.count) == 1:  # it has all the weight there is, whatever it is
        kernel, beta, gamma, dim = given.classes[0]
        return integral.alone(n), _p_single(laplace(kernel, beta, gamma, power, order, dim)), 0.0
    reach = SLOW if integral.slow else 0.0
    sums = transforms.sums(given, power, order, _channels(integral, given), longest, reach=reach)
    scale = np.exp(sums.top)
    body = integral.combine(scale, *sums.channels) * np.exp(sums.log_phi)
    value, error = integrated(sums, body, STEP)
    value *= integral.factor(n)
    value = min(max(value, integral.least(n)), integral.most(n, seen))  # rounding
    return value, float(sums.p_row[0] * scale), error


def _alike(given: Classed, integral: Integral, n: np.ndarray) -> list[np.ndarray]:
    """The same for rows of n equal tokens and no unit, all lengths at once."""
    kernel, beta, gamma, dim = given.classes[0]
    order, power = (0.0, *integral.moments), integral.power
    one = laplace(kernel, beta, gamma, power, order, dim)
    low, high = one.range(float(n.max(initial=1.0)))
    low -= SLOW if integral.slow else 0.0
    psi, (phi, *moments) = one(np.arange(low, high + 2 * ALIKE, ALIKE))
    scale, p_single = np.exp(one.top), _p_single(one)
    missing = np.minimum(psi * scale, 1.0)
    with np.errstate(divide="ignore"):
        phi = np.maximum(phi * scale + (1 - p_single), _DEEPEST)
        log_phi = np.where(missing < 0.5, np.log1p(-np.minimum(missing, 0.5)), np.log(phi))
        log_none = n * np.log1p(-p_single)
    p_row = n * one.p_nonzero if scale < _DEEPEST else -np.expm1(log_none) / scale
    ratios = [m * np.exp(-log_phi) for m in moments]
    sums = [function(*ratios) for function, _ in integral.sums]
    values, errors = np.empty(len(n)), np.empty(len(n))
    for i, m in enumerate(n):
        body = integral.combine(scale, *(m * x for x in sums)) * np.exp(m * log_phi)
        found = Sums(log_phi[None], np.empty(0), p_row[i : i + 1], one.top, one.rounding)
        values[i], errors[i] = integrated(found, body[None], ALIKE)
        values[i] = min(max(values[i] * integral.factor(m), integral.least(m)), integral.most(m, m))
    single = n == 1
    values[single], errors[single] = [integral.alone(1.0)] * int(single.sum()), 0.0
    return [values, p_row * scale, errors]


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
    if quantity.integral is None:
        raise InputError("of", quantity.name, "has no exact law here; use estimate")
    n = LENGTH.check(length)
    if not n.size:
        raise InputError("length", length, "give at least one")
    flat = n.reshape(-1)
    longest = float(flat.max())
    with np.errstate(over="ignore", invalid="ignore"):  # far out in the tails, where nothing falls
        first = classed(row, int(longest))
        if quantity.sinks and not first.sink.any():
            raise no_sink(row)
        if alike(row, int(flat.min()), int(longest), units=quantity.integral.units):
            columns = _alike(first, quantity.integral, flat)
        else:
            rows = [_one(row, quantity.integral, int(m), longest) for m in flat]
            columns = [np.array(column) for column in zip(*rows, strict=True)]
    return tuple(column.reshape(n.shape) for column in columns)


def shares(row: Row, n: int) -> tuple[tuple[float, float], tuple[float, float]]:
    """Mean share of the sinks and of all others, each with a bound on its relative error."""
    given = relative(classed(row, n), units=True)
    who = [(lambda m: m, given.sink), (lambda m: m, given.count - given.sink)]
    sums = transforms.sums(given, 1, (1.0,), who, float(n))
    found = [integrated(sums, channel * np.exp(sums.log_phi), STEP) for channel in sums.channels]
    return found[0], found[1]
