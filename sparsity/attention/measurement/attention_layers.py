"""A layer whose rows are measured, block by block: attention weights, or queries and keys.

Both kinds know which keys a query sees: by looking back, by a mask, and by texts and padding. A
mask says which keys are seen and not why. Padding must be told from masks of order, windows and
sparse patterns: rows of padding would count as rows of attention, or rows of attention be lost.
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
# Weights are relative to the largest of the row, so that only a learned sink can exceed 1. Beyond
# e^600 it takes all there is to double precision, while sums of it stay below overflow at e^709.
MAX_LOG_LEARNED = 600.0
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
        """The position of the first query that looks back: they are the last of all tokens."""
        return self.key_count - self.shape[1]

    @property
    def hides(self) -> bool:
        """Whether anything but looking back hides keys."""
        return self.mask is not None or self.segments is not None

    def take_heads(self, heads: slice | np.ndarray, **changes: Any) -> Self:
        """Return the masks of some of the heads, with their own numbers, beside all of the rest."""
        for name in ("mask", "active", "first"):
            x = getattr(self, name)
            # An axis of length 1 stands for all heads and is not cut.
            changes[name] = x if x is None or isinstance(x, int) or len(x) == 1 else x[heads]
        return replace(self, **changes)

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
            position = xp.arange(start, stop) + self.offset
            seen = seen & (xp.arange(width) <= position[:, None])
        if self.segments is not None:
            seen = seen & (self.segments[start:stop, None] == self.segments[:width])
        if self.mask is not None:
            mask = self.mask[:, start:stop, :width]
            # An additive mask hides relative to the largest entry of the keys that are seen
            # otherwise: a bias on a whole row changes no softmax, so must not hide it. Only where
            # all entries are at −10⁴ or below is the row meant to be hidden.
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
        # Causal rows up to `stop` need no keys beyond it. The width is rounded up to an eighth of
        # the text: exact widths would each be compiled, the full width would double the work.
        length, stop = self.key_count, stop + self.offset
        step = max(-(-length // 8), MIN_CUT)
        most = max(stop, sink + 1) if isinstance(sink, int) else stop
        return min(-(-most // step) * step, length) if self.causal else length

    def rows_per_block(self, most: int) -> int:
        """Return how many rows make a block of no more than `most` entries, over all heads.

        It is a power of two, so that few sizes are compiled.
        """
        # Nor is it more than an eighth of the text, since of causal blocks the part above the
        # diagonal is computed in vain.
        heads, length = self.shape[0], self.key_count
        rows = max(1, min(most // (heads * length), max(length // 8, MIN_CUT)))
        return 1 << (rows.bit_length() - 1)


@dataclass(frozen=True, kw_only=True)
class WeightLayer(AttentionLayer):
    """A layer of which the attention weights are given, [heads, queries, keys]."""

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

    def part(self, heads: np.ndarray) -> WeightLayer:
        """Return some of the heads."""
        return self.take_heads(heads, weights=self.weights[heads])

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
        # Weight on a key that is said to be hidden means that the mask is not the model's: n, and
        # S with it, would be wrong. It is refused, not cut off.
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
    """A layer of queries [heads, T, d] and keys [kv heads, T, d]; logits are made by blocks."""

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
        if self.mask_adds:
            kinds.append(self.mask.dtype)
        return np.result_type(*kinds)

    @property
    def mask_adds(self) -> bool:
        """Whether the mask is numbers that are added to the logits."""
        return self.mask is not None and self.mask.dtype.kind == "f"

    def part(self, heads: np.ndarray) -> LogitLayer:
        """Return some of the heads, each with a key head of its own."""
        keys = self.keys[heads // (self.queries.shape[0] // self.keys.shape[0])]
        learned = None if self.learned_sinks is None else self.learned_sinks[heads]
        return self.take_heads(heads, queries=self.queries[heads], keys=keys, learned_sinks=learned)

    def block(self, start: int, stop: int, width: int) -> tuple[Any, Any]:
        """Return rows start … stop over keys 0 … width, and which of these they see.

        Raises:
            InputError: logits too large for the type of the arrays.
        """
        # Queries that share a key head are stacked as its rows: one product for each key head.
        heads, _, dim = self.queries.shape
        groups = self.keys.shape[0]
        q = self.queries[:, start:stop].reshape(groups, -1, dim) * self.scale
        logits = _multiply(q, self.keys[:, :width]).reshape(heads, stop - start, width)
        check_finite("logits", logits)  # before the cap: tanh would make 1 of infinity
        xp = logits.__array_namespace__()
        seen = self.visible_keys(start, stop, width, xp)
        if self.softcap is not None:
            logits = self.softcap * xp.tanh(logits / self.softcap)
        if self.mask_adds:  # not where it hides: −∞ in a logit would make NaN of 0·∞ later
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


@functools.cache
def compiled_product() -> Any:
    import jax

    def product(q: Any, k: Any) -> Any:
        return jax.numpy.matmul(q, k.swapaxes(-1, -2), precision=jax.lax.Precision.HIGHEST)

    return jax.jit(product)


def _multiply(q: Any, k: Any) -> Any:
    """Return q·kᵀ of each group, [groups, rows, keys].

    Single precision goes through JAX on the CPU as well: the blocks of a layer run in threads of
    their own, and the threads of BLAS stall where they share cores with these. Double precision
    stays with NumPy, since JAX has it only under a flag. NumPy arrays are multiplied group by
    group, so that one shape is compiled for any number of groups.
    """
    if not isinstance(q, np.ndarray):
        return compiled_product()(q, k)
    if q.dtype != np.float32:
        return np.matmul(q, k.swapaxes(-1, -2))
    return np.stack([compiled_product()(*pair) for pair in zip(q, k, strict=True)])


def check_finite(name: str, x: Any) -> None:
    """Check an array.

    Raises:
        InputError: NaN or infinite values.
    """
    xp = x.__array_namespace__()
    if not bool(xp.all(xp.isfinite(x))):
        raise InputError(name, f"array of shape {x.shape}", "holds NaN or infinite values")


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
        # The diagonal of the mask and its two neighbours: whether token i's key is seen at i, and
        # whether it is seen from i − 1 or i + 1. Strict masks hide a token from itself alone.
        by_itself, beside = (np.zeros((heads, length), bool) for _ in range(2))
        for start, stop, seen in layer.iterate_visible():
            for away, marks in ((0, by_itself), (1, beside), (-1, beside)):
                i = np.arange(max(start, -away), min(stop, length - away))
                marks[:, i + away] |= seen[:, i - start, i + away]
        text = by_itself | beside | ~by_itself.any(-1, keepdims=True)
    # Where no query sees its own key the mask says nothing about padding: `text` is all true then.
    visible, padded = [], layer.segments is None and not text.all()
    for start, stop, seen in replace(layer, active=text).iterate_visible():
        if padded and shows_keys_here_and_there(seen, text[:, start:stop], text):
            fix = "hides tokens from themselves and shows keys here and there: give segments= as "
            raise InputError("mask", "array", fix + "well, ones where no token is padding")
        visible.append((seen.any(-1), seen.argmax(-1)))
    active, first = (np.concatenate(x, axis=1) for x in zip(*visible, strict=True))
    # One position for all rows is kept as a number: the sink key is then a slice of the arrays.
    firsts = np.unique(first[active])
    first = first if firsts.size > 1 else int(firsts[0]) if firsts.size else 0
    return replace(layer, active=None if active.all() else active, first=first)


def shows_keys_here_and_there(seen: np.ndarray, of_text: np.ndarray, text: np.ndarray) -> bool:
    """Return whether a mask is too irregular for its hidden tokens to be taken as padding.

    Under masks of order, windows, packed texts and padding, the rows that see a given key follow
    one another, if rows that are padding or see nothing are left out, and no key of padding is
    seen. Sparse patterns break this: there a token that is hidden from itself need not be padding,
    and the caller must say.

    Args:
        seen: some rows of the mask, [..., rows, keys].
        of_text: which of these are taken to be no padding, [..., rows].
        text: which of all tokens are, [..., tokens].
    """
    # Rows that see anything are numbered; a key's rows follow one another if their count is the
    # last number less the first, plus one.
    count = (of_text & seen.any(-1)).cumsum(-1)[..., None]
    first = np.where(seen, count, count.shape[-2] + 1).min(-2)
    last = np.where(seen, count, 0).max(-2)
    some = seen.any(-2)
    return bool((some & ((last - first + 1 != seen.sum(-2)) | ~text)).any())
