"""Interventions in the forward pass of a Llama: what a layer does not read, and what it computes.

`llama.layers(model, texts, visit, edit=…, show=…)` asks `edit(layer, text)` for an `Edit` before it
runs a layer, and gives `show(layer, text, inside)` an `Inside` after it:

    def edit(layer, text):  # no query reads the first key but its own
        hidden = np.zeros((heads, length, length), bool)  # head, query, key
        hidden[:, 1:, 0] = True
        return Edit(hidden=hidden)

A key that is hidden is not there for a query: the others share its weight. A key that is muted
keeps its weight, and what is read of it is zero. The two tell what a key does by its weight from
what it does by its value.

Hiding the first key from all later queries in every head removes no sink: where positions are
relative, as here, that is the text without its first token, and the second is then the first.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from sparsity.errors import InputError


def softmax_over(logits: Any, seen: Any) -> Any:
    """Return softmax weights over the keys that are seen; a query that sees none has none."""
    left = jnp.where(seen, logits, -jnp.inf)
    top = left.max(-1, keepdims=True)
    weights = jnp.exp(left - jnp.where(jnp.isfinite(top), top, 0))
    total = weights.sum(-1, keepdims=True)
    return weights / jnp.where(total > 0, total, 1)


@jax.jit
def _weights(q: Any, k: Any, seen: Any) -> Any:
    heads, length, dim = q.shape
    q = q.reshape(len(k), heads // len(k), length, dim)
    logits = jnp.einsum("ghid,gjd->ghij", q, k, precision="highest") / dim**0.5
    return softmax_over(logits.reshape(heads, length, length), seen)


@dataclass(frozen=True)
class Edit:
    """What the queries of a layer do not read.

    Args:
        hidden: keys that are not there, bool [heads, T, T] (head, query, key) or a shape that
            broadcasts to it.
        muted: keys that keep their weight, but whose values are read as zero, likewise.
    """

    hidden: Any = False
    muted: Any = False

    def masks(self, heads: int, length: int) -> tuple[np.ndarray, np.ndarray]:
        """Return both as bool [heads, T, T].

        Raises:
            InputError: an array is not of bool, or does not broadcast to that shape.
        """
        shape = heads, length, length

        def whole(name: str, given: Any) -> np.ndarray:
            mask = np.asarray(given)
            try:
                # An integer array would be taken for a mask, though it may hold positions of keys.
                if mask.dtype != bool:
                    raise ValueError
                return np.broadcast_to(mask, shape)
            except ValueError:
                fix = f"must be bool [heads, queries, keys] of shape {shape}, or broadcast to it"
                raise InputError(name, f"{mask.dtype} {list(mask.shape)}", fix) from None

        return whole("hidden", self.hidden), whole("muted", self.muted)


class Inside(NamedTuple):
    """What a layer computed of a text.

    Args:
        before: the hidden states that entered the layer, [T, dim].
        after: the hidden states that left it, [T, dim].
        queries: [heads, T, d], rotary positions applied.
        keys: [kv heads, T, d], likewise; consecutive query heads share one.
        values: [kv heads, T, d].
        outputs: what each head read, Σ_j a_ij v_j, [heads, T, d].
        output_weights: W_O, [dim, heads·d]: the layer adds `outputs`, head after head, times it.
        edit: what the queries did not read, or None.
    """

    before: Any
    after: Any
    queries: Any
    keys: Any
    values: Any
    outputs: Any
    output_weights: Any
    edit: Edit | None

    def weights(self) -> Any:
        """Return the attention weights [heads, T, T]; muted keys have theirs, hidden ones none."""
        heads, length, _ = self.queries.shape
        seen = np.tri(length, dtype=bool)
        if self.edit is not None:
            seen = seen & ~self.edit.masks(heads, length)[0]
        return _weights(self.queries, self.keys, seen)

    def written(self) -> Any:
        """Return W_O v of every key as each head would add it to a state, [heads, T, dim]."""
        heads, _, dim = self.queries.shape
        v = np.repeat(np.asarray(self.values), heads // len(self.values), 0)
        w = np.asarray(self.output_weights).reshape(-1, heads, dim)
        return v @ w.transpose(1, 2, 0)
