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
from html import escape
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from sparsity import kernels
from sparsity._version import __version__
from sparsity.arguments import path as read_path
from sparsity.axes import quantity_axis
from sparsity.axes.controls import CONTROLS, LINEAR, LOG, Control
from sparsity.browser.ports import port
from sparsity.errors import InputError
from sparsity.kernels import Kernel, RowMap
from sparsity.output import write

__all__ = ["PARAMETERS", "QUERIES", "SUFFIX", "VIEWS", "Pin", "Start", "check_file", "html", "save"]

SUFFIX = ".html"
PARAMETERS = ("beta", "gamma", "length", "decay", "ratio", "dim")  # each with a slider
VIEWS = ("S", "log S", "n_eff")
QUERIES = ("uniform", "one-hot")
_TITLE = "How sharply can attention focus?"
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


def check_file(path: Any) -> Path:
    """Return the path of a page to write.

    Raises:
        InputError: it does not end in .html.
    """
    found = read_path("out", path, "give a path")
    if found.suffix.lower() != SUFFIX and not found.is_dir():
        fix = f"is a page; give a name that ends in .html, such as {found.stem}.html"
        raise InputError("out", path, fix)
    return found


def save(path: str | os.PathLike[str], start: Start) -> Path:
    """Write a page, whole or not at all.

    Args:
        path: the file, of a name that ends in .html; an existing one is replaced.
        start: what it shows first.

    Raises:
        InputError: what is shown has no port, or the file cannot be written.
    """
    found = check_file(path)
    write(found, html(start))
    return found


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
    for name, value in start.values.items():
        if name not in PARAMETERS:
            raise InputError(name, value, f"a page has sliders for {', '.join(PARAMETERS)}")
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
    scale = "linear" if control.scale is LINEAR else "log" if control.scale is LOG else "nines"
    return {
        "name": name,
        "label": control.label,
        "symbol": control.symbol,
        "meaning": control.parameter.meaning,
        "integer": control.parameter.integer,
        "scale": scale,
        "low": low,
        "high": high,
        "stops": control.stops(value),
        "marks": control.marks(value),
    }


def _view_record(name: str) -> dict[str, Any]:
    view = quantity_axis.named(name)
    scales = [view.scale(decades)._asdict() for decades in (6, 12)]  # rows of up to 10⁶, 10¹²
    return {"title": view.title, "label": view.label, "scales": scales}


def _offered(start: Start) -> list[Kernel | RowMap]:
    """Return the kernels of the page: those of the article, and what is shown besides.

    Raises:
        InputError: two of one name.
    """
    found: list[Kernel | RowMap] = list(kernels.ALL)
    for each in (*start.shown, *(pin.kernel for pin in start.pins)):
        if each not in found:
            found.append(each)
    names = [each.name for each in found]
    if len(set(names)) != len(names):
        raise InputError("kernel", names[-1], "give your kernel a name of its own")
    return found


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
        "kernels": [each.record for each in ported],
        "controls": controls,
        "y": {name: _view_record(name) for name in VIEWS},
        "pins": [
            {
                "kernel": pin.kernel.name,
                "values": dict(pin.values),
                "query": pin.query,
                "grows": pin.grows,
            }
            for pin in start.pins
        ],
        "start": {
            "x": start.x,
            "y": start.y,
            "shown": list(dict.fromkeys(kernel.name for kernel in start.shown)),
            "query": start.query,
            "grows": start.grows,
            "values": values,
        },
    }
    return _document(start.title or _TITLE, setting, [each.size for each in ported])


def _document(title: str, setting: dict[str, Any], sizes: list[str]) -> str:
    home = resources.files("sparsity")
    # The chart and its style are the panel's, read as the texts that they are.
    script = "\n".join(
        home.joinpath(*place.split("/")).read_text("utf-8")
        for place in (
            "panel/front/chart.js",
            *(f"browser/front/{name}.js" for name in ("law", "curves", "page")),
        )
    )
    style = "\n".join(
        home.joinpath(*place.split("/")).read_text("utf-8")
        for place in ("panel/front/panel.css", "browser/front/page.css")
    )
    # Names are a user's: in JSON, no character of theirs can end the script.
    data = json.dumps(setting, ensure_ascii=False, sort_keys=True).replace("<", "\\u003c")
    ported = ",\n".join(f"(s) => {size}" for size in sizes)
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; \
script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:">
<link rel="icon" href="data:,">
<title>{escape(title)}</title>
<style>
{style}</style>
</head>
<body>
<header>
<h1>{escape(title)}</h1>
<p>Weights a = f(s) of scores s ~ N(β, γ²). S = E|a|/√(E a²) is small where a few keys take all, \
and n_eff = E[(Σ|a|)²/Σa²] counts the keys of a row of n that matter. Move a slider; point at the \
chart to read values.</p>
</header>
<noscript><p>This page computes in your browser, and needs JavaScript for that.</p></noscript>
<main class="sparsity-holder"><div class="sparsity-panel" id="page"></div></main>
<footer><p>Made by sparsity {__version__}. Everything is computed in this page: closed forms, \
quadrature and the exact law of rows of n. Lines are right to the eye. A number is right to 1e−6 \
of itself, or the page says “not resolved” in its place. The link in the address bar brings this \
view back.</p></footer>
<script type="application/json" id="setting">{data}</script>
<script>
"use strict";
const SIZES = [
{ported},
];
{script}</script>
</body>
</html>
"""


def __dir__() -> list[str]:
    return sorted(__all__)
