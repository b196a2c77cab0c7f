"""The forward pass of the Llama family in JAX, which shows queries and keys as it goes.

RMSNorm, rotary positions, grouped-query attention, SwiGLU. Layer by layer for all texts at once:
the weights of one layer are in memory, and no more than a block of rows of any T × T.

`layers` also intervenes: `edit` says which keys the queries of a layer do not read, and `show` is
given all that the layer computes, as `interventions` has them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sparsity.attention.checkpoints.checkpoint import LAYER, Checkpoint
from sparsity.attention.checkpoints.interventions import Edit, Inside, softmax_over

# Rows of a block of attention, and of logits over the vocabulary: more cost memory (attention has
# heads · rows · T logits at once), fewer cost more rounds.
_ROWS = 256

# By default JAX multiplies single precision with fewer bits on GPUs and TPUs.
_dot = functools.partial(jnp.matmul, precision=jax.lax.Precision.HIGHEST)


def _norm(x: Any, weight: Any, eps: float) -> Any:
    return x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + eps) * weight


def _rotate(x: Any, cos: Any, sin: Any) -> Any:
    """Turn each plane (i, i + d/2) by its angle at each position."""
    a, b = jnp.split(x, 2, axis=-1)
    return jnp.concatenate([a * cos - b * sin, a * sin + b * cos], axis=-1)


def attend(q: Any, k: Any, v: Any, edits: Any = None) -> Any:
    """Return causal softmax attention [heads, T, d], computed in blocks of rows.

    The queries are padded to whole blocks, so that one compiled block serves all; consecutive query
    heads share a key head, which is never copied for them.

    Args:
        q: queries, [heads, T, d].
        k: keys, [kv heads, T, d].
        v: values, [kv heads, T, d].
        edits: which keys are hidden and which are muted, two of bool [heads, T, T], as in `Edit`;
            None for neither.
    """
    heads, length, dim = q.shape
    groups, rows = k.shape[0], min(_ROWS, length)
    count = -(-length // rows)

    def in_blocks(x: Any) -> Any:
        x = jnp.pad(x, ((0, 0), (0, count * rows - length), (0, 0)))
        return x.reshape(groups, heads // groups, count, rows, -1).transpose(2, 0, 1, 3, 4)

    # Padded queries stand behind the text and see all of it, so that no softmax is over nothing.
    q, edits = in_blocks(q), jax.tree.map(in_blocks, edits)
    at = jnp.arange(count * rows).reshape(count, 1, 1, rows, 1)

    def block(inputs: tuple[Any, Any, Any]) -> Any:
        own, position, edits = inputs
        logits = _dot(own, k.swapaxes(-1, -2)[:, None]) / dim**0.5
        seen = jnp.arange(length) <= position
        if edits is None:
            return _dot(jax.nn.softmax(jnp.where(seen, logits, -jnp.inf)), v[:, None])
        hidden, muted = edits
        return _dot(jnp.where(muted, 0, softmax_over(logits, seen & ~hidden)), v[:, None])

    # `map` runs block after block: `vmap` would hold the logits of all of them at once.
    out = jax.lax.map(block, (q, at, edits)).transpose(1, 2, 0, 3, 4)
    return out.reshape(heads, count * rows, dim)[:, :length]


@functools.partial(jax.jit, static_argnames=("dims", "inside"))
def _layer(
    x: Any,
    w: dict[str, Any],
    cos: Any,
    sin: Any,
    dims: tuple[int, int, int],
    eps: float,
    edits: Any = None,
    inside: bool = False,
) -> tuple[Any, ...]:
    """Return the next state, and queries and keys with their positions applied.

    With `inside` values and head outputs as well: what is not returned costs no memory.
    """
    heads, kv_heads, head_dim = dims

    def project(name: str, count: int) -> Any:
        return _dot(y, w[name].T).reshape(-1, count, head_dim).swapaxes(0, 1)

    y = _norm(x, w["attn_norm"], eps)
    q = _rotate(project("q", heads), cos, sin)
    k = _rotate(project("k", kv_heads), cos, sin)
    v = project("v", kv_heads)
    out = attend(q, k, v, edits)
    x = x + _dot(out.swapaxes(0, 1).reshape(x.shape[0], -1), w["o"].T)
    y = _norm(x, w["mlp_norm"], eps)
    x = x + _dot(jax.nn.silu(_dot(y, w["gate"].T)) * _dot(y, w["up"].T), w["down"].T)
    return (x, q, k, v, out) if inside else (x, q, k)


@jax.jit
def _logits(x: Any, norm: Any, head: Any, eps: float) -> Any:
    return _dot(_norm(x, norm, eps), head.T)


@jax.jit
def _losses(logits: Any, following: Any) -> Any:
    logits = logits[: len(following)]  # nothing follows the last
    return jax.nn.logsumexp(logits, -1) - jnp.take_along_axis(logits, following[:, None], -1)[:, 0]


def layers(
    model: Checkpoint,
    texts: Sequence[np.ndarray],
    visit: Callable[[int, int, Any, Any], None],
    stop: int | None = None,
    edit: Callable[[int, int], Edit | None] = lambda layer, text: None,
    show: Callable[[int, int, Inside], None] | None = None,
) -> list[Any]:
    """Run texts through the layers of the model.

    All texts pass a layer before the next one begins: `edit` of a text may ask for what `show` has
    just been given of the texts before it, at the same layer.

    Args:
        model: the checkpoint.
        texts: token ids [T] of each.
        visit: called with (layer, text, q [heads, T, d], k [kv heads, T, d]), rotary positions
            applied, and YaRN's factor; attention is softmax(q·k/√d) over the past.
        stop: the layer before which to end; None for all.
        edit: (layer, text) -> what its queries do not read, or None.
        show: called with (layer, text, what the layer computed); None where nobody looks.

    Returns:
        The state of each text after the last of them, [T, dim].

    Raises:
        InputError: weights that are not there, of another shape, NaN or infinite.
    """
    config = model.config
    embed = model.tensor("embed")
    states = [jax.device_put(embed[ids]) for ids in texts]
    del embed  # it is as large as many layers
    turning = config.rotation
    # Angles are made in float64: at position 10⁵ one in float32 is off by up to 4e-3 radians.
    phases = [np.arange(len(ids))[:, None] * turning.angles(len(ids)) for ids in texts]
    turns = [
        tuple((turning.amplitude * f(phase)).astype(np.float32) for f in (np.cos, np.sin))
        for phase in phases
    ]
    dims = config.heads, config.kv_heads, config.head_dim
    # All texts pass a layer before the next is read: each weight is read and unpacked once.
    for layer in range(config.layers if stop is None else stop):
        w = {name: jax.device_put(model.tensor(name, layer)) for name in LAYER}
        for i, (state, (cos, sin)) in enumerate(zip(states, turns, strict=True)):
            own = edit(layer, i)
            edits = None if own is None else own.masks(config.heads, len(state))
            given = state, w, cos, sin, dims, config.eps
            if show is None:
                states[i], q, k = _layer(*given, edits)
            else:
                states[i], q, k, v, out = _layer(*given, edits, inside=True)
                show(layer, i, Inside(state, states[i], q, k, v, out, w["o"], own))
            visit(layer, i, q, k)
    return states


def token_losses(
    model: Checkpoint,
    states: Sequence[Any],
    texts: Sequence[np.ndarray],
    logits: Callable[[int, int, Any], None] = lambda text, first, values: None,
) -> list[np.ndarray]:
    """Return the loss of each next token, in nats: of each text an array [T − 1].

    Args:
        model: the checkpoint.
        states: what `layers` returns of the texts.
        texts: token ids [T] of each.
        logits: called with (text, first position, logits [positions, vocabulary]).
    """
    eps = model.config.eps
    norm, head = (jax.device_put(model.tensor(name)) for name in ("norm", "head"))
    losses = []
    for i, (state, ids) in enumerate(zip(states, texts, strict=True)):
        found = []  # logits of a whole text over a vocabulary of 10⁵ would be its largest array
        for first in range(0, len(ids), _ROWS):
            values = _logits(state[first : first + _ROWS], norm, head, eps)
            logits(i, first, values)
            following = np.asarray(ids[first + 1 : first + 1 + _ROWS])
            found.append(np.asarray(_losses(values, following), np.float64))
        losses.append(np.concatenate(found))
    return losses


def forward(
    model: Checkpoint,
    texts: Sequence[np.ndarray],
    visit: Callable[[int, int, Any, Any], None],
    logits: Callable[[int, int, Any], None] = lambda text, first, values: None,
) -> list[float]:
    """Run texts through the model.

    Args:
        model: the checkpoint.
        texts: token ids [T] of each.
        visit: as `layers` calls it.
        logits: called with (text, first position, logits [positions, vocabulary]).

    Returns:
        The mean next-token loss of each text, in nats.

    Raises:
        InputError: as `layers`.
    """
    states = layers(model, texts, visit)
    return [float(losses.mean()) for losses in token_losses(model, states, texts, logits)]
