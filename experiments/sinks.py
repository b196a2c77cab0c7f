"""Does a trained sink grow like ln n? The trigger task, in rows of n tokens.

After n tokens of noise comes a query. Is it the trigger, the head is to return the mean of the n
tokens; is it any other, nothing (2603.11487, there with a query at every position). Weights that
add up to one cannot return nothing, unless they go somewhere: to a first token that is known by its
mark (BOS), or to a learned sink logit b beside the keys. Weights that are not normalised can.

Of the trained heads the scores of other queries are measured: their mean β̂, their spread γ̂, and the
mass that the sink takes. `sparsity.sink_logit` says, by the exact law, which logit takes that mass.
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
from experiments import training
from experiments.frame import Experiment, Record
from experiments.sinks_verdict import MEASURED, OTHERS, SOFTMAX_LOGIT, WITH_SINK, judge
from experiments.weights import LARGEST_SCORE, kernel_function, row_weights
from sparsity import plotting

WIDTH, MARKS = 16, 3  # of a token: three marks and 13 numbers of noise
BOS, TRIGGER, OTHER = np.eye(MARKS, WIDTH, dtype=np.float32)
VOCABULARY = 4096  # tokens of noise, drawn once


@dataclass(frozen=True)
class Settings:
    """What is trained: every head at every length, by every seed and rate."""

    lengths: tuple[int, ...] = (8, 16, 32, 64, 128, 256)  # of the two heads with a sink
    other_lengths: tuple[int, ...] = (8, 32, 128)  # of the four that are compared with them
    noise_from: tuple[float, ...] = (-1.0, 0.0)  # noise is uniform from there to 1
    seeds: tuple[int, ...] = (0, 1, 2)
    rates: tuple[float, ...] = (0.003, 0.01)
    steps: int = 2000
    rows: int = 32  # of a batch, half of them with the trigger
    test_rows: int = 512


def cells(settings: Settings) -> list[Record]:
    """Return a cell for each head, length and kind of noise; the other heads have the first."""
    with_sink = itertools.product(settings.noise_from, WITH_SINK, settings.lengths)
    others = itertools.product(settings.noise_from[:1], OTHERS, settings.other_lengths)
    return [
        {"noise_from": low, "head": head, "length": n} for low, head, n in (*with_sink, *others)
    ]


# --- the model -----------------------------------------------------------------------------------


def draw_rows(rng: np.random.Generator, shape: tuple[int, ...], length: int) -> Any:
    """Draw the words of rows, n of noise and the query's; half of the queries are the trigger."""
    words = rng.integers(VOCABULARY, size=(*shape, length + 1), dtype=np.int16)
    return words, np.broadcast_to(np.arange(shape[-1]) % 2 == 0, shape)


def start(rng: np.random.Generator) -> dict[str, Any]:
    """Return the parameters before training: four matrices and the sink's logit."""
    names, shape = ("query", "key", "value", "output"), (WIDTH, WIDTH)
    matrices = {name: rng.standard_normal(shape, dtype=np.float32) / 4 for name in names}
    return {**matrices, "sink": np.float32(0)}


def attend(head: str, model: Any, rows: Any, vocabulary: Any) -> tuple[Any, Any, Any]:
    """Return the scores of a query and all tokens, their weights, and the tokens [rows, n, 16].

    Where the head has a sink, it stands first: BOS, or a token without content for a sink logit.
    """
    words, triggered = rows
    noise = vocabulary[words.astype(int)]
    tokens, asked = noise[:, :-1] + OTHER, noise[:, -1]
    query = asked + jnp.where(triggered[:, None], TRIGGER, OTHER)
    length = tokens.shape[1]
    if "BOS" in head or head == SOFTMAX_LOGIT:
        first = jnp.broadcast_to(BOS if "BOS" in head else 0 * BOS, tokens[:, :1].shape)
        tokens = jnp.concatenate([first, tokens], 1)
    looked_for = query @ model["query"] @ model["key"].T / 4
    scores = jnp.einsum("rw,rnw->rn", looked_for, tokens)
    if head == SOFTMAX_LOGIT:
        scores = scores.at[:, 0].set(model["sink"])
    scores = jnp.clip(scores, -LARGEST_SCORE, LARGEST_SCORE)
    return scores, weights_of(head, scores, length), tokens


