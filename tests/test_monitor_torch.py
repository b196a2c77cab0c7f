"""The watch over PyTorch models: against the weights that their own eager attention returns."""

import dataclasses
import re
import sys
import types
from pathlib import Path

import numpy as np
import pytest
from command_line import python
from families import SMALL, small_model
from numpy.testing import assert_allclose

from sparsity import InputError, monitoring
from sparsity.attention.library import library
from sparsity.attention.monitoring import Watch, penalty, torch_monitor, torch_penalty
from sparsity.attention.torch import interception
from sparsity.attention.torch import rows as tensors
from sparsity.attention.torch.call import Output
from sparsity.attention.torch.models import measure_transformers

pytestmark = pytest.mark.model  # needs the extra [transformers]; run with `pytest -m model`

T, VOCABULARY = 40, SMALL["vocab_size"]
OF = ("length", "n_eff", "entropy", "gamma", "gamma_ratio", "sink_mass")


def text(batch=2, seed=0):
    ids = np.random.default_rng(seed).integers(3, VOCABULARY, (batch, T))
    return library("torch").as_tensor(ids)


def of_weights(weights, sinks=False):
    """By definition, from weights [batch, heads, T, keys]; logits are ln p up to one constant."""
    p = np.moveaxis(weights.double().numpy(), 1, 0).reshape(weights.shape[1], -1, weights.shape[-1])
    seen = p > 0
    n = seen.sum(-1)
    with np.errstate(all="ignore"):
        s = np.where(seen, np.log(p), 0.0)
        off = np.where(seen, s - (s.sum(-1) / n)[..., None], 0.0)
        gamma = np.sqrt((off**2).sum(-1) / (n - 1))
        n_eff = p.sum(-1) ** 2 / (p * p).sum(-1)
        beside = 1 - p.sum(-1) if sinks else 0.0
        ratio = gamma / np.sqrt(2 * np.log(n))
        first = np.take_along_axis(p, seen.argmax(-1)[..., None], -1)[..., 0]
    found = {"length": n, "n_eff": n_eff, "entropy": -(p * s).sum(-1), "gamma": gamma,
             "gamma_ratio": ratio, "sink_mass": first + beside}  # fmt: skip
    return {name: np.where(n > (1 if "gamma" in name else 0), x, np.nan)
            for name, x in found.items()}  # fmt: skip


def true(model, ids, **inputs):
    torch = library("torch")
    kept = model.config._attn_implementation
    model.set_attn_implementation("eager")
    with torch.no_grad():
        out = model(input_ids=ids, output_attentions=True, **inputs)
    model.set_attn_implementation(kept)
    return [of_weights(x, model.config.model_type == "gpt_oss") for x in out.attentions]


def watched(model, ids, **inputs):
    with Watch(model, rows=None) as watch, library("torch").no_grad():
        model(input_ids=ids, **inputs)
    return watch.read()


def agree(found, expected):
    assert len(found) == len(expected) == 2
    for layer, want in zip(found.values(), expected, strict=True):
        for name in OF:
            assert_allclose(layer[name], want[name], rtol=1e-4, atol=2e-5, err_msg=name)


CASES = [
    *((kind, "eager") for kind in ("llama", "gpt2", "mistral", "bert", "gemma2", "gpt_oss")),
    *((kind, "sdpa") for kind in ("llama", "gpt2", "mistral", "bert")),
    *((kind, "flex_attention") for kind in ("llama", "mistral")),
]


@pytest.mark.filterwarnings(
    "ignore:flex_attention called", "ignore::DeprecationWarning"
)  # of torch
@pytest.mark.parametrize(("kind", "implementation"), CASES)
def test_what_is_seen_are_the_models_own_weights(kind, implementation):
    model, ids = small_model(kind, implementation), text()
    with library("torch").compiler.set_stance(
        "force_eager"
    ):  # transformers compiles flex_attention
        found = watched(model, ids)
    agree(found, true(model, ids))
    assert model.config._attn_implementation == implementation
    assert [name.partition(".0.")[1] for name in found] == [".0.", ""]  # the modules' own paths
    assert min(x["n_eff"].min() / x["length"].max() for x in found.values()) < 0.5


