"""A real browser, and a JupyterLab of its own; both fail, and never skip, when they are missing."""

import json
import shutil
import uuid
from pathlib import Path

import pytest

from browser.guard import Guard
from browser.lab import chromium_path, jupyterlab, open_lab, open_notebook, run_all, shut_down
from browser.panel import Panel

NOTEBOOKS = Path(__file__).resolve().parents[2] / "notebooks"
PANEL_CELL = "import sparsity\npanel = sparsity.explore(sampling=False)\npanel"  # see `panel`


@pytest.fixture(scope="session")
def chromium():
    """Debian's Chromium, started: the build without a window, which takes a quarter less work."""
    from playwright.sync_api import sync_playwright

    path = chromium_path("chromium-headless-shell", "chromium")
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


SIZE = {"width": 1280, "height": 1000}


@pytest.fixture(scope="session")
def jupyter(chromium, lab):
    """JupyterLab in one guarded page: to load it is a good part of what a notebook takes."""
    guard = Guard(
        chromium,
        [f"http://127.0.0.1:{lab.port}/"],
        viewport=SIZE,
        accept_downloads=True,
        permissions=["clipboard-read", "clipboard-write"],
    )
    open_lab(guard.page, lab)
    yield guard
    guard.context.close()


@pytest.fixture
def notebook(jupyter):
    """That page for one notebook after the other, judged at the end."""
    resize(jupyter.page)
    yield jupyter.page
    jupyter.check()
    shut_down(jupyter.page)


@pytest.fixture(scope="module")
def shared_panel(jupyter, lab):
    """One panel for many tests."""
    own = f"{uuid.uuid4().hex}.ipynb"  # what an earlier page saved would name models that are gone
    shutil.copy(lab.root / "panel.ipynb", lab.root / own)
    open_notebook(jupyter.page, own)
    run_all(jupyter.page)
    yield Panel(jupyter.page)
    jupyter.check()
    shut_down(jupyter.page)


@pytest.fixture
def panel(shared_panel):
    """That panel, as it starts, at 1280 pixels; a test of points asks for them."""
    resize(shared_panel.page)
    shared_panel.button("Reset").evaluate("button => button.click()")  # no scrolling there
    shared_panel.settled()
    return shared_panel


def resize(page):
    if page.viewport_size != SIZE:  # the whole page would be laid out anew
        page.set_viewport_size(SIZE)


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
