"""Which temperature keeps attention sharp in longer rows? The largest of n numbers, read out.

Every item of a row has a number ρ, uniform on [0, 1], and one of ten classes; the head is to return
the class of the item with the largest ρ (Veličković and others, 2410.01104). Its scores are a small
network's of the item, its weights softmax's, trained with 16 items. It is then read with 16 to
16,384 items, its scores times a factor c(n) by the rules that people ship, or by the laws: the
factor that keeps n_eff at what it was at 16 items, for Gaussian scores (`sparsity.design`) and for
bounded ones. Beside it sparsemax and entmax-1.5, trained and read as they are.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure

import sparsity
from experiments import statistics, training
from experiments.frame import Experiment, Record
from experiments.temperature_verdict import BOUNDED, BY, CLASSES, INVERSE, PLAIN, TRAINED, judge
from experiments.weights import row_weights
from sparsity import plotting

HIDDEN = 32


@dataclass(frozen=True)
class Settings:
    """What is trained, and at which lengths it is read."""

    maps: tuple[str, ...] = ("exp", "sparsemax", "entmax1.5")
    lengths: tuple[int, ...] = (16, 64, 256, 1024, 4096, 16_384)
    seeds: tuple[int, ...] = (0, 1, 2)
    rates: tuple[float, ...] = (0.003, 0.01)
    steps: int = 2000
    rows: int = 64  # of a batch
    test_rows: int = 512
    at_once: int = 2**18  # items of a test that are held at a time


def cells(settings: Settings) -> list[Record]:
    """Return a cell for each map; models of all seeds and rates share it."""
    return [{"map": name} for name in settings.maps]


# --- the model -----------------------------------------------------------------------------------


def draw_rows(rng: np.random.Generator, shape: tuple[int, ...]) -> Any:
    """Draw the numbers and the classes of rows, [*shape]."""
    return rng.random(shape, dtype=np.float32), rng.integers(CLASSES, size=shape, dtype=np.int8)


def start(rng: np.random.Generator) -> dict[str, Any]:
    """Return the parameters before training: a layer of 32 units, and a matrix that reads out."""
    first = rng.standard_normal((1 + CLASSES, HIDDEN), dtype=np.float32)
    second = rng.standard_normal(HIDDEN, dtype=np.float32) / math.sqrt(HIDDEN)
    read = 4 * np.eye(CLASSES, dtype=np.float32)
    return {"first": first, "bias": np.zeros(HIDDEN, np.float32), "second": second, "read": read}


def scores(model: Any, rows: Any) -> Any:
    """Return the scores of items, [rows, n], the largest of a row being 0: no map sees the rest."""
    numbers, classes = rows
    one_hot = model["first"][1:][classes.astype(int)]
    hidden = numbers[..., None] * model["first"][0] + one_hot + model["bias"]
    found = jax.nn.relu(hidden) @ model["second"]
    return found - jax.lax.stop_gradient(found.max(-1, keepdims=True))


def logits(model: Any, weights: Any, rows: Any) -> Any:
    """Return the logits of the classes, [rows, 10]."""
    unit = jax.nn.one_hot(rows[1], CLASSES, dtype=weights.dtype)
    return jnp.einsum("rn,rnc->rc", weights, unit) @ model["read"]


def wanted(rows: Any) -> Any:
    """Return the class of the largest number, [rows, 1]."""
    return jnp.take_along_axis(rows[1].astype(int), rows[0].argmax(-1)[:, None], -1)


def loss(name: str, model: Any, rows: Any, fixed: Any) -> Any:
    """Return the mean cross-entropy of the class of the largest number."""
    found = jax.nn.log_softmax(logits(model, row_weights(name, scores(model, rows)), rows))
    return -jnp.take_along_axis(found, wanted(rows), -1).mean()


# --- the rules -----------------------------------------------------------------------------------


@functools.cache
def gaussian_spread(length: int, n_eff: float) -> float:
    """Return γ of Gaussian scores whose rows of n tokens have this n_eff."""
    return float(sparsity.design("exp", length=length, n_eff=n_eff, lengths=()).value)


def factors(length: int, n_eff: float) -> dict[str, float]:
    """Return the factor on the scores by each rule, in rows of n for a head of that n_eff at 16.

    Bounded scores, uniform for instance, have an n_eff that depends on γ/n alone where both are
    large: `exact(Row("exp", gamma=5, scores=Uniform()), length=16)` is 2.561, and with γ = 5120 at
    n = 16,384 it is 2.565. So the factor is n/16.
    """
    ratio = length / TRAINED
    gaussian = gaussian_spread(length, n_eff) / gaussian_spread(TRAINED, n_eff)
    return {
        PLAIN: 1.0,
        "log-n": math.log(length) / math.log(TRAINED),
        "floor-log": 1 + 0.1 * math.log(math.floor(ratio)),
        "constant n_eff, Gaussian": gaussian,
        BOUNDED: ratio,
        INVERSE: 1 / ratio,
        "largest score": math.inf,
    }


@functools.partial(jax.jit, static_argnames="name")
def read(name: str, model: Any, rows: Any, factor: Any) -> tuple[Any, Any]:
    """Return which rows are read out right, and their weights; the largest score's for c = ∞."""
    below = scores(model, rows)
    weights = row_weights(name, jnp.where(below == 0, 0, below * factor))
    right = logits(model, weights, rows).argmax(-1) == wanted(rows)[:, 0]
    return right, weights


