"""The reference grid: what the cross-check compares, cell by cell."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product, starmap
from typing import Any

from sparsity import kernels
from sparsity.crosscheck.cells import Question, feature_ratio
from sparsity.crosscheck.row_cells import MAP_CELLS, ROTARY_CELLS, of_rows, reference_cells
from sparsity.kernels import Kernel, decayed, exp, identity, nonnegative, relu2
from sparsity.rows.row import Row
from sparsity.rows.steps import Decay


def scalar(kernel: str | Kernel, *, length: int | None = None, **parameters: Any) -> Question:
    """S of long rows, or of a row of positions, against scalar draws."""
    return Question(Row(kernel, **parameters), ("limit", "scalars"), "S", length)


def whole_keys(kernel: Kernel, beta: float, gamma: float, dim: int) -> Question:
    """S of long rows against whole keys in R^dim."""
    row = Row(kernel, beta=beta, gamma=gamma)
    return Question(row, ("limit", "whole keys"), given={"dim": dim})


def features(feature: str, center: float, spread: float, dim: int, query: str) -> Question:
    """S of nonnegative linear attention against real features of normal keys."""
    ratio = feature_ratio(feature, center, spread)
    row = Row(nonnegative, ratio=ratio, dim=dim, query=query)
    given = {"feature": feature, "center": center, "spread": spread}
    return Question(row, ("limit", "features"), given=given)


def retention(kernel: Kernel, beta: float, gamma: float, length: int, decay: float) -> Question:
    """The limit form of S under retention, a product, against pooled moments of rows."""
    row = Row(kernel, beta=beta, gamma=gamma, steps=(Decay(decay),))
    return Question(row, ("product of limits", "pooled rows"), "S", length)


# Kernel, β and γ of a grid, and further points.
_GAUSSIAN: tuple[tuple[Kernel, tuple, tuple, tuple], ...] = (
    (exp, (0.0,), (1e-3, 0.1, 0.25, 0.5, 1, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 20, 100, 1e4),
     ((-1e3, 1), (-2, 0.5), (3, 1), (3, 4), (1e3, 2))),
    (relu2, (-2, -1, -0.5, 0, 0.5, 1, 2), (0.1, 0.25, 0.5, 1, 2, 4, 10),
     ((-40, 1), (-4e-5, 1e-6), (-4e7, 1e6), (0, 1e-6), (0, 1e6), (1e6, 1))),
    (identity, (0, 0.5, 1, 2, 4), (0.1, 0.5, 1, 2, 4, 10),
     ((-1, 1), (-40, 1), (0, 1e-6), (0, 1e6), (1e6, 1))),
)  # fmt: skip


_ENTROPIES = (
    (0.1, 2), (0.5, 16), (1.0, 2), (1.0, 64), (2.0, 256), (2.0, 10**9), (3.0, 1024), (4.0, 65536),
    (6.0, 64), (8.0, 4096),
)  # fmt: skip


def _scalars() -> Iterator[Question]:
    for kernel, betas, gammas, further in _GAUSSIAN:
        for beta, gamma in (*product(betas, gammas), *further):
            yield scalar(kernel, beta=beta, gamma=gamma)
    for decay in (1e-5, 0.5, 0.9, 0.99, 0.999, 1 - 1e-6, 1.0):
        for length in (1, 10, 1000, 10**6, 10**12):
            yield scalar(decayed, decay=decay, length=length)


def _full_keys() -> Iterator[Question]:
    yield from starmap(whole_keys, (
        (exp, 0.3, 0.5, 2), (exp, -1, 1, 2), (exp, 0.3, 0.5, 128),
        (relu2, -1, 1, 2), (relu2, 0, 2, 2), (relu2, 1, 1, 2), (relu2, 2, 1, 128),
        (identity, 0, 1, 2), (identity, 1, 1, 2), (identity, 0, 1, 128), (identity, 2, 0.5, 1024),
    ))  # fmt: skip


def _features() -> Iterator[Question]:
    yield from starmap(features, (
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
    ))  # fmt: skip


def _rows() -> Iterator[Question]:
    # Rows whose n_eff scatters little enough to see an error of 1e-3 in about a second; steeper
    # ones (exp at γ = 3, n = 1024) would take 3·10⁷ rows, and stand in the figure of rows instead.
    for kernel, beta, gamma, length in (
        (exp, 0, 0.5, 256), (exp, 0, 0.7, 16), (exp, 2, 3, 2), (exp, 0, 2, 1),
        (relu2, 0, 1, 4), (relu2, 2, 1, 64), (relu2, -1, 1, 4),
        (identity, 0, 1, 4), (identity, 1, 1, 16), (identity, 0, 1, 256), (identity, 2, 1, 4096),
    ):  # fmt: skip
        yield of_rows(Row(kernel, beta=beta, gamma=gamma), length)
    yield from starmap(retention, (
        (exp, 0, 0.5, 16, 0.9), (relu2, 2, 0.5, 4, 0.9), (identity, 1, 0.5, 16, 0.5),
    ))  # fmt: skip


def _without_cells(cells: tuple[Question, ...], among: tuple[Kernel, ...]) -> Iterator[Question]:
    """Cells for every kernel of scores that has none of its own."""
    known = {cell.kernel for cell in cells}
    for kernel in among:
        if kernel.law is kernels.Law.SCORE and kernel not in known:
            for beta, gamma in ((0, 1), (1, 0.5)):
                yield scalar(kernel, beta=beta, gamma=gamma)
            yield of_rows(Row(kernel, beta=2, gamma=0.5), 6)


def reference_grid(only: tuple[str, ...] = ()) -> tuple[Question, ...]:
    """Every cell of the reference grid, or those of the kernels named, the zoo's among them.

    Raises:
        InputError: an unknown kernel.
    """
    wanted = tuple(kernels.elementwise(name) for name in only)
    positions = (*reference_cells(), *ROTARY_CELLS, *MAP_CELLS)
    every = (*_scalars(), *_full_keys(), *_features(), *_rows(), *positions)
    every += tuple(_without_cells(every, wanted or kernels.ALL))
    return tuple(cell for cell in every if not wanted or cell.kernel in wanted)


def exact_points() -> Iterator[Question]:
    """Where theories are held against each other.

    The closed form against quadrature or summation in the scalar cells; `nonnegative` is not among
    them: its summation is the same algebra as its closed form. The entropy's exact law against
    Stein's identity.
    """
    for cell in _scalars():
        yield Question(cell.row, ("closed form", "quadrature"), "S", cell.length)
    for gamma, length in _ENTROPIES:
        row = Row(exp, gamma=gamma)
        yield Question(row, ("exact law", "Stein's identity"), "entropy", length)
