"""A layer whose rows are measured, block by block: attention weights, or queries and keys.

Both kinds know which keys a query sees: by looking back, by a mask, and by texts and padding.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from sparsity.errors import InputError

# Additive masks hide with −∞, with the lowest number of a type, or with −10⁴. A row sees the keys
# within HIDDEN_BELOW_TOP of its largest entry: e^(−745) is zero in double precision. Where that
# entry is at HIDDEN_AT or below, the row sees nothing.
HIDDEN_BELOW_TOP, HIDDEN_AT = 745.0, -1e4
# Blocks are not cut below so many rows and keys: what is above the diagonal then costs less than
# another block does.
MIN_CUT = 64
MAX_LOG_LEARNED = 600.0  # beyond e^600 times the largest weight a learned sink takes all there is
MAX_VISIBLE_ENTRIES = 2**22  # of which it is known at a time whether they are seen: 4 MiB of bool


@dataclass(frozen=True, kw_only=True)
class AttentionLayer:
    """Which keys the queries of a layer see; `WeightLayer` and `LogitLayer` add their numbers.

    Args:
        causal: whether a query sees only itself and the keys before it.
        mask: which keys are seen, bool [1 or heads, T, T], or numbers that are added; None for all.
        segments: the number of the text that each token belongs to, [T], 0 or less for padding;
            None where all is one text.
        active: which queries see any key and are no padding, [1 or heads, T]; None for all.
        first: position of the first key that a query sees: one of all, or [1 or heads, T].
    """

    causal: bool = True
    mask: Any = None
    segments: Any = None
    active: Any = None
    first: Any = 0

    @property
    def shape(self) -> tuple[int, int]:
        """(heads, queries)."""
        raise NotImplementedError

    @property
    def key_count(self) -> int:
        """How many keys there are."""
        return self.shape[1]

    @property
    def offset(self) -> int:
        """The position of the first query: those that look back are the last of all tokens."""
        return self.key_count - self.shape[1] if self.causal else 0

    @property
    def hides(self) -> bool:
        """Whether anything but looking back hides keys."""
        return self.mask is not None or self.segments is not None

    def _take_heads(self, heads: slice | np.ndarray, **own: Any) -> Self:
        """Return some of the heads, with their own numbers."""
        for name in ("mask", "active", "first"):
            x = getattr(self, name)
            own[name] = x if x is None or isinstance(x, int) or len(x) == 1 else x[heads]
        return replace(self, **own)

    def count_active(self, stop: int) -> Any:
        """Return how many queries before `stop` see any key, one number or [1 or heads, 1]."""
        return stop if self.active is None else self.active[:, :stop].sum(-1, keepdims=True)

    def visible_keys(self, start: int, stop: int, width: int, xp: Any = np) -> Any:
        """Return which keys 0 … width rows start … stop see, [1 or heads, rows, keys].

        Args:
            start: the first row.
            stop: the row after the last.
            width: how many keys are asked about.
            xp: namespace of the arrays.
        """
        seen = xp.ones((1, stop - start, width), dtype=bool)
        if self.causal:
            own = xp.arange(start, stop) + self.offset
            seen = seen & (xp.arange(width) <= own[:, None])
        if self.segments is not None:
            seen = seen & (self.segments[start:stop, None] == self.segments[:width])
        if self.mask is not None:
            mask = self.mask[:, start:stop, :width]
            if mask.dtype.kind == "f":
                top = xp.where(seen, mask, -xp.inf).max(-1, keepdims=True)
                mask = (mask > top - HIDDEN_BELOW_TOP) & (top > HIDDEN_AT)
            seen = seen & mask
        if self.active is not None:
            seen = seen & self.active[:, start:stop, None]
        return seen

    def iterate_visible(self) -> Iterator[tuple[int, int, np.ndarray]]:
        """Yield some rows from, to, and which of all keys they see, [1 or heads, rows, keys]."""
        heads, length = self.shape
        step = max(1, MAX_VISIBLE_ENTRIES // (heads * self.key_count))
        for start in range(0, length, step):
            stop = min(start + step, length)
            yield start, stop, self.visible_keys(start, stop, self.key_count)

    def rows_that_see(self, key: int) -> np.ndarray:
        """Return which rows see the key, [1 or heads, T]."""
        if not self.hides:
            return (np.arange(self.shape[1]) + self.offset >= key)[None] | (not self.causal)
        return np.concatenate([seen[..., key] for _, _, seen in self.iterate_visible()], axis=1)

    def key_width(self, stop: int, sink: Any) -> int:
        """Return how many keys hold all that rows before `stop` see, and the sink key.

        There are eight widths at most, since each is compiled.
        """
        length, stop = self.key_count, stop + self.offset
        step = max(-(-length // 8), MIN_CUT)
        most = max(stop, sink + 1) if isinstance(sink, int) else stop
        return min(-(-most // step) * step, length) if self.causal else length

    def rows_per_block(self, most: int) -> int:
        """Return how many rows make a block of no more than `most` entries, over all heads.

        It is a power of two, so that few sizes are compiled.
        """
        heads, length = self.shape[0], self.key_count
        rows = max(1, min(most // (heads * length), max(length // 8, MIN_CUT)))
        return 1 << (rows.bit_length() - 1)


@dataclass(frozen=True, kw_only=True)
class WeightLayer(AttentionLayer):
    """Given attention weights, [heads, queries, keys]."""

    weights: Any

    @property
    def shape(self) -> tuple[int, int]:
        """(heads, queries)."""
        return self.weights.shape[:2]

    @property
    def key_count(self) -> int:
        """How many keys there are."""
        return self.weights.shape[2]

    @property
    def dtype(self) -> Any:
        """The type of the weights."""
        return self.weights.dtype

    def part(self, heads: slice | np.ndarray) -> WeightLayer:
        """Return some of the heads."""
        return self._take_heads(heads, weights=self.weights[heads])

    def block(self, start: int, stop: int, width: int) -> tuple[Any, Any]:
        """Return rows start … stop over keys 0 … width, and which of these they see.

        Raises:
            InputError: weights that are not finite, of rows whose sum is not, or above the
                diagonal of causal ones.
        """
        rows = self.weights[:, start:stop]
        xp = rows.__array_namespace__()
        seen = self.visible_keys(start, stop, width, xp)
        if self.active is not None:  # what padding attends to is not looked at
            rows = xp.where(xp.asarray(self.active[:, start:stop, None]), rows, 0)
        check_finite("attention", rows)
        with np.errstate(over="ignore"):
            if not bool(xp.all(xp.isfinite(xp.abs(rows).sum(-1)))):
                fix = f"the sum of a row is beyond {rows.dtype}; divide the weights by their sum"
                raise InputError("attention", f"weights up to {float(xp.abs(rows).max()):.3g}", fix)
        beyond = rows[..., width:]
        if bool(xp.any(beyond != 0)) or bool(xp.any((rows[..., :width] != 0) & ~seen)):
            fix = "has weights on keys that a query does not see; pass causal=False or another mask"
            raise InputError("attention", f"array of shape {self.weights.shape}", fix)
        return rows[..., :width], seen

    def to_weights(self, rows: Any, seen: Any) -> tuple[np.ndarray, np.ndarray]:
        """Return |a| of rows of a block, double precision, and 0: there is no learned sink."""
        weights = np.abs(np.asarray(rows, np.float64))
        return weights, np.zeros(weights.shape[:-1])


@dataclass(frozen=True, kw_only=True)
class LogitLayer(AttentionLayer):
    """Scaled products of queries [heads, T, d] and keys [kv heads, T, d], made when asked for."""

    queries: Any
    keys: Any
    scale: float
    softcap: float | None = None  # the cap of cap·tanh(s/cap), before the mask
    learned_sinks: Any = None  # the logits of learned sinks beside the keys, [heads]

    @property
    def shape(self) -> tuple[int, int]:
        """(heads, T)."""
        return self.queries.shape[:2]

    @property
    def dtype(self) -> Any:
        """The type of the logits."""
        kinds = [self.queries.dtype, self.keys.dtype]
        if self._mask_adds:
            kinds.append(self.mask.dtype)
        return np.result_type(*kinds)

    @property
    def _mask_adds(self) -> bool:
        return self.mask is not None and self.mask.dtype.kind == "f"

    def part(self, heads: slice | np.ndarray) -> LogitLayer:
        """Return some of the heads.

        Args:
            heads: a slice of all that share key heads; or the numbers of any, each of which then
                has a key head of its own.
        """
        shared = self.queries.shape[0] // self.keys.shape[0]
        if isinstance(heads, slice):
            keys = self.keys[heads.start // shared : heads.stop // shared]
        else:
            keys = self.keys[heads // shared]
        learned = None if self.learned_sinks is None else self.learned_sinks[heads]
        return self._take_heads(
            heads, queries=self.queries[heads], keys=keys, learned_sinks=learned
        )

    def masks(self, start: int, stop: int) -> tuple[Any, Any]:
        """Return which keys the mask lets rows start … stop see, and what it adds or None."""
        seen = self.visible_keys(start, stop, self.shape[1])
        return seen, self.mask[:, start:stop] if self._mask_adds else None

    def block(self, start: int, stop: int, width: int) -> tuple[Any, Any]:
        """Return rows start … stop over keys 0 … width, and which of these they see.

        Raises:
            InputError: logits too large for the type of the arrays.
        """
        heads, _, dim = self.queries.shape
        groups = self.keys.shape[0]
        q = self.queries[:, start:stop].reshape(groups, -1, dim) * self.scale
        logits = _multiply(q, self.keys[:, :width]).reshape(heads, stop - start, width)
        check_finite("logits", logits)
        xp = logits.__array_namespace__()
        seen = self.visible_keys(start, stop, width, xp)
        if self.softcap is not None:
            logits = self.softcap * xp.tanh(logits / self.softcap)
        if self._mask_adds:
            logits = logits + xp.where(seen, self.mask[:, start:stop, :width], 0.0)
        return logits, seen

    def to_weights(self, rows: Any, seen: Any) -> tuple[np.ndarray, np.ndarray]:
        """Return e^s over the largest of rows of a block, and the weight of the learned sinks.

        Args:
            rows: logits of a block of all its heads, [heads, rows, keys].
            seen: which of them are seen; the others have weight 0.
        """
        s = np.where(seen, np.asarray(rows, np.float64), -np.inf)
        top = s.max(-1)
        top = np.where(np.isfinite(top), top, 0.0)
        with np.errstate(under="ignore"):
            weights, learned = np.exp(s - top[..., None]), np.zeros(top.shape)
            if self.learned_sinks is not None:
                over = np.minimum(self.learned_sinks[:, None] - top, MAX_LOG_LEARNED)
                learned = np.exp(over)
        return weights, learned


Layer = WeightLayer | LogitLayer


def find_padding(layer: Any) -> Any:
    """Return the layer with what its mask says of padding, and the first key that each query sees.

    A query is padding where its number in `segments` is 0 or less. Without segments it is where the
    mask hides the key at its own position from itself and from the queries beside it, if any query
    sees its own key.

    Raises:
        InputError: the mask tells nothing of padding.
    """
    if not layer.hides:
        return layer
    length = layer.shape[1]
    heads = 1 if layer.mask is None else len(layer.mask)
    if layer.segments is not None:
        text = np.broadcast_to(layer.segments > 0, (heads, length))
    elif layer.key_count != length:  # keys of another text, or of what came before
        text = np.ones((heads, length), bool)
    else:
        own, beside = (np.zeros((heads, length), bool) for _ in range(2))
        for start, stop, seen in layer.iterate_visible():
            for away, found in ((0, own), (1, beside), (-1, beside)):
                i = np.arange(max(start, -away), min(stop, length - away))
                found[:, i + away] |= seen[:, i - start, i + away]
        text = own | beside | ~own.any(-1, keepdims=True)
    visible, padded = [], layer.segments is None and not text.all()
    for start, _, seen in replace(layer, active=text).iterate_visible():
        if padded and _shows_keys_here_and_there(seen, text, start):
            fix = "hides tokens from themselves and shows keys here and there: give segments= as "
            raise InputError("mask", "array", fix + "well, ones where no token is padding")
        visible.append((seen.any(-1), seen.argmax(-1)))
    active, first = (np.concatenate(x, axis=1) for x in zip(*visible, strict=True))
    firsts = np.unique(first[active])
    first = first if firsts.size > 1 else int(firsts[0]) if firsts.size else 0
    return replace(layer, active=None if active.all() else active, first=first)


def _shows_keys_here_and_there(seen: np.ndarray, text: np.ndarray, start: int) -> bool:
    """Return whether a mask tells nothing of padding, by its rows from `start` on.

    Where masks tell of order, windows, texts and padding, the rows of texts that see a key are
    neighbours, but for rows that see none, and the key is one of a text.
    """
    count = (text[:, start : start + seen.shape[1]] & seen.any(-1)).cumsum(-1)[..., None]
    first = np.where(seen, count, count.shape[1] + 1).min(1)
    last = np.where(seen, count, 0).max(1)
    some = seen.any(1)
    return bool((some & ((last - first + 1 != seen.sum(1)) | ~text)).any())


@functools.cache
def _compiled_product() -> Any:
    import jax

    def product(q: Any, k: Any) -> Any:
        return jax.numpy.matmul(q, k.swapaxes(-1, -2), precision=jax.lax.Precision.HIGHEST)

    return jax.jit(product)


def _multiply(q: Any, k: Any) -> Any:
    """Return all q·k. By JAX where that keeps the precision: BLAS stalls where threads share cores.

    Of NumPy arrays group by group, so that it is compiled once for any number of groups.
    """
    if not isinstance(q, np.ndarray):
        return _compiled_product()(q, k)
    if q.dtype != np.float32:
        return np.matmul(q, k.swapaxes(-1, -2))
    return np.stack([_compiled_product()(*each) for each in zip(q, k, strict=True)])


def check_finite(name: str, x: Any) -> None:
    """Check an array.

    Raises:
        InputError: NaN or infinite values.
    """
    xp = x.__array_namespace__()
    if not bool(xp.all(xp.isfinite(x))):
        raise InputError(name, f"array of shape {x.shape}", "holds NaN or infinite values")
