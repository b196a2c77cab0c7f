"""Why heads of a real model depart from the exact law: the evidence, and what is claimed.

Real rows are sparser than Gaussian rows of the same n and γ̂: in the median log S lies below theirs
by a gap. Each judge changes rows in one respect (their largest logits, nearest keys, dependence)
and asks which share of the gap is still there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import xarray

from experiments.real_heads import parts
from experiments.real_heads.constants import HeadRows, log_law_held_back
from experiments.real_heads.parts import NEAREST, TAIL
from experiments.real_heads.rows import GAUSSIAN_ROWS, SEED, Claim, Law
from sparsity.attention.measurement import row_laws
from sparsity.attention.measurement.datasets import rank_correlation
from sparsity.attention.measurement.row_laws import log_head_law
from sparsity.claims_ledger.findings import Finding, core, instead, letter

NEAR = 8  # tokens: the largest logit counts as near within so many
WHOLE = "without_sink_key"  # the unchanged rows
_CLOSE = 0.05  # a log ratio below which two medians count as equal


class Fits(NamedTuple):
    """The fit of the laws to rows of heads.

    Args:
        ratios: the median of S over the exact law, by the kind of row of `parts`: `WHOLE`, or with
            keys left out, replaced or shrunk, such as "far".
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
    def of(cls, n: np.ndarray, found: Mapping[str, np.ndarray]) -> Fits:
        """Fit the laws to rows of n keys, with figures by the names of `parts`."""
        # A row without its nearest keys, or as many in the middle, is shorter by that number; one
        # without all further sinks ("clear") by a number of its own. "shape" is the whole row
        # shrunk to the γ̂ of its content, and has no γ̂ of its own.
        lengths = {"far": n - NEAREST, "mid": n - NEAREST, "clear": found.get("length_clear", n)}
        gammas = {name: found[f"gamma_{'content' if name == 'shape' else name}"]
                  for name in (x[2:] for x in found if x.startswith("S_"))}  # fmt: skip
        ratios = {x: _ratio(found[f"S_{x}"], lengths.get(x, n), g) for x, g in gammas.items()}
        S, gamma, top = (found[f"{x}_{WHOLE}"] for x in ("S", "gamma", "top_logit"))
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
    """Draw Gaussian rows, each scaled to have its γ̂ exactly, and return their figures.

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
    c = parts.centre_rows(x, seen)
    c *= (gamma / parts.row_gamma(c, seen))[:, None].astype(c.dtype)
    return parts.row_figures(c, seen, n - 1 - at, rng)


@dataclass(frozen=True)
class Evidence:
    """What the claims on heads are judged by.

    Args:
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

    real: Fits
    ideal: Fits
    content: Fits
    dependent: Fits
    fitted: Law
    by_text: tuple[float, ...]
    explained: float

    @classmethod
    def of(cls, data: xarray.Dataset) -> Evidence:
        """Take the evidence from `parts.measure_heads`."""
        axes = ("text", "layer", "head", "row")
        found = {str(k): v.transpose(*axes).values.astype(float) for k, v in data.items()}
        rows, inner = HeadRows.of(data), found["gamma_content"]
        # Gaussian rows stand beside a sample of the real ones. All three kinds are drawn with one
        # seed, so that they differ by spread and dependence and not by chance.
        take = np.random.default_rng(SEED).permutation(rows.S.size)[:GAUSSIAN_ROWS]
        n, gamma, narrow, lag = (
            x.ravel()[take] for x in (rows.length, rows.gamma, inner, found["lag"])
        )
        ideal, content, dependent = (
            Fits.of(n, draw_gaussian_rows(n, width, by))
            for width, by in ((gamma, 0.0), (narrow, 0.0), (gamma, lag))
        )
        return cls(
            Fits.of(rows.length, found),
            ideal,
            content,
            dependent,
            Law.of(rows.S, log_law_held_back(rows)),
            tuple(map(_ratio, found["S_content"], rows.length, inner)),
            float(1 - np.median(inner**2 / rows.gamma**2)),
        )


# --- claims --------------------------------------------------------------------------------------


def judge(evidence: Evidence) -> list[Claim]:
    """Judge what is claimed of heads."""
    judges = (given_the_largest, upper_tail, recency, content, dependence, freezings)
    return [judged(evidence) for judged in judges]


