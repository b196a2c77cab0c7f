"""Any fused attention kernel as an instrument: all that it has to return is its log-sum-exp.

With L(q) = ln Σ_j e^(s_j) of a query's row, n_eff = exp(2L(q) − L(2q)) takes a second call, with
the doubled query. The entropy is L − E s, and E s = scale·q·Σp_j k_j is a call with the keys as
values. What key j receives, Σ_t p_tj = Σ_t e^(s_tj − L_t), is a row sum of exchanged roles: keys
ask, and queries, with −L_t in entries of their own, are asked. Nothing of n × n is ever held.
"""

from __future__ import annotations

import functools
import itertools
import sys
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from sparsity import checks
from sparsity.attention.library import torch
from sparsity.calls import public
from sparsity.errors import InputError

# attend(q, k, v, scale, causal) -> (Σp v, L); [..., heads, tokens, dim] and [..., heads, tokens].
Attend = Callable[[Any, Any, Any, float, bool], tuple[Any, Any]]

_PIECES = 4  # of −L in the kernel's precision: 4 × 8 bits of bfloat16 are float32's 24 and to spare
_DIM_MULTIPLE = 8  # entries: fused kernels take multiples of eight
_MAX_FLASH_DIM = 256  # entries of a key, at most, that PyTorch's flash attention takes


class LseRows(NamedTuple):
    """What two log-sum-exps say of rows.

    Args:
        n_eff: effective number of attended keys.
        participation: Y₂ = Σp², its inverse.
    """

    n_eff: Any
    participation: Any


class FusedRows(NamedTuple):
    """What a fused kernel says of rows and of keys; None for what was not asked for.

    Args:
        lse: L of each row, [..., heads, queries].
        n_eff: effective number of attended keys, likewise.
        entropy: −Σ p ln p in nats, likewise.
        received: Σ_t p_tj, what each key takes of all queries, [..., heads, keys].
        first_mass: the share of the first key that a row can see, [..., heads, queries].
    """

    lse: Any
    n_eff: Any
    entropy: Any
    received: Any
    first_mass: Any


def _namespace(x: Any) -> Any:
    """Return the library of an array: NumPy, JAX, or PyTorch, which has no array namespace."""
    return x.__array_namespace__() if hasattr(x, "__array_namespace__") else sys.modules["torch"]


def _check_floats(what: str, **arrays: Any) -> list[Any]:
    """Return arrays of one library as floating numbers of it; whole numbers are made so.

    Raises:
        InputError: no such arrays, or no real numbers.
    """
    checked = []
    for name, x in arrays.items():
        fix, of_torch = f"give {what} of NumPy, JAX or PyTorch", hasattr(type(x), "detach")
        if not (of_torch or checks.is_jax(x)):
            checks.check_instance(name, x, (np.ndarray, np.generic), fix)
        if checked and of_torch != hasattr(type(checked[0]), "detach"):
            raise InputError(name, f"of type {type(x).__name__}", "give all of one library")
        if of_torch and (x.is_complex() or x.is_sparse or str(x.dtype) == "torch.bool"):
            raise InputError(name, f"tensor of {x.dtype}", f"{fix}, real numbers")
        x = x if of_torch else checks.check_reals(name, x, f"{fix}, real numbers", traced=True)
        whole = not x.is_floating_point() if of_torch else x.dtype.kind in "iu"
        checked.append(_cast(x, float) if whole else x)
    return checked


@public
def from_lse(lse: Any, lse2: Any) -> LseRows:
    """Return n_eff and Y₂ of rows from the log-sum-exps of their scores and of twice their scores.

    n_eff = exp(2L(q) − L(2q)) = (Σa)²/Σa² for a = e^s.

    Args:
        lse: L(q), any shape; NumPy, JAX or PyTorch.
        lse2: L(2q), of the same kernel with doubled queries or a doubled scale; same shape.

    Returns:
        n_eff and its inverse, in the precision that came in.

    Raises:
        InputError: no arrays of real numbers, or other shapes.
    """
    lse, lse2 = _check_floats("log-sum-exps", lse=lse, lse2=lse2)
    if tuple(lse.shape) != tuple(lse2.shape):
        fix = f"give one for each row, of shape {tuple(lse.shape)}"
        raise InputError("lse2", f"array of shape {tuple(lse2.shape)}", fix)
    xp = _namespace(lse)
    log = 2 * lse - lse2
    return LseRows(xp.exp(log), xp.exp(-log))


