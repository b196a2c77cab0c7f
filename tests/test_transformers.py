"""Any model of the `transformers` library: q, k and masks as its own attention has them."""

import re

import families
import numpy as np
import pytest
from packaging.version import Version

from sparsity import InputError, measure
from sparsity.attention.checkpoints.checkpoint import library
from sparsity.attention.measurement.hugging_face import measure_transformers

pytestmark = pytest.mark.model  # needs the extra [transformers]; run with `pytest -m model`

T, VOCABULARY = 40, 100
SMALL = dict(
    vocab_size=VOCABULARY, hidden_size=64, intermediate_size=128, num_hidden_layers=2,
    num_attention_heads=4, num_key_value_heads=2, bos_token_id=0, eos_token_id=1, pad_token_id=2,
)  # fmt: skip
IDS = np.random.default_rng(0).integers(3, VOCABULARY, T)


def build(kind):
    """(tiny random model that returns its weights, which keys a query sees)."""
    torch, hf = library("torch"), library("transformers")
    torch.manual_seed(0)
    seen = np.tri(T, dtype=bool)
    if kind == "llama":
        model = hf.LlamaForCausalLM(hf.LlamaConfig(**SMALL))
    elif kind == "gpt2":
        sizes = dict(vocab_size=VOCABULARY, n_embd=64, n_layer=2, n_head=4)
        model = hf.GPT2LMHeadModel(hf.GPT2Config(bos_token_id=0, eos_token_id=1, **sizes))
    elif kind == "mistral":  # a sliding window
        model = hf.MistralForCausalLM(hf.MistralConfig(sliding_window=8, **SMALL))
        seen = seen & ~np.tri(T, k=-8, dtype=bool)
    elif kind == "bert":  # looks both ways
        sizes = {key: SMALL[key] for key in list(SMALL)[:5]}
        model = hf.BertModel(hf.BertConfig(pad_token_id=2, **sizes))
        seen = np.ones((T, T), bool)
    elif kind == "gemma2":  # a soft cap, low enough to be felt
        sizes = dict(head_dim=16, attn_logit_softcapping=3.0, sliding_window=16)
        model = hf.Gemma2ForCausalLM(hf.Gemma2Config(**sizes, **SMALL))
        for layer in model.model.layers:
            layer.self_attn.q_proj.weight.data *= 30
    elif kind == "gptoss":  # learned sinks
        sizes = dict(head_dim=16, num_local_experts=2, num_experts_per_tok=1, sliding_window=16)
        model = hf.GptOssForCausalLM(hf.GptOssConfig(**sizes, **SMALL))
        model.model.layers[0].self_attn.sinks.data += 1
    else:
        model = of_their_own(hf, kind)
    model.set_attn_implementation("eager")
    for parameter in model.parameters():
        parameter.data *= 1 if kind.startswith("t5") else 3  # wide logits; T5 divides none by √d
    return model.eval(), seen


def of_their_own(hf, kind):
    """Models with attention functions of their own, and parts of those that read two texts."""
    sizes = dict(vocab_size=VOCABULARY, hidden_size=64)
    if kind == "gptj":
        own = dict(vocab_size=VOCABULARY, n_embd=64, n_layer=2, n_head=4, rotary_dim=8)
        return hf.GPTJForCausalLM(hf.GPTJConfig(bos_token_id=0, eos_token_id=1, **own))
    if kind.startswith("falcon"):
        own = dict(num_hidden_layers=2, num_attention_heads=4, alibi=kind == "falcon-alibi")
        own |= {} if kind == "falcon-sdpa" else {"attn_implementation": "eager"}
        return hf.FalconForCausalLM(hf.FalconConfig(**sizes, **own))
    if kind == "bloom":
        return hf.BloomForCausalLM(hf.BloomConfig(n_layer=2, n_head=4, **sizes))
    if kind.startswith("t5"):
        own = dict(d_model=64, d_kv=16, d_ff=128, num_layers=2, num_heads=4)
        whole = hf.T5ForConditionalGeneration(hf.T5Config(vocab_size=VOCABULARY, **own))
    else:
        own = dict(encoder_layers=2, decoder_layers=2, encoder_attention_heads=4)
        own |= dict(decoder_attention_heads=4, encoder_ffn_dim=64, decoder_ffn_dim=64, d_model=64)
        whole = hf.BartForConditionalGeneration(hf.BartConfig(vocab_size=VOCABULARY, **own))
    return whole.get_encoder() if kind.endswith("encoder") else whole.get_decoder()


