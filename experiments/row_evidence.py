"""Evidence for the claims on rows: numbers by context length, with and without BOS.

Real rows are held against the laws of Gaussian rows of the same length n and spread γ̂. But γ̂ is
itself estimated from n logits, and any single row scatters about its law. So Gaussian rows of the
same n and γ̂ are drawn and measured alike: what they show as well says nothing about real attention.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from experiments.head_parts import centre_rows, row_gamma
from sparsity.attention.measurement import row_laws, tables
from sparsity.attention.measurement.datasets import rank_correlation
from sparsity.claims_ledger.findings import Finding, Judged
from sparsity.claims_ledger.judging import Claim
from sparsity.design_search.search import sink_logit
from sparsity.errors import InputError
from sparsity.rows.row import Row

if TYPE_CHECKING:
    import xarray


WITHIN = 0.25  # a row is near its law if it is within a quarter of it
GAUSSIAN_ROWS = 4000  # drawn: a share of them has the standard error √(¼/4000) = 0.008 or less
SEED = 0  # of all draws here: the same measurement has the same page
_BLOCK = 2**21  # normal numbers at a time, 16 MiB; fewer cost more calls


def claim_on_evidence(find: Callable[[Any], list[Finding]], **fields: Any) -> Claim:
    """Make a claim on a measurement, whose judge finds something in the evidence.

    Args:
        find: evidence -> findings. All claims on one kind of evidence show the same numbers.
        fields: the other fields of `Claim`.
    """
    return Claim(judge=partial(_judge, find), routes=_refuse_without_evidence, **fields)


def _judge(find: Callable[[Any], list[Finding]], evidence: Any, seed: int) -> Judged:
    return find(evidence), evidence.numbers()


def _refuse_without_evidence() -> Any:
    raise ValueError("these claims are judged on a measurement: pass its evidence, X.of(data)")


@dataclass(frozen=True)
class Law:
    """A law's fit to rows.

    Args:
        ratio: the median of S over the law.
        rank: Spearman's rank correlation of S with it.
        within: the share of rows within a quarter of it.
    """

    ratio: float
    rank: float
    within: float

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
        )


@dataclass(frozen=True)
class LawFit:
    """The fit of both laws, the limit law and the exact one, to rows at their own n and γ̂.

    Args:
        ratio: the median of S over the exact law.
        within: the share of rows within a quarter of it.
        off_limit: the median of |log(S/limit law)|.
        off_exact: the median of |log(S/exact law)|.
        rank_limit: Spearman's correlation over rows of S with the limit law.
        rank_exact: Spearman's correlation over rows of S with the exact law.
    """

    ratio: float
    within: float
    off_limit: float
    off_exact: float
    rank_limit: float
    rank_exact: float


def fit_laws(n: np.ndarray, gamma: np.ndarray, S: np.ndarray) -> LawFit:
    """Return the fit of both laws to rows.

    Args:
        n: the number of keys of each row.
        gamma: γ̂ of its logits; 0 ≤ γ̂ ≤ `row_laws.MAX_GAMMA`.
        S: its sparsity, finite.
    """
    if not len(n):
        return LawFit(*[np.nan] * 6)
    log_S, log_limit = np.log(S), row_laws.log_limit_law(gamma)
    log_exact = np.log(row_laws.exact_law(n, gamma))
    exact = Law.of(S, log_exact)
    return LawFit(
        ratio=exact.ratio,
        within=exact.within,
        off_limit=float(np.median(np.abs(log_S - log_limit))),
        off_exact=float(np.median(np.abs(log_S - log_exact))),
        rank_limit=float(rank_correlation(log_S, log_limit)),
        rank_exact=exact.rank,
    )


def fit_gaussian_rows(n: np.ndarray, gamma: np.ndarray) -> LawFit:
    """Return the fit of both laws to Gaussian rows, with S and γ̂ measured on them as on real ones.

    Args:
        n: the number of keys of each real row, ≥ 2; of at most `GAUSSIAN_ROWS`, chosen by chance.
        gamma: γ̂ of each real row, the spread that its Gaussian row is drawn with.
    """
    rng = np.random.default_rng(SEED)
    take = rng.permutation(len(n))[:GAUSSIAN_ROWS]
    # Rows of one length stand together, so that blocks have few columns beyond the end of a row.
    take = take[np.argsort(n[take], kind="stable")]
    n, gamma = n[take].astype(np.int64), gamma[take]
    step = max(1, _BLOCK // int(n.max(initial=1)))
    drawn, S = np.empty(len(n)), np.empty(len(n))
    for first in range(0, len(n), step):
        rows = slice(first, first + step)
        count = n[rows, None]
        seen = np.arange(count.max()) < count
        s = np.where(seen, gamma[rows, None] * rng.standard_normal(seen.shape), 0.0)
        drawn[rows] = row_gamma(centre_rows(s, seen), seen)
        with np.errstate(under="ignore"):
            a = np.where(seen, np.exp(s - np.where(seen, s, -np.inf).max(1, keepdims=True)), 0.0)
            S[rows] = a.sum(1) / np.sqrt(count[:, 0] * (a * a).sum(1))
    # The fit is at the γ̂ that was drawn, as for real rows, whose true spread nobody knows.
    known = drawn <= row_laws.MAX_GAMMA  # a γ̂ near the end of the table may be drawn beyond it
    return fit_laws(n[known], drawn[known], S[known])


SINK = 0.3  # a head has sinks if they take more than that on average: [Gu]'s ε of the first token


@dataclass(frozen=True)
class Sinks:
    """The sinks of heads that have some at the shortest context, followed to the longest.

    Args:
        heads: the number of such heads, each counted in every text.
        mass: the median weight of all sinks together over their rows, by context length T.
        logit: the median of log Σ e^s over the sinks, less the mean of the other logits.
        needed: the logit that would keep the mass at the shortest T: exactly, beside as many
            Gaussian logits as the others are, of their median γ̂.
    """

    heads: int
    mass: np.ndarray
    logit: np.ndarray
    needed: np.ndarray

    @classmethod
    def of(cls, data: xarray.Dataset) -> Sinks:
        """Follow the sinks of one run of a dataset."""
        # The same heads at every T: heads that become sinks later would mix two changes.
        first = tables.rows_at(data, int(data["context"][0]))
        here = first["sinks_mass"].mean("row") > SINK
        found: list[tuple[float, ...]] = []
        for T in data["context"].values if here.any() else ():
            rows = tables.rows_at(data, int(T)).where(here)
            mass, logit = (_median(rows, f"sinks_{x}") for x in ("mass", "logit"))
            gamma, n = (_median(rows, f"{x}_without_sinks") for x in ("gamma", "length"))
            # The mass at the shortest T. Log odds are taken of it, which are infinite at 0 and 1.
            keep = float(np.clip(found[0][0] if found else mass, 1e-6, 1 - 1e-6))
            beside = Row("exp", gamma=min(gamma, row_laws.MAX_GAMMA))
            needed = float(sink_logit(keep, beside, length=max(round(n), 1)))
            found.append((mass, logit, needed))
        columns = np.array(found).reshape(-1, 3).T
        return cls(int(here.sum()), *columns)

    @property
    def short(self) -> np.ndarray:
        """By how much more the logit rose than was needed to keep the mass, from the shortest T."""
        return (self.logit - self.logit[:1]) - (self.needed - self.needed[:1])

    @property
    def change(self) -> np.ndarray:
        """The change of the log odds of the mass, from the shortest T.

        Log odds, since beside the same other keys they change by as much as the sinks' logit.
        """
        mass = np.clip(self.mass, 1e-6, 1 - 1e-6)
        odds = np.log(mass / (1 - mass))
        return odds - odds[:1]


def _median(rows: xarray.Dataset, name: str) -> float:
    return float(np.median(tables.known_values(rows, name)))


@dataclass(frozen=True)
class ModelRun:
    """A run of the texts, with BOS or without, by context length T.

    Args:
        bos: whether the texts begin with BOS; None where that is not said.
        T: the context lengths.
        n: the typical length of the rows looked at, 3T/4: they are those with T/2 < n ≤ T.
        table: the columns of `tables.summary`.
        real: the fit of both laws to rows without their sinks.
        ideal: the fit of both laws to Gaussian rows of the same n and γ̂.
        sinks: the heads with sinks.
        departs: the share of heads where most rows fail Lilliefors' test of normal logits.
        identity: the largest relative error of 1/n_eff = m² + (1 − m)²/n_eff′ for the first token:
            rounding, or else the sums over rows are wrong.
    """

    bos: bool | None
    T: np.ndarray
    n: np.ndarray
    table: dict[str, np.ndarray]
    real: tuple[LawFit, ...]
    ideal: tuple[LawFit, ...]
    sinks: Sinks
    departs: float
    identity: float

    @classmethod
    def of(cls, data: xarray.Dataset, table: list[dict[str, Any]], bos: bool | None) -> ModelRun:
        """Take a run from its part of a dataset and its rows of the summary."""
        real, ideal = [], []
        for row in table:
            rows = tables.rows_at(data, row["T"])
            n, gamma, S = (
                rows[f"{name}_without_sinks"].values.astype(float).ravel()
                for name in ("length", "gamma", "S")
            )
            # One key has no spread, and the exact law is tabulated up to MAX_GAMMA.
            known = (n > 1) & (gamma <= row_laws.MAX_GAMMA) & np.isfinite(S)
            n, gamma, S = n[known], gamma[known], S[known]
            real.append(fit_laws(n, gamma, S))
            ideal.append(fit_gaussian_rows(n, gamma))
        # 1/n_eff = Σp²: the first token's m², and the others' (1 − m)²/n_eff′.
        m, rest = data["sink_mass"].astype(float), data["n_eff_without_sink_key"].astype(float)
        identity = abs((m**2 + (1 - m) ** 2 / rest) * data["n_eff"] - 1)
        tested = tables.known_values(data, "departs")
        T = np.array([row["T"] for row in table])
        return cls(
            bos=bos,
            T=T,
            n=0.75 * T,
            table={key: np.array([row[key] for row in table]) for key in table[0]},
            real=tuple(real),
            ideal=tuple(ideal),
            sinks=Sinks.of(data),
            departs=float(np.mean(tested > 0.5)) if len(tested) else np.nan,
            identity=float(identity.max()),
        )


@dataclass(frozen=True)
class Evidence:
    """The evidence for the claims on rows: the runs, that without BOS first."""

    runs: tuple[ModelRun, ...]

    @classmethod
    def of(cls, data: xarray.Dataset) -> Evidence:
        """Take the evidence from a dataset of `sparsity measure`.

        Raises:
            InputError: the shape of logits was not measured.
        """
        if "departs" not in data:
            fix = "claims need the shape of logits; measure with of=sparsity.measurement.SHAPE"
            raise InputError("data", "without 'departs'", fix)
        table, runs = tables.summary(data), []
        for value in sorted(int(b) for b in data["bos"].values):
            bos = tables.says_bos(value)
            own = [row for row in table if row["bos"] == bos]
            runs.append(ModelRun.of(data.sel(bos=value), own, bos))
        return cls(tuple(runs))

    def numbers(self) -> dict[str, Any]:
        """Return the table by context length, JSON-ready."""
        keys = (
            "T", "n_eff", "n_eff_without_sinks", "sink_rate_0.3", "sink_rate_0.8",
            "gamma_without_sinks", "any_rate_0.3", "late_rate_0.3", "sinks_rate_0.3",
            "ratio_limit_without_sinks", "ratio_exact_without_sinks",
            "rank_limit_without_sinks", "rank_exact_without_sinks",
        )  # fmt: skip
        rows = []
        for run in self.runs:
            for i in range(len(run.T)):
                row: dict[str, Any] = {"bos": run.bos}
                row |= {key: run.table[key][i].item() for key in keys}
                row |= {"real": asdict(run.real[i]), "gaussian": asdict(run.ideal[i])}
                if run.sinks.heads:
                    names = ("mass", "logit", "needed")
                    row["sink heads"] = {"heads": run.sinks.heads} | {
                        name: getattr(run.sinks, name)[i].item() for name in names
                    }
                rows.append(row)
        return {"by context length": rows}
