"""What a threshold λ under the largest weight drops: keys, tiles of keys, and the weight they hold.

Kernels that skip tiles (BLASST, arXiv 2512.12087; "skip softmax" in TensorRT-LLM and vLLM) leave
out a tile of B keys if the largest of its logits is below the row's largest + ln λ. Of weights
other than e^s it is ln|a| that takes the logit's place. A kernel that goes through the tiles in
order compares with the largest so far: it skips tile i as in a row of the first i tiles.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

from sparsity.quantities.base import Family, Quantity, RowSums
from sparsity.quantities.laws import BelowLaw

_LEAST = -80.0  # ln λ: float32 has numbers down to e^−87, and no kernel drops so little


def _tiles(weights: Any, size: int) -> Any:
    """Return rows cut into tiles, [..., tiles, keys]; the last one is filled up with zeros."""
    xp, n = weights.__array_namespace__(), weights.shape[-1]
    size = min(size, n)
    left_over = xp.zeros((*weights.shape[:-1], -n % size), dtype=weights.dtype)
    padded = weights if n % size == 0 else xp.concatenate([weights, left_over], axis=-1)
    return padded.reshape(*weights.shape[:-1], -1, size)


def _member(mass: bool, name: str, log_ratio: float, tile: float = 1) -> Quantity:
    size, ratio = int(tile), math.exp(log_ratio)
    what = "keys" if size == 1 else f"tiles of {size} keys, all of them"
    tiles = "" if size == 1 else f" of tiles of {size}"

    def of(row: RowSums) -> Any:
        tiles = _tiles(row.weights, size)
        dropped = tiles.max(-1) < ratio * row.weights.max(-1, keepdims=True)
        if mass:
            return (tiles.sum(-1) * dropped).sum(-1) / (row.l1 + row.unit)
        return dropped.astype(row.weights.dtype).mean(-1)

    return Quantity(
        name=name,
        symbol=f"{'mass' if mass else 'share'}{tiles} below {log_ratio:g}",
        title=f"{'weight' if mass else 'share'} of {what} below max|a|·e^{log_ratio:g}",
        average=(
            "E Σ_dropped|a|/(Σ|a| + sink logits) over rows that are not all zero"
            if mass
            else f"E #dropped/#{'keys' if size == 1 else 'tiles'} over rows that are not all zero"
        ),
        of=of,
        units=mass,
        whole=True,
        rank_law=BelowLaw(log_ratio, size, mass),
    )


_share, _mass = partial(_member, False), partial(_member, True)


def _admits(log_ratio: float, tile: float = 1) -> bool:
    return _LEAST <= log_ratio < 0 and tile >= 1 and float(tile).is_integer()


_KEYS = (f"a number ln λ below 0, at least {_LEAST:g}", _admits)
_TILES = (f"ln λ below 0, at least {_LEAST:g}, and the keys of a tile, a whole number", _admits)
_BELOW = "that lie more than |ln λ| below the largest logit"

below = Family("below", "ln λ", f"share of keys {_BELOW}", *_KEYS, _share, "-2")
mass_below = Family("mass_below", "ln λ", f"weight of the keys {_BELOW}", *_KEYS, _mass, "-2")
tiles_below = Family("tiles_below", "ln λ,B", f"share of tiles {_BELOW}", *_TILES, _share, "-1,2")
tiles_mass_below = Family(
    "tiles_mass_below", "ln λ,B", f"weight of the tiles {_BELOW}", *_TILES, _mass, "-1,2"
)
