"""From a kernel's definition to code: f and log|f| as functions of NumPy and JAX arrays.

This is all that the numerical routes share: the definition itself, not a result. SymPy's `lambdify`
prints the code. These functions carry no error; those of `sparsity.kernels.numeric` do.
"""

# SymPy annotates arguments and results as Basic; what they are here is known, not inferred.
# pyright: reportArgumentType=false, reportReturnType=false, reportGeneralTypeIssues=false

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import sympy
from sympy import Abs, Expr, Piecewise

from sparsity.errors import InputError
from sparsity.kernels import symbols
from sparsity.kernels.base import Kernel, Law
from sparsity.kernels.row_map import RowMap
from sparsity.kernels.symbols import j, n, s

# Positions enter as the distance n − j to the query: an exact small integer, where j is not.
distance = sympy.Symbol("m", integer=True, nonnegative=True)


_LARGEST_INT = 2**31 - 1  # JAX's integers without float64; NumPy has no function of those above 2⁶³


def with_float_constants(expression: Any) -> Any:
    """Return the expression with large whole constants as floats.

    Arrays of floats would round them so; as whole numbers JAX refuses them, and NumPy turns arrays
    with those beyond 2⁶³ into arrays of Python objects.
    """
    large = {
        part: sympy.Float(part, 17)
        for part in expression.atoms(sympy.Integer)
        if abs(part) > _LARGEST_INT
    }
    return expression.xreplace(large)


def _argument(kernel: Kernel) -> Expr:
    return s if kernel.law is Law.SCORE else distance


def _in_argument(kernel: Kernel) -> Any:
    return kernel.weight.subs(j, n - distance) if kernel.law is Law.POSITION else kernel.weight


def log_abs(weight: Any) -> Expr:
    """Return log|a|, taken inside products, powers and pieces: log e^s is s, without overflow.

    Sums are left alone, whose terms may cancel.
    """
    if weight == 0:
        return sympy.S.NegativeInfinity
    if isinstance(weight, Piecewise):
        pairs: Any = weight.args
        return Piecewise(*((log_abs(branch), condition) for branch, condition in pairs))
    if isinstance(weight, sympy.Mul):
        return sympy.Add(*map(log_abs, weight.args))
    if isinstance(weight, sympy.exp):
        return weight.args[0]
    if isinstance(weight, sympy.Pow) and weight.exp.is_real:
        return weight.exp * log_abs(weight.base)
    return sympy.log(Abs(weight))


def _extra_parameters(kernel: Kernel) -> list[Any]:
    return [] if kernel.law is Law.SCORE else [p.symbol for p in kernel.parameters]


@functools.lru_cache(maxsize=128)
def numpy_log_abs(kernel: Kernel) -> Callable[..., np.ndarray]:
    """Return log|a| as a NumPy function of the score (POSITION: of the distance n − j, λ and n)."""
    raw = numpy_log_abs_as_given(kernel)

    def evaluate(x: Any, *rest: Any) -> np.ndarray:
        x = np.asarray(x, dtype=np.float64)
        with np.errstate(all="ignore"):  # log 0 = −inf is the right answer
            value = np.asarray(raw(x, *rest), dtype=np.float64)
        return np.broadcast_to(value, x.shape) if value.ndim == 0 else value

    return evaluate


@functools.lru_cache(maxsize=128)
def numpy_weight(kernel: Kernel) -> Callable[..., np.ndarray]:
    """Return the weight f as a NumPy function of the score; NaN where f is not real."""
    weight = with_float_constants(kernel.weight)
    raw = sympy.lambdify([_argument(kernel)], weight, ["scipy", "numpy"])

    def evaluate(x: np.ndarray) -> np.ndarray:
        with np.errstate(all="ignore"):
            return np.broadcast_to(np.asarray(raw(x), dtype=np.float64), x.shape)

    return evaluate


@functools.lru_cache(maxsize=128)
def numpy_log_abs_as_given(kernel: Kernel) -> Callable[..., np.ndarray]:
    """Return log|a| in the precision of its argument: a wider one shows what rounding does."""
    arguments = [_argument(kernel), *_extra_parameters(kernel)]
    expression = with_float_constants(log_abs(_in_argument(kernel)))
    return sympy.lambdify(arguments, expression, ["scipy", "numpy"])


_SMALLEST = 1e-300  # of a constant

# λ reaches a device as −log λ: float32 has too few numbers near one.
_rate = sympy.Symbol("rate", nonnegative=True)


def _refuse_lost(expression: Any) -> None:
    """Refuse a constant that float64 would take for zero or for infinity."""
    for part in sympy.preorder_traversal(expression):
        if isinstance(part, sympy.Expr) and part.is_number and part.is_finite and part != 0:
            size = abs(complex(part))
            if not _SMALLEST < size < 1 / _SMALLEST:
                fix = "lies beyond float64, in which rows are sampled; use evaluate or exact laws"
                raise InputError("weight", part, fix)


def _jax_function(kernel: Kernel, lowered: Callable[[Any], Any]) -> Callable[..., Any]:
    import jax
    import jax.scipy.special as jsp

    # By name, since lambdify's printer for JAX writes erf as Python's math.erf.
    special = {name: getattr(jsp, name) for name in ("erf", "erfc", "gammaln", "expit")}
    extra = [_rate if x == symbols.decay else x for x in _extra_parameters(kernel)]
    arguments = [_argument(kernel), *extra]
    expression = lowered(_in_argument(kernel).subs(symbols.decay, sympy.exp(-_rate)))
    _refuse_lost(expression)
    raw = sympy.lambdify(arguments, with_float_constants(expression), [special, "jax"])

    def function(x: Any, *rest: Any) -> Any:
        return jax.numpy.broadcast_to(raw(x, *rest), jax.numpy.shape(x))  # a constant is a number

    # Traced on shapes alone: what JAX lacks is refused here, not in the midst of a run.
    try:
        jax.eval_shape(function, *(jax.ShapeDtypeStruct((1,), "float32") for _ in arguments))
    except (AttributeError, NameError, TypeError) as error:
        fix = f"JAX cannot compute it ({error}); use evaluate, by quadrature"
        raise InputError("weight", kernel.weight, fix) from None
    return function


@functools.lru_cache(maxsize=128)
def jax_weight(kernel: Kernel) -> Callable[..., Any]:
    """Return the weight a as a JAX function of the score (POSITION: of n − j, −log λ and n)."""
    return _jax_function(kernel, lambda weight: weight)


@functools.lru_cache(maxsize=128)
def jax_log_abs(kernel: Kernel) -> Callable[..., Any]:
    """Return log|a| as a JAX function of the score (POSITION: of n − j, −log λ and n)."""
    return _jax_function(kernel, log_abs)


def jax_row(kernel: Kernel | RowMap, scores: Any) -> tuple[Any, Any]:
    """Return the logs of the weights of rows, and of the mass that goes to no key, with JAX.

    Args:
        kernel: a function of the score, or a map of whole rows.
        scores: rows along the last axis; or what else the map's weights are of.

    Returns:
        The logarithms of |f(s)|, or of |p|; and of 1 − Σp, [rows]: None where the weights have no
        total of their own, or add up to 1.
    """
    if isinstance(kernel, Kernel):
        return jax_log_abs(kernel)(scores), None
    import jax.numpy as jnp

    left = None if kernel.residual_mass is None else jnp.log(kernel.residual_mass(scores))
    return jnp.log(jnp.abs(kernel.weights(scores))), left
