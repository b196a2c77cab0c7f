"""Every notebook runs in a clean kernel, without warnings or empty figures."""

import asyncio
import base64
import io
import json
import os
import re
from pathlib import Path

import numpy as np
import pytest

NOTEBOOKS = sorted((Path(__file__).resolve().parents[1] / "notebooks").glob("*.ipynb"))
NAMES = (
    "01_the_article",
    "02_explore",
    "03_length",
    "04_positions_and_sinks",
    "05_your_own_kernel",
    "06_on_a_gpu",
    "07_a_real_model",
)
SECONDS = 120  # of a cell, beside other work: one that hangs fails
FIGURES = {"01": 7, "03": 3, "04": 2, "05": 1, "07": 5}  # that a run must draw


def execute(notebook, home):
    """Run a notebook in a kernel of its own that knows nothing of the user's configuration."""
    import nbclient
    import nbformat

    environment = os.environ | {
        "JUPYTER_CONFIG_DIR": str(home),
        "JUPYTER_DATA_DIR": str(home),
        "JUPYTER_RUNTIME_DIR": str(home),
        "IPYTHONDIR": str(home / "ipython"),
        "PYTHONWARNINGS": "default",
        "PYTHONPATH": str(Path(__file__).resolve().parents[1]),
        "PYDEVD_DISABLE_FILE_VALIDATION": "1",
    }
    environment.pop("MPLBACKEND", None)  # figures inline, as a reader sees them
    notebook = nbformat.reads(json.dumps(notebook), as_version=4)
    client = nbclient.NotebookClient(
        notebook, kernel_name="python3", timeout=SECONDS, iopub_timeout=10
    )
    asyncio.run(client.async_execute(env=environment))
    return notebook


def complaints(notebook):
    """What a run must not leave: warnings and anything else on stderr, and empty figures."""
    found = []
    for cell in notebook["cells"]:
        for output in cell.get("outputs", []):
            if output["output_type"] == "error":
                found.append(f"error: {output['ename']}: {output['evalue']}")
            if output.get("name") == "stderr" or "Warning:" in str(output.get("text", "")):
                found.append(f"stderr: {output['text']}")
            found += [
                f"empty figure in {cell['source'][:60]}" for f in figures(output) if empty(*f)
            ]
    return found


def figures(output):
    data = output.get("data", {})
    return [(kind, data[kind]) for kind in ("image/svg+xml", "image/png") if kind in data]


def empty(kind, data):
    """Whether nothing is drawn inside the axes of a figure."""
    data = "".join(data) if isinstance(data, list) else data
    if kind == "image/svg+xml":
        lines = re.findall(r'<path d="([^"]+)"[^>]*style="fill: none; stroke', data)
        return not any(path.count("L") >= 10 for path in lines)
    from PIL import Image

    pixels = np.asarray(Image.open(io.BytesIO(base64.b64decode(data))).convert("RGB"))
    inner = pixels[pixels.shape[0] // 6 : -pixels.shape[0] // 6, pixels.shape[1] // 6 : -20]
    spread = inner.max(axis=2).astype(int) - inner.min(axis=2)
    return (spread > 60).mean() < 1e-3  # colour is what curves are drawn in


def test_all_notebooks_are_there():
    assert tuple(path.stem for path in NOTEBOOKS) == NAMES


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_outputs_are_stripped(path):
    notebook = json.loads(path.read_text("utf-8"))
    for cell in notebook["cells"]:
        assert cell["metadata"] == {}
        if cell["cell_type"] == "code":
            assert cell["outputs"] == []
            assert cell["execution_count"] is None
    assert path.stat().st_size < 12_000  # thin


@pytest.mark.notebook
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(path, tmp_path):
    done = execute(json.loads(path.read_text("utf-8")), tmp_path)
    assert complaints(done) == []
    code = [cell for cell in done["cells"] if cell["cell_type"] == "code"]
    assert all(cell["execution_count"] for cell in code)
    drawn = sum(len(figures(output)) for cell in code for output in cell["outputs"])
    assert drawn >= FIGURES.get(path.stem[:2], 0)


@pytest.mark.notebook
@pytest.mark.parametrize(
    ("source", "complaint"),
    [
        ("import warnings\nwarnings.warn('look out')", "look out"),
        ("import matplotlib.pyplot as plt\nplt.plot([])\nNone", "empty figure"),
        ("import sys\nprint('x', file=sys.stderr)", "stderr"),
    ],
)
def test_a_planted_fault_is_seen(source, complaint, tmp_path):
    cell = {"cell_type": "code", "id": "a", "metadata": {}, "outputs": [], "source": source}
    notebook = {"cells": [cell | {"execution_count": None}], "metadata": {}, "nbformat": 4}
    done = execute(notebook | {"nbformat_minor": 5}, tmp_path)
    assert complaint in "".join(complaints(done))
