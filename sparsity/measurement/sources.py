"""Where the rows of a layer come from: attention weights, or queries and keys; block by block."""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from sparsity.errors import InputError

# Additive masks hide with −∞, with the lowest number of a type, or with −10⁴. A row sees the keys
# within FAINT of its largest entry: e^(−745) is zero in double precision. Where that is at HIDDEN
# or below, it sees nothing.
FAINT, HIDDEN = 745.0, -1e4
SHORT = 64  # rows and keys that are not cut further: what is above the diagonal costs less


@dataclass(frozen=True)
class Weights:
    """Given attention weights, [heads, T, T]."""

    weights: Any
    causal: bool
    mask: Any

    @property
    def shape(self) -> tuple[int, int]:
        """(heads, T)."""
        return self.weights.shape[:2]

    def part(self, heads: slice) -> Weights:
        """Some of the heads."""
        return replace(self, weights=self.weights[heads], mask=_of_heads(self.mask, heads))

    def block(self, start: int, stop: int, width: int) -> tuple[Any, Any]:
        """Rows start … stop over keys 0 … width, and which of these they see.

        Raises:
            InputError: weights that are not finite, or above the diagonal of causal ones.
        """
        rows = self.weights[:, start:stop]
        finite("attention", rows)
        beyond = rows[..., width:]
        seen = _seen(self, start, stop, width, rows)
        xp = rows.__array_namespace__()
        if bool(xp.any(beyond != 0)) or bool(xp.any((rows[..., :width] != 0) & ~seen)):
            fix = "has weights on keys that a query does not see; pass causal=False or another mask"
            raise InputError("attention", f"array of shape {self.weights.shape}", fix)
        return rows[..., :width], seen


@dataclass(frozen=True)
class Logits:
    """Scaled products of queries [heads, T, d] and keys [kv heads, T, d], made when asked for."""

    queries: Any
    keys: Any
    scale: float
    causal: bool
    mask: Any
    softcap: float | None = None  # the cap of cap·tanh(s/cap), before the mask

    @property
    def shape(self) -> tuple[int, int]:
        """(heads, T)."""
        return self.queries.shape[:2]

    @property
    def dtype(self) -> Any:
        """Of the logits."""
        kinds = [self.queries.dtype, self.keys.dtype]
        if self.mask is not None and self.mask.dtype.kind == "f":
            kinds.append(self.mask.dtype)
        return np.result_type(*kinds)

    def part(self, heads: slice) -> Logits:
        """Some of the heads, all that share a key head."""
        shared = self.queries.shape[0] // self.keys.shape[0]
        keys = self.keys[heads.start // shared : heads.stop // shared]
        mask = _of_heads(self.mask, heads)
        return replace(self, queries=self.queries[heads], keys=keys, mask=mask)

    def masks(self, start: int, stop: int) -> tuple[Any, Any]:
        """Which keys the mask lets rows start … stop see, and what it adds or None."""
        length = self.shape[1]
        seen = _seen(self, start, stop, length, self.mask)
        added = _entries(self, start, stop, length) if self.mask.dtype.kind == "f" else None
        return seen, added

    def block(self, start: int, stop: int, width: int) -> tuple[Any, Any]:
        """Rows start … stop over keys 0 … width, and which of these they see.

        Raises:
            InputError: logits too large for the type of the arrays.
        """
        heads, _, dim = self.queries.shape
        groups = self.keys.shape[0]
        q = self.queries[:, start:stop].reshape(groups, -1, dim) * self.scale
        logits = _product(q, self.keys[:, :width]).reshape(heads, stop - start, width)
        finite("logits", logits)
        seen = _seen(self, start, stop, width, logits)
        xp = logits.__array_namespace__()
        if self.softcap is not None:
            logits = self.softcap * xp.tanh(logits / self.softcap)
        if self.mask is not None and self.mask.dtype.kind == "f":
            logits = logits + xp.where(seen, _entries(self, start, stop, width), 0.0)
        return logits, seen


Source = Weights | Logits


def of_heads(source: Source, heads: np.ndarray) -> Source:
    """Some of the heads, by their numbers; each with a key head of its own."""
    mask = _of_heads(source.mask, heads)
    if isinstance(source, Weights):
        return replace(source, weights=source.weights[heads], mask=mask)
    shared = source.queries.shape[0] // source.keys.shape[0]
    own = {"queries": source.queries[heads], "keys": source.keys[heads // shared]}
    return replace(source, **own, mask=mask)


def sees(source: Source, key: int) -> np.ndarray:
    """Which rows see the key, [1 or heads, T]."""
    heads, length = source.shape
    if source.mask is None:
        return (np.arange(length) >= key)[None] | (not source.causal)
    step = max(1, 2**22 // (heads * length))
    parts = [
        _seen(source, start, min(start + step, length), length, source.mask)[..., key]
        for start in range(0, length, step)
    ]
    return np.concatenate(parts, axis=1)


def width(source: Source, stop: int, sink: int) -> int:
    """Keys that hold all that rows before `stop` see, and the sink; few widths are compiled."""
    length = source.shape[1]
    step = max(-(-length // 8), SHORT)
    return min(-(-max(stop, sink + 1) // step) * step, length) if source.causal else length


def at_once(shape: tuple[int, int], most: int) -> int:
    """Rows of a block of no more than `most` entries: a power of two, so that few are compiled.

    Args:
        shape: (heads, T).
        most: entries.
    """
    heads, length = shape
    return 1 << (max(1, min(most // (heads * length), max(length // 8, SHORT))).bit_length() - 1)


@functools.cache
def _dot() -> Any:
    import jax

    def dot(q: Any, k: Any) -> Any:
        return jax.numpy.matmul(q, k.swapaxes(-1, -2), precision=jax.lax.Precision.HIGHEST)

    return jax.jit(dot)


def _product(q: Any, k: Any) -> Any:
    """All q·k. By JAX where that keeps the precision: BLAS stalls where threads share the cores.

    Of NumPy arrays group by group, so that it is compiled once for any number of groups.
    """
    if not isinstance(q, np.ndarray):
        return _dot()(q, k)
    if q.dtype != np.float32:
        return np.matmul(q, k.swapaxes(-1, -2))
    return np.stack([_dot()(*each) for each in zip(q, k, strict=True)])


def _of_heads(mask: Any, heads: slice | np.ndarray) -> Any:
    return mask if mask is None or len(mask) == 1 else mask[heads]


def _entries(source: Source, start: int, stop: int, width: int) -> Any:
    """A block of the mask; half precision as single."""
    entries = source.mask[..., start:stop, :width]
    return entries.astype(np.float32) if entries.dtype == np.float16 else entries


def _seen(source: Source, start: int, stop: int, width: int, like: Any) -> Any:
    """Which keys the rows see, [1 or heads, rows, keys]."""
    xp = like.__array_namespace__()
    seen = xp.ones((1, stop - start, width), dtype=bool)
    if source.causal:
        seen = seen & (xp.arange(width) <= xp.arange(start, stop)[:, None])
    if source.mask is not None:
        mask = _entries(source, start, stop, width)
        if mask.dtype.kind == "f":
            top = xp.where(seen, mask, -xp.inf).max(-1, keepdims=True)
            mask = (mask > top - FAINT) & (top > HIDDEN)
        seen = seen & mask
    return seen


def finite(name: str, x: Any) -> None:
    """Check an array.

    Raises:
        InputError: NaN or infinite values.
    """
    xp = x.__array_namespace__()
    if not bool(xp.all(xp.isfinite(x))):
        raise InputError(name, f"array of shape {x.shape}", "holds NaN or infinite values")
