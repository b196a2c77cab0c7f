"""Any model of the `transformers` library: q, k and masks as its own attention has them."""

import re

import numpy as np
import pytest
from families import SMALL, small_model

from sparsity import InputError, measure
from sparsity.attention.library import library
from sparsity.attention.measurement import with_laws
from sparsity.attention.torch import interception
from sparsity.attention.torch.models import measure_transformers

pytestmark = pytest.mark.model  # needs the extra [transformers]; run with `pytest -m model`

T, VOCABULARY = 40, SMALL["vocab_size"]
IDS = np.random.default_rng(0).integers(3, VOCABULARY, T)


def weights(model, ids):
    torch = library("torch")
    with torch.no_grad():
        out = model(input_ids=torch.as_tensor(ids)[None], output_attentions=True)
    return np.stack([layer[0].numpy() for layer in out.attentions])


def hooks_of(model):
    return [(len(x._forward_hooks), len(x._forward_pre_hooks)) for x in model.modules()]


KINDS = ["llama", "gpt2", "mistral", "bert", "gemma2", "gpt_oss"]


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_measured_are_the_models_own_weights(kind):
    torch = library("torch")
    model = small_model(kind)
    with torch.no_grad():
        plain = model(input_ids=torch.as_tensor(IDS)[None])[0]
    hooks = hooks_of(model)
    data = measure_transformers(model, IDS)
    assert hooks_of(model) == hooks
    p = weights(model, IDS).astype(float)
    known = (p > 0).any(1, keepdims=True)
    assert (data.length.values == known.sum(-1)).all()
    if kind in ("llama", "gpt2", "bert"):
        assert (known == (np.ones((T, T)) if kind == "bert" else np.tri(T))).all()
    total = p.sum(-1)
    n_eff = total**2 / (p * p).sum(-1)
    np.testing.assert_allclose(data.n_eff, n_eff, rtol=1e-4)
    entropy = -(p * np.log(np.where(p > 0, p, 1))).sum(-1)
    np.testing.assert_allclose(data.entropy, entropy, rtol=1e-4, atol=1e-5)
    if kind == "gpt_oss":
        np.testing.assert_allclose(data.learned_sink_mass, 1 - total, rtol=1e-3, atol=1e-5)
    assert float(data.S.min()) < 0.8  # not all uniform
    assert data.attrs["causal"] == int(kind != "bert")
    # The model is as it was.
    assert model.config._attn_implementation == "eager"
    assert "eager" not in library("transformers.modeling_utils").ALL_ATTENTION_FUNCTIONS
    with torch.no_grad():
        assert torch.equal(plain, model(input_ids=torch.as_tensor(IDS)[None])[0])


@pytest.mark.parametrize(("kind", "sink"), [*((kind, None) for kind in KINDS), ("llama", 3)])
def test_tiles_and_the_layers_of_measure_say_the_same(kind, sink):
    model = small_model(kind)
    model = model.double() if kind == "gpt2" else model
    ids = np.random.default_rng(1).integers(3, VOCABULARY, 150)  # three contexts, two tiles
    data, whole = (measure_transformers(model, ids, sink=sink, of=x) for x in ((), "gini"))
    data = with_laws(data)
    assert {*data, "gini"} == {*whole}
    assert {"beta", "gamma", "sink_logit", "importance", "top_key", "key_importance"} <= set(data)
    for name in data:
        np.testing.assert_allclose(
            data[name], whole[name], rtol=1e-4, atol=2e-5, err_msg=f"{kind}: {name}"
        )


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
def test_types_and_implementations(dtype, implementation):
    torch = library("torch")
    model = small_model("llama")
    model.set_attn_implementation(implementation)
    data = measure_transformers(model.to(getattr(torch, dtype)), IDS)
    assert data.module.values.tolist() == [f"model.layers.{i}.self_attn" for i in range(2)]
    wide = measure_transformers(model.float(), IDS)
    np.testing.assert_allclose(data.n_eff, wide.n_eff, rtol=0.2)
    assert (data.length == wide.length).all()


def test_what_else_is_asked_for_and_how_far_it_is():
    model = small_model("llama")
    done = []
    data = measure_transformers(model, IDS, of="gini", progress=lambda *x: done.append(x))
    assert done == [(1, 2), (2, 2)]
    assert {"gini", "S_exact"} <= set(data)
    with pytest.raises(InputError, match="sink = 40"):
        measure_transformers(model, IDS, sink=T)


def test_tokens_that_are_not_one_text_are_refused():
    model = small_model("llama")
    cases = [[[3, 4], [5, 6]], [[3], [4, 5]], [], [3.0, 4.0], [3, VOCABULARY], [-1, 3], "abc", 3]
    for tokens in cases:
        with pytest.raises(InputError, match="tokens"):
            measure_transformers(model, tokens)


@pytest.mark.parametrize("kind", ["float32", "bfloat16"])
def test_tensors_of_torch_are_arrays(kind):
    torch = library("torch")
    q, k = torch.randn(4, 20, 8, requires_grad=True), torch.randn(2, 20, 8)
    q, k = (x.to(getattr(torch, kind)) for x in (q, k))
    data = measure(queries=q, keys=k)
    expected = measure(queries=q.detach().float().numpy(), keys=k.float().numpy())
    assert data.identical(expected)


