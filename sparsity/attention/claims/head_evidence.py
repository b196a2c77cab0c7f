"""The laws of a head against real rows on texts held back, and against Gaussian rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from sparsity.attention.measurement import heads, row_laws, tables
from sparsity.attention.measurement.datasets import rank_correlation
from sparsity.attention.measurement.head_constants import EVERY_ROW, HeadRows, log_law_held_back
from sparsity.attention.measurement.row_laws import log_head_law

if TYPE_CHECKING:
    import xarray


NEAR = 8  # tokens
WITHIN = 0.25
_ROWS = 4000  # drawn


@dataclass(frozen=True)
class Law:
    """How rows lie to a law.

    Args:
        ratio: median of S over it.
        rank: Spearman's correlation of S with it.
        within: share of rows within a quarter of it.
    """

    ratio: float
    rank: float
    within: float

    @classmethod
    def of(cls, S: np.ndarray, log_law: np.ndarray) -> Law:
        known = np.isfinite(S) & np.isfinite(log_law)
        log_S, log_law = np.log(S[known]), log_law[known]
        off = log_S - log_law
        return cls(
            float(np.exp(np.median(off))),
            float(rank_correlation(log_S, log_law)),
            float(np.mean(np.abs(off) < np.log1p(WITHIN))),
        )


@dataclass(frozen=True)
class Fits:
    """HeadRows against the laws.

    Args:
        ratios: median of S over the exact law, by what is left of the row, as "far" or
            "without sink key".
        exact: the rows against the exact law.
        given: against the law given the largest logit, nothing fitted.
        near: share of rows whose largest logit is within `NEAR` tokens.
        zeta: median of ζ = (s_max − β̂)/γ̂.
        top: rank correlation of log(S/exact law) with ζ.
        lag: median correlation of logits one key apart.
        frozen: shares of rows with γ̂/γ_c below ½, between ½ and 1, above.
        gamma: median of γ̂/γ_c, γ_c = √(2 ln n).
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
        """From n keys of each row, the figures, and the keys where they are fewer."""
        names = [name[2:] for name in found if name.startswith("S_") and name != "S_shape"]
        ratios = {
            x.replace("_", " "): _ratio(found[f"S_{x}"], lengths.get(x, n), found[f"gamma_{x}"])
            for x in names
        }
        if "S_shape" in found:
            ratios["shape"] = _ratio(found["S_shape"], n, found["gamma_content"])
        S, gamma, top = (
            found[x]
            for x in ("S_without_sink_key", "gamma_without_sink_key", "top_logit_without_sink_key")
        )
        exact = np.log(row_laws.exact_law(n, gamma))
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
    return float(np.exp(np.nanmedian(np.log(S) - np.log(row_laws.exact_law(n, gamma)))))


def draw_gaussian_rows(
    n: np.ndarray, gamma: np.ndarray, lag: np.ndarray | float = 0.0, seed: int = 0
) -> dict[str, np.ndarray]:
    """The figures of Gaussian rows, each scaled to have the γ̂ that is asked for.

    Args:
        n: keys of each row.
        gamma: γ̂.
        lag: correlation of logits one key apart, of an autoregressive row.
        seed: of the draws.
    """
    rng = np.random.default_rng(seed)
    n = n.astype(int)[:, None]
    at = np.arange(n.max(initial=1))
    x = rng.standard_normal((len(n), len(at)), np.float32)
    lag = np.broadcast_to(np.asarray(lag, np.float32), len(n))
    for j in range(1, len(at)):
        x[:, j] = lag * x[:, j - 1] + np.sqrt(1 - lag**2) * x[:, j]
    seen = at < n
    c = heads.centre_rows(x, seen)
    c *= (gamma / heads.row_gamma(c, seen))[:, None].astype(c.dtype)
    return heads.row_figures(c, seen, n - 1 - at, rng)


