"""Texts in a padded or packed batch: each has the numbers that it has alone, whatever measures."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose

import sparsity
from sparsity import InputError, measure, monitor, stream
from sparsity.attention.measurement import attention_layers
from sparsity.attention.measurement.layer_inputs import layer_of_queries
from sparsity.attention.monitoring import log
from sparsity.attention.streaming import log_spaced, log_spaced_by_text

HEADS, GROUPS, T, DIM = 4, 2, 40, 8
UNITS = np.array([-2.0, 0.0, 1.0, 3.0])
STREAMED = ("length", "S", "n_eff", "entropy", "max_weight", "sink_mass", "gamma")
MEASURED = ("length", "S", "n_eff", "entropy", "largest", "sink_mass", "gamma")
ALSO = {"largest": "max_weight"}
# What a text of n tokens is within a row of T: where each begins, and how many tokens it has.
PLACES = {
    "left padding": [(T - 11, 11)],
    "right padding": [(0, 11)],
    "both sides": [(7, 11)],
    "packed": [(0, 9), (9, 1), (10, 17), (27, 13)],
    "packed and padded": [(3, 9), (12, 20)],
    "no padding": [(0, T)],
    "one token": [(T - 1, 1)],
}


def vectors(seed=0, lead=()):
    rng = np.random.default_rng(seed)
    q = 2 * rng.standard_normal((*lead, HEADS, T, DIM))
    return q, rng.standard_normal((*lead, GROUPS, T, DIM))


def numbered(places):
    """The number of the text that each token belongs to; 0 for padding."""
    segments = np.zeros(T, int)
    for number, (start, count) in enumerate(places, 1):
        segments[start : start + count] = number
    return segments


def visible(segments, causal=True, window=None):
    """The mask of keys and queries by hand: rows of padding see the keys of a text as they do."""
    i, j = np.mgrid[:T, :T]
    packed = len(set(segments)) > 2
    seen = (segments == segments[:, None]) if packed else np.broadcast_to(segments > 0, (T, T))
    seen = seen & (segments > 0)
    seen = seen & (j <= i) if causal else seen
    return seen if window is None else seen & (abs(i - j) < window)


def by_definition(q, k, *, causal=True, window=None, unit=None, cap=None):
    """The numbers of one text alone from its matrix, in float64, by their definitions."""
    count = q.shape[-2]
    s = q @ np.repeat(k, q.shape[0] // k.shape[0], axis=0).swapaxes(-1, -2) / np.sqrt(DIM)
    s = s if cap is None else cap * np.tanh(s / cap)
    i, j = np.mgrid[:count, :count]
    seen = (j <= i) if causal else np.ones_like(i, bool)
    seen = seen if window is None else seen & (abs(i - j) < window)
    a = np.where(seen, np.exp(s), 0.0)
    beside = 0.0 if unit is None else np.exp(unit)[:, None]
    total = a.sum(-1) + beside
    p, n = a / total[..., None], seen.sum(-1)
    n_eff = a.sum(-1) ** 2 / (a * a).sum(-1)
    mean = np.where(seen, s, 0.0).sum(-1) / n
    m2 = np.where(seen, (s - mean[..., None]) ** 2, 0.0).sum(-1)
    with np.errstate(invalid="ignore", divide="ignore"):
        gamma = np.sqrt(m2 / (n - 1))
    entropy = -(p * np.log(np.where(p > 0, p, 1.0))).sum(-1)
    first = np.take_along_axis(p, np.broadcast_to(seen, p.shape).argmax(-1)[..., None], -1)[..., 0]
    found = [np.broadcast_to(n, n_eff.shape), np.sqrt(n_eff / n), n_eff, entropy, p.max(-1)]
    found += [first + beside / total, gamma]
    return dict(zip(STREAMED, found, strict=True))


def agree(found, places, true, tolerance=1e-6):
    """Each text as it is alone, and padding as nothing; how many numbers were compared."""
    compared, inside = 0, np.zeros(T, bool)
    for start, count in places:
        inside[start : start + count] = True
        wanted = true(start, count)
        for name, x in found.items():
            got, own = np.asarray(x)[..., start : start + count], wanted[ALSO.get(name, name)]
            assert_allclose(got, own, rtol=tolerance, atol=tolerance, err_msg=name)
            compared += got.size
    for name, x in found.items():
        outside = np.asarray(x)[..., ~inside]
        assert (outside == 0).all() if name == "length" else np.isnan(outside).all(), name
    return compared


OPTIONS = {
    "causal": {},
    "window, learned sinks": {"window": 5, "sink_logits": UNITS},
    "both ways, soft cap": {"causal": False, "softcap": 1.5},
}
CASES = [
    pytest.param(x, marks=pytest.mark.slow if "both" in x else pytest.mark.thorough)
    for x in OPTIONS
]


def definition(q, k, options):
    names = {"sink_logits": "unit", "softcap": "cap"}
    given = {names.get(name, name): x for name, x in options.items()}
    return lambda start, count: by_definition(
        q[:, start : start + count], k[:, start : start + count], **given
    )


@pytest.fixture(scope="module", autouse=True)
def in_double_precision():
    with jax.enable_x64(True):
        yield


@pytest.mark.parametrize("options", CASES)
def test_a_streamed_batch_is_its_texts(options):
    """By `stream`, by `monitor`, and each text without an axis of its own."""
    given, compared = OPTIONS[options], 0
    q, k = vectors(lead=(len(PLACES),))
    segments = np.stack([numbered(places) for places in PLACES.values()])
    given = given | {"block": (16, 24)}
    batch = stream(q, k, STREAMED, segments=segments, **given)
    seen = monitor(q, k, STREAMED, rows=None, segments=jnp.asarray(segments), **given)
    for i, places in enumerate(PLACES.values()):
        true = definition(q[i], k[i], OPTIONS[options])
        for found in (batch, seen):
            found = {name: x[i] for name, x in found.items()}
            compared += agree(found, places, true, 1e-9)
        if options == "causal":  # one text without an axis of its own
            alone = stream(q[i], k[i], STREAMED, segments=segments[i], **given)
            compared += agree(alone, places, true, 1e-9)
    times = 3 if options == "causal" else 2
    assert compared == times * len(STREAMED) * HEADS * sum(n for x in PLACES.values() for _, n in x)


@pytest.mark.parametrize("options", CASES)
def test_a_measured_batch_is_its_texts(options):
    """By segments, by masks of every kind, and from the weights that a model would have."""
    batch = [PLACES[x] for x in ("left padding", "packed", "packed and padded", "one token")]
    given, compared = {x: y for x, y in OPTIONS[options].items() if x != "softcap"}, 0
    window, unit = given.get("window"), given.get("sink_logits")
    causal = given.get("causal", True)
    for i, places in enumerate(batch):
        q, k = vectors(seed=i)
        segments = numbered(places)
        true = definition(q, k, given)
        mask = visible(segments, causal, window)
        near = visible(np.ones(T, int), causal, window)
        ways = [
            {"segments": segments, "mask": near},
            *({"mask": np.where(mask, 0.0, low)} for low in (-np.inf, -1e4, -3.4e38)),
            {"mask": mask[None, None], "causal": False},
        ]
        for way in ways[i : i + 2]:  # by turns
            data = measure(queries=q, keys=k, **({"causal": causal} | way), sink_logits=unit)
            found = {name: data[name].values[0] for name in MEASURED}
            compared += agree(found, places, true, 1e-9)
        if unit is None:
            s = q @ np.repeat(k, 2, axis=0).swapaxes(-1, -2) / np.sqrt(DIM)
            # Rows without a key are what eager attention makes of them: uniform, or NaN.
            nothing = (1 / T, np.nan)[i % 2]
            a = np.where(mask, np.exp(s), 0.0)
            with np.errstate(invalid="ignore"):
                a = np.where(mask.any(-1, keepdims=True), a / a.sum(-1, keepdims=True), nothing)
            data = measure(a, mask=mask, causal=causal)
            found = {name: data[name].values[0] for name in MEASURED[:-1]}
            compared += agree(found, places, true, 1e-9)
    tokens = HEADS * sum(n for places in batch for _, n in places)
    assert (2 * len(MEASURED) + 6 * (unit is None)) * tokens == compared


def test_rows_of_padding_count_nowhere_in_a_measurement():
    """Means, sinks and correlations are those of the text alone."""
    q, k = vectors(seed=3)
    same = ("importance", "top_importance", "key_importance", "length_without_sinks",
            "n_eff_without_sinks", "S_without_sinks", "all_sinks_mass", "gamma_without_sinks",
            "n_eff_without_sink_key", "gamma_without_sink_key",
            "rank_exact", "rank_limit_without_sinks", "S_exact", "residual_exact")  # fmt: skip
    of = ("gini", "top_k_mass:3", "participation")
    for start, count in ((T - 25, 25), (6, 25)):
        text = slice(start, start + count)
        for unit in (None, UNITS):
            alone = measure(queries=q[:, text], keys=k[:, text], sink_logits=unit, of=of)
            data = measure(
                queries=q, keys=k, segments=numbered([(start, count)]), sink_logits=unit, of=of
            )
            for name in (*same, *of):
                x = data[name].values
                x = x[..., text] if {"row", "key"} & set(data[name].dims) else x
                assert_allclose(x, alone[name].values, rtol=1e-9, atol=1e-12, err_msg=name)


def test_each_row_of_packed_texts_has_a_sink_of_its_own():
    """As it is set apart in a text alone: also from weights, on JAX arrays, and in few rows."""
    q, k = vectors(seed=5)
    places = PLACES["packed and padded"]
    segments = numbered(places)
    s = q @ np.repeat(k, 2, axis=0).swapaxes(-1, -2) / np.sqrt(DIM)
    mask = visible(segments)
    weights = np.where(mask, np.exp(s), 0.0)
    names = (
        "sink_mass",
        "n_eff_without_sink_key",
        "S_without_sink_key",
        "sink_logit",
        "gamma_without_sink_key",
        "top_logit_without_sink_key",
    )
    packed = measure(queries=q, keys=k, segments=segments)
    plain = measure(weights, segments=segments)
    tensors = measure(jnp.asarray(weights), mask=mask)
    for start, count in places:
        text = slice(start, start + count)
        alone = measure(queries=q[:, text], keys=k[:, text])
        for name in names:
            assert_allclose(packed[name].values[..., text], alone[name].values, rtol=1e-8)
        for name in names[:3]:
            for data in (plain, tensors):
                assert_allclose(data[name].values[..., text], alone[name].values, rtol=1e-8)
    first = packed.sink_mass.values[0][:, segments > 0].mean(-1)
    assert_allclose(packed.importance.values[0, :, 0], first)


def test_heads_with_masks_of_their_own_are_what_each_is_alone():
    q, k = vectors(seed=11)
    i, j = np.mgrid[:T, :T]
    masks = np.stack([j <= i, (j <= i) & (i - j < 5), (j <= i) & (j < 25), (j <= i) & (j >= 6)])
    of = ("gini", "participation")
    data = measure(queries=q, keys=k, mask=masks, of=of, sink_logits=UNITS)
    for head, mask in enumerate(masks):
        own = {"queries": q[[head]], "keys": k[[head // 2]], "sink_logits": UNITS[head]}
        alone = measure(**own, mask=mask, of=of)
        for name in alone.data_vars:
            found, want = data[name].values[:, head], alone[name].values[:, 0]
            assert_allclose(found, want, rtol=1e-8, atol=1e-12, err_msg=str(name))


@pytest.mark.thorough
def test_sampled_rows_are_those_of_the_text_alone():
    """By `log` of padded batches, in a compiled step; and what the whole row's would be differs."""
    q, k = vectors(lead=(2,), seed=7)
    places = [(T - 11, 11), (4, 11)]
    segments = np.stack([numbered([place]) for place in places])
    seen = jax.jit(lambda q, k, x: monitor(q, k, rows=6, segments=x))(q, k, segments)
    for i, (start, count) in enumerate(places):
        text = slice(start, start + count)
        told = log({name: x[i] for name, x in seen.items()})
        alone = log(monitor(q[i][:, text], k[i][:, text], rows=6))
        assert told == pytest.approx(alone, rel=1e-9)
    unsampled = log(monitor(q[0], k[0], rows=6))
    assert unsampled["all/n_eff"] != pytest.approx(
        log({n: x[0] for n, x in seen.items()})["all/n_eff"], rel=1e-2
    )
    text = np.arange(300) >= np.arange(300)[:, None]  # of 300 … 1 tokens, on the right
    for count in (5, 16):
        for own, found in enumerate(np.asarray(log_spaced_by_text(text, count))):
            wanted = log_spaced(300 - own, min(count, 300 - own)) + own
            assert np.array_equal(found[found >= 0], wanted)


