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
from experiments import statistics, training
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
    with_spread,
)
from sparsity.rows.rotation import BASE, angles


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


# --- what came out of it -------------------------------------------------------------------------

PUBLISHED = {lm.ROPE: 20.9, lm.COCA: 1.66}  # ratio at twice the trained length


def judge(records: list[Record]) -> str:
    """Return losses, ratios of perplexity and n_eff beside the law at every length."""
    found, lengths = Readings(records), sorted({x["length"] for x in records})
    lawful = [n for n in lengths if any(x["length"] == n and x["law"] > 0 for x in records)]
    loss, ratio, n_eff = {}, {}, {}
    for rule, reading in found.series:
        name = name_of(rule, reading)
        loss[name] = [with_spread(found.of("loss", rule, reading, n)) for n in lengths]
        ratio[name] = [with_spread(found.ratio(rule, reading, n)) for n in found.longer]
        ratio[name].append(f"{PUBLISHED.get(name, '')}")
        n_eff[name] = []
        for n in lawful:
            measured, by_law = (
                found.mean_log(x, rule, reading, n) for x in ("n_eff_of_rows", "law")
            )
            off = (np.exp(found.of(x, rule, reading, n).mean()) for x in ("off_first", "off_rest"))
            factors = "; ".join(f"{x:.2f}" for x in off)
            n_eff[name].append(f"{measured:.3g}; {by_law:.3g} ({factors})")
        without_n = np.exp(found.of("off_without_n", rule, reading, lawful[-1]).mean())
        n_eff[name].append(f"{without_n:.2f}")
    mixed = [found.of("loss", rule, SHUFFLED, TRAINED).mean() for rule, _ in found.series]
    explained = _dilution(found)
    multiples = [f"× {n // TRAINED}" for n in found.longer]
    lines = [
        *statistics.verdicts(_held(found, explained)),
        "",
        *table("loss, nats a byte", lengths, loss),
        "",
        *table("perplexity over that at 64", [*multiples, "published, × 2"], ratio),
        "",
        f"Means ± standard deviation over {len({x['seed'] for x in records})} seeds.",
        "",
        *table("n_eff: measured; law (factors)", [*lawful, "without n"], n_eff),
        "",
        "Geometric means over heads, the same rows for both; in brackets the median over heads and "
        "rows of the factor between the two, in the first layer and in the others. Control, the "
        "law without n: the factor at the longest length if n_eff stayed what the law says at 64.",
        "",
        "Rank correlation between the growth of n_eff since 64 bytes and the ratio of "
        f"perplexities, over rules, readings, seeds and longer lengths: {explained}.",
        "",
        f"Frequency of bytes: {records[0]['unigram']:.3f}. Control, shuffled bytes: "
        f"{min(mixed):.2f} to {max(mixed):.2f}. Text: the standard library of "
        f"{records[0]['corpus']} (the beginning of the SHA-256 of its files).",
    ]
    return "\n".join(lines)


def table(first: str, columns: list[Any], rows: dict[str, list[str]]) -> list[str]:
    """Return the lines of a table in Markdown."""
    head = [
        f"| {first} | " + " | ".join(map(str, columns)) + " |",
        "|---" * (len(columns) + 1) + "|",
    ]
    return head + [f"| {name} | " + " | ".join(row) + " |" for name, row in rows.items()]


def _dilution(found: Readings) -> statistics.Interval:
    """Return how the growth of n_eff ranks with the ratio of perplexities."""
    grown, ratios = [], []
    for (rule, reading), n in itertools.product(found.series, found.longer):
        before = found.of("n_eff", rule, AS_TRAINED, TRAINED)
        grown.append(found.of("n_eff", rule, reading, n) / before)
        ratios.append(found.ratio(rule, reading, n))
    return statistics.rank_correlation(np.concatenate(grown), np.concatenate(ratios))