IMAGES = dict(
    hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=128,
    image_size=32, patch_size=8,
)  # fmt: skip


def other_model(kind):
    """A model that does not run on token ids alone."""
    hf = library("transformers")
    if kind == "vit":
        return hf.ViTModel(hf.ViTConfig(**IMAGES))
    if kind == "t5":
        sizes = dict(d_model=64, d_kv=16, d_ff=128, num_layers=2, num_heads=4)
        return hf.T5ForConditionalGeneration(hf.T5Config(vocab_size=VOCABULARY, **sizes))
    if kind == "clip":
        text = {key: SMALL[key] for key in SMALL if key != "num_key_value_heads"}
        return hf.CLIPModel(hf.CLIPConfig(text_config=text, vision_config=IMAGES))
    if kind == "wav2vec2":
        sizes = {key: IMAGES[key] for key in list(IMAGES)[:4]}
        return hf.Wav2Vec2Model(hf.Wav2Vec2Config(**sizes))
    if kind == "short":  # than the text
        sizes = dict(vocab_size=VOCABULARY, n_embd=64, n_layer=2, n_head=4, n_positions=8)
        return hf.GPT2LMHeadModel(hf.GPT2Config(bos_token_id=0, eos_token_id=1, **sizes))
    return library("torch").nn.Linear(2, 2)


OTHERS = [
    ("vit", "ViTModel: takes pixel_values, not token ids"),
    ("t5", "T5ForConditionalGeneration: is an encoder with a decoder.*measure model.get_encoder"),
    ("clip", "CLIPModel: could not be run on these 40 token ids alone .*pixel_values"),
    ("wav2vec2", "takes input_values, not token ids"),
    ("short", "could not be run on these 40 token ids alone .*; shorten the text"),
    ("linear", "Linear: give a model of the transformers library"),
]


@pytest.mark.parametrize(("kind", "says"), OTHERS)
def test_a_model_of_another_kind_is_refused_with_the_way_out(kind, says):
    model = other_model(kind).eval()
    with pytest.raises(InputError) as caught:
        measure_transformers(model, IDS)
    assert re.search(says, str(caught.value))
    assert caught.value.argument == "model"


def test_the_way_out_for_an_encoder_with_a_decoder():
    data = measure_transformers(other_model("t5").eval().get_encoder(), IDS)
    assert data.sizes["layer"] == 2
    assert data.attrs["causal"] == 0


@pytest.mark.parametrize("whole", [True, False])
def test_a_model_in_training_mode_is_refused(whole):
    """Dropout would make every run another one; a part of the model is enough for that."""
    hf = library("transformers")
    model = hf.LlamaForCausalLM(hf.LlamaConfig(attention_dropout=0.5, **SMALL)).eval()
    (model if whole else model.model.layers[1].self_attn).train()
    with pytest.raises(InputError, match=r"training mode.*model\.eval\(\)"):
        measure_transformers(model, IDS)
    model.eval()
    assert measure_transformers(model, IDS).identical(measure_transformers(model, IDS))


def planted_llama(monkeypatch, change):
    """A Llama model whose own eager attention has its logits changed."""
    model = small_model("llama")
    file = library("transformers.models.llama.modeling_llama")
    own = file.eager_attention_forward

    def changed(module, query, key, value, attention_mask, **given):
        query, attention_mask = change(query, attention_mask)
        return own(module, query, key, value, attention_mask, **given)

    monkeypatch.setattr(file, "eager_attention_forward", changed)
    return model


PLANTED = {
    "another scale": lambda q, mask: (1.05 * q, mask),
    "no mask": lambda q, mask: (q, None),
    "a window": lambda q, mask: (q, mask + mask.min() * mask.new_ones(T, T).tril(-9)),
    "the last query for all": lambda q, mask: (q[:, :, -1:].expand_as(q), mask),
}


@pytest.mark.parametrize("what", PLANTED)
def test_a_function_that_does_something_else_than_it_was_given_is_refused(monkeypatch, what):
    model = planted_llama(monkeypatch, PLANTED[what])
    with pytest.raises(InputError, match="computes something else than softmax"):
        measure_transformers(model, IDS)


def test_an_attention_that_calls_no_function_is_refused_with_the_way_out():
    model = small_model("bloom")
    with pytest.raises(
        InputError, match=r"made no call.*measure\(attention=…\), or its queries and keys"
    ):
        measure_transformers(model, IDS)
    assert measure(weights(model, IDS)).sizes["layer"] == 2


def test_a_stale_function_in_the_table_is_not_put_back():
    """Two watches that end in the order in which they began leave the table as it was."""
    model = small_model("llama")
    torch = library("torch")
    table = library("transformers.modeling_utils").ALL_ATTENTION_FUNCTIONS
    before = dict(table)
    one, two = (interception.Interceptor(model, lambda *x: x[0]) for _ in range(2))
    with torch.no_grad(), one, two:
        model(input_ids=torch.as_tensor(IDS)[None])
    paths = [f"model.layers.{i}.self_attn" for i in range(2)]
    assert [path for path, _ in one.kept] == [path for path, _ in two.kept] == paths
    assert dict(table) == before
