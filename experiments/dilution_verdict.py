"""What came out of longer contexts of a real model: each sentence of its prediction, the figure."""

from __future__ import annotations

import functools
import itertools
from typing import NamedTuple

import numpy as np
from matplotlib.figure import Figure

import sparsity
from experiments import statistics
from experiments.frame import Record
from experiments.thresholds_verdict import mean_largest, percent
from sparsity import plotting

CLOSE, FACTOR = 0.05, 1.25  # of a share; of n_eff
FIRST_LAYERS = 2  # in which a key knows its own token alone, or hardly more
RUNGS = {  # what far keys that are drawn anew have of real ones, by its column
    "as_near": "nothing",
    "mean": "mean by distance",
    "spread": "spread by distance",
    "both": "mean and spread",
    "own": "those of the row itself",
    "shape": "and their shape",
}
OWN = "as_near_again"  # the control: drawn twice
_SPREADS = np.geomspace(0.2, 20.0, 61)  # at which the exact law is known


@functools.cache
def law_table(n: int) -> np.ndarray:
    """Return ln n_eff by the exact law, at each of a few spreads."""
    return np.array([np.log(sparsity.exact("exp", gamma=x, length=n).value) for x in _SPREADS])


def law(n: int, gamma: np.ndarray) -> np.ndarray:
    """Return ln n_eff by the exact law of rows of n keys of spread γ̂."""
    return np.interp(np.log(gamma), np.log(_SPREADS), law_table(n))


class Heads(NamedTuple):
    """The table by its columns, [texts, heads] each.

    Args:
        of: by name.
        layer: of each head.
        lengths: of the rows.
        texts: their names.
    """

    of: dict[str, np.ndarray]
    layer: np.ndarray
    lengths: list[int]
    texts: list[str]

    def log(self, kind: str, n: int) -> np.ndarray:
        """Return the logarithm of a column, mean of texts, [heads]."""
        return np.log(self.of[f"{kind}_{n}"]).mean(0)

    def growth(self, n: int, kind: str = "n_eff") -> np.ndarray:
        """Return ln of the growth of n_eff from the shortest rows, [heads]."""
        return self.log(kind, n) - self.log("n_eff", self.lengths[0])

    def by_law(self, n: int, at: int) -> np.ndarray:
        """Return ln n_eff by the exact law at the γ̂ of rows of another length, [heads]."""
        return law(n, self.of[f"gamma_{at}"]).mean(0)

    def forecast(self, kind: str, n: int) -> np.ndarray:
        """Return ln of the growth that is forecast, [heads]."""
        first = self.lengths[0]
        if kind in ("far", "slope"):
            return self.growth(n, kind)
        at = first if kind == "law" else n
        return np.zeros_like(self.layer, float) if kind == "none" else (
            self.by_law(n, at) - self.by_law(first, first)
        )  # fmt: skip

    def exponent(self, kind: str) -> np.ndarray:
        """Return the slope of a threshold in ln n, means of texts, [heads]."""
        at = np.array([self.of[f"{kind}_{n}"].mean(0) for n in self.lengths])
        return np.polyfit(np.log(self.lengths), at, 1)[0]

    def off(self, rung: str) -> np.ndarray:
        """Return ln of n_eff of the longest rows with far keys drawn anew over their own."""
        return np.log(self.of[rung]).mean(0) - self.log("n_eff", self.lengths[-1])


def heads(records: list[Record]) -> Heads:
    """Return the columns of the table."""
    texts = list(dict.fromkeys(x["text"] for x in records))
    names = [name for name, x in records[0].items() if not isinstance(x, str)]
    of = {
        name: np.array([[x[name] for x in records if x["text"] == t] for t in texts], float)
        for name in names
    }
    lengths = [int(x.removeprefix("n_eff_")) for x in names if x.startswith("n_eff_")]
    return Heads(of, of["layer"][0].astype(int), lengths, texts)