def _held(found: Readings, explained: statistics.Interval) -> dict[str, bool]:
    """Return what was predicted, and whether it came so; of rules that were trained."""
    longest, as_trained = found.lengths[-1], AS_TRAINED
    rules = [rule for rule, reading in found.series if reading == as_trained]
    at_64 = {rule: found.of("loss", rule, as_trained, TRAINED).mean() for rule in rules}
    at_8 = {rule: found.of("loss", rule, as_trained, found.lengths[0]).mean() for rule in rules}
    unigram = found.records[0]["unigram"]
    held = {
        "at 64 bytes every rule is 0.6 nats below the frequency of bytes": all(
            unigram - x >= 0.6 for x in at_64.values()
        ),
        "and those with positions 0.05 below their loss with 8 bytes": all(
            at_8[rule] - at_64[rule] >= 0.05 for rule in rules if rule != lm.NONE
        ),
        "shuffled bytes cost at least 3 nats": all(
            found.of("loss", rule, SHUFFLED, TRAINED).mean() >= 3 for rule in rules
        ),
        "the first layer is within 1.5 of the law in the median, at every length": (
            found.farthest_off("off_first") <= 1.5
        ),
        "the others are within 2.5": found.farthest_off("off_rest") <= 2.5,
        "growth of n_eff ranks with the ratio of perplexities above 0.5": explained.value > 0.5,
    }
    if not set(lm.RULES) <= set(rules):
        return held
    plain = {rule: found.mean_ratio(rule) for rule in rules}
    with_ntk = {rule: found.mean_ratio(rule, NTK) for rule in lm.ROTARY}
    far = {**plain, **{name_of(rule, NTK): x for rule, x in with_ntk.items()}}
    rotary = [name for rule in lm.ROTARY for name in (rule, name_of(rule, NTK))]
    grown = {
        rule: found.mean_log("n_eff", rule, as_trained, longest)
        / found.mean_log("n_eff", rule, as_trained, TRAINED)
        for rule in (lm.ALIBI, lm.NONE)
    }
    without_n = {r: np.exp(found.of("off_without_n", r, as_trained, longest).mean()) for r in rules}
    return held | {
        "RoPE's perplexity grows by 1.02 to 2 at twice the length": 1.02 <= plain[lm.ROPE][0] <= 2,
        "CoCA loses less than RoPE at every multiple": bool(
            np.all(plain[lm.COCA] < plain[lm.ROPE])
        ),
        "the slack form loses more than exact CoCA at every multiple": bool(
            np.all(plain[lm.SLACK] > plain[lm.COCA])
        ),
        "and is the worst of the five at the longest": (
            max(rules, key=lambda rule: plain[rule][-1]) == lm.SLACK
        ),
        "dynamic NTK helps RoPE and CoCA from 4 times the length on": all(
            np.all(with_ntk[rule][1:] < plain[rule][1:]) for rule in (lm.ROPE, lm.COCA)
        ),
        "CoCA with it has the smallest ratio of the rotary readings at the longest": (
            min(rotary, key=lambda name: far[name][-1]) == name_of(lm.COCA, NTK)
        ),
        "ALiBi's perplexity stays within 2 %": bool(np.all(np.abs(plain[lm.ALIBI] - 1) <= 0.02)),
        "without positions the loss at 64 bytes is above ALiBi's": at_64[lm.NONE] > at_64[lm.ALIBI],
        "and the perplexity grows by more than 2 % at the longest": plain[lm.NONE][-1] > 1.02,
        "n_eff grows by less than 1.5 with ALiBi": grown[lm.ALIBI] < 1.5,
        "and by half to twice the ratio of lengths without positions": (
            0.5 <= grown[lm.NONE] * TRAINED / longest <= 2
        ),
        "the law without n is off by more than 4 with RoPE, CoCA and no positions": all(
            without_n[rule] > 4 for rule in (lm.ROPE, lm.COCA, lm.NONE)
        ),
    }


# --- the figure ----------------------------------------------------------------------------------

# Okabe and Ito's colours, told apart by the colour-blind; shapes of markers tell them apart too.
LOOKS: dict[str, tuple[str, str]] = {
    lm.ROPE: ("#D55E00", "o"),
    lm.COCA: ("#0072B2", "s"),
    lm.SLACK: ("#009E73", "D"),
    lm.ALIBI: ("#CC79A7", "^"),
    lm.NONE: ("#555555", "v"),
}


def draw(records: list[Record], figure: Figure) -> None:
    """Draw loss against length; n_eff of trained heads beside the law, without NTK and with."""
    found = Readings(records)
    axes = left, middle, right = figure.subplots(1, 3, width_ratios=(1.25, 1, 1))
    for rule, reading in found.series:
        color, marker = LOOKS[rule]
        face = "white" if reading == NTK else color
        look: Any = {"color": color, "marker": marker, "mfc": face, "ms": 5.5, "capsize": 2}
        joined = "--" if reading == NTK else "-"
        lengths = [n for n in found.lengths if n >= TRAINED]
        loss = [found.of("loss", rule, reading, n) for n in lengths]
        mean, error = [x.mean() for x in loss], [spread(x) for x in loss]
        label = name_of(rule, reading)
        left.errorbar(lengths, mean, error, label=label, ls=joined, lw=0.7, **look)
        ax = right if reading == NTK else middle
        known = [n for n in lengths if np.all(found.of("law", rule, reading, n) > 0)]
        logs = [np.log(found.of("n_eff_of_rows", rule, reading, n)) for n in known]
        mean = np.exp([x.mean() for x in logs])
        low, high = (np.exp([x.mean() + sign * spread(x) for x in logs]) for sign in (-1, 1))
        ax.errorbar(known, mean, (mean - low, high - mean), ls="none", **look)
        lines = [np.exp(np.log(found.of("law", rule, reading, n)).mean()) for n in known]
        ax.plot(known, lines, color=color, lw=1.4, ls=joined)
    left.set(title="the same bytes, read with longer contexts", ylabel="loss, nats a byte")
    middle.set(title="as trained", ylabel="bytes a head attends to, n_eff")
    right.set(title="with dynamic NTK")
    right.sharey(middle)
    for ax in axes:
        ax.set_xscale("log", base=2)
        ax.set_xticks(ticks := [n for n in found.lengths if n in (64, 256, 1024, 4096)])
        ax.set_xticklabels([f"{n}" for n in ticks])
        ax.set_xlabel(f"context, bytes (trained at {TRAINED})")
        ax.spines[["top", "right"]].set_visible(False)
    middle.set_yscale("log")
    figure.legend(*left.get_legend_handles_labels(), loc="outside right center", frameon=False)
    figure.suptitle(
        "Beyond the trained length. Points: trained models, mean and standard deviation over "
        "seeds; lines in the middle and right: the exact law, told of 64 bytes alone"
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
    size=(14.0, 4.6),
)
