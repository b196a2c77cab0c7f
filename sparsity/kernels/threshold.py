"""The threshold of a row: the root of a falling convex function, by Newton's steps from below.

They rise to the root and never pass it, so they are done when none of them rises any more. No row
is sorted: of a row of many keys, few are ever near the threshold.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np


def newton_from_below(step: Callable[[Any], Any], start: Any) -> Any:
    """The thresholds at which `step` no longer raises any of them.

    Args:
        step: thresholds -> the next ones, [..., 1].
        start: thresholds below the root, an array of NumPy or JAX.
    """
    xp = start.__array_namespace__()

    def next_(pair: tuple[Any, Any]) -> tuple[Any, Any]:
        return pair[1], xp.maximum(pair[1], step(pair[1]))

    def rises(pair: tuple[Any, Any]) -> Any:
        return (pair[1] > pair[0]).any()

    pair = next_((start, start))
    if not isinstance(start, np.ndarray):
        import jax

        return jax.lax.while_loop(rises, next_, pair)[1]
    while rises(pair):
        pair = next_(pair)
    return pair[1]
