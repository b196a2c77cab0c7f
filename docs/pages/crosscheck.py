"""The cross-check as `sparsity reproduce` wrote it: each kernel and route."""

import json
from collections import Counter
from itertools import groupby
from pathlib import Path

from pages.catalogue import table

FILE = Path(__file__).resolve().parents[2] / "figures/crosscheck.json"


def page() -> str:
    """The page in Markdown."""
    found = json.loads(FILE.read_text("utf-8"))
    sampled = [cell for cell in found["cells"] if "route" in cell]
    words = f"""# The cross-check

Theory against Monte Carlo, {len(sampled)} cells, and theory against theory,
{found["exact_cells"]} cells. Seed {found["seed"]}. The whole run raises a false alarm with
probability at most {found["false_alarm_rate"]:g}, and would have seen a relative error of
{found["smallest_detectable"]:.2g} in every cell. {_verdict(found)}

`sparsity verify` runs it anew. z: estimate less theory, in standard errors.
"""
    key = ("kernel", "quantity", "route")
    cells = sorted(sampled, key=lambda cell: [cell[name] for name in key])
    rows = []
    for names, group in groupby(cells, lambda cell: tuple(cell[name] for name in key)):
        same = list(group)
        agreeing = sum(cell["verdict"] == "agree" for cell in same)
        largest = max(abs(cell["z"]) for cell in same)
        seen = max(cell["detectable"] for cell in same)
        rows.append((*names, f"{agreeing} of {len(same)}", f"{largest:.2f}", f"{seen:.1e}"))
    head = ("kernel", "quantity", "sampler", "agree", "largest |z|", "error that would be seen")
    pairs = Counter(" against ".join(cell["instruments"]) for cell in found["cells"])
    both = [(name, str(count)) for name, count in pairs.most_common()]
    of_theory = table(("compared", "cells"), both)
    return f"{words}\n{table(head, rows)}\n## What was compared\n\n{of_theory}"


def _verdict(found) -> str:
    if found["agree"]:
        return "Every cell agrees."
    return f"{len(found['disagreements'])} cells do not agree."
