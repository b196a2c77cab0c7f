"""A real browser, and a JupyterLab of its own; both fail, and never skip, when they are missing."""

import json
import os
import shutil
import uuid
from pathlib import Path

import pytest

from browser.guard import Guard
from browser.lab import jupyterlab, open_notebook, run_all, shut_down
from browser.panel import Panel

NOTEBOOKS = Path(__file__).resolve().parents[2] / "notebooks"
PANEL_CELL = "import sparsity\npanel = sparsity.explore()\npanel"


@pytest.fixture(scope="session")
def chromium():
    """Debian's Chromium, started."""
    from playwright.sync_api import sync_playwright

    path = os.environ.get("CHROMIUM") or shutil.which("chromium")
    if not path:
        pytest.fail("no Chromium: apt-get install chromium, or set CHROMIUM to its path")
    with sync_playwright() as driver:
        browser = driver.chromium.launch(
            executable_path=path, args=["--no-sandbox", "--disable-dev-shm-usage"]
        )
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def lab(tmp_path_factory):
    """JupyterLab over copies of the notebooks and a notebook with nothing but the panel."""
    home = tmp_path_factory.mktemp("lab")
    root = home / "notebooks"
    shutil.copytree(NOTEBOOKS, root)
    notebook = json.loads((NOTEBOOKS / "02_explore.ipynb").read_text("utf-8"))
    code = {"cell_type": "code", "execution_count": None, "metadata": {}, "outputs": []}
    notebook["cells"] = [code | {"id": "panel", "source": PANEL_CELL}]
    (root / "panel.ipynb").write_text(json.dumps(notebook), "utf-8")
    with jupyterlab(home, root) as server:
        yield server


@pytest.fixture
def notebook(chromium, lab):
    """A guarded page for one notebook."""
    guard = Guard(
        chromium, [f"http://127.0.0.1:{lab.port}/"], viewport={"width": 1280, "height": 1000}
    )
    yield guard.page
    guard.check()
    shut_down(guard.page)
    guard.context.close()


@pytest.fixture(scope="module")
def shared_panel(chromium, lab):
    """One panel for many tests."""
    allowed = [f"http://127.0.0.1:{lab.port}/"]
    guard = Guard(
        chromium,
        allowed,
        viewport={"width": 1280, "height": 1000},
        accept_downloads=True,
        permissions=["clipboard-read", "clipboard-write"],
    )
    own = f"{uuid.uuid4().hex}.ipynb"  # what an earlier page saved would name models that are gone
    shutil.copy(lab.root / "panel.ipynb", lab.root / own)
    open_notebook(guard.page, lab, own)
    run_all(guard.page)
    yield Panel(guard.page)
    guard.check()  # before the kernel goes and leaves the view without its model
    shut_down(guard.page)
    guard.context.close()


@pytest.fixture
def panel(shared_panel):
    """That panel, as it starts, at 1280 pixels."""
    size = {"width": 1280, "height": 1000}
    if shared_panel.page.viewport_size != size:  # the whole page would be laid out anew
        shared_panel.page.set_viewport_size(size)
    shared_panel.button("Reset").evaluate("button => button.click()")  # no scrolling there
    shared_panel.settled()
    return shared_panel


@pytest.fixture
def guarded(chromium):
    """(allowed addresses, options) -> a guarded page, closed and judged at the end."""
    opened = []

    def make(allowed, **options):
        opened.append(Guard(chromium, allowed, **options))
        return opened[-1].page

    yield make
    for guard in opened:
        guard.close()
