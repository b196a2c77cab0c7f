"""The panel's front and the widget's edge: colours, addresses, and every message answered."""

import json
import re
import sys
import time
from pathlib import Path

import pytest

import sparsity
from sparsity.kernels import ALL, MAPS
from sparsity.plots.colors import contrast

FRONT = Path(__file__).resolve().parents[1] / "sparsity" / "panel" / "front"


def test_curves_stand_out_on_both_grounds_and_differ_in_colour():
    text = (FRONT / "chart.js").read_text("utf-8")
    grounds = re.findall(r'ground: "(#\w+)"', text)
    for name, ground in zip(("LIGHT", "DARK"), grounds, strict=True):
        colours = re.findall(r"#\w+", text.partition(f"const {name} = [")[2].partition("]")[0])
        assert len(set(colours)) == len(colours) == 24
        assert all(contrast(colour, ground) >= 4.5 for colour in colours)
    marks = re.findall(r'"(M[^"]+)"', text.partition("const MARKS = [")[2].partition("];")[0])
    assert len(set(marks)) == len(marks) == 7


def test_the_front_asks_nothing_of_the_world():
    for path in FRONT.iterdir():
        addresses = re.findall(r"https?://[^\s\"']+", path.read_text("utf-8"))
        assert set(addresses) <= {"http://www.w3.org/2000/svg"}
        assert "import " not in path.read_text("utf-8").replace("!important", "")


def test_without_the_extra_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "anywidget", None)
    monkeypatch.delitem(sys.modules, "sparsity.panel.widget", raising=False)
    with pytest.raises(ModuleNotFoundError, match=r'pip install "sparsity\[notebook\]"'):
        sparsity.explore()


@pytest.fixture
def panel(monkeypatch):
    """A widget whose messages are caught; (message) -> the answers."""
    widget = sparsity.explore("exp", gamma=2)
    sent = []
    monkeypatch.setattr(widget, "send", lambda content, buffers=None: sent.append(content))

    def ask(message):
        sent.clear()
        widget._receive(None, message, [])
        return [answer for answer in list(sent) if "seq" in answer]

    yield widget, ask
    widget.close()


@pytest.mark.notebook
@pytest.mark.parametrize(
    "message",
    [
        None,
        {},
        {"edits": [["gamma", [1, [2]]]]},
        {"edits": [["pin", None]], "csv": True},
        {"edits": {"gamma": 1}},
    ],
)
def test_every_message_is_answered_and_the_panel_lives(panel, message):
    widget, ask = panel
    assert len(ask(message)) >= 1
    (answer,) = ask({"view": "v", "seq": 7, "edits": [["gamma", "3"], ["beta", "abc"]]})
    assert (answer["kind"], answer["to"], answer["seq"]) == ("picture", "v", 7)
    assert list(answer["errors"]) == ["beta"]
    assert widget.state.value("gamma") == 3
    json.dumps(answer, allow_nan=False)
    assert 'evaluate("exp"' in widget.python().replace("'", '"')
    assert widget.csv().startswith("curve,kernel")


@pytest.mark.notebook
def test_reset_goes_back_to_where_it_started(panel):
    widget, ask = panel
    ask({"edits": [["gamma", 5], ["pin", True], ["rows", "sink"], ["formula", "s**4 + 1"]]})
    ask({"edits": [["reset", True]]})
    assert [kernel.name for kernel in widget.state.known] == [k.name for k in (*ALL, *MAPS)]
    assert widget.state.value("gamma") == 2
    assert widget.state.pins == ()


def _until(condition, seconds=600):
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.01)
    return condition()


@pytest.mark.notebook
def test_a_formula_found_while_the_hand_moved_is_sent(panel, monkeypatch):
    widget, ask = panel
    widget._store.formulas.put("exp", ("<math>found</math>", ""))
    sent = []
    monkeypatch.setattr(widget, "send", lambda content, buffers=None: sent.append(content))
    ask({"seq": 1, "edits": [["gamma", 1.5]]})
    assert _until(lambda: any(m.get("kind") == "formulas" for m in sent))


@pytest.mark.notebook
def test_an_error_while_filling_in_leaves_the_thread_alive(panel, monkeypatch):
    widget, ask = panel
    calls = []

    def fails_when_the_state_has_moved_on(state, seen):
        calls.append(seen)
        if len(calls) == 1:
            widget._generation += 1
            raise ValueError("planted")

    monkeypatch.setattr(widget, "_fill_in", fails_when_the_state_has_moved_on)
    ask({"seq": 1, "edits": []})
    assert _until(lambda: len(calls) == 2)