def weights_of(head: str, scores: Any, length: int) -> Any:
    """Return the weights that a head gives to scores, in rows of `length` tokens of noise."""
    if head == "relu/n":
        return kernel_function("relu")(scores) / length
    if head == "sigmoid(s − ln n)":
        return kernel_function("sigmoid")(scores - np.log(length).astype(np.float32))
    return row_weights("sparsemax" if "sparsemax" in head else "exp", scores)


def answers(model: Any, weights: Any, tokens: Any) -> Any:
    """Return the head's output, [rows, 13]."""
    read = jnp.einsum("rn,rnw->rw", weights, tokens)
    return (read @ model["value"] @ model["output"])[:, MARKS:]


def wanted(rows: Any, vocabulary: Any) -> Any:
    """Return what the head is to put out: the mean of the noise, or nothing; [rows, 13]."""
    words, triggered = rows
    mean = vocabulary[words.astype(int)][:, :-1].mean(1)
    return jnp.where(triggered[:, None], mean, 0)[:, MARKS:]


def loss(head: str, model: Any, rows: Any, vocabulary: Any) -> Any:
    """Return the squared error over the square of the means that are asked for."""
    _, weights, tokens = attend(head, model, rows, vocabulary)
    right = wanted(rows, vocabulary)
    return ((answers(model, weights, tokens) - right) ** 2).sum() / (right**2).sum()


# --- what is measured ----------------------------------------------------------------------------

LEAST_DRAWN = 1e-16  # of what leaks, on an axis of powers of ten


@functools.partial(jax.jit, static_argnames="head")
def test(head: str, model: Any, rows: Any, vocabulary: Any) -> tuple[Any, ...]:
    """Return scores, weights, outputs as trained and without the first token, and the targets."""
    scores, weights, tokens = attend(head, model, rows, vocabulary)
    rest = weights_of(head, scores[:, 1:], rows[0].shape[-1] - 1)
    outputs = answers(model, weights, tokens), answers(model, rest, tokens[:, 1:])
    return scores, weights, *outputs, wanted(rows, vocabulary)


def measure(cell: Record, model: Any, rows: Any, vocabulary: Any) -> Record:
    """Return the errors of a head, and of a sink its logit, its mass and the logit of the law."""
    head, n, triggered = cell["head"], cell["length"], rows[1]
    scores, weights, out, without, right = (
        np.asarray(x, float) for x in test(head, model, rows, vocabulary)
    )
    power = (right[triggered] ** 2).mean()
    found = {
        "error": ((out - right)[triggered] ** 2).mean() / power,
        "leak": (out[~triggered] ** 2).mean() / power,
        "leak_without_first": (without[~triggered] ** 2).mean() / power,
        "first_mass": (weights[:, 0] / (weights.sum(-1) + 1e-30))[~triggered].mean(),
    }
    nothing = dict.fromkeys(MEASURED, np.nan)
    if head not in WITH_SINK:
        return {**found, **nothing}
    sink, others = scores[~triggered, 0], scores[~triggered, 1:]
    left = 1 / (1 + np.exp(sink - np.log(np.exp(others).sum(-1))))  # 1 − mass, to full precision
    mass = 1 - left.mean()
    gamma = np.sqrt(others.var(-1).mean())
    return {
        **found,
        "gamma": gamma,
        "logit": sink.mean() - others.mean(),
        "raw_logit": sink.mean(),
        "odds": np.log(mass / left.mean()),
        "law": float(sparsity.sink_logit(mass, "exp", length=n, gamma=gamma)),
    }


