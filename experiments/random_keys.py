"""What does linear attention recall, from P, d and V alone? Trained layers beside two laws.

A row holds P of K keys, each with one of V values at random; a query names one of the keys, and the
row is to read out its value, as in the experiment `recall`. Nothing is measured of a model here.
Two laws say beforehand what signed linear attention recalls:

    random keys   q = k_i, all keys N(0, I_d):  s_i = ‖q‖², s_j ~ N(0, ‖q‖²) for j ≠ i
    tight frame   ‖k‖² = d, equal norms, and the least mean square of a cosine that K vectors of
                  R^d can have (Welch 1974):  s_i = d, s_j ~ N(0, d·(K − d)/(K − 1))

The votes Σ_{v_j = v} f(s_j) of the V values are sampled, and the largest is read out. Training can
place the keys: what it gains over random ones is bounded by the frame, as far as votes are normal.
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
from experiments.random_keys_verdict import BY, DELTA, LINEAR, judge

DECAY = 0.98  # of "decayed", a key: 50 of them are read
RELU, RELU_BIAS = "relu2", "relu2, bias learned"
_SMALL = 1e-6  # beside Σ|a|, for a row without any weight
_AT_ONCE = 2**22  # scores that the laws draw at once


@dataclass(frozen=True)
class Settings:
    """What is trained: maps, each with numbers of pairs, keys and values, by every d and seed."""

    linear: tuple[tuple[int, int, int], ...] = (  # P, K, V
        *itertools.product((16,), (16, 256), (4, 16, 64, 256)),
        *itertools.product((64,), (64, 256), (4, 16, 64, 256)),
        *itertools.product((256,), (256,), (4, 16, 64, 256)),
        *itertools.product((1024,), (1024,), (4, 16, 64)),
    )
    others: tuple[tuple[int, int, int], ...] = ((16, 256, 16), (64, 256, 16))
    long: tuple[tuple[int, int, int], ...] = ((16, 256, 16), (64, 256, 16))
    dims: tuple[int, ...] = (4, 8, 16, 32, 64)
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    rate: float = 0.03
    steps: int = 1000
    times: int = 10  # as many steps for the long ones
    rows: int = 4  # of a batch
    queries: int = 16  # of a row
    test_rows: int = 64
    law_rows: int = 8000  # that the laws are sampled from


def cells(settings: Settings) -> list[Record]:
    """Return a cell for each map and number of pairs, keys and values; the long ones first."""
    chosen = [(LINEAR, sizes, settings.steps * settings.times) for sizes in settings.long]
    chosen += [(LINEAR, sizes, settings.steps) for sizes in settings.linear]
    for name in ("decayed", RELU, RELU_BIAS, DELTA):
        chosen += [(name, sizes, settings.steps) for sizes in settings.others]
    return [
        {"map": name, "steps": steps, "pairs": pairs, "keys": keys, "values": values}
        for name, (pairs, keys, values), steps in chosen
    ]


# --- the laws ------------------------------------------------------------------------------------


def weights_of(name: str, scores: Any, bias: Any = 0.0) -> Any:
    """Return the weights of keys that stand in the order of their age, the oldest first."""
    if name == LINEAR:
        return scores
    if name == "decayed":
        return scores * DECAY ** np.arange(scores.shape[-1])[::-1].astype(np.float32)
    xp = scores.__array_namespace__()
    return xp.maximum(scores + bias, 0.0) ** 2


def recall_law(name: str, cell: Record, dim: int, frame: bool, rows: int) -> float:
    """Return the recall of keys that are told by P, K, d and V, by sampled rows.

    Args:
        name: the map; `relu2` has no bias here.
        cell: with the numbers of pairs, keys and values.
        dim: d.
        frame: whether the keys are a tight frame; else they are random.
        rows: to sample.
    """
    pairs, count = cell["pairs"], cell["values"]
    rng = np.random.default_rng([dim, pairs, cell["keys"], count, frame])
    recalled = 0
    for part in np.array_split(np.arange(rows), max(1, rows * max(pairs, count) // _AT_ONCE)):
        size = len(part)
        if frame:
            square = np.full((size, 1), float(dim))
            spread = np.sqrt(square * max(0, cell["keys"] - dim) / (cell["keys"] - 1))
        else:
            square = rng.chisquare(dim, (size, 1))
            spread = np.sqrt(square)
        scores = spread * rng.standard_normal((size, pairs))
        at = np.arange(size), rng.integers(pairs, size=size)
        scores[at] = square[:, 0]
        values = rng.integers(count, size=(size, pairs))
        places = (values + count * np.arange(size)[:, None]).ravel()
        weights = weights_of(name, scores).ravel()
        votes = np.bincount(places, weights, minlength=size * count).reshape(size, count)
        recalled += int((votes.argmax(-1) == values[at]).sum())
    return recalled / rows


# --- the model -----------------------------------------------------------------------------------


def start(rng: np.random.Generator, dims: int, keys: int, values: int) -> dict[str, Any]:
    """Return the parameters before training: random keys, and a query begins as its own key."""
    table = rng.standard_normal((keys, dims), dtype=np.float32)
    scalars = {"bias": np.float32(0), "strength": np.float32(0), "gain": np.float32(np.log(4))}
    return {"query": table, "key": table, "read": np.eye(values, dtype=np.float32), **scalars}


def draw_rows(
    rng: np.random.Generator, shape: tuple[int, ...], cell: Record, queries: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Draw rows: their keys and values [*shape, P], and the places that are asked for."""
    pairs = cell["pairs"]
    keys = rng.random((*shape, cell["keys"]), dtype=np.float32).argsort(-1)[..., :pairs]
    values = rng.integers(cell["values"], size=(*shape, pairs), dtype=np.int32)
    return keys.astype(np.int32), values, rng.integers(pairs, size=(*shape, queries))


