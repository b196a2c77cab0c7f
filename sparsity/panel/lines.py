"""Curves as numbers: the limit at once where it can be, the exact law of rows point by point."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from sparsity import quantities
from sparsity.axes.row_choices import has_sink
from sparsity.errors import InputError, NoClosedForm
from sparsity.exact_law import maps
from sparsity.exact_law.exact import exact as exact_law
from sparsity.kernels import Kernel, Law, RowMap
from sparsity.limit.evaluation import evaluate
from sparsity.limit.preview import preview
from sparsity.panel.spec import Spec
from sparsity.quantities import Quantity

_MOST_KEYS = 256  # of a top-k mass whose exact law is quick
_OF_POSITIONS = (quantities.n_eff, quantities.participation)


def _score(spec: Spec, x: str, values: np.ndarray) -> tuple[np.ndarray, ...] | None:
    """β, γ and a log factor on S along one parameter; None where S is no such product."""
    assert isinstance(spec.kernel, Kernel)
    own = x in dict(spec.values)
    v = {k: values if k == x and own else at for k, at in spec.given().items()}
    form = spec.law.closed(spec.kernel, v) if spec.law.closed else None
    return None if form is None else tuple(np.broadcast_to(part, values.shape) for part in form)


def _of_S(quantity: Quantity, log_S: Any, n: Any) -> Any:
    """The limit of a quantity that goes by S; None of another."""
    with np.errstate(under="ignore", over="ignore"):
        if quantity is quantities.n_eff:
            return n * np.exp(2 * log_S)
        if quantity is quantities.participation:
            return np.exp(-2 * log_S) / n
        if quantity is quantities.S:
            return np.exp(log_S)
        if quantity.linear is not None and quantity.linear.of is quantities.S:
            return quantity.linear(np.exp(log_S), n)
    return None


def _goes_by_S(spec: Spec) -> bool:
    """Whether the limit goes by S, of tokens alone."""
    return _of_S(spec.quantity, 0.0, 1.0) is not None and not _weighed(spec)


def _weighed(spec: Spec) -> bool:
    """Whether a weight beside the tokens counts."""
    return spec.score and spec.law.beside and spec.quantity.units


def _length(spec: Spec, x: str, values: np.ndarray, n: float | None) -> Any:
    return values if x == "length" else dict(spec.values).get("length", n)


def at_once(
    spec: Spec,
    x: str,
    values: np.ndarray,
    method: str | None = "closed form",
    n: float | None = None,
) -> np.ndarray | None:
    """The limit of long rows along one parameter, where it has a closed form.

    Args:
        spec: the curve.
        x: the parameter that varies; one that it does not depend on gives a level line.
        values: its values, [points].
        method: as in `evaluate`; with None also kernels without a closed form have a value.
        n: the row length, of a curve that does not depend on it.

    Returns:
        Values, [points]; None where it takes sums over the row, or has no closed form.

    Raises:
        InputError: a value outside its domain.
    """
    if not (has_limit(spec) and _goes_by_S(spec)):
        return None
    length = _length(spec, x, values, n)
    try:
        if not spec.score:
            kernel: Any = spec.kernel
            if isinstance(kernel, RowMap) and not kernel.identically_distributed:  # by quadrature
                return None
            given: dict[str, Any] = spec.given() | ({x: values} if x in dict(spec.values) else {})
            given |= {"query": spec.query} if spec.query else {}
            log_S = np.broadcast_to(evaluate(kernel, method=method, **given).log_S, values.shape)
            return _of_S(spec.quantity, log_S, length)
        form = _score(spec, x, values)
        if form is None:
            return None
        beta, gamma, factor = form
        log_S = evaluate(spec.kernel, method=method, beta=beta, gamma=gamma).log_S + factor
        return _of_S(spec.quantity, log_S, length)
    except NoClosedForm:
        return None


def provisional(spec: Spec, x: str, values: np.ndarray) -> np.ndarray:
    """The same in float64 without a bound, to be drawn until it is proven; NaN: not known."""
    form = _score(spec, x, values) if spec.score and not _weighed(spec) else None
    if form is None or not has_limit(spec):
        return np.full(values.shape, math.nan)
    assert isinstance(spec.kernel, Kernel)
    beta, gamma, factor = form
    length = _length(spec, x, values, None)
    if _goes_by_S(spec):
        with np.errstate(divide="ignore"):
            log_S = np.log(preview(spec.kernel, beta, gamma)) + factor
        return _of_S(spec.quantity, log_S, length)
    alike = np.where(factor == 0, 1.0, math.nan)  # other quantities are no such product
    return alike * preview(spec.kernel, beta, gamma, spec.quantity, length)


def slowly(spec: Spec) -> float:
    """The limit of long rows at one point, by quadrature and sums over the row."""
    n = dict(spec.values)["length"]
    if _goes_by_S(spec):
        return float(_of_S(spec.quantity, evaluate(spec.row(), length=n).log_S, n))
    return float(evaluate(spec.row(), of=spec.quantity, length=n).value)


def has_limit(spec: Spec) -> bool:
    """Whether the quantity has a limit of long rows here."""
    if isinstance(spec.kernel, RowMap):
        return spec.kernel.unnormalised is not None and spec.quantity is quantities.n_eff
    return spec.quantity.has_limit


def unanswered(kernel: Kernel | RowMap, sink: bool, quantity: Quantity) -> str:
    """Why a kernel has no value of a quantity at all, in a few words; empty if it has one.

    Args:
        kernel: the kernel.
        sink: whether there is a sink in its rows.
        quantity: the quantity.
    """
    if kernel.law is Law.FEATURES and quantity is not quantities.n_eff:
        return f"{kernel.name} has S of long rows only"
    if kernel.law is Law.POSITION and quantity not in _OF_POSITIONS:
        return f"{kernel.name} has S, n_eff and participation only"
    if quantity.sinks and not sink:
        return "needs a sink: choose a row law with one"
    signed = isinstance(kernel, RowMap) and maps.has(kernel, quantity)
    if quantity in quantities.OF_MAPS and not signed:
        return "is for signed weights, such as those of differential"
    return ""


def refusal(spec: Spec) -> str:
    """Why a curve has no value at all, in a few words; empty if it has one."""
    return unanswered(spec.kernel, spec.score and has_sink(spec.law), spec.quantity)


def of_formula(spec: Spec) -> str:
    """Of which rows the formula of S of the kernel is the curve's own; empty if of none."""
    by_S = spec.quantity in (quantities.n_eff, quantities.S)
    if not by_S or spec.rows != "iid" or not isinstance(spec.kernel, Kernel):
        return ""
    return "rows of n" if spec.kernel.law is Law.POSITION else "long rows"


