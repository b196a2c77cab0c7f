"""A cell of the cross-check: what is asked of which row, and the two instruments that answer.

The instruments have nothing in common but the kernel's definition, the steps and the quantity. Each
is a function in `THEORIES` or `SAMPLERS`, under the name by which a cell asks for it.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import sympy

from sparsity import derivation
from sparsity.errors import NoClosedForm
from sparsity.exact_law.exact import exact
from sparsity.kernels import Kernel, Law, RowMap, decayed, exp, zoo
from sparsity.kernels.queries import named as named_query
from sparsity.limit import quadrature
from sparsity.limit.evaluation import evaluate
from sparsity.results import Estimate
from sparsity.rows.classes import ANY_LENGTH
from sparsity.rows.row import Row
from sparsity.rows.steps import Decay
from sparsity.sampling import Sampling, draw, draw_each, estimators, sample_rows
from sparsity.sampling.row_sampling import draw_rows

Value = tuple[float, float]  # log of a quantity, and a bound on its error
_DIGITS = 30  # of a derived formula

# Feature maps h of nonnegative linear attention, sampled as real features of Gaussian keys.
FEATURE_MAPS: dict[str, Kernel] = {h.name: h for h in (zoo.relu, exp, zoo.elu1, zoo.softplus)}


@functools.lru_cache(maxsize=64)
def feature_ratio(feature: str, center: float, spread: float) -> float:
    """Return σ̃/μ̃ of a feature map of normal entries, by quadrature of its definition.

    The closed form takes this ratio; samples take the features themselves.
    """
    log_m1, _ = quadrature.moment(FEATURE_MAPS[feature], 1, center, spread)
    log_m2, _ = quadrature.moment(FEATURE_MAPS[feature], 2, center, spread)
    return math.sqrt(math.expm1(float(log_m2) - 2 * float(log_m1)))


@dataclass(frozen=True)
class Question:
    """One cell to check.

    Args:
        row: the row.
        instruments: a theory, and what it is held against: a sampler or a second theory.
        quantity: what is asked.
        length: n; None for long rows.
        given: what else a sampler draws from: `dim` of whole keys, the feature map.
    """

    row: Row
    instruments: tuple[str, str]
    quantity: str = "S"
    length: int | None = None
    given: dict[str, Any] = field(default_factory=dict, hash=False)

    @property
    def kernel(self) -> Kernel | RowMap:
        """The kernel of the row."""
        return self.row.kernel

    @property
    def parameters(self) -> dict[str, Any]:
        """What identifies the cell beside the kernel, in JSON's types."""
        identity: dict[str, Any] = dict(self.row.params)
        if self.length is not None:
            identity["length"] = self.length
        if self.row.steps:
            identity["steps"] = " ".join(self.row.described()["steps"])
        return identity | self.given

    @property
    def statistical(self) -> bool:
        """Return whether it is settled by sampling."""
        return self.instruments[1] in SAMPLERS

    @property
    def draws_rows(self) -> bool:
        """Return whether it is settled by rows that are drawn whole."""
        return self.instruments[1] in ("whole rows", "pooled rows")

    def value(self, which: int = 0) -> Value:
        """Return the log of the quantity by one of the theories, and a bound on its error."""
        return THEORIES[self.instruments[which]](self)

    def theory(self) -> float:
        """Return the log of the quantity by the first instrument."""
        return self.value()[0]

    def sample(self, sampling: Sampling) -> Estimate:
        """Return the quantity by Monte Carlo."""
        return SAMPLERS[self.instruments[1]](self, sampling)


def families(cells: Sequence[Question]) -> list[list[int]]:
    """Return the numbers of the cells that are sampled together.

    They are scalar draws of one kernel, which compile once, and whole rows of one kind, whose
    quantities share their draws.
    """
    members: dict[Any, list[int]] = {}
    for i, cell in enumerate(cells):
        key: Any = i  # alone, unless it shares its draws
        if cell.draws_rows:
            key = cell.row, cell.length or ANY_LENGTH
            if isinstance(cell.kernel, RowMap):  # whose pooled rows have weights of their own
                key = *key, cell.instruments[1]
        elif cell.instruments[1] == "scalars" and not cell.row.steps:
            key = cell.kernel
        members.setdefault(key, []).append(i)
    return list(members.values())


