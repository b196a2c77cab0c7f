"""The watch over models that call the package flash_attn, by a stand-in of the same functions.

The package needs a GPU to be built. The stand-in has its signatures and its documented meaning,
written out with a matrix for each text; its truth is the function itself, applied to the unit
matrix as values, which gives the weights.
"""

import itertools
import sys
import types
import warnings
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose

from sparsity.attention.checkpoints.checkpoint import library
from sparsity.attention.monitoring import Watch, interception

pytestmark = pytest.mark.model  # needs PyTorch; run with `pytest -m model`

T, HEADS, DIM = 24, 4, 8
STARTS = (0, 5, 5, 24, 48)  # of four texts of 48 tokens, one of them empty


def one_text(q, k, v, slopes, options):
    """The documented attention of one text: [tokens, heads, dim]."""
    torch = library("torch")
    count, keys, groups = len(q), len(k), q.shape[1] // k.shape[1]
    k, v = (x.repeat_interleave(groups, 1) for x in (k, v))
    scale = options["softmax_scale"] or q.shape[-1] ** -0.5
    s = torch.einsum("ihd,jhd->hij", q.float(), k.float()) * scale
    if options["softcap"]:
        s = options["softcap"] * torch.tanh(s / options["softcap"])
    gap = torch.arange(keys) - torch.arange(count)[:, None] - (keys - count)
    if options.get("top_left"):  # a planted mistake
        gap = gap + keys - count
    if slopes is not None:
        s = s - slopes[:, None, None] * gap.abs()
    left, right = options["window_size"]
    right = 0 if options["causal"] else right
    hidden = ((gap > right) & (right >= 0)) | ((gap < -left) & (left >= 0))
    p = torch.softmax(s.masked_fill(hidden, -torch.inf), -1).nan_to_num()
    p = torch.nn.functional.dropout(p, options["dropout_p"])
    return torch.einsum("hij,jhd->ihd", p.to(v.dtype), v)


def attention(q, k, v, starts=None, alibi_slopes=None, **options):
    torch = library("torch")
    packed = starts is not None
    if packed:
        q, k, v = (
            [x[a:b] for a, b in itertools.pairwise(at)]
            for x, at in zip((q, k, v), (starts[0], starts[1], starts[1]), strict=True)
        )
    slopes = alibi_slopes
    several = slopes is not None and slopes.ndim == 2
    made = [
        one_text(*x, slopes[i] if several else slopes, options)
        for i, x in enumerate(zip(q, k, v, strict=True))
    ]
    out = torch.cat(made) if packed else torch.stack(made)
    return (out, None, None) if options["return_attn_probs"] else out


def flash_module():
    """A module with the functions, signatures and defaults of the package."""
    made = types.ModuleType("flash_attn")
    ends = (
        "dropout_p=0.0, softmax_scale=None, causal=False, window_size=(-1, -1), softcap=0.0, "
        "alibi_slopes=None, deterministic=False, return_attn_probs=False"
    )
    more = ", ".join(f"{x}={x}" for x in (
        "dropout_p", "softmax_scale", "causal", "window_size", "softcap", "alibi_slopes",
        "return_attn_probs",
    ))  # fmt: skip
    two = "cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k"
    for name, first, given in (
        ("func", "q, k, v", "q, k, v"),
        ("kvpacked_func", "q, kv", "q, kv[:, :, 0], kv[:, :, 1]"),
        ("qkvpacked_func", "qkv", "qkv[:, :, 0], qkv[:, :, 1], qkv[:, :, 2]"),
        ("varlen_func", f"q, k, v, {two}", "q, k, v, (cu_seqlens_q, cu_seqlens_k)"),
        ("varlen_kvpacked_func", f"q, kv, {two}",
         "q, kv[:, 0], kv[:, 1], (cu_seqlens_q, cu_seqlens_k)"),
        ("varlen_qkvpacked_func", "qkv, cu_seqlens, max_seqlen",
         "qkv[:, 0], qkv[:, 1], qkv[:, 2], (cu_seqlens, cu_seqlens)"),
    ):  # fmt: skip
        table = ", block_table=None" if name == "varlen_func" else ""
        own = ", top_left=False" if name == "func" else ""
        code = f"def flash_attn_{name}({first}, {ends}{table}{own}):\n"
        code += f"    return attention({given}, {more}{own and ', top_left=top_left'})\n"
        exec(code, {"attention": attention}, vars(made))
    cached = "def flash_attn_with_kvcache(q, k_cache, v_cache, softmax_scale=None, causal=False):\n"
    cached += "    return flash_attn_func(q, k_cache, v_cache, 0.0, softmax_scale, causal)\n"
    exec(cached, vars(made))
    return made


