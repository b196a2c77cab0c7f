"""What the judges look at: numbers of a measurement by context length, with and without BOS."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from sparsity.attention.measurement import row_laws, tables
from sparsity.attention.measurement.datasets import rank_correlation
from sparsity.design_search.monotone import sink_logit
from sparsity.errors import InputError
from sparsity.rows.row import Row

if TYPE_CHECKING:
    import xarray


WITHIN = 0.25  # a row is within a quarter of its law
_ROWS = 4000  # drawn; a share is then known to 0.01
_BLOCK = 2**21  # normal numbers at a time


@dataclass(frozen=True)
class LawFit:
    """How rows lie to both laws at their own n and γ̂.

    Args:
        ratio: median of S over the exact law.
        within: share of rows within a quarter of it.
        off_limit: median |log(S/limit law)|.
        off_exact: median |log(S/exact law)|.
        rank_limit: Spearman's correlation over rows of S with the limit law.
        rank_exact: with the exact law.
    """

    ratio: float
    within: float
    off_limit: float
    off_exact: float
    rank_limit: float
    rank_exact: float


def fit_laws(n: np.ndarray, gamma: np.ndarray, S: np.ndarray) -> LawFit:
    """Hold rows against both laws.

    Args:
        n: keys of each row.
        gamma: γ̂ of its logits; 0 ≤ γ̂ ≤ `row_laws.MAX_GAMMA`.
        S: its sparsity.
    """
    if not len(n):
        return LawFit(*[np.nan] * 6)
    exact, limit = np.log(row_laws.exact_law(n, gamma)), row_laws.log_limit_law(gamma)
    log_S = np.log(S)
    return LawFit(
        ratio=float(np.exp(np.median(log_S - exact))),
        within=float(np.mean(np.abs(log_S - exact) < np.log1p(WITHIN))),
        off_limit=float(np.median(np.abs(log_S - limit))),
        off_exact=float(np.median(np.abs(log_S - exact))),
        rank_limit=float(rank_correlation(log_S, limit)),
        rank_exact=float(rank_correlation(log_S, exact)),
    )


def fit_gaussian_rows(n: np.ndarray, gamma: np.ndarray, seed: int = 0) -> LawFit:
    """The same of Gaussian rows, whose S and γ̂ are measured on them as on real ones.

    Args:
        n: keys of each real row, ≥ 2; at most `_ROWS` of them are taken, by chance.
        gamma: their γ̂.
        seed: of the draws.
    """
    rng = np.random.default_rng(seed)
    take = rng.permutation(len(n))[:_ROWS]
    take = take[np.argsort(n[take], kind="stable")]
    n, gamma = n[take].astype(np.int64), gamma[take]
    step = max(1, _BLOCK // int(n.max(initial=1)))
    drawn, S = np.empty(len(n)), np.empty(len(n))
    for first in range(0, len(n), step):
        rows = slice(first, first + step)
        count = n[rows, None]
        seen = np.arange(count.max()) < count
        s = np.where(seen, gamma[rows, None] * rng.standard_normal(seen.shape), 0.0)
        away = np.where(seen, s - s.sum(1, keepdims=True) / count, 0.0)
        drawn[rows] = np.sqrt((away**2).sum(1) / (count[:, 0] - 1))
        with np.errstate(under="ignore"):
            a = np.where(seen, np.exp(s - np.where(seen, s, -np.inf).max(1, keepdims=True)), 0.0)
            S[rows] = a.sum(1) / np.sqrt(count[:, 0] * (a * a).sum(1))
    known = drawn <= row_laws.MAX_GAMMA
    return fit_laws(n[known], drawn[known], S[known])


SINK = 0.3  # mean weight on the sinks of a head that has some; [Gu]'s ε of the first token


@dataclass(frozen=True)
class Sinks:
    """The heads that have sinks at the shortest context, followed to the longest.

    Args:
        heads: how many (texts times heads).
        mass: median weight of all sinks together over their rows, by context length T.
        logit: median of log Σ e^s over the sinks, less the mean of the other logits.
        needed: the logit that would keep the mass at the shortest T: exactly, beside as many
            Gaussian logits as the others are, of their median γ̂.
    """

    heads: int
    mass: np.ndarray
    logit: np.ndarray
    needed: np.ndarray

    @classmethod
    def of(cls, data: xarray.Dataset) -> Sinks:
        first = tables.rows_at(data, int(data["context"][0]))
        here = first["sinks_mass"].mean("row") > SINK
        found: list[tuple[float, ...]] = []
        for T in data["context"].values if here.any() else ():
            rows = tables.rows_at(data, int(T)).where(here)
            mass, logit, gamma, n = (
                float(np.median(tables.known_values(rows, name)))
                for name in (
                    "sinks_mass",
                    "sinks_logit",
                    "gamma_without_sinks",
                    "length_without_sinks",
                )
            )
            keep = float(np.clip(found[0][0] if found else mass, 1e-6, 1 - 1e-6))
            beside = Row("exp", gamma=min(gamma, row_laws.MAX_GAMMA))
            needed = float(sink_logit(keep, beside, length=max(round(n), 1)))
            found.append((mass, logit, needed))
        columns = np.array(found).reshape(-1, 3).T
        return cls(int(here.sum()), *columns)

    @property
    def short(self) -> np.ndarray:
        """By how much the logit rose more than it needed to, from the shortest T on."""
        return (self.logit - self.logit[:1]) - (self.needed - self.needed[:1])

    @property
    def change(self) -> np.ndarray:
        """Change of the mass's log odds, from the shortest T on."""
        mass = np.clip(self.mass, 1e-6, 1 - 1e-6)
        odds = np.log(mass / (1 - mass))
        return odds - odds[:1]


