"""The reference grid: what the cross-check compares, cell by cell."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import product, starmap
from typing import Any

import numpy as np

from sparsity import kernels
from sparsity.crosscheck.cells import Question, feature_ratio
from sparsity.kernels import (
    Kernel,
    decayed,
    entmax15,
    exp,
    identity,
    nonnegative,
    relu2,
    tile_softmax,
)
from sparsity.rows.row import Row
from sparsity.rows.score_laws import Empirical, Mixture, StudentT, Uniform
from sparsity.rows.steps import (
    Alibi,
    Chunk,
    Coca,
    Decay,
    FloorLog,
    LengthBias,
    LogLength,
    Needle,
    NeedleAbove,
    QKNorm,
    Rope,
    ScalableSoftmax,
    ScaleInvariant,
    Sink,
    SinkLogit,
    SoftCap,
    Window,
    Yarn,
)
from sparsity.rows.tokens import Step


def scalar(kernel: str | Kernel, *, length: int | None = None, **parameters: Any) -> Question:
    """Ask for S of long rows, or of a row of positions, against scalar draws."""
    return Question(Row(kernel, **parameters), ("limit", "scalars"), "S", length)


def whole_keys(kernel: Kernel, beta: float, gamma: float, dim: int) -> Question:
    """Ask for S of long rows against whole keys in R^dim."""
    row = Row(kernel, beta=beta, gamma=gamma)
    return Question(row, ("limit", "whole keys"), given={"dim": dim})


def features(feature: str, center: float, spread: float, dim: int, query: str) -> Question:
    """Ask for S of nonnegative linear attention against real features of normal keys."""
    ratio = feature_ratio(feature, center, spread)
    row = Row(nonnegative, ratio=ratio, dim=dim, query=query)
    given = {"feature": feature, "center": center, "spread": spread}
    return Question(row, ("limit", "features"), given=given)


def retention(kernel: Kernel, beta: float, gamma: float, length: int, decay: float) -> Question:
    """Ask for the limit form of S under retention, a product, against pooled moments of rows."""
    row = Row(kernel, beta=beta, gamma=gamma, steps=(Decay(decay),))
    return Question(row, ("product of limits", "pooled rows"), "S", length)


def of_rows(row: Row, length: int, quantity: str = "n_eff") -> Question:
    """Ask for a quantity of whole rows by its exact law against sampled rows."""
    return Question(row, ("exact law", "whole rows"), quantity, length)


# Kernel, β and γ of a grid, and further points.
_SCALAR_GRIDS: tuple[tuple[Kernel, tuple, tuple, tuple], ...] = (
    (exp, (0.0,), (1e-3, 0.1, 0.25, 0.5, 1, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 20, 100, 1e4),
     ((-1e3, 1), (-2, 0.5), (3, 1), (3, 4), (1e3, 2))),
    (relu2, (-2, -1, -0.5, 0, 0.5, 1, 2), (0.1, 0.25, 0.5, 1, 2, 4, 10),
     ((-40, 1), (-4e-5, 1e-6), (-4e7, 1e6), (0, 1e-6), (0, 1e6), (1e6, 1))),
    (identity, (0, 0.5, 1, 2, 4), (0.1, 0.5, 1, 2, 4, 10),
     ((-1, 1), (-40, 1), (0, 1e-6), (0, 1e6), (1e6, 1))),
)  # fmt: skip


def _scalars() -> Iterator[Question]:
    for kernel, betas, gammas, further in _SCALAR_GRIDS:
        for beta, gamma in (*product(betas, gammas), *further):
            yield scalar(kernel, beta=beta, gamma=gamma)
    for decay in (1e-5, 0.5, 0.9, 0.99, 0.999, 1 - 1e-6, 1.0):
        for length in (1, 10, 1000, 10**6, 10**12):
            yield scalar(decayed, decay=decay, length=length)


# A sampler is compiled for each kernel and size, in half a second: cells have sizes in common, here
# and with the figures and the claims.
def _full_keys() -> Iterator[Question]:
    yield from starmap(whole_keys, (
        (exp, 0.3, 0.5, 128), (exp, -1, 1, 128),
        (relu2, -1, 1, 2), (relu2, 0, 2, 2), (relu2, 1, 1, 2),
        (identity, 0, 1, 128), (identity, 2, 0.5, 128),
    ))  # fmt: skip


def _features() -> Iterator[Question]:
    yield from starmap(features, (
        ("relu", 0.0, 1.0, 8, "uniform"),
        ("relu", 0.0, 1.0, 8, "one-hot"),
        ("relu", -1.0, 1.0, 32, "half-normal"),
        ("relu", -1.0, 1.0, 32, "uniform"),
        ("relu", 1.0, 1.0, 32, "uniform"),
        ("exp", 1.0, 1.0, 32, "half-normal"),
        ("elu+1", 0.0, 1.0, 4, "one-hot"),
        ("elu+1", -1.0, 2.0, 4, "one-hot"),
        ("softplus", 0.0, 1.0, 32, "half-normal"),
        ("softplus", -2.0, 1.0, 32, "uniform"),
    ))  # fmt: skip


def _whole_rows() -> Iterator[Question]:
    # Rows whose n_eff scatters little enough to see an error of 2e-3 in less than a second; steeper
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


def cells_of_steps() -> tuple[Question, ...]:
    """Return the cells of steps: every step, every law of scores, every quantity, three kernels.

    Cells of one kernel share their length where they can, and quantities that look at the whole row
    are asked of one row: their sampler compiles once, and they share its draws.
    """
    mixed = (Decay(0.9), Alibi(0.05), Window(4), Sink(1.0, 0.3))
    beside_a_sink = (Window(4), SinkLogit(2.2))  # which mostly takes more than 0.6
    needle = (NeedleAbove(1.0, 0.2), Alibi(0.1))
    of_sums = "participation entropy kl_uniform varentropy"
    of_order = "max_weight top_k_mass:3 gini below:-1 mass_below:-1"
    of_pairs = "overlap:0.5 top_k_overlap:3,0.5"
    of_needle = "needle_mass needle_largest needle_odds_above:0.3 needle_snr_above:0.8"
    questions = []
    for kernel, beta, gamma, steps, length, asked in (
        (exp, 0.0, 1.0, (), 8, f"{of_sums} {of_order} {of_pairs} hoyer"),
        (relu2, 1.5, 0.4, (), 8, "max_weight"),
        (exp, 0.0, 0.4, beside_a_sink, 8, "sink_mass sink_mass_above:0.6 entropy"),
        (exp, 0.0, 0.4, (Decay(0.8),), 8, "n_eff"),
        (identity, 2.0, 0.5, (Decay(0.7),), 8, "n_eff"),
        (exp, 0.0, 0.4, (Alibi(0.3),), 8, "n_eff"),
        (relu2, 2.0, 0.3, (Alibi(0.2),), 8, "n_eff"),
        (identity, 0.0, 1.0, (Alibi(0.2),), 8, "limit"),
        (exp, 0.0, 0.5, (Window(4),), 8, "n_eff"),
        (relu2, 1.0, 0.3, (Window(4),), 8, "n_eff"),
        (exp, 0.0, 0.7, (ScalableSoftmax(),), 8, "n_eff"),
        (exp, 0.0, 0.4, (Chunk(5),), 8, "n_eff"),
        (exp, 0.0, 0.4, (FloorLog(0.5, 4, 1),), 8, "n_eff"),  # at a multiple of the trained length
        (exp, 0.0, 0.4, (LogLength(4),), 8, "participation"),
        (exp, 0.0, 0.4, (Yarn(4.0),), 8, "n_eff"),
        (exp, 0.0, 0.3, (ScaleInvariant(2.0),), 8, "n_eff"),
        (exp, 0.0, 0.7, (SoftCap(1.0),), 8, "n_eff"),
        (relu2, 3.5, 0.4, (LengthBias(),), 8, "n_eff"),
        (exp, 0.0, 0.4, (SinkLogit(),), 8, "sink_mass"),
        (exp, 0.0, 0.4, (SinkLogit(1.5),), 8, "participation"),
        (exp, 0.0, 0.7, (SinkLogit(math.log(8) + 0.7**2 / 2),), 8, "sink_mass"),  # about ½
        (relu2, 1.5, 0.4, (SinkLogit(2.0),), 8, "sink_mass"),
        (exp, 0.0, 0.7, (Sink(2.0),), 8, "sink_mass"),
        (exp, 0.0, 0.5, (Sink(1.0, 0.3),), 8, "n_eff"),
        (exp, 0.0, 0.4, (Needle(1.0),), 8, of_needle),
        (relu2, 1.5, 0.3, needle, 8, "needle_signal power_sum:3 entropy"),
        (exp, 0.0, 0.5, (QKNorm(4),), 4, "n_eff limit"),
        (exp, 0.0, 0.4, (Uniform(),), 8, "n_eff"),
        (relu2, 1.5, 0.4, (StudentT(12),), 8, "n_eff"),
        (exp, 0.0, 0.4, (Mixture(((0.9, 0.0, 1.0), (0.1, 4.0, 0.5))),), 8, "n_eff"),
        (identity, 2.0, 0.5, (Empirical((-2.0, -0.5, 0.0, 0.25, 3.0)),), 8, "n_eff"),
        (exp, 0.5, 0.5, (*mixed, SinkLogit(1.0)), 8, "sink_mass"),
        (relu2, 1.5, 0.4, mixed, 8, "n_eff"),
    ):
        row = Row(kernel, beta=beta, gamma=gamma, steps=steps)
        pooled = Question(row, ("limit", "pooled rows"), "S", length)
        questions += [
            pooled if word == "limit" else of_rows(row, length, word) for word in asked.split()
        ]
    return tuple(questions)


def _rotary(
    kernel: Kernel, form: str, length: int, dim: int, pairing: str, spread: float
) -> Question:
    """Ask for n_eff of a row with rotary positions, from rotated vectors.

    The form is "rope" (‖q‖ = ‖μ‖ = 1, spread the γ of the scores), "coca" or "slack" (‖q‖² = d/2,
    center 1/4, spread the spread/center of t).
    """
    # Norms are set, so that the spread of the scores is what the cell says, whatever was drawn.
    rng = np.random.default_rng([0, dim])
    q, mu = rng.standard_normal((2, dim))
    q /= np.linalg.norm(q)
    if form == "rope":
        step: Step = Rope(q, mu / np.linalg.norm(mu), spread, pairing)
    else:
        at = 3 * length if form == "slack" else None
        step = Coca(q * (dim / 2) ** 0.5, 0.25, 0.25 * spread, pairing, slack_at=at)
    return of_rows(Row(kernel, steps=(step,)), length)


# Of 16 entries: of fewer planes than that XLA writes out the sum, and compiles twice as long.
ROTARY_CELLS: tuple[Question, ...] = (
    _rotary(exp, "rope", 16, 16, "interleaved", 0.15),
    _rotary(identity, "coca", 16, 16, "half", 0.1),
    _rotary(exp, "slack", 16, 16, "half", 0.12),
)

# Of a map of whole rows, where few rows are enough; those of one row share its draws.
_TILES = Row(tile_softmax(2), gamma=1.0, within=0.3)
MAP_CELLS: tuple[Question, ...] = (
    of_rows(Row(entmax15, gamma=1.0), 4, "participation"),
    of_rows(Row(entmax15, gamma=1.0), 4, "support"),
    of_rows(_TILES, 8, "tiles_below:-0.5,2"),
    of_rows(_TILES, 8, "tiles_mass_below:-0.5,2"),
)


def _without_cells(cells: tuple[Question, ...], among: tuple[Kernel, ...]) -> Iterator[Question]:
    """Yield cells for every kernel of scores that has none of its own.

    So a kernel that is added to `kernels.ALL` is checked without a line here.
    """
    known = {cell.kernel for cell in cells}
    for kernel in among:
        if kernel.law is kernels.Law.SCORE and kernel not in known:
            for beta, gamma in ((0, 1), (1, 0.5)):
                yield scalar(kernel, beta=beta, gamma=gamma)
            yield of_rows(Row(kernel, beta=2, gamma=0.5), 6)


def reference_grid(only: tuple[str, ...] = ()) -> tuple[Question, ...]:
    """Return every cell of the grid, or those of the kernels named, the zoo's among them.

    Raises:
        InputError: an unknown kernel.
    """
    # Kernels that were asked for get cells even if they are not among `kernels.ALL`: of the zoo.
    wanted = tuple(kernels.elementwise(name) for name in only)
    positions = (*cells_of_steps(), *ROTARY_CELLS, *MAP_CELLS)
    every = (*_scalars(), *_full_keys(), *_features(), *_whole_rows(), *positions)
    every += tuple(_without_cells(every, wanted or kernels.ALL))
    return tuple(cell for cell in every if not wanted or _before_cap(cell) in wanted)


def _before_cap(cell: Question) -> Any:
    """Return the kernel of a cell as it is named: a soft cap makes another of it."""
    return getattr(cell.kernel, "uncapped", cell.kernel)


def exact_cells() -> Iterator[Question]:
    """Yield the cells where theories are held against each other.

    The closed form against quadrature or summation in the scalar cells; `nonnegative` is not among
    them: its summation is the same algebra as its closed form.
    """
    for cell in _scalars():
        yield Question(cell.row, ("closed form", "quadrature"), "S", cell.length)
