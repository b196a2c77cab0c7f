"""The page of `real_sinks`: what was predicted, all conditions, all texts."""

from __future__ import annotations

import numpy as np

from experiments import statistics
from experiments.frame import Record
from experiments.sink_conditions import (
    AS_IS,
    BOS,
    ELSEWHERE_MUTED,
    FIRST,
    FIRST_MATCHED,
    FROM_ALL,
    MUTED,
    ONE,
    ORDINARY_MATCHED,
    SINKS,
    SINKS_MUTED,
    WINDOW,
)


class Table:
    """The records, asked by condition and quantity.

    Args:
        records: of all texts.
    """

    def __init__(self, records: list[Record]) -> None:
        self.texts = list(dict.fromkeys(each["text"] for each in records))
        self.hashes = {each["text"]: each["sha256"] for each in records}
        self.conditions = list(
            dict.fromkeys(each["condition"] for each in records if each["quantity"] == "loss")
        )
        names = ("text", "condition", "quantity", "layer", "at")
        self.values = {tuple(each[name] for name in names): each["value"] for each in records}
        self.layers = sorted({each["layer"] for each in records} - {-1})

    def of(self, condition: str, quantity: str, layer: int = -1, at: int = -1) -> np.ndarray:
        """Return a number of each text, NaN where there is none."""
        keys = [(text, condition, quantity, layer, at) for text in self.texts]
        return np.array([self.values.get(key, np.nan) for key in keys])

    def costs(self, condition: str) -> np.ndarray:
        """Return what is lost by a condition in each text, in nats."""
        return self.of(condition, "loss") - self.of(AS_IS, "loss")

    def moves(self, condition: str) -> np.ndarray:
        """Return ln of how far the changed word moves states, over the text as it is."""
        return np.log(self.of(condition, "moved") / self.of(AS_IS, "moved"))

    def by_layer(self, quantity: str) -> np.ndarray:
        """Return a number of the text as it is by layer and text."""
        return np.array([self.of(AS_IS, quantity, layer) for layer in self.layers])

    def named(self, part: str) -> list[str]:
        """Return the conditions whose names have this part."""
        return [name for name in self.conditions if part in name]

    def damaged(self) -> tuple[list[str], list[str]]:
        """Return the conditions without sinks and without ordinary keys, more and more of them."""
        return [AS_IS, *self.named("of heads"), FIRST], [AS_IS, *self.named("of ordinary")]

    def at_equal_loss(self) -> np.ndarray:
        """Return ln of how much further the word moves without sinks than without ordinary keys.

        In each text, at the largest loss that both reach, on lines between the conditions.
        """
        found = []
        for text in range(len(self.texts)):
            lines = []
            for names in self.damaged():
                points = [(self.costs(name)[text], self.moves(name)[text]) for name in names]
                lines.append(np.array(sorted(points)).T)
            common = min(cost[-1] for cost, _ in lines)
            without_sinks, without_others = (np.interp(common, *line) for line in lines)
            found.append(without_sinks - without_others if common > 0 else np.nan)
        return np.array(found)


def spread(values: np.ndarray, digits: int = 2) -> str:
    """Return mean ± standard deviation over texts."""
    return f"{values.mean():.{digits}f} ± {values.std(ddof=len(values) > 1):.{digits}f}"


def factor(logs: np.ndarray) -> str:
    """Return the geometric mean and the smallest and the largest of texts."""
    if np.isnan(logs).all():  # where conditions of no text reach the same loss
        return "nan"
    low, mean, high = np.exp([np.nanmin(logs), np.nanmean(logs), np.nanmax(logs)])
    return f"{mean:.2f} ({low:.2f} to {high:.2f})"


def most(held: np.ndarray, of_eight: int) -> bool:
    """Return whether something holds in so many of eight texts, or that share of others."""
    return bool(held.mean() >= of_eight / 8)


def window_share(table: Table, kept: str) -> float:
    """Return the share of what a window without the first tokens costs that keeping some saves."""
    all_kept = table.of(table.named("window, first")[-1], "loss").mean()
    none, some = table.of(WINDOW, "loss").mean(), table.of(kept, "loss").mean()
    return float((none - some) / (none - all_kept))


