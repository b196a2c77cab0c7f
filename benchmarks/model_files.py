"""Fetch a small real model and write real texts: what the measurements of a model run on.

    python -m benchmarks.model_files DIR

The texts are Python's licence and pages of its documentation, as the interpreter that runs this
carries them.
"""

import sys
import sysconfig
from pathlib import Path
from pydoc_data.topics import topics

from sparsity.attention.checkpoints import smollm2

PAGES = ("types", "formatstrings", "debugger")


def texts(folder: Path) -> list[Path]:
    licence = Path(sysconfig.get_path("stdlib")) / "LICENSE.txt"
    found = {"licence": licence.read_text("utf-8")} if licence.exists() else {}
    found |= {name: topics[name] for name in PAGES}
    for name, text in found.items():
        (folder / f"{name}.txt").write_text(text, "utf-8")
    return [folder / f"{name}.txt" for name in found]


if __name__ == "__main__":
    out = Path(sys.argv[1])
    print(smollm2(out), *texts(out), sep="\n")