def sample_family(cells: Sequence[Question], samplings: Sequence[Sampling]) -> Iterator[Estimate]:
    """Sample the quantities of the cells of a family by Monte Carlo."""
    if len(cells) == 1:
        yield cells[0].sample(samplings[0])
    elif cells[0].draws_rows:
        of = [None if c.instruments[1] == "pooled rows" else c.quantity for c in cells]
        drawn = draw_rows(cells[0].row, cells[0].length or ANY_LENGTH, samplings[0], of)
        yield from (drawn.limit_form() if q is None else drawn.estimate(q) for q in of)
    else:
        rows = cells[0].kernel.law is Law.POSITION  # whose length is a parameter
        parameters = [c.row.params | ({"length": c.length} if rows else {}) for c in cells]
        yield from draw_each(cells[0].row.function, parameters, samplings)


def _limit(cell: Question, method: str | None = None) -> Value:
    length: dict[str, Any] = {} if cell.length is None else {"length": cell.length}
    evaluation = evaluate(cell.row, method=method, **length)
    return float(evaluation.log_S), float(evaluation.error_bound)


def _product(cell: Question) -> Value:
    """Multiply S of the window by S of the scores.

    A weight λ^(n−j)·f(s) is a product of independent factors, whose moments multiply.
    """
    (step,) = cell.row.steps
    assert isinstance(step, Decay)
    window = evaluate(decayed, decay=step.decay, length=cell.length)
    score = evaluate(cell.row.function, beta=cell.row.beta, gamma=cell.row.gamma)
    error = window.error_bound + score.error_bound
    return float(window.log_S + score.log_S), float(error)


def _derived(cell: Question) -> Value:
    """Evaluate the formula that SymPy derives, with many digits."""
    if not derivation.takes_seconds(cell.row.function):
        raise NoClosedForm("the derivation", "the formula is long; sparsity.derive may take hours")
    at: Any = {p.symbol: sympy.Rational(cell.row.params[p.name]) for p in cell.kernel.parameters}
    log_S = float(sympy.N(sympy.log(derivation.derive(cell.row.function).S.subs(at)), _DIGITS))
    return log_S, 1e-15 * max(1.0, abs(log_S))  # exact up to the float64 that it is given in


def _exact(cell: Question) -> Value:
    assert cell.length is not None
    evaluation = exact(cell.row, length=cell.length, of=cell.quantity)
    return float(evaluation.log_value), float(evaluation.error_bound)


def _features(cell: Question, sampling: Sampling) -> Estimate:
    params: Any = cell.row.params
    query = named_query(params["query"]).vector(params["dim"])
    feature = FEATURE_MAPS[cell.given["feature"]]
    return estimators.features(feature, query, cell.given["center"], cell.given["spread"], sampling)


THEORIES: dict[str, Callable[[Question], Value]] = {
    "limit": _limit,
    "closed form": lambda cell: _limit(cell, "closed form"),
    "quadrature": lambda cell: _limit(cell, "quadrature"),
    "derivation": _derived,
    "product of limits": _product,
    "exact law": _exact,
}

SAMPLERS: dict[str, Callable[[Question, Sampling], Estimate]] = {
    "scalars": lambda cell, sampling: draw(
        cell.row, sampling, length=cell.length if cell.kernel.law is Law.POSITION else None
    ),
    "whole keys": lambda cell, sampling: draw(cell.row, sampling, dim=cell.given["dim"]),
    "features": _features,
    "whole rows": lambda cell, sampling: sample_rows(
        cell.row, cell.length, sampling, cell.quantity
    ),
    "pooled rows": lambda cell, sampling: draw_rows(
        cell.row, cell.length or ANY_LENGTH, sampling, None
    ).limit_form(),
}
