"""Pages to send: one file that computes its curves itself, without Python and without a network.

    panel (`explore(…).save`) ─┐
    cli (`plot --out x.html`) ─┼─> Start ──> html: setting (JSON) · log f² (ports) · front/*.js
    report (`reproduce`) ──────┘

`front/law.js` has closed forms and the law of n_eff, `curves.js` the curves of a state, `page.js`
what is seen and changed; the chart is the panel's. A test holds the numbers of a page against the
package.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import resources
from pathlib import Path
from typing import Any

import jinja2
import numpy as np

from sparsity import kernels
from sparsity._version import __version__
from sparsity.checks import check_path
from sparsity.errors import InputError
from sparsity.kernels import Kernel, RowMap
from sparsity.output import write
from sparsity.plots.axes import quantity_axis
from sparsity.plots.axes.controls import CONTROLS, LOG, Control
from sparsity.plots.browser.ports import port
from sparsity.plots.requests import CurveRequest, read_curves

SUFFIX = ".html"
PARAMETERS = ("beta", "gamma", "length", "decay", "ratio", "dim")  # each with a slider
VIEWS = ("S", "log S", "n_eff")
QUERIES = ("uniform", "one-hot")
_TITLE = "How sharply can attention focus?"
LONGEST = 2**53  # tokens: a whole number in a browser
_MOST_CURVES = 24  # a letter and a colour each


@dataclass(frozen=True)
class Pin:
    """A curve that no slider moves.

    Args:
        kernel: the kernel.
        values: its parameters by name; where it has none, the page's at the start.
        query: of nonnegative features.
        grows: whether the spread of its scores is γ√d.
    """

    kernel: Kernel | RowMap
    values: Mapping[str, float]
    query: str = "uniform"
    grows: bool = False


@dataclass(frozen=True)
class Start:
    """What a page shows first, and after a reset.

    Args:
        shown: the kernels whose curves follow the sliders.
        x: the parameter along the x-axis, one of `PARAMETERS`.
        y: what is drawn, one of `VIEWS`.
        values: parameters by name; of the others where the panel starts.
        query: the query of nonnegative features, one of `QUERIES`.
        grows: whether the spread of scores is γ√d, as of q·k without 1/√d.
        pins: curves beside them.
        ends: ends of an axis and its slider by name, where they are not the panel's.
        title: the heading; None is a general one.
    """

    shown: Sequence[Kernel | RowMap] = (kernels.exp, kernels.relu2, kernels.identity)
    x: str = "gamma"
    y: str = "S"
    values: Mapping[str, float] = field(default_factory=dict)
    query: str = QUERIES[0]
    grows: bool = False
    pins: Sequence[Pin] = ()
    ends: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    title: str | None = None


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
        kernel, (held, of_query, of_grows) = curve.row.kernel, _described(curve, x)
        if not shown:
            query, grows = of_query, of_grows
        same = all(values.get(name, value) == value for name, value in held.items())
        if kernel not in shown and same and (query, grows) == (of_query, of_grows):
            shown.append(kernel)
            values |= held
        else:
            pins.append(Pin(kernel, held, of_query, of_grows))
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
    held = {name: float(value) for name, value in params.items() if name != x}
    return held, query, grows


def save(path: str | os.PathLike[str], start: Start) -> Path:
    """Write a page, whole or not at all.

    Args:
        path: the file, of a name that ends in .html; an existing one is replaced.
        start: what it shows first.

    Raises:
        InputError: what is shown has no port, or the file cannot be written, or is no page.
    """
    file = check_path("out", path, "give a path")
    if file.suffix.lower() != SUFFIX and not file.is_dir():
        fix = f"is a page; give a name that ends in .html, such as {file.stem}.html"
        raise InputError("out", path, fix)
    write(file, html(start))
    return file


def _refuse_unknown(start: Start) -> None:
    """Refuse what a page does not have."""
    for name, value, allowed in (
        ("x", start.x, PARAMETERS),
        ("y", start.y, VIEWS),
        ("query", start.query, QUERIES),
        *(("query", pin.query, QUERIES) for pin in start.pins),
    ):
        if value not in allowed:
            raise InputError(name, value, f"a page has {', '.join(allowed)}")
    count = len(dict.fromkeys(kernel.name for kernel in start.shown)) + len(start.pins)
    if count > _MOST_CURVES:
        raise InputError("curves", count, f"at most {_MOST_CURVES} on a page; give fewer")


def _control(name: str, start: Start) -> tuple[Control, float]:
    """Return a control with the ends that it has on the page, and where it starts."""
    control = CONTROLS[name]
    value = control.check(start.values.get(name, control.start))
    if name in start.ends:
        low, high = (control.check(end) for end in start.ends[name])
        if low < high:
            # Some ticks of the usual axis may do; else even ones.
            ticks = tuple(t for t in control.ticks if low <= t <= high)
            if len(ticks) < 3:
                even = np.geomspace if control.scale is LOG else np.linspace
                ticks = tuple(float(f"{t:.2g}") for t in even(low, high, 5))
                ticks = tuple(t for t in ticks if low <= t <= high)
            control = replace(control, low=low, high=high, ticks=ticks)
    return control, value


def _control_record(name: str, start: Start) -> dict[str, Any]:
    control, value = _control(name, start)
    low, high = control.ends(value)
    return {
        "name": name,
        "label": control.label,
        "symbol": control.symbol,
        "meaning": control.parameter.meaning,
        "integer": control.parameter.integer,
        "scale": control.scale.name,
        "low": low,
        "high": high,
        "most": LONGEST if name == "length" else high,  # that can be typed
        "stops": control.stops(value),
        "marks": control.marks(value),
    }


def _view_record(name: str) -> dict[str, Any]:
    view = quantity_axis.named(name)
    # Of rows of up to 10⁶, 10¹², …
    scales = [view.scale(decades)._asdict() for decades in (6, 12, 16)]
    return {"title": view.title, "label": view.label, "scales": scales}


def _offered(start: Start) -> list[Kernel | RowMap]:
    """Return the kernels of the page: those of the article, and what is shown besides."""
    offered: list[Kernel | RowMap] = list(kernels.ALL)
    for kernel in (*start.shown, *(pin.kernel for pin in start.pins)):
        if kernel not in offered:
            offered.append(kernel)
    return offered


def html(start: Start) -> str:
    """Return a page; the same start gives the same text.

    Raises:
        InputError: what is shown has no port, or a page does not have it.
    """
    _refuse_unknown(start)
    ported = [port(kernel) for kernel in _offered(start)]
    controls = [_control_record(name, start) for name in PARAMETERS]
    values = {name: _control(name, start)[1] for name in PARAMETERS}
    setting = {
        "kernels": [p.record for p in ported],
        "controls": controls,
        "y": {name: _view_record(name) for name in VIEWS},
        "pins": [vars(pin) | {"kernel": pin.kernel.name} for pin in start.pins],
        "start": {
            "x": start.x,
            "y": start.y,
            "shown": list(dict.fromkeys(kernel.name for kernel in start.shown)),
            "query": start.query,
            "grows": start.grows,
            "values": values,
        },
    }
    return _document(start.title or _TITLE, setting, [p.size for p in ported])


def _document(title: str, setting: dict[str, Any], sizes: list[str]) -> str:
    # The chart and its style are the panel's, read as the texts that they are.
    scripts = (
        "panel/front/chart.js",
        *(f"plots/browser/front/{x}.js" for x in ("law", "curves", "page")),
    )
    styles = ("panel/front/panel.css", "plots/browser/front/page.css")
    # Names are a user's: in JSON, no character of theirs can end the script.
    data = json.dumps(setting, ensure_ascii=False, sort_keys=True).replace("<", "\\u003c")
    page = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, keep_trailing_newline=True
    )
    return page.from_string(_read("plots/browser/front/page.html")).render(
        title=title,
        style="\n".join(map(_read, styles)),
        script="\n".join(map(_read, scripts)),
        data=data,
        sizes=",\n".join(f"(s) => {size}" for size in sizes),
        version=__version__,
    )


def _read(place: str) -> str:
    return resources.files("sparsity").joinpath(*place.split("/")).read_text("utf-8")
