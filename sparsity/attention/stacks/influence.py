"""How much the first layer's tokens influence the last one's: the Jacobian, and a bound on it.

With z_j = v_j + Σ_h Σ_{i≤j} α^(h)_{ji} g_i W_h v_i, w_h = ‖W_h‖, and the rest c-Lipschitz,
    ‖∂v_j^(L)/∂v_i^(0)‖ ≤ (B^(L) … B^(1))_{ji},   B_{ji} = c(δ_{ji} + Σ_h w_h |α^(h)_{ji}| g_i),
a sum over causal paths from i to j. The attention α is held fixed.
"""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from sparsity.attention.stacks.mixing import Layers, forward
from sparsity.checks import as_float64, check_number, check_reals
from sparsity.errors import InputError


def bound(attention: Any, strengths: Any, lipschitz: float = 1.0, gain: Any = 1.0) -> np.ndarray:
    """Return the bound on every influence, a product of one matrix a layer.

    Args:
        attention: α, [L, H, n, n]; may be signed.
        strengths: w_h = ‖W_h‖ ≥ 0, broadcast to [L, H].
        lipschitz: c > 0 of what follows the attention in each layer.
        gain: g_i ≥ 0, the factor on each token's value, broadcast to [n].

    Returns:
        float64 [n, n]: row j bounds the influence of each token i on token j after L layers.

    Raises:
        InputError: attention that is not [L, H, n, n], or a factor outside its domain.

    Source: after Barbero et al. (2025), arXiv 2504.02732, theorem 3.2.
    """
    fix = "give [layers, heads, tokens, tokens]"
    a = np.abs(np.asarray(check_reals("attention", attention, fix), dtype=np.float64))
    if a.ndim != 4 or a.shape[-1] != a.shape[-2] or not np.isfinite(a).all():
        raise InputError("attention", f"array of shape {a.shape}", fix)
    w = _factors("strengths", strengths, a.shape[:2])
    g = _factors("gain", gain, a.shape[-1:])
    lipschitz = check_number("lipschitz", lipschitz, "must be finite and > 0", lambda x: x > 0)
    # c(I + Σ_h w_h|α|g) a layer, multiplied from the left: the last layer is the outermost.
    # A product of matrices sums over all causal paths, with the bound of each path's own Jacobian.
    product = np.eye(a.shape[-1])
    for layer, strength in zip(a, w, strict=True):
        heads = np.einsum("h,hji->ji", strength, layer) * g
        product = lipschitz * (product + heads @ product)
    return product


def _factors(name: str, value: Any, shape: tuple[int, ...]) -> np.ndarray:
    """Return factors >= 0, one for all or as many as there are."""
    factors, fix = as_float64(value, name, "give numbers", texts=False), "must be finite and >= 0"
    if not np.all(np.isfinite(factors) & (factors >= 0)):
        raise InputError(name, value, fix)
    try:
        return np.broadcast_to(factors, shape)
    except ValueError:
        raise InputError(
            name, f"array of shape {factors.shape}", f"must broadcast to {shape}"
        ) from None


@jax.jit
def _jacobian(layers: Layers) -> jax.Array:
    return jax.jacrev(lambda v: forward(layers._replace(tokens=v))[-1])(layers.tokens)


def jacobian(layers: Layers) -> np.ndarray:
    """Return the Jacobian of a drawn stack, by reverse-mode differentiation.

    Args:
        layers: from `sparsity.stacks.mixing.draw`; takes (n·d)² numbers.

    Returns:
        float64 [n, n, d, d]: block [j, i] is ∂v_j^(L)/∂v_i^(0).
    """
    return np.asarray(_jacobian(layers), dtype=np.float64).transpose(0, 2, 1, 3)


def norms(blocks: np.ndarray) -> np.ndarray:
    """Return each block's largest singular value: ‖∂v_j^(L)/∂v_i^(0)‖, [n, n], or ‖W_h‖, [L, H]."""
    blocks = np.asarray(check_reals("blocks", blocks, "give [..., d, d]"), np.float64)
    if blocks.ndim < 2 or 0 in blocks.shape or not np.isfinite(blocks).all():
        raise InputError("blocks", f"array of shape {blocks.shape}", "give finite [..., d, d]")
    return np.linalg.norm(blocks, 2, axis=(-2, -1))
