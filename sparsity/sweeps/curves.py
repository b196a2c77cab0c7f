"""`sweep`: arguments checked, the work done, and its variables labelled as an xarray dataset.

No plotting here, and no formula either: every number is asked of a row (`variables`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np

from sparsity import quantities
from sparsity.checks import (
    check_budget,
    check_executor,
    check_flag,
    check_path,
    check_progress,
    check_seed,
    check_several,
)
from sparsity.errors import InputError
from sparsity.kernels import named as named_kernel
from sparsity.kernels.parameters import LENGTH, Several, names_parameters
from sparsity.quantities import Quantity
from sparsity.rows.row import OfLongRows, Row, RowLike, checked_steps
from sparsity.rows.score_laws import with_defaults
from sparsity.rows.tokens import TokenScores
from sparsity.sweeps.blocks import (
    Request,
    VariableGroup,
    compute_block,
    cut_into_blocks,
    variable_groups,
)
from sparsity.sweeps.grids import grids_of
from sparsity.sweeps.results import Results, StoredResults
from sparsity.sweeps.variables import Grid
from sparsity.tasks import TaskExecutor, run_all_tasks

if TYPE_CHECKING:
    import xarray


@names_parameters()
def sweep(
    kernel: RowLike,
    *,
    of: str | Quantity | Sequence[str | Quantity] | None = None,
    montecarlo: bool = False,
    seed: int = 0,
    rel_error: float = 1e-3,
    max_samples: float = 3e7,
    dtype: Any = None,
    executor: TaskExecutor | None = None,
    store: str | os.PathLike[str] | None = None,
    progress: Callable[[int, int], None] | None = None,
    **grids: Unpack[OfLongRows[Several]],
) -> xarray.Dataset:
    """Compute quantities of a row over the outer product of parameter grids.

    Args:
        kernel: a `Row`, a built-in kernel's name, a `Kernel` or a `RowMap`.
        of: a quantity or several, of rows of n tokens: these then have a `length`, and the exact
            law is the value; one without an exact law is sampled only. None is the limit S of long
            rows, and with a `length` also n_eff, which maps without a limit have alone.
        montecarlo: also estimate every cell by sampling.
        seed: the seed of the sampling; every cell draws from a stream of its own.
        rel_error: the relative standard error for the sampling to reach.
        max_samples: the most weights to draw in one cell, whether or not it is reached; a first
            batch is always drawn.
        dtype: the precision of the sampling; None takes float64 where JAX has it enabled.
        executor: where blocks of cells are computed: any `concurrent.futures.Executor`, such as
            `sparsity.tasks.process_pool(4)`, Dask's `Client.get_executor()` or `MPIPoolExecutor()`,
            or submitit's. None computes in this process.
        store: a folder for the results, a Zarr group, block by block as they come. What is there
            already is not computed again: an interrupted run goes on from there. xarray opens it at
            any time.
        progress: called with (blocks done, blocks in all).
        **grids: the kernel's parameters, each a number, a flat list or text such as "0.1:10:50:log"
            or "uniform,one-hot"; those of a row are its own where not given. `length` is that of
            rows of n tokens. `steps` and `scores` are those of a `Row`.

    Returns:
        A dataset with one dimension and coordinate per grid, and a scalar coordinate per single
        value. By default the variables are S, log_S and error_bound, and with `montecarlo` (of
        kernels without steps) S_mc, stderr_mc and how they were drawn. With the `length` of rows
        the limit is S_limit, log_S_limit …, and n_eff and S_rms stand beside it. With `of`, each
        quantity has its name, error_bound_NAME and, with `montecarlo`, NAME_mc, stderr_NAME_mc …
        Every variable carries a long_name and units.

    Raises:
        InputError: an unknown kernel, parameter or quantity, a missing one, a malformed grid, a
            value outside its domain, or more than 10⁶ cells; a store that cannot be written, or
            has the results of another sweep.
    """
    given: dict[str, Any] = {**grids}
    if isinstance(kernel, Row):
        if kernel.length is not None:
            given = {LENGTH.name: kernel.length} | given
            for name in TokenScores.defaults.keys() & given.keys():
                raise InputError(name, given[name], "each token has its own; leave it out")
        kernel, steps, given = kernel.kernel, kernel.steps, kernel.params | given
    else:
        steps = checked_steps(given.pop("steps", ()), given.pop("scores", None))
    given = with_defaults(given, steps)
    seed, montecarlo = check_seed(seed), check_flag("montecarlo", montecarlo)
    budget = check_budget(rel_error, max_samples)
    check_progress(progress)
    check_executor(executor)
    sampling = None
    if montecarlo:  # asked only here, as it loads JAX; a bad setting is refused before the store
        from sparsity.sampling import Sampling

        sampling = Sampling(budget["rel_error"], budget["max_samples"], seed, dtype)
        # By name, as a store shows it, and other processes have another default.
        sampling = replace(sampling, dtype=sampling.real.name)
    record = named_kernel(kernel)
    cells = Grid(record, steps, grids_of(record, given))
    # By default the limit S, and n_eff of rows of n.
    asked = (quantities.n_eff,) if cells.of_rows else ()
    if of is not None:
        single = isinstance(of, (str, Quantity))
        names = (of,) if single else check_several("of", of, "give names of quantities")
        if not names:
            raise InputError("of", None, "give at least one quantity")
        asked = tuple(map(quantities.named, names))
    request = Request(cells, asked, of is None, sampling)
    groups = variable_groups(request)
    if store is None:
        results = Results(request, groups)
    else:
        folder = check_path("store", store, "give the name of a folder")
        results = StoredResults(request, groups, folder)
    _compute(request, groups, results, executor, progress)
    # What was given as one value, or by default, is a scalar coordinate. Up to here it is a
    # dimension of one, so that a store is the same whether one value was typed or a list of one.
    data = results.dataset()
    data = data.squeeze([name for name in data.dims if not _is_grid(given.get(str(name)))])
    # Where every token of the row has its own β and γ, no one value is theirs.
    laws = any(isinstance(step, TokenScores) for step in steps)
    return data.drop_vars(TokenScores.defaults) if laws else data


def _compute(
    request: Request,
    groups: Sequence[VariableGroup],
    results: Results,
    executor: TaskExecutor | None,
    progress: Callable[[int, int], None] | None,
) -> None:
    """Compute every block that `results` does not have, a task each.

    Raises:
        InputError: the executor lost its workers.
        Exception: what the first block that failed has raised.
    """
    blocks = [x for i, group in enumerate(groups) for x in cut_into_blocks(i, group, request.cells)]
    todo = [block for block in blocks if block.number not in results.done[block.group]]
    tasks = [(block.group, request.of_block(block)) for block in todo]
    done = len(blocks) - len(todo)
    for index, computed in run_all_tasks(compute_block, tasks, executor, progress, before=done):
        results.put(todo[index], *computed)


def _is_grid(given: Any) -> bool:
    """Return whether several values were given, or a list of one."""
    if isinstance(given, str):
        return ":" in given or "," in given
    return np.ndim(given) > 0
