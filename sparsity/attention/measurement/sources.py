"""Where the rows of a layer come from: attention weights, or queries and keys; block by block."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from sparsity.errors import InputError

# Additive masks hide with −∞, with the lowest number of a type, or with −10⁴. A row sees the keys
# within FAINT of its largest entry: e^(−745) is zero in double precision. Where that is at HIDDEN
# or below, it sees nothing.
FAINT, HIDDEN = 745.0, -1e4
SHORT = 64  # rows and keys that are not cut further: what is above the diagonal costs less


@dataclass(frozen=True, kw_only=True)
class Sight:
    """Which keys the queries of a layer see.

    Args:
        causal: whether a query sees only itself and the keys before it.
        mask: which keys are seen, bool [1 or heads, T, T], or numbers that are added; None for all.
        segments: the number of the text that each token belongs to, [T], 0 or less for padding;
            None where all is one text.
        looks: which queries see any key and are no padding, [1 or heads, T]; None for all.
        first: position of the first key that a query sees: one of all, or [1 or heads, T].
    """

    causal: bool = True
    mask: Any = None
    segments: Any = None
    looks: Any = None
    first: Any = 0

    @property
    def shape(self) -> tuple[int, int]:
        """(heads, queries)."""
        raise NotImplementedError

    @property
    def reach(self) -> int:
        """How many keys there are."""
        return self.shape[1]

    @property
    def offset(self) -> int:
        """The position of the first query: those that look back are the last of all tokens."""
        return self.reach - self.shape[1] if self.causal else 0

    @property
    def hides(self) -> bool:
        """Whether there is more to it than looking back."""
        return self.mask is not None or self.segments is not None

    def of(self, heads: Any) -> dict[str, Any]:
        """The same of some heads, as fields."""
        first = self.first if isinstance(self.first, int) else _of_heads(self.first, heads)
        looks = _of_heads(self.looks, heads)
        return {"mask": _of_heads(self.mask, heads), "looks": looks, "first": first}

    def counted(self, stop: int) -> Any:
        """How many of the queries before `stop` see any key, one number or [1 or heads, 1]."""
        return stop if self.looks is None else self.looks[:, :stop].sum(-1, keepdims=True)


@dataclass(frozen=True, kw_only=True)
class Weights(Sight):
    """Given attention weights, [heads, queries, keys]."""

    weights: Any

    @property
    def shape(self) -> tuple[int, int]:
        """(heads, queries)."""
        return self.weights.shape[:2]

    @property
    def reach(self) -> int:
        """How many keys there are."""
        return self.weights.shape[2]

    @property
    def dtype(self) -> Any:
        """Of the weights."""
        return self.weights.dtype

    def part(self, heads: slice) -> Weights:
        """Some of the heads."""
        return replace(self, weights=self.weights[heads], **self.of(heads))

    def block(self, start: int, stop: int, width: int) -> tuple[Any, Any]:
        """Rows start … stop over keys 0 … width, and which of these they see.

        Raises:
            InputError: weights that are not finite, of rows whose sum is not, or above the
                diagonal of causal ones.
        """
        rows = self.weights[:, start:stop]
        xp = rows.__array_namespace__()
        seen = _seen(self, start, stop, width, xp)
        if self.looks is not None:  # what padding attends to is not looked at
            rows = xp.where(xp.asarray(self.looks[:, start:stop, None]), rows, 0)
        finite("attention", rows)
        with np.errstate(over="ignore"):
            if not bool(xp.all(xp.isfinite(xp.abs(rows).sum(-1)))):
                fix = f"the sum of a row is beyond {rows.dtype}; divide the weights by their sum"
                raise InputError("attention", f"weights up to {float(xp.abs(rows).max()):.3g}", fix)
        beyond = rows[..., width:]
        if bool(xp.any(beyond != 0)) or bool(xp.any((rows[..., :width] != 0) & ~seen)):
            fix = "has weights on keys that a query does not see; pass causal=False or another mask"
            raise InputError("attention", f"array of shape {self.weights.shape}", fix)
        return rows[..., :width], seen


@dataclass(frozen=True, kw_only=True)
class Logits(Sight):
    """Scaled products of queries [heads, T, d] and keys [kv heads, T, d], made when asked for."""

    queries: Any
    keys: Any
    scale: float
    softcap: float | None = None  # the cap of cap·tanh(s/cap), before the mask
    units: Any = None  # the logits of learned sinks beside the keys, [heads]; None for none

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
        units = None if self.units is None else self.units[heads]
        own = {"queries": self.queries[heads], "keys": keys, "units": units}
        return replace(self, **own, **self.of(heads))

    def masks(self, start: int, stop: int) -> tuple[Any, Any]:
        """Which keys the mask lets rows start … stop see, and what it adds or None."""
        length = self.shape[1]
        seen = _seen(self, start, stop, length, np)
        if self.mask is None or self.mask.dtype.kind != "f":
            return seen, None
        return seen, self.mask[:, start:stop]

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
        xp = logits.__array_namespace__()
        seen = _seen(self, start, stop, width, xp)
        if self.softcap is not None:
            logits = self.softcap * xp.tanh(logits / self.softcap)
        if self.mask is not None and self.mask.dtype.kind == "f":
            logits = logits + xp.where(seen, self.mask[:, start:stop, :width], 0.0)
        return logits, seen


Source = Weights | Logits


def of_heads(source: Source, heads: np.ndarray) -> Source:
    """Some of the heads, by their numbers; each with a key head of its own."""
    if isinstance(source, Weights):
        return replace(source, weights=source.weights[heads], **source.of(heads))
    shared = source.queries.shape[0] // source.keys.shape[0]
    own = {"queries": source.queries[heads], "keys": source.keys[heads // shared]}
    own["units"] = None if source.units is None else source.units[heads]
    return replace(source, **own, **source.of(heads))


def sees(source: Source, key: int) -> np.ndarray:
    """Which rows see the key, [1 or heads, T]."""
    if not source.hides:
        return (np.arange(source.shape[1]) + source.offset >= key)[None] | (not source.causal)
    return np.concatenate([seen[..., key] for _, _, seen in _sights(source)], axis=1)


def _sights(source: Source) -> Iterator[tuple[int, int, np.ndarray]]:
    """Some rows from, to, and which of all keys they see, [1 or heads, rows, keys]."""
    heads, length = source.shape
    step = max(1, 2**22 // (heads * source.reach))
    for start in range(0, length, step):
        stop = min(start + step, length)
        yield start, stop, _seen(source, start, stop, source.reach, np)


def _patchy(seen: np.ndarray, text: np.ndarray, start: int) -> bool:
    """Whether a mask tells nothing of padding: rows from `start` on that see keys here and there.

    Where masks tell of order, windows, texts and padding, the rows of texts that see a key are
    neighbours, but for rows that see none, and the key is one of a text.
    """
    count = (text[:, start : start + seen.shape[1]] & seen.any(-1)).cumsum(-1)[..., None]
    first = np.where(seen, count, count.shape[1] + 1).min(1)
    last = np.where(seen, count, 0).max(1)
    some = seen.any(1)
    return bool((some & ((last - first + 1 != seen.sum(1)) | ~text)).any())


def surveyed(source: Any) -> Any:
    """The layer, with what its mask says of padding, and of the first key that each query sees.

    A query is padding where its number in `segments` is 0 or less. Without segments it is where the
    mask hides the key at its own position from itself and from the queries beside it, if any query
    sees its own key.

    Raises:
        InputError: the mask tells nothing of padding.
    """
    if not source.hides:
        return source
    length = source.shape[1]
    heads = 1 if source.mask is None else len(source.mask)
    if source.segments is not None:
        text = np.broadcast_to(source.segments > 0, (heads, length))
    elif source.reach != length:  # keys of another text, or of what came before
        text = np.ones((heads, length), bool)
    else:
        own, beside = (np.zeros((heads, length), bool) for _ in range(2))
        for start, stop, seen in _sights(source):
            for away, found in ((0, own), (1, beside), (-1, beside)):
                i = np.arange(max(start, -away), min(stop, length - away))
                found[:, i + away] |= seen[:, i - start, i + away]
        text = own | beside | ~own.any(-1, keepdims=True)
    sights, padded = [], source.segments is None and not text.all()
    for start, _, seen in _sights(replace(source, looks=text)):
        if padded and _patchy(seen, text, start):
            fix = "hides tokens from themselves and shows keys here and there: give segments= as "
            raise InputError("mask", "array", fix + "well, ones where no token is padding")
        sights.append((seen.any(-1), seen.argmax(-1)))
    looks, first = (np.concatenate(x, axis=1) for x in zip(*sights, strict=True))
    several = np.unique(first[looks])
    first = first if several.size > 1 else int(several[0]) if several.size else 0
    return replace(source, looks=None if looks.all() else looks, first=first)


def width(source: Source, stop: int, sink: Any) -> int:
    """Keys that hold all that rows before `stop` see, and the sink; few widths are compiled."""
    length, stop = source.reach, stop + source.offset
    step = max(-(-length // 8), SHORT)
    most = max(stop, sink + 1) if isinstance(sink, int) else stop
    return min(-(-most // step) * step, length) if source.causal else length


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


def _seen(source: Source, start: int, stop: int, width: int, xp: Any) -> Any:
    """Which keys the rows see, [1 or heads, rows, keys]."""
    seen = xp.ones((1, stop - start, width), dtype=bool)
    if source.causal:
        own = xp.arange(start, stop) + source.offset
        seen = seen & (xp.arange(width) <= own[:, None])
    if source.segments is not None:
        seen = seen & (source.segments[start:stop, None] == source.segments[:width])
    if source.mask is not None:
        mask = source.mask[:, start:stop, :width]
        if mask.dtype.kind == "f":
            top = xp.where(seen, mask, -xp.inf).max(-1, keepdims=True)
            mask = (mask > top - FAINT) & (top > HIDDEN)
        seen = seen & mask
    if source.looks is not None:
        seen = seen & source.looks[:, start:stop, None]
    return seen


def finite(name: str, x: Any) -> None:
    """Check an array.

    Raises:
        InputError: NaN or infinite values.
    """
    xp = x.__array_namespace__()
    if not bool(xp.all(xp.isfinite(x))):
        raise InputError(name, f"array of shape {x.shape}", "holds NaN or infinite values")