def test_padding_as_a_mask_of_keys_says_it():
    """What is taken for padding, and what is not: masks of every kind of square attention."""
    i, j = np.mgrid[:T, :T]
    keys = j < 25
    hidden = {
        "keys of a padded text": (keys, 25),
        "the same, looking back": (keys & (j <= i), 25),
        "queries of padding hidden too": (keys & (i < 25), 25),
        "no padding": (j <= i, T),
        "a window": ((j <= i) & (i - j < 4), T),
        "all but the token itself": (i != j, T),
        "only those before": (j < i, T),  # the first sees nothing, and its row is NaN
        "none": (np.zeros((T, T), bool), T),
    }
    q, k = vectors()
    for name, (mask, count) in hidden.items():
        for causal in (True, False):
            source = layer_of_queries(q, k, mask=mask, causal=causal)
            sees = (mask & (j <= i) if causal else mask).any(-1)
            looks = np.ones((1, T), bool) if source.active is None else source.active
            assert np.array_equal(looks[0], sees & (np.arange(T) < count)), name
    alone = stream(q, k, "length", mask=lambda i, j: j < 25)  # of positions: not of padding
    assert np.asarray(alone["length"])[0, -1] == 25
    own = measure(queries=q, keys=k, mask=keys, segments=np.ones(T, int))
    assert own.length.values[0, 0, -1] == 25


