"""The law of a real head as columns of a measurement, beside the exact law."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from sparsity.arguments import check_seed, instance
from sparsity.attention.measurement import tables
from sparsity.attention.measurement.head_constants import Rows, fit_kappa, kappa_of_others
from sparsity.attention.measurement.head_law import head_law
from sparsity.attention.measurement.labels import MEANING

if TYPE_CHECKING:
    import xarray

EVERY = 8  # of the rows of the second half, that are enough to fit one number of a head
_AXES = ("text", "layer", "head", "row")


def _of_run(run: xarray.Dataset, seed: int) -> xarray.Dataset:
    late = tables.rows_at(run, int(run["context"][-1])).isel(row=slice(None, None, EVERY))
    others, every, rows = kappa_of_others(late), fit_kappa(late, seed=seed), Rows.of(run)
    given = head_law(rows.length, rows.gamma, rows.top)
    fitted = head_law(rows.length, rows.gamma, rows.top, others[..., None])
    found = {
        "S_given_others": (_AXES, given),
        "S_head_others": (_AXES, fitted),
        "kappa": (_AXES[1:3], every.kappa),
        "kappa_stderr": (_AXES[1:3], every.stderr),
    }
    return run.assign(
        {
            name: (axes, x.astype(np.float32), {"long_name": MEANING[name]})
            for name, (axes, x) in found.items()
        }
    ).assign_attrs(kappa_texts=every.texts, kappa_resamples=every.resamples, kappa_seed=every.seed)


def with_head_law(data: xarray.Dataset, *, seed: int = 0) -> xarray.Dataset:
    """The measurement with the law of its rows given their largest logit.

    Added are S_given_others, nothing fitted; S_head_others, with one constant κ of each head, for
    every text fitted on all other texts; and κ fitted on all texts, with its standard error. It is
    fitted on rows of the second half of the context, all sinks left out.

    Args:
        data: of `measure_model`, on two texts or more; windows of a text stay together.
        seed: of the resampling of texts, for the standard error.

    Raises:
        InputError: fewer than two texts, or weights without logits.
    """
    import xarray

    instance("data", data, xarray.Dataset, "give a dataset of measure_model")
    seed = check_seed(seed)
    if "bos" not in data.dims:
        return _of_run(data, seed)
    runs = [_of_run(data.isel(bos=i), seed) for i in range(data.sizes["bos"])]
    more = xarray.concat(
        [run[["S_given_others", "S_head_others", "kappa", "kappa_stderr"]] for run in runs], "bos"
    )
    return data.assign(more.data_vars).assign_attrs(runs[0].attrs)
