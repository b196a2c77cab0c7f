"""What `plot` is asked for, as the start of a page to send."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from sparsity.errors import InputError
from sparsity.plots.axes.controls import CONTROLS
from sparsity.plots.browser import PARAMETERS, QUERIES, Pin, Start
from sparsity.plots.requests import CurveRequest, read_curves


def page_of_request(
    what: Sequence[Any], x: str, y: str, given: Mapping[str, Any], title: str | None = None
) -> Start:
    """Return the page of the curves of a chart: the first of each kernel follows the sliders.

    Curves that differ from these in a value beside that of the x-axis stand as they are.

    Args:
        what: kernels.
        x: the parameter along the x-axis.
        y: what is drawn.
        given: values of parameters by name, as `plot` takes them.
        title: the heading; None is a general one.

    Raises:
        InputError: an unknown name, a value outside its domain, or a row that a page does not have.
    """
    curves, along = read_curves(list(what), x, given)
    if x not in PARAMETERS:
        raise InputError("x", x, f"a page has {', '.join(PARAMETERS)}")
    shown: list[Any] = []
    pins: list[Pin] = []
    values: dict[str, float] = {}
    query, grows = QUERIES[0], False
    for curve in curves:
        kernel, (own, of_query, of_grows) = curve.row.kernel, _described(curve, x)
        if not shown:
            query, grows = of_query, of_grows
        same = all(values.get(name, value) == value for name, value in own.items())
        if kernel not in shown and same and (query, grows) == (of_query, of_grows):
            shown.append(kernel)
            values |= own
        else:
            pins.append(Pin(kernel, own, of_query, of_grows))
    ends: dict[str, tuple[float, float]] = {}
    if x in given:
        # A row of one token is none to focus in; the page begins at two.
        low = max(float(along.min()), 2.0 if x == "length" else -np.inf)
        values[x] = max(float(along[len(along) // 2]), low)
        ends = {x: (low, float(along.max()))}
    else:
        values[x] = CONTROLS[x].start
    return Start(shown, x, y, values, query, grows, pins, ends, title)


def _described(curve: CurveRequest, x: str) -> tuple[dict[str, float], str, bool]:
    """Return what a curve holds fixed, its query, and whether its spread grows like √d."""
    params: dict[str, Any] = dict(curve.row.params)
    query, grows = params.pop("query", QUERIES[0]), False
    if curve.spread is not None:
        params["gamma"], at_four = curve.spread(np.array([1.0, 4.0])).tolist()
        grows = at_four > 1.5 * params["gamma"]
    if curve.length is not None:
        params["length"] = curve.length
    own = {name: float(value) for name, value in params.items() if name != x}
    return own, query, grows