def held(table: Table) -> dict[str, bool]:
    """Return what was predicted, and whether it came so."""
    of, costs, moves = table.of, table.costs, table.moves
    _, one_kept, four_kept, others_kept = table.named(WINDOW)
    norms = {name: table.by_layer(name) for name in ("value_norm", "written_norm")}
    small = {
        name: np.sum([np.median(x[np.isfinite(x)]) < 0.5 for x in each if np.isfinite(x).any()])
        for name, each in norms.items()
    }
    n_eff = {
        key: np.log(of(*key)).mean()
        for key in ((AS_IS, "n_eff"), (AS_IS, "n_eff_without_sinks"), (SINKS, "n_eff"))
    }
    as_is, left, none = n_eff.values()
    return {
        "hidden from all, the first key leaves the states of the shorter text, to 10⁻³": bool(
            of(FROM_ALL, "gap").max() <= 1e-3
        ),
        "the loss within 0.05 of the text as it is, in every text": bool(
            np.abs(costs(FROM_ALL)).max() <= 0.05
        ),
        "and as many heads with a sink, within 0.1": bool(
            np.abs(of(FROM_ALL, "sink_heads") - of(AS_IS, "sink_heads")).max() <= 0.1
        ),
        "hidden late, at most half as many heads have one": bool(
            np.all(of(FIRST, "sink_heads") <= of(AS_IS, "sink_heads") / 2)
        ),
        "the first key hidden costs at least 0.5 nats in every text": bool(
            costs(FIRST).min() >= 0.5
        ),
        "all sinks hidden cost no less than the first key, in the mean of texts": bool(
            costs(SINKS).mean() >= costs(FIRST).mean()
        ),
        "one ordinary key hidden costs at most 0.05": bool(costs(ONE).max() <= 0.05),
        "BOS before the text changes the loss by at most 0.1, in the mean": bool(
            abs(costs(BOS).mean()) <= 0.1
        ),
        "values of sinks are less than half as large in 25 of 30 layers": bool(
            small["value_norm"] >= 25 / 30 * len(table.layers)
        ),
        "and so is what they write": bool(small["written_norm"] >= 25 / 30 * len(table.layers)),
        "muted, the first key costs less than a fifth of what it costs hidden, in the mean": bool(
            costs(MUTED).mean() < 0.2 * costs(FIRST).mean()
        ),
        "without the sink the changed word moves states 1.3 times as far": bool(
            moves(FIRST).mean() >= np.log(1.3) and most(moves(FIRST) > 0, 7)
        ),
        "(a) at equal mass too, further than without ordinary keys, which moves no further": bool(
            most(moves(FIRST_MATCHED) > 0, 6)
            and moves(ORDINARY_MATCHED).mean() <= 0
            and most(moves(FIRST_MATCHED) > moves(ORDINARY_MATCHED), 6)
        ),
        "(b) at equal loss too, further than without ordinary keys": most(
            table.at_equal_loss() > 0, 6
        ),
        "without sinks n_eff of the median head at least doubles, in the mean": none - as_is
        >= np.log(2),
        "to what rows have without their sinks, within a factor of 1.5": bool(
            abs(none - left) <= np.log(1.5)
        ),
        "a window without the first tokens costs at least 0.5 nats more than with four": bool(
            (of(WINDOW, "loss") - of(four_kept, "loss")).min() >= 0.5
        ),
        "which is within 0.3 of the text as it is, in the mean of texts": bool(
            costs(four_kept).mean() <= 0.3
        ),
        "one first token recovers four fifths": window_share(table, one_kept) >= 0.8,
        "the next four recover less than a fifth": window_share(table, others_kept) < 0.2,
    }


