"""What the panel fills in behind its first picture: laws at nodes, how long, and where next."""

import math
import sys
import threading

import numpy as np
import pytest
import sympy
from panel_states import arrays, start

from sparsity import evaluate, score_kernel
from sparsity import exact as exact_law
from sparsity.kernels import ALL
from sparsity.panel import background, opened
from sparsity.panel.axes import FIRST_NODES, LEAST_NODES, MOST_NODES, Axes, even_places, next_places
from sparsity.panel.curve import exact_value, previewed_limit
from sparsity.panel.picture import picture
from sparsity.panel.state import edit, initial
from sparsity.panel.store import LruCache, Store


def test_laws_fill_in_from_the_marker_to_every_point():
    state, store = start("relu2", "identity"), Store()
    count = sum(1 for _ in background.fill_laws(state, store))
    assert count == 2 * 66  # 65 along the axis, and the marker
    content, data = picture(state, store)
    for curve in content["curves"]:
        assert curve["exact"]["whole"]
        assert curve["read"]["n_eff"] is not None
    u, v = arrays(content, data)["live relu2", "exact"]
    gamma = 0.05 * 400 ** float(u[40])
    law = exact_law("relu2", length=1024, beta=-1, gamma=gamma)
    assert float(v[40]) == pytest.approx(float(law.S_rms), rel=1e-5)
    assert sum(1 for _ in background.fill_laws(state, store)) == 0  # nothing is computed twice


def test_a_kernel_without_a_closed_form_is_drawn_at_once_and_proven_after():
    """The first picture has the curve, marked as not whole; then every point is proven."""
    softplus = score_kernel("softplus", sympy.log(1 + sympy.exp(sympy.Symbol("s"))))
    state = initial((*ALL, softplus), ("softplus",), "beta", gamma=3.0)
    store, key = Store(), ("live softplus", "limit")
    content, data = picture(state, store)
    first = arrays(content, data)[key]
    assert not content["curves"][0]["limit"]["whole"]
    assert content["curves"][0]["read"]["S"] is None  # numbers are read only when proven
    for _ in background.fill_laws(state, store):
        pass
    content, data = picture(state, store)
    assert content["curves"][0]["limit"]["whole"]
    axes, (spec,) = Axes(state), state.specs()
    at = axes.x[axes.nodes(spec, "limit", store)]
    assert len(at) >= 65
    wanted = evaluate(softplus, beta=at, gamma=3.0).S
    np.testing.assert_allclose(arrays(content, data)[key][1], wanted, atol=1e-6)
    np.testing.assert_allclose(first[1], wanted, atol=3e-3)


def _worst(u, at, truth):
    """The farthest that lines between nodes are from a curve, as drawn."""
    return float(np.max(np.abs(np.interp(u, u[at], truth[at]) - truth)))


def _equal(count, of):
    return np.unique(np.linspace(0, of - 1, count).round().astype(int))


@pytest.mark.parametrize("knee", [0.21, 0.5, 0.83])
def test_the_next_node_is_where_the_curve_bends_most(knee):
    """One node after the other: evenly at first, then at the knee, then wherever it is widest."""
    u = np.linspace(0, 1, 400)
    truth = 0.9 * np.logaddexp(0, (u - knee) * 150) / 150
    at, order = [], []
    while new := next_places(u, at, truth[at], 1):
        at = sorted([*at, *new])
        order += new
    assert len(at) == len(set(order)) == LEAST_NODES
    assert sorted(order[:FIRST_NODES]) == _equal(FIRST_NODES, 400).tolist()
    near = np.abs(u[order[FIRST_NODES:][:12]] - knee) < 2 / (FIRST_NODES - 1)
    assert near.all()  # before it is refined elsewhere, and at last
    assert (np.abs(u[at] - knee) < 1 / 16).sum() > 1.5 * len(at) / 8
    assert _worst(u, at, truth) < _worst(u, _equal(len(at), 400), truth) / 5
    assert np.max(np.diff(u[at])) < 0.04  # and nothing stays wide
    straight = sorted(even_places(400))
    new = next_places(u, straight, (0.3 + 0.4 * u)[straight])
    assert max(np.diff(sorted({*straight, *new}))) <= 13  # no bend: everywhere