def since(version):
    """Whether the installed `transformers` is that version or a later one."""
    return Version(library("transformers").__version__) >= Version(version)


def weights(model, ids):
    torch = library("torch")
    with torch.no_grad():
        out = model(input_ids=torch.as_tensor(ids)[None], output_attentions=True)
    return np.stack([layer[0].numpy() for layer in out.attentions])


@pytest.mark.parametrize("kind", ["llama", "gpt2", "mistral", "bert"])
def test_what_is_measured_are_the_models_own_weights(kind):
    model, seen = build(kind)
    data = measure_transformers(model, IDS)
    expected = measure(weights(model, IDS), mask=seen, causal=False)
    for name in ("S", "n_eff", "entropy", "sink_mass", "length", "last_row"):
        np.testing.assert_allclose(data[name], expected[name], rtol=1e-4, atol=1e-5, err_msg=name)
    assert float(data.S.min()) < 0.6  # not all uniform
    assert np.isfinite(data.S_exact.values[..., 1:]).all()
    assert data.attrs["causal"] == int(kind != "bert")
    assert model.config._attn_implementation == "eager"


@pytest.mark.parametrize(
    "kind",
    ["gptj", "falcon", "falcon-alibi", "bloom", "bart-encoder", "bart-decoder", "t5-encoder",
     "t5-decoder"],
)  # fmt: skip
def test_models_with_an_attention_of_their_own(kind):
    model, _ = build(kind)
    data = measure_transformers(model, IDS)
    both = kind.endswith("encoder")
    expected = measure(weights(model, IDS), causal=not both)
    for name in ("S", "n_eff", "entropy", "sink_mass", "length", "last_row", "sinks_mass"):
        np.testing.assert_allclose(data[name], expected[name], rtol=1e-4, atol=1e-5, err_msg=name)
    assert float(data.S.min()) < 0.95  # not all uniform
    assert data.attrs["causal"] == int(not both)
    shows = kind.split("-")[0] in ("bart", "t5") or (kind == "gptj" and since("5.24"))
    assert ("gamma" in data) == shows
    assert data.attrs["measured_from"] == ("queries and keys" if shows else "attention weights")


def test_a_soft_cap_is_that_of_the_model():
    model, _ = build("gemma2")
    data = measure_transformers(model, IDS)
    a = weights(model, IDS)
    for layer in range(2):
        own = a[layer]
        expected = measure(own, mask=own > 0, causal=False)
        for name in ("S", "n_eff", "entropy", "length", "last_row"):
            np.testing.assert_allclose(
                data[name][layer], expected[name][0], rtol=1e-4, atol=1e-5, err_msg=name
            )
    assert data.length.max(("head", "row")).values.tolist() == [16, 40]
    assert float(data.gamma.max()) < 3.2
    model.model.layers[0].self_attn.attn_logit_softcapping = None
    assert np.abs(measure_transformers(model, IDS).S - data.S)[0].max() > 0.05  # it is felt


def test_learned_sinks_are_set_beside_the_keys():
    model, _ = build("gptoss")
    data = measure_transformers(model, IDS)
    a = weights(model, IDS)
    for layer in range(2):
        own = a[layer]
        expected = measure(own, mask=own > 0, causal=False).isel(layer=0)
        found = {name: expected[name] for name in ("S", "n_eff", "length")}
        found["entropy"] = -(own * np.log(np.where(own > 0, own, 1))).sum(-1)
        found |= {"learned_sink": 1 - own.sum(-1), "last_row": own[:, -1]}
        for name, values in found.items():
            np.testing.assert_allclose(
                data[name][layer], values, rtol=1e-4, atol=1e-5, err_msg=name
            )
    assert float(data.learned_sink.max()) > 0.1
    assert float(data.S_exact.values[..., 1:].min()) > 0


