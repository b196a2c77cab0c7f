"""The chart of a dataset that `sweep` made: nothing is computed, only picked out.

The names of variables say what there is: NAME is a law, NAME_mc with stderr_NAME_mc its samples,
S_limit the limit beside it.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from sparsity import kernels, quantities
from sparsity.errors import InputError
from sparsity.kernels.typesetting import typeset_name, typeset_weight
from sparsity.plots.axes.controls import CONTROLS
from sparsity.plots.curves import Curve, floor_of_rows
from sparsity.plots.drawing import Chart, Words, y_axis_label
from sparsity.plots.requests import MOST_CURVES, short, symbol
from sparsity.plots.scales import is_log
from sparsity.series import Series

if TYPE_CHECKING:
    import xarray

_COLUMNS = ("estimate", "stderr", "samples", "seed")


def _variable(data: xarray.Dataset, of: Any) -> str:
    """Return the name of the variable to draw; by default n_eff, else S, else the first one.

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
    """Return the limit in the dataset of a variable of rows of n; None where there is none."""
    if name not in ("n_eff", "S_rms", "S") or "S_limit" not in data:
        return None
    S = data["S_limit"]
    return data["length"] * S**2 if name == "n_eff" else S


def chart_of_dataset(
    data: xarray.Dataset, x: str, of: Any, limit: bool, parameters: Mapping[str, Any]
) -> Chart:
    """Return a chart with one curve for each combination of the other dimensions.

    Args:
        data: the dataset, as `sweep` returns it.
        x: the name of the dimension along the x-axis.
        of: the name of the variable, or a quantity; None for the default.
        limit: whether to draw the limit of long rows where the dataset has it.
        parameters: what is no option of a chart, by name: a dataset takes none.

    Raises:
        InputError: no such dimension or variable, too many curves, or a dataset of `measure`.
    """
    if "head" in data.dims:  # its values are no laws, as which they would be drawn
        fix = 'is of measured rows; xarray draws them: data["n_eff"].sel(layer=0, head=1).plot()'
        raise InputError("what", "a dataset", fix)
    # A dimension of words, such as the queries, has no places along an axis.
    numbers = [str(dim) for dim in data.dims if data[dim].dtype.kind in "iuf"]
    if not isinstance(x, str) or x not in numbers:
        raise InputError("x", x, f"the dataset has the dimensions {', '.join(numbers)}")
    for key, value in parameters.items():
        fix = f"choose from a dataset by its own data.sel({key}=…), and draw what is left"
        raise InputError(key, value, fix)
    name, data = _variable(data, of), data.sortby(x)
    others = [str(dim) for dim in data[name].dims if dim != x]
    cells = list(itertools.product(*(data[dim].values.tolist() for dim in others)))
    if len(cells) > MOST_CURVES:
        fix = f"at most {MOST_CURVES} in one chart; choose fewer values of {', '.join(others)}"
        raise InputError("curves", len(cells), fix)
    kernel = str(data.attrs.get("kernel", "sweep"))
    differ = [dim for dim in others if data.sizes[dim] > 1]
    curves = []
    for cell in cells:
        key = dict(zip(others, cell, strict=True))
        label = ", ".join(f"{symbol(n)} = {short(key[n])}" for n in differ) or kernel
        curves.append(_curve(data.sel(key), name, x, label, limit, key))
    control = CONTROLS.get(x)
    # Under the title: dimensions with one value left, and what `sweep` made scalar coordinates.
    held = {n: cells[0][others.index(n)] for n in others if n not in differ}
    held |= {str(n): data[n].item() for n in data.coords if data[n].ndim == 0}
    words = _words(data, name, x, kernel, [f"{symbol(n)} = {short(v)}" for n, v in held.items()])
    log_x = is_log(np.asarray(data[x].values, float), control, x == "length")
    return Chart(tuple(curves), words, log_x, control, name)


def _words(data: xarray.Dataset, name: str, x: str, kernel: str, held: list[str]) -> Words:
    """Return the texts of the chart; `held` is what all its curves hold fixed."""
    along = str(data[x].attrs.get("long_name", x))
    try:
        y = y_axis_label(quantities.named(name))
    except InputError:
        y = y_axis_label(quantities.S) if name.startswith("S") else name
    weight = str(data.attrs.get("weight", ""))
    with contextlib.suppress(InputError):
        known = kernels.named(kernel)
        kernel, weight = typeset_name(known), typeset_weight(known)
    said = ", ".join(([f"a = {weight}"] if weight else []) + held)
    drawn = " ".join(y.split("(")[0].split())
    title = f"{drawn} of {kernel} against {along.split(',')[0]}"
    return Words(title[0].upper() + title[1:], said, along, y)


def _curve(
    here: xarray.Dataset, name: str, x: str, label: str, limit: bool, key: dict[str, Any]
) -> Curve:
    """Return one curve of a sweep, with its sampled points and its limit."""
    at, value = (np.asarray(here[column].values, float) for column in (x, name))
    line = Series.of_values(label, at, value, **key)
    if f"{name}_mc" in here:
        # As `sweeps.variables.Grid.sampled` names them: of a limit alone the columns have no name.
        tag = "_mc" if "stderr_mc" in here and name == "S" else f"_{name}_mc"
        names = (f"{name}_mc", *(f"{column}{tag}" for column in _COLUMNS[1:]))
        columns = {c: np.asarray(here[n].values) for c, n in zip(_COLUMNS, names, strict=True)}
        line = replace(line, **columns, method=str(here.attrs.get(f"method{tag}", "")))
        if f"trusted{tag}" in here:
            doubted = at[~np.asarray(here[f"trusted{tag}"].values, bool)]
            line = replace(line, doubts=dict.fromkeys(doubted.tolist(), "not trusted"))
    with_length = "length" in here.coords
    of_long = _limit(here, name) if limit else None
    # Of long rows the value is the limit: it is drawn as one, and the points belong to it.
    if (not with_length and name == "S") or name == "S_limit":
        line = replace(line, theory=value * np.nan, log=value * np.nan)
        of_long = here[name]
    long = None
    if of_long is not None:
        values = np.asarray(of_long.values, float) + 0 * at
        long = Series.of_values(f"limit, {label}", at, values)
    floor = None
    if with_length and name in ("n_eff", "S", "S_rms"):
        n = None if x == "length" else int(here["length"].item())
        quantity = quantities.n_eff if name == "n_eff" else quantities.S
        floor = floor_of_rows(quantity, x, at, n)
    return Curve(line, long, floor, key)
