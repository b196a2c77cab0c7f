"""Rotary position embedding (RoPE) and collinear constrained attention (CoCA): vectors to scores.

Each vector is d/2 planes, complex numbers x_i; position n turns plane i by n·θ_i. Between a query
at m and a key at n that leaves Σ_i |q_i||k_i| cos(Θ_i + (m−n)θ_i), Θ_i the angle from k_i to q_i.
CoCA makes k = q∘t with one t_i ≥ 0 a plane, so Θ_i = 0. NumPy or JAX arrays, whichever comes in.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from sparsity.errors import InputError
from sparsity.rows.rope_planes import angles, join, split, turn, turned_planes, vectors


def _checked(query: Any, t: Any, pairing: str, theta: Any) -> tuple[Any, Any, np.ndarray]:
    """Return query and t as arrays that fit each other, and θ_i of the planes that turn."""
    query, t = vectors("query", query), vectors("t", t)
    count = split(query, pairing)[0].shape[-1]
    if t.shape[-1] != count:
        fix = f"give one t for each plane: its last axis must be {count}, as query has"
        raise InputError("t", f"array of shape {tuple(t.shape)}", fix)
    if isinstance(t, np.ndarray) and not np.all(t >= 0):
        raise InputError(
            "t", t[~(t >= 0)].flat[0], "CoCA needs t >= 0; a negative t turns k around"
        )
    if theta is None:
        return query, t, angles(query.shape[-1])
    return query, t, np.asarray(theta, dtype=np.float64)


def _products(q: Sequence[Any], k: Sequence[Any]) -> Any:
    """Return q_m·k_n, [..., M, N], of vectors by the two entries of their planes."""
    # A product does not ask for the order of the entries: to join them again takes XLA five times
    # as long as all the rest. Not q @ kᵀ either, for which it would turn the keys over first.
    return sum((y @ x.swapaxes(-1, -2)).swapaxes(-1, -2) for x, y in zip(q, k, strict=True))


def _places(positions: Any, x: Any) -> Any:
    """Return the positions of vectors, 0, 1, … where none are given."""
    return np.arange(x.shape[-2]) if positions is None else positions


def rope_scores(
    query: Any,
    key: Any,
    pairing: str = "interleaved",
    *,
    theta: Any = None,
    m: Any = None,
    n: Any = None,
) -> Any:
    """Return the scores q_m·k_n of rotated vectors, Σ_i |q_i||k_i| cos(Θ_i + (m−n)θ_i).

    Args:
        query: [..., M, d].
        key: [..., N, d].
        pairing: which entries make a plane.
        theta: θ_i of the planes that turn, as `rotate` has it.
        m: positions of the queries, [M]; None is 0 … M−1.
        n: positions of the keys, [N]; None is 0 … N−1.

    Returns:
        Shape [..., M, N].

    Raises:
        InputError: not real vectors, an odd d, or queries and keys of different length.
    """
    query, key = vectors("query", query), vectors("key", key)
    if key.shape[-1] != query.shape[-1]:
        fix = f"must be as long as the queries: its last axis must be {query.shape[-1]}"
        raise InputError("key", f"array of shape {tuple(key.shape)}", fix)
    *q, _ = turned_planes(query, _places(m, query), pairing, theta=theta)
    *k, _ = turned_planes(key, _places(n, key), pairing, theta=theta)
    return _products(q, k)


def coca_scores(
    query: Any,
    t: Any,
    pairing: str = "interleaved",
    *,
    theta: Any = None,
    m: Any = None,
    n: Any = None,
) -> Any:
    """Return exact CoCA, Σ_i t_i|q_i|² cos((m−n)θ_i), at the cost of RoPE.

    The score is that of RoPE between vectors of planes (|q_i|², 0) and (t_i, 0).

    Args:
        query: [..., M, d].
        t: [..., N, d/2], ≥ 0, one for each plane of a key.
        pairing: which entries make a plane.
        theta: θ_i of the planes that turn, as `rotate` has it.
        m: positions of the queries, [M]; None is 0 … M−1.
        n: positions of the keys, [N]; None is 0 … N−1.

    Returns:
        Shape [..., M, N].

    Raises:
        InputError: t of another shape, or (NumPy) negative.
    """
    # By definition every pair (m, n) has a key of its own. A plane of it is along the query's, so
    # that only the angle (m − n)θ_i is left between them, as between two real numbers under RoPE.
    query, t, theta = _checked(query, t, pairing, theta)
    turned = 2 * len(theta)
    a, b = split(query, pairing, turned)
    q, k = (join(x, 0 * x, pairing, turned) for x in (a * a + b * b, t))
    return rope_scores(q, k, pairing, theta=theta, m=m, n=n)


def coca_by_definition(
    query: Any,
    t: Any,
    pairing: str = "interleaved",
    *,
    theta: Any = None,
    m: Any = None,
    n: Any = None,
) -> Any:
    """Return CoCA as it is defined: for every m and n the key q_m∘t_n, rotated to n; MNd numbers.

    Args, returns and raises as `coca_scores`.

    Source: Zhu et al., CoCA (2309.08646v3), section 2.3.
    """
    # Both entries of a plane take its t, so that k stays along q in every plane: Θ_i = 0.
    query, t, theta = _checked(query, t, pairing, theta)
    a, b = (x[..., :, None, :] for x in split(query, pairing, 2 * len(theta)))
    t_n = t[..., None, :, :]
    k = turn(a * t_n, b * t_n, _places(n, t), theta)  # [..., M, N, d/2]
    q = turn(a[..., 0, :], b[..., 0, :], _places(m, query), theta)
    return sum((x[..., :, None, :] * y).sum(axis=-1) for x, y in zip(q, k, strict=True))


def slack_scores(
    query: Any,
    t: Any,
    pairing: str = "interleaved",
    *,
    theta: Any = None,
    m: Any = None,
    n: Any = None,
) -> Any:
    """Return the form that CoCA's published code computes: t is rotated in place of q∘t.

    (q∘R_m q)·R_n t, with t doubled over each plane; not a function of m − n.

    Args, returns and raises as `coca_scores`.
    """
    # With t rotated by itself no key is needed for each pair (m, n). It is CoCA only where the two
    # entries of the query are equal in every plane, and can be taken out of the rotation.
    query, t, theta = _checked(query, t, pairing, theta)
    still = split(query, pairing, 2 * len(theta))
    q = [x * y for x, y in zip(still, turn(*still, _places(m, query), theta), strict=True)]
    return _products(q, turn(t, t, _places(n, t), theta))


def slack_coefficients(q: Any, m: Any, n: Any, theta: Any) -> Any:
    """Return what multiplies t_i in the slack score of planes q_i = q₁ + i q₂.

    |q|² cos mθ cos nθ + (q₂²−q₁²) cos mθ sin nθ + 2q₁q₂ sin mθ sin nθ.

    Args:
        q: complex planes, [..., d/2].
        m: position of the query, broadcast against all but the last axis of q.
        n: position of the key, likewise.
        theta: θ_i, [d/2].

    Returns:
        Shape of the broadcast, the planes last.
    """
    a, b = np.asarray(m)[..., None] * theta, np.asarray(n)[..., None] * theta
    q1, q2 = q.real, q.imag
    return (
        (q1**2 + q2**2) * np.cos(a) * np.cos(b)
        + (q2**2 - q1**2) * np.cos(a) * np.sin(b)
        + 2 * q1 * q2 * np.sin(a) * np.sin(b)
    )


def decay_bounds(
    q: np.ndarray, k: np.ndarray, distance: Any, theta: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Bound |Σ_i h_i e^(isθ_i)|, h_i = q_i k_i*: of RoPE, and of CoCA with the same |q_i||k_i|.

    By summation by parts, with h and l = |h| ending in a zero,
        RoPE max_i |h_{i+1} − h_i| Σ_j |S_{j+1}|, S_j = Σ_{k<j} e^(isθ_k);
        CoCA max_i |l_{i+1} − l_i| Σ_j |C_{j+1}|, C_j = Σ_{k<j} cos(sθ_k).

    Args:
        q: planes of the query, complex, [d/2].
        k: planes of the key, complex, [d/2].
        distance: s, any shape.
        theta: θ_i, [d/2].

    Returns:
        RoPE's and CoCA's bound, each in the shape of `distance`.

    Source: RoFormer (2104.09864), section 3.4.3; CoCA (2309.08646v3), appendix.
    """
    # Abel: Σ h_i z_i = −Σ (h_{i+1} − h_i) Z_{i+1}, with the partial sums Z of
    # z_i = e^(isθ_i). The largest difference then comes out of the sum.
    h = np.append(q * np.conj(k), 0)
    turned = np.cumsum(np.exp(1j * np.asarray(distance)[..., None] * theta), axis=-1)
    rope = np.abs(np.diff(h)).max() * np.abs(turned).sum(axis=-1)
    coca = np.abs(np.diff(np.abs(h))).max() * np.abs(np.real(turned)).sum(axis=-1)
    return rope, coca


def anomaly_length(q: Any, k: Any, theta: Any) -> np.ndarray:
    """Return the tokens over which each plane's score |q||k| cos(Θ + mθ) rises from distance 0 on.

    τ = (2π − Θ)/θ for Θ in (π, 2π), the anomaly; 0 for the other half of the angles.

    Args:
        q: planes of queries, complex, [..., d/2].
        k: planes of keys, likewise.
        theta: θ_i, [d/2].

    Returns:
        τ in [0, π/θ_i), as real numbers of tokens.
    """
    # The angle between the two grows with the distance; the score falls until it is π, and rises
    # from there to 2π. A plane that starts beyond π rises at once, which attention to near tokens
    # does not want: the anomaly that CoCA takes away by Θ = 0.
    left = np.mod(np.angle(k) - np.angle(q), 2 * np.pi)  # 2π − Θ
    return np.where(left < np.pi, left, 0.0) / theta