@pytest.mark.parametrize("kind", ["llama", "bert"])
def test_the_layout_of_torch_is_understood(kind):
    """A tuple of [1, heads, T, T] a layer, as `output_attentions` gives it."""
    torch = library("torch")
    model, seen = build(kind)
    with torch.no_grad():
        out = model(input_ids=torch.as_tensor(IDS)[None], output_attentions=True)
    got = measure(out.attentions, mask=seen, causal=False)
    assert got.identical(measure(weights(model, IDS), mask=seen, causal=False))
    # A batch is several texts, each measured as it is alone.
    with torch.no_grad():
        ids = torch.as_tensor(np.stack([IDS, IDS[::-1].copy()]))
        both = model(input_ids=ids, output_attentions=True).attentions
    batch = measure(both, mask=seen, causal=False)
    assert batch.sizes["text"] == 2
    for text in range(2):
        alone = measure([x[text] for x in both], mask=seen, causal=False)
        assert batch.isel(text=text, drop=True).identical(alone)


def test_a_token_that_does_not_see_itself_is_no_padding():
    """Each layer chooses the keys of a query; a query that is not among its own keys is a row."""
    model = families.build("deepseek_v32")
    ids = families.ids_of(model)
    data = measure_transformers(model, ids)
    own = families.own_weights(model, ids)
    alone = sum(int((a.diagonal(0, 1, 2) == 0).sum()) for a in own)
    assert alone > 20
    assert np.isfinite(data.S.values).all()
    assert families.distance(data, own) < families.TOLERANCE


def test_layers_with_windows_and_without_are_measured_together():
    torch, hf = library("torch"), library("transformers")
    torch.manual_seed(0)
    kinds = ["sliding_attention", "full_attention"]
    config = hf.Gemma3TextConfig(head_dim=16, sliding_window=8, layer_types=kinds, **SMALL)
    model = hf.Gemma3ForCausalLM(config).eval()
    ids = np.random.default_rng(0).integers(3, VOCABULARY, 100)
    data = measure_transformers(model, ids)
    assert data.context.values.tolist() == [64, 100]
    assert data.attrs["causal"] == 1
    assert data.length.max(("head", "row")).values.tolist() == [8, 100]


def test_tokens_that_are_not_one_text_are_refused():
    model, _ = build("llama")
    cases = [[[3, 4], [5, 6]], [[3], [4, 5]], [], [3.0, 4.0], [3, VOCABULARY], [-1, 3], "abc", 3]
    for tokens in cases:
        with pytest.raises(InputError, match="tokens"):
            measure_transformers(model, tokens)
    assert len(cases) == 8


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
    assert "\n" not in str(caught.value)
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


def test_weights_that_are_not_those_of_the_model_are_refused():
    """Falcon as it is loaded by default returns weights that look ahead, which it does not do."""
    model, _ = build("falcon-sdpa")
    with pytest.raises(InputError, match=r"attn_implementation=.eager."):
        measure_transformers(model, IDS)


def planted_llama(monkeypatch, change, returns=True):
    """A Llama model whose own eager attention has its logits changed."""
    model, _ = build("llama")
    file = library("transformers.models.llama.modeling_llama")
    own = file.eager_attention_forward

    def changed(module, query, key, value, attention_mask, **given):
        query, attention_mask = change(query, attention_mask)
        output, found = own(module, query, key, value, attention_mask, **given)
        return output, found if returns else None

    monkeypatch.setattr(file, "eager_attention_forward", changed)
    return model


PLANTED = {
    "another scale": lambda q, mask: (1.05 * q, mask),
    "no mask": lambda q, mask: (q, None),
    "a window": lambda q, mask: (q, mask + mask.min() * mask.new_ones(T, T).tril(-9)),
    "the last query for all": lambda q, mask: (q[:, :, -1:].expand_as(q), mask),
}


@pytest.mark.parametrize("what", PLANTED)
@pytest.mark.parametrize("returns", [True, False])
def test_a_function_that_does_something_else_than_it_was_given_is_not_taken_at_its_word(
    monkeypatch, what, returns
):
    """Its weights are measured where it returns them, and the model is refused where not."""
    model = planted_llama(monkeypatch, PLANTED[what], returns)
    if not returns:
        with pytest.raises(InputError, match="calls no attention function that is softmax of q·k"):
            measure_transformers(model, IDS)
        return
    data = measure_transformers(model, IDS)
    assert data.attrs["measured_from"] == "attention weights"
    assert data.module.values.tolist() == [f"model.layers.{i}.self_attn" for i in range(2)]
    a = weights(model, IDS)
    np.testing.assert_allclose(data.n_eff, 1 / (a * a).sum(-1), rtol=1e-4)
    np.testing.assert_array_equal(data.length, (a > 0).any(1, keepdims=True).sum(-1) + 0 * data.S)


