"""The panel itself: messages in, pictures out, and one thread that fills in what takes longer.

A browser holds at most one unanswered message and merges what happens meanwhile into the next, so
the last position of a slider wins and nothing queues up. Every message is therefore answered, even
by a refusal: a browser that waits would never send another.

Two threads share a panel. That of the kernel receives messages, changes the state and answers; the
panel's own computes, and sends pictures as it goes. `_lock` is held by whoever changes the state or
sends a picture, so that pictures come in the order of their numbers. `_generation` counts states:
work that began under an earlier number stops at its next check.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import anywidget

from sparsity.errors import InputError
from sparsity.kernels.queries import NAMES
from sparsity.panel import background
from sparsity.panel.export import as_page, csv_table, plot_source, python_source
from sparsity.panel.picture import picture
from sparsity.panel.state import State, edit, why_not_plotted
from sparsity.panel.store import Store
from sparsity.plots import browser
from sparsity.plots.axes import quantity_axis
from sparsity.plots.axes.controls import CONTROLS

# Seconds without an edit before anything is filled in, and before sampling. While a slider moves,
# only closed forms are drawn. A shorter pause begins work that the next move throws away; a longer
# one is time in which nothing is computed.
_PAUSE_BEFORE_LAWS, _PAUSE_BEFORE_SAMPLES = 0.12, 0.3
_LAWS_AT_FIRST = 4.0  # seconds for each curve before it is the samples' turn
_BETWEEN_PICTURES = 0.1  # seconds, while filling in: a picture costs time that computes nothing

_ALWAYS_SHOWN = {"beta", "gamma", "length", "decay", "ratio", "dim"}  # controls

_FRONT = files("sparsity.panel") / "front"


class Panel(anywidget.AnyWidget):
    """The live panel. Show it as the last expression of a cell.

    Args:
        state: the state that it starts in, and returns to on a reset.
    """

    _esm = "\n".join(
        (_FRONT / name).read_text("utf-8") for name in ("chart.js", "hover.js", "panel.js")
    )
    _css = (_FRONT / "panel.css").read_text("utf-8")

    def __init__(self, state: State) -> None:
        super().__init__()
        self._start = self.state = state
        self._store, self._sent, self._working = Store(), 0, ""
        self._generation, self._closed = 0, False
        self._lock, self._news = threading.Lock(), threading.Condition()
        self._thread: threading.Thread | None = None
        self.on_msg(self._receive)

    def python(self) -> str:
        """Return the calls that compute the numbers shown, then the one that draws the chart."""
        return f"{python_source(self.state)}\n\n{plot_source(self.state)}"

    def csv(self) -> str:
        return csv_table(self.state, self._store)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write what is shown as one file that needs no Python and no network.

        Args:
            path: a name that ends in .html; a file of that name is replaced.

        Returns:
            The file.

        Raises:
            InputError: what is shown is nothing that a page has, or the file cannot be written.
        """
        return browser.save(path, as_page(self.state))

    def close(self) -> None:
        """Close the panel: its thread ends, and its views go."""
        with self._news:
            self._closed = True
            self._generation += 1
            self._news.notify_all()
        super().close()

    def _receive(self, _: Any, content: Any, buffers: Any) -> None:
        """Make the edits of one message and answer with a picture, or with what went wrong."""
        content = content if isinstance(content, dict) else {}
        if content.get("nudge"):  # see panel.js: it is there to be received
            return
        with self._lock:
            before = self.state
            answer: dict[str, Any] = {"to": content.get("view"), "seq": content.get("seq")}
            try:
                answer["errors"] = self._edit(content.get("edits") or [])
                if self.state is not before or self._thread is None:
                    with self._news:
                        self._generation += 1
                        self._working = "filling in"
                        self._news.notify_all()
                self._show(answer, whole=bool(content.get("hello")))
                if content.get("csv"):
                    self.send({"kind": "csv", "text": self.csv(), **answer})
            except Exception as error:  # noqa: BLE001 - a panel that fails must say so and live on
                self.state = before
                said = {getattr(error, "argument", "panel"): str(error)}
                self.send({"kind": "refused", **answer, "errors": said})
            # Not before the first picture: while it is made, nothing else takes the processor.
            if self._thread is None:
                self._thread = threading.Thread(target=self._fill, name="panel", daemon=True)
                self._thread.start()

    def _edit(self, edits: Any) -> dict[str, str]:
        """Make the edits that can be made; return what is wrong with the others, by name."""
        errors = {}
        for change in edits:
            try:
                name, value = change
                self.state = self._start if name == "reset" else edit(self.state, name, value)
            except InputError as error:
                errors[error.argument] = str(error)
        return errors

    def _show(self, answer: dict[str, Any], whole: bool = False) -> None:
        """Send the picture of the state.

        Args:
            answer: which view's message it answers, and with what errors; empty where none.
            whole: whether to send the controls and formulas too, for a view that is new.
        """
        state = self.state
        content, data = picture(state, self._store)
        self._sent += 1
        content |= {"kind": "picture", "number": self._sent, "working": self._working, **answer}
        content |= {"state": _summary(state), "python": python_source(state)}
        content["plot"] = plot_source(state)
        if whole:
            content["setting"] = _setting(state)
            content["formulas"] = self._formulas(state)
        self.send(content, [data])

    def _send_formulas(self) -> None:
        self.send({"kind": "formulas", "formulas": self._formulas(self.state)})

    def _formulas(self, state: State) -> dict[str, tuple[str, str]]:
        formulas = {name: self._store.formulas.get(name) for name in state.shown}
        return {name: written for name, written in formulas.items() if written}

    def _fill(self) -> None:
        """Fill in whatever is new until the next edit, for ever: the work of the thread."""
        seen = -1
        while True:
            with self._news:
                self._news.wait_for(lambda seen=seen: self._closed or self._generation != seen)
                if self._closed:
                    return
                seen = self._generation
            try:
                self._fill_in(self.state, seen)
                self._say("", seen)
            except background.StateMoved:
                continue  # with the newest state; those in between were never looked at
            except Exception as error:  # noqa: BLE001 - a panel that fails must say so and live on
                with contextlib.suppress(background.StateMoved):
                    self._say(f"stopped: {type(error).__name__}: {error}", seen)

    def _fill_in(self, state: State, seen: int) -> None:
        """Fill in laws, formulas and samples of a state, unless and until it moves on."""

        def check() -> None:
            self._check(seen)

        def fill(work: Iterator[None], label: str) -> None:
            last, news = time.monotonic(), False
            for _ in work:
                # A thread that computes gives the interpreter back only when asked: asleep, it lets
                # the one that answers a message go first.
                time.sleep(0.001)
                check()
                news = True
                if time.monotonic() - last > _BETWEEN_PICTURES:
                    self._say(label, seen)
                    last, news = time.monotonic(), False
            if news:
                self._say(label, seen)

        law, store = "filling in the exact law", self._store
        self._wait(_PAUSE_BEFORE_LAWS, seen)
        fill(background.fill_laws(state, store, _LAWS_AT_FIRST), law)
        self._send_formulas()  # one may have been found when the state had moved on
        for _ in background.fill_formulas(state, store):
            self._send_formulas()
            check()
        if state.sampling:
            self._wait(_PAUSE_BEFORE_SAMPLES, seen)
            fill(background.fill_samples(state, store, check), "sampling")
        fill(background.fill_laws(state, store), law)

    def _check(self, seen: int) -> None:
        """Raise if the state has moved on."""
        if self._generation != seen:
            raise background.StateMoved

    def _wait(self, seconds: float, seen: int) -> None:
        """Wait, unless and until the state moves on."""
        with self._news:
            self._news.wait_for(lambda: self._generation != seen, timeout=seconds)
        self._check(seen)

    def _say(self, working: str, seen: int) -> None:
        """Send a picture with what has been found, unless the state has moved on."""
        with self._lock:
            self._check(seen)
            self._working = working
            self._show({})


