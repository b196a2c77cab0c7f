"""What the committed tables of the experiments say, as the numbers that `rules` judges claims by.

    python -m experiments.recorded [NAME …]

writes them to `experiments/results/NAME.json`, after a new run whose results are committed. An
experiment that a claim rests on has a function here, from the rows of its table to numbers, and an
entry in `NUMBERS`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from experiments import (
    coca_verdict,
    dilution_verdict,
    margin,
    packing,
    recall,
    recall_verdict,
    sharing,
    sink_map,
    sink_steps,
    sinks,
    statistics,
    temperature,
    temperature_verdict,
)
from experiments import language_model as lm
from experiments import sink_conditions as conditions
from experiments.frame import RESULTS, Record, read_table
from experiments.readings import AS_TRAINED, NTK, TRAINED, Readings, spread
from experiments.real_sinks_shown import Table, window_share
from sparsity.output import json_text, write

DIGITS = 4  # of a number in the record


def interval(ends: Sequence[float]) -> str:
    """Write a number with the ends of its 95 % interval."""
    value, low, high = (round(float(x), 2) + 0.0 for x in ends)  # + 0.0: no minus before a 0
    return f"{value:.2f} ({low:.2f} to {high:.2f})"


def rounded(value: Any) -> Any:
    """Return nested numbers with `DIGITS` digits, as plain ones."""
    if isinstance(value, dict):
        return {name: rounded(inner) for name, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [rounded(inner) for inner in value]
    if isinstance(value, (str, bool, int)):
        return value
    return int(value) if isinstance(value, np.integer) else float(f"{value:.{DIGITS}g}")


def of_recall(rows: list[Record]) -> dict[str, Any]:
    """Return which cells recall, what ranks the accuracies, and how near the needle law is."""
    cells = statistics.mean_over_seeds(rows, recall.BY)
    accuracy, law, pairs = recall_verdict.columns(cells, "accuracy", "law", "pairs")
    most, hard = pairs.max(), accuracy < 0.95
    focusing = [x for x in cells if x["map"] not in recall.NO_FOCUS and x["dim"] >= 16]
    of_others = recall_verdict.explanations(cells)[recall_verdict.OTHER_CELLS]
    near = np.abs(law - accuracy) <= 0.1
    near_others = np.abs(of_others - accuracy) <= 0.1
    ranks, ahead = recall_verdict.ranks(cells), recall_verdict.advantages(cells)
    return {
        "cells": len(cells),
        "recalling_all": int((accuracy == 1).sum()),
        "focusing": len(focusing),
        "recalling": sum(cell["accuracy"] >= 0.95 for cell in focusing),
        "spread": np.mean([cell["spread"] for cell in cells]),
        "at_most_pairs": [
            {name: cell[name] for name in ("map", "dim", "accuracy", "spread", "law", "n_eff")}
            for cell in cells
            if cell["pairs"] == most and cell["map"] in ("exp", "relu2", *recall.NO_FOCUS)
        ],
        "ranks": {_IN_LEDGER[words]: list(x) for words, x in ranks.items()},
        "law_ahead_of": {_IN_LEDGER[words]: list(x) for words, x in ahead.items()},
        "among_focusing": {
            _IN_LEDGER[words]: list(x) for words, x in recall_verdict.within_focusing(cells).items()
        },
        "ahead_at_equal_size": list(recall_verdict.ahead_at_equal_size(cells)),
        "near": int(near.sum()),
        "near_others": int(near_others.sum()),
        "hard": int(hard.sum()),
        "hard_near": int(near[hard].sum()),
        "hard_near_others": int(near_others[hard].sum()),
        "without_needle": np.mean([row["without_needle"] for row in rows]),
        "chance": 1 / recall.VALUES,
    }


# What the ledger calls an explanation of recall.
_IN_LEDGER = {
    recall_verdict.LAW: "the needle law",
    recall_verdict.FEW_KEYS: "few keys attended to, −n_eff",
    recall_verdict.FEW_OF_PAIRS: "−n_eff over P",
    recall_verdict.STATE: "the size of the state, d",
    recall_verdict.STATE_OF_PAIRS: "d over P",
    recall_verdict.FOCUS_THEN_STATE: "afterwards: can it focus? then d",
    recall_verdict.OTHER_CELLS: "control: the law of other cells",
}


def of_sinks(rows: list[Record]) -> dict[str, Any]:
    """Return the slopes of a trained sink in ln n, and what heads leak with a sink and without."""
    slopes, with_sink = [], [row for row in rows if row["head"] in sinks.WITH_SINK]
    for low, head in dict.fromkeys((row["noise_from"], row["head"]) for row in with_sink):
        mine = [row for row in with_sink if (row["noise_from"], row["head"]) == (low, head)]
        log_n = np.log([row["length"] for row in mine])
        of = {name: np.array([row[name] for row in mine]) for name in ("logit", "odds", "law")}
        off = of["logit"] - of["law"]
        slopes.append(
            {
                "head": f"{head}, noise from {low:g}",
                "slope": list(statistics.slope(log_n, of["logit"])),
                "slope_of_odds": list(statistics.slope(log_n, of["odds"])),
                "slope_at_mass": list(statistics.slope(log_n, of["logit"] - of["odds"])),
                "off": off.mean(),
                "off_spread": off.std(),
            }
        )

    no_sink, sparsemax, relu, sigmoid = sinks.OTHERS
    without = [row["leak_without_first"] for row in with_sink]
    alone = [row[name] for row in rows if row["head"] == no_sink for name in ("error", "leak")]
    return {
        "lengths": sorted({row["length"] for row in with_sink}),
        "slopes": slopes,
        "largest_off": max(abs(row["logit"] - row["law"]) for row in with_sink),
        "heads": [
            {
                "weights": words,
                "error": _largest_median(rows, "error", heads),
                "leak": _largest_median(rows, "leak", heads),
            }
            for words, heads in {
                "softmax with a sink": sinks.WITH_SINK,
                no_sink: (no_sink,),
                relu: (relu,),
                sigmoid: (sigmoid,),
                sparsemax: (sparsemax,),
            }.items()
        ],
        "no_sink_range": [min(alone), max(alone)],
        "sparsemax_error_to_32": _largest_median(
            [row for row in rows if row["length"] <= 32], "error", (sparsemax,)
        ),
        "leak_without_first": [min(without), float(np.median(without)), max(without)],
        "relu_first_mass": max(row["first_mass"] for row in rows if row["head"] == relu),
        "sigmoid_first_share": max(
            row["first_mass"] * row["length"] for row in rows if row["head"] == sigmoid
        ),
    }


def _largest_median(rows: list[Record], name: str, heads: tuple[str, ...]) -> float:
    """Return the largest, over lengths and kinds of noise, of the medians of seeds."""
    by_cell: dict[Any, list[float]] = {}
    for row in rows:
        if row["head"] in heads:
            cell = row["head"], row["length"], row["noise_from"]
            by_cell.setdefault(cell, []).append(row[name])
    return max(float(np.median(values)) for values in by_cell.values())


def of_temperature(rows: list[Record]) -> dict[str, Any]:
    """Return accuracy and n_eff of every rule at every length, and the powers of n in n_eff."""
    cells = statistics.mean_over_seeds(rows, temperature.BY)
    lengths = sorted({cell["length"] for cell in cells})
    read, powers = [], {}
    for name, rule in dict.fromkeys((cell["map"], cell["rule"]) for cell in cells):
        mine = [cell for cell in cells if (cell["map"], cell["rule"]) == (name, rule)]
        columns = {x: [cell[x] for cell in mine] for x in ("accuracy", "spread", "n_eff")}
        read.append({"weights": name, "rule": rule, **columns})
        if rule == temperature_verdict.PLAIN:
            powers[name] = list(temperature_verdict.growth(rows, name))
    return {
        **{"trained": temperature.TRAINED, "lengths": lengths, "read": read, "powers": powers},
        "seeds": len({row["seed"] for row in rows}),
        "seeds_log_n_ahead": temperature_verdict.log_n_ahead(rows),
    }


def of_real_sinks(rows: list[Record]) -> dict[str, Any]:
    """Return what hidden and muted keys cost, how far a changed word moves states, and values."""
    table = Table(rows)
    first, muted, matched, others = (
        table.moves(name)
        for name in (
            *(conditions.FIRST, conditions.MUTED),
            *(conditions.FIRST_MATCHED, conditions.ORDINARY_MATCHED),
        )
    )
    equal_loss, equal_mass = table.at_equal_loss(), matched - others
    less = {
        "first": table.costs(conditions.FIRST) - table.costs(conditions.MUTED),
        "sinks": table.costs(conditions.SINKS) - table.costs(conditions.SINKS_MUTED),
    }
    windows = table.named(conditions.WINDOW)
    alike = {name: table.of(conditions.AS_IS, name) for name in ("alike", "alike_others")}
    return {
        "texts": len(table.texts),
        "keys": [
            {
                "condition": name,
                "mass": table.of(name, "mass").mean(),
                "cost": list(statistics.mean(table.costs(name))),
                "moved": list(np.exp(statistics.mean(table.moves(name)))),
            }
            for name in (
                *(conditions.FIRST, conditions.SINKS, conditions.ONE),
                *(conditions.MUTED, conditions.SINKS_MUTED, conditions.ELSEWHERE_MUTED),
                *(conditions.FIRST_MATCHED, conditions.ORDINARY_MATCHED),
            )
        ],
        "further": int((first > 0).sum()),
        "further_than_muted": int((first > muted).sum()),
        "equal_loss": list(np.exp(statistics.mean(equal_loss))),
        "equal_loss_further": int((equal_loss > 0).sum()),
        "equal_mass": list(np.exp(statistics.mean(equal_mass))),
        "equal_mass_further": int((equal_mass > 0).sum()),
        "norms": {
            name: np.nanmedian(table.by_layer(name)) for name in ("value_norm", "written_norm")
        },
        "less_when_muted": {name: list(statistics.mean(x)) for name, x in less.items()},
        "texts_less": {name: int((x > 0).sum()) for name, x in less.items()},
        "cosines": {name: [x.mean(), spread(x)] for name, x in alike.items()},
        "windows": [
            {"condition": name, "cost": list(statistics.mean(table.costs(name)))}
            for name in windows
        ],
        "window_recovered": [window_share(table, name) for name in (windows[1], windows[3])],
    }


def of_coca(rows: list[Record]) -> dict[str, Any]:
    """Return the ratios of perplexity and n_eff of every rule and reading, at every length."""
    found = Readings(rows)
    read = []
    for rule, reading in found.series:
        ratios = [found.ratio(rule, reading, n) for n in found.longer]
        at = (TRAINED, *found.longer)
        read.append(
            {
                "rule": rule,
                "reading": reading,
                "ratio": [x.mean() for x in ratios],
                "spread": [spread(x) for x in ratios],
                "loss": [found.of("loss", rule, reading, n).mean() for n in at],
                "n_eff": [found.mean_log("n_eff", rule, reading, n) for n in at],
            }
        )
    with_ntk, without = (
        np.array([found.ratio(lm.COCA, reading, n) for n in found.longer])
        for reading in (NTK, AS_TRAINED)
    )
    return {
        "trained": TRAINED,
        "seeds": len({row["seed"] for row in rows}),
        "multiples": [n // TRAINED for n in found.longer],
        "read": read,
        "seeds_helped": (with_ntk < without).sum(axis=1).tolist(),
        "seeds_ahead": [list(x) for x in coca_verdict.seeds_ahead(found)],
        "unigram": rows[0]["unigram"],
        "published_at_twice": dict(coca_verdict.PUBLISHED),
    }


def of_sharing(rows: list[Record]) -> dict[str, Any]:
    """Return, of each kind of pair, the medians of heads, and how ρ ranks their overlaps."""
    kinds = list(dict.fromkeys(row["pair"] for row in rows))
    pairs = []
    for kind in kinds:
        of = sharing.columns(rows, kind)
        named = {"rho": "rho", "shared": "share_0.05", "law": "law_0.05", "rho_top": "rho_top"}
        pairs.append({"pair": kind} | {x: float(np.median(of[y])) for x, y in named.items()})
    both = sharing.columns(rows, sharing.QUERIES, sharing.LAYERS)
    rank = statistics.rank_correlation(both["rho"], both["share_0.05"])
    return {"pairs": pairs, "rank": rank}


def of_dilution(rows: list[Record]) -> dict[str, Any]:
    """Return how n_eff grows in longer contexts, its forecasts, and what explains it."""
    of = dilution_verdict.heads(rows)
    first, last = of.lengths[0], of.lengths[-1]
    grown = of.growth(last)
    off = {kind: np.abs(of.forecast(kind, last) - grown) for kind in dilution_verdict.FORECASTS}
    return {
        "texts": len(of.texts),
        "lengths": [first, last],
        "growth": np.exp(np.quantile(grown, (0.5, 0.25, 0.75))).tolist(),
        "growing": np.mean(grown > 0),
        "forecasts": [
            {
                "forecast": kind,
                "growth": np.exp(np.median(of.forecast(kind, last))),
                "off": np.exp(np.median(x)),
                "no_change_nearer": np.mean(off["none"] < x),
            }
            for kind, x in off.items()
        ],
        "far_keys": [
            {"have": name, "off": np.exp(np.median(np.abs(of.off(name))))}
            for name in dilution_verdict.RUNGS
        ],
    }


def of_margin(rows: list[Record]) -> dict[str, Any]:
    """Return what every rule reads out at each margin, and how far forecasts are off."""
    of = margin.means(rows)
    lengths = sorted({row["length"] for row in rows})
    margins = sorted({row["margin"] for row in rows})
    error, other = margin.forecast_errors(of)
    return {
        **{"lengths": lengths, "margins": margins, "error": error, "error_of_others": other},
        "factors": {
            rule: [of[m, "exp", rule, lengths[-1]]["factor"] for m in margins]
            for rule in (margin.ODDS, margin.LOG_N)
        },
        "rules": [
            {
                "rule": rule,
                "longest": [of[m, "exp", rule, lengths[-1]]["accuracy"] for m in margins],
                "least": [min(of[m, "exp", rule, n]["accuracy"] for n in lengths) for m in margins],
                "n_eff": [of[m, "exp", rule, lengths[-1]]["n_eff"] for m in margins],
            }
            for rule in dict.fromkeys(row["rule"] for row in rows if row["map"] == "exp")
        ],
    }


def of_sink_steps(rows: list[Record]) -> dict[str, Any]:
    """Return how slopes and masses of trained sinks change with the steps."""
    of = sink_steps.compared(rows)
    lists = {"rises": [x.tolist() for x in of.rises], "noise_from": [low for low, _ in of.kinds]}
    return of._asdict() | {"kinds": [head for _, head in of.kinds]} | lists


def of_packing(rows: list[Record]) -> dict[str, Any]:
    """Return how far the bound by packing is off trained layers."""
    return {"cells": len(rows), **packing.compared(rows)._asdict()}


def of_sink_map(rows: list[Record]) -> dict[str, Any]:
    """Return what derivatives and heads of a real model are."""
    texts, derived = (
        len({row["text"] for row in rows if row["quantity"] == x}) for x in ("mass", "reach")
    )
    return {"texts": texts, "texts_derived": derived, **sink_map.measured(rows)._asdict()}


NUMBERS: dict[str, Callable[[list[Record]], dict[str, Any]]] = {
    "recall": of_recall,
    "sinks": of_sinks,
    "temperature": of_temperature,
    "real_sinks": of_real_sinks,
    "coca": of_coca,
    "sharing": of_sharing,
    "dilution": of_dilution,
    "margin": of_margin,
    "sink_steps": of_sink_steps,
    "packing": of_packing,
    "sink_map": of_sink_map,
}


def compute(name: str) -> dict[str, Any]:
    """Return what the committed table of an experiment says."""
    return rounded(NUMBERS[name](read_table(RESULTS / f"{name}.csv")))


def numbers(name: str) -> dict[str, Any]:
    """Return the same as it was written: of recall, whose intervals are drawn, it takes seconds."""
    return json.loads((RESULTS / f"{name}.json").read_text("utf-8"))


if __name__ == "__main__":
    for asked in sys.argv[1:] or NUMBERS:
        write(RESULTS / f"{asked}.json", json_text(compute(asked)))
        print(RESULTS / f"{asked}.json")  # noqa: T201
