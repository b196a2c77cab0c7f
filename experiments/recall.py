"""Does a kernel that focuses recall more? One layer, one head, P pairs of a key and a value.

A row holds P of 256 keys, each with one of 32 values at random. A query names one of these keys,
and the row is to read out its value: key and query are learned vectors of R^d, the scores are
s = q·k/√d + b, and the weights are those of twelve kernels and maps, divided by their sum Σ|a|. The
values are unit vectors, and a learned matrix reads them out. What differs is the kernel, P and d.

Of a trained model the scores of the needle (the key that was asked for) and of the others are
measured on new rows. Their means and spreads are all that the needle law is told: `estimate` of
`needle_recall:32` then says, with nothing fitted, what the model recalls.
"""

from __future__ import annotations

import functools
import itertools
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure

import sparsity
from experiments import statistics, training
from experiments.frame import Experiment, Record
from experiments.recall_verdict import BY, NO_FOCUS, VALUES, judge
from experiments.weights import FEATURES, LARGEST_SCORE, row_weights
from sparsity import plotting
from sparsity.plots.colors import CURVES

KEYS = 256
MAPS = (
    *("exp", "relu2", "relu", *NO_FOCUS, "elu+1"),
    *("softplus", "sigmoid", "power4", "softpick", "sparsemax", "topk:8"),
)


@dataclass(frozen=True)
class Settings:
    """What is trained: every map, number of pairs and dimension, by every seed and rate."""

    maps: tuple[str, ...] = MAPS
    pairs: tuple[int, ...] = (16, 64, 256)
    dims: tuple[int, ...] = (8, 16, 32, 64)
    seeds: tuple[int, ...] = (0, 1, 2)
    rates: tuple[float, ...] = (0.03, 0.1)
    steps: int = 500
    rows: int = 8  # of a batch
    queries: int = 8  # of a row
    test_rows: int = 64
    law_rows: int = 4000  # that the law is sampled from


def cells(settings: Settings) -> list[Record]:
    """Return a cell for each map and number of pairs; models of all d, seeds and rates share it."""
    each = itertools.product(settings.maps, settings.pairs)
    return [{"map": name, "pairs": pairs} for name, pairs in each]


# --- the model -----------------------------------------------------------------------------------


def draw_rows(rng: np.random.Generator, shape: tuple[int, ...], pairs: int, queries: int) -> Any:
    """Draw rows: their keys and values [*shape, P], and the places that are asked for."""
    keys = rng.random((*shape, KEYS)).argsort(-1)[..., :pairs].astype(np.int32)
    values = rng.integers(VALUES, size=(*shape, pairs), dtype=np.int32)
    return keys, values, rng.integers(pairs, size=(*shape, queries), dtype=np.int32)


def start(rng: np.random.Generator, name: str, dims: int, pairs: int) -> dict[str, Any]:
    """Return the parameters before training: a query begins as its own key."""
    table = rng.standard_normal((KEYS, dims), dtype=np.float32)
    bias = -np.log(pairs) if name == "sigmoid" else 0.0  # its usual one
    read = {"read": np.eye(VALUES, dtype=np.float32), "gain": np.float32(np.log(4))}
    return {"query": table, "key": table, "bias": np.float32(bias), **read}


def read_out(name: str, model: Any, rows: Any, used: Any) -> tuple[Any, Any, Any]:
    """Return what a model makes of rows.

    Args:
        name: of the map.
        model: its parameters.
        rows: as drawn.
        used: 1 in the d dimensions that it has, 0 in the rest: models of all d are stacked.

    Returns:
        Scores and weights [rows, queries, P], and what a key adds to the logits [rows, P, 32].
    """
    keys, values, asked = rows
    query, key = model["query"], model["key"]
    bias = model["bias"]
    if name == FEATURES:
        query, key, bias = jax.nn.elu(query) + 1, jax.nn.elu(key) + 1, 0.0
    of_query = query[jnp.take_along_axis(keys, asked, -1)] * used
    products = of_query @ key.T / jnp.sqrt(used.sum()) + bias  # with all 256 keys
    found = jnp.take_along_axis(products, keys[:, None, :], -1)
    scores = jnp.clip(found, -LARGEST_SCORE, LARGEST_SCORE)
    unit = jax.nn.one_hot(values, VALUES, dtype=scores.dtype)
    # The gain grows by factors: flat rows need a large one, which a step of Adam alone never makes.
    return scores, row_weights(name, scores), unit @ model["read"] * jnp.exp(model["gain"])


def loss(name: str, model: Any, rows: Any, used: Any) -> Any:
    """Return the mean cross-entropy of the values that were asked for."""
    _, values, asked = rows
    _, weights, votes = read_out(name, model, rows, used)
    logits = jax.nn.log_softmax(weights @ votes)
    wanted = jnp.take_along_axis(values, asked, -1)
    return -jnp.take_along_axis(logits, wanted[..., None], -1).mean()


# --- what is measured ----------------------------------------------------------------------------


