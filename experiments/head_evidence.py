"""Evidence for the claims on heads: real rows, changed rows and Gaussian rows against the laws.

`HeadEvidence` is what the judges of `heads` take, from `measure_heads`. `head_table` is what the
page shows of a whole measurement: the laws on texts that the constants of heads were not fitted on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from experiments import head_parts
from experiments.head_constants import EVERY_ROW, HeadRows, log_law_held_back
from experiments.row_evidence import GAUSSIAN_ROWS, SEED, Law
from sparsity.attention.measurement import row_laws, tables
from sparsity.attention.measurement.datasets import rank_correlation
from sparsity.attention.measurement.row_laws import log_head_law

if TYPE_CHECKING:
    import xarray


NEAR = 8  # tokens: the largest logit counts as near within so many


@dataclass(frozen=True)
class Fits:
    """The fit of the laws to rows of heads.

    Args:
        ratios: the median of S over the exact law, by the kind of row of `head_parts.row_figures`:
            "without sink key", or with further keys left out, replaced or shrunk, such as "far".
        exact: the fit of the exact law.
        given: the fit of the law given the largest logit, nothing fitted.
        near: the share of rows whose largest logit is within `NEAR` tokens.
        zeta: the median of ζ = (s_max − β̂)/γ̂.
        top: the rank correlation of log(S/exact law) with ζ.
        lag: the median correlation of logits one key apart.
        frozen: the shares of rows with γ̂/γ_c below ½, between ½ and 1, above.
        gamma: the median of γ̂/γ_c, γ_c = √(2 ln n).
    """

    ratios: dict[str, float]
    exact: Law
    given: Law
    near: float
    zeta: float
    top: float
    lag: float
    frozen: tuple[float, float, float]
    gamma: float

    @classmethod
    def of(cls, n: np.ndarray, found: Mapping[str, np.ndarray], lengths: Mapping[str, Any]) -> Fits:
        """Fit the laws to rows.

        Args:
            n: the number of keys of each row.
            found: S, γ̂ and more of each row, by the names of `head_parts.row_figures`.
            lengths: the numbers of keys of the kinds of rows that have fewer.
        """
        # "shape" is the whole row shrunk to the γ̂ of its content, and has no γ̂ of its own.
        names = [name[2:] for name in found if name.startswith("S_") and name != "S_shape"]
        ratios = {
            x.replace("_", " "): _ratio(found[f"S_{x}"], lengths.get(x, n), found[f"gamma_{x}"])
            for x in names
        }
        if "S_shape" in found:
            ratios["shape"] = _ratio(found["S_shape"], n, found["gamma_content"])
        S, gamma, top = (found[f"{x}_without_sink_key"] for x in ("S", "gamma", "top_logit"))
        exact = np.log(row_laws.exact_law(n, gamma))
        # In units of the spread at which the largest logit of a Gaussian row holds its mass.
        unit = gamma / np.sqrt(2 * np.log(n))
        below, above = float(np.mean(unit < 0.5)), float(np.mean(unit > 1))
        return cls(
            ratios,
            Law.of(S, exact),
            Law.of(S, log_head_law(n, gamma, top)),
            float(np.mean(found["nearest"] < NEAR)),
            float(np.median(top / gamma)),
            float(rank_correlation((np.log(S) - exact).ravel(), (top / gamma).ravel())),
            float(np.median(found["lag"])),
            (below, 1 - below - above, above),
            float(np.median(unit)),
        )


def _ratio(S: np.ndarray, n: np.ndarray, gamma: np.ndarray) -> float:
    # Rows of one key have no γ̂ and so no law: they are NaN and do not count.
    return float(np.exp(np.nanmedian(np.log(S) - np.log(row_laws.exact_law(n, gamma)))))


def draw_gaussian_rows(
    n: np.ndarray, gamma: np.ndarray, lag: np.ndarray | float = 0.0
) -> dict[str, np.ndarray]:
    """Draw Gaussian rows, each scaled to have its γ̂ exactly, and return their `row_figures`.

    Args:
        n: the number of keys of each row.
        gamma: γ̂ of each row.
        lag: the correlation of logits one key apart; rows are then autoregressive of order one.
    """
    rng = np.random.default_rng(SEED)
    n = n.astype(int)[:, None]
    # The recursion x_j = ρx_(j−1) + √(1−ρ²)ε keeps the variance 1. Rows are centred and scaled to
    # have γ̂ exactly, not on average, so that they differ from real rows in their shape alone.
    at = np.arange(n.max(initial=1))
    x = rng.standard_normal((len(n), len(at)), np.float32)
    lag = np.broadcast_to(np.asarray(lag, np.float32), len(n))
    for j in range(1, len(at)):
        x[:, j] = lag * x[:, j - 1] + np.sqrt(1 - lag**2) * x[:, j]
    seen = at < n
    c = head_parts.centre_rows(x, seen)
    c *= (gamma / head_parts.row_gamma(c, seen))[:, None].astype(c.dtype)
    return head_parts.row_figures(c, seen, n - 1 - at, rng)


@dataclass(frozen=True)
class HeadEvidence:
    """The evidence for the claims on the heads of a model.

    Args:
        rows: the number of rows.
        texts: the names of the texts.
        real: the fits to real rows, whole, changed, and less distance profile and key bias (their
            "content").
        ideal: the fits to Gaussian rows of the same n and γ̂.
        content: the fits to Gaussian rows of the n and γ̂ of the content.
        dependent: the fits to Gaussian rows that are correlated from key to key as the real ones.
        fitted: the fit of the law given the largest logit, with one constant of each head fitted on
            the other texts.
        by_text: the median of the content's S over the exact law in each text.
        explained: the share of the variance of logits that profile and bias explain, median row.
    """

    rows: int
    texts: tuple[str, ...]
    real: Fits
    ideal: Fits
    content: Fits
    dependent: Fits
    fitted: Law
    by_text: tuple[float, ...]
    explained: float

    @classmethod
    def of(cls, data: xarray.Dataset) -> HeadEvidence:
        """Take the evidence from a dataset of `measure_heads`."""
        axes = ("text", "layer", "head", "row")
        found = {str(k): v.transpose(*axes).values.astype(float) for k, v in data.items()}
        rows = HeadRows.of(data)
        n, S = rows.length, rows.S
        # A row without its nearest keys, or as many in the middle, is shorter by that number; one
        # without all further sinks ("clear") by a number of its own.
        fewer = n - head_parts.NEAREST
        lengths = {"far": fewer, "mid": fewer, "clear": found["length_clear"]}
        real = Fits.of(n, found, lengths)
        # Gaussian rows stand beside a sample of the real ones. All three kinds are drawn with one
        # seed, so that they differ by spread and dependence and not by chance.
        take = np.random.default_rng(SEED).permutation(n.size)[:GAUSSIAN_ROWS]
        length, gamma, inner, lag = (
            x.ravel()[take] for x in (n, rows.gamma, found["gamma_content"], found["lag"])
        )
        fewer = length - head_parts.NEAREST
        less = {"far": fewer, "mid": fewer}
        ideal, content, dependent = (
            Fits.of(length, draw_gaussian_rows(length, spread, by), less)
            for spread, by in ((gamma, 0.0), (inner, 0.0), (gamma, lag))
        )
        kept = found["gamma_content"] ** 2 / rows.gamma**2  # the content's share of the variance
        return cls(
            n.size,
            tuple(map(str, data["text"].values)),
            real,
            ideal,
            content,
            dependent,
            Law.of(S, log_law_held_back(data)),
            tuple(map(_ratio, found["S_content"], n, found["gamma_content"])),
            float(1 - np.median(kept)),
        )

    def numbers(self) -> dict[str, Any]:
        """Return the evidence JSON-ready."""
        kinds = {
            "real": self.real,
            "Gaussian": self.ideal,
            "Gaussian, as the content": self.content,
            "Gaussian, correlated": self.dependent,
        }
        names = ("near", "zeta", "top", "lag", "gamma")
        laws = [("fitted", "real", self.fitted)]
        laws += [("exact", kind, fits.exact) for kind, fits in kinds.items()]
        laws += [("given", kind, fits.given) for kind, fits in kinds.items()]
        shares = ("below", "between", "above")
        return {
            "rows": self.rows,
            "texts": list(self.texts),
            "content by text": list(self.by_text),
            "explained": self.explained,
            "S over the exact law": [{"of": kind} | fits.ratios for kind, fits in kinds.items()],
            "laws": [{"law": law, "of": kind} | asdict(x) for law, kind, x in laws],
            "logits": [
                {"of": kind}
                | {name: getattr(fits, name) for name in names}
                | dict(zip(shares, fits.frozen, strict=True))
                for kind, fits in kinds.items()
            ],
        }


LAWS = {  # variable of a dataset -> the law it holds
    "S_exact_without_sinks": "exact law, of n and γ̂",
    "S_given_without_sinks": "given the largest logit, nothing fitted",
    "S_head_without_sinks": "and κ of each head, from all other texts",
}


def late_rows(data: xarray.Dataset) -> xarray.Dataset:
    """Return every eighth row of the second half of the longest context, of the first `bos`.

    Neighbouring rows share their keys and say the same. The last row, n = T, is among them.
    """
    run = data.isel(bos=0) if "bos" in data.dims else data
    rows = tables.rows_at(run, int(run["context"][-1])).isel(
        row=slice(EVERY_ROW - 1, None, EVERY_ROW)
    )
    return rows.transpose("text", "layer", "head", "row", ...)


def _against_law(rows: HeadRows, log_law: np.ndarray) -> dict[str, Any]:
    """Return the fit of a law to rows, to medians of heads ("heads"), and by text ("texts")."""
    off = np.log(rows.S) - log_law
    # A head's median over its rows of all texts; a row without the law counts in neither.
    heads = [
        np.nanmedian(np.where(np.isfinite(off), x, np.nan), axis=(0, 3)).ravel()
        for x in (np.log(rows.S), log_law)
    ]
    texts = np.exp(np.nanmedian(off, axis=(1, 2, 3))).tolist()
    found = asdict(Law.of(rows.S, log_law)) | {"heads": float(rank_correlation(*heads))}
    return found | {"rows": int(np.isfinite(off).sum()), "texts": texts}


def gaussian_table(rows: HeadRows) -> dict[str, dict[str, Any]]:
    """Return the fits of the laws without a constant to Gaussian rows of some of these n and γ̂."""
    # The rows that the laws say something of, since the Gaussian ones are to be their control.
    known = np.flatnonzero(np.isfinite(rows.S) & (rows.gamma <= row_laws.MAX_GAMMA))
    take = np.random.default_rng(SEED).permutation(known)[:GAUSSIAN_ROWS]
    n, gamma = (x.ravel()[take] for x in (rows.length, rows.gamma))
    found = draw_gaussian_rows(n, gamma)
    S, gamma, top = (
        found[f"{name}_without_sink_key"].astype(float) for name in ("S", "gamma", "top_logit")
    )
    laws = (np.log(row_laws.exact_law(n, gamma)), log_head_law(n, gamma, top))
    return {
        name: asdict(Law.of(S, x)) | {"rows": len(S)} for name, x in zip(LAWS, laws, strict=False)
    }


def head_table(data: xarray.Dataset) -> dict[str, Any]:
    """Return the fits of the laws to rows without their sinks, for the page.

    Args:
        data: a dataset of `with_head_law`; of the runs of each text the first counts.

    Returns:
        A JSON-ready dict: "laws", by variable the median of S over the law, Spearman's rank
        correlation of rows and of the medians of heads, the share of rows within a quarter, the
        count, and the median in each text; "gaussian", the same of Gaussian rows; "kappa", its
        quantiles over the heads and its median standard error; "texts", their names.
    """
    here = late_rows(data)
    rows = HeadRows.of(here)
    with np.errstate(divide="ignore", invalid="ignore"):
        laws = {name: _against_law(rows, np.log(here[name].values.astype(float))) for name in LAWS}
    kappa, stderr = (tables.known_values(here, name) for name in ("kappa", "kappa_stderr"))
    return {
        "laws": laws,
        "gaussian": gaussian_table(rows),
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


def format_head_table(found: dict[str, Any]) -> str:
    """Write what `head_table` returned for a terminal."""
    lines = [f"{'rows without sinks against':<54}  S/law   rank  within a quarter"]
    for kind, laws in (("", found["laws"]), ("Gaussian rows: ", found["gaussian"])):
        for name, x in laws.items():
            said = f"{kind}{LAWS[name]}"
            lines.append(f"{said:<54}  {x['ratio']:.3f}  {x['rank']:.3f}  {x['within']:.1%}")
    kappa = found["kappa"]
    low, middle, high = kappa["quantiles"]
    said = f"κ of {kappa['heads']} heads from {kappa['texts']} texts: {low:.2f}, {middle:.2f}, "
    return "\n".join([*lines, f"{said}{high:.2f} at 5, 50, 95 %; s.e. {kappa['stderr']:.3f}"])
