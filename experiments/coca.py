"""Does CoCA read beyond the trained length? Language models trained at 64 bytes, read at 4096.

Five rules of position: RoPE, CoCA with keys that are collinear with the query, CoCA in the slack
form of the published code, ALiBi, and none. Each model is trained on windows of 64 bytes of Python
sources and read with 8 to 4096 bytes of context, the three rotary rules also with the angles of
dynamic NTK (`sparsity.DynamicNtkScaling`). Every length predicts the same bytes, the last quarter
of its windows: "the loss at L" is what those bytes cost with 3L/4 to L bytes before them.

n_eff of the trained heads stands beside the law of `figures/context.png`: keys independent of their
place, turned to their distance, make normal scores of mean β_m and spread γ_m at each distance m.
Mean and covariance of the keys and the queries themselves are measured at 64 bytes alone; the
exact law of a row then says n_eff at every length, with the angles of dynamic NTK and without.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.figure import Figure

import sparsity
from experiments import language_model as lm
from experiments import training
from experiments.coca_verdict import judge
from experiments.frame import Experiment, Record
from experiments.head_law import Heads
from experiments.readings import (
    AS_TRAINED,
    COLUMNS,
    NTK,
    SHUFFLED,
    TRAINED,
    Readings,
    name_of,
    spread,
)
from sparsity import plotting
from sparsity.rows.rope_planes import BASE, angles


@dataclass(frozen=True)
class Settings:
    """What is trained, and at which lengths it is read."""

    rules: tuple[str, ...] = lm.RULES
    seeds: tuple[int, ...] = (0, 1, 2)
    lengths: tuple[int, ...] = (8, 64, 128, 256, 512, 1024, 2048, 4096)
    layers: int = 2
    width: int = 64
    heads: int = 4
    steps: int = 500
    windows: int = 16  # of a batch
    rate: float = 0.006
    passages: int = 8  # of the longest length, each out of the middle of a file held out
    law_lengths: tuple[int, ...] = (64, 256, 1024, 4096)  # at which heads stand beside the law
    law_rows: int = 4  # the last rows of so many passages


def cells(settings: Settings) -> list[Record]:
    """Return a cell for each rule and seed."""
    each = itertools.product(settings.rules, settings.seeds)
    return [{"rule": rule, "seed": seed} for rule, seed in each]


# --- a cell --------------------------------------------------------------------------------------


def train(settings: Settings, rule: str, seed: int) -> Any:
    """Return a trained model; every rule sees the same windows in the same order."""
    rng = np.random.default_rng(seed)
    text = lm.corpus().train
    at = rng.integers(text.size - TRAINED, size=(settings.steps, settings.windows, 1))
    batches = text[at + np.arange(TRAINED + 1)]
    shape = lm.Shape(settings.layers, settings.width, settings.heads)
    first = lm.start(rng, shape, rule)
    theta = tuple(angles(settings.width // settings.heads).tolist())
    loss = lm.training_loss(rule, settings.heads, theta)
    rates = np.array([settings.rate], np.float32)
    trained, _ = training.train(loss, training.stack([first]), rates, batches[None])
    return training.pick(trained, 0)


def run(settings: Settings, cell: Record) -> list[Record]:
    """Train a model, and read with it at every length."""
    rule, seed = cell["rule"], cell["seed"]
    text, heads = lm.passages(settings.passages, max(settings.lengths)), settings.heads
    last_quarter = text[:, -(max(settings.lengths) // 4) :]
    told = {
        "unigram": lm.unigram_loss(lm.corpus().train, last_quarter),
        "corpus": lm.corpus().name,
    }
    model = train(settings, rule, seed)
    as_known = angles(settings.width // heads)
    seen = lm.windows(text, TRAINED)  # [passages, windows, bytes]
    query, key = lm.look_inside(rule, heads, tuple(as_known.tolist()), model, seen)
    of_law = Heads.of(rule, query[:, : settings.law_rows, -1, :, -1], key)
    at_64 = of_law.n_eff(as_known, TRAINED)
    stretched = sparsity.DynamicNtkScaling(1.0, TRAINED)
    records = []

    def measure(reading: str, theta: np.ndarray, rows: np.ndarray, lawful: bool) -> None:
        length = rows.shape[-1] - 1
        found = lm.read(rule, heads, tuple(theta.tolist()), model, rows)
        loss, n_eff = (np.asarray(x, float) for x in found)
        record = {"reading": reading, "length": length, "loss": loss.mean(), **told}
        record["n_eff"] = np.exp(np.log(n_eff).mean())
        if lawful:
            by_law = at_64 if length == TRAINED else of_law.n_eff(theta, length)
            asked = n_eff[: settings.law_rows]
            off = np.abs(np.log(asked / by_law))
            record["n_eff_of_rows"] = np.exp(np.log(asked).mean())
            record["law"] = np.exp(np.log(by_law).mean())
            record["off_first"] = np.median(off[:, 0])
            record["off_rest"] = np.median(off[:, 1:]) if settings.layers > 1 else np.nan
            record["off_without_n"] = np.median(np.abs(np.log(asked / at_64)))
        records.append({**dict.fromkeys(COLUMNS, np.nan), **record})

    for length in settings.lengths:
        rows, lawful = lm.windows(text, length), length in settings.law_lengths
        measure(AS_TRAINED, as_known, rows, lawful)
        if rule in lm.ROTARY and length > TRAINED:
            theta = stretched.angles(settings.width // heads, BASE, length)
            measure(NTK, theta, rows, lawful)
    mixed = np.random.default_rng(seed).permuted(lm.windows(text, TRAINED), axis=-1)
    measure(SHUFFLED, as_known, mixed, False)
    return records


# --- the figure ----------------------------------------------------------------------------------

# Okabe and Ito's colours, told apart by the colour-blind; shapes of markers tell them apart too.
LOOKS: dict[str, tuple[str, str]] = {
    lm.ROPE: (plotting.VERMILLION, "o"),
    lm.COCA: (plotting.BLUE, "s"),
    lm.SLACK: (plotting.GREEN, "D"),
    lm.ALIBI: (plotting.PURPLE, "^"),
    lm.NONE: (plotting.GREY, "v"),
}


def draw(records: list[Record], figure: Figure) -> None:
    """Draw loss against length; n_eff of trained heads beside the law, without NTK and with."""
    found = Readings(records)
    axes = left, middle, right = figure.subplots(1, 3, width_ratios=(1.5, 1, 1))
    lengths = [n for n in found.lengths if n >= TRAINED]
    for i, (rule, reading) in enumerate(found.series):
        color, marker = LOOKS[rule]
        face = "white" if reading == NTK else color
        look: Any = {"color": color, "marker": marker, "mfc": face, "ms": 5.5, "capsize": 2}
        joined = "--" if reading == NTK else "-"
        loss = [found.of("loss", rule, reading, n) for n in lengths]
        mean, error = [x.mean() for x in loss], [spread(x) for x in loss]
        # Each a little to the right of the one before: bars that coincide cannot be read.
        beside = np.array(lengths) * 1.035 ** (i - len(found.series) / 2)
        label = name_of(rule, reading)
        left.errorbar(beside, mean, error, label=label, ls=joined, lw=0.8, elinewidth=1, **look)
        ax = right if reading == NTK else middle
        known = [n for n in lengths if np.all(found.of("law", rule, reading, n) > 0)]
        logs = [np.log(found.of("n_eff_of_rows", rule, reading, n)) for n in known]
        middles = np.exp([x.mean() for x in logs])
        low, high = (np.exp([x.mean() + sign * spread(x) for x in logs]) for sign in (-1, 1))
        beside = np.array(known) * 1.06 ** (list(LOOKS).index(rule) - 2)
        ax.errorbar(beside, middles, (middles - low, high - middles), ls="none", **look)
        by_law = [found.mean_log("law", rule, reading, n) for n in known]
        ax.plot(known, by_law, color=color, lw=1.4, ls=joined)
    level, soft = records[0]["unigram"], plotting.GREY
    left.axhline(level, color=soft, lw=1, ls=":")
    left.text(lengths[0], level + 0.02, "bytes' frequency", fontsize=9.5, color=soft)
    left.set_title("loss; thin lines join the points")
    left.set_ylabel("loss of the same bytes, nats a byte")
    middle.set_title("as trained; lines: exact law")
    middle.set_ylabel("effective bytes  n_eff")
    right.set_title("with NTK; lines: exact law")
    right.sharey(middle)
    middle.set_yscale("log")
    for ax in axes:
        ax.set(xscale="log", xlabel=f"context in bytes (trained at {TRAINED})")
        plotting.length_ticks(ax.xaxis, *ax.get_xlim(), most=5)
    for ax in (middle, right):
        ax.yaxis.set_major_formatter("{x:g}")
    figure.legend(*left.get_legend_handles_labels(), loc="outside right center")
    ends = dict.fromkeys((found.longer[min(1, len(found.longer) - 1)], found.longer[-1]))
    ratios = [
        f"{rule} × {' and '.join(f'{found.ratio(rule, AS_TRAINED, n).mean():.2f}' for n in ends)}"
        for rule in (lm.ROPE, lm.COCA, lm.ALIBI)
        if (rule, AS_TRAINED) in found.series
    ]
    figure.suptitle(
        f"Perplexity at {' and '.join(f'{n // TRAINED}' for n in ends)} times the trained length: "
        f"{', '.join(ratios)}"
    )


EXPERIMENT = Experiment(
    name="coca",
    title="Does CoCA read beyond the trained length?",
    full=Settings(),
    tiny=Settings(
        rules=(lm.ROPE, lm.COCA),
        seeds=(0,),
        lengths=(8, 64, 256),
        width=16,
        heads=2,
        steps=30,
        passages=2,
        law_lengths=(64, 256),
        law_rows=1,
    ),
    cells=cells,
    run=run,
    judge=judge,
    draw=draw,
    size=(13.0, 4.6),
)
