"""The page's section on the cross-check: every cell, its estimate, its theory and z."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from html import escape
from typing import Any

import numpy as np

from sparsity.report.parts import badge, details, number, percent, section, table

_QUANTITIES = {
    "n_eff": "n·S²",
    "participation": "Σp²",
    "entropy": "H",
    "max_weight": "max p",
    "gini": "Gini",
    "sink_mass": "sink mass",
}
_SYMBOLS = {"beta": "β", "gamma": "γ", "decay": "λ", "length": "n", "dim": "d", "ratio": "r"}


def _parameters(given: Mapping[str, Any]) -> str:
    return ", ".join(
        f"{_SYMBOLS.get(name, name)}\u202f=\u202f{number(value, 4)}"
        for name, value in given.items()
    )


def _from_log(value: float) -> str:
    """E^value, also where that underflows."""
    if value > -690:
        return number(float(np.exp(value)))
    return f"e<sup>−{number(-value)}</sup>"


def _estimate(estimate: Any) -> str:
    if estimate.stderr > 0 or estimate.rel_stderr == 0:
        return f"{_from_log(estimate.log_value)} ± {number(estimate.stderr, 2)}"
    return f"{_from_log(estimate.log_value)} × (1 ± {number(estimate.rel_stderr, 2)})"


def section_of(crosscheck: Any) -> str:
    """The cross-check: how many cells agree, by which routes, and every cell."""
    cells = crosscheck.cells
    largest = max((abs(cell.z) for cell in cells), default=0.0)
    routes = Counter(cell.route for cell in cells)
    exact = getattr(crosscheck, "exact", ())
    words = (
        f"<p>Theory and sampling agree in "
        f"{sum(cell.verdict == 'agree' for cell in cells)} of {len(cells)} cells. If the theory is "
        f"right, the probability that any cell disagrees by chance is at most "
        f"{number(float(crosscheck.false_alarm_rate))}; every cell would have shown a relative "
        f"error of {percent(crosscheck.smallest_detectable)}. "
        f"The largest |z| is {largest:.2f}.</p>"
    )
    if exact:
        agreeing = Counter(cell.instruments for cell in exact if cell.verdict == "agree")
        pairs = Counter(cell.instruments for cell in exact)
        held = "; ".join(
            f"{escape(' against '.join(pair))} in {agreeing[pair]} of {count} points"
            for pair, count in pairs.items()
        )
        words += f"<p>Two theories agree within their own bounds: {held}.</p>"
    counts = (
        '<div class="compact">'
        + table(
            ["Monte Carlo route", "cells"],
            [(escape(route), number(count)) for route, count in sorted(routes.items())],
            "Cells by route",
            [1],
        )
        + "</div>"
    )
    rows = [
        (
            escape(cell.kernel),
            escape(_QUANTITIES.get(str(cell.quantity), str(cell.quantity))),
            _parameters(cell.parameters),
            escape(cell.route),
            _from_log(cell.theory),
            _estimate(cell.estimate),
            f"{cell.z:+.2f}".replace("-", "−"),
            badge(cell.verdict),
        )
        for cell in cells
    ]
    head = ["kernel", "of", "parameters", "route", "theory", "estimate ± s.e.", "z", "verdict"]
    full = table(head, rows, "Every cell of the cross-check", [4, 5, 6])
    full = full.replace('class="scroll"', 'class="scroll tall"')
    content = words + counts + details(f"All {len(cells)} cells", full)
    odd = [row for row, cell in zip(rows, cells, strict=True) if cell.verdict != "agree"]
    if odd:
        content += table(head, odd, "Cells that do not agree", [4, 5, 6])
    return section("cross-check", "Cross-check", content)
