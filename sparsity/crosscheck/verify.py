"""Agreement between instruments, over the reference grid or for one row, with honest statistics.

Each statistical cell compares the log of an estimate with that of theory in units of its standard
error. With m cells, one cell raises a false alarm with probability α/m (two-sided Student's t), so
the whole run does with probability at most α (Bonferroni), although the quantities of one row are
estimated from the same draws. A cell could have seen a relative error
of (t_{1−α/2m} + t_{0.999}) standard errors with probability 0.999: its detectable error.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Unpack

import numpy as np

from sparsity import kernels
from sparsity.checks import check_executor, check_number, check_progress, check_seed, float_type
from sparsity.crosscheck import reference_grid
from sparsity.crosscheck.applicable import MOST_SCORES, STDERR_SHARE, Pairs, applicable_pairs
from sparsity.crosscheck.cells import Question, families, sample_family
from sparsity.crosscheck.outcome import Cell, CrossCheck, ExactCell, compare, detecting
from sparsity.errors import InputError
from sparsity.kernels.parameters import One, names_parameters
from sparsity.results import Estimate
from sparsity.rows.classes import ANY_LENGTH
from sparsity.rows.row import OfRows, Row, RowLike, row_of
from sparsity.sampling import Sampling
from sparsity.tasks import TaskExecutor, run_all_tasks

DETECTABLE = 2e-3  # a cell that could not see a relative error of this size proves nothing
_WORKERS = 2  # threads: one compiles while another samples
_SEEN_BY_FLOAT32 = 1e-4  # a detectable error: float32's rounding is a hundred times less


def judge(
    cell: Question, theory: float, estimate: Estimate, alarm: float, detectable: float = DETECTABLE
) -> Cell:
    """Compare one cell.

    Args:
        cell: what was asked.
        theory: log of the quantity by theory.
        estimate: the same by sampling.
        alarm: two-sided false-alarm probability.
        detectable: the relative error that it must be able to see.
    """
    # In logs: theory may be e^(−1000), and an error is relative.
    z, critical, seen = compare(theory, estimate, alarm)
    # A cell agrees only if it could have disagreed: a wide standard error is no evidence.
    if not math.isfinite(estimate.log_value - theory) or not estimate.trusted:
        verdict = "not enough evidence"
    elif abs(z) > critical:
        verdict = "disagree"
    else:
        verdict = "agree" if seen <= detectable else "not enough evidence"
    return Cell(
        kernel=cell.kernel.name,
        quantity=cell.quantity,
        parameters=cell.parameters,
        route=estimate.method,
        theory=theory,
        estimate=estimate,
        z=z,
        critical=critical,
        detectable=seen,
        verdict=verdict,
        instruments=cell.instruments,
    )


def _check_family(
    family: tuple[Sequence[Question], Sequence[Sampling]],
    *,
    theory: Callable[[Question], float],
    sample: Callable[[Question, Sampling], Estimate] | None,
    alarm: float,
    detectable: float,
) -> list[Cell]:
    """Sample the cells of a family and judge each; the arguments are those of `check`."""
    cells, samplings = family
    drawn = map(sample, cells, samplings) if sample else sample_family(cells, samplings)
    return [
        judge(cell, theory(cell), estimate, alarm, detectable)
        for cell, estimate in zip(cells, drawn, strict=True)
    ]


def check(
    cells: Sequence[Question],
    *,
    theory: Callable[[Question], float] = Question.theory,
    sample: Callable[[Question, Sampling], Estimate] | None = None,
    seed: int = 0,
    false_alarm_rate: float = 1e-4,
    detectable: float = DETECTABLE,
    dtype: Any = None,
    whole_dtype: Any = None,
    most_scores: float = math.inf,
    executor: TaskExecutor | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> tuple[Cell, ...]:
    """Sample every cell and compare it with theory.

    Args:
        cells: the cells.
        theory: log of a cell's quantity; a test plants wrong ones here.
        sample: its estimate, likewise; None samples cells of a family together.
        seed: each cell draws from a seed of its own, derived from this one.
        false_alarm_rate: of the whole family of cells.
        detectable: the relative error that every cell must be able to see.
        dtype: sampling precision; None takes float64 where JAX has it enabled.
        whole_dtype: of whole rows, keys and features; None is `dtype`.
        most_scores: that are drawn for the rows of a cell.
        executor: where families are sampled; None is two threads of this process.
        progress: called with (cells done, cells in all).

    Raises:
        InputError: the executor lost its workers, or more scores would be drawn.
    """
    # One seed a cell, by its place: which cells are sampled together, or where, changes no bits.
    seeds = np.random.SeedSequence(seed).generate_state(len(cells)).tolist()
    alarm = false_alarm_rate / max(len(cells), 1)  # Bonferroni
    whole_dtype = whole_dtype or dtype
    samplings = [
        detecting(
            detectable,
            alarm,
            seed,
            dtype if cell.instruments[1] == "scalars" else whole_dtype,
            most_scores / (cell.length or ANY_LENGTH) if cell.draws_rows else math.inf,
        )
        for cell, seed in zip(cells, seeds, strict=True)
    ]
    groups = families(cells) if sample is None else [[i] for i in range(len(cells))]
    tasks = [([cells[i] for i in group], [samplings[i] for i in group]) for group in groups]
    settings = {"theory": theory, "sample": sample, "alarm": alarm, "detectable": detectable}
    work = functools.partial(_check_family, **settings)
    checked: dict[int, Cell] = {}
    if progress is not None:
        progress(0, len(cells))
    for index, value in run_all_tasks(work, tasks, executor, threads=_WORKERS):
        checked |= dict(zip(groups[index], value, strict=True))
        if progress is not None:
            progress(len(checked), len(cells))
    return tuple(checked[i] for i in range(len(cells)))


def check_exact(cells: Sequence[Question]) -> tuple[ExactCell, ...]:
    """Hold theories against each other, within the sum of their bounds."""
    compared = []
    for cell in cells:
        (first, error), (second, other) = cell.value(0), cell.value(1)
        agree = abs(first - second) <= error + other
        compared.append(
            ExactCell(
                kernel=cell.kernel.name,
                quantity=cell.quantity,
                parameters=cell.parameters,
                instruments=cell.instruments,
                values=(first, second),
                bound=error + other,
                verdict="agree" if agree else "disagree",
            )
        )
    return tuple(compared)


@names_parameters()
def verify(
    *rows: RowLike,
    length: One = None,
    seed: int = 0,
    false_alarm_rate: float = 1e-4,
    detectable: float = DETECTABLE,
    dtype: Any = None,
    executor: TaskExecutor | None = None,
    progress: Callable[[int, int], None] | None = None,
    **parameters: Unpack[OfRows[One]],
) -> CrossCheck:
    """Cross-check the instruments: over the reference grid, or for a row of your own.

    `verify()` and `verify("exp")` go over the reference grid. `verify(row, length=n)` takes every
    pair of instruments that applies to that row.

    Args:
        *rows: names of the kernels to check, none means all; or one `Row`; or one kernel with
            its parameters.
        length: n, for a row; without it only S of long rows is checked.
        seed: of the whole run.
        false_alarm_rate: family-wise, in (0, 1).
        detectable: the relative error that every cell must be able to see, in (0, 1). The time
            grows as 1/detectable²; long rows want 1e-2.
        dtype: sampling precision; None takes float64 where JAX has it enabled, but float32 for what
            the reference grid draws whole (rows, keys, features): it is three times as fast, and
            its rounding a hundred times less than the detectable error.
        executor: where cells are sampled, as in `sweep`; the same bits likewise. None is here.
        progress: called with (cells done, cells in all).
        **parameters: of a kernel given without a row.

    Returns:
        The verdict, every cell with its estimate, the false-alarm rate, the smallest relative error
        that every cell would have detected, and what does not apply to the row.

    Raises:
        InputError: an unknown kernel, a value outside its domain, nothing that can be compared, or
            a row of one's own of which more scores would be drawn than take half a minute.
    """
    false_alarm_rate, detectable = (
        check_number(name, value, "must be between 0 and 1", lambda x: 0 < x < 1)
        for name, value in (("false_alarm_rate", false_alarm_rate), ("detectable", detectable))
    )
    seed = check_seed(seed)
    check_progress(progress)
    check_executor(executor)
    if dtype is not None:
        float_type(dtype)
    pairs, given_row = _choose_cells(rows, length, parameters, detectable)
    # Of the grid, what float32 sees well is drawn in it: three times as fast.
    coarse = dtype is None and not given_row and detectable >= _SEEN_BY_FLOAT32
    judged = check(
        pairs.sampled,
        theory=pairs.theories.__getitem__ if given_row else Question.theory,
        seed=seed,
        false_alarm_rate=false_alarm_rate,
        detectable=detectable,
        dtype=dtype,
        whole_dtype=np.float32 if coarse else None,
        most_scores=MOST_SCORES if given_row else math.inf,
        executor=executor,
        progress=progress,
    )
    held = check_exact(pairs.exact)  # theories against each other: no chance in it, and no alarm
    agree = all(c.verdict == "agree" for c in (*judged, *held))
    smallest = max(cell.detectable for cell in judged)
    return CrossCheck(agree, judged, held, false_alarm_rate, smallest, seed, pairs.left_out)


def _choose_cells(
    given: tuple[RowLike, ...], length: Any, parameters: Mapping[str, Any], detectable: float
) -> tuple[Pairs, bool]:
    """Return the cells of a row of one's own, or of the reference grid, and which of both it is."""
    known = kernels.known()
    others = [k for k in given if isinstance(k, Row) or kernels.named(k) not in known]
    if others or parameters or length is not None:
        if len(given) != 1:
            fix = "give one row, or one kernel with its parameters"
            raise InputError("rows", ", ".join(map(str, given)) or None, fix)
        row = row_of(given[0], parameters)
        length = row.length if length is None else length
        return applicable_pairs(row, length, STDERR_SHARE * detectable), True
    names = tuple(kernels.named(k).name for k in given if not isinstance(k, Row))
    cells = reference_grid.reference_grid(names)
    wanted = {cell.kernel.name for cell in cells}
    exact = tuple(p for p in reference_grid.exact_cells() if p.kernel.name in wanted)
    return Pairs(cells, exact, (), {}), False