def _summary(state: State) -> dict[str, Any]:
    """Return what the controls show in a state, in JSON's types."""
    return {
        **{name: getattr(state, name) for name in ("rows", "query", "x", "sampling")},
        "y": state.y.partition(":")[0],
        "argument": quantity_axis.argument(state.y),
        "refused": why_not_plotted(state),
        "kernels": [{"name": k.name, "title": k.title} for k in state.known],
        "shown": list(state.shown),
        "values": dict(state.values),
        "uses": sorted(state.uses()),
        "stops": {
            name: CONTROLS[name].stops(value)
            for name, value in state.values
            if CONTROLS[name].ends(value) != (CONTROLS[name].low, CONTROLS[name].high)
        },
    }


def _setting(state: State) -> dict[str, Any]:
    """Return what the controls are: sent to each view once, as it does not change."""
    offered = quantity_axis.offered()
    return {
        "rows": [{"name": r.name, "title": r.title} for r in state.laws],
        "own": sorted(CONTROLS.keys() - _ALWAYS_SHOWN),
        "queries": list(NAMES),
        "y": [dict(zip(("name", "words", "title"), choice, strict=True)) for choice in offered],
        "controls": [
            {
                "name": name,
                "symbol": control.symbol,
                "label": control.label,
                "meaning": control.parameter.meaning,
                "domain": control.parameter.domain,
                "stops": control.stops(control.start),
            }
            for name, control in CONTROLS.items()
        ],
    }
