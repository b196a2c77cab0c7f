"""`sweep`: arguments checked, the work done, and its variables labelled as an xarray dataset.

No plotting here, and no formula either: every number is asked of a row (`variables`).
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from sparsity import quantities
from sparsity.arguments import check_budget, check_seed, flag, float_type, path, several
from sparsity.arguments import executor as check_executor
from sparsity.arguments import progress as check_progress
from sparsity.errors import InputError
from sparsity.kernels import RowMap
from sparsity.kernels import named as named_kernel
from sparsity.kernels.parameters import ALL as PARAMETERS
from sparsity.kernels.parameters import OF_MAPS, names_parameters
from sparsity.quantities import Quantity
from sparsity.rows.row import Row, RowLike, checked_steps, random_in
from sparsity.sweeps.blocks import MemoryStore
from sparsity.sweeps.grids import grids_of
from sparsity.sweeps.plan import build_request, variable_groups
from sparsity.sweeps.saving import save as save
from sparsity.sweeps.store import Store
from sparsity.sweeps.variables import Grid, Variables, variable
from sparsity.sweeps.work import run
from sparsity.tasks import TaskExecutor, has_float64

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
    **grids: Any,
) -> xarray.Dataset:
    """Compute quantities of a row over the outer product of parameter grids.

    Args:
        kernel: a `Row`, a built-in kernel's name, a `Kernel` or a `RowMap`.
        of: a quantity or several, of rows of n tokens: these then have a `length`, and the exact
            law is the value; one without an exact law is sampled only. None is the limit S of long
            rows, and with a `length` also n_eff.
        montecarlo: also estimate every cell by sampling.
        seed: the seed of the sampling; every cell draws from a stream of its own.
        rel_error: the relative standard error for the sampling to reach.
        max_samples: the most weights to draw in one cell, whether or not it is reached.
        dtype: the precision of the sampling; None takes float64 where JAX has it enabled.
        executor: where blocks of cells are computed: any `concurrent.futures.Executor`, such as
            `sparsity.tasks.Workers(4)`, Dask's `Client.get_executor()` or `MPIPoolExecutor()`, or
            submitit's; the same bits on all of them, on processors of one kind. None computes in
            this process.
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
        Every variable carries a long_name and units. With a `store` the dataset is opened lazily
        from there.

    Raises:
        InputError: an unknown kernel, parameter or quantity, a missing one, a malformed grid, a
            value outside its domain, or more than 10⁶ cells; a store that cannot be written, or
            has the results of another sweep.
    """
    if isinstance(kernel, Row):
        kernel, steps, grids = kernel.kernel, kernel.steps, kernel.params | grids
    else:
        steps = checked_steps(grids.pop("steps", ()), grids.pop("scores", None))
        for step in steps:  # as for `Row`: a sample of scores, or RoPE, brings a β and γ
            grids = getattr(step, "own", {}) | grids
    seed, montecarlo = check_seed(seed), flag("montecarlo", montecarlo)
    budget = check_budget(rel_error, max_samples)
    check_progress(progress)
    check_executor(executor)
    if store is not None:
        store = path("store", store, "give the name of a folder")
    if montecarlo:  # its checks refuse a bad setting before a store is begun
        from sparsity.sampling import Sampling

        Sampling(rel_error, max_samples, seed, dtype)
    record = named_kernel(kernel)
    dtype = None if dtype is None else float_type(dtype)
    cells = Grid(record, steps, grids_of(record, grids))
    asked = None
    if of is not None:
        single = isinstance(of, (str, Quantity))
        names = (of,) if single else several("of", of, "give names of quantities")
        if not names:
            raise InputError("of", None, "give at least one quantity")
        asked = tuple(map(quantities.named, names))
    request = build_request(
        cells,
        asked,
        montecarlo=montecarlo,
        seed=seed,
        rel_error=budget["rel_error"],
        most=budget["max_samples"],
        dtype=dtype.name if montecarlo and dtype is not None else None,
        float64=montecarlo and has_float64(),  # asked only where sampled: it loads JAX
    )
    groups, label = variable_groups(request), functools.partial(labelled, cells)
    if store is None:
        target = MemoryStore(request, groups, label)
    else:
        target = Store(store, request, groups, label)
    run(request, target, executor, progress)
    # What was given as one value, or by default, is a scalar coordinate. Up to here it is a
    # dimension of one, so that a store is the same whether one value was typed or a list of one.
    data = target.dataset()
    return data.squeeze([name for name in data.dims if not _is_grid(grids.get(str(name)))])


def _is_grid(given: Any) -> bool:
    """Return whether several values were given, or a list of one."""
    if isinstance(given, str):
        return ":" in given or "," in given
    return np.ndim(given) > 0


def labelled(cells: Grid, variables: Variables, methods: dict[str, str]) -> xarray.Dataset:
    """Return the dataset of variables, with coordinates and attributes.

    Args:
        cells: the row and its grids.
        variables: (dimensions, values, attributes) by name; none gives coordinates alone.
        methods: the method of each group of variables, by the name of its attribute.
    """
    import xarray

    kernel = cells.kernel
    attributes = {
        "title": f"l1/l2 sparsity of {kernel.title} attention",
        "kernel": kernel.name,
        "weight": kernel.formula if isinstance(kernel, RowMap) else str(kernel.weight),
        "random": random_in(kernel, cells.steps),
        "source": kernel.source,
        "method": "",  # of a sweep without theory; attributes keep this order
        **methods,
    }
    if cells.steps:
        attributes["steps"] = ", ".join(map(repr, cells.steps))
    words = {p.name: p.meaning for p in (*PARAMETERS, *OF_MAPS)}
    grids = {name: variable(name, grid, words[name]) for name, grid in cells.grids.items()}
    return xarray.Dataset(variables, coords=grids, attrs=attributes)
