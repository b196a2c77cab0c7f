"""The options of `stream`, checked before anything is traced."""

from __future__ import annotations

from typing import Any

import jax
import jax.core
import numpy as np

from sparsity.arguments import choice, flag, function, number, positions, reals, whole
from sparsity.errors import InputError
from sparsity.rows.rotation import PAIRINGS

_PRECISIONS = ("default", "high", "highest")
_OPTIONAL = (
    *("scale", "window", "softcap", "slopes", "mask", "sink_logits", "sinks", "rope"),
    "axis_name",
    "precision",
)


def checked(heads: int, **given: Any) -> dict[str, Any]:
    """The options by name, as plain values; what may be traced stays as it is.

    Args:
        heads: of the queries.
        given: options of `stream` by name.

    Raises:
        InputError: one that is not what it should be.
    """
    found = {
        name: None if x is None and name in _OPTIONAL else _CHECKS[name](name, x)
        for name, x in given.items()
    }
    for name in ("slopes", "sink_logits"):
        by_head: Any = found.get(name)
        if by_head is not None and by_head.shape not in ((), (heads,)):
            fix = f"give one number or one for each of {heads} heads"
            raise InputError(name, f"array of shape {by_head.shape}", fix)
    return found


def _positive(name: str, value: Any) -> float:
    return float(number(name, value, "must be > 0 and finite", lambda x: x > 0))


def _base(name: str, value: Any) -> float:
    return float(number(name, value, "must be finite and > 1", lambda x: x > 1))


def _scale(name: str, value: Any) -> Any:
    """A number, or a traced one: a temperature may be learned."""
    if isinstance(value, jax.core.Tracer) and value.shape == ():
        return reals(name, value, traced=True)
    return float(number(name, value, "give one finite number"))


def _by_head(name: str, value: Any) -> Any:
    found = reals(name, value, "give finite numbers", traced=True)
    if not isinstance(found, jax.core.Tracer) and not np.all(np.isfinite(np.asarray(found))):
        raise InputError(name, value, "give finite numbers")
    return found


def _sinks(name: str, value: Any) -> tuple[int, ...]:
    return tuple(positions(name, value, "give positions of keys, whole numbers >= 0").tolist())


def _block(name: str, value: Any) -> tuple[int, int]:
    fix = "give how many queries and keys to take at a time, at least 1"
    found = positions(name, value, fix, 1).tolist()
    if len(found) != 2:
        raise InputError(name, value, fix)
    return found[0], found[1]


def _axis(name: str, value: Any) -> Any:
    several = value if isinstance(value, tuple) else (value,)
    if not all(isinstance(each, str) for each in several):
        raise InputError(name, value, "give the name of an axis of shard_map")
    try:
        jax.lax.axis_size(value)
    except NameError:
        raise InputError(name, value, "is no axis of a shard_map around it") from None
    return value


_CHECKS = {
    "scale": _scale,
    "causal": flag,
    "window": lambda name, x: whole(name, x, 1),
    "softcap": _positive,
    "slopes": _by_head,
    "sink_logits": _by_head,
    "mask": lambda name, x: function(name, x, "give a function (i, j) -> bool of positions"),
    "sinks": _sinks,
    "rope": _base,
    "pairing": lambda name, x: choice(name, x, PAIRINGS),
    "axis_name": _axis,
    "block": _block,
    "precision": lambda name, x: choice(name, x, _PRECISIONS),
}