def measure(settings: Settings, name: str, model: Any, rng: np.random.Generator) -> list[Record]:
    """Return the share of rows that are read out right at every length, by every rule."""
    records, at_16 = [], 0.0
    for length in settings.lengths:
        chunks, count = max(1, settings.test_rows * length // settings.at_once), settings.test_rows
        rows = [draw_rows(rng, (count // chunks, length)) for _ in range(chunks)]

        def reading(factor: float, rows: list[Any] = rows) -> tuple[float, float]:
            found = [jax.device_get(read(name, model, part, np.float32(factor))) for part in rows]
            n_eff = np.concatenate([sparsity.n_eff(weights.astype(float)) for _, weights in found])
            return float(np.concatenate([right for right, _ in found]).mean()), float(n_eff.mean())

        at_16 = at_16 or round(reading(1.0)[1], 3)
        rules = factors(length, at_16) if name == "exp" else {PLAIN: 1.0}
        for rule, factor in rules.items():
            accuracy, n_eff = reading(factor)
            told = {"length": length, "rule": rule, "factor": factor}
            records.append({**told, "accuracy": accuracy, "n_eff": n_eff})
    return records


def run(settings: Settings, cell: Record) -> list[Record]:
    """Train the models of a map; read those of the rate with the smaller training loss."""
    name, tried = cell["map"], []
    for seed in settings.seeds:
        rng = np.random.default_rng(seed)
        first, batches = start(rng), draw_rows(rng, (settings.steps, settings.rows, TRAINED))
        tried += [(first, np.float32(rate), batches) for rate in settings.rates]
    first, rates, batches = (training.stack(part) for part in zip(*tried, strict=True))
    trained, ended = training.train(functools.partial(loss, name), first, rates, batches)
    records = []
    for seed, at in zip(settings.seeds, training.best_of(ended, settings.rates), strict=True):
        rng = np.random.default_rng([seed, 1])
        chosen = {"seed": seed, "rate": float(rates[at]), "loss": float(ended[at])}
        measured = measure(settings, name, training.pick(trained, at), rng)
        records += [{**chosen, **each} for each in measured]
    return records


# --- what came out of it -------------------------------------------------------------------------


def draw(records: list[Record], figure: Figure) -> None:
    """Draw accuracy and n_eff against the length, a line a rule."""
    by_cell = statistics.mean_over_seeds(records, BY)
    left, right = figure.subplots(1, 2)
    for i, (name, rule) in enumerate(dict.fromkeys((x["map"], x["rule"]) for x in by_cell)):
        mine = [each for each in by_cell if (each["map"], each["rule"]) == (name, rule)]
        n = [each["length"] for each in mine]
        look: Any = {"marker": "osD^vpX<>"[i % 9], "ms": 5, "color": f"C{i}", "lw": 1.5}
        look["ls"] = "-" if name == "exp" else plotting.DASHED
        label = rule if name == "exp" else name
        spread = [each["spread"] for each in mine]
        left.errorbar(n, [each["accuracy"] for each in mine], spread, label=label, **look)
        right.plot(n, [each["n_eff"] for each in mine], **look)
    left.set_ylabel("rows read out right")
    right.set_ylabel("effective items  n_eff")
    right.set_yscale("log")
    for ax in (left, right):
        ax.set(xscale="log", xlabel=f"items n (trained with {TRAINED})")
        plotting.length_ticks(ax.xaxis, *ax.get_xlim())
    plotting.plain_ticks(right.yaxis, (1, 10, 100, 1e3, 1e4))
    figure.legend(*left.get_legend_handles_labels(), loc="outside right center")
    figure.suptitle("The largest of n numbers, read out of longer rows than trained")


EXPERIMENT = Experiment(
    name="temperature",
    title="Which temperature keeps attention sharp in longer rows?",
    full=Settings(),
    tiny=Settings(maps=("exp", "entmax1.5"), lengths=(16, 64), seeds=(0,), steps=60, test_rows=32),
    cells=cells,
    run=run,
    judge=judge,
    draw=draw,
)
