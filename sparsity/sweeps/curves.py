"""Parameter grids to labelled data: `sweep` to an xarray dataset, `save` to a netCDF file.

No plotting here, and no formula either: S comes from `evaluate`, rows from `finite_length`.
"""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sparsity import kernels
from sparsity.errors import InputError
from sparsity.finite.finite_length import n_eff
from sparsity.kernels import Kernel, Law
from sparsity.kernels.parameters import ALL as PARAMETERS
from sparsity.kernels.parameters import LENGTH, QUERY, Parameter
from sparsity.output import netcdf, replacing
from sparsity.sweeps.grids import MOST, parse_grid
from sparsity.theory.evaluation import evaluate

if TYPE_CHECKING:
    import xarray

    from sparsity.results import Estimate

__all__ = ["cell_seed", "parse_grid", "save", "sweep"]

Cell = dict[str, Any]
Grids = dict[str, np.ndarray]

_LONG_NAMES = {
    "S": "l1/l2 sparsity S = E|a| / √(E a²), the limit of long rows",
    "log_S": "natural logarithm of S",
    "error_bound": "bound on the absolute error of log S",
    "n_eff": "effective number of attended tokens E[(Σ|a|)²/Σa²] of a row of n",
    "S_rms": "sparsity √(n_eff/n) of a row of n",
    "error_bound_n_eff": "bound on the relative error of n_eff",
    "S_mc": "Monte Carlo estimate of S",
    "stderr_mc": "standard error of S_mc",
    "samples_mc": "draws behind S_mc",
    "seed_mc": "seed of S_mc",
    "trusted_mc": "whether the error bar of S_mc may be believed",
    "n_eff_mc": "Monte Carlo estimate of n_eff from whole rows",
    "stderr_n_eff_mc": "standard error of n_eff_mc",
    "samples_n_eff_mc": "rows behind n_eff_mc",
    "seed_n_eff_mc": "seed of n_eff_mc",
    "trusted_n_eff_mc": "whether the error bar of n_eff_mc may be believed",
}


def cell_seed(seed: int, *labels: Any) -> int:
    """A seed of its own for one cell: independent streams, the same for the same labels."""
    words = [int.from_bytes(str(label).encode(), "little") for label in labels]
    return int(np.random.SeedSequence([seed, *words]).generate_state(1)[0])


def _grid(parameter: Parameter, given: Any) -> np.ndarray:
    """The values of one dimension, from text, a sequence or a scalar."""
    if parameter is QUERY:
        names = given.split(",") if isinstance(given, str) else list(given)
        return np.array([parameter.check(str(name).strip()) for name in names])
    if isinstance(given, str):
        given = parse_grid(given, parameter.name, whole=parameter.integer)
    values = np.atleast_1d(parameter.check(given))
    if values.ndim > 1 or not values.size:
        raise InputError(parameter.name, given, "give one value or a flat, nonempty list")
    return values.astype(np.int64) if parameter.integer else values


def _grids(kernel: Kernel, given: Cell) -> Grids:
    """The dimensions: the kernel's parameters in order; for score kernels also a given `length`."""
    own = {p.name: p for p in kernel.parameters}
    if kernel.law is Law.SCORE and "length" in given:
        own["length"] = LENGTH
    for name, value in given.items():
        if name not in own:
            takes = ", ".join(own)
            raise InputError(name, value, f"{kernel.name} does not take it; it takes {takes}")
    grids: Grids = {}
    for name, p in own.items():
        value = given.get(name, p.default)
        if value is None:
            raise InputError(name, None, f"{kernel.name} needs {name} ({p.meaning})")
        grids[name] = _grid(p, value)
    if math.prod(map(len, grids.values())) > MOST:
        sizes = " × ".join(f"{name} {len(grid)}" for name, grid in grids.items())
        raise InputError("grids", sizes, f"at most {MOST} cells in all; use fewer points")
    return grids


def _cells(grids: Grids) -> list[Cell]:
    """Every cell of the outer product, in order, as plain Python values."""
    columns = [grid.tolist() for grid in grids.values()]
    return [dict(zip(grids, cell, strict=True)) for cell in itertools.product(*columns)]


def _theory(kernel: Kernel, grids: Grids) -> tuple[Cell, str]:
    """S, log S and the error bound on the outer product of the grids, and the route that ran."""
    names = [name for name in grids if name != QUERY.name]
    mesh: Cell = dict(zip(names, np.ix_(*(grids[name] for name in names)), strict=True))
    fields = ("S", "log_S", "error_bound")
    if QUERY.name not in grids:
        found = evaluate(kernel, **mesh)
        return {name: getattr(found, name) for name in fields}, found.method
    each = [evaluate(kernel, query=str(query), **mesh) for query in grids[QUERY.name]]
    axis = list(grids).index(QUERY.name)
    stacked = {name: np.stack([getattr(e, name) for e in each], axis) for name in fields}
    return stacked, each[0].method