def run(settings: Settings, cell: Record) -> list[Record]:
    """Train the heads of a cell; measure those of the rate with the smaller training loss."""
    head, n = cell["head"], cell["length"]
    tried = []
    for seed in settings.seeds:
        rng = np.random.default_rng([seed, n])
        noise = rng.uniform(cell["noise_from"], 1, size=(VOCABULARY, WIDTH)).astype(np.float32)
        noise[:, :MARKS] = 0
        first = start(rng)
        batches = draw_rows(rng, (settings.steps, settings.rows), n)
        tests = draw_rows(rng, (settings.test_rows,), n)
        tried += [(first, np.float32(rate), batches, noise, tests) for rate in settings.rates]
    first, rates, batches, noise, tests = (
        training.stack(part) for part in zip(*tried, strict=True)
    )
    trained, ended = training.train(functools.partial(loss, head), first, rates, batches, noise)
    records = []
    for seed, at in zip(settings.seeds, training.best_of(ended, settings.rates), strict=True):
        model, rows = training.pick(trained, at), training.pick(tests, at)
        chosen = {"seed": seed, "rate": float(rates[at]), "loss": float(ended[at])}
        records.append({**chosen, **measure(cell, model, rows, noise[at])})
    return records


# --- what came out of it -------------------------------------------------------------------------


def draw(records: list[Record], figure: Figure) -> None:
    """Draw the sink's logit against ln n beside the law, and what leaks out of each head."""
    left, right = figure.subplots(1, 2)
    lows = sorted({each["noise_from"] for each in records})
    for i, (low, head) in enumerate(itertools.product(lows, WITH_SINK)):
        mine = [each for each in records if (each["noise_from"], each["head"]) == (low, head)]
        lengths = sorted({each["length"] for each in mine})
        groups = [[each for each in mine if each["length"] == n] for n in lengths]

        def mean(name: str, groups: Any = groups) -> list[float]:
            return [float(np.mean([each[name] for each in group])) for group in groups]

        spread = [np.std([each["logit"] for each in group]) for group in groups]
        look: Any = {"color": f"C{i}", "marker": "osD^"[i], "ls": "none"}
        label = f"{head}, noise from {low:g}"
        left.errorbar(lengths, mean("logit"), spread, label=label, **look)
        left.plot(lengths, mean("law"), color=f"C{i}", lw=1.2)
    left.set_ylabel("logit of the sink above the mean score")
    left.set_title("points: trained; lines: the law at their mass")
    for i, head in enumerate((*WITH_SINK, *OTHERS)):
        mine = [x for x in records if x["head"] == head and x["noise_from"] == lows[0]]
        lengths = sorted({each["length"] for each in mine})
        for name, face in (("leak", f"C{i}"), ("leak_without_first", "white")):
            y = [np.median([x[name] for x in mine if x["length"] == n]) for n in lengths]
            shown = head if name == "leak" else None
            look = {"color": f"C{i}", "marker": "osD^vp"[i], "mfc": face, "lw": 1}
            right.plot(lengths, np.maximum(y, LEAST_DRAWN), label=shown, **look)
    right.set_yscale("log")
    right.set_ylabel("what leaks at queries that ask nothing")
    right.set_title("full: as trained; hollow: without the first token; 0 at 10⁻¹⁶")
    plotting.plain_ticks(right.yaxis, [10.0**k for k in range(-16, 1, 4)])
    for ax in (left, right):
        ax.set(xscale="log", xlabel="tokens n")
        plotting.length_ticks(ax.xaxis, *ax.get_xlim())
    left.margins(y=0.2)
    left.legend(fontsize=9.5, loc="upper left")
    figure.legend(*right.get_legend_handles_labels(), loc="outside right center")
    figure.suptitle("The trigger task: trained sinks")


EXPERIMENT = Experiment(
    name="sinks",
    title="Does a trained sink grow like ln n?",
    full=Settings(),
    tiny=Settings(
        lengths=(4, 8), other_lengths=(4,), noise_from=(-1.0,), seeds=(0,), steps=60, test_rows=32
    ),
    cells=cells,
    run=run,
    judge=judge,
    draw=draw,
)
