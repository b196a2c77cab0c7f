"""The curves of a dataset that `sweep` or `measure` made."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from sparsity import quantities
from sparsity.arguments import as_float64
from sparsity.axes.controls import CONTROLS
from sparsity.errors import InputError
from sparsity.figures.series import Series
from sparsity.plots.asked import MOST_CURVES, short, symbol, values_of
from sparsity.plots.chart import Chart, ordinate
from sparsity.plots.curves import Drawn, floor
from sparsity.plots.drawing import Words, is_log

if TYPE_CHECKING:
    import xarray

_COLUMNS = ("estimate", "stderr", "samples", "seed")


def _variable(data: xarray.Dataset, of: Any) -> str:
    """The variable to draw.

    Raises:
        InputError: there is none of that name.
    """
    offered = [str(n) for n in data.data_vars if not str(n).startswith(("error_bound", "stderr"))]
    name = next((n for n in ("n_eff", "S", *offered) if n in data), "") if of is None else of
    name = getattr(name, "name", name)
    if name not in data:
        raise InputError("of", name, f"the dataset has {', '.join(offered)}")
    return str(name)


def _limit(data: xarray.Dataset, name: str) -> Any:
    """The limit beside a variable of rows of n; None where there is none."""
    if name not in ("n_eff", "S_rms", "S") or "S_limit" not in data:
        return None
    S = data["S_limit"]
    return data["length"] * S**2 if name == "n_eff" else S


def _is_measured(data: xarray.Dataset) -> bool:
    """Whether a dataset holds rows of real attention."""
    return "row" in data.dims and "head" in data.dims


def _laws_beside(data: xarray.Dataset, name: str) -> tuple[Any, Any]:
    """The exact law and the limit that were predicted for a measured variable; None without."""
    tail = next((end for end in ("_without_sink_key", "_without_sinks") if name.endswith(end)), "")
    stem = name.removesuffix(tail)
    exact, limit = (data.get(f"S_{law}{tail}") for law in ("exact", "limit"))
    if stem not in ("S", "n_eff") or exact is None or limit is None:
        return None, None
    n = data["length"] - 1 if tail == "_without_sink_key" else data[f"length{tail}"]
    return (exact, limit) if stem == "S" else (n * exact**2, n * limit**2)


def _places(grid: np.ndarray, name: str, given: Any) -> list[int]:
    """Where the values of a dimension are on its grid, to rounding.

    Raises:
        InputError: one is not there.
    """
    asked = values_of(name, given, whole=False)
    if grid.dtype.kind in "iuf":
        wanted = as_float64(asked, name, "give numbers of the dataset's grid")
        near = np.isclose(grid, np.reshape(wanted, (-1, 1)), rtol=1e-9, atol=0)
    else:
        near = np.array([[value == one for one in grid.tolist()] for value in asked])
    for value, on in zip(asked, near, strict=True):
        if not on.any():
            shown = ", ".join(short(each) for each in grid.tolist()[:8])
            more = ", …" if len(grid) > 8 else ""
            raise InputError(name, value, f"the dataset has {shown}{more}")
    return near.argmax(axis=1).tolist()


def of_dataset(
    data: xarray.Dataset, x: str, of: Any, limit: bool, parameters: Mapping[str, Any]
) -> Chart:
    """One curve for each combination of the other dimensions.

    Args:
        data: as `sweep` returns it.
        x: the dimension along the abscissa.
        of: the variable, or a quantity.
        limit: whether to draw the limit of long rows where the dataset has it.
        parameters: values of other dimensions to draw, by name; all where not given.

    Raises:
        InputError: no such dimension or variable, or too many curves.
    """
    numbers = [str(dim) for dim in data.dims if data[dim].dtype.kind in "iuf"]
    if not isinstance(x, str) or x not in numbers:
        fix = f"the dataset has the dimensions {', '.join(numbers)}"
        raise InputError("x", x, fix)
    for key, value in parameters.items():
        if key not in data.dims or key == x:
            raise InputError(key, value, "is not another dimension of the dataset")
        data = data.isel({key: _places(data[key].values, key, value)})
    name = _variable(data, of)
    data = data.sortby(x)
    others = [str(dim) for dim in data[name].dims if dim != x]
    cells = list(itertools.product(*(data[dim].values.tolist() for dim in others)))
    if len(cells) > MOST_CURVES:
        fix = f"at most {MOST_CURVES} in one chart; give fewer values of {', '.join(others)}"
        raise InputError("curves", len(cells), fix)
    measured = _is_measured(data)
    kernel = str(data.attrs.get("kernel", "head" if measured else "sweep"))
    differ = [dim for dim in others if data.sizes[dim] > 1]
    drawn = []
    for cell in cells:
        key = dict(zip(others, cell, strict=True))
        label = ", ".join(f"{symbol(n)} = {short(key[n])}" for n in differ) or kernel
        # Each row has its own limit: of several heads they would be a thicket.
        curve = (
            _measured(data, name, x, label, limit and len(cells) == 1, key) if measured else None
        )
        drawn.append(curve or _one(data.sel(key), name, x, label, limit, key))
    values, control = np.asarray(data[x].values, float), CONTROLS.get(x)
    shown = [f"{symbol(n)} = {short(cells[0][others.index(n)])}" for n in others if n not in differ]
    one = [str(n) for n in data.coords if data[n].ndim == 0]
    shown += [f"{symbol(n)} = {short(data[n].item())}" for n in one]
    words = _words(data, name, x, kernel, shown)
    return Chart(tuple(drawn), words, is_log(values, control, x == "length"), control, name)


def _words(data: xarray.Dataset, name: str, x: str, kernel: str, shown: list[str]) -> Words:
    along = str(data[x].attrs.get("long_name", x))
    try:
        y = ordinate(quantities.named(name))
    except InputError:
        y = ordinate(quantities.S) if name.startswith("S") else name
    weight = str(data.attrs.get("weight", ""))
    said = ", ".join(([f"a = {weight}"] if 0 < len(weight) < 48 else []) + shown)
    drawn = " ".join(y.split("(")[0].split())
    subject = f"measured {drawn}" if _is_measured(data) else f"{drawn} of {kernel}"
    title = f"{subject} against {along.split(',')[0]}"
    return Words(title[0].upper() + title[1:], said, along, y)


def _measured(
    data: xarray.Dataset, name: str, x: str, label: str, limit: bool, key: dict[str, Any]
) -> Drawn:
    """The measured values of one head or so, with the laws that were predicted for its rows."""
    here = data.sel(key)
    at = np.asarray(here[x].values, float)
    values = np.asarray(here[name].values, float)
    nothing, none = np.full(at.shape, np.nan), np.zeros(at.shape, int)
    exact, long = (
        None if law is None else np.asarray(law.values, float) for law in _laws_beside(here, name)
    )
    theory = nothing if exact is None else exact
    with np.errstate(divide="ignore", invalid="ignore"):
        of_long = None if long is None else Series.line(f"limit, {label}", at, np.log(long))
        logs = np.log(theory)
    rows = Series(label, at, theory, logs, values, nothing, none, none - 1, "measured", key)
    return Drawn(rows, of_long if limit else None, None, key, measured=True)


def _one(
    here: xarray.Dataset, name: str, x: str, label: str, limit: bool, key: dict[str, Any]
) -> Drawn:
    """One curve of the dataset."""
    at = np.asarray(here[x].values, float)
    value = np.asarray(here[name].values, float)
    with np.errstate(divide="ignore", invalid="ignore"):
        line = replace(Series.line(label, at, np.log(value), **key), theory=value)
    if f"{name}_mc" in here:
        tag = "_mc" if "stderr_mc" in here and name == "S" else f"_{name}_mc"
        names = (f"{name}_mc", *(f"{each}{tag}" for each in _COLUMNS[1:]))
        columns = {c: np.asarray(here[n].values) for c, n in zip(_COLUMNS, names, strict=True)}
        line = replace(line, **columns, method=str(here.attrs.get(f"method{tag}", "")))
        if f"trusted{tag}" in here:
            doubted = at[~np.asarray(here[f"trusted{tag}"].values, bool)]
            line = replace(line, doubts=dict.fromkeys(doubted.tolist(), "not trusted"))
    long_rows = ("length" not in here.coords and name == "S") or name == "S_limit"
    of_long = here[name] if long_rows else _limit(here, name) if limit else None
    long = None
    if long_rows:
        line = replace(line, theory=value * np.nan, log=value * np.nan)
    if of_long is not None:
        values = np.asarray(of_long.values, float) + 0 * at
        long = replace(Series.line(f"limit, {label}", at, np.log(values)), theory=values)
    rows = name == "n_eff" or (name in ("S", "S_rms") and "length" in here.coords)
    least = None
    if rows and "length" in here.coords:
        n = None if x == "length" else int(here["length"].item())
        least = floor(quantities.n_eff if name == "n_eff" else quantities.S, x, at, n)
    return Drawn(line, long, least, key)
