"""Draw docs/first.png, the picture of the README, by the README's own lines.

    python -m benchmarks.first_picture

The numbers that the picture shows are stored in it, as text; a test draws them again.
"""

from __future__ import annotations

import contextlib
import json
import re
import tempfile
from pathlib import Path
from typing import Any

import jax
import matplotlib
import numpy as np

HOME = Path(__file__).parents[1]
PICTURE = HOME / "docs" / "first.png"
KEY = "Data"  # of the text in the picture


def code() -> str:
    """The first Python of the README."""
    found = re.search(r"```python\n(.*?)```", (HOME / "README.md").read_text("utf-8"), re.S)
    assert found is not None
    return found[1]


def drawn() -> Any:
    """Run that code, in a namespace and a folder of its own; the figure that it leaves.

    Raises:
        FileNotFoundError: the code saved no picture.
    """
    from matplotlib import pyplot

    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        exec(compile(code(), "README.md", "exec"), {})
        if not any(Path(folder).glob("*.png")):
            raise FileNotFoundError("the first example of the README saves no picture")
    return pyplot.gcf()


def numbers(figure: Any) -> list[list[list[float]]]:
    """(x, y) of every line and set of points in the figure's axes, in the order drawn."""
    (ax,) = figure.axes
    return [np.asarray(line.get_xydata(), float).tolist() for line in ax.lines]


if __name__ == "__main__":
    matplotlib.use("Agg")
    jax.config.update("jax_enable_x64", True)  # as in the tests
    figure = drawn()
    text = json.dumps(numbers(figure), separators=(",", ":"))
    figure.savefig(PICTURE, dpi=110, metadata={KEY: text, "Software": None})
