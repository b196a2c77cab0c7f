"""A deep stack of random attention layers.

A layer of H heads maps the tokens V (n × d) to z_j = v_j + Σ_h Σ_{i≤j} α^(h)_{ji} g_i W_h v_i, and
then v_j = z_j + M tanh(z_j). The attention α is drawn from a kernel and held fixed: it does not
depend on the tokens. Token 0 may be a sink: a given mass, or a given logit, and a value factor g_0.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from sparsity import kernels
from sparsity.attention.stacks.collapse import collapse
from sparsity.checks import check_instance, check_number, check_seed, check_whole
from sparsity.errors import InputError
from sparsity.kernels.base import Kernel, Law
from sparsity.kernels.lowering import jax_log_abs, jax_weight, numpy_log_abs
from sparsity.sampling.devices import jitted, resolve_dtype
from sparsity.sampling.random_numbers import key_of, normal
from sparsity.xla import LLVM_FOR_LONG_RUNS, LLVM_FOR_ONE_CALL

_FEW = 2**16  # normals of a stack that are drawn in less time than good code for them is compiled
Measures = TypeVar("Measures")


@dataclass(frozen=True)
class LayerSink:
    """What makes token 0 a sink; give either its mass or its logit.

    Args:
        mass: of every row after the first, in [0, 1); the other weights share the rest.
        logit: b, so that the weight of token 0 beside those of the others is |f(b)|.
        value: g_0 ≥ 0, the factor on its value: 0 makes it a no-op, 1 a token like the others.
    """

    mass: float | None = None
    logit: float | None = None
    value: float = 0.0

    def __post_init__(self) -> None:
        if (self.mass is None) == (self.logit is None):
            raise InputError("sink", (self.mass, self.logit), "give either a mass or a logit")
        if self.mass is not None:
            check_number("mass", self.mass, "must be in [0, 1)", lambda x: 0 <= x < 1)
        if self.logit is not None:
            check_number("logit", self.logit, "must be finite")
        check_number("value", self.value, "must be a finite factor >= 0", lambda x: x >= 0)


@dataclass(frozen=True)
class Stack:
    """The law of a stack of random layers.

    Args:
        kernel: of the attention, a built-in name or any `Kernel` of a score; rows are divided by
            Σ|a|, and a row whose weights all vanish attends to nothing.
        length: n, tokens.
        dim: d, of the tokens.
        depth: L, layers.
        heads: H a layer.
        beta: mean of the scores.
        gamma: their standard deviation; scores are independent, the limit of high head dimension.
        strength: w; W_h has independent entries N(0, w²/(dH)).
        branch: ‖M‖ ≥ 0 of the token-wise map, which is (1 + ‖M‖)-Lipschitz; M is ‖M‖ times a
            random reflection.
        common: r in [0, 1), correlation of the tokens: v_i ~ N(0, I/d), E v_i·v_k = r.
        sink: what token 0 is, None for a token like the others.
    """

    kernel: str | Kernel = "exp"
    length: int = 64
    dim: int = 32
    depth: int = 8
    heads: int = 4
    beta: float = 0.0
    gamma: float = 1.0
    strength: float = 1.0
    branch: float = 0.0
    common: float = 0.0
    sink: LayerSink | None = None

    def __post_init__(self) -> None:
        kernel = kernels.elementwise(self.kernel)
        if self.sink is not None:
            check_instance("sink", self.sink, LayerSink, "give a LayerSink, or None")
        if kernel.law is not Law.SCORE:
            raise InputError("kernel", kernel.name, "needs a kernel that is a function of a score")
        for name in ("beta", "gamma"):
            check_number(name, getattr(self, name), "give one number")
        kernel.bind({"beta": self.beta, "gamma": self.gamma})
        for name, least in (("length", 2), ("dim", 1), ("depth", 1), ("heads", 1)):
            check_whole(name, getattr(self, name), least)
        for name in ("strength", "branch"):
            check_number(name, getattr(self, name), "must be finite and >= 0", lambda x: x >= 0)
        check_number("common", self.common, "must be in [0, 1)", lambda x: 0 <= x < 1)

    @property
    def lipschitz(self) -> float:
        """C = 1 + ‖M‖ of the token-wise map."""
        return 1.0 + self.branch


class Layers(NamedTuple):
    """A drawn stack.

    Args:
        tokens: V^(0), [n, d].
        attention: α, [L, H, n, n].
        values: W_h, [L, H, d, d].
        maps: M, [L, d, d]; None is none, and takes no work.
        gain: g, [n].
    """

    tokens: Any
    attention: Any
    values: Any
    maps: Any
    gain: Any


class _Numbers(NamedTuple):
    """What token 0 is: whether a sink, its mass, log weight and value factor.

    They are traced, so that stacks with and without sinks compile once.
    """

    sink: Any = 0.0
    mass: Any = 0.0
    log_weight: Any = -math.inf
    value: Any = 1.0


def _split(stack: Stack) -> tuple[Stack, _Numbers]:
    """Return the stack without its sink, and the sink's numbers."""
    sink, bare = stack.sink, replace(stack, sink=None)
    if sink is None:
        return bare, _Numbers()
    value = float(sink.value)  # an int would compile anew
    if sink.mass is not None:
        return bare, _Numbers(1.0, float(sink.mass), value=value)
    log_weight = float(numpy_log_abs(kernels.elementwise(stack.kernel))(sink.logit))
    return bare, _Numbers(1.0, 0.0, log_weight, value)