def delta_votes(model: Any, keys: Any, unit: Any, query: Any) -> Any:
    """Return what a state holds for queries after S ← S + b(v − Sk)kᵀ for each key, ‖k‖ = 1."""
    strength = jax.nn.sigmoid(model["strength"])

    def write(state: Any, pair: Any) -> tuple[Any, None]:
        key, value = pair
        miss = value - jnp.einsum("rvd,rd->rv", state, key)
        return state + strength * jnp.einsum("rv,rd->rvd", miss, key), None

    in_order = jnp.moveaxis(keys, 1, 0), jnp.moveaxis(unit, 1, 0)
    empty = jnp.zeros((unit.shape[0], unit.shape[-1], keys.shape[-1]))
    state, _ = jax.lax.scan(write, empty, in_order)
    return jnp.einsum("rvd,rqd->rqv", state, query)


def normalized(x: Any) -> Any:
    """Return vectors of length 1."""
    return x / jnp.sqrt((x * x).sum(-1, keepdims=True) + _SMALL)


def predict(name: str, model: Any, rows: Any, used: Any) -> tuple[Any, Any]:
    """Return the logits of values [rows, queries, V] and the scores [rows, queries, P].

    Args:
        name: the map.
        model: its parameters.
        rows: as drawn.
        used: 1 in the d dimensions that it has, 0 in the rest: one program serves all d.
    """
    keys, values, asked = rows
    query = (model["query"] * used)[jnp.take_along_axis(keys, asked, -1)]
    unit = jax.nn.one_hot(values, model["read"].shape[0])
    scores = jnp.take_along_axis(query @ (model["key"] * used).T, keys[:, None, :], -1)
    scores = scores / jnp.sqrt(used.sum())
    if name == DELTA:
        known = normalized((model["key"] * used)[keys])
        votes = delta_votes(model, known, unit, normalized(query))
    else:
        bias = model["bias"] if name == RELU_BIAS else 0.0
        weights = weights_of(name, scores, bias)
        votes = weights @ unit / (jnp.abs(weights).sum(-1, keepdims=True) + _SMALL)
    return votes @ model["read"] * jnp.exp(model["gain"]), scores


def loss(name: str, model: Any, rows: Any, used: Any) -> Any:
    """Return the mean cross-entropy of the values that were asked for."""
    wanted = jnp.take_along_axis(rows[1], rows[2], -1)
    logits = jax.nn.log_softmax(predict(name, model, rows, used)[0])
    return -jnp.take_along_axis(logits, wanted[..., None], -1).mean()


test = jax.jit(predict, static_argnums=0)