@dataclass(frozen=True)
class HeadEvidence:
    """The heads of a model.

    Args:
        rows: how many.
        texts: their names.
        real: the rows, their content and what is left of them.
        ideal: Gaussian rows of the same n and γ̂.
        content: Gaussian rows of the n and γ̂ of the content.
        dependent: Gaussian rows that are correlated from key to key as the real ones.
        fitted: the rows against the law given the largest logit, one constant of each head fitted
            on the other texts.
        by_text: median of content over the exact law in each text.
        explained: share of the variance of the scores that profile and bias explain, median row.
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
    def of(cls, data: xarray.Dataset, seed: int = 0) -> HeadEvidence:
        """From a dataset of `measure_heads`."""
        axes = ("text", "layer", "head", "row")
        found = {str(k): v.transpose(*axes).values.astype(float) for k, v in data.items()}
        rows = HeadRows.of(data)
        n, S = rows.length, rows.S
        fewer = n - heads.NEAREST
        lengths = {"far": fewer, "mid": fewer, "clear": found["length_clear"]}
        real = Fits.of(n, found, lengths)
        take = np.random.default_rng(seed).permutation(n.size)[:_ROWS]
        length, gamma, inner, lag = (
            x.ravel()[take] for x in (n, rows.gamma, found["gamma_content"], found["lag"])
        )
        fewer = length - heads.NEAREST
        less = {"far": fewer, "mid": fewer}
        ideal, content, dependent = (
            Fits.of(length, draw_gaussian_rows(length, spread, by, seed), less)
            for spread, by in ((gamma, 0.0), (inner, 0.0), (gamma, lag))
        )
        kept = found["gamma_content"] ** 2 / rows.gamma**2
        return cls(
            n.size,
            tuple(map(str, data["text"].values)),
            real,
            ideal,
            content,
            dependent,
            Law.of(S, log_law_held_back(data)),
            tuple(
                _ratio(*(x[i] for x in (found["S_content"], n, found["gamma_content"])))
                for i in range(len(n))
            ),
            float(1 - np.median(kept)),
        )

    def numbers(self) -> dict[str, Any]:
        """JSON-ready."""
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


LAWS = {  # column -> what it is
    "S_exact_without_sinks": "exact law, of n and γ̂",
    "S_given_without_sinks": "given the largest logit, nothing fitted",
    "S_head_without_sinks": "and κ of each head, from all other texts",
}


def late_rows(data: xarray.Dataset) -> xarray.Dataset:
    """Every eighth row of the second half of the longest context, of one value of bos."""
    run = data.isel(bos=0) if "bos" in data.dims else data
    rows = tables.rows_at(run, int(run["context"][-1])).isel(
        row=slice(EVERY_ROW - 1, None, EVERY_ROW)
    )
    return rows.transpose("text", "layer", "head", "row", ...)


def _against_law(rows: HeadRows, log_law: np.ndarray) -> dict[str, Any]:
    """HeadRows against a law, their heads, and each text."""
    off = np.log(rows.S) - log_law
    heads = [
        np.nanmedian(np.where(np.isfinite(off), x, np.nan), axis=(0, 3)).ravel()
        for x in (np.log(rows.S), log_law)
    ]
    texts = np.exp(np.nanmedian(off, axis=(1, 2, 3))).tolist()
    found = asdict(Law.of(rows.S, log_law)) | {"heads": float(rank_correlation(*heads))}
    return found | {"rows": int(np.isfinite(off).sum()), "texts": texts}


def gaussian_table(rows: HeadRows, seed: int = 0) -> dict[str, dict[str, Any]]:
    """Gaussian rows of the same n and γ̂ as some of these, on the laws without a constant."""
    known = np.flatnonzero(np.isfinite(rows.S) & (rows.gamma <= row_laws.MAX_GAMMA))
    take = np.random.default_rng(seed).permutation(known)[:_ROWS]
    n, gamma = (x.ravel()[take] for x in (rows.length, rows.gamma))
    found = draw_gaussian_rows(n, gamma, seed=seed)
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
    here = late_rows(data)
    rows = HeadRows.of(here)
    with np.errstate(divide="ignore", invalid="ignore"):
        laws = {name: _against_law(rows, np.log(here[name].values.astype(float))) for name in LAWS}
    kappa, stderr = (tables.known_values(here, name) for name in ("kappa", "kappa_stderr"))
    return {
        "laws": laws,
        "gaussian": gaussian_table(rows, seed),
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
