"""The sampling peers, each in the best form that its library offers for a = |f(β + γε)|.

A peer draws N scores and returns the means of a and a² over batches: the same work, and the same
delta method for the error of log S, for everyone.
"""

from __future__ import annotations

import functools
import importlib.util
import math
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.bench.grid import SCRAMBLES, Task
from benchmarks.bench.machine import cores

Work = Callable[[int], np.ndarray]  # seed -> [batches, 2]: means of a and a²

_CACHED = 2**15  # draws of a chunk: fits a core's L2; PyTorch's own grain of parallelism
_BATCHES = 64  # batches at least, to estimate an error from
_JAX_LOG2_SIZE = 14  # log₂ of the most draws of a batch: 2²⁰ a call, where jax.random is fastest
_NETWORK = 2**12  # scores in one draw of neural-tangents' loop


@dataclass(frozen=True)
class Peer:
    """A way to sample S that people use.

    Args:
        name: in tables.
        what: what it does, one line.
        prepare: (cell, draws, dtype) -> the work, compiled and warm.
        quasi: whether its draws are quasi-random, hence its error not √(variance/draws).
    """

    name: str
    what: str
    prepare: Callable[[Task, int, str], Work]
    quasi: bool = False

    def draws(self, cell: Task, rel_error: float) -> float:
        """Draws it needs for a relative standard error."""
        return cell.quasi_draws(rel_error) if self.quasi else cell.plain_draws(rel_error)


