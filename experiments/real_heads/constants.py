"""The law given the largest logit, with one constant κ of each head: γ = κγ̂.

The law takes the logits below the largest as Gaussian of spread γ̂. Those of real heads are not: κ
says how wide a Gaussian has to be to give the head's median S. A law with a fitted constant is
judged on other texts than it was fitted on; otherwise it would be compared with itself.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import xarray

from sparsity import InputError
from sparsity.attention.measurement.row_laws import log_head_law

EVERY_ROW = 8  # of the second half: neighbouring rows share their keys and say the same
# ln κ where medians are taken, in steps of 1/16: κ from 0.29 to 3.5. Between, the median is taken
# as straight. More steps cost time and memory in proportion.
LOG_KAPPA = np.linspace(-1.25, 1.25, 41)

_AXES = ("text", "layer", "head", "row")


class HeadRows(NamedTuple):
    """Rows of heads, [text, layer, head, row]; NaN in `S` where one is not to count.

    Args:
        length: n, the keys.
        gamma: γ̂ of their logits.
        top: the largest logit less their mean.
        S: the sparsity of the row.
    """

    length: np.ndarray
    gamma: np.ndarray
    top: np.ndarray
    S: np.ndarray

    @classmethod
    def of(cls, data: xarray.Dataset) -> HeadRows:
        """Take rows without their sinks from `measure`, or without the first key from `parts`."""
        tag = "_without_sinks" if "length_without_sinks" in data else "_without_sink_key"
        names = (f"{name}{tag}" for name in ("length", "gamma", "top_logit", "S"))
        n, gamma, top, S = (data[name].transpose(*_AXES).values.astype(float) for name in names)
        known = (n > 1) & np.isfinite(gamma) & np.isfinite(top)
        return cls(n, gamma, top, np.where(known, S, np.nan))

    def log_law(self, kappa: Any = 1.0) -> np.ndarray:
        """Return the log of the law given the largest logit."""
        return log_head_law(self.length, self.gamma, self.top, kappa)


def fit_kappa(rows: HeadRows) -> np.ndarray:
    """Return κ [layer, head] at which the median over rows of log(S/law) is zero."""
    return np.exp(_fit_log_kappa(_ratios_on_grid(rows)))


def log_law_held_back(rows: HeadRows) -> np.ndarray:
    """Return the log of the law for each text, κ of its heads fitted on all other texts.

    Raises:
        InputError: fewer than two texts.
    """
    count = len(rows.S)
    if count < 2:
        raise InputError("texts", count, "κ is fitted on other texts; give two or more")
    ratios = _ratios_on_grid(rows)
    of_others = [np.exp(_fit_log_kappa(np.delete(ratios, i, axis=1))) for i in range(count)]
    law = rows.log_law(np.stack(of_others)[..., None])
    return np.where(np.isfinite(rows.S), law, np.nan)


def _ratios_on_grid(rows: HeadRows) -> np.ndarray:
    """Return log(S/law) at every κ, [κ, text, layer, head, row], single precision."""
    log_S = np.log(rows.S)
    return np.stack([(log_S - rows.log_law(np.exp(x))).astype(np.float32) for x in LOG_KAPPA])


def _fit_log_kappa(ratios: np.ndarray) -> np.ndarray:
    """Return log κ [layer, head].

    It is where the median log ratio is zero, nearest to κ = 1; where it nowhere is, where it is
    nearest to zero.
    """
    # The ratio need not be monotonic in κ: of several roots the one nearest to κ = 1 changes the
    # law least. The median is not smooth, hence a grid and a straight line, not Newton's method.
    flat = np.moveaxis(ratios, 1, -2)
    medians = np.nanmedian(flat.reshape(*flat.shape[:3], -1), axis=-1)
    x = LOG_KAPPA.reshape(-1, 1, 1)
    left, right, step = medians[:-1], medians[1:], np.diff(LOG_KAPPA)[0]
    crosses = (left > 0) != (right > 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        root = x[:-1] + step * np.where(left == right, 0.0, left / (left - right))
    distance = np.where(crosses, np.abs(root), np.inf)
    best = np.take_along_axis(root, distance.argmin(0)[None], 0)[0]
    closest = LOG_KAPPA[np.abs(medians).argmin(0)]
    return np.where(crosses.any(0), best, closest)