def test_a_model_that_runs_another_way_each_time_is_refused():
    model, _ = build("llama")
    runs = []

    def noisy(part, given, output):
        runs.append(1)
        return output * (1 + 0.01 * len(runs))

    model.lm_head.register_forward_hook(noisy)
    with pytest.raises(InputError, match="gives another output when it runs again"):
        measure_transformers(model, IDS)


@pytest.mark.parametrize("change", [lambda x: x - 0.01, lambda x: 1.02 * x])
def test_what_is_no_weight_is_refused(monkeypatch, change):
    """Bloom returns what its layers return; the first is made into something else."""
    model, _ = build("bloom")
    attention = model.transformer.h[0].self_attention

    def scores(part, given, output):
        return (output[0], change(output[1]), *output[2:])

    attention.register_forward_hook(scores)
    with pytest.raises(InputError, match=r"returns scores, not weights.*give the softmax of them"):
        measure_transformers(model, IDS)


@pytest.mark.parametrize("kind", ["llama", "gemma2", "gptoss", "bert"])
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
def test_types_of_half_precision_are_not_taken_for_another_model(kind, dtype, implementation):
    if implementation == "sdpa" and kind in ("gemma2", "gptoss"):
        implementation = "eager"  # the library's function has neither caps nor sinks
    model, _ = build(kind)
    model.set_attn_implementation(implementation)
    model.to(getattr(library("torch"), dtype))
    data = measure_transformers(model, IDS)
    assert data.attrs["measured_from"] == "queries and keys"


@pytest.mark.parametrize("sinks", [(False, True), (True, False)])
def test_learned_sinks_of_some_layers(sinks):
    """A layer without one gives it no weight."""
    model, _ = build("gptoss")
    for layer, has in zip(model.model.layers, sinks, strict=True):
        if not has:
            layer.self_attn.sinks.data[:] = -1e4
    whole = measure_transformers(model, IDS)
    model.model.layers[sinks.index(False)].self_attn.register_forward_pre_hook(lambda *_: None)
    heads = whole.learned_sink.max(("head", "row")).values
    assert (heads > 0.01).tolist() == list(sinks)


def test_the_implementation_of_each_part_is_put_back():
    """Of a function that is not understood, others are tried, and the model is refused."""
    import families

    interface = library("transformers").AttentionInterface

    def sharper(module, query, key, value, attention_mask, **given):
        return interface()["sdpa"](module, 1.1 * query, key, value, attention_mask, **given)

    interface.register("sharper", sharper)
    model = families.build("llava")
    parts = [part for part in model.modules() if hasattr(part, "config")]
    for own in ("eager", "sharper"):
        model.set_attn_implementation({"text_config": own, "vision_config": "sdpa"})
        kept = [part.config._attn_implementation for part in parts]
        assert len(set(kept)) > 1
        if own == "eager":
            measure_transformers(model, IDS)
        else:
            with pytest.raises(InputError, match="model"):
                measure_transformers(model, IDS)
        assert [part.config._attn_implementation for part in parts] == kept


def test_layers_are_named_by_their_modules():
    """Of a hybrid the first layer with attention is not the model's first."""
    import families

    model = families.build("jamba")
    data = measure_transformers(model, families.ids_of(model))
    assert data.module.values.tolist() == ["model.layers.1.self_attn"]


def test_a_model_that_shows_nothing_is_refused_with_the_way_out():
    """Its attention is its own, and it returns no weights."""
    torch = library("torch")
    model, _ = build("bloom")
    inner = type(model).forward

    def silent(self, *given, output_attentions=None, **named):
        return inner(self, *given, **named)

    model.forward = silent.__get__(model)
    model.forward.__func__.__signature__ = __import__("inspect").signature(inner)
    with pytest.raises(InputError, match="give q and k to measure"):
        measure_transformers(model, IDS)
    assert torch.is_grad_enabled()