def test_a_curve_that_is_not_resolved_gets_more_nodes_and_one_off_the_chart_none():
    u = np.linspace(0, 1, 400)
    for truth, least in (
        (0.5 + 0.4 * np.sin(40 * u), LEAST_NODES + 1),
        (2 + u * 0, LEAST_NODES),
    ):
        at = []
        while new := next_places(u, at, truth[at]):
            at = sorted([*at, *new])
        assert least <= len(at) <= MOST_NODES
    bent_above = np.where(u < 0.5, 0.5, 1.5 + 8 * (u - 0.9) ** 2)
    at = sorted(even_places(400))
    first = next_places(u, at, bent_above[at], 6)
    assert np.all(np.abs(u[first] - 0.5) < 1 / 8)
    known = np.where(np.arange(len(at)) == 8, np.nan, bent_above[at])
    assert next_places(u, at, known, 4) != []  # a value that is missing stops nothing
    assert next_places(u[:9], range(9), truth[:9]) == []  # as many as there are


def test_an_exact_law_with_a_knee_is_drawn_closer_than_by_equal_steps():
    """A window as wide as the row: the knee of n_eff against w, from laws at every place."""
    state = opened("exp", x="window", rows="window", length=1024, gamma=1.0)
    store, axes, (spec,) = Store(), Axes(state), state.specs()
    for _ in background.fill_laws(state, store):
        pass
    at = axes.nodes(spec, "exact", store)
    laws = [exact_value(spec.at("window", x)).value for x in axes.x.tolist()]
    truth = axes.heights(spec, list(range(len(axes.x))), laws)
    worst, equal = (_worst(axes.along, k, truth) for k in (at, _equal(len(at), len(axes.x))))
    assert worst < 1e-3 < 5e-3 < equal
    (curve,) = picture(state, store).content["curves"]
    assert curve["exact"]["whole"]


def test_the_first_look_at_a_kernel_is_closest_where_it_bends():
    state = edit(opened("exp", x="beta", gamma=0.3), "formula", "max(s, 0)**1.5 + exp(s)/1e4")
    state = edit(state, "shown", [state.shown[-1]])
    content, data = picture(state, Store())
    (u, v) = arrays(content, data)[content["curves"][0]["id"], "limit"]
    axes, (spec,) = Axes(state), state.specs()
    truth = np.sqrt(previewed_limit(spec, "beta", axes.x) / 1024)
    assert len(u) == LEAST_NODES
    equal = _equal(len(u), len(axes.x))
    drawn = np.max(np.abs(np.interp(axes.along, u, v) - truth))
    assert drawn < _worst(axes.along, equal, truth) / 2


def test_a_few_points_are_not_drawn_as_a_line():
    state, store = start("exp"), Store()
    work = background.fill_laws(state, store)
    for _ in range(4):
        next(work)
    assert picture(state, store).content["curves"][0]["exact"] is None


def test_along_n_one_table_serves_many_lengths():
    state, store = start("exp", "relu2", x="length"), Store()
    count = sum(1 for _ in background.fill_laws(state, store))
    assert count <= 6  # of each curve: the marker, where it lies evenly, where it bends
    assert all(c["exact"]["whole"] for c in picture(state, store).content["curves"])


def test_a_law_is_left_in_its_midst_and_has_an_end():
    store = Store()

    def until(ended):
        def law():
            while not ended.is_set():
                math.sqrt(abs(-2.0))

        return law

    count = []

    def moved_on():
        count.append(1)
        if len(count) == 3:
            raise background.StateMoved

    first, second = threading.Event(), threading.Event()
    with pytest.raises(background.StateMoved):
        background.run_law(store, until(first), moved_on)
    assert len(count) == 3
    first.set()
    with pytest.raises(background.TakesTooLong):
        background.run_law(store, until(second), lambda: None, seconds=0.05)
    count.clear()
    with pytest.raises(background.StateMoved):  # the next one waits for it, and can be left too
        background.run_law(store, lambda: 3, moved_on)
    second.set()
    assert background.run_law(store, lambda: 3, lambda: None) == 3
    assert sys.getprofile() is None


def test_a_point_that_takes_too_long_is_named(monkeypatch):
    def stuck(spec):
        raise background.TakesTooLong

    monkeypatch.setattr(background, "exact_value", stuck)
    state, store = start("exp", y="gini"), Store()
    next(background.fill_laws(state, store))
    (curve,) = picture(state, store).content["curves"]
    assert curve["exact"] is None
    assert any("takes seconds" in note for note in curve["notes"])


def test_a_curve_that_takes_long_is_left_to_its_end():
    state, store = start("exp", y="entropy"), Store()
    for _ in background.fill_laws(state, store, seconds=0.0):
        pass
    (spec,) = state.specs()
    assert spec in store.exact  # at the marker
    (curve,) = picture(state, store).content["curves"]
    assert curve["exact"] is None


def test_memory_forgets_the_oldest():
    memory = LruCache(2)
    for k in range(3):
        memory.put(k, k)
    assert 0 not in memory
    assert memory.get(1) == 1
    memory.put(3, 3)
    assert 2 not in memory
