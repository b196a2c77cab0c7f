"""Training in plain JAX: Adam, many models at once, batches drawn beforehand by NumPy.

The experiments train models of a few thousand numbers for hundreds of steps. So all models of a
cell are stacked and trained by one compiled program. Its batches are arrays that NumPy has drawn: a
program without random numbers compiles in a fraction of the time, and its seed is NumPy's.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

WARM_UP = 20  # steps over which the rate rises, before it falls to 0 along a cosine
LAST = 50  # steps whose mean is the loss of a training run
_DECAY = (0.9, 0.99)  # of Adam's means of the gradient and of its square; 0.999 is for longer runs


def stack(trees: Sequence[Any]) -> Any:
    """Return trees of arrays as one, with a first axis for them."""
    return jax.tree.map(lambda *leaves: np.stack(leaves), *trees)


def pick(tree: Any, at: Any) -> Any:
    """Return the arrays of some models out of stacked ones, or of one model."""
    return jax.tree.map(lambda leaf: leaf[at], tree)


def best_of(losses: Any, rates: Sequence[float]) -> list[int]:
    """Return the places of the runs with the smallest loss, out of each group of all rates."""
    groups = np.nan_to_num(np.asarray(losses), nan=np.inf).reshape(-1, len(rates))
    return (np.arange(len(groups)) * len(rates) + groups.argmin(-1)).tolist()


@functools.partial(jax.jit, static_argnames="loss")
def train(
    loss: Callable[..., Any], parameters: Any, rates: Any, batches: Any, fixed: Any = None
) -> tuple[Any, Any]:
    """Train stacked models, each with its own rate and its own batches.

    Args:
        loss: (parameters, batch, fixed) -> the number to make small.
        parameters: at the start, a tree of arrays [models, …].
        rates: the highest learning rate of each, [models].
        batches: a tree of arrays [models, steps, …].
        fixed: what a model has besides and does not learn, a tree of arrays [models, …].

    Returns:
        The trained parameters, and the mean loss of the last steps, [models].
    """

    def one(start: Any, rate: Any, batches: Any, fixed: Any) -> tuple[Any, Any]:
        steps = len(jax.tree.leaves(batches)[0])

        def step(state: Any, drawn: Any) -> tuple[Any, Any]:
            now, mean, square = state
            t, batch = drawn
            value, slope = jax.value_and_grad(loss)(now, batch, fixed)
            a, b = _DECAY
            mean = jax.tree.map(lambda m, g: a * m + (1 - a) * g, mean, slope)
            square = jax.tree.map(lambda v, g: b * v + (1 - b) * g * g, square, slope)
            at = rate * jnp.minimum(1, t / WARM_UP) * 0.5 * (1 + jnp.cos(jnp.pi * t / steps))

            def moved(p: Any, m: Any, v: Any) -> Any:
                return p - at * (m / (1 - a**t)) / (jnp.sqrt(v / (1 - b**t)) + 1e-8)

            return (jax.tree.map(moved, now, mean, square), mean, square), value

        none = jax.tree.map(jnp.zeros_like, start)
        times = jnp.arange(1, steps + 1, dtype=jnp.float32)
        (end, _, _), values = jax.lax.scan(step, (start, none, none), (times, batches))
        return end, values[-LAST:].mean()

    return jax.vmap(one)(parameters, rates, batches, fixed)
