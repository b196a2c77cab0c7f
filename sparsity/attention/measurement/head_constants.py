"""One constant κ of each head, fitted on texts: γ = κ γ̂ in the law given the largest logit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from sparsity.arguments import whole
from sparsity.attention.measurement.head_law import log_head_law
from sparsity.attention.measurement.texts import texts_of
from sparsity.errors import InputError

if TYPE_CHECKING:
    import xarray

_LOG_KAPPA = np.linspace(-1.25, 1.25, 41)  # where medians are taken; between, they are straight
_AXES = ("text", "layer", "head", "row")
_OTHERS = ("length_others", "gamma_others", "top_logit_others", "S_others")
_REST = ("length_rest", "gamma_rest", "top_logit_rest", "S_rest")


@dataclass(frozen=True)
class Rows:
    """Rows without their sinks, [text, layer, head, row]; NaN in `S` where one is not to count.

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
    def of(cls, data: xarray.Dataset) -> Rows:
        """From a measurement of one run or of several texts.

        Args:
            data: of `measure` or the like, whose rows are taken without all of their sinks; or of
                `measure_heads`, without their first key.

        Raises:
            InputError: weights without logits, or texts run both with BOS and without.
        """
        if "length_rest" not in data and "sink_logit" in data:
            data = data.assign(length_rest=data["length"] - np.isfinite(data["sink_logit"]))
        names = _OTHERS if "length_others" in data else _REST
        missing = [name for name in names if name not in data]
        if missing:
            fix = f"has no {missing[0]}; measure queries and keys"
            raise InputError("data", "dataset", fix)
        for name in ("text", "layer", "head"):
            if name not in data.dims:
                data = data.expand_dims(name)
        other = sorted(set(map(str, data[names[-1]].dims)) - set(_AXES))
        if other:
            fix = f"choose one, as in data.isel({other[0]}=0)"
            raise InputError("data", f"dataset over {other[0]}", fix)
        n, gamma, top, S = (data[name].transpose(*_AXES).values.astype(float) for name in names)
        known = (n > 1) & np.isfinite(gamma) & np.isfinite(top)
        return cls(n, gamma, top, np.where(known, S, np.nan))

    def log_ratio(self, kappa: Any = 1.0) -> np.ndarray:
        """Log of S over the law."""
        return np.log(self.S) - log_head_law(self.length, self.gamma, self.top, kappa)


def _median(x: np.ndarray) -> np.ndarray:
    """Over texts and rows, [text, layer, head, row] -> [layer, head]."""
    median = np.nanmedian if np.isnan(x).any() else np.median
    return median(np.moveaxis(x, 0, -1).reshape(*x.shape[1:3], -1), -1)


