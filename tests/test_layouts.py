"""Weights in every layout that models give them in: rectangles, bands, batches, missing layers."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from sparsity import InputError, measure
from sparsity.attention.measurement.attention_layers import WeightLayer

HEADS, T = 3, 12
RANDOM = np.random.default_rng(5)


def weights(*shape, seen=None):
    """Random rows of softmax."""
    logits = 2 * RANDOM.normal(size=shape)
    a = np.exp(logits if seen is None else np.where(seen, logits, -np.inf))
    return a / a.sum(-1, keepdims=True)


def held(layer, a, seen):
    """Hold rows against NumPy; how many cells that were."""
    n = np.broadcast_to(seen.sum(-1), a.shape[:-1])
    n_eff = a.sum(-1) ** 2 / (a * a).sum(-1)
    entropy = -(a * np.log(np.where(a > 0, a, 1))).sum(-1)
    expected = {"length": n, "n_eff": n_eff, "S": np.sqrt(n_eff / n), "entropy": entropy}
    for name, values in expected.items():
        assert_allclose(layer[name].values, values, rtol=1e-12, atol=1e-13, err_msg=name)
    return sum(x.size for x in expected.values())


@pytest.mark.parametrize(("queries", "keys"), [(1, 1), (1, 9), (4, 20), (5, 6), (3, 150), (70, 90)])
def test_fewer_queries_than_keys_are_the_last_tokens(queries, keys):
    """As a model gives them while it generates from a cache."""
    seen = np.tri(queries, keys, keys - queries, dtype=bool)
    a = weights(HEADS, queries, keys, seen=seen)
    data = measure(a)
    assert held(data.isel(layer=0), a, seen) == 4 * HEADS * queries
    assert data.row.values.tolist() == list(range(keys - queries + 1, keys + 1))
    assert data.key.values.tolist() == list(range(1, keys + 1))
    assert_allclose(data.key_importance[0, :, 0], a[:, :, 0].mean(1), rtol=1e-12)


@pytest.mark.parametrize(("queries", "keys"), [(7, 20), (20, 7), (1, 5), (130, 8), (8, 300)])
def test_keys_of_another_text(queries, keys):
    a = weights(2, HEADS, queries, keys)
    data = measure(a, causal=False, of="gini")
    seen = np.ones((queries, keys), bool)
    assert sum(held(data.isel(layer=i), a[i], seen) for i in range(2)) > 0
    assert data.row.values.tolist() == list(range(1, queries + 1))
    assert np.isfinite(data.gini.values).all()
    if queries > 1:  # one query may be the last token, which sees all keys
        with pytest.raises(InputError, match="causal=False"):
            measure(a)


def test_a_band_of_keys_is_told_by_its_mask():
    """Each row has the keys beside it, as Longformer gives them."""
    wide = 5
    place = np.arange(T)[:, None] + np.arange(wide) - wide // 2
    seen = (place >= 0) & (place < T)
    a = weights(HEADS, T, wide, seen=seen)
    assert held(measure(a, causal=False, mask=seen).isel(layer=0), a, seen) > 0


@pytest.mark.parametrize("lazy", [False, True])
def test_layers_that_are_not_there_are_left_out_and_said(lazy):
    a = weights(2, HEADS, T, T, seen=np.tri(T, dtype=bool))
    given = (None, a[0], None, a[1])
    data = measure(iter(given) if lazy else given)
    assert data.layer.values.tolist() == [1, 3]
    assert_allclose(data.S.values, measure(a).S.values, rtol=0)
    with pytest.raises(InputError, match="has no layer"):
        measure((None, None))


def test_texts_of_a_batch_are_an_axis():
    texts, layers = 3, 2
    a = [weights(texts, HEADS, T, T, seen=np.tri(T, dtype=bool)) for _ in range(layers)]
    data = measure(a)
    assert data.sizes["text"] == texts
    for text in range(texts):
        one = measure(np.stack([layer[text] for layer in a]))
        for name in one.data_vars:
            np.testing.assert_array_equal(data[name].isel(text=text), one[name])
    q, k = (RANDOM.normal(size=(texts, heads, T, 4)) for heads in (4, 2))
    data = measure(queries=[q], keys=[k])
    for text in range(texts):
        one = measure(queries=q[text], keys=k[text])
        np.testing.assert_array_equal(data.S.isel(text=text), one.S)
    with pytest.raises(InputError, match="as many texts"):
        measure(queries=[q], keys=[k[:2]])


def test_each_text_of_a_batch_has_its_own_mask():
    q, k = (RANDOM.normal(size=(2, 2, T, 4)) for _ in range(2))
    mask = np.ones((2, 1, T, T), bool)
    mask[1, :, :, 8:] = False
    data = measure(queries=[q], keys=[k], mask=mask)
    assert data.length.isel(text=0).max() == T
    assert data.length.isel(text=1).max() == 8
    segments = np.array([[1] * T, [1] * 5 + [2] * (T - 5)])
    data = measure(queries=[q], keys=[k], segments=segments)
    assert data.length.max(("layer", "head", "row")).values.tolist() == [T, T - 5]


def dropped(a, rate):
    """What dropout leaves of weights in training."""
    return a * (RANDOM.random(a.shape) >= rate) / (1 - rate)


BELOW = np.tril(np.ones((48, 48), bool))


@pytest.mark.parametrize("rate", [0.05, 0.1, 0.5])
@pytest.mark.parametrize("causal", [True, False])
def test_weights_after_dropout_are_said(rate, causal):
    a = weights(2, 4, 48, 48, seen=BELOW if causal else None)
    whole = measure(attention=a, causal=causal)  # a warning would be an error
    with pytest.warns(UserWarning, match=r"% of the weights are 0.* after dropout.*model.eval\(\)"):
        found = measure(attention=dropped(a, rate), causal=causal)
    assert "after dropout" in found.attrs["note"]
    assert "note" not in whole.attrs
    assert found.n_eff.mean() < whole.n_eff.mean()  # which nothing else would tell


def test_rows_of_zeros_and_other_sums_are_no_dropout():
    """Sparse maps sum to 1, others to anything, sinks take from the sum, padding sees none."""
    scores = RANDOM.normal(size=(4, 48, 48))
    relu, a = np.maximum(scores, 0), weights(4, 48, 48, seen=BELOW)
    top = np.where(scores > 0.5, np.exp(scores), 0) + np.eye(48)
    tokens = np.arange(48) < 30
    cases = {
        "ReLU": (relu * BELOW, {}),
        "ReLU over n": (relu / 48, {"causal": False}),
        "signed": (scores, {"causal": False}),
        "top keys": (top / top.sum(-1, keepdims=True), {"causal": False}),
        "half precision": (a.astype(np.float16), {}),
        "a sink": (0.7 * a, {}),
        "padding": (a * tokens[:, None] * tokens, {"segments": tokens}),
    }
    for case, (given, how) in cases.items():
        assert "note" not in measure(attention=given, **how).attrs, case


def test_heads_that_are_all_alike_are_said():
    mean = weights(2, 4, 20, 20).mean(1, keepdims=True)
    for heads in (2, 4):
        with pytest.warns(UserWarning, match=f"measure: all {heads} heads have the same weights"):
            found = measure(attention=np.repeat(mean, heads, 1), causal=False)
        assert found.attrs["note"].startswith(f"all {heads} heads")
    for differ in (mean, weights(2, 4, 20, 20)):
        assert "note" not in measure(attention=differ, causal=False).attrs


def test_layers_that_differ_and_steps_name_the_way():
    one, other = weights(4, 12, 12), weights(2, 6, 6)
    with pytest.raises(InputError, match=r"at a time, as attention=\[layer\]"):
        measure(attention=[one, other], causal=False)
    assert measure(attention=[other], causal=False).sizes["head"] == 2
    step = (weights(1, 4, 12, 12, seen=np.tril(np.ones((12, 12), bool))),) * 2
    for steps in ((step, (weights(1, 4, 1, 13),) * 2), [[one, other]]):
        with pytest.raises(InputError, match=r"generate\(\) has them.*attentions\[0\]"):
            measure(attention=steps)
    assert measure(attention=step).sizes["layer"] == 2


def test_blocks_hold_what_their_rows_see():
    """Keys up to the last row and the sink, in eight widths; a power of two of rows."""
    layer = WeightLayer(weights=np.empty((2, 600, 1000)))
    for sink in (0, 499, 500, 999):
        widths = [layer.key_width(stop, sink) for stop in range(1, 601)]
        spare = np.subtract(widths, [max(400 + stop, sink + 1) for stop in range(1, 601)])
        assert 0 <= spare.min() <= spare.max() < 125
        assert set(widths) <= set(range(125, 1001, 125))
    assert [layer.rows_per_block(most) for most in (1, 10**5, 10**9)] == [1, 32, 64]
