"""The reference grid: what the cross-check compares, cell by cell, and the two sides of each cell.

A `Spec` names a kernel, a sampling route and the parameters; the cells of row laws and of rotary
positions stand beside their samplers. `theory` and `sample` compute the two sides of each from
nothing in common but the kernel's definition, the row law and the metric.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import sympy

from sparsity import kernels
from sparsity.finite import finite_length
from sparsity.kernels import Kernel, decayed, exp, identity, nonnegative, relu2, score_kernel
from sparsity.kernels.queries import named as named_query
from sparsity.kernels.symbols import s
from sparsity.montecarlo import Sampling, estimators
from sparsity.results import Estimate
from sparsity.theory import quadrature
from sparsity.theory.evaluation import evaluate
from sparsity.verification.row_cells import ROTARY_CELLS, RotaryCell, RowCell, reference_cells

__all__ = ["FEATURE_MAPS", "Checked", "Spec", "feature_ratio", "reference_grid", "sample", "theory"]

# Feature maps h of nonnegative linear attention, sampled as real features of Gaussian keys.
FEATURE_MAPS: dict[str, Kernel] = {
    h.name: h
    for h in (
        score_kernel("relu", sympy.Max(s, 0)),
        score_kernel("exp", sympy.exp(s)),
        score_kernel("elu+1", sympy.Piecewise((s + 1, s > 0), (sympy.exp(s), True))),
        score_kernel("softplus", sympy.log(1 + sympy.exp(s))),
    )
}


@dataclass(frozen=True)
class Spec:
    """One cell to check.

    Args:
        kernel: the kernel.
        route: "scalar" (scores or positions), "full-keys", "features", "rows" or "retention".
        parameters: values by name; `feature`, `center`, `spread` for features.
        quantity: "S", or "n_eff" where rows are compared with the exact law.
    """

    kernel: Kernel
    route: str
    parameters: dict[str, Any] = field(hash=False)

    @property
    def quantity(self) -> str:
        """What is compared."""
        return "n_eff" if self.route == "rows" else "S"


def _scalar() -> Iterator[Spec]:
    def spec(kernel: Kernel, **parameters: float) -> Spec:
        return Spec(kernel, "scalar", parameters)

    for gamma in (1e-3, 0.1, 0.25, 0.5, 1, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 20, 100, 1e4):
        yield spec(exp, beta=0.0, gamma=gamma)
    for beta, gamma in ((-1e3, 1), (-2, 0.5), (3, 1), (3, 4), (1e3, 2)):
        yield spec(exp, beta=beta, gamma=gamma)
    for beta in (-2, -1, -0.5, 0, 0.5, 1, 2):
        for gamma in (0.1, 0.25, 0.5, 1, 2, 4, 10):
            yield spec(relu2, beta=beta, gamma=gamma)
    for beta, gamma in ((-40, 1), (-4e-5, 1e-6), (-4e7, 1e6), (0, 1e-6), (0, 1e6), (1e6, 1)):
        yield spec(relu2, beta=beta, gamma=gamma)
    for beta in (0, 0.5, 1, 2, 4):
        for gamma in (0.1, 0.5, 1, 2, 4, 10):
            yield spec(identity, beta=beta, gamma=gamma)
    for beta, gamma in ((-1, 1), (-40, 1), (0, 1e-6), (0, 1e6), (1e6, 1)):
        yield spec(identity, beta=beta, gamma=gamma)
    for decay in (1e-5, 0.5, 0.9, 0.99, 0.999, 1 - 1e-6, 1.0):
        for length in (1, 10, 1000, 10**6, 10**12):
            yield spec(decayed, decay=decay, length=length)


def _full_keys() -> Iterator[Spec]:
    for kernel, beta, gamma, dim in (
        (exp, 0.3, 0.5, 2), (exp, -1, 1, 2), (exp, 0.3, 0.5, 128),
        (relu2, -1, 1, 2), (relu2, 0, 2, 2), (relu2, 1, 1, 2), (relu2, 2, 1, 128),
        (identity, 0, 1, 2), (identity, 1, 1, 2), (identity, 0, 1, 128), (identity, 2, 0.5, 1024),
    ):  # fmt: skip
        yield Spec(kernel, "full-keys", {"beta": beta, "gamma": gamma, "dim": dim})


def _features() -> Iterator[Spec]:
    for feature, center, spread, dim, query in (
        ("relu", 0.0, 1.0, 4, "uniform"),
        ("relu", 0.0, 1.0, 4, "one-hot"),
        ("relu", -1.0, 1.0, 64, "half-normal"),
        ("relu", -1.0, 1.0, 64, "uniform"),
        ("relu", 1.0, 1.0, 10**5, "uniform"),
        ("exp", 0.0, 0.5, 1, "uniform"),
        ("exp", 1.0, 1.0, 64, "half-normal"),
        ("elu+1", 0.0, 1.0, 4, "one-hot"),
        ("elu+1", -1.0, 2.0, 4, "uniform"),
        ("softplus", 0.0, 1.0, 64, "half-normal"),
        ("softplus", -2.0, 1.0, 64, "uniform"),
    ):
        yield Spec(
            nonnegative,
            "features",
            {"feature": feature, "center": center, "spread": spread, "dim": dim, "query": query},
        )


def _rows() -> Iterator[Spec]:
    # Rows whose n_eff scatters little enough to see an error of 1e-3 in about a second; steeper
    # ones (exp at γ = 3, n = 1024) would take 3·10⁷ rows, and stand in the figure of rows instead.
    for kernel, beta, gamma, length in (
        (exp, 0, 0.5, 256), (exp, 0, 0.7, 16), (exp, 2, 3, 2), (exp, 0, 2, 1),
        (relu2, 0, 1, 4), (relu2, 2, 1, 64), (relu2, -1, 1, 4),
        (identity, 0, 1, 4), (identity, 1, 1, 16), (identity, 0, 1, 256), (identity, 2, 1, 4096),
    ):  # fmt: skip
        yield Spec(kernel, "rows", {"beta": beta, "gamma": gamma, "length": length})
    for kernel, beta, gamma, length, decay in (
        (exp, 0, 0.5, 16, 0.9), (relu2, 2, 0.5, 4, 0.9), (identity, 1, 0.5, 16, 0.5),
    ):  # fmt: skip
        parameters = {"beta": beta, "gamma": gamma, "length": length, "decay": decay}
        yield Spec(kernel, "retention", parameters)


Checked = Spec | RowCell | RotaryCell


def reference_grid(only: tuple[str, ...] = ()) -> tuple[Checked, ...]:
    """Every cell of the reference grid, or those of the kernels named.

    Raises:
        InputError: an unknown kernel.
    """
    wanted = {kernels.named(name).name for name in only}
    positions = (*reference_cells(), *ROTARY_CELLS)
    every = (*_scalar(), *_full_keys(), *_features(), *_rows(), *positions)
    return tuple(spec for spec in every if not wanted or spec.kernel.name in wanted)


def feature_ratio(spec: Spec) -> float:
    """σ̃/μ̃ of the feature map, by quadrature of its definition."""
    p = spec.parameters
    feature = FEATURE_MAPS[p["feature"]]
    log_m1, _ = quadrature.moment(feature, 1, p["center"], p["spread"])
    log_m2, _ = quadrature.moment(feature, 2, p["center"], p["spread"])
    return math.sqrt(math.expm1(float(log_m2) - 2 * float(log_m1)))


def theory(spec: Checked) -> float:
    """Log of the cell's quantity by theory: closed form, or the exact law at finite length."""
    if not isinstance(spec, Spec):
        return spec.theory()
    p = spec.parameters
    if spec.route == "features":
        ratio = feature_ratio(spec)
        value = evaluate(nonnegative, ratio=ratio, dim=p["dim"], query=p["query"])
        return float(value.log_S)
    if spec.route == "rows":
        law = finite_length.n_eff(spec.kernel, p["length"], beta=p["beta"], gamma=p["gamma"])
        return math.log(float(law.n_eff))
    if spec.route == "retention":
        window = evaluate(decayed, decay=p["decay"], length=p["length"])
        score = evaluate(spec.kernel, beta=p["beta"], gamma=p["gamma"])
        return float(window.log_S + score.log_S)  # independent factors multiply
    own = {q.name: p[q.name] for q in spec.kernel.parameters}
    return float(evaluate(spec.kernel, **own).log_S)


