"""What came out of trained sinks: each sentence of the prediction, the slopes, and what leaks."""

from __future__ import annotations

import numpy as np

from experiments import statistics
from experiments.frame import Record

SOFTMAX_BOS, SOFTMAX_LOGIT = "softmax, BOS", "softmax, sink logit"
WITH_SINK = (SOFTMAX_BOS, SOFTMAX_LOGIT)
OTHERS = ("softmax, no sink", "sparsemax, BOS", "relu/n", "sigmoid(s − ln n)")
MEASURED = ("gamma", "logit", "raw_logit", "odds", "law")  # of a sink
SLOPE = (
    "What the slope of b − β̂ means, fewer and more steps tell: it is that of rows on their way; "
    "after four times the steps masses are alike and the slope is about one ([measured]"
    "(sink_steps.md))."
)


def judge(records: list[Record]) -> str:
    """Return the slopes of the sink's logit in ln n, and the errors of all heads."""
    lines = [
        "| noise from | sink | slope of b − β̂ | of logit(mass) | of b − β̂ − logit(mass) "
        "| of b alone | measured − law |",
        "|---|---|---|---|---|---|---|",
    ]
    for low, head in dict.fromkeys(
        (each["noise_from"], each["head"]) for each in records if each["head"] in WITH_SINK
    ):
        mine = [each for each in records if (each["noise_from"], each["head"]) == (low, head)]
        log_n = np.log([each["length"] for each in mine])
        of = {name: np.array([each[name] for each in mine]) for name in MEASURED}
        given_mass = of["logit"] - of["odds"]
        followed = (of["logit"], of["odds"], given_mass, of["raw_logit"])
        slopes = (statistics.slope(log_n, y) for y in followed)
        off = of["logit"] - of["law"]
        shown = " | ".join(map(str, slopes))
        lines.append(f"| {low:g} | {head} | {shown} | {off.mean():+.3f} ± {off.std():.3f} |")
    with_law = [each for each in records if each["head"] in WITH_SINK]
    lengths = sorted({each["length"] for each in with_law})
    wrong = np.array([each["logit"] - (each["law"] - np.log(each["length"])) for each in with_law])
    lines += [
        "",
        "Slopes in ln n with 95 % intervals, over all lengths and seeds; measured − law: mean ± "
        "standard deviation of b − β̂ less `sink_logit` at the measured mass and γ̂. Control: "
        f"without ln n the law is off by {wrong.mean():+.2f} ± {wrong.std():.2f}; that is the mean "
        f"of ln n, {np.log([each['length'] for each in with_law]).mean():.2f}, and the law's mean "
        "error, and shows no more. At its own mass the law is nearly an identity, as was said "
        "before the results.",
        "",
        "| noise from | weights | n | error at the trigger | leak at others | leak without the "
        "first token | mass of the first |",
        "|---|---|---|---|---|---|---|",
    ]
    for low, head, n in dict.fromkeys(
        (each["noise_from"], each["head"], each["length"]) for each in records
    ):
        mine = [x for x in records if (x["noise_from"], x["head"], x["length"]) == (low, head, n)]
        ends = n in (lengths[0], lengths[-1], 32, 128)
        if ends or head not in WITH_SINK:
            shown = " | ".join(
                f"{np.median([each[name] for each in mine]):.2g}"
                for name in ("error", "leak", "leak_without_first", "first_mass")
            )
            lines.append(f"| {low:g} | {head} | {n} | {shown} |")
    lines += ["", "Medians of seeds; errors are shares of the square of the wanted means."]
    told = [*statistics.verdicts(_held(records)), *statistics.refutations(_refuting(records))]
    return "\n".join([*told, "", statistics.RULES_CAME_LATER, "", SLOPE, "", *lines])


def _slopes(records: list[Record], low: float, given_mass: bool) -> list[float]:
    """Return the slopes in ln n of the logits of both kinds of sink, at the same mass or not."""
    found = []
    for head in WITH_SINK:
        mine = [x for x in records if (x["head"], x["noise_from"]) == (head, low)]
        y = [x["logit"] - given_mass * x["odds"] for x in mine]
        found.append(statistics.slope(np.log([x["length"] for x in mine]), y).value)
    return found


def _refuting(records: list[Record]) -> dict[str, bool]:
    """Return what was to refute the prediction, and whether it was met."""
    with_law = [each for each in records if each["head"] in WITH_SINK]
    furthest = max((abs(x["logit"] - x["law"]) for x in with_law), default=0.0)
    slopes = [y for low in {x["noise_from"] for x in with_law} for y in _slopes(records, low, True)]
    alone = [max(x["error"], x["leak"]) for x in records if x["head"] == OTHERS[0]]
    return {
        f"a trained logit is {furthest:.3f} off the law, more than 0.1": furthest > 0.1,
        "a slope at the same mass is outside 1 ± 0.1": any(abs(y - 1) > 0.1 for y in slopes),
        "a softmax head without a sink solves the task": min(alone, default=1.0) < 1e-2,
    }


def _held(records: list[Record]) -> dict[str, bool]:
    """Return what was predicted, and whether it came so."""
    with_law = [each for each in records if each["head"] in WITH_SINK]

    def most(name: str, *heads: str) -> float:
        return max((x[name] for x in records if x["head"] in heads), default=np.nan)

    held = {
        "the law gives every trained logit to 0.1 at its mass": all(
            abs(x["logit"] - x["law"]) <= 0.1 for x in with_law
        )
    }
    expected = {-1.0: (0.2, 0.8), 0.0: (0.6, 1.2)}
    for low in sorted({x["noise_from"] for x in with_law}):
        least, largest = expected[low]
        held |= {
            f"noise from {low:g}: at the same mass the slope is 1 ± 0.1, by its value": all(
                abs(x - 1) <= 0.1 for x in _slopes(records, low, True)
            ),
            f"noise from {low:g}: the slope of b − β̂ is {least} to {largest}": all(
                least <= x <= largest for x in _slopes(records, low, False)
            ),
        }
    return held | {
        "relu/n and the sigmoid leak less than 10⁻³": most("leak", *OTHERS[2:]) < 1e-3,
        "and their first token takes no more than its share, to a tenth": all(
            x["first_mass"] * x["length"] < 1.1 for x in records if x["head"] in OTHERS[2:]
        ),
        "sparsemax with BOS leaks less than 10⁻³": most("leak", OTHERS[1]) < 1e-3,
        "softmax without a sink leaves a quarter at each kind of query": all(
            abs(x[name] - 0.25) <= 0.05
            for x in records
            if x["head"] == OTHERS[0]
            for name in ("error", "leak")
        ),
        "without its sink a head leaks 0.5 to 1.5": all(
            0.5 <= x["leak_without_first"] <= 1.5 for x in with_law
        ),
    }