def _plan(draws: int) -> tuple[int, int, int]:
    """Batches at a time, size and number of batches, for at least `draws` draws."""
    size = min(max(-(-draws // _BATCHES), 16), _CACHED)
    batches = max(_BATCHES, -(-draws // size))
    calls = -(-batches // (_CACHED // size))  # small batches share one call of each operation
    together = -(-batches // calls)
    return together, size, together * calls


@functools.lru_cache(maxsize=1)
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(cores())


def _on_all_cores(task: Callable[[int, int], list[Any]], calls: int, draws: int) -> np.ndarray:
    """Task (stream, calls) -> a list of [2, batches], split over the cores where that pays."""
    if draws < 2 * _CACHED:
        parts = [task(0, calls)]
    else:
        share = [len(part) for part in np.array_split(np.arange(calls), cores())]
        parts = list(_pool().map(task, range(len(share)), share))
    return np.concatenate([means for part in parts for means in part], axis=1, dtype=float).T


def _law(cell: Task, dtype: str) -> tuple[Any, Any]:
    real = np.dtype(dtype).type
    return real(cell.beta), real(cell.gamma)


def _numpy_means(name: str, x: np.ndarray, beta: Any, gamma: Any) -> tuple[np.ndarray, np.ndarray]:
    """Means of a and a² from normals [batches, size], in place; BLAS's threads would not pay."""
    np.multiply(x, gamma, out=x)
    np.add(x, beta, out=x)
    with np.errstate(over="ignore", under="ignore"):
        if name == "exp":
            np.exp(x, out=x)
        elif name == "relu2":
            np.maximum(x, 0, out=x)
            np.multiply(x, x, out=x)
        else:
            np.abs(x, out=x)
        first = x.mean(axis=1)
        np.multiply(x, x, out=x)
        return first, x.mean(axis=1)


def _numpy(cell: Task, draws: int, dtype: str) -> Work:
    together, size, batches = _plan(draws)
    law = _law(cell, dtype)

    def work(seed: int) -> np.ndarray:
        def task(stream: int, calls: int) -> list[Any]:
            rng = np.random.Generator(np.random.SFC64([seed, stream]))
            x, out = np.empty((together, size), dtype), []
            for _ in range(calls):
                rng.standard_normal(out=x, dtype=x.dtype)  # type: ignore[arg-type]
                out.append(_numpy_means(cell.kernel.name, x, *law))
            return out

        return _on_all_cores(task, batches // together, size * batches)

    return work


@functools.cache
def _jax_means(name: str, shape: tuple[int, int], dtype: str) -> Callable[..., Any]:
    import jax
    import jax.numpy as jnp

    weight = {"exp": jnp.exp, "relu2": lambda s: jnp.maximum(s, 0) ** 2, "identity": jnp.abs}[name]

    @jax.jit
    def means(key: Any, beta: Any, gamma: Any) -> Any:
        a = weight(beta + gamma * jax.random.normal(key, shape, dtype))
        return jnp.stack([a.mean(axis=1), (a * a).mean(axis=1)])

    return means


def _jax(cell: Task, draws: int, dtype: str) -> Work:
    import jax

    size = 2 ** min(max(math.ceil(math.log2(draws / _BATCHES)), 4), _JAX_LOG2_SIZE)
    calls = max(1, round(draws / (size * _BATCHES)))  # powers of two: few compilations
    means = _jax_means(cell.kernel.name, (_BATCHES, size), dtype)
    law = _law(cell, dtype)

    def work(seed: int, calls: int = calls) -> np.ndarray:
        keys = jax.random.split(jax.random.key(seed), calls)
        parts = jax.device_get([means(key, *law) for key in keys])
        return np.concatenate(parts, axis=1, dtype=float).T

    jax.random.split(jax.random.key(0), calls)
    work(0, 1)
    return work


def _neural_tangents(cell: Task, draws: int, dtype: str) -> Work:
    import jax

    batches = max(_BATCHES, -(-draws // _NETWORK))
    means = _jax_means(cell.kernel.name, (1, _NETWORK), dtype)
    law = _law(cell, dtype)

    def work(seed: int, batches: int = batches) -> np.ndarray:
        key, parts, total = jax.random.key(seed), [], 0.0
        for _ in range(batches):
            key, split = jax.random.split(key)
            one = means(split, *law)
            total = total + one  # its running mean; the parts give the error bar that it lacks
            parts.append(one)
        jax.block_until_ready(total)
        return np.concatenate(jax.device_get(parts), axis=1, dtype=float).T

    work(0, 1)
    return work


def _torch(cell: Task, draws: int, dtype: str) -> Work:
    import torch  # pyright: ignore[reportMissingImports]

    together, size, batches = _plan(draws)
    name, real = cell.kernel.name, getattr(torch, dtype)

    def work(seed: int) -> np.ndarray:
        def task(stream: int, calls: int) -> list[Any]:
            generator = torch.Generator().manual_seed(cores() * seed + stream)
            x, out = torch.empty((together, size), dtype=real), []
            for _ in range(calls):
                x.normal_(cell.beta, cell.gamma, generator=generator)
                if name == "exp":
                    x.exp_()
                elif name == "relu2":
                    x.clamp_(min=0).square_()
                else:
                    x.abs_()
                out.append((x.mean(dim=1).numpy(), x.square_().mean(dim=1).numpy()))
            return out

        return _on_all_cores(task, batches // together, size * batches)

    return work


def _sobol(cell: Task, draws: int, dtype: str) -> Work:
    from scipy.special import ndtri
    from scipy.stats import qmc

    log2_points = max(4, math.ceil(math.log2(draws / SCRAMBLES)))
    block = min(log2_points, 13)  # points of all nets at a time, to stay in cache
    law = _law(cell, dtype)

    def work(seed: int) -> np.ndarray:
        def task(stream: int, nets: int) -> list[Any]:
            # Each coordinate of a scrambled Sobol sequence is a net of its own, scrambled alone.
            with warnings.catch_warnings():  # of 62 bits, which the tails want
                warnings.simplefilter("ignore")
                rng = np.random.default_rng([seed, stream])
                engine = qmc.Sobol(nets, scramble=True, bits=62, seed=rng)  # pyright: ignore[reportCallIssue]
            parts = []
            for _ in range(2 ** (log2_points - block)):
                x = ndtri(engine.random(2**block).T.astype(dtype, order="C"))
                parts.append(_numpy_means(cell.kernel.name, x, *law))
            return [np.mean(parts, axis=0, dtype=float)]

        return _on_all_cores(task, SCRAMBLES, SCRAMBLES * 2**log2_points)

    return work


_KNOWN: Sequence[Peer] = (
    Peer("numpy", "SFC64 normals and in-place ufuncs on chunks in cache, a thread a core", _numpy),
    Peer("jax", "jax.random.normal, f, mean in one jit of up to 2^20 draws, queued", _jax),
    Peer("torch", "normal_ and in-place operations on chunks in cache, a thread a core", _torch),
    Peer(
        "scipy.qmc",
        f"{SCRAMBLES} scrambled Sobol nets through ndtri, a thread a core, error between nets",
        _sobol,
        quasi=True,
    ),
    Peer(
        "nt-loop",
        "neural-tangents' pattern: a Python loop over jitted draws of 4096 scores, running mean",
        _neural_tangents,
    ),
)


def available() -> tuple[Peer, ...]:
    """The peers whose library is installed; PyTorch is optional."""
    there = importlib.util.find_spec("torch") is not None
    return tuple(peer for peer in _KNOWN if peer.name != "torch" or there)
