"""Which temperature suffices where the wanted item stands out? `temperature` with a margin.

The item that is to be read out has the number 1, the others are uniform below 1 − margin. So the
largest score alone is right in rows of any length, and the rules can be told apart.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from matplotlib.figure import Figure

import sparsity
from experiments import statistics, temperature, training
from experiments.frame import Experiment, Record
from experiments.temperature_verdict import (
    BOUNDED,
    CLASSES,
    INVERSE,
    PLAIN,
    SHARPER_FIRST,
    TRAINED,
)
from sparsity import plotting

LARGEST, ODDS, LOG_N, FLOOR = "largest score", "constant odds, by the law", "log-n", "floor-log"
LEAST_N_EFF = 1.25  # that Gaussian scores are to keep, as in `temperature`: 1.03 is out of reach
_FACTORS = 2.0 ** (np.arange(-200, 601) / 100)  # among which one is chosen: 1/4 to 64
BY = ("margin", "map", "rule", "length")


@dataclass(frozen=True)
class Settings:
    """What is trained, and at which lengths it is read."""

    margins: tuple[float, ...] = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2)
    maps: tuple[str, ...] = ("exp", "sparsemax", "entmax1.5")
    lengths: tuple[int, ...] = (16, 256, 4096, 16_384)
    seeds: tuple[int, ...] = (0, 1, 2)
    rates: tuple[float, ...] = (0.003, 0.01)
    steps: int = 2000
    rows: int = 64  # of a batch
    test_rows: int = 128
    at_once: int = 2**18  # items of a test that are held at a time


def cells(settings: Settings) -> list[Record]:
    """Return a cell for each margin and map; models of all seeds and rates share it."""
    each = itertools.product(settings.margins, settings.maps)
    return [{"margin": margin, "map": name} for margin, name in each]


def draw_rows(rng: np.random.Generator, shape: tuple[int, ...], margin: float) -> Any:
    """Draw the numbers and the classes of rows; one item of each row has the number 1."""
    numbers, classes = temperature.draw_rows(rng, shape)
    numbers *= np.float32(1 - margin)
    at = rng.integers(shape[-1], size=(*shape[:-1], 1))
    np.put_along_axis(numbers, at, np.float32(1), axis=-1)
    return numbers, classes


# --- the law -------------------------------------------------------------------------------------


def gaps_of(model: Any, rows: Any) -> np.ndarray:
    """Return by how much the scores of the other items are below that of the wanted one."""
    scores = np.asarray(jax.device_get(temperature.scores(model, rows)), float)
    at = rows[0].argmax(-1)[:, None]
    gaps = np.take_along_axis(scores, at, -1) - scores
    return gaps[np.arange(scores.shape[-1]) != at]


def constant_odds(gaps: np.ndarray, length: int) -> float:
    """Return the factor at which the others weigh as much as at 16 items, or come nearest to it."""
    wanted = np.log(np.exp(-gaps).mean() * (TRAINED - 1) / (length - 1))
    off = [abs(np.log(np.exp(-factor * gaps).mean()) - wanted) for factor in _FACTORS]
    return float(_FACTORS[np.argmin(off)])


def forecast(
    gaps: np.ndarray, factors: list[float], length: int, rows: int, rng: np.random.Generator
) -> list[float]:
    """Return the recall under each factor, of rows with independent gaps drawn from these."""
    right = np.zeros(len(factors))
    for _ in range(rows):
        drawn, classes = rng.choice(gaps, length - 1), rng.integers(CLASSES, size=length - 1)
        for i, factor in enumerate(factors):
            with np.errstate(over="ignore", invalid="ignore"):  # the largest alone, by c = ∞
                weights = np.exp(np.where(drawn == 0, 0, -drawn * factor))
            votes = np.bincount(classes, weights, CLASSES)
            votes[0] += 1  # of the wanted one, whose class is as good as another
            right[i] += votes.argmax() == 0
    return (right / rows).tolist()


# --- what is measured ----------------------------------------------------------------------------


def measure(
    settings: Settings, cell: Record, model: Any, rng: np.random.Generator
) -> Iterator[Record]:
    """Yield the share of rows that are read out right at every length, by every rule."""
    name, margin, count = cell["map"], cell["margin"], settings.test_rows
    gaps = gaps_of(model, draw_rows(rng, (count, TRAINED), margin))
    at_16 = 0.0
    for length in settings.lengths:
        chunks = max(1, count * length // settings.at_once)
        rows = [draw_rows(rng, (count // chunks, length), margin) for _ in range(chunks)]

        def reading(factor: float, rows: list[Any] = rows) -> tuple[float, float]:
            found = [
                jax.device_get(temperature.read(name, model, part, np.float32(factor)))
                for part in rows
            ]
            n_eff = np.concatenate([sparsity.n_eff(weights.astype(float)) for _, weights in found])
            return float(np.concatenate([right for right, _ in found]).mean()), float(n_eff.mean())

        at_16 = at_16 or max(round(reading(1.0)[1], 3), LEAST_N_EFF)
        rules, laws = {PLAIN: 1.0}, [np.nan]
        if name == "exp":
            rules = temperature.factors(length, at_16) | {ODDS: constant_odds(gaps, length)}
            laws = forecast(gaps, list(rules.values()), length, count, rng)
        for (rule, factor), law in zip(rules.items(), laws, strict=True):
            accuracy, n_eff = reading(factor)
            told = {"length": length, "rule": rule, "factor": factor}
            yield {**told, "accuracy": accuracy, "n_eff": n_eff, "law": law}


def run(settings: Settings, cell: Record) -> list[Record]:
    """Train the models of a map; read those of the rate with the smaller training loss."""
    tried, margin = [], cell["margin"]
    for seed in settings.seeds:
        rng = np.random.default_rng(seed)
        first = temperature.start(rng)
        batches = draw_rows(rng, (settings.steps, settings.rows, TRAINED), margin)
        tried += [(first, np.float32(rate), batches) for rate in settings.rates]
    first, rates, batches = (training.stack(part) for part in zip(*tried, strict=True))
    loss = functools.partial(temperature.loss, cell["map"])
    trained, ended = training.train(loss, first, rates, batches)
    records = []
    for seed, at in zip(settings.seeds, training.best_of(ended, settings.rates), strict=True):
        rng = np.random.default_rng([seed, 1])
        chosen = {"seed": seed, "rate": float(rates[at]), "loss": float(ended[at])}
        measured = measure(settings, cell, training.pick(trained, at), rng)
        records += [{**chosen, **each} for each in measured]
    return records


# --- what came out of it -------------------------------------------------------------------------


def means(records: list[Record]) -> dict[tuple[Any, ...], Record]:
    """Return the means over seeds by margin, map, rule and length."""
    found = statistics.mean_over_seeds(records, BY)
    return {tuple(x[name] for name in BY): x for x in found}


def forecast_errors(of: dict[tuple[Any, ...], Record]) -> tuple[float, float]:
    """Return how far off the forecasts are in the mean, and those of other rules and lengths."""
    told = [x for x in of.values() if x["map"] == "exp"]
    accuracy, law = (np.array([x[name] for x in told]) for name in ("accuracy", "law"))
    others = np.random.default_rng(0).permutation(law)
    return float(np.abs(law - accuracy).mean()), float(np.abs(others - accuracy).mean())


def judge(records: list[Record]) -> str:
    """Return the accuracy of every rule at every length, and what held of the prediction."""
    of = means(records)
    lengths = sorted({x["length"] for x in records})
    most, margins = lengths[-1], sorted({x["margin"] for x in records})
    wide = margins[-2:]
    series = list(dict.fromkeys((name, rule) for _, name, rule, _ in of))
    lines = []
    for margin in margins:
        lines += ["", f"Margin {margin:g}:", ""]
        lines.append("| weights, rule | " + " | ".join(f"n = {n:,}" for n in lengths) + " | law |")
        lines.append("|---" * (len(lengths) + 2) + "|")
        for name, rule in series:
            mine = [of[margin, name, rule, n] for n in lengths]
            shown = (f"{x['accuracy']:.2f} ± {x['spread']:.2f}; {x['n_eff']:.3g}" for x in mine)
            law = mine[-1]["law"]
            told = "" if np.isnan(law) else f"{law:.2f}"
            lines.append(f"| {name}, {rule} | {' | '.join(shown)} | {told} |")
    lines += [
        "",
        "Share of rows read out right ± standard deviation over seeds; mean n_eff. Law: what the "
        f"gaps at {TRAINED} items forecast for n = {most:,}.",
    ]

    def least(rule: str, name: str = "exp") -> float:
        return min(of[m, name, rule, n]["accuracy"] for m in wide for n in lengths)

    def last(margin: float, rule: str, name: str = "exp") -> float:
        return of[margin, name, rule, most]["accuracy"]

    error, other = forecast_errors(of)
    none, floor, log_n = (last(wide[0], rule) for rule in (PLAIN, FLOOR, LOG_N))
    maps = list(dict.fromkeys(name for name, _ in series))
    by_map = {name: [last(m, PLAIN, name) for m in wide] for name in maps}
    factors = [
        (of[m, "exp", ODDS, n]["factor"], of[m, "exp", LOG_N, n]["factor"])
        for m in wide
        for n in lengths[1:]
    ]
    apart = [np.ptp([last(m, rule) for rule in (PLAIN, FLOOR, LOG_N)]) for m in wide]
    chance = max(abs(last(m, INVERSE) - 1 / CLASSES) for m in margins)
    held = {
        f"1: the largest score alone reads out {least(LARGEST):.3f} or more for margins of "
        f"{wide[0]:g} and {wide[1]:g}, 0.95 or more": least(LARGEST) >= 0.95,
        f"2: log-n reads out {least(LOG_N):.3f} or more, n/{TRAINED} {least(BOUNDED):.3f}, 0.95 or "
        "more": min(least(LOG_N), least(BOUNDED)) >= 0.95,
        f"2: with a margin of {wide[0]:g} at n = {most:,} softmax as trained reads out {none:.2f}, "
        f"less than half; floor-log {floor:.2f}, more than that and less than log-n, {log_n:.2f}, "
        "by 0.05 or more": bool(none < 0.5 and none < floor <= log_n - 0.05),
        **({
            f"3: sparsemax as trained reads out {least(PLAIN, 'sparsemax'):.3f} or more, 0.95 or "
            "more": least(PLAIN, "sparsemax") >= 0.95,
            "3: entmax-1.5 reads out more of the longest rows than softmax, and no more than "
            "sparsemax": all(
                a < b <= c
                for a, b, c in zip(*(by_map[x] for x in reversed(SHARPER_FIRST)), strict=True)
            ),
        } if len(maps) > 2 else {}),
        f"4: gaps at {TRAINED} items forecast the recall with a mean absolute error of "
        f"{error:.3f}, at most 0.05": error <= 0.05,
        f"5: the factor by that law keeps {least(ODDS):.3f}, 0.95 or more, and is smaller than "
        f"log-n's": least(ODDS) >= 0.95 and all(a < b for a, b in factors),
        **_held_narrow(of, margins[1:3] if len(margins) > 5 else [], lengths),
        f"control: the inverse factor reads out by chance, off by {chance:.3f} at most": (
            chance <= 0.05
        ),
        f"control: forecasts of other rules and lengths are off by {other:.3f}, several times as "
        "much": other > 3 * error,
    }  # fmt: skip
    met = {
        f"the largest score alone reads out {least(LARGEST):.3f}, less than 0.95": (
            least(LARGEST) < 0.95
        ),
        f"none, floor-log and log-n are within {max(apart):.2f} of each other": max(apart) < 0.05,
        f"the forecasts are off by {error:.3f}, more than 0.1": error > 0.1,
    }
    shown = ", ".join(f"{a:.2f} for {b:.2f}" for a, b in factors)
    more = f"Factors of constant odds for those of log-n, by margin and length: {shown}."
    told_lines = [*statistics.verdicts(held), *statistics.refutations(met), "", more]
    return "\n".join([*told_lines, *lines])


def _held_narrow(
    of: dict[tuple[Any, ...], Record], margins: list[float], lengths: list[int]
) -> dict[str, bool]:
    """Return what was predicted of narrow margins, and whether it came so."""
    if not margins:
        return {}
    alone = min(of[m, "exp", LARGEST, n]["accuracy"] for m in margins for n in lengths)
    none, floor, log_n = (
        of[margins[0], "exp", rule, lengths[-1]]["accuracy"] for rule in (PLAIN, FLOOR, LOG_N)
    )
    return {
        f"6: the largest score alone reads out {alone:.3f} or more for margins of {margins[0]:g} "
        f"and {margins[1]:g}, 0.95 or more": alone >= 0.95,
        f"7: with a margin of {margins[0]:g} softmax as trained reads out {none:.2f} of the "
        f"longest rows, less than half, floor-log {floor:.2f} and log-n {log_n:.2f}, each more by "
        "0.05 or more": bool(none < 0.5 and none + 0.05 <= floor <= log_n - 0.05),
    }


def draw(records: list[Record], figure: Figure) -> None:
    """Draw accuracy against the length for each margin, a line a rule, beside the forecasts."""
    of = means(records)
    margins = sorted({x["margin"] for x in records})
    columns = min(3, len(margins))
    axes = figure.subplots(-(-len(margins) // columns), columns, sharey=True, squeeze=False)
    series = list(dict.fromkeys((name, rule) for _, name, rule, _ in of))
    for ax, margin in zip(axes.flat, margins, strict=True):
        for i, (name, rule) in enumerate(series):
            mine = [x for key, x in of.items() if key[:3] == (margin, name, rule)]
            n = [x["length"] for x in mine]
            look: Any = {"color": f"C{i}", "lw": 1.3}
            label = rule if name == "exp" else f"{name}, {rule}"
            marker = "osD^vpX<>*"[i % 10]
            ax.plot(n, [x["accuracy"] for x in mine], marker, ms=5, label=label, color=f"C{i}")
            said = "law" if name == "exp" else "accuracy"
            ax.plot(
                n, [x[said] for x in mine], ls="-" if name == "exp" else plotting.DASHED, **look
            )
        ax.set(xscale="log", ylim=(0, 1.03))
        ax.set_title(f"margin {margin:g}")
        plotting.length_ticks(ax.xaxis, *ax.get_xlim(), most=5)
    for ax in axes[-1]:
        ax.set_xlabel(f"items n (trained with {TRAINED})")
    for ax in axes[:, 0]:
        ax.set_ylabel("rows read out right")
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside right center")
    figure.suptitle(
        f"A planted margin: points trained, lines forecast from gaps at {TRAINED} items"
    )


EXPERIMENT = Experiment(
    name="margin",
    title="Which temperature suffices where the wanted item stands out?",
    full=Settings(),
    tiny=Settings(
        margins=(0.1, 0.2), maps=("exp",), lengths=(16, 64), seeds=(0,), steps=60, test_rows=32
    ),
    cells=cells,
    run=run,
    judge=judge,
    draw=draw,
    size=(14.0, 7.6),
)