def sample(spec: Checked, sampling: Sampling) -> Estimate:
    """The cell's quantity by Monte Carlo."""
    if not isinstance(spec, Spec):
        return spec.sample(sampling)
    p = spec.parameters
    if spec.route == "scalar":
        return estimators.stratified(spec.kernel, {k: float(v) for k, v in p.items()}, sampling)
    if spec.route == "full-keys":
        queries = min(64, p["dim"])
        query, mean = estimators.keys_at(p["beta"], p["gamma"], p["dim"], sampling.seed, queries)
        return estimators.full_keys(spec.kernel, query, mean, sampling)
    if spec.route == "features":
        query = named_query(p["query"]).vector(p["dim"])
        feature = FEATURE_MAPS[p["feature"]]
        return estimators.features(feature, query, p["center"], p["spread"], sampling)
    decay = p.get("decay", 1.0)
    rows = estimators.rows(spec.kernel, p["beta"], p["gamma"], p["length"], sampling, decay=decay)
    return rows.n_eff if spec.route == "rows" else rows.pooled


def exact_points() -> Iterator[tuple[Kernel, dict[str, Any]]]:
    """Where the closed form is held against quadrature or summation: the scalar cells.

    `nonnegative` is not among them: its summation is the same algebra as its closed form.
    """
    for spec in _scalar():
        yield spec.kernel, spec.parameters