FORECASTS = {
    "none": "no change",
    "far": "near keys, independent far ones",
    "slope": "the same, their mean falling on in ln distance",
    "law": "exact law, γ̂ of the short rows",
    "gamma": "exact law, γ̂ of each length (no forecast)",
}


def middle(x: np.ndarray) -> float:
    """Return the median of a logarithm as a factor."""
    return float(np.exp(np.median(x)))


def within(x: np.ndarray) -> float:
    """Return the share of logarithms that are no farther from 0 than the factor."""
    return float(np.mean(np.abs(x) < np.log(FACTOR)))


def table(of: Heads) -> list[str]:
    """Return the tables of growth, of what explains it, and of layers."""
    first, *longer = of.lengths
    lines = [
        f"Growth of n_eff since n = {first}, median of heads; in brackets by which factor a "
        "forecast is off in the median head.",
        "",
        "| | " + " | ".join(f"n = {n:,}" for n in longer) + " |",
        "|---" * (len(longer) + 1) + "|",
        "| measured | " + " | ".join(f"{middle(of.growth(n)):.2f}" for n in longer) + " |",
        "| quartiles of heads | "
        + " | ".join(
            "{:.2f} to {:.2f}".format(*np.exp(np.quantile(of.growth(n), (0.25, 0.75))))
            for n in longer
        )
        + " |",
    ]
    for kind, words in FORECASTS.items():
        shown = (
            f"{middle(of.forecast(kind, n)):.2f} "
            f"({middle(np.abs(of.forecast(kind, n) - of.growth(n))):.2f})"
            for n in longer
        )
        lines.append(f"| {words} | {' | '.join(shown)} |")
    same = (f"{middle(of.growth(n, 'same') - of.growth(first, 'same')):.2f}" for n in longer)
    lines += [
        f"| the queries of the longest rows, with their nearest n keys | {' | '.join(same)} |",
        "",
        f"Rows of {of.lengths[-1]:,} keys, their nearest {first} as they are and the others drawn "
        "anew, normal and independent: n_eff over that of the real rows.",
        "",
        f"| far keys have of real ones | median | off by | within {FACTOR} |",
        "|---|---|---|---|",
    ]
    for rung, words in RUNGS.items():
        off = of.off(rung)
        shown = f"{middle(off):.2f} | {middle(np.abs(off)):.2f} | {within(off):.0%}"
        lines.append(f"| {words} | {shown} |")
    last = of.lengths[-1]
    lines += [
        "",
        f"| layers | growth to {last:,} | by independent far keys | near keys' weight at {first} |",
        "|---|---|---|---|",
    ]
    for low, high in layer_groups(of):
        of_these = (of.layer >= low) & (of.layer < high)
        local = of.of[f"local_{first}"].mean(0)[of_these]
        shown = " | ".join(
            f"{middle(x[of_these]):.2f}" for x in (of.growth(last), of.forecast("far", last))
        )
        lines.append(f"| {low} to {high - 1} | {shown} | {np.median(local):.2f} |")
    return lines


def layer_groups(of: Heads) -> list[tuple[int, int]]:
    """Return ranges of layers: the first ones, and the others in five parts."""
    count = int(of.layer.max()) + 1
    ends = np.linspace(min(FIRST_LAYERS, count - 1), count, 6).astype(int)
    return [(a, b) for a, b in itertools.pairwise([0, *ends.tolist()]) if b > a]


