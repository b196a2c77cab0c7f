"""What does the slope of a trained sink mean? The heads of `sinks`, with fewer and more steps.

A sink that is trained grows slower than ln n. Either its mass is what the task wants, or training
was not at its end: a quarter and four times the steps tell.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure

from experiments import sinks, statistics
from experiments.frame import Experiment, Record
from experiments.sinks_verdict import WITH_SINK
from sparsity import plotting

CLOSE = 0.15  # of two slopes


@dataclass(frozen=True)
class Settings:
    """What is trained: both sinks at every length, for so many steps, by every seed and rate."""

    lengths: tuple[int, ...] = (8, 32, 128)
    noise_from: tuple[float, ...] = (-1.0, 0.0)
    steps: tuple[int, ...] = (500, 2000, 8000)
    seeds: tuple[int, ...] = (0, 1, 2)
    control: tuple[int, ...] = (3, 4, 5)  # other seeds, for the steps in the middle
    rates: tuple[float, ...] = (0.003, 0.01)
    rows: int = 32
    test_rows: int = 512


def cells(settings: Settings) -> list[Record]:
    """Return a cell for each number of steps, noise, sink and length, and those of the control."""
    asked = [(steps, "") for steps in settings.steps]
    asked.insert(1, (settings.steps[len(settings.steps) // 2], "other"))
    heads = list(itertools.product(settings.noise_from, WITH_SINK, settings.lengths))
    return [
        {"steps": steps, "seeds": seeds, "noise_from": low, "head": head, "length": n}
        for steps, seeds in asked
        for low, head, n in heads
    ]


def run(settings: Settings, cell: Record) -> list[Record]:
    """Train the heads of a cell, as `sinks` does."""
    seeds = settings.control if cell["seeds"] else settings.seeds
    shared = {"rates": settings.rates, "rows": settings.rows, "test_rows": settings.test_rows}
    return sinks.run(replace(sinks.Settings(), seeds=seeds, steps=cell["steps"], **shared), cell)


# --- what came out of it -------------------------------------------------------------------------


def of(records: list[Record], steps: int, low: float, head: str, seeds: str = "") -> list[Record]:
    """Return the records of a sink."""
    wanted = {"steps": steps, "noise_from": low, "head": head, "seeds": seeds}
    return [x for x in records if all(x[name] == value for name, value in wanted.items())]


def slope(mine: list[Record], *less: str) -> statistics.Interval:
    """Return the slope of b − β̂ in ln n, less that of other columns."""
    y = [x["logit"] - sum(x[name] for name in less) for x in mine]
    return statistics.slope(np.log([x["length"] for x in mine]), y)


def mean_odds(mine: list[Record]) -> dict[int, float]:
    """Return logit(mass) at each length, mean of seeds."""
    lengths = dict.fromkeys(x["length"] for x in mine)
    return {n: float(np.mean([x["odds"] for x in mine if x["length"] == n])) for n in lengths}


class Compared(NamedTuple):
    """What more steps change, of each kind of noise and sink.

    Args:
        kinds: the noise and the sink.
        steps: ascending.
        rises: of logit(mass) at every n, from the first to the middle steps and on to the last.
        change: of the slope, from the first to the last steps.
        by_seeds: change of the slope with other seeds, after the middle steps.
        same: slopes at the same mass, after all steps.
        ends: slopes after the last steps.
        far: how much logit(mass) differs over n after them.
    """

    kinds: list[tuple[float, str]]
    steps: list[int]
    rises: tuple[np.ndarray, np.ndarray]
    change: list[float]
    by_seeds: list[float]
    same: list[float]
    ends: list[float]
    far: list[float]


def compared(records: list[Record]) -> Compared:
    """Return what more steps change."""
    kinds = list(dict.fromkeys((x["noise_from"], x["head"]) for x in records))
    steps = sorted({x["steps"] for x in records})
    first, middle, last = steps[0], steps[len(steps) // 2], steps[-1]

    def rise(before: int, after: int) -> np.ndarray:
        odds = [
            [list(mean_odds(of(records, count, *kind)).values()) for kind in kinds]
            for count in (before, after)
        ]
        return np.subtract(odds[1], odds[0]).ravel()

    def slopes(count: int, *less: str, seeds: str = "") -> np.ndarray:
        return np.array([slope(of(records, count, *x, seeds), *less).value for x in kinds])

    return Compared(
        kinds,
        steps,
        (rise(first, middle), rise(middle, last)),
        (slopes(last) - slopes(first)).tolist(),
        (slopes(middle, seeds="other") - slopes(middle)).tolist(),
        [x for count in steps for x in slopes(count, "odds").tolist()],
        slopes(last).tolist(),
        [np.ptp(list(mean_odds(of(records, last, *kind)).values())) for kind in kinds],
    )


def judge(records: list[Record]) -> str:
    """Return slopes and masses after each number of steps, and what held of the prediction."""
    kinds, steps, (early, late), change, by_seeds, same, ends, far = compared(records)
    lines = [
        "| noise from | sink | steps | slope of b − β̂ | at the same mass | logit(mass) at the "
        "least n | at the largest | leak |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for low, head in kinds:
        asked = [(count, "") for count in steps]
        asked.insert(len(steps) // 2 + 1, (steps[len(steps) // 2], "other"))
        for count, seeds in asked:
            mine = of(records, count, low, head, seeds)
            odds = list(mean_odds(mine).values())
            leak = np.median([x["leak"] for x in mine])
            numbers = f"{slope(mine)} | {slope(mine, 'odds')} | {odds[0]:.2f} | {odds[-1]:.2f}"
            name = f"{count:,}" + (", other seeds" if seeds else "")
            lines.append(f"| {low:g} | {head} | {name} | {numbers} | {leak:.2g} |")
    first, middle, last = steps[0], steps[len(steps) // 2], steps[-1]

    def changes(low: float) -> list[float]:
        return [x for (noise, _), x in zip(kinds, change, strict=True) if noise == low]

    def shown(values: Any) -> str:
        return " and ".join(f"{x:+.2f}" for x in values)

    lows = sorted({low for low, _ in kinds})
    per_factor = float(np.mean([early.mean(), late.mean()]))
    held = {
        f"1: logit(mass) rises at every n from {first:,} to {middle:,} steps (by {early.min():.2f} "
        f"to {early.max():.2f}) and from {middle:,} to {last:,} ({late.min():.2f} to "
        f"{late.max():.2f})": min(early.min(), late.min()) > 0,
        f"1: by 0.5 or more for each factor in the mean, {per_factor:.2f}": per_factor >= 0.5,
        **{
            f"2: with noise from {low:g} the slope differs by less than {CLOSE} between {first:,} "
            f"and {last:,} steps ({shown(changes(low))})": max(map(abs, changes(low))) < CLOSE
            for low in lows
        },
        f"3: at the same mass the slope is 1 ± 0.1 ({min(same):.2f} to {max(same):.2f})": (
            max(abs(x - 1) for x in same) <= 0.1
        ),
        f"control: other seeds change slopes by less than {CLOSE} ({shown(by_seeds)})": (
            max(map(abs, by_seeds)) < CLOSE
        ),
    }
    met = {
        f"logit(mass) rises by {late.mean():.2f} for the last factor, less than 0.25: it is the "
        "optimum": bool(late.mean() < 0.25),
        f"with noise from {lows[0]:g} both slopes rise by more than {CLOSE}: a late start": (
            min(changes(lows[0])) > CLOSE
        ),
        f"with noise from {lows[0]:g} both slopes fall by more than {CLOSE}": (
            max(changes(lows[0])) < -CLOSE
        ),
    }
    lines += ["", "Slopes in ln n with 95 % intervals; logit(mass) means of seeds, leaks medians."]
    remark = (
        f"Looked at after the results: after {last:,} steps logit(mass) differs by at most "
        f"{max(far):.2f} over n and has risen by {late.min():.1f} to {late.max():.1f} since "
        f"{middle:,}, so that it has no end that the task sets; yet b − β̂ grows with ln n by "
        f"{min(ends):.2f} to {max(ends):.2f}, as the law says of one mass. Slopes below one, after "
        f"{middle:,} steps, are those of rows on their way."
    )
    told = [*statistics.verdicts(held), *statistics.refutations(met), "", remark, ""]
    return "\n".join([*told, *lines])


def draw(records: list[Record], figure: Figure) -> None:
    """Draw the sink's logit above the mean score, and logit(mass), against ln n."""
    kinds = list(dict.fromkeys((x["noise_from"], x["head"]) for x in records))
    axes = figure.subplots(1, len(kinds), sharey=True, squeeze=False)[0]
    for ax, (low, head) in zip(axes, kinds, strict=True):
        for i, steps in enumerate(sorted({x["steps"] for x in records})):
            mine = of(records, steps, low, head)
            odds = mean_odds(mine)
            n = list(odds)
            logit = [np.mean([x["logit"] for x in mine if x["length"] == at]) for at in n]
            look: Any = {"color": f"C{i}", "marker": "osD^v"[i % 5], "ms": 5}
            ax.plot(n, logit, ls="-", label=f"{steps:,} steps", **look)
            ax.plot(n, list(odds.values()), ls=plotting.DASHED, mfc="white", **look)
        ax.set(xscale="log", xlabel="tokens n", title=f"{head}\nnoise from {low:g}")
        plotting.plain_ticks(ax.xaxis, n)
    axes[0].set_ylabel("full: b − β̂; hollow: logit(mass)")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside right center")
    figure.suptitle("Trained sinks after a quarter and four times the steps")


EXPERIMENT = Experiment(
    name="sink_steps",
    title="What does the slope of a trained sink mean?",
    full=Settings(),
    tiny=Settings(
        lengths=(4, 8),
        noise_from=(-1.0,),
        steps=(20, 40, 80),
        seeds=(0, 1),
        control=(2, 3),
        test_rows=32,
    ),
    cells=cells,
    run=run,
    judge=judge,
    draw=draw,
)
