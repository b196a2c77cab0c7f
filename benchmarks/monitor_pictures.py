"""Draw docs/training.png, a watched training, and write its data, docs/training.csv.

    python -m benchmarks.monitor_pictures

Takes a minute. The training is of two layers on texts whose second half repeats the first.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import matplotlib
import numpy as np

import sparsity

DOCS = Path(__file__).parents[1] / "docs"
_TOKENS, _LENGTH, _WIDTH, _HEADS, _BATCH = 32, 64, 64, 4, 32
_STEPS, _EVERY, _RATE = 1200, 40, 3e-3


def texts(key: jax.Array) -> jax.Array:
    """Random tokens whose second half repeats the first, [batch, tokens]."""
    half = jax.random.randint(key, (_BATCH, _LENGTH // 2), 0, _TOKENS)
    return jnp.concatenate([half, half], 1)


def forward(weights: dict[str, Any], ids: jax.Array) -> tuple[jax.Array, list[Any]]:
    """Logits of the next token, and what a monitor saw of two layers."""
    x = weights["embed"][ids] + weights["place"]
    told = []
    for layer in weights["layers"]:
        q, k, v = (
            (x @ layer[name]).reshape(*x.shape[:2], _HEADS, -1).swapaxes(1, 2) for name in "qkv"
        )
        told.append(sparsity.monitor(q[:8], k[:8], ("length", "n_eff", "beta", "gamma"), rows=8))
        s = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
        p = jax.nn.softmax(jnp.where(jnp.tri(_LENGTH, dtype=bool), s, -jnp.inf))
        x = x + (p @ v).swapaxes(1, 2).reshape(x.shape) @ layer["o"]
    return x @ weights["out"], told


def train() -> tuple[list[dict[str, float]], list[int]]:
    """Train, and return what was logged at the steps that were looked at."""
    keys = iter(jax.random.split(jax.random.key(0), 64))

    def matrix(*shape: int) -> jax.Array:
        return jax.random.normal(next(keys), shape) / np.sqrt(shape[0])

    weights = {
        "embed": matrix(_TOKENS, _WIDTH), "place": matrix(_LENGTH, _WIDTH),
        "out": matrix(_WIDTH, _TOKENS),
        "layers": [{name: matrix(_WIDTH, _WIDTH) for name in "qkvo"} for _ in range(2)],
    }  # fmt: skip

    def loss(weights: Any, ids: jax.Array) -> tuple[jax.Array, Any]:
        logits, told = forward(weights, ids)
        half = _LENGTH // 2  # what can be known stands in the second half
        there = jax.nn.log_softmax(logits[:, half:-1])
        return -jnp.take_along_axis(there, ids[:, half + 1 :, None], -1).mean(), told

    @jax.jit
    def step(state: Any, ids: jax.Array, count: jax.Array) -> Any:
        weights, first, second = state
        (value, told), slope = jax.value_and_grad(loss, has_aux=True)(weights, ids)
        first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, first, slope)  # Adam
        second = jax.tree.map(lambda v, g: 0.99 * v + 0.01 * g * g, second, slope)
        one, two = 1 - 0.9 ** (count + 1), 1 - 0.99 ** (count + 1)
        weights = jax.tree.map(
            lambda w, m, v: w - _RATE * (m / one) / (jnp.sqrt(v / two) + 1e-8),
            weights, first, second,
        )  # fmt: skip
        return (weights, first, second), value, told

    zero = jax.tree.map(jnp.zeros_like, weights)
    state, logged, steps = (weights, zero, zero), [], []
    for count in range(_STEPS + 1):
        ids = texts(jax.random.fold_in(jax.random.key(1), count))
        state, value, told = step(state, ids, count)
        if count % _EVERY == 0:
            logged.append(sparsity.monitoring.log(told, last=True))
            steps.append(count)
    print(f"loss at the end {value:.3f}")
    return logged, steps


def write(name: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write rows of named values to a file of docs/."""
    with (DOCS / name).open("w", encoding="utf-8", newline="") as out:
        table = csv.DictWriter(out, list(rows[0]), lineterminator="\n")
        table.writeheader()
        for row in rows:
            table.writerow({k: f"{x:.6g}" if isinstance(x, float) else x for k, x in row.items()})


if __name__ == "__main__":
    matplotlib.use("Agg")
    logged, steps = train()
    ax = sparsity.monitoring.plot_training(logged, steps, layer="layer1")
    figure = ax.get_figure(root=True)
    assert figure is not None  # the one that was made for these axes
    figure.savefig(DOCS / "training.png", dpi=110, metadata={"Software": None})
    write("training.csv", [{"step": at, **each} for at, each in zip(steps, logged, strict=True)])
