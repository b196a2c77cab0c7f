"""Counter-based generators written in JAX, as random keys' implementations, for a comparison.

Each makes words from a key of two 32-bit words and a counter 0, 1, 2, … and nothing else. Keys are
derived as those of threefry2x32 are, so that only the bits differ. Needs JAX with x64 enabled.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.random import define_prng_impl

Words = tuple[jax.Array, ...]

_GOLDEN32, _GOLDEN64 = 0x9E3779B9, 0x9E3779B97F4A7C15
_BLOCK = 2**12 if jax.default_backend() == "cpu" else 2**31  # counts at a time: to stay in cache
_ROTATIONS = (13, 15, 26, 6, 17, 29, 16, 24)


def threefry(key: Any, x: Words, rounds: int) -> Words:
    """Threefry2x32 (Salmon et al., 2011), its rounds written out: one loop over the words."""
    schedule = (key[0], key[1], key[0] ^ key[1] ^ np.uint32(0x1BD11BDA))
    a, b = x[0] + schedule[0], x[1] + schedule[1]
    for i in range(rounds):
        r = _ROTATIONS[i % 8]
        a = a + b
        b = ((b << np.uint32(r)) | (b >> np.uint32(32 - r))) ^ a
        if i % 4 == 3:
            j = i // 4 + 1
            a, b = a + schedule[j % 3], b + schedule[(j + 1) % 3] + np.uint32(j)
    return a, b


def philox(key: Any, x: Words, rounds: int) -> Words:
    """Philox4x32 (Salmon et al., 2011), through 64-bit products."""

    def product(a: jax.Array, b: int) -> Words:
        p = a.astype("uint64") * np.uint64(b)
        return (p >> 32).astype("uint32"), p.astype("uint32")

    a, b, c, d = x
    k0, k1 = key[0], key[1]
    for _ in range(rounds):
        high0, low0 = product(a, 0xD2511F53)
        high1, low1 = product(c, 0xCD9E8D57)
        a, b, c, d = high1 ^ b ^ k0, low1, high0 ^ d ^ k1, low0
        k0, k1 = k0 + np.uint32(_GOLDEN32), k1 + np.uint32(0xBB67AE85)
    return a, b, c, d


def _halves(z: jax.Array) -> Words:
    return z.astype("uint32"), (z >> 32).astype("uint32")


def _joined(key: Any) -> jax.Array:
    return (key[0].astype("uint64") << 32) | key[1].astype("uint64")


def splitmix(key: Any, i: jax.Array) -> Words:
    """SplitMix64 (Steele, Lea and Flood, 2014): a Weyl sequence, mixed; the key is its start."""
    z = _joined(key) + (i.astype("uint64") + 1) * np.uint64(_GOLDEN64)
    z = (z ^ (z >> 30)) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> 27)) * np.uint64(0x94D049BB133111EB)
    return _halves(z ^ (z >> 31))


def squares(key: Any, i: jax.Array) -> Words:
    """Squares32 (Widynski, 2020), four rounds; its keys ought to be picked, these are not."""
    key64 = _joined(key) | 1
    y = i.astype("uint64") * key64
    x, z = y, y + key64
    for more in (y, z, y):
        x = x * x + more
        x = (x >> 32) | (x << 32)
    return (((x * x + z) >> 32).astype("uint32"),)


def pcg4d(key: Any, i: jax.Array) -> Words:
    """The pcg4d hash of Jarzynski and Olano (2020) of (counter, key, 0)."""
    x, y, z, w = (
        v * np.uint32(1664525) + np.uint32(1013904223)
        for v in (i, key[0] + 0 * i, key[1] + 0 * i, 0 * i)
    )
    for last in (False, True):
        x = x + y * w
        y = y + z * x
        z = z + x * y
        w = w + y * z
        if not last:
            x, y, z, w = (v ^ (v >> np.uint32(16)) for v in (x, y, z, w))
    return x, y, z, w


def free(key: Any, i: jax.Array) -> Words:
    """No generator at all: what a sampler costs if its bits cost nothing."""
    return ((i + key[1]) * np.uint32(_GOLDEN32),)


@dataclass(frozen=True)
class Generator:
    """A generator: one of JAX's, by its name there, or one of ours, by its words.

    Args:
        name: in tables.
        quality: what is published of its statistical quality.
        sound: whether that is a pass of BigCrush by the generator as it is used here.
        own: JAX's name of it; None where `words` is given.
        partitionable: of JAX's threefry: how its counters are laid out.
        words: (key, counter) -> one or several words of each count.
        folded: as JAX does it, 32 bits are two words folded into one.
    """

    name: str
    quality: str
    sound: bool
    own: str | None = None
    partitionable: bool = True
    words: Callable[[Any, jax.Array], Words] | None = None
    folded: bool = False

    def bits(self, key: jax.Array, width: int, shape: tuple[int, ...]) -> jax.Array:
        """Random bits for JAX; every word is used, unless folded."""
        size = math.prod(shape)
        made = len(jax.eval_shape(lambda k: self._at(k, jnp.zeros(1, "uint32"), width), key))
        counts = math.ceil(size / made)
        block = min(counts, _BLOCK)

        def one(number: jax.Array) -> Words:
            i = number * np.uint32(block) + jnp.arange(block, dtype="uint32")
            return self._at(key, i, width)

        numbers = jnp.arange(math.ceil(counts / block), dtype="uint32")
        drawn = jax.lax.map(one, numbers) if len(numbers) > 1 else one(numbers[0])
        return jnp.concatenate([words.reshape(-1) for words in drawn])[:size].reshape(shape)

    def _at(self, key: Any, i: jax.Array, width: int) -> Words:
        """One or several words of that width for each count."""
        assert self.words is not None
        words = self.words(key, i)
        if width == 32:
            return (words[0] ^ words[1],) if self.folded else words
        if len(words) == 1:
            words = (*words, *self.words(key, i + np.uint32(2**31)))
        pairs = zip(words[::2], words[1::2], strict=True)
        return tuple((a.astype("uint64") << 32) | b.astype("uint64") for a, b in pairs)

    @property
    def implementation(self) -> Any:
        """For `jax.random.key(seed, impl=…)`."""
        return self.own or _OURS[self.name]


_SALMON = "passes BigCrush (Salmon et al. 2011)"
_MARGIN = "BigCrush from this many rounds on (Salmon et al. 2011), no margin"
_UNTESTED = "not tested empirically (JAX's manual)"

ALL = (
    Generator("threefry2x32", _SALMON, True, "threefry2x32"),
    Generator("threefry2x32, not partitionable", _SALMON, True, "threefry2x32", False),
    Generator("threefry4x32", _SALMON, True, "threefry4x32"),
    Generator("philox4x32", _SALMON, True, "philox4x32"),
    Generator("rbg", _UNTESTED, False, "rbg"),
    Generator("unsafe_rbg", _UNTESTED, False, "unsafe_rbg"),
    Generator("threefry2x32 written out, JAX's bits", _SALMON, True,
              words=lambda k, i: threefry(k, (0 * i, i), 20), folded=True),
    Generator("threefry2x32 written out, both words", _SALMON, True,
              words=lambda k, i: threefry(k, (0 * i, i), 20)),
    Generator("threefry2x32-13 written out", _MARGIN, True,
              words=lambda k, i: threefry(k, (0 * i, i), 13)),
    Generator("philox4x32-10 written out", _SALMON, True,
              words=lambda k, i: philox(k, (i, 0 * i, 0 * i, 0 * i), 10)),
    Generator("philox4x32-7 written out", _MARGIN, True,
              words=lambda k, i: philox(k, (i, 0 * i, 0 * i, 0 * i), 7)),
    Generator("SplitMix64", "passes BigCrush (Steele et al. 2014); batches: windows of one orbit",
              True, words=splitmix),
    Generator("Squares32", "passes BigCrush with picked keys (Widynski 2020); these are not",
              False, words=squares),
    Generator("pcg4d", "one hash in BigCrush (Jarzynski, Olano 2020), keyed streams untested",
              False, words=pcg4d),
    Generator("no generator", "none: the floor", False, words=free),
)  # fmt: skip


def _keys_of_threefry(name: str, bits: Callable[..., jax.Array]) -> Any:
    """JAX's threefry keys under another rule for their bits."""

    def key(data: Any) -> jax.Array:
        return jax.random.wrap_key_data(data, impl="threefry2x32")

    return define_prng_impl(
        key_shape=(2,),
        seed=lambda seed: jax.random.key_data(jax.random.key(seed, impl="threefry2x32")),
        split=lambda data, shape: jax.random.key_data(jax.random.split(key(data), shape)),
        random_bits=bits,
        fold_in=lambda data, i: jax.random.key_data(jax.random.fold_in(key(data), i)),
        name=name,
        tag="own",
    )


_OURS = {g.name: _keys_of_threefry(g.name, g.bits) for g in ALL if g.words is not None}
NAMED = {g.name: g for g in ALL}


def rekeyed(key: jax.Array, generator: Generator) -> jax.Array:
    """A threefry2x32 key as a key of another generator."""
    data = jax.random.key_data(key)
    if generator.own in ("threefry4x32", "rbg", "unsafe_rbg"):
        data = jnp.tile(data, 2)
    return jax.random.wrap_key_data(data, impl=generator.implementation)