@pytest.mark.filterwarnings("ignore:flex_attention called", "ignore::DeprecationWarning")
def test_flex_attention_gives_the_same_bits_in_a_watch():
    """Uncompiled: on a CPU compiled FlexAttention is undefined at 40 tokens, watched or not."""
    torch = library("torch")
    model, ids = small_model("llama", "flex_attention"), text(1)
    outputs = []
    layers = model.model  # measuring asks for no scores of words
    layers.register_forward_hook(lambda part, given, made: outputs.append(made.last_hidden_state))
    with torch.compiler.set_stance("force_eager"), torch.no_grad():
        model(input_ids=ids, use_cache=False)
        with Watch(model) as watch:
            model(input_ids=ids, use_cache=False)
        assert len(watch.read()) == 2
        measured = measure_transformers(model, ids[0])
    assert measured.sizes["layer"] == 2
    plain, *seen = outputs
    assert len(seen) == 2
    assert all(torch.equal(x, plain) for x in seen)


def test_a_compiled_model_is_seen_in_a_step_without_its_compiled_code():
    torch = library("torch")
    model, ids = small_model("llama", "sdpa"), text()
    compiled = torch.compile(model, backend="eager")
    with Watch(model) as watch, torch.no_grad():
        compiled(input_ids=ids)
        with pytest.warns(UserWarning, match="force_eager"):
            assert watch.read() == {} == watch.log()
        with torch.compiler.set_stance("force_eager"):
            compiled(input_ids=ids)
        assert len(watch.read()) == 2


def test_padded_texts():
    torch = library("torch")
    model, ids = small_model("llama", "sdpa"), text()
    attended = torch.ones_like(ids)
    attended[0, :7] = 0  # on the left: rows without a key
    found, want = (
        watched(model, ids, attention_mask=attended),
        true(model, ids, attention_mask=attended),
    )
    for layer, expected in zip(found.values(), want, strict=True):
        assert np.isnan(layer["n_eff"][:, :7]).all()
        assert (layer["length"][:, :7] == 0).all()
        for name in OF:
            assert_allclose(layer[name][:, 7:], expected[name][:, 7:], rtol=1e-4, atol=2e-5)


WRONG = {
    "no causal mask": dict(causal=False, mask=None),
    "wrong scale": dict(scale=0.2),
    "no soft cap": dict(softcap=None),
    "no sinks": dict(unit=None),
}


@pytest.mark.parametrize(
    ("planted", "kind", "implementation"),
    [
        *(("no causal mask", "llama", x) for x in ("eager", "sdpa")),
        ("wrong scale", "llama", "sdpa"),
        ("no soft cap", "gemma2", "eager"),
        ("no sinks", "gpt_oss", "eager"),
    ],
)
def test_planted_errors_are_seen(planted, kind, implementation, monkeypatch):
    right = interception.read_interface

    def wrong(*given):
        call, made = right(*given)
        return dataclasses.replace(call, **WRONG[planted]), made

    monkeypatch.setattr(interception, "read_interface", wrong)
    model, ids = small_model(kind, implementation), text()
    with pytest.warns(UserWarning, match="something else than softmax attention"):
        assert watched(model, ids) == {}  # the output of the call is not that of such weights
    monkeypatch.setattr(Output, "check_rows", lambda made, s, *rest: s[..., 0].isnan())
    with pytest.raises(AssertionError):  # and without that gate it is not what the model has
        agree(watched(model, ids), true(model, ids))