PLANTED = {
    "padding rows count": lambda source: source,
    "the sink is key 0": lambda source: attention_layers.replace(
        attention_layers.find_padding(source), first=0
    ),
}


@pytest.mark.parametrize("planted", PLANTED)
def test_a_planted_definition_is_seen(planted, monkeypatch):
    from sparsity.attention.measurement import layer_inputs

    q, k = vectors()
    places = PLACES["left padding" if "sink" in planted else "right padding"]
    mask = visible(numbered(places))
    data = measure(queries=q, keys=k, mask=mask)
    agree({x: data[x].values[0] for x in MEASURED}, places, definition(q, k, {}), 1e-6)
    monkeypatch.setattr(layer_inputs, "find_padding", PLANTED[planted])
    data = measure(queries=q, keys=k, mask=mask)
    found = {name: data[name].values[0] for name in MEASURED}
    with pytest.raises(AssertionError):
        agree(found, places, definition(q, k, {}), 1e-6)


@pytest.mark.thorough
def test_planted_segments_are_seen():
    q, k = vectors()
    places = PLACES["packed"]
    found = stream(q, k, STREAMED, segments=np.ones(T, int))
    with pytest.raises(AssertionError):
        agree(found, places, definition(q, k, {}), 1e-6)
    found = stream(q, k, STREAMED, segments=numbered(places), sinks=(0,))  # key 0 is no sink of all
    with pytest.raises(AssertionError, match="sink_mass"):
        agree(found, places, definition(q, k, {}), 1e-6)