@pytest.fixture(autouse=True)
def flash(monkeypatch):
    made = flash_module()
    monkeypatch.setitem(sys.modules, "flash_attn", made)
    # As `from flash_attn import flash_attn_func as attend_by_alias` in the file of the model.
    monkeypatch.setitem(globals(), "attend_by_alias", made.flash_attn_func)
    return made


attend_by_alias: Any = None


def plain(**options):
    def attend(flash, q, k, v):
        return flash.flash_attn_func(q, k, v, **options)

    return attend


def with_slopes(*shape):
    def attend(flash, q, k, v):
        slopes = 2.0 ** -library("torch").arange(1, 1 + np.prod(shape)).float().reshape(shape)
        return flash.flash_attn_func(q, k, v, causal=True, alibi_slopes=slopes)

    return attend


def texts(kind, queries=None, **options):
    """Both texts of the batch as three behind each other; `queries` of each are asked, at most."""

    def attend(flash, q, k, v):
        torch = library("torch")
        batch = q.shape[:2]
        q, k, v = (x.flatten(0, 1) for x in (q, k, v))
        at = torch.tensor(STARTS, dtype=torch.int32)
        if kind == "qkv":
            made = flash.flash_attn_varlen_qkvpacked_func(
                torch.stack((q, k, v), 1), at, T, **options
            )
        elif kind == "kv":
            made = flash.flash_attn_varlen_kvpacked_func(
                q, torch.stack((k, v), 1), at, at, T, T, **options
            )
        else:
            counts = at.diff().clamp(max=queries or T)
            own = torch.cat([q[b - n : b] for b, n in zip(at[1:], counts, strict=True)])
            starts = torch.nn.functional.pad(counts.cumsum(0).int(), (1, 0))
            made = flash.flash_attn_varlen_func(own, k, v, starts, at, T, T, **options)
            made = torch.nn.functional.pad(made, (0, 0, 0, 0, 0, len(q) - len(made)))
        return made.unflatten(0, batch)

    return attend


SEEN = {
    "all": plain(),
    "causal": plain(causal=True),
    "by another name": lambda flash, q, k, v: attend_by_alias(q, k, v, causal=True),
    "causal, fewer queries": lambda flash, q, k, v: flash.flash_attn_func(
        q[:, -7:], k, v, causal=True
    ),
    "causal, fewer keys": lambda flash, q, k, v: flash.flash_attn_func(
        q, k[:, :9], v[:, :9], causal=True
    ),
    "window": plain(window_size=(5, 2)),
    "causal window": plain(window_size=(5, -1), causal=True),
    "scale": plain(softmax_scale=0.1, causal=True),
    "soft cap": plain(softcap=2.0, causal=True),
    "slopes": with_slopes(HEADS),
    "slopes of each text": with_slopes(2, HEADS),
    "fewer key heads": lambda flash, q, k, v: flash.flash_attn_func(
        q, k[:, :, :2], v[:, :, :2], causal=True
    ),
    "weights beside": lambda flash, q, k, v: flash.flash_attn_func(
        q, k, v, causal=True, return_attn_probs=True
    )[0],
    "keys and values": lambda flash, q, k, v: flash.flash_attn_kvpacked_func(
        q, library("torch").stack((k, v), 2), causal=True
    ),
    "one array": lambda flash, q, k, v: flash.flash_attn_qkvpacked_func(
        library("torch").stack((q, k, v), 2), causal=True
    ),
    "texts": texts("", causal=True),
    "texts, window": texts("", window_size=(3, 1)),
    "texts, fewer queries": texts("", queries=7, causal=True),
    "texts, keys and values": texts("kv", causal=True),
    "texts, one array": texts("qkv", causal=True),
}