def run(settings: Settings, cell: Record) -> list[Record]:
    """Train the models of a cell, and compare what they recall with what the laws say."""
    name, most = cell["map"], max(settings.dims)
    drawn = []
    for seed in settings.seeds:
        rng = np.random.default_rng([seed, cell["pairs"], cell["keys"], cell["values"]])
        first = start(rng, most, cell["keys"], cell["values"])
        batches = draw_rows(rng, (cell["steps"], settings.rows), cell, settings.queries)
        tests = draw_rows(rng, (settings.test_rows,), cell, 2 * settings.queries)
        drawn.append((first, batches, tests))
    first, batches, tests = (training.stack(part) for part in zip(*drawn, strict=True))
    rates = np.full(len(settings.seeds), settings.rate, np.float32)
    told = name if name != RELU_BIAS else RELU
    records = []
    for dim in settings.dims:
        used = np.tile((np.arange(most) < dim).astype(np.float32), (len(rates), 1))
        trained, ended = training.train(functools.partial(loss, name), first, rates, batches, used)
        laws = {}
        if name != DELTA:
            laws = {
                law: recall_law(told, cell, dim, law == "frame", settings.law_rows)
                for law in ("random", "frame")
            }
        for at, seed in enumerate(settings.seeds):
            model, rows = training.pick(trained, at), training.pick(tests, at)
            logits, scores = jax.device_get(test(name, model, rows, used[at]))
            wanted = np.take_along_axis(rows[1], rows[2], -1)
            accuracy = (logits.argmax(-1) == wanted).mean()
            untrained, _ = jax.device_get(test(name, training.pick(first, at), rows, used[at]))
            measured = {"untrained": (untrained.argmax(-1) == wanted).mean(), **laws}
            if name == LINEAR:
                measured["measured"] = law_of_scores(scores, rows[2], cell["values"])
            absent = dict.fromkeys(("random", "frame", "measured"), np.nan)
            records.append(
                {"dim": dim, "seed": seed, "loss": ended[at], "accuracy": accuracy}
                | absent
                | measured
            )
    return records


def law_of_scores(scores: np.ndarray, asked: np.ndarray, values: int) -> float:
    """Return the needle law's recall, told the mean and spread of a trained model's scores."""
    needle = np.arange(scores.shape[-1]) == asked[..., None]
    own, others = scores[needle].astype(float), scores[~needle].astype(float)
    row = sparsity.Row(
        "identity",
        beta=others.mean(),
        gamma=others.std(),
        steps=(sparsity.Needle(own.mean(), own.std()),),
    )
    recalled = sparsity.estimate(
        row, length=scores.shape[-1], of=f"needle_recall:{values}", max_samples=2000
    )
    return recalled.value


# --- what came out of it -------------------------------------------------------------------------


def draw(records: list[Record], figure: Figure) -> None:
    """Draw the trained accuracy against what each law says."""
    by_cell = statistics.mean_over_seeds(records, BY)
    axes = figure.subplots(1, 3, sharey=True)
    titles = {
        "random": "random keys: P, d, V",
        "frame": "a tight frame: P, K, d, V",
        "measured": "the needle law of measured scores",
    }
    linear = [cell for cell in by_cell if cell["map"] == LINEAR]
    for ax, (law, title) in zip(axes, titles.items(), strict=True):
        for i, pairs in enumerate(sorted({cell["pairs"] for cell in linear})):
            mine = [cell for cell in linear if cell["pairs"] == pairs]
            ax.errorbar(
                [cell[law] for cell in mine],
                [cell["accuracy"] for cell in mine],
                [cell["spread"] for cell in mine],
                fmt="ovsD^"[i % 5],
                color=f"C{i}",
                ms=4,
                lw=1,
                label=f"P = {pairs}",
            )
        ax.plot([0, 1], [0, 1], color="grey", lw=1, zorder=0)
        ax.set_xlabel(title)
        ax.spines[["top", "right"]].set_visible(False)
    axes[0].set_ylabel("recalled by trained linear attention")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside right center", frameon=False)
    figure.suptitle("Trained linear attention recalls what a tight frame of keys would")


EXPERIMENT = Experiment(
    name="random_keys",
    title="What does linear attention recall, from P, d and V alone?",
    full=Settings(),
    tiny=Settings(
        linear=((16, 32, 8), (8, 8, 4)),
        others=((8, 8, 4),),
        long=((8, 8, 4),),
        dims=(4, 8),
        seeds=(0, 1),
        steps=30,
        test_rows=8,
        law_rows=500,
    ),
    cells=cells,
    run=run,
    judge=judge,
    draw=draw,
)
