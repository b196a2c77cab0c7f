"""Rows of a real model against the laws of Gaussian logits, and what is claimed of them.

The spread γ̂ of a row is itself estimated from its n logits, and any single row scatters about its
law. So Gaussian rows of the same n and γ̂ are drawn and measured alike: what they show as well says
nothing of real attention. Claims are judged by medians over the rows T/2 < n ≤ T at each context
length T; every threshold stands in the words of its finding.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import xarray
from scipy.special import ndtr

import sparsity
from experiments.layerwise import Inside, run_layers
from experiments.real_heads.parts import centre_rows, row_gamma, row_sparsity
from experiments.real_model import Model
from sparsity.attention.measurement import row_laws, tables, with_laws
from sparsity.attention.measurement.datasets import rank_correlation
from sparsity.attention.measurement.sinks import find_sinks
from sparsity.attention.torch.models import measure_transformers
from sparsity.claims_ledger.findings import Finding, core, instead, letter, listed, verdict

WITHIN = 0.25  # a row is near its law if it is within a quarter of it
GAUSSIAN_ROWS = 4000  # drawn: a share of them has the standard error √(¼/4000) = 0.008 or less
SEED = 0  # of all draws
SINK = 0.3  # a head has sinks if they take more than that on average: [Gu]'s ε of the first token
MIN_TESTED = 50  # keys in sight without the sinks, for a row's logits to be tested
# Over √n ≥ √50, the distance that 1 % of Gaussian samples exceed, by simulation at n = 200 and 500.
LILLIEFORS = 1.045  # his own table of 1967 has 1.031
_SMALL_LOGIT = 0.25  # a change of a logit or of log odds below which its sign says nothing
_BLOCK = 2**21  # normal numbers at a time: 16 MiB


class Claim(NamedTuple):
    """A claim that was judged.

    Args:
        key: its name.
        statement: what is claimed.
        findings: what decides it.
    """

    key: str
    statement: str
    findings: list[Finding]

    @property
    def verdict(self) -> str:
        """Return the verdict that follows from the findings."""
        return verdict(self.findings)


# --- measured ------------------------------------------------------------------------------------


def measure_texts(model: Model, texts: Mapping[str, str], tokens: int = 512) -> xarray.Dataset:
    """Run the first tokens of each text and measure every row of every head, over text too.

    `departs` is the share of the rows of a head whose logits without the sinks fail Lilliefors'
    test of normal samples.
    """
    found = []
    for text in texts.values():
        ids = np.array(model.encode(text)[:tokens])
        data = with_laws(measure_transformers(model.llama, ids, sink=0))
        found.append(data.assign(departs=(("layer", "head"), _departing(model, ids, data))))
    return xarray.concat(found, "text").assign_coords(text=list(texts))


def _departing(model: Model, ids: np.ndarray, data: xarray.Dataset) -> np.ndarray:
    """Return which share of the rows of each head fails Lilliefors' test, [layers, heads]."""
    shares = []

    def show(layer: int, text: int, inside: Inside) -> None:
        keep = ~find_sinks(data["key_importance"].values[layer])
        heads, _, dim = inside.queries.shape
        keys = np.repeat(inside.keys, heads // len(inside.keys), axis=0)
        s = inside.queries @ keys.swapaxes(1, 2) / dim**0.5
        failed = [[_fails(row[: i + 1][kept[: i + 1]]) for i, row in enumerate(rows)]
                  for rows, kept in zip(s, keep, strict=True)]  # fmt: skip
        shares.append(np.nanmean(failed, axis=1))

    run_layers(model.llama, [ids], show=show)
    return np.array(shares)


def _fails(logits: np.ndarray) -> float:
    """Return whether logits are farther from normal than 1 % of samples are; NaN of few."""
    n = len(logits)
    if n < MIN_TESTED:
        return np.nan
    F = ndtr((np.sort(logits) - logits.mean()) / logits.std(ddof=1))
    steps = np.arange(n + 1) / n
    return max((F - steps[:-1]).max(), (steps[1:] - F).max()) > LILLIEFORS / n**0.5


# --- fits of laws to rows ------------------------------------------------------------------------


class Law(NamedTuple):
    """A law's fit to rows.

    Args:
        ratio: the median of S over the law.
        rank: Spearman's rank correlation of S with it.
        within: the share of rows within a quarter of it.
        off: the median of |log(S/law)|.
    """

    ratio: float
    rank: float
    within: float
    off: float

    @classmethod
    def of(cls, S: np.ndarray, log_law: np.ndarray) -> Law:
        """Fit rows that have both an S and a law."""
        known = np.isfinite(S) & np.isfinite(log_law)
        log_S, log_law = np.log(S[known]), log_law[known]
        off = log_S - log_law
        return cls(
            float(np.exp(np.median(off))),
            float(rank_correlation(log_S, log_law)),
            float(np.mean(np.abs(off) < np.log1p(WITHIN))),
            float(np.median(np.abs(off))),
        )


class Fit(NamedTuple):
    """The fits of the limit law and of the exact law to the same rows."""

    limit: Law
    exact: Law

    @classmethod
    def of(cls, n: np.ndarray, gamma: np.ndarray, S: np.ndarray) -> Fit:
        """Fit rows of n keys and spread γ̂."""
        exact = np.log(row_laws.exact_law(n, gamma))
        return cls(Law.of(S, row_laws.log_limit_law(gamma)), Law.of(S, exact))


def fit_gaussian_rows(n: np.ndarray, gamma: np.ndarray) -> Fit:
    """Fit Gaussian rows of some of these n and γ̂; S and γ̂ are measured on them as on real ones."""
    rng = np.random.default_rng(SEED)
    take = rng.permutation(len(n))[:GAUSSIAN_ROWS]
    # Rows of one length stand together, so that blocks have few columns beyond the end of a row.
    take = take[np.argsort(n[take], kind="stable")]
    n, gamma = n[take].astype(np.int64), gamma[take]
    step = max(1, _BLOCK // int(n.max(initial=1)))
    drawn, S = np.empty(len(n)), np.empty(len(n))
    for first in range(0, len(n), step):
        rows = slice(first, first + step)
        seen = np.arange(n[rows].max()) < n[rows, None]
        s = centre_rows(gamma[rows, None] * rng.standard_normal(seen.shape), seen)
        drawn[rows], S[rows] = row_gamma(s, seen), row_sparsity(s, seen)
    known = drawn <= row_laws.MAX_GAMMA  # one near the end of the table may be drawn beyond it
    return Fit.of(n[known], drawn[known], S[known])


@dataclass(frozen=True)
class Rows:
    """What the claims on rows are judged by, at each context length T.

    Args:
        T: the context lengths.
        table: the columns of `tables.summary`.
        real: the fits to rows without their sinks.
        ideal: the fits to Gaussian rows of the same n and γ̂.
        departs: the share of heads where most rows fail Lilliefors' test of normal logits.
        sink_heads: heads, each counted in every text, whose sinks take more than `SINK` at the
            shortest T.
        mass: the median weight of the sinks of these heads.
        logit: the median of log Σ e^s over these sinks, less the mean of the other logits.
        needed: the logit that would keep the mass of the shortest T beside as many Gaussian logits.
    """

    T: np.ndarray
    table: dict[str, np.ndarray]
    real: tuple[Fit, ...]
    ideal: tuple[Fit, ...]
    departs: float
    sink_heads: int
    mass: np.ndarray
    logit: np.ndarray
    needed: np.ndarray

    @classmethod
    def of(cls, data: xarray.Dataset) -> Rows:
        """Take them from `measure_texts`."""
        table = [tables.summarise_context(data, int(T)) for T in data["context"].values]
        real, ideal = [], []
        for row in table:
            late = tables.rows_at(data, row["T"])
            names = (f"{x}_without_sinks" for x in ("length", "gamma", "S"))
            n, gamma, S = (late[name].values.astype(float).ravel() for name in names)
            # One key has no spread, and the exact law is tabulated up to MAX_GAMMA.
            known = (n > 1) & (gamma <= row_laws.MAX_GAMMA) & np.isfinite(S)
            real.append(Fit.of(n[known], gamma[known], S[known]))
            ideal.append(fit_gaussian_rows(n[known], gamma[known]))
        tested = tables.known_values(data, "departs")
        columns = {key: np.array([row[key] for row in table]) for key in table[0]}
        of_rows = columns["T"], columns, tuple(real), tuple(ideal), float(np.mean(tested > 0.5))
        return cls(*of_rows, *_follow_sinks(data))


def _follow_sinks(data: xarray.Dataset) -> tuple[int, np.ndarray, np.ndarray, np.ndarray]:
    """Follow the heads that have sinks at the shortest T: how many, `mass`, `logit`, `needed`."""
    # The same heads at every T: heads that become sinks later would mix two changes.
    first = tables.rows_at(data, int(data["context"][0]))
    here = first["all_sinks_mass"].mean("row") > SINK
    found: list[list[float]] = []
    for T in data["context"].values if here.any() else ():
        late = tables.rows_at(data, int(T)).where(here)
        names = ("all_sinks_mass", "all_sinks_logit", "gamma_without_sinks", "length_without_sinks")
        mass, logit, gamma, n = (float(np.median(tables.known_values(late, x))) for x in names)
        keep = float(np.clip(found[0][0] if found else mass, 1e-6, 1 - 1e-6))
        beside = sparsity.Row("exp", gamma=min(gamma, row_laws.MAX_GAMMA))
        needed = float(sparsity.sink_logit(keep, beside, length=max(round(n), 1)))
        found.append([mass, logit, needed])
    mass, logit, needed = np.array(found).reshape(-1, 3).T
    return int(here.sum()), mass, logit, needed


# --- claims --------------------------------------------------------------------------------------


def _by_context(laws: Iterable[Law]) -> Any:
    """Return one fit whose numbers are arrays over the context lengths."""
    return Law(*np.array([*laws]).T)


def _percents(values: Iterable[float]) -> str:
    return ", ".join(f"{100 * value:.0f} %" for value in values)


def judge(rows: Rows) -> list[Claim]:
    """Judge what is claimed of the rows of one run of the texts."""
    judges = (exact_law, first_token, longer_context, dropping, spread)
    return [judged(rows) for judged in judges]


def exact_law(rows: Rows) -> Claim:
    """Compare both laws on the same rows, beside Gaussian rows of the same lengths and spreads."""
    limit, exact = (_by_context(getattr(fit, law) for fit in rows.real) for law in Fit._fields)
    ideal = _by_context(fit.exact for fit in rows.ideal)
    findings = [
        core(
            "in the median row |log S/law| is less than half as large with the exact law as with "
            f"the limit law: {listed(exact.off, '.2f')} against {listed(limit.off, '.3g')}",
            np.all(2 * exact.off < limit.off),
        ),
        core(
            f"the median of S over the limit law is {listed(limit.ratio, '.3g')}, over the exact "
            f"law {listed(exact.ratio, '.2f')}",
            np.all(np.abs(np.log(limit.ratio)) > 2 * np.abs(np.log(exact.ratio))),
        ),
        letter(
            "the latter is that of Gaussian rows of the same n and γ̂, to 10 %: they have "
            f"{listed(ideal.ratio, '.2f')}",
            np.all(np.abs(np.log(exact.ratio / ideal.ratio)) < 0.1),
        ),
        letter(
            f"rows scatter about it no more than Gaussian rows: {_percents(exact.within)} are "
            f"within a quarter of it, and {_percents(ideal.within)} of those",
            np.all(exact.within > ideal.within - 0.05),
        ),
        letter(
            f"it ranks rows as it does Gaussian rows: {listed(exact.rank, '.2f')}, and "
            f"{listed(ideal.rank, '.2f')} for those",
            np.all(exact.rank > ideal.rank - 0.05),
        ),
        letter(
            "the logits are Gaussian: most rows pass Lilliefors' test at 1 % in nine of ten heads "
            f"(they do in {100 * (1 - rows.departs):.0f} %)",
            rows.departs < 0.1,
        ),
    ]
    says = "Real rows follow the exact law of n Gaussian logits, not the limit law."
    return Claim("real-rows-follow-the-exact-law", says, findings)


def first_token(rows: Rows) -> Claim:
    """Judge the rate at which the first token is a sink, as Gu et al. (2024) define it."""
    rate, strict, some, late, joint = (
        rows.table[f"{name}_rate_{epsilon}"]
        for name, epsilon in (
            *(("sink", 0.3), ("sink", 0.8), ("any", 0.3), ("late", 0.3), ("all_sinks", 0.3)),
        )
    )
    findings = [
        # Uniform attention gives it H_T/T = 0.07 at T = 64, and less in longer texts.
        core(
            f"it takes more than 0.3 of the attention in a quarter of the heads or more: "
            f"{_percents(rate)}; uniform attention has a rate of 0",
            np.all(rate > 0.25),
        ),
        letter(
            "no other key is one in a tenth of the heads or more: with any key in its place the "
            f"rate is {_percents(some)}",
            np.all(some - rate < 0.1),
        ),
        instead(
            "several keys share a sink: all that take more than 0.1 have more than 0.3 together "
            f"in {_percents(joint)} of the heads, the first token alone in {_percents(late)}, over "
            "the rows T/2 < n ≤ T",
            np.all(joint > late + 0.1),
        ),
        instead(
            f"the rate hangs on the threshold: at ε = 0.8 it is at most half: {_percents(strict)}",
            np.all(2 * strict <= rate),
        ),
    ]
    return Claim("first-token-is-a-sink", "The first token is an attention sink.", findings)


def longer_context(rows: Rows) -> Claim:
    """Compare the logit of sinks with that which would keep their mass, and the mass they keep."""
    # Both are in logits, 0 at the shortest T. Beside Gaussian others they would be equal: what a
    # sink's logit rose too little, the log odds of its mass lose.
    mass = np.clip(rows.mass, 1e-6, 1 - 1e-6)
    odds = np.log(mass / (1 - mass))
    change = (odds - odds[:1])[1:]
    more = ((rows.logit - rows.logit[:1]) - (rows.needed - rows.needed[:1]))[1:]
    # Without heads that have sinks all columns are empty, and nothing holds.
    some, size = rows.sink_heads > 0, np.maximum(abs(more), abs(change))
    findings = [
        core(
            "the logit that keeps the mass of the sinks rises with n: "
            f"{listed(rows.needed, '.2f')} above the mean of Gaussian others "
            f"({rows.sink_heads} heads with sinks)",
            some and np.all(np.diff(rows.needed) > 0),
        ),
        core(
            f"the mass of real sinks goes with it: their logit is {listed(rows.logit, '.2f')}, "
            f"which since the first T rose by {listed(more, '+.2f')} more than that, and the log "
            f"odds of their mass changed by {listed(change, '+.2f')}: of the same sign, or both "
            f"less than {_SMALL_LOGIT}",
            some and np.all((more * change > 0) | (size < _SMALL_LOGIT)),
        ),
        instead(
            "the change has the size that the law says, to half of it",
            some and np.all(abs(change - more) < size / 2),
        ),
    ]
    return Claim("sinks-against-context", "A longer context needs a stronger sink.", findings)


def dropping(rows: Rows) -> Claim:
    """Compare n_eff with the sinks and without them."""
    left, whole = rows.table["n_eff_without_sinks"], rows.table["n_eff"]
    finding = core(
        f"without its sinks the median row attends to more tokens: {listed(left, '.1f')} in place "
        f"of {listed(whole, '.1f')}",
        np.all(left > 1.1 * whole),
    )
    says = "The sink hides how many tokens a head attends to."
    return Claim("dropping-the-sink", says, [finding])


def spread(rows: Rows) -> Claim:
    """Compare the growth of γ̂ with that of ln n and of √(ln n)."""
    gamma, n = rows.table["gamma_without_sinks"], 0.75 * rows.T  # the typical row has 3T/4 keys
    # ln n would keep n_eff nearly the same; √(ln n) is what a limit law with n·S² fixed needs.
    log, root = gamma / np.log(n), gamma / np.sqrt(np.log(n))
    findings = [
        core(f"γ̂ rises with n: {listed(gamma, '.2f')}", np.all(np.diff(gamma) > 0)),
        core(
            f"γ̂/ln n is the same at every length, to 10 %: {listed(log, '.2f')}",
            np.ptp(log) < 0.1 * log.mean(),
        ),
        instead(f"γ̂/√(ln n) is, to 10 %: {listed(root, '.2f')}", np.ptp(root) < 0.1 * root.mean()),
    ]
    says = "The spread γ̂ of a trained model's logits grows like ln n."
    return Claim("spread-against-length", says, findings)
