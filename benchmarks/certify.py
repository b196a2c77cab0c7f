"""Rigorous values of log S: the derived expression, evaluated in ball arithmetic (Arb).

A ball is a midpoint with a radius that is proven to cover the exact value, for the parameters as
the exact float64 numbers they are. Needs python-flint.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import sympy
from sympy import Expr, Piecewise

from sparsity.kernels import symbols
from sparsity.kernels.base import Kernel, Law

if TYPE_CHECKING:
    from flint import arb

_RADIUS = 1e-20  # a certified ball's radius, in units of max(1, |log S|)
_FIRST_BITS, _LAST_BITS = 96, 3 << 14  # doubled until the radius is reached


def _flint() -> Any:
    try:
        import flint
    except ImportError as error:
        fix = "certified values need python-flint: pip install python-flint"
        raise ImportError(fix) from error
    return flint


# The whole translation: a SymPy node, and what to do with its arguments as balls.
_FUNCTIONS: Mapping[Any, Callable[..., Any]] = {
    sympy.Add: lambda *x: functools.reduce(operator.add, x),
    sympy.Mul: lambda *x: functools.reduce(operator.mul, x),
    sympy.exp: lambda x: x.exp(),
    sympy.log: lambda x: x.log(),
    sympy.erf: lambda x: x.erf(),
    sympy.erfc: lambda x: x.erfc(),
    sympy.sinh: lambda x: x.sinh(),
    sympy.cosh: lambda x: x.cosh(),
    sympy.tanh: lambda x: x.tanh(),
    sympy.Abs: abs,
    sympy.Max: lambda *x: functools.reduce(lambda a, b: a.max(b), x),
    sympy.Min: lambda *x: functools.reduce(lambda a, b: a.min(b), x),
}
_CONSTANTS: Mapping[Any, Callable[[Any], Any]] = {
    sympy.pi: lambda arb: arb.pi(),
    sympy.E: lambda arb: arb(1).exp(),
}
# A comparison of balls is true only where it is certain, so its negation is asked as well.
_RELATIONS: Mapping[Any, tuple[Callable[[Any, Any], Any], Callable[[Any, Any], Any]]] = {
    sympy.Eq: (operator.eq, operator.ne),
    sympy.Ne: (operator.ne, operator.eq),
    sympy.Lt: (operator.lt, operator.ge),
    sympy.Le: (operator.le, operator.gt),
    sympy.Gt: (operator.gt, operator.le),
    sympy.Ge: (operator.ge, operator.lt),
}


def _power(base: Any, exponent: Any, power: Expr) -> Any:
    if power == sympy.S.Half:
        return base.sqrt()
    if power == -sympy.S.Half:
        return base.rsqrt()
    return base ** int(power) if power.is_Integer else base**exponent


def _holds(condition: Any, ball: Callable[[Any], Any]) -> bool:
    if condition in (sympy.true, sympy.false):
        return bool(condition)
    if isinstance(condition, (sympy.And, sympy.Or)):
        return (all if isinstance(condition, sympy.And) else any)(
            _holds(part, ball) for part in condition.args
        )
    yes, no = _RELATIONS[condition.func]
    left, right = map(ball, condition.args)
    if yes(left, right):
        return True
    if no(left, right):
        return False
    raise ArithmeticError(f"{condition} cannot be decided at this precision")


def arb_eval(expression: Expr, values: Mapping[Expr, Any], bits: int) -> arb:
    """A ball that contains the value of an expression.

    Args:
        expression: SymPy expression of +, ·, powers, Piecewise and the functions of `_FUNCTIONS`.
        values: symbol (or any node) -> ball, float or int; floats and ints are exact.
        bits: working precision; the global precision of python-flint is left as it was.

    Returns:
        The ball.

    Raises:
        KeyError: the expression has a symbol without a value, or a function not in the table.
        ArithmeticError: a condition of a Piecewise cannot be decided at this precision.
        ImportError: python-flint is not installed.
    """
    flint = _flint()
    known: dict[Any, Any] = {node: flint.arb(value) for node, value in values.items()}

    def ball(node: Any) -> Any:
        if node not in known:
            known[node] = compute(node)
        return known[node]

    def compute(node: Any) -> Any:
        if node in _CONSTANTS:
            return _CONSTANTS[node](flint.arb)
        if isinstance(node, sympy.Rational):
            return flint.arb(node.p) / flint.arb(node.q)
        if isinstance(node, sympy.Pow):
            return _power(ball(node.base), ball(node.exp), node.exp)
        if isinstance(node, Piecewise):
            pieces: Any = node.args
            return next(ball(value) for value, test in pieces if _holds(test, ball))
        if node.func not in _FUNCTIONS:
            raise KeyError(f"no ball for {node.func.__name__} in {node}")
        return _FUNCTIONS[node.func](*map(ball, node.args))

    with flint.ctx.workprec(bits):
        return ball(expression)


@functools.lru_cache(maxsize=4096)
def _query_sums(query: str, dim: int, bits: int) -> dict[Any, arb]:
    """Σq̃ᵢ and Σq̃ᵢ² of a query family, from its definition, as balls."""
    flint = _flint()
    first = second = flint.arb(1 if query == "one-hot" else dim)
    if query == "half-normal":  # Φ⁻¹(½ + u/2) = √2 erf⁻¹(u) at the mid-points u = (m + ½)/d
        first, second = flint.arb(0), flint.arb(0)
        with flint.ctx.workprec(bits):
            for m in range(dim):
                quantile = (flint.arb(2 * m + 1) / (2 * dim)).erfinv()
                first += quantile
                second += quantile * quantile
            first, second = first * flint.arb(2).sqrt(), 2 * second
    q: Any = sympy.Indexed(symbols.q, symbols.i)
    features = (symbols.i, 1, symbols.d)
    return {sympy.Sum(q, features): first, sympy.Sum(q**2, features): second}


def _certain(log_S: Any) -> bool:
    if not log_S.is_finite():
        return False
    return float(log_S.rad()) <= _RADIUS * max(1.0, abs(float(log_S.mid())))


@functools.lru_cache(maxsize=64)
def _derived(kernel: Kernel) -> Expr:
    from sparsity.derivation import derive

    return derive(kernel).S


def _values(kernel: Kernel, parameters: Mapping[str, Any], bits: int) -> dict[Expr, Any]:
    values: dict[Expr, Any] = {
        p.symbol: int(parameters[p.name]) if p.integer else float(parameters[p.name])
        for p in kernel.parameters
        if p.symbol is not None
    }
    if kernel.law is Law.FEATURES:
        values |= _query_sums(parameters["query"], int(parameters["dim"]), bits)
    return values


def certified_log_sparsity(kernel: Kernel, parameters: Mapping[str, Any]) -> arb:
    """Log S of one point, from the derived expression, to a radius of 1e−20·max(1, |log S|).

    Args:
        kernel: a kernel whose S `sparsity.derivation.derive` finds.
        parameters: its parameters, scalars as `kernel.bind` takes them; floats are exact.

    Returns:
        A ball that contains log S.

    Raises:
        NoClosedForm: S could not be derived.
        ArithmeticError: the radius was not reached at 49152 bits.
        ImportError: python-flint is not installed.
    """
    flint = _flint()
    expression = _derived(kernel)
    bits = _FIRST_BITS
    while bits <= _LAST_BITS:
        try:
            S = arb_eval(expression, _values(kernel, parameters, bits), bits)
        except ArithmeticError:  # undecided, or a division by a ball that still contains 0
            S = flint.arb.nan()
        with flint.ctx.workprec(bits):
            log_S = S.log()
        if _certain(log_S):
            return log_S
        bits *= 2
    raise ArithmeticError(
        f"{kernel.name} at {dict(parameters)}: no certain value at {_LAST_BITS} bits"
    )


def log_errors(kernel: Kernel, log_S: Any, parameters: Mapping[str, Any]) -> np.ndarray:
    """The error of given values of log S: an upper bound on |Δ log S| / max(1, |log S|).

    Args:
        kernel: as for `certified_log_sparsity`.
        log_S: the values to judge, one of each point.
        parameters: as `kernel.bind` returns them, broadcasting to the shape of `log_S`.

    Returns:
        float64 of the shape of `log_S`; inf for a value that is not finite.

    Raises:
        As `certified_log_sparsity`.
    """
    log_S = np.asarray(log_S, dtype=np.float64)
    arrays = {name: np.broadcast_to(value, log_S.shape) for name, value in parameters.items()}
    errors = np.full(log_S.shape, np.inf)
    for index in np.ndindex(log_S.shape):
        if np.isfinite(log_S[index]):
            point = {name: array[index] for name, array in arrays.items()}
            truth = certified_log_sparsity(kernel, point)
            gap = abs(truth - float(log_S[index])).abs_upper()
            errors[index] = float(gap) / max(1.0, float(abs(truth).abs_lower()))
    return errors
