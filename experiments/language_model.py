"""A small causal language model of bytes, whose scores have positions by one of five rules.

    bytes ──> embedding ──> layers × (norm, attention, +; norm, MLP, +) ──> norm ──> 256 logits

The text is Python's standard library as installed. The scores are those of
`sparsity.rows.rotated_scores`: what is trained is what the laws of RoPE and CoCA are about.
"""

from __future__ import annotations

import functools
import hashlib
import math
import platform
import sysconfig
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from sparsity.rows.rotated_scores import coca_scores, rope_scores, slack_scores

ROPE, COCA, SLACK, ALIBI, NONE = "RoPE", "CoCA", "CoCA slack", "ALiBi", "no positions"
RULES = (ROPE, COCA, SLACK, ALIBI, NONE)
ROTARY = (ROPE, COCA, SLACK)  # whose angles dynamic NTK changes
PAIRING = "half"  # a rotation is then two slices and no interleaving
BYTES = 256

# --- the text ------------------------------------------------------------------------------------

SMALLEST = 8192  # bytes of a file; below it there are few left in the middle of which to read
EVERY = 6  # of so many files, in the order of their names, one is held out


class Corpus(NamedTuple):
    """Bytes to train on, the files held out, and a word that names the text.

    Args:
        train: all files but those held out, joined, [bytes].
        held_out: a file each.
        name: the version of Python, and the beginning of the SHA-256 of all files joined.
    """

    train: np.ndarray
    held_out: tuple[np.ndarray, ...]
    name: str


@functools.cache
def corpus() -> Corpus:
    """Return the modules at the top of the standard library, `*.py` sorted by name.

    Those of 8192 bytes or more; the first of every six is held out.
    """
    folder = Path(sysconfig.get_path("stdlib"))
    texts = [path.read_bytes() for path in sorted(folder.glob("*.py"))]
    texts = [text for text in texts if len(text) >= SMALLEST]
    files = [np.frombuffer(text, np.uint8) for text in texts]
    train = np.concatenate([file for i, file in enumerate(files) if i % EVERY])
    digest = hashlib.sha256(b"".join(texts)).hexdigest()
    return Corpus(
        train, tuple(files[::EVERY]), f"Python {platform.python_version()}, {digest[:12]}"
    )


def unigram_loss(train: np.ndarray, read: np.ndarray) -> float:
    """Return the loss, nats a byte, of a model that knows the frequency of every byte alone."""
    share = (np.bincount(train, minlength=BYTES) + 1) / (train.size + BYTES)
    return float(-np.log(share[read]).mean())


# --- the model -----------------------------------------------------------------------------------


class Shape(NamedTuple):
    """The size of a model."""

    layers: int
    width: int
    heads: int


def start(rng: np.random.Generator, shape: Shape, rule: str) -> dict[str, Any]:
    """Return the parameters before training; those of all layers are stacked, [layers, …].

    CoCA has one nonnegative t a plane in place of two entries of a key: half a matrix less a layer.
    """
    w, keys = shape.width, shape.width // (2 if rule in (COCA, SLACK) else 1)
    sizes = {"query": (w, w), "key": (w, keys), "value": (w, w), "output": (w, w)}
    sizes |= {"up": (w, 4 * w), "down": (4 * w, w)}

    def normal(*of: int) -> Any:
        return rng.standard_normal(of, dtype=np.float32) / np.float32(math.sqrt(of[-2]))

    layers = {name: normal(shape.layers, *of) for name, of in sizes.items()}
    embedding = rng.standard_normal((BYTES, w), dtype=np.float32)
    return {"embedding": embedding, "layers": layers, "read": normal(w, BYTES)}


def scores(rule: str, query: Any, key: Any, theta: Any, first: int = 0) -> Any:
    """Return the scores of queries and keys, [..., heads, queries, keys], −∞ for later keys.

    Args:
        rule: of the positions.
        query: [..., heads, queries, d].
        key: [..., heads, keys, d]; for CoCA t ≥ 0, [..., heads, keys, d/2].
        theta: θ_i of the planes, [d/2].
        first: position of the first query; keys begin at 0.
    """
    m, n = first + np.arange(query.shape[-2]), np.arange(key.shape[-2])
    if rule in ROTARY:
        form = {ROPE: rope_scores, COCA: coca_scores, SLACK: slack_scores}[rule]
        found = form(query, key, PAIRING, theta=theta, m=m, n=n)
    else:
        found = query @ key.swapaxes(-1, -2)
    found /= math.sqrt(query.shape[-1])
    distance = m[:, None] - n
    if rule == ALIBI:
        slopes = alibi_slopes(query.shape[-3])[:, None, None]
        found -= slopes * np.maximum(distance, 0).astype(np.float32)
    return jnp.where(distance >= 0, found, -jnp.inf)


