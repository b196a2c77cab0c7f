"""One curve of the panel: what it is of, and its numbers.

The limit of long rows comes at once where it has a closed form, for all points of a curve in one
call; else it is previewed, and proven point by point. The exact law of rows of n comes point by
point. Functions named `why_…` say in a few words why there is none, and "" where there is one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from sparsity import kernels, quantities
from sparsity.errors import NoClosedForm
from sparsity.exact_law import map_laws
from sparsity.exact_law.capabilities import capabilities
from sparsity.exact_law.exact import exact
from sparsity.kernels import Kernel, Law, RowMap
from sparsity.kernels.row_map import SHIFTED
from sparsity.limit.closed_form import error_bound
from sparsity.limit.evaluation import evaluate, preview
from sparsity.plots.axes.controls import CONTROLS
from sparsity.plots.axes.row_choices import Rows, marks
from sparsity.quantities import KeysLaw, Quantity
from sparsity.rows.row import Row

_POWERS_OF_S = {"S": 1.0, "n_eff": 2.0, "participation": 2.0}  # n_eff = n·S², and one over it


@dataclass(frozen=True)
class Spec:
    """One curve: a quantity of a kernel, a row law and the values that it depends on.

    Args:
        kernel: the kernel or row map.
        law: the row law; that of independent scores for kernels that are no function of a score.
        values: (parameter, value) of everything that the curve depends on, and nothing else: two
            states in which a curve is the same have the same spec, and share what is computed.
        query: the query family of nonnegative features, else "".
        of: the name of the quantity.
    """

    kernel: Kernel | RowMap
    law: Rows
    values: tuple[tuple[str, float], ...]
    query: str = ""
    of: str = "n_eff"

    def __hash__(self) -> int:
        """Return a hash by names, as that of a kernel's SymPy expression takes longer than a curve.

        A panel has no two kernels of one name, and equality still compares all of it.
        """
        return hash((self.kernel.name, self.rows, self.values, self.query, self.of))

    @property
    def rows(self) -> str:
        return self.law.name

    @property
    def quantity(self) -> Quantity:
        return quantities.named(self.of)

    @property
    def score(self) -> bool:
        """Whether the weight is a function of the score."""
        return self.kernel.law is Law.SCORE

    @property
    def whole(self) -> bool:
        """Whether it has random rows of n tokens, to be sampled whole and to have laws of."""
        return self.kernel.law in (Law.SCORE, Law.ROW)

    def row(self) -> Row:
        """Return the row of a kernel of scores, or of a map of whole rows.

        Raises:
            InputError: a value outside the domain of the row law.
        """
        if isinstance(self.kernel, Kernel):
            return self.law.row(self.kernel, self.given())
        params: dict[str, Any] = {name: value for name, value in self.values if name != "length"}
        return Row(self.kernel, **params)

    def at(self, name: str, x: float) -> Spec:
        """Return the spec with one value changed, if it is one of its own."""
        return replace(self, values=tuple((k, x if k == name else v) for k, v in self.values))

    def given(self) -> dict[str, Any]:
        """Return the values by name; a bias that the curve does not depend on is 0."""
        return ({"beta": 0.0} if self.score else {}) | dict(self.values)

    def title(self, without: str = "") -> str:
        """Return the curve in words: kernel, row law, values."""
        parts = [self.kernel.name]
        if self.rows != "iid":
            parts.append(self.law.title)
        for name, value in self.values:
            if name != without:
                parts.append(f"{CONTROLS[name].symbol} = {value:.6g}".replace("-", "−"))
        if self.query:
            parts.append(f"{self.query} query")
        return ", ".join(parts)


class Value(NamedTuple):
    """A number of theory, and the bound on its relative error."""

    value: float
    bound: float


def parameters_used(kernel: Kernel | RowMap, rows: Rows) -> set[str]:
    """Return the names of the parameters that a kernel's quantities depend on in such rows."""
    if isinstance(kernel, RowMap):
        # A map that a shift of all scores leaves alone, such as sparsemax, is the same at any bias.
        level = {"beta"} if kernel.parameters is SHIFTED else set[str]()
        return {x.name for x in kernel.parameters} - level | {"length"}
    if kernel.law is not Law.SCORE:
        return {x.name for x in kernel.parameters} - {"query"}
    names = {"beta", "gamma", "length", *rows.controls}
    # A bias is a factor e^β on every weight of exp, and no quantity depends on the scale of a row.
    if kernel.weight == kernels.exp.weight and rows.level:
        names -= {"beta"}
    return names


def _closed_form(spec: Spec, x: str, values: np.ndarray) -> tuple[np.ndarray, ...] | None:
    """Return β, γ and a log factor along one parameter, [points] each; None without such a form.

    S of the rows is then S of the kernel at (β, γ), times the factor: such as √(share in sight) of
    a window.
    """
    assert isinstance(spec.kernel, Kernel)
    has_x = x in dict(spec.values)
    v = {k: values if k == x and has_x else at for k, at in spec.given().items()}
    form = spec.law.closed(spec.kernel, v) if spec.law.closed else None
    return None if form is None else tuple(np.broadcast_to(part, values.shape) for part in form)


