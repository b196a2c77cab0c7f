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


def _route(name: str) -> str:
    """Return what the page calls a sampler."""
    feature = name.removeprefix("features-")
    return f"features, {feature}" if feature != name else _ROUTES.get(name, name)


def _kernel(name: str) -> str:
    """The title of a kernel; other ways of attending by their names."""
    titles = {kernel.name: kernel.title.split(" (")[0] for kernel in kernels.ALL}
    return escape(titles.get(name, name))


def _quantity(name: str) -> str:
    return prose(quantities.named(name).symbol)


def _parameters(given: Mapping[str, Any]) -> str:
    return ", ".join(
        f"{_SYMBOLS.get(name) or escape(name)}\u202f=\u202f{number(value, 4)}"
        for name, value in given.items()
    )


def _by_route(cells: Sequence[Any]) -> list[tuple[str, ...]]:
    """Cells by what was compared: how many, how many agree, the largest |z|."""
    rows = []
    for key in dict.fromkeys((*cell.instruments, cell.route) for cell in cells):
        same = [cell for cell in cells if (*cell.instruments, cell.route) == key]
        agreeing = sum(cell.verdict == "agree" for cell in same)
        largest = max(abs(cell.z) for cell in same)
        theory, sampled, how = key[0], key[1], _route(key[2])
        told = f"{sampled}: {how}" if sampled == "pooled rows" else how
        counts = number(len(same)), number(agreeing), f"{largest:.2f}"
        rows.append((escape(theory), escape(told), *counts))
    return sorted(rows)


def _by_pair(exact: Sequence[Any]) -> list[tuple[str, ...]]:
    """Points by the two theories that were held against each other there."""
    pairs = Counter(cell.instruments for cell in exact)
    agreeing = Counter(cell.instruments for cell in exact if cell.verdict == "agree")
    return [
        (escape(pair[0]), escape(pair[1]), number(count), number(agreeing[pair]))
        for pair, count in pairs.items()
    ]


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
        _by_route(cells),
        "Cells by route",
        [2, 3, 4],
        caption="Theory against sampling",
    )
    if crosscheck.exact:
        counts += table(
            ["theory", "checked against", "points", "agree"],
            _by_pair(crosscheck.exact),
            "Theories against each other",
            [2, 3],
            caption="Two theories against each other, within their own bounds",
        )
    rows = [
        (
            _kernel(cell.kernel),
            _quantity(str(cell.quantity)),
            _parameters(cell.parameters),
            escape(_route(cell.route)),
            _from_log(cell.theory),
            _estimate(cell.estimate),
            f"{cell.z:+.2f}".replace("-", "−"),
            badge(cell.verdict),
        )
        for cell in cells
    ]
    head = ["attention", "of", "parameters", "sampled by"]
    head += ["theory", "estimate ± s.e.", "z", "verdict"]
    full = table(head, rows, "Every cell of the cross-check", [4, 5, 6])
    full = full.replace('class="scroll"', 'class="scroll tall"')
    content = words + counts + details(f"All {len(cells)} cells", full)
    odd = [row for row, cell in zip(rows, cells, strict=True) if cell.verdict != "agree"]
    if odd:
        content += table(head, odd, "Cells that do not agree", [4, 5, 6])
    return section("cross-check", "Cross-check", content)
