"""One constant κ of each head, fitted on texts: γ = κ γ̂ in the law given the largest logit.

The law takes the logits below the largest as Gaussian of spread γ̂. Those of real heads are not: κ
says how wide a Gaussian has to be to give the head's median S. A law with a fitted constant is
judged on other texts than it was fitted on (`fit_kappa_on_other_texts`); otherwise it would be
compared with itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from sparsity.arguments import check_seed, instance, whole
from sparsity.attention.measurement import tables
from sparsity.attention.measurement.row_laws import head_law, log_head_law
from sparsity.errors import InputError

if TYPE_CHECKING:
    import xarray

EVERY_ROW = 8  # of the second half, one in so many is enough to fit one number of a head
# ln κ where medians are taken, in steps of 1/16: κ from 0.29 to 3.5. Between, the median is taken
# as straight. More steps cost time and memory in proportion.
LOG_KAPPA = np.linspace(-1.25, 1.25, 41)

MEANING = {
    "S_given_without_sinks": "law of the row given its largest logit, nothing fitted",
    "S_head_without_sinks": "the same with a constant of the head, fitted on all other texts",
    "kappa": "that constant, by which gamma is multiplied, fitted on all texts",
    "kappa_stderr": "its standard error, from texts drawn with replacement",
}

_AXES = ("text", "layer", "head", "row")
_FIELDS = ("length", "gamma", "top_logit", "S")


@dataclass(frozen=True)
class HeadRows:
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
    def of(cls, data: xarray.Dataset) -> HeadRows:
        """Take the rows of a measurement of one run or of several texts.

        Args:
            data: of `measure` or the like, whose rows are taken without all of their sinks; or of
                `measure_heads`, without their first key.

        Raises:
            InputError: weights without logits, or texts run both with BOS and without.
        """
        # `measure` has rows without all sinks; `measure_heads` leaves out the first key alone, and
        # its `length` counts that key.
        if "length_without_sinks" in data:
            names = [f"{name}_without_sinks" for name in _FIELDS]
        else:
            names = [f"{name}_without_sink_key" for name in _FIELDS]
            if names[0] not in data and "sink_logit" in data:
                data = data.assign({names[0]: data["length"] - np.isfinite(data["sink_logit"])})
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

    def log_law(self, kappa: Any = 1.0) -> np.ndarray:
        """Return the log of the law given the largest logit."""
        return log_head_law(self.length, self.gamma, self.top, kappa)

    def log_ratio(self, kappa: Any = 1.0) -> np.ndarray:
        """Return the log of S over the law."""
        return np.log(self.S) - self.log_law(kappa)


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


def fit_kappa(data: xarray.Dataset, *, resamples: int = 30, seed: int = 0) -> HeadConstants:
    """Fit κ of every head: the median over rows of log(S/law) is zero.

    Args:
        data: of `sparsity measure` on the texts to fit on, one value of bos; a tenth of the
            rows, as in `data.sel(row=slice(257, None, 8))`, does as well as all.
        resamples: of the texts, whose windows stay together, for the standard error; ≥ 2.
        seed: of the resampling.

    Raises:
        InputError: data without logits, or over bos.
    """
    # The law is evaluated once, on a grid of κ; every fit of a resample is then medians alone.
    rows, resamples = HeadRows.of(data), whole("resamples", resamples, 2)
    ratios, rng = _ratios_on_grid(rows), np.random.default_rng(seed)
    texts = _windows_by_text(data, len(rows.S))
    count = np.isfinite(rows.S).sum((0, 3))
    kappa = np.where(count > 0, np.exp(_fit_log_kappa(ratios, slice(None))), np.nan)
    stderr = np.full_like(kappa, np.nan)
    if len(texts) > 1:
        draws = rng.integers(0, len(texts), (resamples, len(texts)))
        drawn = [_fit_log_kappa(ratios, np.concatenate([texts[i] for i in draw])) for draw in draws]
        # The spread of ln κ is the relative error of κ.
        stderr = kappa * np.nanstd(drawn, axis=0, ddof=1)
    return HeadConstants(kappa, stderr, count, len(texts), resamples, seed)


def fit_kappa_on_other_texts(data: xarray.Dataset) -> np.ndarray:
    """Fit κ of each head, for each text on all other texts.

    Args:
        data: as `fit_kappa` takes it, of two texts or more; windows of a text are never others.

    Returns:
        [text, layer, head].

    Raises:
        InputError: fewer than two texts, or as `fit_kappa`.
    """
    rows = HeadRows.of(data)
    texts = _windows_by_text(data, len(rows.S))
    if len(texts) < 2:
        raise InputError("data", "one text", "κ is fitted on other texts; give two or more")
    ratios, kappa = _ratios_on_grid(rows), np.empty(rows.S.shape[:3])
    for own in texts:
        other = np.setdiff1d(np.arange(len(rows.S)), own)
        kappa[own] = np.exp(_fit_log_kappa(ratios, other))
    return kappa


def log_law_held_back(data: xarray.Dataset) -> np.ndarray:
    """Return the log of the law for each text, κ of its heads fitted on all other texts.

    Args:
        data: as `fit_kappa_on_other_texts` takes it.

    Returns:
        [text, layer, head, row], NaN where a row does not count.

    Raises:
        InputError: as `fit_kappa_on_other_texts`.
    """
    rows, kappa = HeadRows.of(data), fit_kappa_on_other_texts(data)
    return np.where(np.isfinite(rows.S), rows.log_law(kappa[..., None]), np.nan)


def with_head_law(data: xarray.Dataset, *, seed: int = 0) -> xarray.Dataset:
    """Return the measurement with the law of its rows given their largest logit.

    Added are S_given_without_sinks, nothing fitted; S_head_without_sinks, with one constant κ of
    each head, for every text fitted on all other texts; and κ fitted on all texts, with its
    standard error. It is fitted on rows of the second half of the context, all sinks left out.

    Args:
        data: of `sparsity measure`, on two texts or more; windows of a text stay together.
        seed: of the resampling of texts, for the standard error.

    Raises:
        InputError: fewer than two texts, or weights without logits.
    """
    import xarray

    instance("data", data, xarray.Dataset, "give a dataset of sparsity measure")
    seed = check_seed(seed)
    over_bos = "bos" in data.dims
    columns = []
    for run in [data.isel(bos=i) for i in range(data.sizes["bos"])] if over_bos else [data]:
        last = int(run["context"][-1])
        # Every eighth row of the second half: neighbouring rows share their keys and say the same.
        late = tables.rows_at(run, last).isel(row=slice(None, None, EVERY_ROW))
        of_others, fitted = fit_kappa_on_other_texts(late), fit_kappa(late, seed=seed)
        rows = HeadRows.of(run)
        found = {
            "S_given_without_sinks": (_AXES, head_law(rows.length, rows.gamma, rows.top)),
            "S_head_without_sinks": (_AXES, np.exp(rows.log_law(of_others[..., None]))),
            "kappa": (_AXES[1:3], fitted.kappa),
            "kappa_stderr": (_AXES[1:3], fitted.stderr),
        }
        labelled = {
            name: (axes, x.astype(np.float32), {"long_name": MEANING[name]})
            for name, (axes, x) in found.items()
        }
        columns.append(run.assign(labelled)[list(labelled)])
    more = xarray.concat(columns, "bos") if over_bos else columns[0]
    how = {"kappa_texts": fitted.texts, "kappa_resamples": fitted.resamples}
    return data.assign(more.data_vars).assign_attrs(how | {"kappa_seed": fitted.seed})


def _windows_by_text(data: xarray.Dataset, count: int) -> list[np.ndarray]:
    """Return the places of the windows of each text; without a stride each is a text of its own."""
    if "text" not in data.dims:
        return [np.arange(count)]
    names = [str(name) for name in data["text"].values]
    if data.attrs.get("stride"):  # windows are named "text@start"
        names = [name.rpartition("@")[0] for name in names]
    of = np.unique(names, return_inverse=True)[1]
    return [np.flatnonzero(of == i) for i in dict.fromkeys(of.tolist())]


def _ratios_on_grid(rows: HeadRows) -> np.ndarray:
    """Return log ratios at every κ, [κ, text, layer, head, row], single precision."""
    return np.stack([rows.log_ratio(np.exp(x)).astype(np.float32) for x in LOG_KAPPA])


def _fit_log_kappa(ratios: np.ndarray, texts: Any) -> np.ndarray:
    """Return log κ [layer, head] from some texts.

    It is where the median log ratio is zero, nearest to κ = 1; where it nowhere is, where it is
    nearest to zero.
    """
    # The ratio need not be monotonic in κ: of several roots the one nearest to κ = 1 changes the
    # law least. The median is not smooth, hence a grid and a straight line, not Newton's method.
    medians = np.stack([_median_by_head(at[texts]) for at in ratios])
    x = LOG_KAPPA.reshape(-1, 1, 1)
    left, right, step = medians[:-1], medians[1:], np.diff(LOG_KAPPA)[0]
    crosses = (left > 0) != (right > 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        root = x[:-1] + step * np.where(left == right, 0.0, left / (left - right))
    distance = np.where(crosses, np.abs(root), np.inf)
    best = np.take_along_axis(root, distance.argmin(0)[None], 0)[0]
    closest = LOG_KAPPA[np.abs(np.nan_to_num(medians, nan=np.inf)).argmin(0)]
    found = np.where(crosses.any(0), best, closest)
    return np.where(np.isnan(medians).all(0), np.nan, found)  # without a row


def _median_by_head(x: np.ndarray) -> np.ndarray:
    """Return the median over texts and rows, [text, layer, head, row] -> [layer, head]."""
    median = np.nanmedian if np.isnan(x).any() else np.median  # nanmedian is slower
    return median(np.moveaxis(x, 0, -1).reshape(*x.shape[1:3], -1), -1)
