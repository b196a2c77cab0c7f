"""Each notebook opened in JupyterLab and run from top to bottom."""

import pytest
from test_notebooks import NAMES

from browser.lab import open_notebook, run_all

pytestmark = pytest.mark.browser


@pytest.mark.parametrize("name", NAMES)
def test_it_runs_without_an_error(notebook, lab, name):
    open_notebook(notebook, lab, f"{name}.ipynb")
    cells = run_all(notebook, 150)
    assert len(cells) >= 3
    for cell in cells:
        assert cell["count"]
        for output in cell["outputs"]:
            assert output["type"] != "error", output
            assert output["name"] != "stderr", output
    if name == "02_explore":
        notebook.locator(".sparsity-panel svg.chart path.limit").first.wait_for(timeout=30_000)
