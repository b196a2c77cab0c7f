"""Keys hidden and muted in a Llama's forward pass, against one in float64 written out in NumPy."""

import functools

import jax.numpy as jnp
import numpy as np
import pytest
import tiny_model

from sparsity import InputError, models
from sparsity.attention.checkpoints import llama
from sparsity.attention.checkpoints.interventions import Edit, Inside, softmax_over

TOKENS = 20
S = tiny_model.SIZES
SHAPE = S["layers"], S["heads"], TOKENS, TOKENS
IDS = np.random.default_rng(1).integers(0, S["vocab"], TOKENS)
TOLERANCE = 1e-4  # of logits about 2 in size, after two layers in single precision


def no_visit(*_):
    pass


@pytest.fixture(scope="module")
def found():
    return tiny_model.weights()


@pytest.fixture(scope="module")
def opened(found, tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "tiny.gguf"
    return models.load(tiny_model.write_gguf(path, found))


@functools.cache
def drawn_masks():
    """Masks that differ by layer, head, query and key; one query of a head sees nothing at all."""
    rng = np.random.default_rng(2)
    hidden, muted = rng.random((2, *SHAPE)) < 0.3
    hidden[0, 1, 7] = True
    return hidden, muted


def run(model, edit, ids=IDS):
    shown, logits = {}, []
    states = llama.layers(
        model, [ids], no_visit, edit=edit, show=lambda layer, text, x: shown.update({layer: x})
    )
    llama.token_losses(model, states, [ids], lambda text, first, x: logits.append(np.asarray(x)))
    return shown, np.concatenate(logits)


def test_edits_are_those_of_numpy(found, opened):
    hidden, muted = drawn_masks()
    weights, expected = tiny_model.forward(found, IDS, hidden=hidden, muted=muted)
    shown, logits = run(opened, lambda layer, text: Edit(hidden[layer], muted[layer]))
    assert np.abs(logits - expected).max() < TOLERANCE
    for layer, inside in shown.items():
        a = np.asarray(inside.weights())
        assert np.abs(a - weights[layer]).max() < 1e-5
        v = np.repeat(np.asarray(inside.values), S["heads"] // S["kv"], 0)
        outputs = np.where(muted[layer], 0, a) @ v
        assert np.abs(np.asarray(inside.outputs) - outputs).max() < 1e-5
    assert not np.asarray(shown[0].outputs[1, 7]).any()  # it sees nothing, and reads nothing


@pytest.mark.parametrize("name", ["hidden", "muted"])
def test_masks_at_the_wrong_place_are_seen(found, opened, name):
    """Each planted mistake is one that leaves shapes as they are."""
    mask = drawn_masks()[name == "muted"]
    _, expected = tiny_model.forward(found, IDS, **{name: mask})
    planted = {
        "the next head": np.roll(mask, 1, axis=1),
        "heads interleaved over key heads": mask[:, [0, 2, 1, 3]],
        "the next layer": mask[::-1],
        "the next key": np.roll(mask, 1, axis=3),
        "the next query": np.roll(mask, 1, axis=2),
        "queries for keys": mask.swapaxes(2, 3),
        "the other of the two": None,
        "none": np.zeros_like(mask),
    }
    for what, wrong in planted.items():
        other = {"hidden": "muted", "muted": "hidden"}[name]
        given = {name: wrong} if wrong is not None else {other: mask}

        def edit(layer, text, given=given):
            return Edit(**{n: m[layer] for n, m in given.items()})

        _, logits = run(opened, edit)
        assert np.abs(logits - expected).max() > 100 * TOLERANCE, what


def test_without_edits_all_is_as_before(opened):
    q_before = []
    plain = llama.layers(opened, [IDS], lambda layer, text, q, k: q_before.append(np.asarray(q)))
    shown, _ = run(opened, lambda layer, text: None)
    nothing, _ = run(opened, lambda layer, text: Edit())
    for found in (shown, nothing):
        np.testing.assert_allclose(found[1].after, plain[0], rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(found[1].queries, q_before[1], rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(shown[0].after, shown[1].before)


def test_a_first_key_hidden_in_every_head_is_a_text_without_it(opened):
    """Rotary positions know distances alone, and the second token is then the first in sight."""
    hidden = np.zeros((TOKENS, TOKENS), bool)
    hidden[1:, 0] = True
    _, logits = run(opened, lambda layer, text: Edit(hidden))
    _, shorter = run(opened, lambda layer, text: None, IDS[1:])
    assert np.abs(logits[1:] - shorter).max() < TOLERANCE
    _, whole = run(opened, lambda layer, text: None)
    assert np.abs(logits[1:] - whole[1:]).max() > 100 * TOLERANCE


def test_what_is_written_is_the_output_matrix_times_values(found, opened):
    shown, _ = run(opened, lambda layer, text: None)
    inside, o, d = shown[1], found["o", 1], S["head_dim"]
    written = np.asarray(inside.written())
    for head in range(S["heads"]):
        v = np.asarray(inside.values)[head // (S["heads"] // S["kv"])]
        expected = v @ o[:, head * d : head * d + d].T
        np.testing.assert_allclose(written[head], expected, rtol=1e-4, atol=1e-5)
    total = np.einsum("hij,hje->ie", np.asarray(inside.weights()), written)
    outputs = np.asarray(inside.outputs).swapaxes(0, 1).reshape(TOKENS, -1)
    np.testing.assert_allclose(total, outputs @ o.T, rtol=1e-4, atol=1e-4)


def test_an_edit_may_use_what_was_shown_of_an_earlier_text(opened):
    first, asked = {}, []

    def edit(layer, text):
        if text == 0:
            return None
        asked.append(float(np.asarray(first[layer].weights()).sum()))
        return Edit(muted=np.eye(TOKENS, dtype=bool))

    def show(layer, text, inside):
        if text == 0:
            first[layer] = inside

    llama.layers(opened, [IDS, IDS], no_visit, edit=edit, show=show)
    assert asked == pytest.approx([S["heads"] * TOKENS] * S["layers"])


@pytest.mark.parametrize(
    "mask", [np.zeros((TOKENS, TOKENS), int), np.zeros((3, TOKENS, TOKENS), bool), "first", None]
)
def test_masks_of_another_kind_are_refused(mask):
    with pytest.raises(InputError, match="hidden"):
        Edit(hidden=mask).masks(S["heads"], TOKENS)
    with pytest.raises(InputError, match="muted"):
        Edit(muted=mask).masks(S["heads"], TOKENS)


@pytest.mark.parametrize("planted", [False, True])
def test_blocks_of_rows_carry_their_masks(monkeypatch, planted):
    if planted:  # keys out of sight keep their share, which the others should have

        def lost(logits, seen):
            return jnp.where(seen, softmax_over(logits, jnp.ones_like(seen)), 0)

        monkeypatch.setattr(llama, "softmax_over", lost)
    rng = np.random.default_rng(0)
    q, k, v = (rng.normal(size=(heads, 600, 8)).astype(np.float32) for heads in (4, 2, 2))
    hidden, muted = rng.random((2, 4, 600, 600)) < 0.3
    out = np.asarray(llama.attend(q, k, v, (hidden, muted)))  # blocks of 256 rows
    s = np.einsum("hid,hjd->hij", q, np.repeat(k, 2, 0)).astype(float) / np.sqrt(8)
    a = np.where(np.tri(600, dtype=bool) & ~hidden, np.exp(s), 0)
    a /= np.maximum(a.sum(-1, keepdims=True), 1e-300)
    off = np.abs(out - np.where(muted, 0, a) @ np.repeat(v, 2, 0)).max()
    assert off > 0.1 if planted else off < 1e-5
    inside = Inside(None, None, q, k, v, out, None, Edit(hidden, muted))
    np.testing.assert_allclose(inside.weights(), a, rtol=1e-3, atol=1e-6)