def _attention(stack: Stack, numbers: _Numbers, scores: Any) -> Any:
    """Return rows of attention [..., n, n] from scores of the same shape."""
    kernel = kernels.elementwise(stack.kernel)
    position, is_sink = jnp.arange(stack.length), numbers.sink > 0
    # A sink at token 0 is put in below.
    seen = (position <= position[:, None]) & ((position > 0) | ~is_sink)
    log_a = jnp.where(seen, jax_log_abs(kernel)(scores), -jnp.inf)
    # Weights are e^(log − largest), that of the sink included: none overflows, the largest is 1.
    top = jnp.maximum(log_a.max(-1, keepdims=True), numbers.log_weight)
    top = jnp.where(jnp.isfinite(top), top, 0.0)
    a = jnp.exp(log_a - top) * jnp.sign(jax_weight(kernel)(scores))
    first = jnp.exp(numbers.log_weight - top)
    total = jnp.abs(a).sum(-1, keepdims=True) + first
    total = jnp.where(total > 0, total, 1.0)
    rows = a * ((1 - numbers.mass) / total)
    mass = numbers.mass + (first / total)[..., 0]
    mass = jnp.where(position == 0, 1.0, mass)  # the first row sees token 0 alone
    return rows.at[..., 0].set(jnp.where(is_sink, mass, rows[..., 0]))


def _shapes(stack: Stack) -> list[tuple[int, ...]]:
    """Return the shapes of the normals drawn: tokens, what they share, scores, W_h, axes of M."""
    n, d, depth, heads = stack.length, stack.dim, stack.depth, stack.heads
    shapes = [(n, d), (d,), (depth, heads, n, n), (depth, heads, d, d), (depth, d)]
    return shapes if stack.branch else shapes[:-1]


