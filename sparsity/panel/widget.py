"""The panel itself: messages in, pictures out, and one thread that fills in what takes longer.

A browser holds at most one unanswered message and merges what happens meanwhile into the next, so
the last position of a slider wins and nothing queues up.
"""

from __future__ import annotations

import contextlib
import math
import threading
import time
from importlib.resources import files
from typing import Any

import anywidget

from sparsity.axes import quantity_axis
from sparsity.axes.controls import CONTROLS
from sparsity.errors import InputError
from sparsity.kernels.queries import NAMES
from sparsity.panel import background
from sparsity.panel.export import csv_table, python_source
from sparsity.panel.picture import picture
from sparsity.panel.state import State, edit, why_not_plotted
from sparsity.panel.store import Store

_PAUSE = 0.12  # seconds without an edit before anything is filled in: the hand goes first
_REST = 0.3  # seconds without an edit before sampling starts
_AT_FIRST = 4.0  # seconds for each curve before it is the samples' turn
_BREATH = 0.1  # seconds between pictures while filling in

_ALWAYS = {"beta", "gamma", "length", "decay", "ratio", "dim"}  # shown, be they used or not

_FRONT = files("sparsity.panel") / "front"


class Panel(anywidget.AnyWidget):
    """The live panel. Show it as the last expression of a cell.

    Args:
        state: where it starts, and returns to.
    """

    _esm = "\n".join((_FRONT / name).read_text("utf-8") for name in ("chart.js", "panel.js"))
    _css = (_FRONT / "panel.css").read_text("utf-8")

    def __init__(self, state: State) -> None:
        super().__init__()
        self._start = self._state = state
        self._store, self._sent = Store(), 0
        self._generation, self._closed = 0, False
        self._lock, self._news = threading.Lock(), threading.Condition()
        self._thread: threading.Thread | None = None
        self.on_msg(self._receive)

    @property
    def state(self) -> State:
        return self._state

    def python(self) -> str:
        return python_source(self._state)

    def csv(self) -> str:
        return csv_table(self._state, self._store)

    def close(self) -> None:
        """Take it down: the thread ends, views go."""
        with self._news:
            self._closed = True
            self._generation += 1
            self._news.notify_all()
        super().close()

    def _receive(self, _: Any, content: Any, buffers: Any) -> None:
        """Answer one message: edits, then a picture, at once. Whatever happens, it is answered."""
        content = content if isinstance(content, dict) else {}
        if content.get("nudge"):  # see panel.js: it is there to be received
            return
        with self._lock:
            before = self._state
            answer: dict[str, Any] = {"to": content.get("view"), "seq": content.get("seq")}
            try:
                answer["errors"] = self._edit(content.get("edits") or [])
                if self._state is not before or self._thread is None:
                    with self._news:
                        self._generation += 1
                        self._working = "filling in"
                        self._news.notify_all()
                self._show(answer, whole=bool(content.get("hello")))
                if content.get("csv"):
                    self.send({"kind": "csv", "text": self.csv(), **answer})
            except Exception as error:  # noqa: BLE001 - a panel that fails must say so and live on
                self._state = before
                said = {getattr(error, "argument", "panel"): str(error)}
                self.send({"kind": "refused", **answer, "errors": said})
            if self._thread is None:
                self._thread = threading.Thread(target=self._fill, name="panel", daemon=True)
                self._thread.start()

    def _edit(self, edits: Any) -> dict[str, str]:
        """Make the edits that can be made; what is wrong with the others, by name."""
        errors = {}
        for each in edits:
            try:
                name, value = each
                self._state = self._start if name == "reset" else edit(self._state, name, value)
            except InputError as error:
                errors[error.argument] = str(error)
        return errors

    def _show(self, answer: dict[str, Any], whole: bool = False) -> None:
        """Send the picture of the state."""
        state = self._state
        content, data = picture(state, self._store)
        self._sent += 1
        content |= {"kind": "picture", "number": self._sent, "working": self._working, **answer}
        content |= {"state": _summary(state), "python": python_source(state)}
        if whole:
            content["setting"] = _setting(state)
            content["formulas"] = self._formulas(state)
        self.send(content, [data])

    def _send_formulas(self) -> None:
        self.send({"kind": "formulas", "formulas": self._formulas(self._state)})

    def _formulas(self, state: State) -> dict[str, tuple[str, str]]:
        found = {name: self._store.formulas.get(name) for name in state.shown}
        return {name: written for name, written in found.items() if written}

    _working = ""

    def _fill(self) -> None:
        """The thread: whatever is new is filled in until the next edit, for ever."""
        seen = -1
        while True:
            with self._news:
                self._news.wait_for(lambda seen=seen: self._closed or self._generation != seen)
                if self._closed:
                    return
                seen = self._generation
            try:
                self._fill_in(self._state, seen)
                self._say("", seen)
            except background.StateMoved:
                continue
            except Exception as error:  # noqa: BLE001 - a panel that fails must say so and live on
                with contextlib.suppress(background.StateMoved):
                    self._say(f"stopped: {type(error).__name__}: {error}", seen)

    def _check(self, seen: int) -> None:
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

    def _fill_in(self, state: State, seen: int) -> None:
        def drain(work: Any, label: str) -> None:
            last, news = time.monotonic(), False
            for _ in work:
                time.sleep(0.001)  # whoever waits for the interpreter goes first
                self._check(seen)
                news = True
                if time.monotonic() - last > _BREATH:
                    self._say(label, seen)
                    last, news = time.monotonic(), False
            if news:
                self._say(label, seen)

        def laws(seconds: float) -> None:
            work = background.fill_laws(state, self._store, check, seconds)
            drain(work, "filling in the exact law")

        check = lambda: self._check(seen)  # noqa: E731
        self._wait(_PAUSE, seen)
        laws(_AT_FIRST)
        self._send_formulas()  # one may have been found when the state had moved on
        for _ in background.fill_formulas(state, self._store):
            self._send_formulas()
            self._check(seen)
        if state.sampling:
            self._wait(_REST, seen)
            drain(background.fill_samples(state, self._store, check), "sampling")
        laws(math.inf)


def _summary(state: State) -> dict[str, Any]:
    """What the controls show."""
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
    """What the controls are: sent once."""
    return {
        "rows": [{"name": r.name, "title": r.title} for r in state.laws],
        "own": sorted(CONTROLS.keys() - _ALWAYS),
        "queries": list(NAMES),
        "y": [
            {"name": name, "words": words, "title": title}
            for name, words, title in quantity_axis.offered()
        ],
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
