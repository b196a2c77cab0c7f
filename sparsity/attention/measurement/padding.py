"""Which queries are padding, and which key each query sees first, by what hides keys.

A mask says which keys are seen and not why. Padding must be told from masks of order, windows and
sparse patterns: rows of padding would count as rows of attention, or rows of attention be lost.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from sparsity.errors import InputError


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
