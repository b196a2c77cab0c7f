"""`exact`: a quantity of rows of n tokens, by the law that reaches it."""

from __future__ import annotations

from dataclasses import replace
from typing import Unpack

import numpy as np

from sparsity import quantities
from sparsity.errors import InputError, check_resolved
from sparsity.exact_law import engine, map_laws
from sparsity.kernels import Kernel, Law, RowMap
from sparsity.kernels.parameters import LENGTH, One, Several, names_parameters
from sparsity.limit.evaluation import evaluate
from sparsity.quantities import POWERS_OF_S_AND_N, Quantity
from sparsity.quantities.base import Means
from sparsity.results import Exact
from sparsity.rows.row import OfRows, Row, RowLike, assumed_of, row_of


def _of_positions(row: Row, quantity: Quantity, n: np.ndarray) -> Means:
    """Return S of the n weights of a row in which nothing is random, or n·S² or its inverse."""
    evaluation = evaluate(row, length=n)
    # Nothing is random, so each is a power of S times one of n: S² = n_eff/n and Y₂ = 1/n_eff.
    if quantity.name not in POWERS_OF_S_AND_N:
        fix = f"{row.kernel.name} has {', '.join(POWERS_OF_S_AND_N)}"
        raise InputError("of", quantity.name, fix)
    of_S, of_n = POWERS_OF_S_AND_N[quantity.name]
    value = np.exp(of_S * evaluation.log_S) * n**of_n
    return Means(value, np.ones(n.shape), abs(of_S) * np.asarray(evaluation.error_bound))


def _resolved(
    quantity: Quantity, means: Means, method: str, n: np.ndarray, **places: np.ndarray
) -> Exact:
    """Return the result of a law, if all of its values are resolved."""
    value, p_nonzero, error = means
    check_resolved(quantity.name, np.where(np.isnan(value), np.nan, error), **places, length=n)
    with np.errstate(divide="ignore", invalid="ignore"):  # of 0, and of KL beside a sink logit
        return Exact(quantity.name, value, np.log(value), error, method, n, p_nonzero)


@names_parameters()
def exact(
    kernel: RowLike,
    *,
    length: Several = None,
    of: str | Quantity = "n_eff",
    **parameters: Unpack[OfRows[One]],
) -> Exact:
    """Return the mean of a quantity over rows of n tokens, by its exact law.

    Args:
        kernel: a `Row`, a built-in kernel's name, a `Kernel` or a `RowMap`.
        length: row lengths n, whole numbers ≥ 1, any shape; None only where arrays of β and γ are
            the row.
        of: the quantity, by name: "n_eff", "S", "participation", "entropy", "max_weight",
            "gini", "sink_mass", of maps "support", or with a number, "top_k_mass:8"; see
            `sparsity.quantities`.
        **parameters: of a kernel given without a row its own, such as `beta` and `gamma`, with
            `steps` and `scores` as for `Row`.

    Returns:
        Its value at each length, with a bound on the relative error.

    Raises:
        InputError: an unknown name, a value outside its domain, a kernel whose weights are not
            independent over tokens, a quantity that has no exact law, or a relative error bound
            of 1e-3 or more at one of the lengths.
    """
    row, quantity = row_of(kernel, parameters), quantities.named(of)
    length = row.length if length is None else length
    if length is None:
        raise InputError("length", None, "give the row length n, or several")
    n = LENGTH.check(length)
    if isinstance(row.kernel, RowMap):
        means, method = map_laws.mean_over_map_rows(row, quantity, n), "exact law"
    elif row.kernel.law is Law.POSITION:
        means, method = _of_positions(row, quantity, n), "closed form"
    else:
        means, method = engine.mean_over_rows(row, quantity, length), "exact law"
    return replace(_resolved(quantity, means, method, n), assumed=assumed_of(kernel, parameters))


def exact_grid(
    kernel: Kernel, grids: dict[str, np.ndarray], length: np.ndarray, of: Quantity
) -> Exact:
    """Return the mean of a quantity over rows without steps, on a grid of their parameters.

    Args:
        kernel: a function of a score.
        grids: checked values of `beta` and `gamma`.
        length: row lengths n, [lengths].
        of: a quantity that needs neither a sink nor a needle.

    Returns:
        Its values, of shape [beta, gamma, lengths].

    Raises:
        InputError: a quantity that has no exact law, or a relative error bound of 1e-3 or more.
    """
    beta, gamma = np.meshgrid(grids["beta"], grids["gamma"], indexing="ij")
    n = LENGTH.check(length)
    means = engine.means_over_grid(kernel, beta.ravel(), gamma.ravel(), of, n)
    means = Means(*(x.reshape(*beta.shape, -1) for x in means))
    places = {"beta": beta[..., None], "gamma": gamma[..., None]}
    return _resolved(of, means, "exact law", n, **places)