@functools.partial(jax.jit, static_argnames="name")
def test(name: str, model: Any, rows: Any, used: Any) -> tuple[Any, Any, Any, Any]:
    """Return scores and weights, and how many are recalled with and without the needle's weight."""
    _, values, asked = rows
    scores, weights, votes = read_out(name, model, rows, used)
    wanted = jnp.take_along_axis(values, asked, -1)
    needle = jax.nn.one_hot(asked, values.shape[-1], dtype=weights.dtype)
    recalled = [
        ((seen @ votes).argmax(-1) == wanted).mean() for seen in (weights, weights * (1 - needle))
    ]
    return scores, jnp.abs(weights), *recalled


def measure(settings: Settings, cell: Record, model: Any, rows: Any, used: Any) -> Record:
    """Return what is measured of a trained model, and what the needle law says of it."""
    name, pairs = cell["map"], cell["pairs"]
    scores, weights, recalled, without = jax.device_get(test(name, model, rows, used))
    needle = np.arange(pairs) == rows[2][..., None]
    own, others = scores[needle].astype(float), scores[~needle].astype(float)
    weights = weights[weights.sum(-1) > 0].astype(float)  # one row of keys each
    margin = {"needle": own.mean(), "needle_spread": own.std()}
    law = {"beta": others.mean(), "gamma": others.std()}
    row = sparsity.Row(
        "identity" if name == FEATURES else name,
        steps=(sparsity.Needle(margin["needle"], margin["needle_spread"]),),
        **law,
    )
    found = sparsity.estimate(
        row, length=pairs, of=f"needle_recall:{VALUES}", max_samples=settings.law_rows
    )
    return {
        "accuracy": recalled,
        "law": found.value,
        "law_stderr": found.stderr,
        "n_eff": sparsity.n_eff(weights).mean(),
        **margin,
        **law,
        "without_needle": without,
    }


def run(settings: Settings, cell: Record) -> list[Record]:
    """Train the models of a cell; measure those of the rate with the smaller training loss."""
    name, pairs = cell["map"], cell["pairs"]
    most = max(settings.dims)
    models = list(itertools.product(settings.dims, settings.seeds))
    tried = []
    for dims, seed in models:
        rng = np.random.default_rng([seed, pairs])
        first = start(rng, name, most, pairs)
        batches = draw_rows(rng, (settings.steps, settings.rows), pairs, settings.queries)
        tests = draw_rows(rng, (settings.test_rows,), pairs, settings.queries)
        used = (np.arange(most) < dims).astype(np.float32)
        tried += [(first, np.float32(rate), batches, used, tests) for rate in settings.rates]
    first, rates, batches, used, tests = (training.stack(part) for part in zip(*tried, strict=True))
    trained, ended = training.train(functools.partial(loss, name), first, rates, batches, used)
    records = []
    for (dims, seed), at in zip(models, training.best_of(ended, settings.rates), strict=True):
        model, rows = training.pick(trained, at), training.pick(tests, at)
        chosen = {"dim": dims, "seed": seed, "rate": float(rates[at]), "loss": float(ended[at])}
        records.append({**chosen, **measure(settings, cell, model, rows, used[at])})
    return records


# --- what came out of it -------------------------------------------------------------------------


def draw(records: list[Record], figure: Figure) -> None:
    """Draw the trained accuracy against each of the three explanations."""
    by_cell = statistics.mean_over_seeds(records, BY)
    names = list(dict.fromkeys(each["map"] for each in by_cell))
    colors = [color for color in CURVES if color != plotting.VERMILLION]
    axes = figure.subplots(1, 3, sharey=True)
    against = {
        "law": "the needle law's recall, nothing fitted",
        "n_eff": "keys that a row attends to, n_eff",
        "dim": "size of the state, d",
    }
    for ax, (quantity, label) in zip(axes, against.items(), strict=True):
        for i, name in enumerate(names):
            mine = [each for each in by_cell if each["map"] == name]
            x = np.array([each[quantity] for each in mine])
            if quantity == "dim":  # side by side
                x = x * 2 ** ((i - len(names) / 2) / (2 * len(names)))
            linear = name in NO_FOCUS
            ax.errorbar(
                x,
                [each["accuracy"] for each in mine],
                [each["spread"] for each in mine],
                fmt="D" if linear else "ovsDD^<phXP*"[i % 12],
                color=plotting.VERMILLION if linear else colors[i],
                mfc="white" if name == NO_FOCUS[0] else None,
                ms=6 if linear else 4,
                lw=1,
                label=name,
            )
        ax.set_xlabel(label)
    axes[0].plot([0, 1], [0, 1], color=plotting.GREY, lw=1, zorder=1)
    axes[0].set_ylabel("recalled by the trained model")
    axes[1].set_xscale("log")
    plotting.plain_ticks(axes[1].xaxis, (1, 10, 100))
    axes[2].set_xscale("log")
    plotting.plain_ticks(axes[2].xaxis, sorted({x["dim"] for x in by_cell}))
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside right center")
    figure.suptitle("What a trained layer recalls, against three explanations (a point: map, P, d)")


EXPERIMENT = Experiment(
    name="recall",
    title="Does a kernel that focuses recall more?",
    full=Settings(),
    tiny=Settings(
        maps=("exp", "identity"), pairs=(16,), dims=(4, 8), seeds=(0,), steps=60, test_rows=16
    ),
    cells=cells,
    run=run,
    judge=judge,
    draw=draw,
)