def _roots(medians: np.ndarray) -> np.ndarray:
    """Where the median log ratio is zero, nearest to κ = 1; where nowhere, the nearest to zero.

    Args:
        medians: at each of `_LOG_KAPPA`, [κ, layer, head].

    Returns:
        log κ [layer, head].
    """
    x = _LOG_KAPPA.reshape(-1, 1, 1)
    left, right, step = medians[:-1], medians[1:], np.diff(_LOG_KAPPA)[0]
    crosses = (left > 0) != (right > 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        root = x[:-1] + step * np.where(left == right, 0.0, left / (left - right))
    distance = np.where(crosses, np.abs(root), np.inf)
    best = np.take_along_axis(root, distance.argmin(0)[None], 0)[0]
    closest = _LOG_KAPPA[np.abs(np.nan_to_num(medians, nan=np.inf)).argmin(0)]
    found = np.where(crosses.any(0), best, closest)
    return np.where(np.isnan(medians).all(0), np.nan, found)  # without a row


@dataclass(frozen=True)
class HeadConstants:
    """The constants of a model's heads.

    Args:
        kappa: κ [layer, head]; NaN for a head without a row.
        stderr: its standard error, from texts drawn with replacement; NaN for a single text.
        rows: that each was fitted on.
        texts: how many; windows of one text are one.
        resamples: of the texts.
        seed: of the resampling.
        method: how it was fitted.
    """

    kappa: np.ndarray
    stderr: np.ndarray
    rows: np.ndarray
    texts: int
    resamples: int
    seed: int
    method: str = "median of log(S/law) zero, bootstrap over texts"


def _grid(rows: Rows) -> np.ndarray:
    """Log ratios at every κ, [κ, text, layer, head, row], single precision."""
    return np.stack([rows.log_ratio(np.exp(x)).astype(np.float32) for x in _LOG_KAPPA])


def _fit(grid: np.ndarray, texts: Any) -> np.ndarray:
    """Log κ [layer, head] from some texts."""
    return _roots(np.stack([_median(at[texts]) for at in grid]))


def _texts(data: xarray.Dataset, count: int) -> list[np.ndarray]:
    """The windows of each text, by place: each a text of its own but where a stride cut them."""
    if "text" not in data.dims:
        return [np.arange(count)]
    names = texts_of(data["text"].values, data.attrs.get("stride"))
    of = np.unique(names, return_inverse=True)[1]
    return [np.flatnonzero(of == i) for i in dict.fromkeys(of.tolist())]


def fit_kappa(data: xarray.Dataset, *, resamples: int = 30, seed: int = 0) -> HeadConstants:
    """Fit κ of every head: the median over rows of log(S/law) is zero.

    Args:
        data: of `measure_model` on the texts to fit on, one value of bos; a tenth of the rows, as
            in `data.sel(row=slice(257, None, 8))`, does as well as all.
        resamples: of the texts, whose windows stay together, for the standard error; ≥ 2.
        seed: of the resampling.

    Raises:
        InputError: data without logits, or over bos.
    """
    rows, resamples = Rows.of(data), whole("resamples", resamples, 2)
    grid, rng = _grid(rows), np.random.default_rng(seed)
    texts = _texts(data, len(rows.S))
    count = np.isfinite(rows.S).sum((0, 3))
    kappa = np.where(count > 0, np.exp(_fit(grid, slice(None))), np.nan)
    stderr = np.full_like(kappa, np.nan)
    if len(texts) > 1:
        draws = rng.integers(0, len(texts), (resamples, len(texts)))
        drawn = [_fit(grid, np.concatenate([texts[i] for i in draw])) for draw in draws]
        stderr = kappa * np.nanstd(drawn, axis=0, ddof=1)
    return HeadConstants(kappa, stderr, count, len(texts), resamples, seed)


def kappa_of_others(data: xarray.Dataset) -> np.ndarray:
    """κ of each head, for each text fitted on all other texts.

    Args:
        data: as `fit_kappa` takes it, of two texts or more; windows of a text are never others.

    Returns:
        [text, layer, head].

    Raises:
        InputError: fewer than two texts, or as `fit_kappa`.
    """
    rows = Rows.of(data)
    texts = _texts(data, len(rows.S))
    if len(texts) < 2:
        raise InputError("data", "one text", "κ is fitted on other texts; give two or more")
    grid, kappa = _grid(rows), np.empty(rows.S.shape[:3])
    for own in texts:
        kappa[own] = np.exp(_fit(grid, np.setdiff1d(np.arange(len(rows.S)), own)))
    return kappa


def held_back(data: xarray.Dataset) -> np.ndarray:
    """Log of the law for each text, κ of its heads fitted on all other texts.

    Args:
        data: as `kappa_of_others` takes it.

    Returns:
        [text, layer, head, row], NaN where a row does not count.

    Raises:
        InputError: as `kappa_of_others`.
    """
    rows, kappa = Rows.of(data), kappa_of_others(data)
    law = log_head_law(rows.length, rows.gamma, rows.top, kappa[..., None])
    return np.where(np.isfinite(rows.S), law, np.nan)