def _share_of_gap(evidence: Evidence, name: str) -> float:
    """Return the share of the gap that is still there in rows changed in one respect.

    Gaussian rows changed alike stand beside them, or plain ones where the change says nothing for
    Gaussian rows.
    """
    real, ideal = evidence.real.ratios, evidence.ideal.ratios
    gap = np.log(real[WHOLE] / ideal[WHOLE])
    return float(np.log(real[name] / ideal.get(name, ideal[WHOLE])) / gap) if gap else np.nan


def _gap_finding(evidence: Evidence) -> Finding:
    real, ideal = (x.ratios[WHOLE] for x in (evidence.real, evidence.ideal))
    return core(
        f"the median of S over the exact law is {real:.3f}, of Gaussian rows of the same n and γ̂ "
        f"{ideal:.3f}: more than {_CLOSE:.0%} apart",
        abs(np.log(real / ideal)) > _CLOSE,
    )


def given_the_largest(evidence: Evidence) -> Claim:
    """Judge the law given the largest logit, with the constants of heads from other texts."""
    # Whoever knows s_max knows much of a row's S. So the exact law, which is not given it, stands
    # beside this one, and Gaussian rows, for which it holds by construction, are the control.
    fit, plain, exact = evidence.fitted, evidence.real.given, evidence.real.exact
    ideal = evidence.ideal.given
    findings = [
        core(
            f"on texts held back the median of S over it is within 2 % of 1: {fit.ratio:.3f} "
            f"(exact law {exact.ratio:.3f})",
            abs(np.log(fit.ratio)) < np.log(1.02),
        ),
        core(
            f"it ranks rows with a correlation of 0.95 or more: {fit.rank:.3f} (exact law "
            f"{exact.rank:.2f})",
            fit.rank >= 0.95,
        ),
        core(
            f"{fit.within:.0%} of rows are within a quarter of it, 85 % or more (exact law "
            f"{exact.within:.0%})",
            fit.within >= 0.85,
        ),
        core(
            f"Gaussian rows, nothing fitted, have a median within 1 %: {ideal.ratio:.3f}",
            abs(np.log(ideal.ratio)) < np.log(1.01),
        ),
        letter(
            f"nothing needs to be fitted: the median is then {plain.ratio:.3f}, within 2 %, with "
            f"{plain.within:.0%} within a quarter",
            abs(np.log(plain.ratio)) < np.log(1.02),
        ),
    ]
    says = "n, γ̂, the largest logit and one constant of the head give S of a real row."
    return Claim("largest-logit", says, findings)


def upper_tail(evidence: Evidence) -> Claim:
    """Judge rows whose upper tail is exchanged with that of Gaussian rows."""
    # "body": a real row with the tail of a Gaussian one. "tail": a Gaussian row with the real tail.
    body, tail = _share_of_gap(evidence, "body"), _share_of_gap(evidence, "tail")
    real, ideal = evidence.real, evidence.ideal
    findings = [
        _gap_finding(evidence),
        core(
            f"with a Gaussian upper tail ({TAIL:.0%} of the keys) less than half of the gap is "
            f"left: the median is {real.ratios['body']:.3f}, {body:.0%} of the gap",
            body < 0.5,
        ),
        core(
            "a Gaussian row with the real tail has more than half of the gap: "
            f"{real.ratios['tail']:.3f}, {tail:.0%} of it",
            tail > 0.5,
        ),
        letter(
            "the largest logit stands higher than in Gaussian rows: in the median "
            f"{real.zeta:.2f} γ̂ above the mean, {ideal.zeta:.2f} in those",
            real.zeta > 1.05 * ideal.zeta,
        ),
        instead(
            "the higher it stands, the lower S over the exact law: rank correlation "
            f"{real.top:.2f}, which alone tells nothing (Gaussian rows {ideal.top:.2f})",
            real.top < -0.8,
        ),
    ]
    says = "Real rows are sparser than the exact law says because of their upper tail."
    return Claim("upper-tail", says, findings)