def thresholds(of: Heads) -> list[str]:
    """Return the table of thresholds at the longer lengths."""
    lengths = [n for n in of.lengths if f"tiles_close_{n}" in of.of]
    settings = [x for x in of.of if x.startswith("keys_") and x.endswith(f"_{lengths[0]}")]
    ratios = [x.split("_")[1] for x in settings]
    count = 2 * len(ratios)  # of tiles, two sizes each
    lines = [
        "| n | ln λ | keys below | given M within 0.05 | tiles, `within` of 2,048, mean of "
        "settings | `within` 0 |",
        "|---|---|---|---|---|---|",
    ]
    for n in lengths:
        for i, t in enumerate(ratios):
            keys, given = of.of[f"keys_{t}_{n}"], of.of[f"given_{t}_{n}"]
            near = np.mean(np.abs(given - keys) < CLOSE)
            tiles = [float(np.mean(of.of[f"{x}_close_{n}"])) / count for x in ("tiles", "none")]
            shown = f"{tiles[0]:.0%} | {tiles[1]:.0%}" if i == 0 else " | "
            lines.append(
                f"| {n:,} | {t.replace('-', '−')} | {np.median(keys):.2f} | {near:.0%} | {shown} |"
            )
    return lines


def judge(records: list[Record]) -> str:
    """Return tables, and what held of the prediction."""
    of = heads(records)
    first, last = of.lengths[0], of.lengths[-1]
    before = of.lengths[-2]
    grown = {n: of.growth(n) for n in (before, last)}
    far = of.forecast("far", last)
    off = {kind: np.abs(of.forecast(kind, last) - grown[last]) for kind in FORECASTS}
    nearer = {kind: float(np.mean(off["none"] < off[kind])) for kind in ("far", "law")}
    early = of.layer < layer_groups(of)[0][1]
    local = of.of[f"local_{first}"].mean(0)
    ranks = statistics.rank_correlation(local, grown[last])
    ahead = float(np.mean(off["slope"] < off["none"]))
    rung = {name: float(np.median(np.abs(of.off(name)))) for name in RUNGS}
    gain = {name: 1 - rung[name] / rung["as_near"] for name in RUNGS}
    again = np.abs(np.log(of.of[OWN]) - np.log(of.of["as_near"])).mean(0)
    keys, tiles = of.exponent("half_keys"), of.exponent("half")
    largest = np.array([mean_largest(n) for n in of.lengths])
    by_n = np.array([of.of[f"gamma_{n}"].mean(0) for n in of.lengths])
    own = np.polyfit(np.log(of.lengths), -by_n * largest[:, None], 1)[0]
    gamma = by_n.mean(0)
    ranks_own, ranks_gamma = (statistics.rank_correlation(-x, -keys) for x in (own, -gamma))
    at = [n for n in of.lengths if f"tiles_close_{n}" in of.of]
    ratios = [x.split("_")[1] for x in of.of if x.startswith("keys_") and x.endswith(f"_{at[0]}")]
    given = [
        float(np.mean(np.abs(of.of[f"given_{t}_{n}"] - of.of[f"keys_{t}_{n}"]) < CLOSE))
        for n in at
        for t in ratios
    ]
    close, zero = (
        [float(np.mean(of.of[f"{x}_close_{n}"])) / (2 * len(ratios)) for n in at]
        for x in ("tiles", "none")
    )
    middles = [middle(grown[n]) for n in (before, last)]
    ratio = float(np.median(grown[last]) / np.median(far))
    within_first, later = within(far[early] - grown[last][early]), middle(grown[last][~early])
    held = {
        f"1: n_eff of the median head grows by 1.15 to 1.6 until {before:,} ({middles[0]:.2f}), by "
        f"less than 2 until {last:,} ({middles[1]:.2f})": (
            1.15 <= middles[0] <= 1.6 and middles[1] < 2
        ),
        f"1: in logarithms less than half of what independent far keys say, {ratio:.2f}": (
            ratio < 0.5
        ),
        f"2: no change is nearer than independent far keys in {nearer['far']:.0%} of heads and "
        f"than the law in {nearer['law']:.0%}, 60 % or more": min(nearer.values()) >= 0.6,
        f"3: in the first layers independent far keys are within {FACTOR} in {within_first:.0%} of "
        "heads, half or more, and n_eff at least doubles in the median "
        f"({middle(grown[last][early]):.2f})": (
            within_first >= 0.5 and middle(grown[last][early]) >= 2
        ),
        f"3: in the later ones it grows by less than 1.6 in the median ({later:.2f})": (
            later < 1.6
        ),
        f"4: heads that look near dilute less: growth ranks with the near keys' weight by {ranks}, "
        "−0.4 or less": ranks.value <= -0.4,
        f"5: the mean by distance takes a third of the error, {gain['mean']:.0%}, more than the "
        f"spread, {gain['spread']:.0%}": gain["mean"] >= 1 / 3 and gain["mean"] > gain["spread"],
        f"5: what a row's far keys share takes less than the mean, {gain['own'] - gain['both']:.0%}"
        " more than mean and spread": gain["own"] - gain["both"] < gain["mean"],
        f"5: with their shape too rows are within {FACTOR} in {within(of.off('shape')):.0%} of "
        "heads, 70 % or more": within(of.off("shape")) >= 0.7,
        f"6: exponents of tiles −1.2 to −2 in the median ({np.median(tiles):.2f}); of keys within "
        f"0.15 of the law of each n's γ̂ in the median ({np.median(np.abs(own - keys)):.2f}), "
        f"ranked by it with {ranks_own}, 0.6 or more": (
            -2 <= np.median(tiles) <= -1.2
            and np.median(np.abs(own - keys)) < 0.15
            and ranks_own.value >= 0.6
        ),
        f"6: keys, given M, close in {percent(given)} of heads, 95 % or more": min(given) >= 0.95,
        f"6: tiles by the `within` of 2,048 close in {percent(close)}, 50 % or more, by none in "
        f"{percent(zero)}, fewer": min(close) >= 0.5 > max(zero),
        f"7: with a mean that falls on in ln distance the forecast is nearer than no change in "
        f"{ahead:.0%} of heads, half or more": ahead >= 0.5,
        f"control: drawn twice, far keys give n_eff within 1.1 in "
        f"{np.mean(again < np.log(1.1)):.0%} of heads, 90 % or more": (
            float(np.mean(again < np.log(1.1))) >= 0.9
        ),
    }
    met = {
        f"no change is nearer than independent far keys in {nearer['far']:.0%} of heads or than "
        f"the law in {nearer['law']:.0%}, fewer than half": min(nearer.values()) < 0.5,
        f"the mean by distance takes {gain['mean']:.0%} of the error, less than a fifth": (
            gain["mean"] < 0.2
        ),
        f"with a mean that falls on the forecast is nearer than no change in {ahead:.0%} of heads, "
        "fewer than 30 %": ahead < 0.3,
        f"keys, given M, are close in {min(given):.0%} of heads at one of the settings, fewer "
        "than 80 %": min(given) < 0.8,
    }
    by_text = {t: middle(np.log(of.of[f"n_eff_{last}"][i] / of.of[f"n_eff_{first}"][i]))
               for i, t in enumerate(of.texts)}  # fmt: skip
    shown = ", ".join(f"{t} {x:.2f}" for t, x in by_text.items())
    some = {words: float(np.mean(x)) for words, x in {
        "more than double": grown[last] > np.log(2), "fall": grown[last] < 0}.items()}  # fmt: skip
    more = [
        "",
        f"From {first} to {last:,} keys n_eff grows, in the median head of each text, by: {shown}. "
        f"In the mean of texts {some['more than double']:.0%} of heads more than double it, and in "
        f"{some['fall']:.0%} it falls. γ̂ of the median head is {np.median(by_n[0]):.2f} at "
        f"{first} and {np.median(by_n[-1]):.2f} at {last:,}.",
        "",
        f"Exponents over {first} to {last:,}: {np.median(tiles):.2f} of tiles, "
        f"{np.median(keys):.2f} of keys in the median head; by the law at the γ̂ of each n "
        f"{np.median(own):.2f}. Those of keys rank with the mean γ̂ by {ranks_gamma}.",
        "",
        "Looked at after the results: two draws are less alike in a text than was predicted; their "
        f"means of texts, of which the errors below are, are within 1.1 in "
        f"{np.mean(np.abs(np.log(of.of[OWN] / of.of['as_near']).mean(0)) < np.log(1.1)):.0%} of "
        "heads.",
        "",
        "These lines, and the rules by which they read the prediction, were committed with it; the "
        "run shared its cores with others, and took some 13 minutes of its own.",
    ]
    lines = [*statistics.verdicts(held), *statistics.refutations(met), *more, "", *table(of)]
    return "\n".join([*lines, "", *thresholds(of)])


