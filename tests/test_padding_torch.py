"""A watch over padded and packed batches: each text has the numbers that it has alone."""

import numpy as np
import pytest
from families import SMALL, small_model
from numpy.testing import assert_allclose

from sparsity.attention.library import library
from sparsity.attention.monitoring import Watch, torch_penalty
from sparsity.attention.torch import rows as tensors

pytestmark = pytest.mark.model  # needs the extra [transformers]; run with `pytest -m model`

T, N = 40, 13
NAMES = ("length", "n_eff", "entropy", "beta", "gamma", "gamma_ratio", "max_logit", "sink_mass")
LOOSE = dict(rtol=2e-5, atol=2e-5)  # models in single precision, whose sums run in another order


def text(count, seed=0):
    ids = np.random.default_rng(seed).integers(3, SMALL["vocab_size"], (1, count))
    return library("torch").as_tensor(ids)


def read(model, ids, rows=None, **inputs):
    with Watch(model, rows=rows) as watch, library("torch").no_grad():
        model(input_ids=ids, **inputs)
    return watch.read()


def padded(starts):
    """Texts of N tokens, each in a row of T, with masks and positions as a tokenizer gives them."""
    torch = library("torch")
    texts = [text(N, seed) for seed in range(len(starts))]
    ids = torch.full((len(starts), T), SMALL["pad_token_id"])
    attended = torch.zeros_like(ids)
    for i, (start, own) in enumerate(zip(starts, texts, strict=True)):
        ids[i, start : start + N], attended[i, start : start + N] = own[0], 1
    return texts, {"input_ids": ids, "attention_mask": attended}


CASES = [
    *((kind, "eager") for kind in ("llama", "gpt2", "mistral", "bert", "gemma2", "gpt_oss")),
    *((kind, "sdpa") for kind in ("llama", "gpt2", "mistral", "bert")),
    ("llama", "flex_attention"),
]


@pytest.mark.filterwarnings("ignore:flex_attention called", "ignore::DeprecationWarning")
@pytest.mark.parametrize(("kind", "implementation"), CASES)
def test_a_padded_text_is_what_it_is_alone(kind, implementation):
    torch = library("torch")
    model = small_model(kind, implementation)
    for starts in ([T - N, T - N], [0, 0]):
        texts, given = padded(starts)
        if kind not in ("bert",):
            places = (given["attention_mask"].cumsum(-1) - 1).clamp(min=0)
            given["position_ids"] = places
        elif starts[0]:
            continue  # it learned positions from the left
        with torch.compiler.set_stance("force_eager"):
            batch = read(model, given.pop("input_ids"), **given)
            for i, (start, own) in enumerate(zip(starts, texts, strict=True)):
                alone = read(model, own)
                assert list(alone) == list(batch)
                for layer, x in batch.items():
                    for name in NAMES:
                        found = x[name].reshape(x[name].shape[0], len(texts), T)[:, i]
                        want = alone[layer][name]
                        assert_allclose(found[:, start : start + N], want, **LOOSE, err_msg=name)
                        outside = np.delete(found, range(start, start + N), axis=1)
                        nothing = outside == 0 if name == "length" else np.isnan(outside)
                        assert nothing.all(), name


@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
@pytest.mark.parametrize("start", [0, T - N, 9])
def test_the_log_of_a_padded_text_is_that_of_the_text(implementation, start):
    """Of sampled rows; what it was is told apart."""
    model = small_model("llama", implementation)
    (own,), given = padded([start])
    with Watch(model, rows=8) as watch, library("torch").no_grad():
        model(input_ids=own)
        alone = watch.log()
        places = (given["attention_mask"].cumsum(-1) - 1).clamp(min=0)
        model(**given, position_ids=places)
        assert watch.log() == pytest.approx(alone, rel=1e-4, abs=1e-5)
        model(input_ids=given["input_ids"], position_ids=places)
        wrong = watch.log()
    assert wrong["all/n_eff"] != pytest.approx(alone["all/n_eff"], rel=0.05)


@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
def test_packed_texts_are_what_they_are_alone(implementation):
    torch = library("torch")
    model, texts = small_model("llama", implementation), [text(n, n) for n in (7, 1, 13)]
    places = torch.cat([torch.arange(x.shape[1]) for x in texts])[None]
    batch, start = read(model, torch.cat(texts, 1), position_ids=places, use_cache=False), 0
    for own in texts:
        stop = start + own.shape[1]
        for layer, alone in read(model, own).items():
            for name in NAMES:
                assert_allclose(batch[layer][name][:, start:stop], alone[name], **LOOSE)
        start = stop