def _limit_from_S(quantity: Quantity, log_S: Any, n: Any) -> Any:
    """Return the limit of a quantity that is a function of S and n; None of another."""
    # From log S, as S itself underflows at large γ: n_eff = n·S² and participation = 1/(n·S²).
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
    """Tell whether the limit is a function of S and n."""
    return _limit_from_S(spec.quantity, 0.0, 1.0) is not None and not _counts_beside(spec)


def _counts_beside(spec: Spec) -> bool:
    """Tell whether a weight beside the tokens, such as a sink logit, counts in the quantity.

    A limit that is a function of S leaves it out, as S is of the tokens alone.
    """
    return spec.score and spec.law.beside and spec.quantity.units


def _length(spec: Spec, x: str, values: np.ndarray, n: float | None) -> Any:
    return values if x == "length" else dict(spec.values).get("length", n)


def bounded_limit(
    spec: Spec,
    x: str,
    values: np.ndarray,
    method: str | None = "closed form",
    n: float | None = None,
) -> tuple[np.ndarray, np.ndarray] | None:
    """Return the limit of long rows along one parameter, where it has a closed form; and its bound.

    Args:
        spec: the curve.
        x: the parameter that varies; one that it does not depend on gives a level line.
        values: the values of x, [points].
        method: as in `evaluate`; with None kernels without a closed form have a value as well, by
            quadrature.
        n: the row length, of a curve that does not depend on it.

    Returns:
        The limit, and the bound on its relative error, [points] each; None where it takes sums over
        the row, or has no closed form.

    Raises:
        InputError: a value outside its domain.
    """
    if not (has_limit(spec) and _goes_by_S(spec)):
        return None
    try:
        if spec.score:
            form = _closed_form(spec, x, values)
            if form is None:
                return None
            beta, gamma, factor = form
            evaluation = evaluate(spec.kernel, method=method, beta=beta, gamma=gamma)
            log_S = evaluation.log_S + factor
            # A factor is of closed forms, too.
            bound = evaluation.error_bound + np.where(factor == 0, 0.0, error_bound(factor))
        else:
            kernel: Any = spec.kernel
            if isinstance(kernel, RowMap) and not kernel.identically_distributed:  # by quadrature
                return None
            given: dict[str, Any] = spec.given() | ({x: values} if x in dict(spec.values) else {})
            given |= {"query": spec.query} if spec.query else {}
            evaluation = evaluate(kernel, method=method, **given)
            log_S = np.broadcast_to(evaluation.log_S, values.shape)
            bound = np.broadcast_to(evaluation.error_bound, values.shape)
    except NoClosedForm:
        return None
    return _bounded(spec, log_S, bound, _length(spec, x, values, n))


def _bounded(spec: Spec, log_S: Any, bound: Any, n: Any) -> tuple[Any, Any]:
    """Return a limit that is a function of S, and the bound on its relative error."""
    # The error of log S times the slope of the logarithm. Where S underflows, that of a small S.
    slope = _POWERS_OF_S.get(spec.of)
    if slope is None:
        step, at = 1e-4, np.maximum(log_S, -300.0)
        here, near = (_limit_from_S(spec.quantity, x, n) for x in (at, at - step))
        with np.errstate(divide="ignore", invalid="ignore"):
            slope = np.abs(np.log(near / here)) / step
    return _limit_from_S(spec.quantity, log_S, n), slope * bound


def previewed_limit(spec: Spec, x: str, values: np.ndarray) -> np.ndarray:
    """Return the limit in float64 without a bound, to be drawn until it is proven; or NaN.

    Args:
        spec: the curve.
        x: the parameter that varies.
        values: the values of x, [points].
    """
    form = _closed_form(spec, x, values) if spec.score and not _counts_beside(spec) else None
    if form is None or not has_limit(spec):
        return np.full(values.shape, math.nan)
    assert isinstance(spec.kernel, Kernel)
    beta, gamma, factor = form
    length = _length(spec, x, values, None)
    if _goes_by_S(spec):
        with np.errstate(divide="ignore"):
            log_S = np.log(preview(spec.kernel, beta, gamma)) + factor
        return _limit_from_S(spec.quantity, log_S, length)
    # A factor on S says nothing of another quantity: where there is one, no preview.
    alike = np.where(factor == 0, 1.0, math.nan)
    return alike * preview(spec.kernel, beta, gamma, spec.quantity, length)


