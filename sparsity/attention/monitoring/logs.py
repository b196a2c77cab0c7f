"""Names and floats for loggers: what a monitor saw, layer by layer, beside the exact law."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from sparsity.arguments import as_float64, reals
from sparsity.attention.largest_logit import COARSE, expected_largest
from sparsity.attention.measurement import row_laws
from sparsity.errors import InputError

# Of these the largest over rows, heads and layers is logged, as one logit is enough to overflow; of
# all others the mean.
_BY_MAXIMUM = ("max_logit", "max_logit_exact")


def n_eff_exact(length: Any, gamma: Any) -> np.ndarray:
    """Return the mean n_eff of rows of n Gaussian logits of spread γ̂, by the exact law.

    Args:
        length: n, as `sparsity.stream` gives it.
        gamma: γ̂, broadcasts with `length`.

    Returns:
        float64, to a relative error of 2e-6; 1 for one key, NaN for none or for γ̂ beyond 200.
    """
    n = as_float64(length, "length", "give row lengths", texts=False)
    n = np.where((n >= 1) & (n <= 2**53), n, np.nan)  # beyond, float64 does not have all n
    return n * row_laws.exact_law(n, as_float64(gamma, "gamma", "give spreads", texts=False)) ** 2


def log(found: Any) -> dict[str, float]:
    """Return what `monitor` saw as a flat dict of names and floats, for any logger that takes one.

    Names are "layer.head/statistic", "layer/statistic" over its heads and "all/statistic" over all.
    Values are means over batch and rows, but of max_logit the largest. Where there are length and
    gamma, `n_eff_exact` is what the exact law says of the same rows: far above n_eff where a few
    keys stand out, such as a sink. Where there is beta as well, `max_logit_exact` is the mean of
    the largest of so many Gaussian logits, of the n, β̂ and γ̂ of the rows of a head; of a layer,
    that of the head where it is largest. What has no value is left out: a step that was not looked
    at, and rows that see no key, such as those of padding.

    Args:
        found: a dict of arrays [..., heads, rows] for each layer, in lists or dicts of any depth.

    Raises:
        InputError: anything else.
    """
    layers = {name: _by_head(name, values) for name, values in _walk_layers(found, "")}
    named: dict[str, float] = {}
    for name, values in layers.items():
        for statistic, x in values.items():
            for head, row in enumerate(x):
                named[f"{name}.head{head}/{statistic}"] = _summarised(statistic, row)
            named[f"{name}/{statistic}"] = _summarised(statistic, x)
    for statistic in dict.fromkeys(s for values in layers.values() for s in values):
        every = [values[statistic].ravel() for values in layers.values() if statistic in values]
        named[f"all/{statistic}"] = _summarised(statistic, np.concatenate(every))
    return {name: x for name, x in named.items() if not np.isnan(x)}


def _walk_layers(found: Any, name: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Iterate over dicts of arrays with their names: keys by dots; in lists layer0, layer1, …."""
    if isinstance(found, Mapping) and found:
        if not any(isinstance(x, Mapping | list | tuple) for x in found.values()):
            yield name or "layer0", found
            return
        parts = {str(key): x for key, x in found.items()}
    elif isinstance(found, Sequence) and not isinstance(found, str):
        parts = {f"layer{i}": x for i, x in enumerate(found)}
    else:
        fix = "give what monitor returned, in lists or dicts"
        raise InputError("found", type(found).__name__, fix)
    for key, part in parts.items():
        yield from _walk_layers(part, f"{name}.{key}" if name else key)


def _by_head(name: str, values: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Return arrays [heads, batch · rows] in float64 with the laws of their rows added.

    What has no value is NaN: whole numbers below 0, as `monitor` marks steps that it did not look
    at, and rows of length 0.
    """
    rows = {}
    for statistic, x in values.items():
        x = np.asarray(reals(f"{name}/{statistic}", x))
        if x.ndim < 2 or (x.dtype.kind not in "fiu" and str(x.dtype) != "bfloat16"):
            fix = "must be numbers [..., heads, rows]"
            raise InputError(f"{name}/{statistic}", f"array of {x.dtype}, shape {x.shape}", fix)
        wide = np.where(x < 0, np.nan, x) if x.dtype.kind in "iu" else x.astype(np.float64)
        wide = np.where(wide == 0, np.nan, wide) if statistic == "length" else wide
        rows[str(statistic)] = np.moveaxis(wide, -2, 0).reshape(x.shape[-2], -1)
    if {"length", "gamma"} <= rows.keys():
        rows["n_eff_exact"] = n_eff_exact(rows["length"], rows["gamma"])
    if {"length", "gamma", "beta"} <= rows.keys():
        rows["max_logit_exact"] = _expected_largest(rows["length"], rows["gamma"], rows["beta"])
    return rows


def _expected_largest(n: np.ndarray, gamma: np.ndarray, beta: np.ndarray) -> np.ndarray:
    """Return E max of all logits of the rows of each head, [heads, 1], by the law of each row."""
    gamma = np.where(n == 1, 0.0, gamma)  # a single logit has no spread: γ̂ is NaN there
    known = np.isfinite(n) & np.isfinite(gamma) & np.isfinite(beta)
    found = np.full((len(n), 1), np.nan)
    for head, seen in enumerate(known):
        if seen.any():
            one, spread, mean = (x[head, seen] for x in (n, gamma, beta))
            found[head] = expected_largest(one, spread, mean, COARSE)
    return found


def _summarised(statistic: str, x: np.ndarray) -> float:
    known = x[~np.isnan(x)]
    if not known.size:
        return float("nan")
    return float(known.max() if statistic in _BY_MAXIMUM else known.mean())
