"""How fast the page to send answers a slider, in milliseconds of its own processor time.

    python -m benchmarks.page

Needs Chromium and `pip install -e ".[browser]"`; takes seconds. Moves every slider of 80 views from
where nothing is known, and prints the median and the 95th percentile; other work shares the cores
and does not count. Last the same with a loop of some 100 ms planted into every answer: a control.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from browser.lab import chromium_path

from sparsity.plots import browser as pages

_ANSWER = """(k) => {
  const control = SETTING.controls[k % 3]; // β, γ and n
  const slider = document.querySelector(`input[type=range][data-name=${control.name}]`);
  lines.clear(); // nothing is known from an earlier position
  slider.value = Math.floor(Math.abs(Math.sin(7.13 * k + 1)) * control.stops.length);
  slider.dispatchEvent(new Event("input"));
  document.body.getBoundingClientRect(); // laid out as well
  clearTimeout(draw.rest); // points between those that were drawn at once
}"""
_PLANTED = """() => {
  const was = fill;
  fill = (...a) => { for (let i = 0, x = 0; i < 1e8; i++) x += Math.sqrt(i); was(...a); };
}"""
_PARTS = ("ScriptDuration", "LayoutDuration", "RecalcStyleDuration")


def answers(page: Any, count: int) -> list[float]:
    """Return the processor time of the page in each of `count` answers, in ms."""
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable", {"timeDomain": "threadTicks"})

    def spent() -> float:
        metrics = session.send("Performance.getMetrics")["metrics"]
        return sum(metric["value"] for metric in metrics if metric["name"] in _PARTS)

    times = []
    for k in range(count):
        before = spent()
        page.evaluate(_ANSWER, k)
        times.append(1000 * (spent() - before))
    return times


def main() -> None:
    """Print both figures, and the control."""
    from playwright.sync_api import sync_playwright

    path = chromium_path("chromium-headless-shell", "chromium")
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as driver:
        pages.save(Path(folder) / "page.html", pages.Start())
        page = driver.chromium.launch(executable_path=path, args=["--no-sandbox"]).new_page()
        page.goto((Path(folder) / "page.html").as_uri())
        times = []
        for x in ("gamma", "beta", "length", "dim"):
            page.evaluate("(x) => change('x', x)", x)
            times += answers(page, 20)
        print(f"{len(times)} answers: median {np.median(times):.1f} ms, "
              f"95th percentile {np.percentile(times, 95):.1f} ms")  # fmt: skip
        page.evaluate(_PLANTED)
        print(f"with a planted loop: median {np.median(answers(page, 5)):.1f} ms")


if __name__ == "__main__":
    main()