def block(attend, heads=4, dropout=0.0):
    """A module of one's own: `attend(q, k, v)` on four heads of eight."""
    torch = library("torch")

    class Block(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = torch.nn.Linear(32, 3 * 32)
            self.drop = torch.nn.Dropout(dropout)

        def forward(self, x):
            q, k, v = (
                part.unflatten(-1, (heads, -1)).transpose(1, 2)
                for part in self.inner(self.drop(x)).chunk(3, -1)
            )
            self.last = q.detach().double().numpy(), k.detach().double().numpy()
            return attend(q, k, v).transpose(1, 2).flatten(2)

    torch.manual_seed(1)
    return torch.nn.Sequential(Block(), Block())


def states():
    return (
        library("torch").randn(2, T, 32, generator=library("torch").Generator().manual_seed(3)) * 3
    )


def dense(part, mask, added):
    """n_eff by definition, [heads, batch · T], of what a block computed last."""
    q, k = part.last
    s = q @ np.repeat(k, q.shape[1] // k.shape[1], 1).swapaxes(-1, -2) * 8**-0.5 + added
    e = np.where(mask, np.exp(s - s.max(-1, keepdims=True)), 0)
    n_eff = e.sum(-1) ** 2 / (e * e).sum(-1)
    return np.moveaxis(n_eff, 1, 0).reshape(n_eff.shape[1], -1)


def test_it_changes_nothing_and_puts_everything_back():
    torch = library("torch")
    functional = torch.nn.functional
    model = block(
        lambda *x: functional.scaled_dot_product_attention(*x, dropout_p=0.3), dropout=0.2
    )
    before = functional.scaled_dot_product_attention

    def step():
        torch.manual_seed(7)
        out = model(states())
        model.zero_grad()
        out.square().sum().backward()
        return out.detach(), [p.grad.clone() for p in model.parameters()], torch.rand(3)

    plain = step()
    with Watch(model, every=2) as outer, Watch(model, rows=None) as inner:
        seen = [step() for _ in range(3)]
    for one in seen:
        assert torch.equal(one[0], plain[0])
        assert torch.equal(one[2], plain[2])
        assert all(torch.equal(a, b) for a, b in zip(one[1], plain[1], strict=True))
    assert inner.read()["0"]["n_eff"].shape == (4, 3 * 2 * T)  # three passes, all rows
    assert outer.read()["0"]["n_eff"].shape == (4, 2 * 2 * len(monitoring.step.sample_rows(T, 16)))
    assert outer.log() == {}
    with pytest.raises(ZeroDivisionError), Watch(model):
        raise ZeroDivisionError
    assert functional.scaled_dot_product_attention is before
    assert not any(part._forward_hooks or part._forward_pre_hooks for part in model.modules())


def test_the_interface_and_the_files_of_transformers_are_as_before():
    hf = library("transformers.modeling_utils")
    model, ids = small_model("llama", "sdpa"), text()
    file = sys.modules[type(model).__module__]
    before = dict(hf.ALL_ATTENTION_FUNCTIONS), file.eager_attention_forward
    with Watch(model) as outer:
        with Watch(model) as inner:
            model(input_ids=ids)
        model(input_ids=ids)
    layer = "model.layers.1.self_attn"
    assert outer.read()[layer]["n_eff"].shape[1] == 2 * inner.read()[layer]["n_eff"].shape[1]
    assert (dict(hf.ALL_ATTENTION_FUNCTIONS), file.eager_attention_forward) == before
    assert not hf.ALL_ATTENTION_FUNCTIONS._local_mapping


def test_a_function_imported_by_its_name_is_seen():
    torch = library("torch")
    file = types.ModuleType("a_users_file")
    source = (
        "import torch\n"
        "from torch.nn.functional import scaled_dot_product_attention as attend\n"
        "class Own(torch.nn.Module):\n"
        "    def forward(self, x):\n"
        "        return attend(x, x, x)\n"
    )
    sys.modules["a_users_file"] = file
    try:
        exec(source, vars(file))
        before = file.attend
        model = file.Own()
        with Watch(model, rows=None) as watch:
            model(torch.randn(3, T, 8))  # three axes: heads, tokens, dim
        assert file.attend is before
    finally:
        del sys.modules["a_users_file"]
    assert watch.read()["model"]["n_eff"].shape == (3, T)


def slopes(s, batch, head, i, j):
    return s - (i - j).abs() * 0.1 * (head + 1)


@pytest.mark.filterwarnings("ignore")  # that it makes the matrix, where it is not compiled
def test_flex_attention_by_its_queries_and_keys():
    torch, flex = library("torch"), library("torch.nn.attention.flex_attention")
    mask = flex.create_block_mask(
        lambda b, h, i, j: (j <= i) & (i - j < 13), None, None, T, T, device="cpu"
    )
    given = dict(score_mod=slopes, block_mask=mask, enable_gqa=True)
    model = block(lambda q, k, v: flex.flex_attention(q, k[:, ::2], v[:, ::2], **given))
    with torch.no_grad():
        plain = model(states())
        with Watch(model) as watch:
            assert torch.equal(model(states()), plain)
            assert watch.read() == {}  # a module's own call of flex_attention is not seen
        assert "made no call" in watch.unseen["model"]
    i, j = np.mgrid[:T, :T]
    added = -abs(i - j) * 0.1 * (np.arange(4)[:, None, None] + 1)
    for part in model:
        q, k = part.last
        part.last = q, k[:, ::2]
        want = dense(part, mask=(j <= i) & (i - j < 13), added=added)
        q, k = (torch.as_tensor(x).float() for x in part.last)
        mods = dict(score_mod=slopes, mask_mod=mask.mask_mod)
        every = torch_monitor(q, k, rows=None, causal=False, **mods)["n_eff"]
        assert_allclose(np.moveaxis(every.numpy(), 1, 0).reshape(4, -1), want, rtol=1e-4)
        bare = torch_monitor(q, k, rows=None, causal=False)["n_eff"]
        assert abs(bare / every - 1).max() > 0.5


@pytest.mark.parametrize(("of", "low", "high"), [("n_eff", 6.0, None), ("gamma", None, 0.4)])
def test_the_penalty_is_that_of_jax_and_its_gradient_that_of_finite_differences(of, low, high):
    torch = library("torch")
    rng = np.random.default_rng(0)
    q, k = rng.standard_normal((2, 4, 20, 8)), rng.standard_normal((2, 2, 20, 8))
    given = dict(of=of, low=low, high=high, rows=8)
    tq, tk = (torch.tensor(x, dtype=torch.float32, requires_grad=True) for x in (q, k))
    loss = torch_penalty(tq, tk, **given)
    loss.backward()
    assert loss.item() == pytest.approx(float(penalty(q, k, **given)), rel=1e-5)
    for which, x in ((0, tq), (1, tk)):
        way, ends = rng.standard_normal(x.shape), []
        for sign in (-1, 1):
            at = [y + sign * 1e-5 * way if i == which else y for i, y in enumerate((q, k))]
            ends.append(float(penalty(*at, **given)))  # in float64
        along = float((x.grad.numpy() * way).sum())
        assert along == pytest.approx((ends[1] - ends[0]) / 2e-5, rel=1e-4)
    for scale, hidden in ((0.0, False), (1.0, True)):
        x = (scale * tq.detach()).requires_grad_()
        mask = torch.zeros(20, 20, dtype=torch.bool) if hidden else None
        torch_penalty(x, tk.detach(), mask=mask, **given).backward()
        assert torch.isfinite(x.grad).all()


def test_one_call_in_parts_is_the_whole(monkeypatch):
    torch = library("torch")
    call = tensors.Call(torch.randn(2, 4, T, 8), torch.randn(2, 2, T, 8), causal=True)
    whole = tensors.measure_rows(call, None)
    monkeypatch.setattr(tensors, "MAX_LOGITS_AT_ONCE", 3 * 2 * 4 * T)
    parts = tensors.measure_rows(call, None)
    for name, x in whole.items():
        assert_allclose(parts[name], x, rtol=2e-6, atol=2e-6)


def test_bad_input_is_refused_in_one_line():
    torch = library("torch")
    linear, llama = torch.nn.Linear(2, 2), small_model("llama", "sdpa")

    def another(kind):
        llama.config._attn_implementation = kind
        with Watch(llama):
            pass

    q = torch.ones(1, 2, 6, 4)
    cases = [
        (lambda: Watch(3), "give a torch.nn.Module"),
        (lambda: Watch(linear, every=0), "every = 0"),
        (lambda: Watch(linear, rows=0), "rows = 0"),
        (lambda: tensors.measure_rows(tensors.Call(q, q), [-1]), "from 0 to 5"),
        (lambda: tensors.measure_rows(tensors.Call(q, q), [6]), "from 0 to 5"),
        (lambda: torch_penalty(q[0], q[0], low=2), "heads, tokens, dim"),
        (lambda: torch_penalty(q, q.repeat(1, 2, 1, 1), low=2), "must divide query heads"),
        (lambda: Watch(linear).read(), "with Watch"),
        (lambda: another("flash_attention_2"), 'flash_attention_2.*tation."sdpa". first'),
        (lambda: another("paged|eager"), 'paged.eager attention.*tation."sdpa". first'),
        (lambda: torch_penalty(torch.ones(1, 1, 2, 2), torch.ones(1, 1, 2, 2)), "at least one"),
    ]
    for act, says in cases:
        with pytest.raises(InputError, match=says):
            act()


def test_nothing_is_loaded_before_it_is_used():
    code = (
        "import sys, sparsity; sparsity.monitor; sparsity.attention.monitoring.Watch; "
        "print(sorted({'torch', 'transformers', 'flax'} & set(sys.modules)))"
    )
    assert python("-c", code).stdout == "[]\n"


@pytest.mark.filterwarnings("ignore:flex_attention called")
def test_the_page_says_what_happens():
    page = (Path(__file__).parents[1] / "docs" / "monitor.md").read_text("utf-8")
    (code,) = re.findall(r"## PyTorch\n.*?```python\n(.*?)```", page, re.S)
    names = {}
    exec(compile(code, "docs/monitor.md", "exec"), names)
    assert [bool(x) for x in names["told"]] == [True, False, True, False]
    assert "model.layers.0.self_attn.head0/n_eff" in names["told"][0]
    assert "all/n_eff_exact" in names["told"][2]
