"""Real rows against three laws, on texts held back, and Gaussian rows of the same n and γ̂."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np

from sparsity.attention.claims.head_evidence import Law, gaussian
from sparsity.attention.measurement import row_laws, tables
from sparsity.attention.measurement.datasets import rank_correlation
from sparsity.attention.measurement.head_constants import EVERY_ROW, HeadRows
from sparsity.attention.measurement.row_laws import log_head_law

if TYPE_CHECKING:
    import xarray

LAWS = {  # column -> what it is
    "S_exact_without_sinks": "exact law, of n and γ̂",
    "S_given_without_sinks": "given the largest logit, nothing fitted",
    "S_head_without_sinks": "and κ of each head, from all other texts",
}
_ROWS = 4000  # drawn


def late(data: xarray.Dataset) -> xarray.Dataset:
    """Every eighth row of the second half of the longest context, of one value of bos."""
    run = data.isel(bos=0) if "bos" in data.dims else data
    rows = tables.rows_at(run, int(run["context"][-1])).isel(
        row=slice(EVERY_ROW - 1, None, EVERY_ROW)
    )
    return rows.transpose("text", "layer", "head", "row", ...)


def _against(rows: HeadRows, log_law: np.ndarray) -> dict[str, Any]:
    """Rows against a law, their heads, and each text."""
    off = np.log(rows.S) - log_law
    heads = [
        np.nanmedian(np.where(np.isfinite(off), x, np.nan), axis=(0, 3)).ravel()
        for x in (np.log(rows.S), log_law)
    ]
    texts = np.exp(np.nanmedian(off, axis=(1, 2, 3))).tolist()
    found = asdict(Law.of(rows.S, log_law)) | {"heads": float(rank_correlation(*heads))}
    return found | {"rows": int(np.isfinite(off).sum()), "texts": texts}


def null(rows: HeadRows, seed: int = 0) -> dict[str, dict[str, Any]]:
    """Gaussian rows of the same n and γ̂ as some of these, on the laws without a constant."""
    known = np.flatnonzero(np.isfinite(rows.S) & (rows.gamma <= row_laws.MAX_GAMMA))
    take = np.random.default_rng(seed).permutation(known)[:_ROWS]
    n, gamma = (x.ravel()[take] for x in (rows.length, rows.gamma))
    found = gaussian(n, gamma, seed=seed)
    S, gamma, top = (
        found[name].astype(float)
        for name in ("S_without_sink_key", "gamma_without_sink_key", "top_logit_without_sink_key")
    )
    laws = (np.log(row_laws.exact_law(n, gamma)), log_head_law(n, gamma, top))
    return {
        name: asdict(Law.of(S, x)) | {"rows": len(S)} for name, x in zip(LAWS, laws, strict=False)
    }


def head_table(data: xarray.Dataset, seed: int = 0) -> dict[str, Any]:
    """How rows without their sinks lie to the laws.

    Args:
        data: of `measurement.with_head_law`; of the runs of each text the first.
        seed: of the Gaussian rows.

    Returns:
        JSON-ready: "laws", by column median of S over the law, Spearman's rank correlation of rows
        and of the medians of heads, share of rows within a quarter, count, and the median in each
        text; "gaussian", the same of Gaussian rows; "kappa", its quantiles over the heads and
        median standard error; "texts", their names.
    """
    here = late(data)
    rows = HeadRows.of(here)
    with np.errstate(divide="ignore", invalid="ignore"):
        laws = {name: _against(rows, np.log(here[name].values.astype(float))) for name in LAWS}
    kappa, stderr = (tables.known_values(here, name) for name in ("kappa", "kappa_stderr"))
    return {
        "laws": laws,
        "gaussian": null(rows, seed),
        "kappa": {
            "heads": len(kappa),
            "quantiles": np.quantile(kappa, (0.05, 0.5, 0.95)).tolist(),
            "stderr": float(np.median(stderr)),
            "texts": int(here.attrs["kappa_texts"]),
            "resamples": int(here.attrs["kappa_resamples"]),
            "seed": int(here.attrs["kappa_seed"]),
        },
        "texts": [str(x) for x in here["text"].values],
    }


def text(found: dict[str, Any]) -> str:
    """`head_table` for a terminal."""
    lines = [f"{'rows without sinks against':<54}  S/law   rank  within a quarter"]
    for kind, laws in (("", found["laws"]), ("Gaussian rows: ", found["gaussian"])):
        for name, x in laws.items():
            said = f"{kind}{LAWS[name]}"
            lines.append(f"{said:<54}  {x['ratio']:.3f}  {x['rank']:.3f}  {x['within']:.1%}")
    kappa = found["kappa"]
    low, middle, high = kappa["quantiles"]
    said = f"κ of {kappa['heads']} heads from {kappa['texts']} texts: {low:.2f}, {middle:.2f}, "
    return "\n".join([*lines, f"{said}{high:.2f} at 5, 50, 95 %; s.e. {kappa['stderr']:.3f}"])