def test_one_definition_of_entropy_with_learned_sinks():
    """−Σ p ln p over the keys, p = e^s/(Σe^s + e^b), in every instrument and every quantity."""
    q, k = vectors(seed=9)
    of = ("max_weight", "participation", "top_k_mass:3", "power_sum:3")
    data = measure(queries=q, keys=k, sink_logits=UNITS, of=of)
    found = stream(q, k, (*STREAMED, "participation", "top_k_mass:3"), sink_logits=UNITS)
    for name in (*STREAMED, "participation", "top_k_mass:3"):
        assert_allclose(data[name].values[0], found[name], rtol=1e-9, atol=1e-12, err_msg=name)
    assert_allclose(data.largest, data.max_weight, rtol=1e-9)
    seen = np.tri(T, dtype=bool)
    s = q @ np.repeat(k, 2, axis=0).swapaxes(-1, -2) / np.sqrt(DIM)
    for head in range(HEADS):
        row, row_unit = np.exp(s[head, -1]), float(np.exp(UNITS[head]))
        entropy = sparsity.metric.entropy(row, row_unit)
        assert data.entropy.values[0, head, -1] == pytest.approx(entropy, rel=1e-12)
        share = row_unit / (row.sum() + row_unit)
        assert data.learned_sink_mass.values[0, head, -1] == pytest.approx(share, rel=1e-12)
        power = ((row / (row.sum() + row_unit)) ** 3).sum()
        assert data["power_sum:3"].values[0, head, -1] == pytest.approx(power, rel=1e-12)
    shown = np.where(seen, np.exp(s), 0.0)
    shown /= (
        shown.sum(-1, keepdims=True)
        + np.exp(UNITS)[:, None, None] / shown.sum(-1, keepdims=True) * 0
    )
    renormalised = measure(shown).entropy.values[0]
    assert np.abs(renormalised - data.entropy.values[0]).max() > 0.1
    far = measure(queries=q, keys=k, sink_logits=800.0)
    assert np.isfinite(far.entropy).all()
    assert (far.sink_mass == 1).all()