def alibi_slopes(heads: int) -> np.ndarray:
    """Return the slope of every head, as published: 2^(−8/h), 2^(−16/h), …, 2^(−8)."""
    return np.float32(2) ** (-8 * np.arange(1, heads + 1, dtype=np.float32) / heads)


def _normed(x: Any) -> Any:
    return x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-6)


def predict(
    rule: str, heads: int, model: Any, text: Any, theta: Any, blocks: int = 1
) -> tuple[Any, Any]:
    """Return what a model makes of windows of text.

    Args:
        rule: of the positions.
        heads: of a layer.
        model: its parameters.
        text: bytes, [windows, n].
        theta: θ_i of the planes, [d/2].
        blocks: parts in which queries attend; keys after the last query of a part are left out.

    Returns:
        Logits [windows, n, 256]; then of every layer the queries and keys before they turn,
        [layers, windows, heads, n, d], and n_eff of the last row of every window,
        [layers, windows, heads].
    """

    def by_head(x: Any) -> Any:
        return x.reshape(*x.shape[:-1], heads, -1).swapaxes(-2, -3)

    n = text.shape[-1]

    def layer(x: Any, own: Any) -> tuple[Any, Any]:
        y = _normed(x)
        query, key, value = (by_head(y @ own[name]) for name in ("query", "key", "value"))
        if rule in (COCA, SLACK):
            key = jax.nn.relu(key)
        read, n_eff = [], None
        for part in np.array_split(np.arange(n), blocks):
            first, end = int(part[0]), int(part[-1]) + 1
            found = scores(rule, query[..., first:end, :], key[..., :end, :], theta, first)
            a = jax.nn.softmax(found)
            read.append(a @ value[..., :end, :])
            n_eff = 1 / (a[..., -1, :] ** 2).sum(-1)  # of the last part it stays
        out = jnp.concatenate(read, -2).swapaxes(-2, -3).reshape(x.shape)
        x = x + out @ own["output"]
        x = x + jax.nn.gelu(_normed(x) @ own["up"]) @ own["down"]
        return x, (query, key, n_eff)

    x, inside = jax.lax.scan(layer, model["embedding"][text.astype(int)], model["layers"])
    return _normed(x) @ model["read"], inside


def losses(logits: Any, following: Any) -> Any:
    """Return the loss of every byte in nats, in the shape of `following`."""
    log_p = jax.nn.log_softmax(logits)
    return -jnp.take_along_axis(log_p, following.astype(int)[..., None], -1)[..., 0]


@functools.cache
def training_loss(rule: str, heads: int, theta: tuple[float, ...]) -> Any:
    """Return the mean loss of a batch as a function: one object a rule, so compiled once."""

    def loss(model: Any, batch: Any, fixed: Any) -> Any:
        logits, _ = predict(rule, heads, model, batch[:, :-1], theta)
        return losses(logits, batch[:, 1:]).mean()

    return loss


# --- reading ------------------------------------------------------------------------------------


def passages(count: int, length: int) -> np.ndarray:
    """Return the middle of the first files held out, [count, length + 1]."""
    files = corpus().held_out[:count]
    at = [(file.size - length) // 2 for file in files]
    return np.stack([file[i : i + length + 1] for i, file in zip(at, files, strict=True)])


def windows(text: np.ndarray, length: int) -> np.ndarray:
    """Return windows whose last quarters are, side by side, the last quarter of each passage.

    Args:
        text: [passages, longest + 1].
        length: L of the windows.

    Returns:
        Shape [passages, longest/L, L + 1]: as many bytes at every L.
    """
    longest = text.shape[-1] - 1
    ends = longest - length // 4 * np.arange(longest // length)[::-1]
    return text[:, ends[:, None] + np.arange(-length, 1)]


@functools.partial(jax.jit, static_argnames=("rule", "heads", "theta"))
def read(rule: str, heads: int, theta: tuple[float, ...], model: Any, text: Any) -> Any:
    """Return losses of the last quarters and n_eff of the last row of each passage.

    Passages are read one after the other, [passages, windows, L + 1]: all scores of one are held.
    """
    length = text.shape[-1] - 1
    blocks = 4 if length >= 512 else 1  # saves 3/8 of the scores, where they take the time

    def one(passage: Any) -> Any:
        logits, (_, _, n_eff) = predict(
            rule, heads, model, passage[:, :-1], np.array(theta), blocks
        )
        last = slice(-(length // 4), None)
        return losses(logits[:, last], passage[:, 1:][:, last]), n_eff[:, -1]

    return jax.lax.map(one, text)


@functools.partial(jax.jit, static_argnames=("rule", "heads", "theta"))
def look_inside(rule: str, heads: int, theta: tuple[float, ...], model: Any, text: Any) -> Any:
    """Return queries and keys of windows before they turn, [layers, ..., heads, n, d]."""
    return predict(rule, heads, model, text[..., :-1], np.array(theta))[1][:2]
