"""The page again from the files of a run: what is computed is not computed twice."""

from __future__ import annotations

import os
from dataclasses import fields
from pathlib import Path
from typing import Any

from sparsity import claims_ledger as ledger
from sparsity import figures, report
from sparsity.crosscheck.outcome import Cell, CrossCheck, ExactCell
from sparsity.errors import InputError
from sparsity.figures import Plate
from sparsity.output import refuse_pipe, write
from sparsity.reading import json_file
from sparsity.results import Estimate

UNFINISHED = "Not finished"  # how index.html begins while a run is under way
CROSSCHECK, CLAIMS, ENVIRONMENT = "crosscheck.json", "claims.json", "environment.json"


def _unreadable(path: Path) -> InputError:
    return InputError("out", path, "cannot be read; `sparsity reproduce` writes it")


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise _unreadable(path) from error


def _json(path: Path) -> Any:
    try:
        return json_file(path)
    except OSError as error:
        raise _unreadable(path) from error
    except ValueError as error:
        fix = "is not JSON; run `sparsity reproduce` to write it again"
        raise InputError("out", path, fix) from error


def _cell(record: dict[str, Any]) -> Cell | ExactCell:
    """One comparison, as `CrossCheck` has it."""
    told: dict[str, Any] = record | {"instruments": tuple(record["instruments"])}
    if "estimate" not in record:
        told["values"] = tuple(record["values"])
        return ExactCell(**told)
    known = {field.name for field in fields(Estimate)}
    given = {name: value for name, value in record["estimate"].items() if name in known}
    told["estimate"] = Estimate(**given)
    return Cell(**told)


def crosscheck(found: dict[str, Any]) -> CrossCheck:
    """The outcome of `verify` from its record."""
    cells = [_cell(record) for record in found["cells"]]
    return CrossCheck(
        agree=found["agree"],
        cells=tuple(cell for cell in cells if isinstance(cell, Cell)),
        exact=tuple(cell for cell in cells if isinstance(cell, ExactCell)),
        false_alarm_rate=found["false_alarm_rate"],
        smallest_detectable=found["smallest_detectable"],
        seed=found["seed"],
        left_out=tuple(found["left_out"]),
    )


def plates(folder: Path) -> list[Plate]:
    """The figures as they were drawn; their words are those of this version."""
    return [
        Plate(
            *(figure.name, figure.title, figure.caption, figure.alt),
            {suffix: _read(folder / f"{figure.name}.{suffix}") for suffix in ("svg", "csv")},
        )
        for figure in figures.ALL
    ]


def page(folder: str | os.PathLike[str]) -> Path:
    """Write index.html again from the figures, cross-check and claims in the folder.

    Args:
        folder: where `reproduce` wrote them.

    Returns:
        The page.

    Raises:
        InputError: one of the files is not there, or cannot be read.
    """
    home = Path(folder)
    refuse_pipe(home)
    last = home / "index.html"
    if last.exists() and last.read_bytes().startswith(UNFINISHED.encode()):
        fix = "its last run did not finish; run `sparsity reproduce` to the end"
        raise InputError("out", home, fix)
    drawn, check, records, meta = (
        plates(home),
        _json(home / CROSSCHECK),
        _json(home / CLAIMS),
        _json(home / ENVIRONMENT),
    )
    try:
        told, seed = crosscheck(check), str(meta["seed"])
        judged = [record["key"] for record in records]
        whole = told.cells and told.exact and seed == str(told.seed)
        if not whole or judged != [claim.key for claim in ledger.ALL]:
            fix = "its files are not of one whole run of this version; run `sparsity reproduce`"
            raise InputError("out", home, fix)
        write(last, report.render(drawn, told, records, meta))
    except InputError:
        raise
    except Exception as error:  # whatever records make of themselves that a hand has changed
        fix = f"its files cannot be used ({type(error).__name__}); run `sparsity reproduce`"
        raise InputError("out", home, fix) from error
    return last