def _rows(kernel: Kernel, limit: Grids, lengths: np.ndarray) -> Cell:
    """n_eff, S_rms and the error bound of rows, [beta, gamma, length]."""
    laws = [n_eff(kernel, lengths, **cell) for cell in _cells(limit)]
    shape = [*map(len, limit.values()), len(lengths)]
    fields = {"n_eff": "n_eff", "S_rms": "S_rms", "error_bound_n_eff": "error_bound"}
    return {
        name: np.reshape([getattr(law, field) for law in laws], shape)
        for name, field in fields.items()
    }


def _sampled(grids: Grids, run: Callable[[Cell], Estimate], tag: str) -> tuple[Cell, str]:
    """One estimate for each cell of the outer product, and the estimator that ran."""
    estimates = [run(cell) for cell in _cells(grids)]
    columns = {
        f"{tag or 'S_'}mc": "S",
        f"stderr_{tag}mc": "stderr",
        f"samples_{tag}mc": "samples",
        f"seed_{tag}mc": "seed",
        f"trusted_{tag}mc": "trusted",
    }
    shape = [len(grid) for grid in grids.values()]
    found = {
        name: np.reshape([getattr(e, field) for e in estimates], shape)
        for name, field in columns.items()
    }
    return found, estimates[0].method


def _montecarlo(
    kernel: Kernel, limit: Grids, grids: Grids, seed: int, rel_error: float, max_samples: float
) -> tuple[Cell, dict[str, str]]:
    """Estimates of S on the grids of the limit and, where there is a length, of n_eff of rows."""
    from sparsity.montecarlo import Sampling, draw, estimators

    def settings(cell: Cell) -> Cell:
        own = cell_seed(seed, kernel.name, *cell.items())
        return {"rel_error": rel_error, "seed": own}

    def scalar(cell: Cell) -> Estimate:
        return draw(kernel, Sampling(max_samples=max_samples, **settings(cell)), **cell)

    def row(cell: Cell) -> Estimate:
        most = max(1.0, max_samples / cell["length"])
        sampling = Sampling(max_samples=most, **settings(cell))
        law = (cell["beta"], cell["gamma"], cell["length"])
        return estimators.rows(kernel, *law, sampling).n_eff

    found, method = _sampled(limit, scalar, "")
    methods = {"method_mc": method}
    if len(grids) > len(limit):
        of_rows, methods["method_n_eff_mc"] = _sampled(grids, row, "n_eff_")
        found |= of_rows
    return found, methods


def sweep(
    kernel: str | Kernel,
    *,
    montecarlo: bool = False,
    seed: int = 0,
    rel_error: float = 1e-3,
    max_samples: float = 3e7,
    **grids: Any,
) -> xarray.Dataset:
    """S = E|a| / √(E a²) over the outer product of parameter grids.

    Args:
        kernel: a built-in kernel's name, or a `Kernel`.
        montecarlo: also estimate every cell by sampling.
        seed: of the sampling; every cell draws from a stream of its own.
        rel_error: relative standard error for the sampling to reach.
        max_samples: the most weights to draw in one cell, whether or not it is reached.
        **grids: the kernel's parameters, each a number, a flat list or text such as "0.1:10:50:log"
            or "uniform,one-hot". A score kernel also takes `length`, for the exact law of rows.

    Returns:
        A dataset with one dimension and coordinate per parameter and the variables S, log_S and
        error_bound; with `length`, n_eff and S_rms; with `montecarlo`, S_mc, stderr_mc and how
        they were drawn. Every variable carries a long_name and units.

    Raises:
        InputError: an unknown kernel or parameter, a missing one, a malformed grid, a value outside
            its domain, or more than 10⁶ cells.
    """
    import xarray

    kernel = kernels.named(kernel)
    every = _grids(kernel, grids)
    limit = {p.name: every[p.name] for p in kernel.parameters}
    variables, method = _theory(kernel, limit)
    attributes = {
        "title": f"l1/l2 sparsity of {kernel.title} attention",
        "kernel": kernel.name,
        "weight": str(kernel.weight),
        "random": kernel.law.value,
        "source": kernel.source,
        "method": method,
    }
    if len(every) > len(limit):
        variables |= _rows(kernel, limit, every["length"])
    if montecarlo:
        settings = seed, rel_error, max_samples
        sampled, methods = _montecarlo(kernel, limit, every, *settings)
        variables |= sampled
        attributes |= methods
    dims = {len(every): tuple(every), len(limit): tuple(limit)}
    dataset = xarray.Dataset(
        {name: (dims[np.ndim(value)], value) for name, value in variables.items()},
        coords=dict(every),
        attrs=attributes,
    )
    for name, variable in dataset.data_vars.items():
        variable.attrs = {"long_name": _LONG_NAMES[str(name)], "units": "1"}
    for p in PARAMETERS:
        if p.name in every:
            dataset[p.name].attrs = {"long_name": p.meaning, "units": "1"}
    return dataset


def save(dataset: xarray.Dataset, path: str | os.PathLike[str]) -> Path:
    """Write a dataset as netCDF, whole or not at all.

    Args:
        dataset: as `sweep` returns it.
        path: the file; an existing one is replaced in one step.

    Returns:
        The path.

    Raises:
        InputError: the path cannot be written, or does not end in .nc; nothing is left behind.
    """
    with replacing(netcdf(path)) as part:
        dataset.to_netcdf(part, engine="h5netcdf")
    return Path(path)
