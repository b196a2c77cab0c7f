"""Response time: from a key press to the frame that shows the changed curves."""

from __future__ import annotations

from typing import Any

from browser.panel import Panel
from sparsity.kernels import ALL

P50, P95 = 50.0, 100.0  # milliseconds: what is promised, 5 curves of 400 points, two cores


def every_kernel(panel: Panel) -> None:
    """Curves of all kernels, 400 points each along β; those of scores γ moves."""
    panel.kernels(*(kernel.name for kernel in ALL))
    panel.choose("x", "beta")
    assert panel.root.locator("path.limit, path.exact:not(.stale)").count() >= len(ALL)
    panel.watch()


def presses(panel: Panel, count: int, pause: float) -> list[float]:
    """Milliseconds from a press of an arrow key on γ's slider to the curves; pause; and so on."""
    page, found = panel.page, []
    panel.slider("gamma").focus()
    for k in range(count):
        before = len(panel.recorded()["changes"])
        page.keyboard.press("ArrowRight" if k % 2 else "ArrowLeft")
        page.wait_for_function("(n) => window.hand.changes.length > n", arg=before)
        hand = panel.recorded()
        found.append(hand["changes"][before] - hand["presses"][-1])
        page.wait_for_timeout(pause)
    return found


def burst(panel: Panel, count: int = 30) -> dict[str, Any]:
    """`count` presses as fast as they can be made: where it ends, and how often it drew."""
    stops = panel.slider("gamma").get_attribute("max")
    start = int(panel.slider("gamma").input_value())
    before = panel.recorded()
    panel.slider("gamma").focus()
    for _ in range(count):
        panel.page.keyboard.press("ArrowRight")
    panel.settled()
    panel.page.evaluate("() => new Promise((drawn) => requestAnimationFrame(drawn))")
    after = panel.recorded()
    last_press, last_change = after["presses"][-1], after["changes"][-1]
    return {
        "steps": int(panel.slider("gamma").input_value()) - start,
        "of": int(stops or 0),
        "gamma": float(panel.field("gamma").input_value()),
        "drawn": len(after["changes"]) - len(before["changes"]),
        "after_the_last": last_change - last_press,
    }