def recency(evidence: Evidence) -> Claim:
    """Judge where the largest logits are, and rows without the nearest keys."""
    # A row without its nearest keys is shorter as well: "mid" lacks as many from its middle.
    far, mid = (_share_of_gap(evidence, name) for name in ("far", "mid"))
    real = evidence.real.ratios
    findings = [
        _gap_finding(evidence),
        core(
            f"the largest logit is within {NEAR} tokens in {evidence.real.near:.0%} of the rows, "
            f"more than five times as often as in Gaussian ones ({evidence.ideal.near:.1%})",
            evidence.real.near > 5 * evidence.ideal.near,
        ),
        core(
            f"without the {NEAREST} nearest keys at least a third of the gap is closed: the median "
            f"is {real['far']:.3f}, {far:.0%} of the gap is left (of {NEAREST} keys in the middle: "
            f"{mid:.0%})",
            abs(far) < 2 / 3 and abs(mid) > 2 / 3,
        ),
        letter(f"half of it or more is: {far:.0%} is left", abs(far) < 0.5),
        instead(
            f"without all further sinks as well the median is {real['clear']:.3f}, within "
            f"{_CLOSE:.0%} of 1",
            abs(np.log(real["clear"])) < _CLOSE,
        ),
    ]
    return Claim("recency", "The upper tail comes from the nearest tokens.", findings)


def content(evidence: Evidence) -> Claim:
    """Judge the scores less their distance profile and key bias."""
    own, ideal = evidence.real.ratios["content"], evidence.content.ratios[WHOLE]
    # The content is narrower than the row, and a narrow row is near any law. "shape" is the whole
    # row made as narrow: a control that shows what that alone does.
    shape = evidence.real.ratios["shape"]
    off, other = (abs(np.log(x / ideal)) for x in (own, shape))
    findings = [
        core(
            f"the median of its S over the exact law is {own:.3f}, that of Gaussian rows of its "
            f"n and γ̂ to {_CLOSE:.0%} ({ideal:.3f})",
            off < _CLOSE,
        ),
        core(
            f"the whole row's logits, shrunk to that γ̂, are twice as far off or more: {shape:.3f}",
            other > 2 * off and other > _CLOSE,
        ),
        letter(
            f"so it is in every text, to {_CLOSE:.0%}: "
            f"{', '.join(f'{x:.3f}' for x in evidence.by_text)}",
            all(abs(np.log(x / ideal)) < _CLOSE for x in evidence.by_text),
        ),
        instead(
            f"profile and bias explain {evidence.explained:.0%} of the variance in the median "
            "row, more than half",
            evidence.explained > 0.5,
        ),
    ]
    says = "Without distance profile and key bias real rows follow the exact law."
    return Claim("content", says, findings)


def dependence(evidence: Evidence) -> Claim:
    """Judge Gaussian rows that are correlated from key to key as real rows are."""
    ratio, ideal, real = (
        x.ratios[WHOLE] for x in (evidence.dependent, evidence.ideal, evidence.real)
    )
    share = np.log(ratio / ideal) / np.log(real / ideal)  # how far dependence alone goes
    findings = [
        _gap_finding(evidence),
        core(
            f"logits one key apart have a correlation of {evidence.real.lag:.2f}; Gaussian rows "
            f"with it have a median of {ratio:.3f}, which goes less than a quarter of the way from "
            f"{ideal:.3f} to {real:.3f}",
            share < 0.25,
        ),
        letter(f"and are within {_CLOSE:.0%} of the exact law", abs(np.log(ratio)) < _CLOSE),
    ]
    says = "That neighbouring keys have similar logits plays no part."
    return Claim("dependence", says, findings)


def freezings(evidence: Evidence) -> Claim:
    """Compare γ̂ with the two freezings, γ_c/2 of n_eff's moments and γ_c of the row."""
    # Beyond γ_c a few of n Gaussian logits hold all of a row. Already beyond γ_c/2 E e^(2s) is due
    # to logits that no row of n has, and n·e^(−γ²) is no longer its n_eff.
    below, between, above = evidence.real.frozen
    findings = [
        core(
            f"the median of γ̂/γ_c is between ½ and 1: {evidence.real.gamma:.2f}",
            0.5 < evidence.real.gamma < 1,
        ),
        core(
            f"more than half of the rows are: {between:.0%} (below {below:.0%}, above {above:.0%})",
            between > 0.5,
        ),
        letter("less than a quarter are on either side", max(below, above) < 0.25),
    ]
    says = "Real rows attend to more than n·e^(−γ²), and not yet to a few keys alone."
    return Claim("between-freezings", says, findings)
