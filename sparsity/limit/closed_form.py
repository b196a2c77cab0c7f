"""Closed forms of log S in float64: vectorised, and stable over the whole domain.

Each function is a rearrangement of the form that `sparsity.derivation` derives; the comment above
it leads from one to the other. `python -m benchmarks.accuracy` measures them all against rigorous
balls, and `RELATIVE_ERROR` is the bound that they hold.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from scipy.special import erfc
from sympy import Expr

from sparsity import kernels
from sparsity.errors import NoClosedForm
from sparsity.kernels.base import Kernel
from sparsity.kernels.queries import norm_ratio
from sparsity.limit.relu2_form import relu2

RELATIVE_ERROR = 1e-13  # |Δ log S| ≤ RELATIVE_ERROR · max(1, |log S|)

_PIECE = 2**15  # points
_SQRT_HALF = np.sqrt(0.5)
_SQRT_TAU = np.sqrt(2 * np.pi)


def error_bound(log_S: Any) -> np.ndarray:
    """The bound on |Δ log S| that the closed forms hold: 1e−13 · max(1, |log S|)."""
    bound = np.asarray(np.abs(log_S))  # one array: to make another is half the work
    np.maximum(bound, 1.0, out=bound)
    return np.multiply(bound, RELATIVE_ERROR, out=bound)


def exp(beta: Any, gamma: Any) -> np.ndarray:
    """Log S of a = e^s: −γ²/2, whatever β.

    Args:
        beta: bias β, any shape.
        gamma: spread γ > 0, broadcastable with beta.

    Returns:
        log S, float64 of the broadcast shape.
    """
    _, gamma = np.broadcast_arrays(beta, gamma)
    with np.errstate(over="ignore", under="ignore"):
        return -0.5 * np.square(gamma, dtype=np.float64)


# identity. With a = |z| and L = φ(a) − aΦ(−a) (the normal loss, ≥ 0, vanishing for a → ∞), the
# derived m₁ = √(2/π)e^(−z²/2) + z erf(z/√2) is a + 2L, and m₂ = 1 + a², so
#     m₂ − m₁² = 1 − 4L(a + L)   and   log S = −½ log1p((m₂ − m₁²)/m₁²),
# exact in relative terms for a → ∞, where S → 1, and even in z by construction.
def identity(beta: Any, gamma: Any) -> np.ndarray:
    """Log S of a = s: S = [√(2/π) e^(−z²/2) + z erf(z/√2)] / √(1 + z²), z = β/γ.

    Args:
        beta: bias β, any shape.
        gamma: spread γ > 0, broadcastable with beta.

    Returns:
        log S, float64 of the broadcast shape.
    """
    with np.errstate(over="ignore", under="ignore"):
        a = np.minimum(np.abs(np.divide(beta, gamma, dtype=np.float64)), 1e300)
        loss = np.exp(-0.5 * a * a) / _SQRT_TAU - 0.5 * a * erfc(a * _SQRT_HALF)
        return -0.5 * np.log1p((1 - 4 * loss * (a + loss)) / np.square(a + 2 * loss))


def nonnegative(ratio: Any, dim: Any, query: str) -> np.ndarray:
    """Log S of a = q̃ᵀk̃ with i.i.d. features: S = 1/√(1 + x²), x = (σ̃/μ̃)·‖q̃‖₂/‖q̃‖₁.

    Args:
        ratio: noise-to-signal ratio σ̃/μ̃ > 0 of one feature, any shape.
        dim: dimension d ≥ 1, broadcastable with ratio.
        query: name of the query family, see `sparsity.kernels.queries`.

    Returns:
        log S, float64 of the broadcast shape.
    """
    # √(1 + x²) = max(x, 1)·√(1 + min(x, 1/x)²): x² cannot overflow, small x keep their digits.
    with np.errstate(over="ignore", under="ignore", divide="ignore"):
        x = np.multiply(ratio, norm_ratio(query, dim), dtype=np.float64)
        return -np.log(np.maximum(x, 1)) - 0.5 * np.log1p(np.square(np.minimum(x, 1 / x)))


# decayed. With L = −log λ, 1 − λⁿ = 2e^(−nL/2) sinh(nL/2) and 1 + λⁿ = 2e^(−nL/2) cosh(nL/2), so
# the derived S² = (1−λⁿ)(1+λ)/(n(1−λ)(1+λⁿ)) is tanh(nL/2)/(n tanh(L/2)), and
#     log S = ½[g(L/2) − g(nL/2)],   g(x) = log(x coth x) ≥ 0,
# where x coth x = 1 + x²/(3 + x²/(5 + …)) keeps the digits of g for x → 0: λ = 1 and n = 1 give 0.
def _log_x_coth(x: np.ndarray) -> np.ndarray:
    small = np.minimum(x, 1.0)
    x2 = small * small
    tail = np.full_like(x2, 19.0)
    for odd in range(17, 1, -2):
        tail = odd + x2 / tail
    large = np.maximum(x, 1.0)
    return np.where(x < 1, np.log1p(x2 / tail), np.log(large / np.tanh(large)))


def decayed(decay: Any, length: Any) -> np.ndarray:
    """Log S of a_j = λ^(n−j): S = √[(1−λⁿ)(1+λ) / (n(1−λ)(1+λⁿ))].

    Args:
        decay: λ in (0, 1], any shape.
        length: n ≥ 1, broadcastable with decay.

    Returns:
        log S, float64 of the broadcast shape; exactly 0 for λ = 1 and for n = 1.
    """
    with np.errstate(over="ignore", under="ignore"):
        half = -0.5 * np.log(np.asarray(decay, dtype=np.float64))
        return 0.5 * (_log_x_coth(half) - _log_x_coth(half * length))


# By definition, not by name: a user's own kernel that is one of these gets its form.
FORMS: Mapping[Expr, Callable[..., np.ndarray]] = {
    kernels.exp.weight: exp,
    kernels.relu2.weight: relu2,
    kernels.identity.weight: identity,
    kernels.zoo.absolute.weight: identity,  # S takes |a|
    kernels.nonnegative.weight: nonnegative,
    kernels.decayed.weight: decayed,
}


def _in_pieces(
    of: Callable[..., tuple[np.ndarray, ...]], parameters: Mapping[str, Any], count: int
) -> list[np.ndarray]:
    """Elementwise functions at many points, in pieces that stay in a processor's cache.

    Two threads share the pieces, which do not show in the bits.
    """
    arrays = {name: x for name, x in parameters.items() if not isinstance(x, str)}
    names, shape = parameters.keys() - arrays, np.broadcast_shapes(*map(np.shape, arrays.values()))
    if math.prod(shape) <= _PIECE:
        return list(of(**parameters))
    axis = int(np.argmax(shape))
    size = max(1, _PIECE * shape[axis] // math.prod(shape))
    given = [np.moveaxis(np.broadcast_to(x, shape), axis, 0) for x in arrays.values()]
    out = [np.moveaxis(np.empty(shape), axis, 0) for _ in range(count)]
    same = {name: parameters[name] for name in names}

    def fill(start: int) -> None:
        part = slice(start, start + size)
        own = dict(zip(arrays, (x[part] for x in given), strict=True))
        for whole, piece in zip(out, of(**own, **same), strict=True):
            whole[part] = piece

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(fill, range(0, shape[axis], size)))
    return [np.moveaxis(x, 0, axis) for x in out]


def _log_form(kernel: Kernel) -> Callable[..., np.ndarray]:
    form = FORMS.get(kernel.weight)
    if form is None:
        raise NoClosedForm("lookup", f"no stable form is known for the weight {kernel.weight}")
    return lambda **own: np.minimum(form(**own), 0.0) + 0.0  # + 0.0 turns −0 into 0


def log_sparsity(kernel: Kernel, parameters: Mapping[str, Any]) -> np.ndarray:
    """Log S of a kernel by its stable closed form.

    Args:
        kernel: any kernel.
        parameters: its parameters, as `kernel.bind` returns them.

    Returns:
        log S ≤ 0, float64 of the broadcast shape, within `error_bound` of the truth.

    Raises:
        NoClosedForm: the definition is none of those with a stable form.
    """
    form = _log_form(kernel)
    return np.asarray(_in_pieces(lambda **own: (form(**own),), parameters, 1)[0])


def sparsity(kernel: Kernel, parameters: Mapping[str, Any]) -> tuple[np.ndarray, ...]:
    """S, log S and the bound on |Δ log S|; arguments and what it raises as `log_sparsity`."""
    form = _log_form(kernel)

    def columns(**own: Any) -> tuple[np.ndarray, ...]:
        log_S = form(**own)
        with np.errstate(under="ignore"):
            return np.exp(log_S), log_S, error_bound(log_S)

    S, log_S, bound = _in_pieces(columns, parameters, 3)
    return S, np.asarray(log_S), bound
