"""Curves as numbers: the limit law at once, the exact law of rows point by point."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from sparsity.errors import InputError, NoClosedForm
from sparsity.finite.exact import exact as exact_law
from sparsity.kernels import Law
from sparsity.panel.state import Spec
from sparsity.theory.evaluation import evaluate
from sparsity.theory.preview import preview


def _score(spec: Spec, x: str, values: np.ndarray) -> tuple[np.ndarray, ...] | None:
    """β, γ and a log factor on S along one parameter; None where S is no such product."""
    own = x in dict(spec.values)
    v = {k: values if k == x and own else at for k, at in spec.given().items()}
    form = spec.law.closed(spec.kernel, v) if spec.law.closed else None
    return None if form is None else tuple(np.broadcast_to(part, values.shape) for part in form)


def at_once(
    spec: Spec, x: str, values: np.ndarray, method: str | None = "closed form"
) -> np.ndarray | None:
    """Log S in the limit of long rows along one parameter, where it has a closed form.

    Args:
        spec: the curve.
        x: the parameter that varies; one that S does not depend on gives a level line.
        values: its values, [points].
        method: as in `evaluate`; with None also kernels without a closed form have a value.

    Returns:
        log S, [points]; None where it takes sums over the row, or has no closed form.

    Raises:
        InputError: a value outside its domain.
    """
    try:
        if not spec.score:
            given = spec.given() | ({x: values} if x in dict(spec.values) else {})
            query = {"query": spec.query} if spec.query else {}
            log_S = evaluate(spec.kernel, method=method, **given, **query).log_S
            return np.broadcast_to(log_S, values.shape)
        form = _score(spec, x, values)
        if form is None:
            return None
        beta, gamma, factor = form
        return evaluate(spec.kernel, method=method, beta=beta, gamma=gamma).log_S + factor
    except NoClosedForm:
        return None


def provisional(spec: Spec, x: str, values: np.ndarray) -> np.ndarray:
    """The same in float64 without a bound, to be drawn until `at_once` has it; NaN: not known."""
    form = _score(spec, x, values)
    if form is None:
        return np.full(values.shape, math.nan)
    beta, gamma, factor = form
    return preview(spec.kernel, beta, gamma) + factor


def slowly(spec: Spec) -> float:
    """Log S in the limit of long rows at one point, by quadrature and sums over the row."""
    v = spec.given()
    return float(evaluate(spec.law.row(spec.kernel, v), length=v["length"]).log_S)


@dataclass(frozen=True)
class ExactPoint:
    """The exact law of rows at one point.

    Args:
        n_eff: effective number of tokens.
        log_S: log √(n_eff/n).
    """

    n_eff: float
    log_S: float


def why_not(spec: Spec) -> str:
    """Why a curve has no exact law to fill in, in a few words; empty if it has one."""
    if spec.kernel.law is Law.FEATURES:
        return "features have no given law at finite n"
    if spec.score and not spec.law.quick(spec.kernel, spec.given()["length"]):
        if spec.law.kernels and spec.kernel not in spec.law.kernels:
            return f"the exact law of {spec.law.title} takes seconds a point here: sampled instead"
        return f"the exact law takes seconds a point beyond n = {spec.law.longest:g}"
    return ""


def _of(n: float, n_eff: float) -> ExactPoint:
    return ExactPoint(n_eff, 0.5 * math.log(n_eff / n))


def exact(spec: Spec) -> ExactPoint | None:
    """The exact law at one point; None where there is none within reach.

    Raises:
        InputError: a value outside the domain of the row law.
    """
    if why_not(spec):
        return None
    v = spec.given()
    n = v["length"]
    if spec.kernel.law is Law.POSITION:  # a row that is not random: S is exact as it is
        log_S = float(evaluate(spec.kernel, **v).log_S)
        return ExactPoint(n * math.exp(2 * log_S), log_S)
    found = exact_law(spec.law.row(spec.kernel, v), length=n)
    return _of(n, float(found.value))


def exact_lengths(spec: Spec, lengths: np.ndarray) -> list[ExactPoint]:
    """The exact law of independent scores at many row lengths, for the price of one.

    Raises:
        InputError: another row law.
    """
    if spec.rows != "iid":
        raise InputError("rows", spec.rows, "only independent scores share their transforms")
    v = spec.given()
    found = exact_law(spec.law.row(spec.kernel, v), length=lengths)
    return [_of(*pair) for pair in zip(lengths.tolist(), found.value.tolist(), strict=True)]
