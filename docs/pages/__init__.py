"""The pages that are written when the site is built: from the package, and never typed in."""

import shutil
from collections.abc import Callable
from pathlib import Path

from pages import catalogue, experiments, plots, reference

FIGURES = Path(__file__).resolve().parents[2] / "figures"

ALL: tuple[tuple[str, Callable[[], str]], ...] = (
    ("plots", plots.page),
    ("catalogue", catalogue.page),
    ("experiments", experiments.page),
    *((f"api-{part.name}", part.page) for part in reference.ALL),
)

# Types that signatures name and that no user makes or reads.
INNER = [
    "BelowLaw",
    "Call",
    "Capacity",
    "CappedKernel",
    "Comparison",
    "Config",
    "Description",
    "Exceeds",
    "FinishedRows",
    "FusedRows",
    "Integral",
    "KeysLaw",
    "LargestLogit",
    "LayerKind",
    "Linear",
    "LongRows",
    "LseRows",
    "NeedleLaw",
    "OfLongRows",
    "OfRows",
    "OnAxes",
    "Output",
    "PairLaw",
    "Panel",
    "Parameters",
    "QKClip",
    "RankLaw",
    "Reach",
    "Requirement",
    "RopeScaling",
    "Routes",
    "RowLike",
    "RowSums",
    "Sampling",
    "Series",
    "Several",
    "SupportsArray",
    "TaskExecutor",
    "Tokens",
]


def write(folder: Path) -> None:
    """Write every page; one that is the same already is left alone, and so not built again."""
    folder.mkdir(exist_ok=True)
    plots.draw(folder)
    # What `sparsity reproduce` wrote stands beside the pages as it is: the report and its figures.
    shutil.copytree(FIGURES, folder / "root" / "figures", dirs_exist_ok=True)
    for name, page in ALL:
        path, text = folder / f"{name}.md", page()
        if not path.exists() or path.read_text("utf-8") != text:
            path.write_text(text, "utf-8")