def limit_at_point(spec: Spec) -> Value:
    """Return the limit of long rows at one point, by quadrature and sums over the row."""
    n = dict(spec.values)["length"]
    if _goes_by_S(spec):
        evaluation = evaluate(spec.row(), length=n)
        return Value(*map(float, _bounded(spec, evaluation.log_S, evaluation.error_bound, n)))
    evaluation = evaluate(spec.row(), of=spec.quantity, length=n)
    return Value(float(evaluation.value), float(evaluation.error_bound))


def has_limit(spec: Spec) -> bool:
    """Tell whether the quantity has a limit of long rows here."""
    # Of maps S alone has one, which is drawn as n_eff of long rows.
    if isinstance(spec.kernel, RowMap):
        return spec.quantity is quantities.n_eff and capabilities(spec.kernel, quantities.S).limit
    return spec.quantity.has_limit


def why_kernel_has_none(kernel: Kernel | RowMap, marked: frozenset[str], quantity: Quantity) -> str:
    """Say why a kernel has no value of a quantity at all, in a few words; "" if it has one.

    Args:
        kernel: the kernel.
        marked: what there is in its rows besides plain tokens: a "sink", the "needle".
        quantity: the quantity.
    """
    # `capabilities` says whether; here is why, in the words of somebody who looks at a chart.
    known = capabilities(kernel, quantity)
    if kernel.law is Law.FEATURES and quantity is not quantities.n_eff:
        return f"{kernel.name} has S of long rows only"
    # The mean of S over rows that are not random is S itself, which has an axis of its own.
    if kernel.law is Law.POSITION and (quantity is quantities.S or not known.exact):
        return f"{kernel.name} has S, n_eff and participation only"
    if quantity.needs is not None and quantity.needs not in marked:
        return f"needs a {quantity.needs}: choose a row law with one"
    # A map without any law is sampled, whatever is asked.
    sampled = isinstance(kernel, RowMap) and not map_laws.known(kernel)
    if quantity in quantities.OF_MAPS and not known.exact and not sampled:
        if quantity is quantities.recall:
            return "is for maps that leave keys out, such as router"
        return "is for signed weights, such as those of differential"
    return ""


def why_no_value(spec: Spec) -> str:
    """Say why a curve has no value at all, in a few words; "" if it has one."""
    return why_kernel_has_none(spec.kernel, marks_of(spec), spec.quantity)


def marks_of(spec: Spec) -> frozenset[str]:
    """Return what there is in the rows of a curve besides plain tokens: "sink", "needle"."""
    return marks(spec.law) if spec.score else frozenset()


def rows_of_formula(spec: Spec) -> str:
    """Say of which rows the kernel's formula of S is the curve's own; "" if of none."""
    by_S = spec.quantity in (quantities.n_eff, quantities.S)
    if not by_S or spec.rows != "iid" or not isinstance(spec.kernel, Kernel):
        return ""
    return "rows of n" if spec.kernel.law is Law.POSITION else "long rows"


def why_no_law(spec: Spec) -> str:
    """Say why a curve has no exact law to fill in, in a few words; "" if it has one."""
    # A law may be known and yet take too long for a slider: what is filled in has to be quick, as
    # one slow point holds up all curves. Samples stand in for it.
    quantity = spec.quantity
    if spec.kernel.law is Law.FEATURES:
        return "features have no given law at finite n"
    if isinstance(spec.kernel, RowMap) and not map_laws.known(spec.kernel):
        return map_laws.NO_LAW
    if not capabilities(spec.kernel, quantity).exact:
        return f"no exact law of {quantity.name} is known for {spec.kernel.name}: sampled instead"
    slow = isinstance(spec.kernel, RowMap) and map_laws.slow(spec.kernel, quantity)
    if slow or isinstance(quantity.rank_law, KeysLaw):
        return "the exact law takes seconds a point: sampled instead"
    if spec.score and not spec.law.quick(spec.kernel, spec.given()["length"]):
        if spec.law.kernels and spec.kernel not in spec.law.kernels:
            return f"the exact law of {spec.law.title} takes seconds a point here: sampled instead"
        return f"the exact law takes seconds a point beyond n = {spec.law.longest:g}"
    return ""


def exact_value(spec: Spec) -> Value | None:
    """Return the exact law at one point; None where there is none within reach.

    Raises:
        InputError: a value outside the domain of the row law.
    """
    if why_no_law(spec):
        return None
    v = spec.given()
    if spec.kernel.law is Law.POSITION:  # a row that is not random: S is exact as it is
        by_S = evaluate(spec.kernel, **v)
        return Value(*map(float, _bounded(spec, by_S.log_S, by_S.error_bound, v["length"])))
    evaluation = exact(spec.row(), length=v["length"], of=spec.quantity)
    return Value(float(evaluation.value), float(evaluation.error_bound))


def exact_at_lengths(spec: Spec, lengths: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the exact law of independent scores, and its bounds, at many lengths at once."""
    evaluation = exact(spec.row(), length=lengths, of=spec.quantity)
    return evaluation.value, evaluation.error_bound