def has_law(spec: Spec) -> bool:
    """Whether an exact law of the quantity is known for such rows."""
    if isinstance(spec.kernel, RowMap):
        return maps.has(spec.kernel, spec.quantity)
    return spec.kernel.law is not Law.FEATURES and spec.quantity.has_law


def why_not(spec: Spec) -> str:
    """Why a curve has no exact law to fill in, in a few words; empty if it has one."""
    quantity = spec.quantity
    if spec.kernel.law is Law.FEATURES:
        return "features have no given law at finite n"
    if not has_law(spec):
        return f"no exact law of {quantity.name} is known for {spec.kernel.name}: sampled instead"
    if isinstance(spec.kernel, RowMap) and maps.slow(spec.kernel, quantity):
        return "the exact law takes seconds a point: sampled instead"
    if quantity.rank_law is not None and quantity.rank_law.keys > _MOST_KEYS:
        return f"the exact law takes seconds a point beyond {_MOST_KEYS} keys: sampled instead"
    if spec.score and not spec.law.quick(spec.kernel, spec.given()["length"]):
        if spec.law.kernels and spec.kernel not in spec.law.kernels:
            return f"the exact law of {spec.law.title} takes seconds a point here: sampled instead"
        return f"the exact law takes seconds a point beyond n = {spec.law.longest:g}"
    return ""


def exact(spec: Spec) -> float | None:
    """The exact law at one point; None where there is none within reach.

    Raises:
        InputError: a value outside the domain of the row law.
    """
    if why_not(spec):
        return None
    v = spec.given()
    if spec.kernel.law is Law.POSITION:  # a row that is not random: S is exact as it is
        return float(_of_S(spec.quantity, evaluate(spec.kernel, **v).log_S, v["length"]))
    return float(exact_law(spec.row(), length=v["length"], of=spec.quantity).value)


def exact_lengths(spec: Spec, lengths: np.ndarray) -> list[float]:
    """The exact law of independent scores at many row lengths, for the price of one.

    Raises:
        InputError: another row law.
    """
    if spec.rows != "iid":
        raise InputError("rows", spec.rows, "only independent scores share their transforms")
    return exact_law(spec.row(), length=lengths, of=spec.quantity).value.tolist()