def draw(records: list[Record], figure: Figure) -> None:
    """Draw growth beside its forecasts, by layer, what explains it, and thresholds."""
    of = heads(records)
    first, last = of.lengths[0], of.lengths[-1]
    growth, layers, rungs, power = figure.subplots(1, 4)
    n = np.array(of.lengths)
    measured = np.array([of.growth(k) for k in n])
    low, high = np.exp(np.quantile(measured, (0.25, 0.75), axis=1))
    growth.fill_between(n, low, high, color="C0", alpha=0.2, lw=0, label="half of the heads")
    growth.plot(n, [middle(x) for x in measured], "o-", color="C0", label="measured")
    labels = {"none": "no change", "far": "independent far keys", "law": "exact law"}
    labels["slope"] = "with a mean that falls on"
    for i, (kind, label) in enumerate(labels.items()):
        ls = (":", "-", plotting.DASHED, "-.")[i]
        y = [1.0, *(middle(of.forecast(kind, int(k))) for k in n[1:])]
        growth.plot(n, y, ls=ls, color=f"C{i + 1}", label=label)
    growth.set(xscale="log", yscale="log", xlabel="keys n", title="Growth of n_eff, median head")
    plotting.length_ticks(growth.xaxis, *growth.get_xlim(), most=5)
    layers.plot(of.layer, np.exp(of.growth(last)), ".", markersize=4, label="heads")
    each = np.unique(of.layer)
    lines = {"median": of.growth(last), "independent far keys": of.forecast("far", last)}
    for kind, y in lines.items():
        layers.plot(each, [middle(y[of.layer == k]) for k in each], label=kind)
    layers.set(xlabel="layer", yscale="log", title=f"Growth from {first} to {last:,}")
    errors = [of.off(name) for name in RUNGS]
    rungs.boxplot(errors, orientation="horizontal", showfliers=False, widths=0.6)
    rungs.set_yticks(range(1, len(RUNGS) + 1), list(RUNGS.values()))
    rungs.invert_yaxis()
    rungs.axvline(0, color="grey", lw=1)
    rungs.set(xlabel="ln of n_eff over the real one", title="Far keys drawn anew, with …")
    by_n = np.array([of.of[f"gamma_{k}"].mean(0) for k in n])
    for i, (kind, words) in enumerate({"half_keys": "keys", "half": "tiles of 64"}.items()):
        y = [np.median(of.of[f"{kind}_{k}"].mean(0)) for k in n]
        power.plot(n, y, "os"[i], color=f"C{i}", label=f"half of the {words}")
    y = [np.median(-x * mean_largest(int(k))) for k, x in zip(n, by_n, strict=True)]
    power.plot(n, y, color="grey", label="keys, law at each γ̂")
    power.set(xscale="log", xlabel="keys n", ylabel="ln λ", title="Threshold, median head")
    plotting.length_ticks(power.xaxis, *power.get_xlim(), most=5)
    figure.suptitle(
        f"From {first} to {last:,} keys n_eff grows by {middle(of.growth(last)):.2f}, where "
        f"independent far keys say {middle(of.forecast('far', last)):.2f}: far keys score lower"
    )
    for ax in (growth, layers, power):
        ax.legend(frameon=False, fontsize=9)
    for ax in (growth, layers):
        plotting.plain_ticks(ax.yaxis, (0.5, 1, 2, 4, 8, 16))
