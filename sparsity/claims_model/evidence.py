"""What the judges look at: numbers of a measurement by context length, with and without BOS."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from sparsity.measurement import tables

if TYPE_CHECKING:
    import xarray

__all__ = ["Evidence", "Run"]


@dataclass(frozen=True)
class Run:
    """One way of running the texts, by context length T.

    Args:
        bos: whether the texts begin with BOS.
        T: the context lengths.
        n: the typical length of the rows looked at, 3T/4.
        table: the columns of `tables.summary`.
        off: by law, median |log(measured/predicted S)| of rows without the sink.
        within: share of these rows within a quarter of the exact law.
        sink_logit: median logit of the first token less the mean of the others.
        needed: median of ln n + γ̂²/2.
        departs: share of heads where most rows fail Lilliefors' test.
        identity: largest relative error of 1/n_eff = m² + (1 − m)²/n_eff′.
    """

    bos: bool
    T: np.ndarray
    n: np.ndarray
    table: dict[str, np.ndarray]
    off: dict[str, np.ndarray]
    within: np.ndarray
    sink_logit: np.ndarray
    needed: np.ndarray
    departs: float
    identity: float

    @classmethod
    def of(cls, data: xarray.Dataset, table: list[dict[str, Any]], bos: bool) -> Run:
        """From one run of a dataset and its rows of the summary."""
        off: dict[str, list[float]] = {"limit": [], "exact": []}
        within, logits, needed = [], [], []
        for row in table:
            rows = tables.rows_at(data, row["T"])
            for law, values in off.items():
                error = np.abs(tables.pooled(rows, f"residual_{law}_rest"))
                values.append(float(np.median(error)))
                if law == "exact":
                    within.append(float(np.mean(error < np.log(1.25))))
            logits.append(float(np.median(tables.pooled(rows, "sink_logit"))))
            half = tables.pooled(rows, "gamma_rest") ** 2 / 2
            seen = np.isfinite(np.asarray(rows["gamma_rest"], np.float64))
            needed.append(float(np.median(half + np.log(np.asarray(rows["length"])[seen]))))
        m, rest = data["sink_mass"], data["n_eff_rest"]
        identity = abs((m**2 + (1 - m) ** 2 / rest) * data["n_eff"] - 1)
        T = np.array([row["T"] for row in table])
        return cls(
            bos=bos,
            T=T,
            n=0.75 * T,
            table={key: np.array([row[key] for row in table]) for key in table[0]},
            off={law: np.array(values) for law, values in off.items()},
            within=np.array(within),
            sink_logit=np.array(logits),
            needed=np.array(needed),
            departs=float((data["departs"] > 0.5).mean()),
            identity=float(identity.max()),
        )


@dataclass(frozen=True)
class Evidence:
    """The runs, without BOS first."""

    runs: tuple[Run, ...]

    @classmethod
    def of(cls, data: xarray.Dataset) -> Evidence:
        """From a dataset of `measure_model`."""
        table, runs = tables.summary(data), []
        for bos in sorted(bool(b) for b in data["bos"].values):
            own = [row for row in table if row["bos"] == bos]
            runs.append(Run.of(data.sel(bos=int(bos)), own, bos))
        return cls(tuple(runs))

    def numbers(self) -> dict[str, Any]:
        """The table, JSON-ready, as evidence."""
        keys = ("T", "n_eff", "n_eff_rest", "sink_rate_0.3", "sink_rate_0.8", "gamma_rest")
        keys += ("ratio_limit_rest", "ratio_exact_rest", "rank_limit_rest", "rank_exact_rest")
        rows = []
        for run in self.runs:
            for i in range(len(run.T)):
                row: dict[str, Any] = {"bos": run.bos}
                row |= {key: run.table[key][i].item() for key in keys}
                row |= {"sink_logit": run.sink_logit[i].item(), "needed": run.needed[i].item()}
                rows.append(row)
        return {"by context length": rows}
