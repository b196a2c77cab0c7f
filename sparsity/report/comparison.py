"""The page's section on the cross-check: every cell, its estimate, its theory and z."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

import numpy as np

from sparsity import kernels, quantities
from sparsity.report.parts import badge, details, number, percent, prose, section, table

_SYMBOLS = {
    "beta": "β",
    "gamma": "γ",
    "decay": "λ",
    "length": "n",
    "dim": "d",
    "ratio": "σ̃/μ̃",
    "center": "mean of the keys",
    "spread": "spread of the keys",
}

_ROUTES = {
    "scalar-stratified": "scores, stratified",
    "position-stratified": "positions, stratified",
    "rows": "whole rows",
    "rows-law": "whole rows, each token with its own law",
    "rows-drawn": "whole rows of a map",
    "rows-full-keys": "whole rows of whole keys",
    "rows-sphere": "whole rows, keys on a sphere",
    "rows-rope": "whole rows under RoPE",
    "rows-coca": "whole rows under CoCA",
    "rows-slack": "whole rows under CoCA-Slack",
    "full-keys": "whole keys",
}


def _name_route(name: str) -> str:
    """Return what the page calls a sampler."""
    feature = name.removeprefix("features-")
    return f"features, {feature}" if feature != name else _ROUTES.get(name, name)


def _kernel_title(name: str) -> str:
    """Return the title of a kernel; of one that the report does not show, the name."""
    titles = {kernel.name: kernel.title for kernel in kernels.ALL}
    return escape(titles.get(name, name))


def _quantity_symbol(name: str) -> str:
    """Return the symbol of a quantity as HTML."""
    return prose(quantities.named(name).symbol)


def _list_parameters(given: Mapping[str, Any]) -> str:
    """Return parameters by their symbols, "β = 1, n = 64"."""
    return ", ".join(
        f"{_SYMBOLS.get(name) or escape(name)}\u202f=\u202f{number(value, 4)}"
        for name, value in given.items()
    )


def _count_by_route(cells: Sequence[Any]) -> list[tuple[str, ...]]:
    """Return each pair of theory and sampler with its cells, the agreeing ones and max |z|."""
    rows = []
    for key in dict.fromkeys((*cell.instruments, cell.route) for cell in cells):
        same = [cell for cell in cells if (*cell.instruments, cell.route) == key]
        agreeing = sum(cell.verdict == "agree" for cell in same)
        largest = max(abs(cell.z) for cell in same)
        theory, sampled, how = key[0], key[1], _name_route(key[2])
        told = f"{sampled}: {how}" if sampled == "pooled rows" else how
        counts = number(len(same)), number(agreeing), f"{largest:.2f}"
        rows.append((escape(theory), escape(told), *counts))
    return sorted(rows)


def _count_by_pair(exact: Sequence[Any]) -> list[tuple[str, ...]]:
    """Return for each pair of theories the number of points compared, and how many agree."""
    pairs = Counter(cell.instruments for cell in exact)
    agreeing = Counter(cell.instruments for cell in exact if cell.verdict == "agree")
    return [
        (escape(pair[0]), escape(pair[1]), number(count), number(agreeing[pair]))
        for pair, count in pairs.items()
    ]


def _format_exp(value: float) -> str:
    """Return e^value as HTML, also where it underflows."""
    # Below e^−708.4 float64 loses digits, and below e^−745 it has 0.
    if value > -690:
        return number(float(np.exp(value)))
    return f"e<sup>−{number(-value)}</sup>"


def _format_estimate(estimate: Any) -> str:
    """Return an estimate with its standard error, relative where the error itself underflows."""
    if estimate.stderr > 0 or estimate.rel_stderr == 0:
        return f"{_format_exp(estimate.log_value)} ± {number(estimate.stderr, 2)}"
    return f"{_format_exp(estimate.log_value)} × (1 ± {number(estimate.rel_stderr, 2)})"


def section_of(crosscheck: Any) -> str:
    """Return the section of the cross-check.

    It says how many cells agree and how small an error each would have shown, then counts them by
    route, and has every cell on demand; those that do not agree are always in sight.
    """
    cells = crosscheck.cells
    largest = max((abs(cell.z) for cell in cells), default=0.0)
    words = (
        f"<p>Theory and sampling agree in "
        f"{sum(cell.verdict == 'agree' for cell in cells)} of {len(cells)} cells. If the theory is "
        f"right, the probability that any cell disagrees by chance is at most "
        f"{number(float(crosscheck.false_alarm_rate))}; every cell would have shown a relative "
        f"error of {percent(crosscheck.smallest_detectable)}. "
        f"The largest |z| is {largest:.2f}.</p>"
    )
    counts = table(
        ["theory", "sampled", "cells", "agree", "largest |z|"],
        _count_by_route(cells),
        "Cells by route",
        [2, 3, 4],
        caption="Theory against sampling",
    )
    if crosscheck.exact:
        counts += table(
            ["theory", "checked against", "points", "agree"],
            _count_by_pair(crosscheck.exact),
            "Theories against each other",
            [2, 3],
            caption="Two theories against each other, within their own bounds",
        )
    rows = [
        (
            _kernel_title(cell.kernel),
            _quantity_symbol(str(cell.quantity)),
            _list_parameters(cell.parameters),
            escape(_name_route(cell.route)),
            _format_exp(cell.theory),
            _format_estimate(cell.estimate),
            f"{cell.z:+.2f}".replace("-", "−"),
            badge(cell.verdict),
        )
        for cell in cells
    ]
    head = ["attention", "of", "parameters", "sampled by"]
    head += ["theory", "estimate ± s.e.", "z", "verdict"]
    full = table(head, rows, "Every cell of the cross-check", [4, 5, 6])
    # Hundreds of rows: they scroll within a box of some height, not with the page.
    full = full.replace('class="scroll"', 'class="scroll tall"')
    content = words + counts + details(f"All {len(cells)} cells", full)
    odd = [row for row, cell in zip(rows, cells, strict=True) if cell.verdict != "agree"]
    if odd:
        content += table(head, odd, "Cells that do not agree", [4, 5, 6])
    return section("cross-check", "Cross-check", content)
