"""Take docs/panel.png, the picture of the panel in the README and in notebook 2.

    python -m benchmarks.panel_picture

Needs Chromium and `pip install -e ".[browser]"`; takes a minute. Afterwards
`python notebooks/execute.py 02_explore` takes the picture over.
"""

from __future__ import annotations

import io
import json
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from browser.lab import chromium_path, jupyterlab, open_lab, open_notebook, run_all, shut_down  # noqa: E402
from browser.panel import Panel  # noqa: E402

PICTURE = ROOT / "docs" / "panel.png"
_CELL = "import sparsity\nsparsity.explore('exp', 'relu2', beta=-1, gamma=2, length=256)"
_COLOURS = 128  # of the palette
_AT = 0.33  # along the x-axis, where the values of softmax are shown: the place below is empty


def take() -> bytes:
    """Return the picture: two rows of 1024 tokens, two of 256 pinned, and one curve's values."""
    from PIL import Image
    from playwright.sync_api import sync_playwright

    notebook = json.loads((ROOT / "notebooks/02_explore.ipynb").read_text("utf-8"))
    code = {"cell_type": "code", "execution_count": None, "metadata": {}, "outputs": []}
    notebook["cells"] = [code | {"id": "panel", "source": _CELL}]
    path = chromium_path("chromium-headless-shell", "chromium")
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as driver:
        notebooks = Path(folder) / "notebooks"
        notebooks.mkdir()
        (notebooks / "panel.ipynb").write_text(json.dumps(notebook), "utf-8")
        browser = driver.chromium.launch(executable_path=path, args=["--no-sandbox"])
        with jupyterlab(Path(folder), notebooks) as lab:
            page = browser.new_page(viewport={"width": 1500, "height": 1400})
            open_lab(page, lab)
            open_notebook(page, "panel.ipynb")
            run_all(page)
            panel = Panel(page)
            still = "return root.querySelector('.status').textContent === ''"
            panel.wait_for(still)
            panel.button("Pin these curves").click()
            panel.settled()
            panel.type("length", "1024")
            panel.wait_for(still)
            chart, box = panel.place("svg.chart"), panel.box()
            path = panel.path("live exp", "exact")
            u, v = path[abs(path[:, 0] - _AT).argmin()]
            x, y = box["left"] + u * box["width"], box["top"] + (1 - v) * box["height"]
            page.mouse.move(chart["x"] + x, chart["y"] + y)
            content = panel.root.screenshot()
            shut_down(page)
        browser.close()
    small = io.BytesIO()
    image = Image.open(io.BytesIO(content)).convert("RGB")
    image.quantize(_COLOURS, Image.Quantize.MAXCOVERAGE).save(small, "png", optimize=True)
    return small.getvalue()


if __name__ == "__main__":
    PICTURE.write_bytes(take())