@pytest.mark.filterwarnings("ignore:`past_key_values`:FutureWarning")
@pytest.mark.parametrize("kind", ["llama", "mistral"])
def test_a_step_with_a_cache_is_the_row_of_the_whole_text(kind):
    """Also of a window, whose cache has dropped the first tokens, and of left padding."""
    torch = library("torch")
    model = small_model(kind, "sdpa")
    texts, given = padded([T - N, T - N])
    ids, mask = given["input_ids"], given["attention_mask"]
    places = (mask.cumsum(-1) - 1).clamp(min=0)
    with torch.no_grad(), Watch(model, rows=None) as watch:
        past = model(input_ids=ids[:, :-1], attention_mask=mask[:, :-1],
                     position_ids=places[:, :-1], use_cache=True).past_key_values  # fmt: skip
        watch.read()
        model(input_ids=ids[:, -1:], attention_mask=mask, position_ids=places[:, -1:],
              past_key_values=past)  # fmt: skip
        step = watch.read()
    for i, own in enumerate(texts):
        for layer, alone in read(model, own).items():
            for name in NAMES:
                assert_allclose(step[layer][name][:, i], alone[name][:, -1], **LOOSE, err_msg=name)


def hidden(seen, kind):
    """A mask of that kind, of what is seen."""
    torch = library("torch")
    if kind == "bool":
        return seen
    low = {"-inf": -torch.inf, "-1e4": -1e4, "lowest": torch.finfo(torch.float32).min,
           "half": torch.finfo(torch.float16).min}[kind]  # fmt: skip
    mask = torch.where(seen, 0.0, low)
    return mask.half() if kind == "half" else mask


@pytest.mark.parametrize("kind", ["bool", "-inf", "-1e4", "lowest", "half"])
@pytest.mark.parametrize("causal", [True, False])
def test_masks_of_every_kind_and_shape(kind, causal):
    torch = library("torch")
    torch.manual_seed(0)
    q, k = torch.randn(2, 4, T, 8).double(), torch.randn(2, 2, T, 8).double()
    unit = torch.tensor([-1.0, 0.0, 1.0, 2.0])
    for start in (0, T - N, 9):
        keys = torch.zeros(T, dtype=torch.bool)
        keys[start : start + N] = True
        shapes = [
            keys[None, None, None],
            keys.expand(T, T),
            (keys & keys[:, None]).expand(2, 1, T, T),
        ]
        for seen in shapes:
            if causal and seen.shape[-2] > 1:
                seen = seen & torch.ones(T, T, dtype=torch.bool).tril()
            call = tensors.Call(q, k, mask=hidden(seen, kind), causal=causal, unit=unit)
            text = slice(start, start + N)
            one = tensors.Call(q[..., text, :], k[..., text, :], causal=causal, unit=unit)
            for rows in (None, 5):
                found, alone = tensors.measure_rows(call, rows), tensors.measure_rows(one, rows)
                for name in NAMES:
                    got = found[name][..., text] if rows is None else found[name]
                    assert_allclose(got, alone[name], rtol=1e-9, atol=1e-12, err_msg=name)
                    assert rows or (found["length"].sum() == alone["length"].sum())
            low = torch_penalty(q, k, low=6.0, rows=None, causal=causal, mask=hidden(seen, kind))
            own = torch_penalty(q[..., text, :], k[..., text, :], low=6.0, rows=None, causal=causal)
            assert low == pytest.approx(float(own), rel=1e-9)


def test_what_is_no_padding_is_not_left_out():
    """Masks without the token itself, windows, another text: every row that sees a key is told."""
    torch = library("torch")
    torch.manual_seed(0)
    q = k = torch.randn(1, 2, T, 8)
    i, j = torch.arange(T)[:, None], torch.arange(T)
    masks = {
        "causal": j <= i, "a window": (j <= i) & (i - j < 4), "not itself": i != j,
        "only before": j < i, "a prefix": (j <= i) | (j < 5),
    }  # fmt: skip
    for name, mask in masks.items():
        found = tensors.measure_rows(tensors.Call(q, k, mask=mask), None)
        assert torch.equal(found["length"][0, 0], mask.sum(-1)), name
        modded = tensors.Call(q, k, mask_mod=lambda b, h, i, j, mask=mask: mask[i, j])
        assert torch.equal(tensors.measure_rows(modded, None)["length"], found["length"]), name
    few = tensors.Call(q[..., :9, :], k, mask=(j < 5)[None])  # of another text
    assert (tensors.measure_rows(few, None)["length"] == 5).all()


def test_planted_definitions_are_seen(monkeypatch):
    torch = library("torch")
    q, k = torch.randn(1, 2, T, 8), torch.randn(1, 2, T, 8)
    keys = torch.arange(T) < N
    call = tensors.Call(q, k, mask=keys[None], causal=True)
    right = {rows: tensors.measure_rows(call, rows) for rows in (None, 6)}
    monkeypatch.setattr(tensors, "text_tokens", lambda call: None)
    for rows, found in right.items():
        wrong = tensors.measure_rows(call, rows)
        assert not np.allclose(np.nanmean(wrong["n_eff"]), np.nanmean(found["n_eff"]), rtol=0.05)
