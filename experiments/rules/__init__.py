"""Claims of other papers than the three that the package examines, and what trained models say.

    python -m experiments rules [--out DIR]

judges them and draws three figures of temperatures, of mechanisms and of what a row can hold. A
claim is a record of the package (`sparsity.ledger`), judged by the package's own instruments; those
of `trained`, `longer` and `follow_ups` are judged by the committed tables of the experiments.
"""

from __future__ import annotations

from pathlib import Path

from experiments.rules import (
    capacity_figure,
    follow_ups,
    longer,
    maps,
    mechanisms_figure,
    needle,
    outputs,
    powers,
    routers,
    temperature,
    temperature_figure,
    thresholds,
    trained,
)
from sparsity import ledger as of_claims
from sparsity.output import folder, json_text, write
from sparsity.report import figures

CLAIMS = (
    *(*powers.CLAIMS, *maps.CLAIMS, *temperature.CLAIMS, *routers.CLAIMS, *needle.CLAIMS),
    *thresholds.CLAIMS,
    *(*outputs.CLAIMS, *trained.CLAIMS, *longer.CLAIMS, *follow_ups.CLAIMS),
)
FIGURES = (temperature_figure.FIGURE, mechanisms_figure.FIGURE, capacity_figure.FIGURE)


def run(out: Path) -> None:
    """Judge the claims and draw the figures: claims.json, claims.txt and NAME.svg, .png, .csv."""
    home = folder(out)
    records = [claim.record() for claim in CLAIMS]
    write(home / "claims.json", json_text(records))
    write(home / "claims.txt", of_claims.table(records))
    for figure in FIGURES:
        files = figures.render(figure, figure.data(figures.Context()))
        for suffix, content in files.items():
            write(home / f"{figure.name}.{suffix}", content)