def _draw(stack: Stack, numbers: _Numbers, key: jax.Array, dtype: str) -> Layers:
    """Draw one stack, given its law without a sink and the sink's numbers."""
    numbers = _Numbers(*(jnp.asarray(x, dtype) for x in numbers))
    n, d, depth, heads, shapes = stack.length, stack.dim, stack.depth, stack.heads, _shapes(stack)
    ends = np.cumsum([math.prod(shape) for shape in shapes]).tolist()
    normals = normal(key, (ends[-1],), dtype)  # in one go: that compiles faster
    parts = jnp.split(normals, ends[:-1])
    unique, shared, scores, values, *rest = map(jnp.reshape, parts, shapes)
    tokens = math.sqrt(1 - stack.common) * unique + math.sqrt(stack.common) * shared
    maps = jnp.zeros((depth, d, d), dtype)
    # A reflection I − 2aaᵀ is orthogonal, so that ‖M‖ is the factor; it takes only d numbers.
    for axis in rest:
        axis = axis / jnp.linalg.norm(axis, axis=-1, keepdims=True)
        maps = stack.branch * (jnp.eye(d, dtype=dtype) - 2 * axis[:, :, None] * axis[:, None])
    return Layers(
        tokens / math.sqrt(d),
        _attention(stack, numbers, stack.beta + stack.gamma * scores).astype(dtype),
        values * (stack.strength / math.sqrt(d * heads)),
        maps,
        jnp.ones(n, dtype).at[0].set(numbers.value),
    )


def draw(stack: Stack, seed: int = 0, *, dtype: Any = None) -> Layers:
    """Draw tokens and layers.

    Args:
        stack: their law.
        seed: the same seed gives the same numbers.
        dtype: float32 or float64 (where JAX has it enabled); None for the wider one available.

    Raises:
        InputError: float64 asked for while JAX has it disabled.
    """
    name, normals = resolve_dtype(dtype).name, sum(map(math.prod, _shapes(stack)))
    key, (bare, numbers) = key_of(check_seed(seed)), _split(stack)
    one = jitted(
        _draw, LLVM_FOR_ONE_CALL if normals <= _FEW else LLVM_FOR_LONG_RUNS, stack=bare, dtype=name
    )
    return one(numbers=numbers, key=key)


@jax.jit
def forward(layers: Layers) -> jax.Array:
    """Return the tokens before the first and after each layer: V^(0) … V^(L), [L + 1, n, d]."""

    def layer(v: jax.Array, parts: Any) -> tuple[jax.Array, jax.Array]:
        attention, values, maps = parts
        heads = jnp.einsum("hji,ie->hje", attention, layers.gain[:, None] * v)
        z = v + jnp.einsum("hje,hde->jd", heads, values)
        v = z if maps is None else z + jnp.tanh(z) @ maps.T
        return v, v

    parts = (layers.attention, layers.values, layers.maps)
    with jax.default_matmul_precision("highest"):  # accelerators round float32 otherwise
        _, states = jax.lax.scan(layer, layers.tokens, parts)
    return jnp.concatenate([layers.tokens[None], states])


def _sampled(
    stack: Stack, numbers: _Numbers, keys: jax.Array, dtype: str, measure: Callable[..., Any]
) -> Any:
    # One draw after another, so that the attention of a single stack is held at a time.
    def one(key: jax.Array) -> Any:
        layers = _draw(stack, numbers, key, dtype)
        return measure(forward(layers if stack.branch else layers._replace(maps=None)))

    return jax.lax.map(one, keys)


def sampled(
    stack: Stack,
    draws: int,
    seed: int = 0,
    *,
    dtype: Any = None,
    measure: Callable[[Any], Measures] = collapse,
) -> Measures:
    """Return the measures of independent draws of a stack.

    Args:
        stack: the law.
        draws: how many.
        seed: of all of them.
        dtype: as in `draw`.
        measure: of the tokens [L + 1, n, d]: `collapse`, or `neighbours` for every prefix.

    Returns:
        What it gives, as float64 arrays [draws, L + 1, …].
    """
    draws, seed = check_whole("draws", draws, 1), check_seed(seed)
    name = resolve_dtype(dtype).name
    keys = jax.random.split(key_of(seed), draws)
    bare, numbers = _split(stack)
    several = jitted(_sampled, LLVM_FOR_LONG_RUNS, stack=bare, dtype=name, measure=measure)
    measures = several(numbers=numbers, keys=keys)
    return type(measures)(*(np.asarray(x, np.float64) for x in measures))
