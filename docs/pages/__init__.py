"""The pages that are written when the site is built: from the package, and never typed in."""

from collections.abc import Callable
from pathlib import Path

from pages import catalogue, claims, crosscheck, derivations, experiments, gallery, reference
from sparsity import browser

ALL: tuple[tuple[str, Callable[[], str]], ...] = (
    ("gallery", gallery.page),
    ("derivations", derivations.page),
    ("catalogue", catalogue.page),
    ("claims", claims.page),
    ("crosscheck", crosscheck.page),
    ("experiments", experiments.page),
    *((f"api-{part.name}", part.page) for part in reference.ALL),
)

# Types that signatures name and that no user makes or reads.
INNER = (
    *(
        "Capacity",
        "CappedKernel",
        "Comparison",
        "Config",
        "Description",
        "Exceeds",
        "FinishedRows",
        "FusedRows",
        "Integral",
        "LargestLogit",
        "QKClip",
    ),
    *(
        "LayerKind",
        "Linear",
        "LongRows",
        "LseRows",
        "NeedleLaw",
        "Panel",
        "RankLaw",
        "Reach",
        "Requirement",
    ),
    *("RopeScaling", "Routes", "RowLike", "RowSums", "Sampling", "Series", "SupportsArray"),
    *("TaskExecutor", "Tokenizer", "Tokens"),
)


def write(folder: Path) -> None:
    """Write every page; one that is the same already is left alone, and so not built again."""
    folder.mkdir(exist_ok=True)
    gallery.draw(folder)
    (folder / "root").mkdir(exist_ok=True)  # what stands beside the pages as it is
    browser.save(folder / "root" / "explore.html", browser.Start())
    for name, page in ALL:
        path, text = folder / f"{name}.md", page()
        if not path.exists() or path.read_text("utf-8") != text:
            path.write_text(text, "utf-8")
