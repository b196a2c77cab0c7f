"""What a stack of random attention layers does on average, exactly.

The W_h are centred and independent, so the expected products K_jk = E v_j·v_k obey
    K' = K + w² E[A D K D Aᵀ],   D = diag(g),
whatever the number of heads and the dimension. Scores are independent, so only the first two
moments of a row of A are needed: its mean, E Σα² and the moments of the sink's mass m, one-fold
Laplace integrals like those of `exact`, e.g.
    E m = ∫ x_b e^(−x_b) φⁿ du,   E Σα² = n ∫ E[x² e^(−x)] φ^(n−1) e^(−x_b) du,
with x = e^u f(s), φ = E e^(−x), x_b = e^u f(b).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from sparsity import kernels
from sparsity.attention.stacks.collapse import Collapse
from sparsity.attention.stacks.mixing import LayerSink, Stack
from sparsity.checks import as_float64, check_instance, check_whole
from sparsity.errors import InputError
from sparsity.exact_law.integration import grid_points
from sparsity.exact_law.transforms.laplace import laplace
from sparsity.exact_law.transforms.nodes import too_wide
from sparsity.kernels.base import Kernel
from sparsity.kernels.lowering import numpy_log_abs
from sparsity.kernels.parameters import BETA, GAMMA, LENGTH

_MAX_POINTS = 1e6  # of u, seconds of work
_STEP = 0.1  # of u; the trapezoidal rule errs by e^(−π²/step), 1e-43: the sums round far more


class RowMoments(NamedTuple):
    """Moments of attention rows of n Gaussian scores, beside a sink or not; arrays as n.

    Args:
        mass: E m of the sink, 0 without one.
        mass_square: E m².
        rest: E of what the n others receive together, R.
        rest_square: E R².
        mass_rest: E mR.
        squares: E Σα² over the n others.
    """

    mass: np.ndarray
    mass_square: np.ndarray
    rest: np.ndarray
    rest_square: np.ndarray
    mass_rest: np.ndarray
    squares: np.ndarray


def row_moments(
    kernel: str | Kernel, n: Any, beta: float, gamma: float, sink: LayerSink | None = None
) -> RowMoments:
    """Return the moments of a row of n independent weights f(s_i), s_i ~ N(β, γ²), and a sink.

    Args:
        kernel: one whose weight is nonnegative.
        n: numbers of weights beside the sink, whole, ≥ 1, any shape.
        beta: mean of the scores.
        gamma: their standard deviation, > 0.
        sink: its mass or logit; None for none.

    Raises:
        InputError: a weight that may be negative, or a value outside its domain.
    """
    kernel = kernels.elementwise(kernel)
    if kernel.weight.is_nonnegative is not True:
        fix = "may have negative weights; the law of mixing needs f >= 0, e.g. exp or relu2"
        raise InputError("kernel", kernel.name, fix)
    n, beta, gamma = LENGTH.check(n), BETA.one(beta), GAMMA.one(gamma)
    if sink is not None:
        check_instance("sink", sink, LayerSink, "give a LayerSink, or None")
    # 1/Σ = ∫ e^(−tΣ) dt turns the mean of a share into an integral over u = ln t, in which the mean
    # over independent weights is a product: m = ∫ x_b e^(−x_b) Πe^(−x_i) du, and so for squares.
    flat = n.reshape(-1, 1)
    law = laplace(kernel, beta, gamma, 1, (2.0,))
    low, high = law.range(float(flat.max(initial=1.0)))
    log_b = -np.inf
    if sink is not None and sink.logit is not None:
        log_b = float(numpy_log_abs(kernel)(sink.logit))
    if np.isfinite(log_b):
        # Beyond e^100 times all others it takes everything there is.
        log_b = min(log_b, float(law.law_nodes.c_log_f[-1] + np.log(flat.max(initial=1.0))) + 100.0)
        # x_b e^(−x_b) is below e^(−40) for x_b < e^(−40), and e^(−148) at x_b = e^5.
        low, high = min(low, -log_b - 40.0), max(high, 5.0 - log_b)
    if not high - low < _STEP * _MAX_POINTS:
        raise too_wide(kernel, gamma)
    u = grid_points(low, high + _STEP, _STEP)
    psi, (second,) = law.at(u)
    scale = np.exp(law.top)
    with np.errstate(divide="ignore", under="ignore", over="ignore"):
        log_phi = np.maximum(np.log1p(-np.minimum(psi * scale, 1.0)), -1e3)
        x = np.exp(u + log_b)  # the sink's
        tail = np.exp(-x)
        squares = n * _sum(np.exp((flat - 1) * log_phi) * (tail * second * scale), n)
        # P(a row is not all zero), 1 − P(f = 0)^n.
        some = -np.expm1(n * np.log1p(-min(law.p_nonzero * scale, 1 - 1e-16)))
    if sink is None or sink.mass is not None:
        # A given mass is no random number: the others share 1 − m as a row without a sink shares 1.
        m = 0.0 if sink is None else sink.mass or 0.0
        left = 1 - m
        return RowMoments(
            np.full(n.shape, m),
            np.full(n.shape, m * m),
            left * some,
            left**2 * some,
            m * left * some,
            left**2 * squares,
        )
    with np.errstate(under="ignore"):
        none_else = np.exp(flat * log_phi) * (x * tail)
        mass, mass_square = _sum(none_else, n), _sum(none_else * x, n)
    full = 1.0 if np.isfinite(log_b) else some  # a sink without weight leaves rows all zero
    # R = 1 − m in every row that is not all zero: its moments are those of m.
    return RowMoments(
        mass, mass_square, full - mass, full - 2 * mass + mass_square, mass - mass_square, squares
    )


def _sum(integrand: np.ndarray, n: np.ndarray) -> np.ndarray:
    """Return integrals over u by the trapezoidal rule, in the shape of n."""
    return (integrand.sum(-1) * _STEP).reshape(n.shape)


def gram(stack: Stack, start: np.ndarray) -> Iterator[np.ndarray]:
    """Yield the expected products K_jk = E v_j·v_k before the first and after each layer.

    Args:
        stack: the law; its `heads` and `dim` do not matter.
        start: K of the first tokens, [n, n]; e_i e_iᵀ gives the squared influence of token i.

    Yields:
        K, float64 [n, n], L + 1 times.

    Raises:
        InputError: a kernel with negative weights, or a token-wise branch, which has no such law.
    """
    fix = f"give [{stack.length}, {stack.length}]"
    K = np.array(as_float64(start, "start", fix, texts=False))
    if K.shape != 2 * (stack.length,) or not np.all(np.isfinite(K)):
        raise InputError("start", f"array of shape {K.shape}", fix)
    if stack.branch:
        raise InputError("branch", stack.branch, "must be 0: the law is that of linear layers")
    sink, rows = stack.sink, np.arange(stack.length)
    first = 0 if sink is None else 1  # where the tokens like the others begin
    count = np.maximum(rows + 1.0 - first, 1.0)
    law = row_moments(stack.kernel, count, stack.beta, stack.gamma, sink)
    mass, mass_square, rest, rest_square, mass_rest, squares = map(np.array, law)
    gain = np.ones(stack.length)
    if sink is not None:  # the first row sees the sink alone
        mass[0] = mass_square[0] = 1.0
        rest[0] = rest_square[0] = mass_rest[0] = squares[0] = 0.0
        gain[0] = sink.value
    others = (rows >= first).astype(float)
    # The other tokens of a row have weights of one law: with R = Σα_i and Q = Σα_i² over them, any
    # of them has E R/count, any square E Q/count, any product of two E(R² − Q)/pairs.
    pairs = np.maximum(count * (count - 1), 1.0)

    def mean(x: np.ndarray) -> np.ndarray:
        """Return E[A] x by running sums, for x of shape [n, …]."""
        total = np.cumsum(others[:, None] * x, axis=0)
        return mass[:, None] * x[0] + (rest / count)[:, None] * total

    yield K
    for _ in range(stack.depth):
        x = gain[:, None] * K * gain
        mixed = mean(mean(x).T)  # rows of different tokens are independent
        # One row with itself: sink², sink with others, equal tokens, and different ones. `block` is
        # Σ_{i,k ≤ j} over the others, so that block − trace are the pairs.
        trace = np.cumsum(others * np.diag(x))
        block = np.cumsum(np.cumsum(others[:, None] * x * others, axis=0), axis=1).diagonal()
        np.fill_diagonal(
            mixed,
            mass_square * x[0, 0]
            + 2 * mass_rest / count * np.cumsum(others * x[0])
            + squares / count * trace
            + (rest_square - squares) / pairs * (block - trace),
        )
        K = K + stack.strength**2 * mixed
        yield K


def average(stack: Stack) -> Collapse:
    """Return the measures of collapse on average over draws of a stack, exactly.

    Args:
        stack: the law.

    Returns:
        Root-mean-square measures after 0 … L layers, arrays [L + 1], such as √E‖v_n − v_{n−1}‖²;
        a distance is resolved to 1e-7.

    Raises:
        InputError: as `gram`.
    """
    n, r = stack.length, stack.common
    rows = []
    for K in gram(stack, (1 - r) * np.eye(n) + r):
        # ‖V − 11ᵀV/n‖² = tr K − 1ᵀK1/n, and ‖v_n − v_{n−1}‖² from the last 2 × 2 block.
        trace, last = np.trace(K), K[-1, -1] + K[-2, -2]
        rows.append((trace - K.sum() / n, last - 2 * K[-1, -2], trace, last))
    return Collapse(*np.sqrt(np.maximum(rows, 0.0)).T)


def distances(stack: Stack) -> np.ndarray:
    """Return the distance of `average` for every length of context up to that of the stack.

    By causality the first t tokens of a stack are those of a stack of length t, as long as the
    sink is the same at every length.

    Args:
        stack: the law.

    Returns:
        float64 [L + 1, n − 1]: of tokens t and t − 1, t = 2 … n.

    Raises:
        InputError: as `gram`.
    """
    n, r = stack.length, stack.common
    rows = []
    for K in gram(stack, (1 - r) * np.eye(n) + r):
        squares = K.diagonal()[1:] + K.diagonal()[:-1]
        rows.append((squares - 2 * K.diagonal(1)) / squares)
    return np.sqrt(np.maximum(rows, 0.0))


def influence(stack: Stack, token: int) -> np.ndarray:
    """Return the root-mean-square influence of a token on others, √(E‖∂v_j^(ℓ)/∂v_i^(0)‖²_F / d).

    Args:
        stack: the law.
        token: i, from 0.

    Returns:
        float64 [L + 1, n].

    Raises:
        InputError: no such token, or as `gram`.
    """
    token = check_whole("token", token, 0, stack.length - 1)
    start = np.zeros((stack.length, stack.length))
    start[token, token] = 1.0
    # Layers are linear: K started from e_i e_iᵀ has E‖∂v_j/∂v_i‖²_F/d on its diagonal.
    return np.sqrt(np.stack([K.diagonal() for K in gram(stack, start)]))
