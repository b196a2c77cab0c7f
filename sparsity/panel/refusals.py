"""What cannot be plotted of the curves that are shown, and why."""

from __future__ import annotations

import functools
from typing import Any

from sparsity.axes import quantity_axis as plots
from sparsity.axes.row_choices import has_sink
from sparsity.panel.lines import unanswered
from sparsity.panel.state import State


def refused(state: State) -> dict[str, str]:
    """Why a quantity cannot be had of any curve that is shown, by the name of its plot."""
    specs = state.specs()
    sinks = (spec.score and has_sink(spec.law) for spec in specs)
    return _refused(tuple(zip((spec.kernel for spec in specs), sinks, strict=True)))


@functools.lru_cache(maxsize=64)
def _refused(shown: tuple[tuple[Any, bool], ...]) -> dict[str, str]:
    found = {}
    for name, *_ in plots.offered():
        quantity = plots.named(name).of
        why = [unanswered(kernel, sink, quantity) for kernel, sink in shown]
        if why and all(why):
            found[name] = why[0]
    return found
