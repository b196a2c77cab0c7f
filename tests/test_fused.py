"""Fused kernels as instruments, against the whole matrix in float64 by NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sparsity
from sparsity import InputError, fused_rows
from sparsity.attention.fused import jax_attend, torch_attend
from sparsity.attention.library import library


def matrix(q, k, scale, causal):
    """Log-sum-exp, n_eff, entropy, received mass and the first key's share from the weights."""
    k = np.repeat(np.asarray(k, np.float64), q.shape[-3] // k.shape[-3], -3)
    s = scale * np.asarray(q, np.float64) @ k.swapaxes(-1, -2)
    if causal:
        s = np.where(np.tril(np.ones(s.shape[-2:], bool)), s, -np.inf)
    top = s.max(-1, keepdims=True)
    lse = np.log(np.exp(s - top).sum(-1, keepdims=True)) + top
    p = np.exp(s - lse)
    with np.errstate(all="ignore"):
        entropy = -np.where(p > 0, p * np.log(p), 0).sum(-1)
    return lse[..., 0], 1 / (p * p).sum(-1), entropy, p.sum(-2), p[..., 0]


def drawn(heads=4, key_heads=2, tokens=96, dim=16, seed=0, size=1.5):
    rng = np.random.default_rng(seed)
    return tuple(size * rng.normal(size=(2, h, tokens, dim)) for h in (heads, key_heads))


def compared(found, wanted, rtol, atol):
    for name, own, true in zip(found._fields, found, wanted, strict=True):
        np.testing.assert_allclose(np.asarray(own), true, rtol=rtol, atol=atol, err_msg=name)


def by_numpy(q, k, v, scale, causal):
    """A kernel in float64 that returns what fused ones do."""
    s = scale * q @ k.swapaxes(-1, -2)
    if causal:
        s = np.where(np.tril(np.ones(s.shape[-2:], bool)), s, -np.inf)
    top = s.max(-1, keepdims=True)
    lse = np.log(np.exp(s - top).sum(-1, keepdims=True)) + top
    return np.exp(s - lse) @ v, lse[..., 0]


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("key_heads", [4, 2, 1])
def test_every_statistic_of_numpy(causal, key_heads):
    q, k = drawn(key_heads=key_heads)
    found = fused_rows(by_numpy, q, k, causal=causal)
    compared(found, matrix(q, k, 0.25, causal), 1e-11, 1e-11)


@pytest.mark.thorough
@pytest.mark.parametrize("causal", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_of_jax(causal):
    q, k = (jnp.asarray(x, jnp.float32) for x in drawn())
    found = fused_rows(jax_attend, q, k, causal=causal)
    compared(found, matrix(q, k, 0.25, causal), 1e-5, 1e-5)


def test_half_precision_rounds_no_more_than_its_inputs():
    q, k = (jnp.asarray(x, jnp.bfloat16) for x in drawn())
    found = jax.jit(lambda q, k: fused_rows(jax_attend, q, k, causal=True))(q, k)
    as_read = [np.asarray(x.astype(jnp.float32)) for x in (q, k)]
    wanted = matrix(*as_read, 0.25, True)
    compared(found, wanted, 1e-5, 1e-5)


def test_compiled_half_precision_keeps_all_pieces():
    """On a GPU, XLA dropped the conversions that make the pieces: the mass was off by 0.03."""
    q, k = (jnp.asarray(x, jnp.bfloat16) for x in drawn(4, 4, tokens=256, dim=64))

    def attend(q, k, v, scale, causal):
        s = scale * jnp.einsum("...qd,...kd->...qk", *(x.astype(jnp.float32) for x in (q, k)))
        s = jnp.where(jnp.tril(jnp.ones(s.shape[-2:], bool)), s, -jnp.inf)
        lse = jax.nn.logsumexp(s, -1)
        return jnp.exp(s - lse[..., None]) @ v.astype(jnp.float32), lse

    def received(q, k):
        return fused_rows(attend, q, k, causal=True, of=("received",)).received

    wanted = matrix(q, k, 64**-0.5, True)[3]
    np.testing.assert_allclose(jax.jit(received)(q, k), wanted, rtol=1e-5)


def test_packed_texts_and_padding():
    q, k = drawn(tokens=60)
    found = fused_rows(by_numpy, q, k, cu_seqlens=[0, 17, 18, 50])
    for start, end in ((0, 17), (17, 18), (18, 50)):
        part = found._replace(**{n: x[..., start:end] for n, x in found._asdict().items()})
        compared(part, matrix(q[..., start:end, :], k[..., start:end, :], 0.25, True), 1e-11, 1e-11)
    assert np.all(np.isnan(found.n_eff[..., 50:]))
    assert np.all(np.isfinite(found.n_eff[..., :50]))
    assert found.received.shape == found.lse.shape == (2, 4, 60)


@pytest.mark.parametrize("kind", ["int8", "int64", ">f8", "longdouble"])
def test_no_statistic_depends_on_the_type_of_whole_queries_and_keys(kind):
    """The pieces of −L were in the type of the queries: whole numbers for whole queries."""
    q, k = (np.round(x) for x in drawn())
    found = fused_rows(by_numpy, q.astype(kind), k.astype(kind))
    compared(found, matrix(q, k, 0.25, True), 1e-11, 1e-11)


def test_planted_errors_are_seen():
    q, k = drawn()

    def off(q, k, v, scale, causal):
        out, lse = by_numpy(q, k, v, scale, causal)
        return out, lse + 1e-3

    found = fused_rows(off, q, k)
    with pytest.raises(AssertionError):
        compared(found, matrix(q, k, 0.25, True), 1e-5, 1e-5)


def test_from_two_log_sum_exps():
    q, k = drawn()
    _, lse = by_numpy(q, np.repeat(k, 2, -3), np.repeat(k, 2, -3), 0.25, True)
    _, lse2 = by_numpy(2 * q, np.repeat(k, 2, -3), np.repeat(k, 2, -3), 0.25, True)
    found = sparsity.from_lse(lse, lse2)
    np.testing.assert_allclose(found.n_eff, matrix(q, k, 0.25, True)[1], rtol=1e-11)
    np.testing.assert_allclose(found.participation, 1 / found.n_eff, rtol=1e-14)


def test_errors():
    q, k = drawn()
    for make, match in (
        (lambda: fused_rows(by_numpy, q, k[..., :8]), "k = array"),
        (lambda: fused_rows(by_numpy, q[:, :3], k), "heads must divide"),
        (lambda: fused_rows(by_numpy, q, k[..., :50, :]), "as many keys"),
        (lambda: fused_rows(by_numpy, q, k, scale="a"), "scale"),  # type: ignore[arg-type]
        (lambda: fused_rows(by_numpy, q, k, cu_seqlens=[0, 50, 20]), "cu_seqlens"),
        (lambda: fused_rows(by_numpy, q, k, cu_seqlens=[0, 500]), "cu_seqlens"),
    ):
        with pytest.raises(InputError, match=match):
            make()


@pytest.mark.model
@pytest.mark.parametrize("half", [False, True])
def test_of_pytorch(half):
    torch = library("torch", "torch")
    dtype = torch.bfloat16 if half else torch.float32
    q, k = (torch.tensor(x, dtype=dtype) for x in drawn())
    found = fused_rows(torch_attend, q, k)
    wanted = matrix(*(x.float().numpy() for x in (q, k)), 0.25, True)
    found = found._replace(entropy=found.entropy.clamp(min=0))
    if half:
        compared(found._replace(entropy=0), (*wanted[:2], 0, *wanted[3:]), 5e-3, 5e-3)
        np.testing.assert_allclose(found.entropy, wanted[2], atol=5e-2)
    else:
        compared(found, wanted, 1e-5, 1e-5)


@pytest.mark.model
def test_tensors_that_are_no_arrays_are_refused_and_those_with_a_gradient_are_numbers():
    torch = library("torch", "torch")
    x = torch.ones(1, 8, 4)
    whole = fused_rows(torch_attend, x[None].int(), x[None].int())
    np.testing.assert_allclose(whole.n_eff, np.arange(1.0, 9.0)[None, None], rtol=1e-6)
    for bad in (x.bool(), x.to(torch.complex64), x.to_sparse(), np.ones((1, 8, 4)), [x]):
        with pytest.raises(InputError, match=r"^k = "):
            fused_rows(torch_attend, x, bad)
    assert sparsity.gini(torch.tensor([1.0, 1.0], requires_grad=True)) == 0
    scale = torch.tensor(0.5, requires_grad=True)
    assert sparsity.evaluate("exp", gamma=scale).value == sparsity.evaluate("exp", gamma=0.5).value
    for gone in (x.to("meta"), x.to_sparse()):
        with pytest.raises(InputError, match="of type Tensor"):
            sparsity.gini(gone)


def test_only_what_is_asked_for_is_called_for():
    q, k = drawn()
    calls = []

    def counted(*given):
        calls.append(given)
        return by_numpy(*given)

    whole = fused_rows(by_numpy, q, k)
    for of, count in ((("n_eff",), 2), (("entropy",), 1), (("received",), 2), (whole._fields, 3)):
        calls.clear()
        found = fused_rows(counted, q, k, of=of)
        assert len(calls) == count
        for name in whole._fields:
            if name in (*of, "lse"):
                np.testing.assert_array_equal(getattr(found, name), getattr(whole, name))
            else:
                assert getattr(found, name) is None
    packed = fused_rows(by_numpy, q, k, cu_seqlens=[0, 10, 96], of=["entropy"])
    assert packed.received is None
    assert packed.entropy.shape == whole.entropy.shape
    with pytest.raises(InputError, match="of = mass: choose one of"):
        fused_rows(by_numpy, q, k, of=["mass"])
