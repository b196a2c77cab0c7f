"""Rotary angles, the planes of vectors, and vectors turned to their positions.

A vector of d entries is d/2 planes; position n turns plane i by n·θ_i.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from sparsity.checks import MOST, as_float64, check_choice, check_number, check_reals
from sparsity.errors import InputError

BASE = 10000.0
_EVEN = "rotary positions pair the entries: give an even number >= 2"
PAIRINGS = ("interleaved", "half")  # plane i holds entries (2i, 2i+1), or (i, i + d/2)


def angles(dim: Any, base: float = BASE) -> np.ndarray:
    """Return θ_i = base^(−2i/d), i = 0 … d/2 − 1, in radians a token.

    Args:
        dim: head dimension d, even, ≥ 2.
        base: > 1.

    Returns:
        Shape [d/2], falling from 1.

    Raises:
        InputError: an odd d, or a base at which nothing turns slower than the rest.

    Source: Su et al., RoFormer (2104.09864), eq. 15.
    """
    check_number("dim", dim, _EVEN, lambda x: 2 <= x <= MOST and x % 2 == 0)
    base = float(check_number("base", base, "must be finite and > 1", lambda x: x > 1))
    return base ** (-2 * np.arange(int(dim) // 2) / int(dim))


def vectors(name: str, x: Any, axes: int = 2) -> Any:
    """Return vectors as a NumPy or JAX array of a floating type; integers become float64.

    Raises:
        InputError: not numbers, or fewer axes than [n, d].
    """
    x = check_reals(name, x, "give real vectors [..., n, d]", traced=True)
    if x.ndim < axes:
        raise InputError(name, f"array of shape {tuple(x.shape)}", "give real vectors [..., n, d]")
    return x.astype(float) if x.dtype.kind in "iu" else x


def split(x: Any, pairing: str, turned: int | None = None) -> tuple[Any, Any]:
    """Return the two entries of every plane: of the first `turned` entries by the pairing.

    The other entries do not turn; neighbours make a plane. None pairs all of them.
    """
    # Checkpoints with partial rotation pair the first `turned` entries among themselves. How the
    # rest is paired does not matter, as long as `join` undoes it.
    check_choice("pairing", pairing, PAIRINGS)
    dim = x.shape[-1]
    if dim % 2:
        raise InputError("dim", dim, _EVEN)
    if turned is not None and turned < dim:
        xp = x.__array_namespace__()
        first, rest = split(x[..., :turned], pairing), split(x[..., turned:], "interleaved")
        return tuple(xp.concat(both, axis=-1) for both in zip(first, rest, strict=True))  # type: ignore
    if pairing == "half":
        return x[..., : dim // 2], x[..., dim // 2 :]
    return x[..., 0::2], x[..., 1::2]


def join(a: Any, b: Any, pairing: str, turned: int | None = None) -> Any:
    """Undo `split`."""
    xp = a.__array_namespace__()
    if turned is not None and turned < 2 * a.shape[-1]:
        half = turned // 2
        first = join(a[..., :half], b[..., :half], pairing)
        return xp.concat([first, join(a[..., half:], b[..., half:], "interleaved")], axis=-1)
    if pairing == "half":
        return xp.concat([a, b], axis=-1)
    return xp.stack([a, b], axis=-1).reshape((*a.shape[:-1], 2 * a.shape[-1]))


def planes(x: Any, pairing: str = "interleaved", turned: int | None = None) -> Any:
    """Return the planes of vectors as complex numbers.

    Args:
        x: [..., d].
        pairing: "interleaved" or "half": which entries make a plane.
        turned: entries that turn, the first ones; None is all.

    Returns:
        Shape [..., d/2], the planes that turn first.

    Raises:
        InputError: an odd d, or an unknown pairing.
    """
    a, b = split(vectors("x", x, axes=1), pairing, turned)
    return a + 1j * b


def rotate(
    x: Any, positions: Any, pairing: str = "interleaved", *, base: float = BASE, theta: Any = None
) -> Any:
    """Return vectors turned to their positions: plane i by position·θ_i.

    Args:
        x: [..., n, d], NumPy or JAX; integers are taken as floating numbers.
        positions: [n]; the angles are computed from them in float64.
        pairing: which entries make a plane.
        base: of the angles.
        theta: θ_i of the planes that turn, [≤ d/2], in place of those of `base`: with fewer than
            d/2 the last entries of `x` stay as they are.

    Returns:
        Shape of `x`, and its dtype where that is a floating one.

    Raises:
        InputError: an odd d, an unknown pairing, or a base ≤ 1.
    """
    x = vectors("x", x, axes=1)
    a, b, turned = turned_planes(x, positions, pairing, base=base, theta=theta)
    return join(a, b, pairing, turned)


def turned_planes(
    x: Any, positions: Any, pairing: str, *, base: float = BASE, theta: Any = None
) -> tuple[Any, Any, int]:
    """Return the two entries of every plane after `rotate`, as `split` has them, and how many turn.

    Args and raises as `rotate`, with `x` as `vectors` returns it.
    """
    theta = angles(x.shape[-1], base) if theta is None else np.asarray(theta, dtype=np.float64)
    turned = 2 * len(theta)
    return *turn(*split(x, pairing, turned), positions, theta), turned


class Turns(NamedTuple):
    """Cosines and sines of the angles by which planes turn, [n, d/2]: what a program is given."""

    cos: Any
    sin: Any


def turns(positions: Any, theta: np.ndarray, count: int) -> Turns:
    """Return the turns of `count` planes, of which the first ones have a θ, at each position."""
    # The other planes turn by 0: they go through the same formula, and stay as they are. Float32
    # would round a phase near 10⁶ by up to 0.03: only cosine and sine are cast to it.
    theta = np.append(theta, np.zeros(count - len(theta)))
    phase = np.asarray(positions)[..., None] * theta
    return Turns(np.cos(phase), np.sin(phase))


def turn(a: Any, b: Any, positions: Any, theta: np.ndarray) -> tuple[Any, Any]:
    """Return the entries of planes turned to their positions.

    Args:
        a: the first entry of every plane, [..., n, d/2].
        b: the second.
        positions: as in `rotate`, or the `Turns` at them.
        theta: of the planes that turn, [≤ d/2].
    """
    if not isinstance(positions, Turns):
        fix = f"give one finite number for each vector, {a.shape[-2:-1]}"
        at = as_float64(positions, "positions", fix, texts=False)
        if (at.ndim and at.shape[-1:] != a.shape[-2:-1]) or not np.all(np.isfinite(at)):
            raise InputError("positions", f"array of shape {at.shape}", fix)
        positions = turns(at, theta, a.shape[-1])
    xp = a.__array_namespace__()
    cos, sin = (xp.asarray(x, dtype=a.dtype) for x in positions)
    return a * cos - b * sin, a * sin + b * cos