@public
def fused_rows(
    attend: Attend,
    q: Any,
    k: Any,
    *,
    scale: float | None = None,
    causal: bool = True,
    cu_seqlens: Sequence[int] | None = None,
    of: Sequence[str] = FusedRows._fields,
) -> FusedRows:
    """Return statistics of every row and every key by a fused kernel, in three calls of it.

    The log-sum-exp, the entropy and the first key's share take one call, n_eff another one, and the
    received mass another one; what is not in `of` is not called for.

    Args:
        attend: the kernel, (q, k, v, scale, causal) -> (output, log-sum-exp).
        q: queries, [..., heads, tokens, dim].
        k: keys, [..., key heads, tokens, dim]; each serves several heads, in order, where they are
            fewer.
        scale: of the scores, not 0; None is 1/√dim.
        causal: whether a query sees the keys up to its own place.
        cu_seqlens: of packed texts, where each begins and the last one ends, [texts + 1]; what lies
            before the first or behind the last is padding, and NaN in the result.
        of: which fields of the result are wanted; the others are None, but for `lse`.

    Returns:
        The statistics; a text of a packed row is read by itself.

    Raises:
        InputError: no arrays of real numbers, shapes that do not fit, ends that do not ascend, an
            unknown field, or an `attend` that returns something else.
    """
    of = (of,) if isinstance(of, str) else checks.check_several("of", of, "give names of fields")
    for name in of:
        checks.check_choice("of", name, FusedRows._fields)
    checks.check_function("attend", attend, "give a function of (q, k, v, scale, causal)")
    causal = checks.check_flag("causal", causal)
    what = "arrays [..., heads, tokens, dim]"
    q, k = _check_floats(what, q=q, k=k)
    if q.ndim < 3 or 0 in q.shape:
        raise InputError("q", f"array of shape {tuple(q.shape)}", f"give {what}, at least one each")
    checks.check_heads("k", q, k, "give as many keys as queries", q.shape[-2:] == k.shape[-2:])
    default = float(q.shape[-1]) ** -0.5
    fix = "give a number other than 0"
    given = default if scale is None else checks.check_number("scale", scale, fix, lambda x: x != 0)
    k = _repeat_keys(k, q.shape[-3] // k.shape[-3])
    attend = functools.partial(_call_kernel, attend)
    if cu_seqlens is None:
        return _measure_text(attend, q, k, given, causal, of)
    # Texts of a packed row are called for one by one: kernels for packed rows each have an
    # interface of their own, and `attend` is any kernel.
    fix = f"give ascending places from 0 to {q.shape[-2]}"
    places = checks.check_reals("cu_seqlens", cu_seqlens, fix)
    ends = checks.check_positions("cu_seqlens", places, fix, 0, q.shape[-2]).tolist()
    if len(ends) < 2 or np.any(np.diff(ends) <= 0):
        raise InputError("cu_seqlens", ends, fix)
    texts = [
        _measure_text(attend, q[..., a:b, :], k[..., a:b, :], given, causal, of)
        for a, b in itertools.pairwise(ends)
    ]
    around = ends[0], q.shape[-2] - ends[-1]
    fields = zip(*texts, strict=True)
    return FusedRows(
        *(None if parts[0] is None else _join_texts(parts, around) for parts in fields)
    )


def _call_kernel(
    attend: Attend, q: Any, k: Any, v: Any, scale: float, causal: bool
) -> tuple[Any, Any]:
    """Return what the kernel does, an output and a log-sum-exp for each query.

    Raises:
        InputError: it returns something else.
    """
    made, rows = attend(q, k, v, scale, causal), tuple(q.shape[:-1])
    pair = made if isinstance(made, tuple | list) else (made,)
    shapes = [tuple(getattr(x, "shape", ())) for x in pair]
    if len(pair) != 2 or shapes[0][:-1] != rows or shapes[1] != rows:
        fix = f"must return the output, [..., dim], and its log-sum-exp, [...], with {[*rows]} each"
        raise InputError("attend", f"function that returned arrays of shape {shapes}", fix)
    return pair[0], pair[1]


def _repeat_keys(k: Any, times: int) -> Any:
    """Return keys repeated for the heads that share them: not every kernel shares by itself."""
    heads = np.repeat(np.arange(k.shape[-3]), times).tolist()
    return k if times == 1 else _concatenate([k[..., i : i + 1, :, :] for i in heads], -3)


def _join_texts(parts: Sequence[Any], around: tuple[int, int]) -> Any:
    """Return the texts of a packed row one after the other, NaN for the padding around them."""
    missing = parts[0][..., :1] * np.nan
    before, behind = around
    return _concatenate([*[missing] * before, *parts, *[missing] * behind], -1)


def _measure_text(
    attend: Attend, q: Any, k: Any, scale: float, causal: bool, of: Sequence[str]
) -> FusedRows:
    """Return the statistics of one text: calls for L and E k, for L(2q), and for `received`."""
    # The keys are given as values: the output is then E k, and scale·q·E k is E s.
    mean_key, narrow_lse = attend(q, k, k, scale, causal)
    lse = _widen(narrow_lse)
    n_eff = entropy = received = first_mass = None
    if "n_eff" in of:
        _, lse2 = attend(q, k, k, 2 * scale, causal)
        n_eff = from_lse(lse, _widen(lse2)).n_eff
    if "entropy" in of:
        entropy = lse - scale * (_widen(q) * _widen(mean_key)).sum(-1)  # L − E s
    if "received" in of:
        received = _sum_received(attend, q, k, lse, scale, causal)
    if "first_mass" in of:
        first_mass = _namespace(q).exp(scale * (_widen(q) * _widen(k[..., :1, :])).sum(-1) - lse)
    return FusedRows(lse, n_eff, entropy, received, first_mass)


def _sum_received(attend: Attend, q: Any, k: Any, lse: Any, scale: float, causal: bool) -> Any:
    """Return Σ_t e^(s_tj − L_t) of each key j, by keys that ask and queries that are asked."""
    xp = _namespace(q)
    asking, asked = _exchange_roles(q, k, lse, scale)
    if not causal:
        return xp.exp(_widen(attend(asking, asked, asked, scale, causal)[1]))
    # Key j is seen by the queries from j on: both in reverse, the mask is the causal one again.
    asking, asked = (xp.flip(x, (x.ndim - 2,)) for x in (asking, asked))
    log = _widen(attend(asking, asked, asked, scale, causal)[1])
    return xp.flip(xp.exp(log), (log.ndim - 1,))


def _concatenate(parts: list[Any], axis: int) -> Any:
    """Return arrays one after the other: PyTorch calls the axis otherwise."""
    xp = _namespace(parts[0])
    return xp.concat(parts, axis) if xp.__name__ == "torch" else xp.concat(parts, axis=axis)


def _cast(x: Any, dtype: Any) -> Any:
    """Return the array in another precision."""
    return x.to(dtype) if _namespace(x).__name__ == "torch" else x.astype(dtype)


def _widen(x: Any) -> Any:
    """Return half precision as single, and any other as it is."""
    half = str(x.dtype).rpartition(".")[2] in ("float16", "bfloat16")
    return _cast(x, _namespace(x).float32) if half else x


def _round_to(x: Any, dtype: Any) -> Any:
    """Return the values that another precision would hold, in the precision of x.

    XLA may drop a conversion there and back, which leaves nothing for the next piece: 0.04 of the
    received mass on a GPU.
    """
    if checks.is_jax(x):
        import jax

        kind = jax.numpy.finfo(dtype)
        return jax.lax.reduce_precision(x, kind.nexp, kind.nmant)
    return _cast(_cast(x, dtype), x.dtype)


def _exchange_roles(q: Any, k: Any, lse: Any, scale: float) -> tuple[Any, Any]:
    """Return keys as queries and queries as keys, with −L of each in entries of its own.

    −L/scale is split into pieces of the kernel's precision, each multiplied by a 1 in the keys, so
    that half precision does not round it.
    """
    # Each piece is what the kernel's precision holds of the rest: their sum is −L/scale to the last
    # bit of single precision, and the kernel adds products in single precision at least.
    left = -lse / scale
    pieces = []
    for _ in range(_PIECES):
        held = _round_to(left, q.dtype)
        pieces.append(_cast(held, q.dtype)[..., None])
        left = left - held
    count = -(-(q.shape[-1] + _PIECES) // _DIM_MULTIPLE) * _DIM_MULTIPLE - q.shape[-1] - _PIECES
    zero = [q[..., :1] * 0] * count
    one = [k[..., :1] * 0 + 1] * _PIECES
    asked = _concatenate([q, *pieces, *zero], -1)
    return _concatenate([k, *one, *[k[..., :1] * 0] * count], -1), asked


def jax_attend(q: Any, k: Any, v: Any, scale: float, causal: bool) -> tuple[Any, Any]:
    """Call `jax.nn.dot_product_attention` as `attend`.

    JAX returns L in the precision of the queries; half precision is widened, as e^L would be off by
    a tenth. Products are asked for in full precision: a GPU would round the scores to ten bits.
    """
    import jax

    wide = (_widen(x) for x in (q, k, v))
    heads_inside = (jax.numpy.moveaxis(x, -3, -2) for x in wide)  # [..., tokens, heads, dim]
    with jax.default_matmul_precision("highest"):
        out, lse = jax.nn.dot_product_attention(
            *heads_inside, scale=scale, is_causal=causal, return_residual=True
        )
    return jax.numpy.moveaxis(out, -2, -3), jax.numpy.moveaxis(lse, -1, -2)


def torch_attend(q: Any, k: Any, v: Any, scale: float, causal: bool) -> tuple[Any, Any]:
    """Call PyTorch's fused attention as `attend`; arrays [batch, heads, tokens, dim], CPU or GPU.

    On a GPU this is flash attention in half precision, and the memory-efficient kernel in single,
    which flash attention does not take. Both are called by their operators, as
    `scaled_dot_product_attention` does not hand on the log-sum-exp.
    """
    aten = torch.ops.aten
    if q.device.type == "cpu":
        call = aten._scaled_dot_product_flash_attention_for_cpu
        return call(q, k, v, 0.0, causal, attn_mask=None, scale=scale)
    if q.dtype in (torch.float16, torch.bfloat16) and q.shape[-1] <= _MAX_FLASH_DIM:
        outputs = aten._scaled_dot_product_flash_attention(q, k, v, 0.0, causal, scale=scale)
    else:
        call = aten._scaled_dot_product_efficient_attention
        outputs = call(q, k, v, None, True, 0.0, causal, scale=scale)
    # The memory-efficient kernel pads its log-sum-exps to whole blocks of queries.
    return outputs[0], outputs[1][..., : q.shape[-2]]
