"""Each notebook opened in JupyterLab: as it is saved, and run from top to bottom."""

import json

import pytest
from test_notebooks import NOTEBOOKS, code, parts

from browser.lab import open_notebook, open_unrun, pictures, run_all

pytestmark = [pytest.mark.browser, pytest.mark.wide]  # `-m notebook` runs them as well


# Before one is run.
def test_saved_figures_are_seen_by_who_trusts_nothing(notebook):
    for path in NOTEBOOKS:
        open_unrun(notebook, path.name)
        seen = pictures(notebook)
        cells = code(json.loads(path.read_text("utf-8")))
        saved = ["image/png" in parts(output) for cell in cells for output in cell["outputs"]]
        assert any(saved) or path.stem == "06_on_a_gpu"
        assert sum(cell["shown"] for cell in seen) == sum(saved)
        assert not any(cell["trusted"] for cell in seen)


@pytest.mark.parametrize("name", [path.stem for path in NOTEBOOKS])
def test_it_runs_without_an_error(notebook, name):
    open_notebook(notebook, f"{name}.ipynb")
    cells = run_all(notebook)
    assert len(cells) >= 3
    for cell in cells:
        assert cell["count"]
        for output in cell["outputs"]:
            assert output["type"] != "error", output
            assert output["name"] != "stderr", output
    if name == "02_explore":
        notebook.locator(".sparsity-panel svg.chart path.limit").first.wait_for()
