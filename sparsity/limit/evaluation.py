"""S by theory: the stable closed form where there is one, else quadrature of the definition.

`preview` is a first look for drawing, while the proven value is on its way: no bound, no table.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Unpack

import numpy as np

from sparsity import kernels, quantities
from sparsity.checks import check_choice
from sparsity.errors import InputError, NoClosedForm, check_resolved
from sparsity.kernels import RowMap
from sparsity.kernels.base import Kernel
from sparsity.kernels.lowering import numpy_log_abs
from sparsity.kernels.parameters import BETA, GAMMA, LENGTH, Several, names_parameters
from sparsity.limit import closed_form, map_limits, quadrature
from sparsity.limit.long_rows import limit_form, limit_of_quantity
from sparsity.quantities import Quantity, S
from sparsity.results import LIMIT_OF_LONG_ROWS, Evaluation
from sparsity.rows.row import OfLongRows, Row, RowLike, assumed_of, row_of, with_steps

METHODS = ("closed form", "quadrature")
_SMALLEST_LOG = -708.0  # log of the smallest float64 that has all its digits
_PLACE = (BETA.name, GAMMA.name, LENGTH.name)  # of a value, as a refusal names it


@names_parameters()
def evaluate(
    kernel: RowLike,
    *,
    of: str | Quantity = "S",
    method: str | None = None,
    **parameters: Unpack[OfLongRows[Several]],
) -> Evaluation:
    """Return S = E|a| / √(E a²) of a kernel or a row, or another quantity, of long rows.

    There a sum over tokens is n times its mean: the entropy of softmax is ln n − γ²/2. `exact` says
    whether n is large enough for that.

    Args:
        kernel: a `Row`, a built-in kernel's name, a `Kernel`, or a `RowMap` that has a limit.
        of: the quantity, by name: "S", "n_eff", "participation", "entropy", "kl_uniform", "hoyer",
            "power_sum:p", the masses of a sink and a needle and "needle_signal", and of softmax
            the overlaps have a limit. All but S take one value of each parameter.
        method: "closed form", or "quadrature" of the definition (of positions its summation; of
            features there is none); None takes the closed form where one exists. The
            result says which ran.
        **parameters: of a kernel its own, scalars or broadcastable arrays, and `steps` or `scores`
            as for `Row`: `beta` (real) and
            `gamma` (> 0) for scores; `ratio` (> 0), `dim` (≥ 1) and `query` for nonnegative;
            or of features that were measured `mean` μ̃ and `covariance` Σ̃ of a key, [d] and [d, d]
            or [d] for independent ones, and `query` q̃, [..., d], for
            S = 1/√(1 + q̃ᵀΣ̃q̃/(q̃ᵀμ̃)²); `decay` in (0, 1] and `length` (≥ 1) for decayed. Of a row
            whose tokens differ, the `length` over which their moments are taken together.
            Quantities that depend on the length of the row, as the entropy does, take a `length` as
            well, of any shape.

    Returns:
        The value, its log, the method and a bound on |Δ log|, in the broadcast shape of the
        parameters.

    Raises:
        InputError: an unknown kernel, parameter, quantity or method, a value outside its domain, or
            a quantity that has no limit, or a bound on |Δ log| of 1e-3 or more; below
            float64, of 1e-3 of the logarithm.
        NoClosedForm: method "closed form" was asked for and the kernel has none.
    """
    if method is not None:
        check_choice("method", method, METHODS)
    quantity, assumed = quantities.named(of), assumed_of(kernel, parameters)
    kernel, given = with_steps(kernel, parameters)
    if isinstance(kernel, Row) and kernel.length is not None:
        given = {LENGTH.name: kernel.length} | given
    if quantity is quantities.S:
        limit = _sparsity(kernel, method, given)
    elif method is not None:
        raise InputError("method", method, f"{quantity.name} has one limit; leave it out")
    else:
        of_row = {name: value for name, value in given.items() if name != LENGTH.name}
        length = given.get(LENGTH.name)
        value, error = limit_of_quantity(row_of(kernel, of_row), quantity, length)
        with np.errstate(divide="ignore", invalid="ignore"):
            log = np.log(value)
        limit = Evaluation(value, log, LIMIT_OF_LONG_ROWS, error, length, quantity.name)
    place = {name: given[name] for name in _PLACE if given.get(name) is not None}
    # Of a value below float64 the logarithm is the answer, and its digits count.
    size = np.abs(limit.log_value)
    size = np.where(np.isfinite(size) & (size > -_SMALLEST_LOG), size, 1.0)
    check_resolved(quantity.name, limit.error_bound / size, **place)
    return replace(limit, assumed=assumed)


def _sparsity(kernel: RowLike, method: str | None, parameters: dict[str, Any]) -> Evaluation:
    """Return S by the first route that knows it: rows with steps, maps, closed form, quadrature."""
    if isinstance(kernel, Row):
        given = dict(parameters)
        length = given.pop(LENGTH.name, None)
        row = row_of(kernel, given)
        if row.steps:
            if method is not None:
                fix = f"a row with steps has the limit form only, no {method}; leave it out"
                raise InputError("method", method, fix)
            log_S, error = limit_form(row.scored(), length)
            return Evaluation.from_log(log_S, "limit form", error, length)
        if isinstance(row.kernel, RowMap):
            place = {} if length is None else {LENGTH.name: length}
            return map_limits.limit(row.kernel, method, row.params | place)
        kernel, parameters = row.function, row.params
        if length is not None:
            n = LENGTH.check(length)  # S of a kernel of scores does not depend on it
            parameters |= {LENGTH.name: n} if row.kernel.law is kernels.Law.POSITION else {}
    kernel = kernels.named(kernel)
    if kernel is kernels.nonnegative and {"mean", "covariance"} & parameters.keys():
        log_S, error = closed_form.of_measured_features(**parameters)
        return Evaluation.from_log(log_S, "closed form", error)
    if isinstance(kernel, RowMap):
        return map_limits.limit(kernel, method, parameters)
    bound = kernel.bind(parameters)
    if method != "quadrature":
        try:
            S, log_S, error = closed_form.sparsity(kernel, bound)
            if not np.all(np.isfinite(log_S)):
                fix = "is beyond float64; use less extreme values"
                raise InputError("log S", np.min(log_S), fix)
            return Evaluation(S, log_S, "closed form", error)
        except NoClosedForm:
            if method is not None:
                raise
    log_S, error = quadrature.log_sparsity(kernel, bound)
    # Sums over positions are the definition itself; nothing is integrated there.
    ran = "quadrature" if kernel.law is kernels.Law.SCORE else "summation"
    return Evaluation.from_log(log_S, ran, error)


# Nodes t = sinh u in equal steps of u: dense around the mean, where no node
# lies, and far enough for what grows.
_U = np.linspace(-4.6, 4.6, 230)
_T, _LOG_WEIGHT = np.sinh(_U), np.log(np.cosh(_U))


def _log_sum(x: np.ndarray) -> np.ndarray:
    top = x.max(axis=-1)
    return top + np.log(np.exp(x - top[..., None]).sum(axis=-1))


class Sketch:
    """The sums of long rows, as `quantities.LongRows` describes them, at many points at once.

    Args:
        kernel: a kernel of Law.SCORE.
        beta: biases, [points].
        gamma: spreads > 0, [points].
        n: row lengths, [points] or one.
    """

    def __init__(self, kernel: Kernel, beta: np.ndarray, gamma: np.ndarray, n: Any) -> None:
        """Look at the weight at every node."""
        self.n = n
        self._log_f = numpy_log_abs(kernel)(beta[:, None] + gamma[:, None] * _T)
        base = _LOG_WEIGHT - _T * _T / 2
        self._log_p = base - _log_sum(base)

    def _moment(self, order: float) -> np.ndarray:
        """Return log E|f|^order."""
        return _log_sum(order * self._log_f + self._log_p)

    def product(self, *sums: tuple[float, float], count: float = 0.0, total: float = 0.0,
                sinks: float = 0.0, needle: float = 0.0) -> tuple[Any, float]:  # fmt: skip
        if sinks or needle:
            return np.full(len(self._log_f), np.nan), 0.0
        powers = [*sums, (1.0, total)]
        log = sum(power * (self._moment(order) + np.log(self.n)) for order, power in powers)
        return np.exp(log + count * np.log(self.n)), 0.0

    def entropy(self) -> tuple[Any, float]:
        log = self._log_f + self._log_p
        mass = np.exp(log - _log_sum(log)[:, None])  # the share of each node
        log = np.where(mass > 0, self._log_f, 0.0)
        return np.log(self.n) + self._moment(1.0) - (mass * log).sum(axis=-1), 0.0


def preview(
    kernel: Kernel, beta: np.ndarray, gamma: np.ndarray, of: Quantity = S, length: Any = 1.0
) -> np.ndarray:
    """Return a limit in float64, to about what an eye can see where the kernel is smooth.

    Args:
        kernel: a kernel of Law.SCORE.
        beta: biases, [points].
        gamma: spreads > 0, [points].
        of: a quantity with a limit in rows whose tokens are alike.
        length: row lengths n, [points] or one.

    Returns:
        The values, [points]; NaN where float64 does not serve.
    """
    if of.linear is not None:
        return of.linear(preview(kernel, beta, gamma, of.linear.of, length), length)
    assert of.limit is not None
    with np.errstate(all="ignore"):
        value, _ = of.limit(Sketch(kernel, beta, gamma, length))
    return np.where(np.isfinite(value), value, np.nan)