@dataclass(frozen=True)
class ModelRun:
    """One way of running the texts, by context length T.

    Args:
        bos: whether the texts begin with BOS; None where that is not said.
        T: the context lengths.
        n: the typical length of the rows looked at, 3T/4.
        table: the columns of `tables.summary`.
        real: how rows without their sinks lie to both laws.
        ideal: how Gaussian rows of the same n and γ̂ do.
        sinks: the heads with sinks.
        departs: share of heads where most rows fail Lilliefors' test.
        identity: largest relative error of 1/n_eff = m² + (1 − m)²/n_eff′ for the first token.
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
        """From one run of a dataset and its rows of the summary."""
        real, ideal = [], []
        for row in table:
            n, gamma, S = _others(tables.rows_at(data, row["T"]))
            real.append(fit_laws(n, gamma, S))
            ideal.append(fit_gaussian_rows(n, gamma))
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


def _others(rows: xarray.Dataset) -> tuple[np.ndarray, ...]:
    """Keys, γ̂ and S of all rows without their sinks, where the laws say something of them."""
    names = ("length_without_sinks", "gamma_without_sinks", "S_without_sinks")
    n, gamma, S = (rows[name].values.astype(float).ravel() for name in names)
    known = (n > 1) & (gamma <= row_laws.MAX_GAMMA) & np.isfinite(S)
    return n[known], gamma[known], S[known]


@dataclass(frozen=True)
class Evidence:
    """The runs, without BOS first."""

    runs: tuple[ModelRun, ...]

    @classmethod
    def of(cls, data: xarray.Dataset) -> Evidence:
        """From a dataset of `measure_model`.

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
        """The table, JSON-ready, as evidence."""
        keys = (
            "T",
            "n_eff",
            "n_eff_without_sinks",
            "sink_rate_0.3",
            "sink_rate_0.8",
            "gamma_without_sinks",
        )
        keys += ("any_rate_0.3", "late_rate_0.3", "sinks_rate_0.3", "ratio_limit_without_sinks")
        keys += (
            "ratio_exact_without_sinks",
            "rank_limit_without_sinks",
            "rank_exact_without_sinks",
        )
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
