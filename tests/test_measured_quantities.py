"""Quantities of measured rows: each by its definition, on the keys in sight; and shapes by name."""

import numpy as np
import pytest
import xarray
from numpy.testing import assert_allclose
from test_measurement import heads, logits_of, softmax

from sparsity import InputError, measure, quantities
from sparsity.attention.measurement import layers, save, summary, text

T = 24
OF = ("gini", "hoyer", "keys_for_mass:0.9", "top_k_mass:3", "power_sum:3",
      "support", "participation", "max_weight", "sink_mass_above:0.1", "square_sum")  # fmt: skip


def directly(a, sink):
    """By hand, of one row of weights a ≥ 0; `sink` is the weight of the sink key, 0 unseen."""
    n, p = len(a), a / a.sum()
    falling = np.sort(p)[::-1]
    return {
        "gini": np.abs(np.subtract.outer(p, p)).sum() / (2 * n),
        "hoyer": (np.sqrt(n) - 1 / np.linalg.norm(p)) / (np.sqrt(n) - 1) if n > 1 else 0.0,
        "keys_for_mass:0.9": 1 + int((np.cumsum(falling) < 0.9).sum()),
        "top_k_mass:3": falling[:3].sum(),
        "power_sum:3": (p**3).sum(),
        "support": (a > 0).sum(),
        "participation": (p**2).sum(),
        "max_weight": p.max(),
        "sink_mass_above:0.1": float(sink / a.sum() > 0.1),
        "square_sum": (a**2).sum(),
    }


def off(data, weights, seen, sink=0):
    """The largest difference of each quantity from its definition, over all rows."""
    worst, found = dict.fromkeys(OF, 0.0), {name: data[name].values[0] for name in OF}
    for head, rows in enumerate(weights):
        for t, row in enumerate(rows):
            keys = np.flatnonzero(seen[t])
            for name, value in directly(row[keys], row[sink] * seen[t, sink]).items():
                gap = abs(found[name][head, t] - value)
                worst[name] = max(worst[name], gap / max(1.0, abs(value)))
    return worst


def test_every_quantity_is_its_definition():
    """From logits and from weights, to single precision, in which they are kept."""
    (q, k), sink = heads(length=T), 5
    seen = np.tri(T, dtype=bool)
    weights = softmax(logits_of(q, k), seen)
    for data in (measure(queries=q, keys=k, of=OF, sink=sink), measure(weights, of=OF, sink=sink)):
        assert max(off(data, weights, seen, sink).values()) < 1e-6
    window = seen & ~np.tri(T, k=-7, dtype=bool)
    windowed = softmax(logits_of(q, k), window)
    narrow = measure(queries=q, keys=k, mask=window, of=OF, sink=sink)
    assert max(off(narrow, windowed, window, sink).values()) < 1e-6
    # Errors that must show: a key too many in sight, and the sink counted twice.
    late = softmax(logits_of(q, k), np.tri(T, k=1, dtype=bool))
    beyond = off(measure(late, causal=False, of=OF), weights, seen)
    assert min(beyond[name] for name in OF) > 1e-3
    twice = weights.copy()
    twice[:, :, 0] *= 2
    doubled = off(measure(twice, of=OF), weights, seen)
    assert min(doubled[name] for name in set(OF) - {"support"}) > 1e-2


def test_weights_as_they_are():
    """Signs do not count; a factor on all weights counts for the sum of squares alone."""
    rng, seen = np.random.default_rng(4), np.ones((T, T), bool)
    weights = rng.exponential(size=(2, T, T)) ** 3
    signed = weights * rng.choice([-3.0, 3.0], weights.shape)
    one, other = (measure(x, causal=False, of=OF) for x in (weights, signed))
    assert max(off(one, weights, seen).values()) < 1e-6
    for name in OF:
        factor = 9 if name == "square_sum" else 1
        assert_allclose(other[name], factor * one[name], rtol=1e-6, err_msg=name)
    holed = weights.copy()
    holed[:, 7] = 0
    data = measure(holed, causal=False, of=OF)
    assert all(np.isnan(data[name].values[..., 7]).all() for name in OF)
    assert all(np.isfinite(np.delete(data[name].values, 7, axis=2)).all() for name in OF)


def test_all_that_can_be_asked():
    """Each quantity that measured rows tell; what every measurement has is not there twice."""
    q, k = heads(length=T)
    every = [x.name for x in (*quantities.ALL, *quantities.OF_MAPS)]
    every += [f"{family.name}:{family.example}" for family in quantities.FAMILIES]
    pairs = ("recall", "overlap:0.5", "top_k_overlap:4,0.5")
    untold = [name for name in every if name.startswith("needle_") or name in pairs]
    every = [name for name in every if name not in untold]
    assert (len(untold), len(every)) == (9, 22)
    data, plain = measure(queries=q, keys=k, of=every), measure(queries=q, keys=k)
    assert set(data.data_vars) == set(plain.data_vars) | set(every)
    assert set(plain.data_vars) >= set(layers.ALWAYS)
    xarray.testing.assert_identical(data[list(plain.data_vars)], plain)
    assert data["gini"].attrs["long_name"] == quantities.gini.title
    for work, says in (
        (lambda: measure(queries=q, keys=k, of="gin"), "did you mean gini"),
        (lambda: measure(queries=q, keys=k, of="top_k_mass:0"), "at least 1"),
        *((lambda of=of: measure(queries=q, keys=k, of=of), "of = ") for of in untold),
    ):
        with pytest.raises(InputError, match=says):
            work()


def test_files_and_tables_have_what_was_asked(tmp_path):
    q, k = heads(length=T)
    data = measure(queries=q, keys=k, of=("hoyer", "keys_for_mass:0.9"))
    with xarray.open_dataset(save(data, tmp_path / "a.nc")) as back:
        xarray.testing.assert_identical(back.load(), data)
    row = summary(data)[-1]
    late, tags = data.isel(row=slice(T // 2, None)), ("", "_without_sink_key", "_without_sinks")
    for of in ("S", "sink_mass", "all_sinks_mass", "hoyer", "keys_for_mass:0.9"):
        assert row[of] == pytest.approx(np.nanmean(late[of].values), rel=1e-6)
    for of in ("largest", *(f"{of}{tag}" for of in ("n_eff", "gamma") for tag in tags)):
        assert row[of] == pytest.approx(np.nanmedian(late[of].values), rel=1e-6)
    for tag in tags:
        ratio = np.nanmedian(late[f"residual_limit{tag}"].values)
        assert row[f"ratio_limit{tag}"] == pytest.approx(np.exp(ratio), rel=1e-6)
    wide = late["gamma_without_sink_key"] / np.sqrt(np.log(late["length"]))
    name = "gamma_without_sink_key_over_root_log_n"
    assert row[name] == pytest.approx(np.nanmedian(wide.values), rel=1e-6)
    assert "keys_for_mass:0.9" in text([row])