def judge(records: list[Record]) -> str:
    """Return the verdicts, a table of conditions and one of texts."""
    table = Table(records)
    lines = [
        "| condition | mass taken | loss | over as it is | states moved, over as it is "
        "| heads with a sink | n_eff |",
        "|---|---|---|---|---|---|---|",
    ]
    for name in table.conditions:
        mass, move, sinks, n_eff = (
            table.of(name, quantity) for quantity in ("mass", "moved", "sink_heads", "n_eff")
        )
        shown = [
            f"{mass.mean():.3f}" if np.isfinite(mass).all() else "",
            spread(table.of(name, "loss")),
            spread(table.costs(name)),
            factor(table.moves(name)) if np.isfinite(move).all() else "",
            f"{sinks.mean():.2f}",
            f"{n_eff.mean():.1f}",
        ]
        lines.append(f"| {name} | {' | '.join(shown)} |")
    norms = {name: np.nanmedian(table.by_layer(name)) for name in ("value_norm", "written_norm")}
    left = table.of(AS_IS, "n_eff_without_sinks").mean()
    _, one_kept, _, others_kept = table.named(WINDOW)
    lines += [
        "",
        "Losses in nats, mean ± standard deviation of texts; how far the changed word moves "
        "states: geometric mean (smallest to largest of texts) over the text as it is, where it "
        f"is {spread(table.of(AS_IS, 'moved'), 3)}. The mass is that of the text as it is, mean "
        "over layers, heads and queries.",
        "",
        f"The first key hidden from all queries leaves states within "
        f"{table.of(FROM_ALL, 'gap').max():.1e} of the shorter text's (control: as it is they are "
        f"{table.of(AS_IS, 'gap').min():.2f} off). At equal loss the changed word moves "
        f"{factor(table.at_equal_loss())} times as far without sinks as without ordinary keys. "
        f"Over the median key's, ‖v‖ of the first key is {norms['value_norm']:.2f} and ‖W_O v‖ "
        f"{norms['written_norm']:.2f} where it is a sink, median of layers and texts. The rows of "
        f"the text as it is have n_eff {left:.1f} without their sinks. Of what a window costs "
        f"without the first tokens, one of them recovers {window_share(table, one_kept):.0%} and "
        f"the control {window_share(table, others_kept):.0%}.",
        "",
        *_explained(table),
        "",
        "| text | SHA-256 | loss as it is | first key hidden | muted | states moved, first key "
        "hidden | equal mass | ordinary, equal mass | at equal loss |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    equal = table.at_equal_loss()
    for i, text in enumerate(table.texts):
        moved = [table.moves(name)[i] for name in (FIRST, FIRST_MATCHED, ORDINARY_MATCHED)]
        losses = [table.of(name, "loss")[i] for name in (AS_IS, FIRST, MUTED)]
        shown = [f"{x:.2f}" for x in (*losses, *np.exp([*moved, equal[i]]))]
        lines.append(f"| {text} | {table.hashes[text]} | {' | '.join(shown)} |")
    verdicts = statistics.verdicts(held(table)), statistics.refutations(refutations(table))
    return "\n".join([*verdicts[0], *verdicts[1], "", *lines])


def refutations(table: Table) -> dict[str, bool]:
    """Return what the prediction said would refute it, and whether it came so."""
    first, ordinary = (table.moves(name) for name in (FIRST_MATCHED, ORDINARY_MATCHED))
    return {
        "the changed word moves no more when the first key is hidden": bool(
            table.moves(FIRST).mean() <= 0
        ),
        "for the claim that sinks reduce mixing, a changed word that moves as much when ordinary "
        f"keys of equal mass are hidden was to refute it. It moves {factor(first)} times as far "
        f"without the first key and {factor(ordinary)} without ordinary keys of its mass, further "
        f"without the first in {(first > ordinary).sum()} of {len(first)} texts (of the mass that "
        "it takes, a part can be matched: below)": bool(first.mean() <= ordinary.mean()),
        "muting costs as much as hiding": bool(
            table.costs(MUTED).mean() >= table.costs(FIRST).mean()
        ),
    }


def _explained(table: Table) -> list[str]:
    """Return what stands behind predictions that failed in the first run."""
    of, costs = table.of, table.costs
    least = int(costs(FIRST).argmin())
    worst = max(table.named("of heads"), key=lambda name: costs(name).max())
    masses = {name: of(name, "mass").mean() for name in (FIRST, FIRST_MATCHED, ORDINARY_MATCHED)}
    half = table.named("of ordinary")[0]
    further = int((table.moves(FIRST) > table.moves(half)).sum())
    heads = [of(name, "sink_heads")[least] for name in (AS_IS, FIRST, SINKS)]
    return [
        f"- The text in which the first key hidden costs least is {table.texts[least]}: "
        f"{costs(FIRST)[least]:.2f}, all sinks {costs(SINKS)[least]:.2f}; the share of heads with "
        f"a sink is {heads[0]:.2f} as it is, {heads[1]:.2f} without the first key and "
        f"{heads[2]:.2f} without all that were sinks. Another token shares the sink where that "
        "share hardly falls.",
        f"- All sinks hidden cost {costs(SINKS).min():.2f} to {costs(SINKS).max():.2f} in the "
        "single texts.",
        "- Added after the first run, so predicted by nobody: muted, all sinks cost "
        f"{spread(costs(SINKS_MUTED))}, and the first key, in heads where it is no sink, "
        f"{spread(costs(ELSEWHERE_MUTED))}. What a head writes of BOS and of the text's own first "
        f"token, where that is a sink, has a cosine of {spread(of(AS_IS, 'alike'))} (control: of "
        f"neighbours in the text {spread(of(AS_IS, 'alike_others'))}).",
        "- Equal mass is found only in rows where ordinary keys have as much as the first key: "
        f"there it takes {masses[FIRST_MATCHED]:.3f} of the {masses[FIRST]:.3f} that it takes in "
        f"all, and {masses[ORDINARY_MATCHED]:.3f} of ordinary keys are taken. The control says "
        "nothing of rows in which a sink takes most.",
        f"- {worst[0].upper()}{worst[1:]} costs up to {costs(worst).max():.2f} in a text, all "
        f"heads at most {costs(FIRST).max():.2f}: the loss does not rise with their share, so that "
        "the comparison at equal loss rests on few points of each text. Of single conditions: "
        f"muted, at a cost of {costs(MUTED).mean():.2f}, the word moves "
        f"{factor(table.moves(MUTED))} times as far; {half}, at {costs(half).mean():.2f}, "
        f"{factor(table.moves(half))}; the first key hidden, at {costs(FIRST).mean():.2f}, "
        f"{factor(table.moves(FIRST))}, which is further than with ordinary keys hidden in "
        f"{further} of {len(table.texts)} texts.",
    ]
