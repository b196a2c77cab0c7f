"""What the panel fills in behind its first picture: laws at nodes, how long, and where next."""

import numpy as np
import pytest
import sympy
from panel_states import arrays, start

from sparsity import evaluate, score_kernel
from sparsity import exact as exact_law
from sparsity.kernels import ALL
from sparsity.panel import background
from sparsity.panel.picture import picture
from sparsity.panel.state import initial
from sparsity.panel.store import FIRST_NODES, NODES, Axes, Store, even_places


def test_laws_fill_in_from_the_marker_to_every_point():
    state, store = start("relu2"), Store()
    count = sum(1 for _ in background.fill_laws(state, store))
    assert count == 66  # 65 along the axis, and the marker
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
    axes = Axes(state)
    at = axes.x[sorted(even_places(len(axes.x)))]
    wanted = evaluate(softplus, beta=at, gamma=3.0).S
    np.testing.assert_allclose(arrays(content, data)[key][1], wanted, atol=1e-6)
    np.testing.assert_allclose(first[1], wanted, atol=3e-3)


def test_nodes_lie_evenly_and_come_from_coarse_to_fine():
    places = even_places(400)
    assert len(set(places)) == len(places) == NODES
    assert set(np.diff(sorted(places))) <= {6, 7}
    assert set(np.diff(sorted(places[:FIRST_NODES]))) <= {24, 25}
    assert sorted(even_places(9)) == list(range(9))


def test_along_n_one_table_serves_many_lengths():
    state, store = start("exp", "relu2", x="length"), Store()
    count = sum(1 for _ in background.fill_laws(state, store))
    assert count <= 6  # of each curve: the marker, a few points, the others
    assert all(c["exact"]["whole"] for c in picture(state, store).content["curves"])


def test_a_curve_that_takes_long_is_left_to_its_end():
    state, store = start("exp", y="entropy"), Store()
    for _ in background.fill_laws(state, store, seconds=0.0):
        pass
    (spec,) = state.specs()
    assert spec in store.exact  # at the marker
    (curve,) = picture(state, store).content["curves"]
    assert curve["exact"] is None
