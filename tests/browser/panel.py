"""The panel as a person finds it: its controls by their labels, its curves as they are drawn."""

from __future__ import annotations

import json
import re
from typing import Any

import numpy as np

from browser.guard import HANG

_RAISED = "⁰¹²³⁴⁵⁶⁷⁸⁹"
_DIGITS = str.maketrans(_RAISED, "0123456789")

_WATCH = """() => {
  const root = document.querySelector('.sparsity-panel');
  const all = () => [...root.querySelectorAll('path.limit')]; // not what is filled in later
  const lines = () => all().map((p) => p.getAttribute('d')).join();
  window.hand = { presses: [], changes: [], last: lines() };
  window.addEventListener('keydown', (e) => window.hand.presses.push(e.timeStamp), true);
  new MutationObserver(() => {
    const now = lines();
    if (now === window.hand.last) return;
    window.hand.last = now;
    requestAnimationFrame((frame) => window.hand.changes.push(performance.now()));
  }).observe(root.querySelector('.plot'), { childList: true });
}"""

# An edit sets `waiting` before its event ends. No frames are asked for: they cost more than it.
_SETTLED = """(hang) => new Promise((resolve, reject) => {
  const root = document.querySelector('.sparsity-panel');
  const late = setTimeout(() => reject(new Error('no answer')), hang);
  const look = () => {
    if (root.dataset.waiting) return;
    clearTimeout(late);
    answers.disconnect();
    resolve();
  };
  const answers = new MutationObserver(look);
  answers.observe(root, { attributeFilter: ['data-waiting'] });
  look();
})"""


class Panel:
    def __init__(self, page: Any) -> None:
        self.page = page
        self.root = page.locator(".sparsity-panel")
        self.root.locator("svg.chart").wait_for(timeout=HANG)
        self.watching = False

    # --- controls ---------------------------------------------------------------------------

    def slider(self, name: str) -> Any:
        return self.root.locator(f"input[type=range][data-name={name}]")

    def field(self, name: str) -> Any:
        return self.root.locator(f"input[type=text][data-name={name}]")

    def button(self, words: str) -> Any:
        return self.root.get_by_role("button", name=words, exact=True)

    def choose(self, name: str, value: str) -> None:
        self.root.locator(f"select[data-name={name}]").select_option(value)
        self.settled()

    def kernels(self, *names: str) -> None:
        """Tick these and no others."""
        boxes = self.root.locator("fieldset .boxes input")
        read = "all => all.map((box) => [box.value, box.checked])"
        for k, (name, ticked) in enumerate(boxes.evaluate_all(read)):
            if ticked != (name in names):
                boxes.nth(k).set_checked(not ticked)
        self.settled()

    def sampling(self, wanted: bool) -> None:
        """Whether the panel samples when at rest."""
        self.root.get_by_label("Monte Carlo when at rest").set_checked(wanted)
        self.settled()

    def type(self, name: str, text: str) -> None:
        self.field(name).fill(text)
        self.field(name).press("Enter")
        self.settled()

    def message(self, name: str) -> str:
        return self.root.locator(f".parameter:has([data-name={name}]) .message").inner_text()

    def reset(self) -> None:
        self.button("Reset").click()
        self.settled()

    # --- what is shown ----------------------------------------------------------------------

    def settled(self) -> None:
        """Wait until the last edit is answered: its value stands in the Python call."""
        self.page.evaluate(_SETTLED, HANG)

    def wait_for(self, predicate: str) -> None:
        """Wait for a condition on the panel, as JavaScript of `root`."""
        script = f"() => {{ const root = document.querySelector('.sparsity-panel'); {predicate} }}"
        self.page.wait_for_function(script, timeout=HANG, polling=50)

    def place(self, selector: str) -> dict[str, float]:
        """Where a part stands, read in one step: the chart may be drawn anew at any time."""
        script = """(selector) => {
          const found = document.querySelector(`.sparsity-panel ${selector}`);
          const box = found && found.getBoundingClientRect();
          return box && box.width > 0 && box.toJSON();
        }"""
        return self.page.wait_for_function(script, arg=selector, timeout=HANG).json_value()

    def curves(self) -> list[str]:
        rows = self.root.locator("tbody tr[data-curve]").all()
        return [row.get_attribute("data-curve") for row in rows]

    def number(self, curve: str, of: str) -> float:
        """A number of the table as sent: "S", "S_rms" or "n_eff"."""
        cell = self.root.locator(f'tr[data-curve="{curve}"] td[data-of={of}]')
        text = cell.get_attribute("data-value")
        return float(text) if text else float("nan")

    def box(self) -> dict[str, float]:
        chart = self.root.locator("svg.chart")
        return {
            k: float(chart.get_attribute(f"data-{k}")) for k in ("left", "top", "width", "height")
        }

    def path(self, curve: str, kind: str = "limit") -> np.ndarray:
        """The drawn path in the unit square, [points, 2]; one hundredth of a pixel is kept."""
        found = self.root.locator(f'path.{kind}:not(.stale)[data-curve="{curve}"]')
        d, box = found.get_attribute("d"), self.box()
        xy = np.array(
            [[float(n) for n in pair] for pair in re.findall(r"[ML]([-\d.]+),([-\d.]+)", d)]
        )
        xy -= [box["left"], box["top"]]
        return np.abs([0, 1] - xy / [box["width"], box["height"]])

    def ticks(self) -> list[tuple[float, float]]:
        """(place, value) of the labels under the axis, as a reader takes them."""
        box, found = self.box(), []
        for tick in self.root.locator("text.tick-x").all():
            text = tick.inner_html().replace("−", "-")
            if text.startswith("10") and len(text) > 2 and text[2] in _RAISED:
                value = 10.0 ** int(text[2:].translate(_DIGITS))
            else:  # 4K is 4096
                power = "KMG".find(text[-1]) + 1
                value = float(text.rstrip("KMG")) * 1024.0**power
            found.append(((float(tick.get_attribute("x")) - box["left"]) / box["width"], value))
        return found

    def python(self) -> str:
        return self.root.locator("pre.code").first.inner_text()

    # --- the hand ---------------------------------------------------------------------------

    def watch(self) -> None:
        """Start to record key presses and the frames in which curves change."""
        self.page.evaluate(_WATCH)

    def recorded(self) -> dict[str, list[float]]:
        return json.loads(self.page.evaluate("() => JSON.stringify(window.hand)"))
