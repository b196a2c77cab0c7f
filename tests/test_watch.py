"""The watch over whatever PyTorch can do with a model: the same bits, and what is not seen is said.

Each case trains three steps with and without a watch. Its truth is the attention function itself:
applied to the unit matrix as values it gives the weights.
"""

import contextlib
import copy
import functools
import io
import pickle
import threading
import warnings
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose

from sparsity import InputError, monitoring
from sparsity.attention.library import library
from sparsity.attention.monitoring import Watch

pytestmark = [
    pytest.mark.model,  # needs the extra [transformers]; run with `pytest -m model`
    pytest.mark.filterwarnings("ignore"),  # of PyTorch; what a watch says is recorded by `lines`
]

T, HEADS, WIDTH = 24, 4, 32
torch: Any = None  # a name that compiled code can read, loaded by the first test


@pytest.fixture(autouse=True)
def _loaded():
    global torch
    torch = library("torch")


def sdpa(*given, **more):
    return torch.nn.functional.scaled_dot_product_attention(*given, **more)


def causal(q, k, v):
    return sdpa(q, k, v, is_causal=True)


class Model:
    """Makes modules of two blocks, each `attend(q, k, v)` on heads of its own."""

    def __init__(self, attend=causal, dropout=0.1):
        self.attend, self.dropout = attend, dropout

    def block(self, heads=HEADS):
        attend, dropout = self.attend, self.dropout

        class Block(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.inner = torch.nn.Linear(WIDTH, 3 * WIDTH)
                self.inner.weight.data *= 1.5  # so that some keys stand out
                self.drop = torch.nn.Dropout(dropout)

            def forward(self, x):
                q, k, v = (part.unflatten(-1, (heads, -1)).transpose(1, 2)
                           for part in self.inner(self.drop(x)).chunk(3, -1))  # fmt: skip
                self.last = q.detach(), k.detach()
                mixed = attend(q, k, v).transpose(1, 2).flatten(2)
                return torch.nn.functional.pad(mixed, (0, 0, 0, x.shape[1] - mixed.shape[1]))

        return Block()

    def __call__(self):
        torch.manual_seed(1)
        return torch.nn.Sequential(self.block(), self.block())


def states(seed=2):
    return 3 * torch.randn(2, T, WIDTH, generator=torch.Generator().manual_seed(seed))


def train(model, watch=None, steps=3):
    """Outputs, gradients and the state of random numbers; and what the watch logged."""
    torch.manual_seed(5)
    optimizer, kept, logs = torch.optim.AdamW(model.parameters(), lr=1e-2), [], []
    for step in range(steps):
        optimizer.zero_grad()
        out = model(states(step))
        out.square().mean().backward()
        kept += [out.detach().clone(), *(p.grad.clone() for p in model.parameters())]
        optimizer.step()
        logs.append(watch.log() if watch else {})
    return [*kept, torch.get_rng_state()], logs


@contextlib.contextmanager
def lines():
    """What the watch says."""
    said = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield said
    said += [str(x.message) for x in caught if str(x.message).startswith("Watch")]
    assert all("\n" not in x and len(x) < 400 for x in said)


def same_bits(make, wrap=lambda model: model, watch=lambda model, wrapped: model):
    """Train with and without a watch; what it logged, what it said, and the watch."""
    torch._dynamo.reset()
    plain, _ = train(wrap(make()))
    torch._dynamo.reset()
    model = make()
    wrapped = wrap(model)
    with lines() as said, Watch(watch(model, wrapped)) as looking:
        seen, logs = train(wrapped, looking)
    assert len(plain) == len(seen) > 3
    assert all(torch.equal(a, b) for a, b in zip(plain, seen, strict=True))
    assert not library("torch.overrides")._get_current_function_mode_stack()
    assert not any(x._forward_hooks or x._forward_pre_hooks for x in model.modules())
    return logs, said, looking


def three(q, k, v):
    return sdpa(*(x.flatten(0, 1) for x in (q, k, v))).unflatten(0, q.shape[:2])


def bias(which, queries):
    def attend(q, k, v):
        made = getattr(library("torch.nn.attention.bias"), f"causal_{which}")(queries, T)
        return sdpa(q[:, :, -queries:], k, v, attn_mask=made)

    return attend


def by_checkpoint(reentrant, **more):
    def attend(q, k, v):
        checkpoint = library("torch.utils.checkpoint").checkpoint
        given = {name: make() for name, make in more.items()}
        return checkpoint(causal, q, k, v, use_reentrant=reentrant, **given)

    return attend


def selective():
    contexts = library("torch.utils.checkpoint").create_selective_checkpoint_contexts
    kept = [torch.ops.aten.mm.default, torch.ops.aten.bmm.default, torch.ops.aten.softmax.int]
    return functools.partial(contexts, kept)


def float_mask(q, k, v):
    return sdpa(q, k, v, attn_mask=torch.zeros(T, T).masked_fill(~CAUSAL(), -1e30))


def CAUSAL():
    return torch.ones(T, T).tril().bool()


def on_device(q, k, v):
    with torch.device("cpu"):  # a mode of functions
        return causal(q, k, v)


def counted(q, k, v):
    with library("torch.utils.flop_counter").FlopCounterMode(display=False) as mode:
        found = causal(q, k, v)
    assert mode.get_total_flops() in (0, 2 * len(q) * HEADS * T * T * (q.shape[-1] + v.shape[-1]))
    return found


SEEN = {
    "causal": causal,
    "lower right, fewer queries": bias("lower_right", 7),
    "three axes": three,
    "fewer key heads": lambda q, k, v: sdpa(q, k[:, :2], v[:, :2], enable_gqa=True),
    "queries for all": lambda q, k, v: sdpa(q[:, :1], k, v),
    "scale": lambda q, k, v: sdpa(q, k, v, scale=0.1),
    "mask of keys": lambda q, k, v: sdpa(q, k, v, attn_mask=torch.arange(T)[None] < 9),
    "float mask": float_mask,
    "learned mask": lambda q, k, v: sdpa(q, k, v, attn_mask=q.mean(-1, True).expand(-1, -1, T, T)),
    "a mode of functions": on_device,
    "a mode of operations": counted,
    "checkpoint": by_checkpoint(False),
    "reentrant checkpoint": by_checkpoint(True),
    "selective checkpoint": by_checkpoint(False, context_fn=selective),
}


@pytest.mark.parametrize("kind", SEEN)
def test_the_numbers_are_those_of_the_function_and_the_bits_stay(kind):
    attend = SEEN[kind]
    logs, said, watch = same_bits(Model(attend))
    assert said == []
    assert watch.unseen == {}
    assert all(logs)
    model = Model(attend, dropout=0.0)()
    with Watch(model, rows=None) as watch:
        model(states())
    found = watch.read()
    assert list(found) == ["0", "1"]
    for part, layer in zip(model, found.values(), strict=True):
        q, k = part.last
        p = attend(q, k, torch.eye(T).expand(*k.shape[:2], T, T)).double().numpy()
        p = p.reshape(1, -1, *p.shape[2:]) if kind == "three axes" else p
        p = np.moveaxis(p, 1, 0).reshape(p.shape[1], -1, T)
        text = layer["length"] > 0  # where a mask hides a query's own key, it is padding
        assert text.mean() == (9 / T if kind == "mask of keys" else 1)
        assert_allclose(layer["n_eff"][text], (1 / (p * p).sum(-1))[text], rtol=2e-5)
        assert (layer["length"] == (p > 0).sum(-1))[text].all()
        assert_allclose(layer["sink_mass"][text], p[..., 0][text], rtol=1e-3, atol=1e-6)
        assert np.min((layer["n_eff"] / layer["length"])[text]) < 0.97


def with_dropout(q, k, v):
    return sdpa(q, k, v, None, 0.3, True)


def in_half(name):
    def attend(q, k, v):
        kind = getattr(torch, name)
        return causal(*(x.to(kind) for x in (q, k, v))).float()

    return attend


@pytest.mark.parametrize("kind", ["dropout", "float16", "bfloat16", "autocast"])
def test_what_rounds_or_drops_weights_is_seen_as_well(kind):
    make = Model(with_dropout if kind == "dropout" else causal)
    if kind in ("float16", "bfloat16"):
        make = Model(in_half(kind))
    with torch.autocast("cpu", torch.bfloat16, enabled=kind == "autocast"):
        logs, said, watch = same_bits(make)
    assert said == []
    assert watch.unseen == {}
    assert all(logs)
    assert logs[0]["all/length"] == pytest.approx(28 / 3)


def jagged(q, k, v):

    def nested(x):
        flat = x.transpose(1, 2).flatten(0, 1).contiguous()
        at = torch.arange(0, len(flat) + 1, T)
        return torch.nested.nested_tensor_from_jagged(flat, offsets=at).transpose(1, 2)

    kernel = library("torch.nn.attention")
    with kernel.sdpa_kernel(kernel.SDPBackend.MATH):
        found = sdpa(nested(q), nested(k), nested(v))
    return found.transpose(1, 2).values().unflatten(0, (-1, T)).transpose(1, 2)


def of_another_type(q, k, v):

    class Own(torch.Tensor):
        pass

    return causal(q.as_subclass(Own), k, v).as_subclass(torch.Tensor)


def in_vmap(q, k, v):
    return torch.vmap(causal)(q, k, v)


def in_grad(q, k, v):
    kernel = library("torch.nn.attention")
    with kernel.sdpa_kernel(kernel.SDPBackend.MATH):
        return q + torch.func.grad(lambda x: causal(x, k, v).square().sum())(q)


def without_queries(q, k, v):
    return q + torch.cat([sdpa(q[:, :, :0], k, v), v], 2)


def in_code_of_its_own(q, k, v):
    return torch.softmax(q @ k.mT, -1) @ v


UNSEEN = {
    "jagged": (jagged, "NestedTensor"),
    "another type": (of_another_type, "Own"),
    "vmap": (in_vmap, "torch.func"),
    "grad": (in_grad, "torch.func"),
    "no queries": (without_queries, "without queries"),
    "own code": (in_code_of_its_own, "made no call"),
}


@pytest.mark.filterwarnings("ignore")  # of PyTorch, of nested tensors
@pytest.mark.parametrize("kind", UNSEEN)
def test_what_cannot_be_read_is_said_once_and_the_bits_stay(kind):
    attend, words = UNSEEN[kind]
    logs, said, watch = same_bits(Model(attend))
    assert logs == [{}, {}, {}]
    assert len(said) == 1
    assert words in said[0]
    assert words in next(iter(watch.unseen.values()))


def compiled(model, **more):
    return torch.compile(model, backend="eager", **more)


def in_place(model):
    model.compile(backend="eager")
    return model


def by_parts(model):
    model[0] = compiled(model[0])
    model[1].compile(backend="eager")
    return model


COMPILED = {
    "compiled beside": (compiled, lambda model, wrapped: model),
    "watch of the compiled": (compiled, lambda model, wrapped: wrapped),
    "a full graph": (functools.partial(compiled, fullgraph=True), lambda model, wrapped: wrapped),
    "in place": (in_place, lambda model, wrapped: model),
    "by parts": (by_parts, lambda model, wrapped: wrapped),
}


@pytest.mark.parametrize("kind", COMPILED)
def test_compiled_code_is_computed_again_or_said(kind):
    wrap, watch = COMPILED[kind]
    logs, said, looking = same_bits(Model(dropout=0.0), wrap, watch)
    if kind == "compiled beside":  # what runs is not what the watch was given
        assert logs == [{}, {}, {}]
        assert len(said) == 1
        assert "force_eager" in said[0]
        assert looking.unseen
    else:
        assert said == []
        assert not looking.unseen
        # The backend runs the same operations: what is measured is that of the plain model.
        assert logs == same_bits(Model(dropout=0.0))[0]
    model = Model()()
    wrapped = wrap(model)
    with lines() as said, Watch(watch(model, wrapped)) as looking:  # noqa: SIM117
        with torch.compiler.set_stance("force_eager"):
            assert all(train(wrapped, looking)[1])
    assert said == []
    assert list(looking._calls.names.values())[1] == "0"
    if kind in ("compiled beside", "by parts"):  # their hooks are compiled anew
        return
    model = Model(dropout=0.0)()
    wrapped = wrap(model)
    train(wrapped, steps=1)  # compiles; a watch must not make it compile again
    with lines() as said, Watch(watch(model, wrapped)) as looking:  # noqa: SIM117
        with torch.compiler.set_stance("fail_on_recompile"):
            logs = train(wrapped, looking)[1]
    assert said == []
    assert all(logs)


def test_dropout_is_drawn_again_alike_and_every_other_pass_is_looked_at():
    plain = same_bits(Model(dropout=0.2))[0]
    wrap = functools.partial(compiled, fullgraph=True)
    logs, said, _ = same_bits(Model(dropout=0.2), wrap, lambda model, wrapped: wrapped)
    assert logs == plain
    assert said == []
    torch._dynamo.reset()
    with lines() as said, Watch(compiled(Model()()), every=2) as watch:
        logs = train(watch._calls._given, watch)[1]
    assert [bool(x) for x in logs] == [True, False, True]
    assert said == []


def own_code(block):
    def forward(x):
        q, k, v = block.inner(x).chunk(3, -1)
        return torch.softmax(q @ k.mT, -1) @ v

    block.forward = forward


@pytest.mark.parametrize(
    ("change", "silent"),
    [(own_code, ["0"]), (lambda block: None, [])],
    ids=["own code", "as the other"],
)
def test_a_block_without_a_call_that_its_like_makes_is_said_to_be_missing(change, silent):
    def make():
        torch.manual_seed(1)
        block = Model(dropout=0.0).block()
        return torch.nn.Sequential(block, copy.deepcopy(block))

    def wrap(model):
        change(model[0])
        return model

    logs, said, watch = same_bits(make, wrap)
    assert list(watch.unseen) == silent
    assert len(said) == len(silent)
    assert all("made no call" in x for x in said)
    assert [any(name.startswith("0.") for name in log) for log in logs] == [not silent] * 3
    assert all("1.head0/n_eff" in log for log in logs)


def test_a_watch_keeps_no_weights_that_autocast_would_find_later():
    def evaluated(watched):
        torch._dynamo.reset()
        model = Model(dropout=0.0)()
        wrapped = torch.compile(model, backend="aot_eager")  # casts within, as code of Inductor
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        with torch.autocast("cpu", torch.bfloat16):
            before = torch.is_autocast_cache_enabled()
            with Watch(wrapped) if watched else contextlib.nullcontext() as watch:
                for step in range(2):
                    optimizer.zero_grad()
                    wrapped(states(step)).float().square().mean().backward()
                    optimizer.step()
                    assert not watched or watch.log()  # of the second step's weights as well
            assert torch.is_autocast_cache_enabled() == before
            assert not watched or not watch.unseen
            with torch.no_grad():
                return model(states())

    assert torch.equal(evaluated(False), evaluated(True))


def test_compiled_code_that_does_something_else_is_not_seen():
    def another(graph, inputs):
        def run(*given):
            return tuple(1.01 * x if x.is_floating_point() else x for x in graph(*given))

        return run

    torch._dynamo.reset()
    model = torch.compile(Model(dropout=0.0)(), backend=another)
    with lines() as said, torch.no_grad(), Watch(model) as watch:
        model(states())
        assert watch.log() == {}
    assert len(said) == 1
    assert "something else than uncompiled code" in said[0]


def test_what_a_second_pass_might_change_is_not_seen():
    class Cache:
        keys = ()

    class Cached(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.blocks = Model(dropout=0.0)()
            self.count = torch.nn.Buffer(torch.zeros(()))

        def forward(self, x, cache=None):
            self.count += 1
            return self.blocks(x)

    torch._dynamo.reset()
    model = compiled(Cached())
    with lines() as said, torch.no_grad(), Watch(model) as watch:
        model(states(), cache=Cache())
        assert watch.log() == {}
        assert model.count == 1
        model(states())
        assert watch.log()
        assert model.count == 2  # a buffer that the second pass changed is put back
    assert len(said) == 1
    assert "given a Cache" in said[0]
    assert "forward" in vars(model)
    assert model._orig_mod.blocks[0].last  # the model is whole
    model(states())
    assert model.count == 3


def test_a_second_pass_starts_where_the_first_did_and_leaves_nothing():
    class Counts(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.blocks = Model(dropout=0.0)()
            self.scale = torch.nn.Buffer(torch.ones(()))
            self.passes = 0

        def forward(self, x):
            self.passes += 1
            self.scale.mul_(0.5)  # and the backward pass needs it
            return self.blocks(x * self.scale) * self.scale

    plain = same_bits(Counts)[0]
    for wrap in (compiled, in_place):
        made = []

        def kept(model, wrap=wrap, made=made):
            made.append(model)
            return wrap(model)

        logs, said, _ = same_bits(Counts, kept, lambda model, wrapped: wrapped)
        assert said == []
        assert logs == plain
        assert [(x.passes, float(x.scale)) for x in made] == [(3, 0.125)] * 2
    assert plain[0] != plain[1]


def broken(part, value):
    """Attention in whose second head the queries, keys or values of some tokens are not finite."""

    def attend(q, k, v):
        own = [q, k, v]
        own[part] = own[part].clone()
        own[part][:, 1, T // 2 :] = value
        return causal(*own)

    return attend


def biased(q, k, v):
    bias = torch.zeros(HEADS, T, T).masked_fill(~CAUSAL(), -torch.inf)
    bias[1, T // 2 :] += torch.nan
    return sdpa(q, k, v, attn_mask=bias)


GONE = {
    **{f"{'qkv'[i]} {x}": broken(i, x) for i in range(3) for x in (float("nan"), float("inf"))},
    "a bias": biased,
}


@pytest.mark.parametrize("kind", GONE)
def test_a_head_that_is_not_finite_is_told_and_hides_no_other(kind):
    """In code that runs as it is, and in compiled code, whose second pass has the same NaN."""
    for wrap in (lambda model: model, compiled):
        torch._dynamo.reset()
        told = []
        for attend in (causal, GONE[kind]):
            first = Model(attend, dropout=0.0)()[0]
            model = wrap(first)
            with lines() as said, torch.no_grad(), Watch(model, rows=None) as watch:
                model(states())
            told.append((watch.read(), watch.unseen, said))
        (plain, _, _), (found, unseen, said) = told
        assert (unseen, said) == ({}, [])
        (plain,), (found,) = plain.values(), found.values()
        late = np.flatnonzero(plain["length"][0] > T // 2)
        for name, x in found.items():
            np.testing.assert_array_equal(x[[0, 2, 3]], plain[name][[0, 2, 3]], err_msg=name)
        numbers = monitoring.log([found])
        count = numbers["layer0.head1/bad_rows"]
        # Of values some kernels multiply those of hidden keys by 0, which makes NaN of all rows.
        assert count == len(late) or (kind[0] == "v" and len(late) <= count <= 2 * T)
        assert numbers["layer0/bad_rows"] == count
        assert np.isfinite(numbers["layer0.head0/n_eff"])
        assert [x.name for x in monitoring.alert(numbers, "layer0.head*/n_eff", below=0)] == [
            "layer0.head1/n_eff"
        ]


def test_a_data_parallel_model_is_seen_compiled_or_not():
    distributed = library("torch.distributed")
    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    try:
        parallel = torch.nn.parallel.DistributedDataParallel
        plain = same_bits(Model(dropout=0.0))[0]
        for wrap in (
            parallel,
            lambda model: compiled(parallel(model)),
            lambda model: parallel(compiled(model)),
            lambda model: in_place(parallel(model)),
        ):
            logs, said, watch = same_bits(Model(dropout=0.0), wrap, lambda model, wrapped: wrapped)
            assert said == []
            assert logs == plain
            parts = [f"{i}{part}" for i in range(2) for part in ("", ".inner", ".drop")]
            assert list(watch._calls.names.values()) == ["model", *parts]
    finally:
        distributed.destroy_process_group()


def test_errors_interrupts_and_strangers_leave_it_in_order():
    make = Model(dropout=0.0)

    class Fails(torch.nn.Module):
        error = KeyError

        def forward(self, x):
            if self.error:
                raise self.error
            return x

    last, x = Fails(), states()
    model = torch.nn.Sequential(make(), last)
    with Watch(model, every=2) as watch:
        counts = []
        for error in (KeyError, KeyError, KeyboardInterrupt, KeyboardInterrupt, None, None):
            last.error = error
            with contextlib.suppress(KeyError, KeyboardInterrupt):
                model(x)
            counts.append(len(watch.read()))
    assert counts == [2, 0, 2, 0, 2, 0]

    class Holds(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.own, self.others = make(), [make()]

        def forward(self, x):
            return self.own(x) + self.others[0](x)

    model = Holds()
    with lines() as said, Watch(model) as watch:
        model(x)
        # What is no part of the model calls for the module that runs it.
        assert list(watch.read()) == ["own.0", "own.1", "model#0", "model#1"]
    assert said == []


def test_watches_over_each_other_again_and_not_at_all():
    model, x = Model()(), states()
    one, two = Watch(model), Watch(model, every=2)
    one.__enter__()
    model(x)
    two.__enter__()
    model(x)
    one.__exit__(None, None, None)
    model(x)
    model(x)
    two.__exit__(None, None, None)
    model(x)
    assert [w.read()["0"]["n_eff"].shape for w in (one, two)] == [(4, 48), (4, 48)]
    with one:
        model(x)
        with pytest.raises(InputError, match="open already"), one:
            pass
    assert one.log()
    for act in (Watch(model).log, Watch(model).read):
        with pytest.raises(InputError, match="with Watch"):
            act()
    with lines() as said, Watch(model) as watch:
        assert watch.log() == {} == watch.log()
    assert len(said) == 1
    assert "did not run" in said[0]
    scripted = torch.jit.ScriptModule()
    with pytest.raises(InputError, match="TorchScript"), Watch(scripted):
        pass


def test_a_model_that_is_copied_saved_or_called_in_parts_and_threads():
    make = Model()
    model, x = make(), states()
    with lines() as said, Watch(model) as watch:
        model(x)
        assert watch.read()["0"]["n_eff"].shape == (4, 24)
        file = io.BytesIO()
        torch.save(model.state_dict(), file)
        copied = copy.deepcopy(model)
        copied(x)
        model[0](x)
        assert list(watch.read()) == ["0"]
        model.forward(x)
        assert list(watch.read()) == ["0", "1"]
        threads = [threading.Thread(target=lambda: [model(x) for _ in range(5)]) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert watch.read()["0"]["n_eff"].shape == (4, 4 * 5 * 24)
    assert said == []
    assert b"sparsity" not in pickle.dumps([x for y in copied.modules() for x in y._forward_hooks])
    copied(x)
    with lines() as said, Watch(model) as watch:
        model(torch.full_like(x, torch.nan))
        numbers = watch.log()
    assert said == []
    assert numbers["all/bad_rows"] == 2 * HEADS * 24
    assert np.isnan(numbers["all/n_eff"])


@pytest.mark.parametrize("kind", ["attention", "layer"])
def test_attention_of_many_heads_is_said_to_be_unseen(kind):
    class Own(torch.nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.attend = torch.nn.MultiheadAttention(WIDTH, HEADS, batch_first=True)
            if kind == "layer":
                self.attend = torch.nn.TransformerEncoderLayer(WIDTH, HEADS, 64, batch_first=True)

        def forward(self, x):
            return x + (self.attend(x, x, x)[0] if kind == "attention" else self.attend(x))

    logs, said, watch = same_bits(Own)
    assert logs == [{}, {}, {}]
    assert len(said) == 1
    assert "inside is not read" in said[0]
    assert list(watch.unseen) == [{"attention": "attend", "layer": "attend.self_attn"}[kind]]
