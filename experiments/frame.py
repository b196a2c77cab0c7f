"""What an experiment is, and how it is run: cell by cell, and gone on with after it was killed.

    settings ──> cells ──> run each ──> OUT/NAME.jsonl, a line a cell as soon as it is done
                                          └──> NAME.csv, NAME.png, and the page NAME.md

A cell draws from seeds of its own and knows nothing of the others. So a run that was killed goes on
with the cells that its file lacks, and ends with the same results.
"""

from __future__ import annotations

import csv
import io
import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import jax
import matplotlib
from cycler import cycler
from matplotlib.figure import Figure
from tqdm import tqdm

from sparsity import plotting
from sparsity.output import folder, replacing
from sparsity.plots.colors import CURVES

PREDICTIONS = Path(__file__).parent / "predictions"
RESULTS = PREDICTIONS.parent / "results"  # those that are committed
DIGITS = 5  # of a number in the results, to which the same seeds give the same

Record = dict[str, Any]


@dataclass(frozen=True)
class Experiment:
    """An experiment.

    Args:
        name: of its files.
        title: the question, as the page's headline.
        full: the settings, a dataclass of plain values with the seeds among them.
        tiny: settings that take seconds, to see that it runs.
        cells: settings -> the cells, each a record that says what is run.
        run: (settings, cell) -> the measured records of the cell.
        judge: records of all cells -> what came out of it, in Markdown.
        draw: (records, figure) -> None.
        size: width and height of the figure in inches.
    """

    name: str
    title: str
    full: Any
    tiny: Any
    cells: Callable[[Any], list[Record]]
    run: Callable[[Any, Record], list[Record]]
    judge: Callable[[list[Record]], str]
    draw: Callable[[list[Record], Figure], None]
    size: tuple[float, float] = (12.0, 4.4)


def run(experiment: Experiment, out: Path, tiny: bool = False) -> list[Record]:
    """Run what is not done yet of an experiment, and write its results.

    Args:
        experiment: which.
        out: the folder of the results; an interrupted run in it is gone on with.
        tiny: whether with the tiny settings.

    Returns:
        The records of all cells.
    """
    settings = experiment.tiny if tiny else experiment.full
    log = folder(out) / f"{experiment.name}.jsonl"
    lines = list(_read_lines(log))
    done = dict(_finished(lines, as_plain(asdict(settings))))
    # Without lines that were cut short; those of other settings are kept.
    others = [line for line in lines if line not in done.values()]
    with replacing(log) as part:
        part.write_text("".join([*others, *done.values()]), "utf-8")
    for cell in tqdm(experiment.cells(settings), desc=experiment.name):
        if json.dumps(cell) in done:
            continue
        begin = time.perf_counter()
        records = [{**cell, **record} for record in experiment.run(settings, cell)]
        line = {"settings": asdict(settings), "cell": cell, "records": rounded(records)}
        done[json.dumps(cell)] = (
            json.dumps({**line, "seconds": round(time.perf_counter() - begin, 1)}) + "\n"
        )
        with log.open("a", encoding="utf-8") as file:
            file.write(done[json.dumps(cell)])
    whole = [json.loads(done[json.dumps(cell)]) for cell in experiment.cells(settings)]
    records = [record for line in whole for record in line["records"]]
    write(experiment, settings, out, records, sum(line["seconds"] for line in whole))
    return records


def _read_lines(log: Path) -> Iterator[str]:
    """Yield the lines of a file that are whole: a run that was killed may have cut one short."""
    text = log.read_text("utf-8", errors="replace") if log.is_file() else ""
    for line in text.splitlines():
        try:
            found = json.loads(line)
        except json.JSONDecodeError:
            continue
        if isinstance(found, dict) and found.keys() >= {"settings", "cell", "records", "seconds"}:
            yield f"{line}\n"


def _finished(lines: list[str], settings: Any) -> Iterator[tuple[str, str]]:
    """Yield the cells that were run with these settings, each with its line."""
    for line in lines:
        found = json.loads(line)
        if found["settings"] == settings:
            yield json.dumps(found["cell"]), line


def as_plain(value: Any) -> Any:
    """Return a value as it comes back from JSON: tuples are lists."""
    return json.loads(json.dumps(value))


def rounded(records: list[Record]) -> list[Record]:
    """Return records with plain numbers of `DIGITS` digits."""

    def plain(value: Any) -> Any:
        return value if isinstance(value, str | int) else float(f"{value:.{DIGITS}g}")

    return [{name: plain(value) for name, value in record.items()} for record in records]


def write(
    experiment: Experiment, settings: Any, out: Path, records: list[Record], seconds: float
) -> None:
    """Write the table, the figure and the page."""
    table = io.StringIO(newline="")
    writer = csv.DictWriter(table, list(records[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(records)
    prediction = (PREDICTIONS / f"{experiment.name}.md").read_text("utf-8").strip()
    listed = "\n".join(f"- {name}: {value}" for name, value in asdict(settings).items())
    tiny = " (a tiny run, which says nothing of it)" if settings == experiment.tiny else ""
    page = PAGE.format(
        title=experiment.title + tiny,
        name=experiment.name,
        prediction=prediction,
        outcome=experiment.judge(records).strip(),
        count=len(records),
        settings=listed,
        minutes=seconds / 60,
        device=jax.devices()[0].device_kind,
        version=jax.__version__,
    )
    files: Mapping[str, bytes] = {
        "csv": table.getvalue().encode(),
        "png": picture(experiment, records),
        "md": page.encode(),
    }
    for suffix, content in files.items():
        with replacing(out / f"{experiment.name}.{suffix}") as part:
            part.write_bytes(content)


def read_table(path: Path) -> list[Record]:
    """Return the rows of a table, with numbers where they can be read as such."""

    def value(text: str) -> Any:
        try:
            return int(text)
        except ValueError:
            try:
                return float(text)
            except ValueError:
                return text

    with path.open(encoding="utf-8") as file:
        return [{name: value(text) for name, text in row.items()} for row in csv.DictReader(file)]


def picture(experiment: Experiment, records: list[Record]) -> bytes:
    """Return the figure as a PNG, in the house style."""
    style: dict[Any, Any] = {"axes.titlelocation": "left", "axes.titlesize": 11}
    style |= {"axes.grid": True, "grid.color": plotting.PALE, "axes.axisbelow": True}
    style |= {"axes.prop_cycle": cycler(color=CURVES)}
    with matplotlib.rc_context(plotting.STYLE | style):
        figure = Figure(figsize=experiment.size, layout="constrained")
        experiment.draw(records, figure)
        title = {"x": 0.01, "ha": "left", "fontsize": 13, "fontweight": "bold"}
        figure.suptitle(figure.get_suptitle(), **title)
        file = io.BytesIO()
        figure.savefig(file, format="png", dpi=110, metadata={"Software": None})
    return file.getvalue()


PAGE = """# {title}

`python -m experiments {name}`. The prediction was committed before any result.

{prediction}

## Outcome

{outcome}

![The figure of this experiment]({name}.png)

All {count} records: [{name}.csv]({name}.csv).

## Settings

{settings}

{minutes:.1f} minutes on {device} with JAX {version}.
"""
