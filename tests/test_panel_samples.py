"""Samples in the panel: what they hold, how they tighten, and the table that has them."""

import csv
import io
import math
import threading

import pytest
from panel_states import start

from sparsity import evaluate
from sparsity import exact as exact_law
from sparsity.panel import background
from sparsity.panel.curve import exact_value
from sparsity.panel.export import csv_table
from sparsity.panel.picture import curves, picture
from sparsity.panel.state import edit
from sparsity.panel.store import Store


@pytest.fixture(scope="module")
def sampled():
    """A state with one round of samples."""
    state, store = start("exp", "decayed", length=64), Store()
    for count, _ in enumerate(background.fill_samples(state, store, lambda: None)):
        if count == 7:
            break
    return state, store


@pytest.mark.thorough
def test_samples_hold_the_exact_law(sampled):
    state, store = sampled
    content, _ = picture(state, store)
    points = [point for curve in content["curves"] for point in curve["points"]]
    assert len(points) == 8
    for point in content["curves"][0]["points"]:
        law = exact_law("exp", length=64, gamma=point["x"])
        if point["warning"] is None:
            assert abs(point["value"] - float(law.S_rms)) < 3 * point["half"]
    assert sum(p["warning"] is None for p in points) >= 6
    assert edit(state, "sampling", False) != state
    assert picture(edit(state, "sampling", False), store).content["curves"][0]["points"] == []


def test_samples_tighten_in_place(sampled):
    state, store = sampled
    state = edit(edit(state, "shown", ["exp"]), "x", "beta")  # level: one point, at the marker
    (before,) = picture(state, store).content["curves"][0]["points"]
    for _ in background.fill_samples(state, store, lambda: None):
        pass
    (after,) = picture(state, store).content["curves"][0]["points"]
    assert after["u"] == before["u"]
    assert after["samples"] > before["samples"]
    assert after["half"] < 0.6 * before["half"]


def test_sampling_is_left_when_the_state_moves_on(sampled):
    state, store = sampled

    def moved():
        raise background.StateMoved

    with pytest.raises(background.StateMoved):
        for _ in background.fill_samples(edit(state, "gamma", 1.7), store, moved):
            pass


def test_sampling_does_not_disturb_the_pictures(sampled):
    """Pictures made while another thread samples and compiles are those made alone."""
    state, _ = sampled
    stop = threading.Event()
    states = [edit(start(), "gamma", 1 + k / 100) for k in range(20)]
    alone = [picture(each, Store()).content for each in states]

    def work():
        store = Store()
        for _ in background.fill_samples(edit(state, "length", 96), store, lambda: None):
            if stop.is_set():
                return

    thread = threading.Thread(target=work)
    thread.start()
    store = Store()
    beside = [picture(each, store).content for each in states]
    assert thread.is_alive()
    stop.set()
    thread.join()
    assert beside == alone


def test_points_say_of_what_they_are(sampled):
    """√(n_eff/n) of rows is not E S_n, and is not called S."""
    state, store = sampled
    for curve in picture(state, store).content["curves"]:
        name = "√(n_eff/n)" if curve["kernel"] == "exp" else "S"
        assert {point["of"] for point in curve["points"]} == {name}
    table_rows = csv.DictReader(io.StringIO(csv_table(state, store)))
    said = {(row["kernel"], row["sampled"]) for row in table_rows if row["S_mc"]}
    assert said == {("exp", "√(n_eff/n)"), ("decayed", "S")}


def test_the_table_has_everything_drawn(sampled):
    state, store = sampled
    rows = list(csv.DictReader(io.StringIO(csv_table(state, store))))
    own = [row for row in rows if row["kernel"] == "exp"]
    assert len(own) >= 400
    for row in own[::50]:
        assert float(row["S_limit"]) == pytest.approx(math.exp(-(float(row["gamma"]) ** 2) / 2))
    assert sum(row["S_mc"] != "" for row in own) == 4 + 3  # of the eight, one is the other's
    assert {curve.id for curve in curves(state)} == {row["curve"] for row in rows}


def test_samples_and_table_of_a_quantity():
    state, store = start("exp", "decayed", y="participation", length=64), Store()
    for count, _ in enumerate(background.fill_samples(state, store, lambda: None)):
        if count == 1:
            break
    content, _ = picture(state, store)
    for curve, spec in zip(content["curves"], state.specs(), strict=True):
        (point,) = curve["points"]
        assert abs(point["value"] - exact_value(spec).value) < 3 * point["half"] + 1e-12
        assert point["of"] == "E Y₂"
    rows = list(csv.DictReader(io.StringIO(csv_table(state, store))))
    sampled, *_ = [row for row in rows if row["participation_mc"]]
    assert float(sampled["participation_mc"]) == content["curves"][0]["points"][0]["value"]
    limit = evaluate("exp", beta=0, gamma=1, length=64, of="participation").value
    assert float(sampled["participation_limit"]) == pytest.approx(float(limit), rel=1e-9)
