"""How queries and keys become logits, and which keys a query sees: one block at a time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax.numpy as jnp

Mask = Callable[[Any, Any], Any]


@dataclass(frozen=True)
class Scores:
    """What is fixed of the logits s = cap·tanh(scale·q·k/cap) − slope·(i − j) of query i and key j.

    Args:
        causal: whether a query sees only itself and the keys before it.
        window: how many keys up to itself it sees at most; None for all.
        softcap: the cap; None for none.
        mask: (i, j) -> bool, which keys a query sees besides; positions [rows, 1] and [1, keys].
        precision: of the product, as JAX names it.
    """

    causal: bool = True
    window: int | None = None
    softcap: float | None = None
    mask: Mask | None = None
    precision: str = "highest"


class Rows(NamedTuple):
    """Queries and what belongs to each.

    Args:
        q: queries [groups, heads of a group, rows, d].
        at: their positions, int32 [rows].
        scale: of q·k.
        slopes: of ALiBi, [groups, heads]; None for none.
        text: the numbers of the texts they belong to, int32 [rows], 0 or less for padding; None
            where all is one text.
        texts: those of all keys, [keys].
    """

    q: Any
    at: Any
    scale: Any
    slopes: Any = None
    text: Any = None
    texts: Any = None


def logits(scores: Scores, rows: Rows, k: Any, at: Any) -> tuple[Any, Any]:
    """Logits [groups, heads, rows, keys] and which of them are seen, [rows, keys].

    Args:
        scores: what is fixed.
        rows: the queries.
        k: keys [groups, keys, d].
        at: their positions, int32 [keys].
    """
    wide = jnp.promote_types(rows.q.dtype, "float32")
    s = rows.scale.astype(wide) * jnp.einsum(
        "ghrd,gkd->ghrk", rows.q, k, precision=scores.precision, preferred_element_type=wide
    )
    if scores.softcap is not None:
        s = scores.softcap * jnp.tanh(s / scores.softcap)
    i, j = rows.at[:, None], at[None, :]
    if rows.slopes is not None:
        s = s - rows.slopes[:, :, None, None] * jnp.abs(i - j)
    found = seen(scores, i, j)
    if rows.text is not None:
        text = rows.text[:, None]
        found = found & (text == rows.texts[at]) & (text > 0)
    return s, found


def seen(scores: Scores, i: Any, j: Any) -> Any:
    """Which keys queries see, bool [rows, keys]."""
    found = jnp.ones(jnp.broadcast_shapes(i.shape, j.shape), bool)
    if scores.causal:
        found = found & (j <= i)
    if scores.window is not None:
        found = found & (jnp.abs(i - j) < scores.window)
    if scores.mask is not None:
        found = found & scores.mask(i, j)
    return found


def reaches(scores: Scores, rows: Rows, first: Any, last: Any) -> Any:
    """Whether any of the rows may see a key from position `first` to `last`: one bool."""
    found = jnp.asarray(True)
    if scores.causal:
        found = found & (first <= rows.at.max())
    if scores.window is not None:
        found = found & (last > rows.at.min() - scores.window)
        found = found & (first < rows.at.max() + scores.window)
    return found