def test_bad_segments_are_refused():
    q, k = vectors()
    cases = [
        (lambda: measure(queries=q, keys=k, segments=np.ones(T - 1, int)), "segments"),
        (lambda: measure(queries=q, keys=k, segments=np.ones(T)), "whole numbers"),
        (lambda: measure(queries=q, keys=k, segments=np.zeros(T, bool)), "all padding"),
        (lambda: measure(queries=q, keys=k, sink_logits=np.ones(3)), "each of 4 heads"),
        (lambda: measure(queries=q, keys=k, sink_logits=np.nan), "finite"),
        (lambda: stream(q, k, segments=np.ones((2, T), int)), "segments"),
        (lambda: stream(q, k, segments=np.ones(T)), "whole numbers"),
        (lambda: stream(q, k, rows=np.zeros((1, 3), int)), "rows"),
        (lambda: monitor(q, k, segments=np.ones(T - 1, int)), "segments"),
        (lambda: stream(np.ma.masked_array(q, q > 0), k), "masked"),
        (lambda: stream(q, k, sink_logits=1j), "complex128"),
        (lambda: measure(queries=np.ma.masked_less(q, 0), keys=k), "masked array"),
        (lambda: measure(np.full((1, 4, 4), 3e38, np.float32), causal=False), "beyond float32"),
        (lambda: measure(queries=1e150 * q, keys=1e150 * k), "logits"),
    ]
    for work, says in cases:
        with pytest.raises(InputError, match=says):
            work()


def test_what_padding_holds_is_not_looked_at():
    q, k = vectors()
    segments = numbered(PLACES["both sides"])
    right = measure(queries=q, keys=k, segments=segments)
    q[:, segments == 0], k[:, segments == 0] = np.nan, np.inf
    assert measure(queries=q, keys=k, segments=segments).identical(right)