def model(attend, flash):
    torch = library("torch")

    class FlashAttention(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = torch.nn.Linear(HEADS * DIM, 3 * HEADS * DIM)

        def forward(self, x):
            q, k, v = (y.unflatten(-1, (HEADS, -1)) for y in self.inner(x).chunk(3, -1))
            self.last = q.detach(), k.detach()
            mixed = attend(flash, q, k, v).flatten(2)
            return x + torch.nn.functional.pad(mixed, (0, 0, 0, x.shape[1] - mixed.shape[1]))

    torch.manual_seed(1)
    return torch.nn.Sequential(FlashAttention(), FlashAttention())


def states():
    torch = library("torch")
    return 3 * torch.randn(2, T, HEADS * DIM, generator=torch.Generator().manual_seed(2))


def train(given, watch=None):
    """Outputs and weights of three steps, and what was logged."""
    torch = library("torch")
    torch.manual_seed(5)
    optimizer, kept, logs = torch.optim.AdamW(given.parameters(), lr=1e-2), [], []
    for _ in range(3):
        optimizer.zero_grad()
        out = given(states())
        out.square().mean().backward()
        optimizer.step()
        kept += [out.detach(), *(p.detach().clone() for p in given.parameters())]
        logs.append(watch.log() if watch else {})
    return [*kept, torch.get_rng_state()], logs


def watched(attend, flash):
    """Train with and without a watch, to the same bits; the watch, its logs, and what it said."""
    torch = library("torch")
    bare, _ = train(model(attend, flash))
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        with Watch(model(attend, flash)) as watch:
            kept, logs = train(watch.model, watch)
    assert len(bare) == len(kept) == 3 * 5 + 1
    assert all(torch.equal(a, b) for a, b in zip(bare, kept, strict=True))
    assert not interception._REPLACED
    assert not hasattr(flash.flash_attn_func, "__wrapped__")
    return watch, logs, [str(x.message) for x in said if str(x.message).startswith("Watch")]


def test_every_function_of_the_package_is_called():
    assert (len(SEEN), len(UNSEEN)) == (20, 3)
    assert len([x for x in vars(flash_module()) if x.startswith("flash_attn_")]) == 7


@pytest.mark.parametrize("kind", SEEN)
def test_the_numbers_are_those_of_the_function(kind, flash):
    torch, attend = library("torch"), SEEN[kind]
    watch, logs, said = watched(attend, flash)
    assert said == []
    assert watch.unseen == {}
    assert all(logs)
    given = model(attend, flash)
    with Watch(given, rows=None) as watch:
        given(states())
    found = watch.read()
    assert list(found) == ["0", "1"]
    for part, layer in zip(given, found.values(), strict=True):
        q, k = part.last
        unit = torch.eye(T).expand(2, HEADS, T, T).transpose(1, 2)
        p = attend(flash, *(torch.nn.functional.pad(x, (0, T - DIM)) * (T / DIM) ** 0.25
                            if kind.endswith(("one array", "keys and values")) else x
                            for x in (q, k)), unit)  # fmt: skip
        p = p.double().movedim(2, 0).flatten(1, 2).numpy()
        told = layer["length"] > 0
        mine = p.sum(-1) > 0
        assert told.sum() == mine.sum()
        assert told[0].sum() in (2 * T, 2 * 7, 2 * 9, 5 + 7 + 7)
        p = p[mine].reshape(HEADS, -1, T)
        for name, want in (("n_eff", 1 / (p * p).sum(-1)), ("length", (p > 0).sum(-1))):
            assert_allclose(layer[name][told].reshape(HEADS, -1), want, rtol=2e-5)
        assert np.min((layer["n_eff"] / layer["length"].clip(1))[told]) < 0.97


def test_dropout_and_half_precision_are_seen(flash):
    def in_half(flash, q, k, v):
        return flash.flash_attn_func(*(x.bfloat16() for x in (q, k, v)), causal=True).float()

    for attend in (plain(dropout_p=0.3, causal=True), in_half):
        watch, logs, said = watched(attend, flash)
        assert said == []
        assert watch.unseen == {}
        assert all(logs)


UNSEEN = {
    "a cache": (lambda flash, q, k, v: flash.flash_attn_with_kvcache(q, k, v), "k_cache="),
    "pages": (texts("", block_table=1), "block_table="),
    "an unknown option": (plain(causal=True, top_left=True), "top_left="),
}


@pytest.mark.parametrize("kind", UNSEEN)
def test_what_is_not_read_is_said_once(kind, flash):
    attend, words = UNSEEN[kind]
    watch, logs, said = watched(attend, flash)
    assert logs == [{}, {}, {}]
    assert len(said) == 1
    assert words in said[0]
    assert list(watch.unseen) == ["0", "1"]


def test_another_meaning_of_the_same_arguments_is_refused(flash, monkeypatch):
    def top_left(q, k, v, dropout_p=0.0, softmax_scale=None, causal=False):
        return attention(q, k, v, dropout_p=0.0, softmax_scale=None, causal=True, softcap=0.0,
                         window_size=(-1, -1), return_attn_probs=False, top_left=True)  # fmt: skip

    monkeypatch.setattr(flash, "flash_attn_func", top_left)

    def fewer(flash, q, k, v):
        return flash.flash_attn_func(q[:, -7:], k, v, causal=True)

    _, logs, said = watched(fewer, flash)
    assert logs == [{}, {}, {}]
    assert "computes something else" in said[0]
