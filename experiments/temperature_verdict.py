"""What came out of trained temperature: each sentence of the prediction, and every rule's rows."""

from __future__ import annotations

import itertools

import numpy as np

from experiments import statistics
from experiments.frame import Record

BY = ("map", "rule", "length")
CLASSES, TRAINED = 10, 16
LOG_RULES = ("log-n", "floor-log", "constant n_eff, Gaussian")
PLAIN, BOUNDED, INVERSE = "as trained", "constant n_eff, bounded", "control: its inverse"
POWERS = {"exp": 1.0, "entmax1.5": 2 / 3, "sparsemax": 0.5}  # of n, as predicted
SHARPER_FIRST = ("sparsemax", "entmax1.5", "exp")


def judge(records: list[Record]) -> str:
    """Return the accuracy of every rule at every length, and what the longest rows say."""
    by_cell = statistics.mean_over_seeds(records, BY)
    lengths = sorted({each["length"] for each in by_cell})
    most, seeds = lengths[-1], len({record["seed"] for record in records})
    lines = ["| weights, rule | " + " | ".join(f"n = {n:,}" for n in lengths) + " |"]
    lines.append("|---" * (len(lengths) + 1) + "|")
    for name, rule in dict.fromkeys((each["map"], each["rule"]) for each in by_cell):
        of = {
            each["length"]: each for each in by_cell if (each["map"], each["rule"]) == (name, rule)
        }
        shown = (
            f"{of[n]['accuracy']:.2f} ± {of[n]['spread']:.2f}; {of[n]['n_eff']:.3g}"
            for n in lengths
        )
        lines.append(f"| {name}, {rule} | " + " | ".join(shown) + " |")
    of_exp = {(each["rule"], each["length"]): each for each in by_cell if each["map"] == "exp"}
    start = of_exp["as trained", lengths[0]]
    lines += [
        "",
        f"Share of rows read out right ± standard deviation over {seeds} seeds; mean n_eff.",
        "",
        f"At n = {most:,} the factor n/{TRAINED} keeps "
        f"{of_exp['constant n_eff, bounded', most]['accuracy']:.2f} of the rows right with n_eff "
        f"{of_exp['constant n_eff, bounded', most]['n_eff']:.2f} (at {lengths[0]}: "
        f"{start['accuracy']:.2f} with {start['n_eff']:.2f}), the factor of Gaussian scores "
        f"{of_exp['constant n_eff, Gaussian', most]['accuracy']:.2f} with "
        f"{of_exp['constant n_eff, Gaussian', most]['n_eff']:.3g}, log-n "
        f"{of_exp['log-n', most]['accuracy']:.2f}, floor-log "
        f"{of_exp['floor-log', most]['accuracy']:.2f}, none "
        f"{of_exp['as trained', most]['accuracy']:.2f}; the largest score alone "
        f"{of_exp['largest score', most]['accuracy']:.2f}. Control: the inverse factor "
        f"{of_exp['control: its inverse', most]['accuracy']:.2f}; chance is {1 / CLASSES:.2f}.",
    ]
    lines += ["", *_told(records, most), "", _growth(records)]
    met = statistics.refutations(_refuting(records))
    verdicts = [*statistics.verdicts(_held(records)), *met, "", statistics.RULES_CAME_LATER]
    return "\n".join([*verdicts, "", *lines])


def _means(records: list[Record]) -> dict[tuple[str, str, int], Record]:
    """Return the means over seeds by map, rule and length."""
    return {
        (each["map"], each["rule"], each["length"]): each
        for each in statistics.mean_over_seeds(records, BY)
    }


def growth(records: list[Record], name: str) -> statistics.Interval:
    """Return the power of n with which n_eff of a map grows as trained, over the longer half."""
    lengths = sorted({each["length"] for each in records})
    longer = lengths[len(lengths) // 2 :]
    mine = [x for x in records if (x["map"], x["rule"]) == (name, PLAIN) and x["length"] in longer]
    if len(longer) < 3 or not mine:
        return statistics.Interval(np.nan, np.nan, np.nan)
    return statistics.slope(*np.log([(x["length"], x["n_eff"]) for x in mine]).T)


def log_n_ahead(records: list[Record]) -> int:
    """Return in how many seeds log-n reads out more of the longest rows than the factor n/16."""
    most = max(each["length"] for each in records)
    of = {
        (x["rule"], x["seed"]): x["accuracy"]
        for x in records
        if (x["map"], x["length"]) == ("exp", most)
    }
    return sum(of["log-n", s] > of[BOUNDED, s] for s in {x["seed"] for x in records})


def _held(records: list[Record]) -> dict[str, bool]:
    """Return what was predicted, and whether it came so."""
    of, lengths = _means(records), sorted({each["length"] for each in records})
    most, start = lengths[-1], of["exp", PLAIN, lengths[0]]["n_eff"]
    exact = [of["exp", "largest score", n]["accuracy"] for n in lengths]
    bounded = [of["exp", BOUNDED, n] for n in lengths]
    by_log = [of["exp", rule, most] for rule in LOG_RULES]
    ends = {name: of[name, PLAIN, most] for name in SHARPER_FIRST if (name, PLAIN, most) in of}
    ranked = sorted(ends, key=lambda name: -ends[name]["accuracy"])
    powers = {name: growth(records, name) for name in POWERS}
    return {
        "under n/16 n_eff stays within a tenth": all(
            abs(each["n_eff"] / start - 1) <= 0.1 for each in bounded
        ),
        "and the accuracy within 0.05 of that of the largest score": all(
            a - each["accuracy"] <= 0.05 for a, each in zip(exact, bounded, strict=True)
        ),
        "rules in ln n read out less than half of the longest rows": all(
            each["accuracy"] < 0.5 for each in by_log
        ),
        "rules in ln n have an n_eff above 100 there": all(each["n_eff"] > 100 for each in by_log),
        **{
            f"as trained n_eff of {name} grows like n^{wanted:.2g}, within the interval of its "
            "power": powers[name].low <= wanted <= powers[name].high
            for name, wanted in POWERS.items()
        },
        "as trained, by means: sparsemax ahead of entmax-1.5 ahead of softmax in longest rows": (
            tuple(ranked) == SHARPER_FIRST
        ),
        "and none above 0.6": max(each["accuracy"] for each in ends.values()) <= 0.6,
        "the inverse factor reads out by chance in the longest rows, to 0.03": (
            abs(of["exp", INVERSE, most]["accuracy"] - 1 / CLASSES) <= 0.03
        ),
    }


def _refuting(records: list[Record]) -> dict[str, bool]:
    """Return what was to refute the prediction, and whether it was met."""
    of, lengths = _means(records), sorted({each["length"] for each in records})
    start, last = of["exp", PLAIN, lengths[0]]["n_eff"], of["exp", BOUNDED, lengths[-1]]["n_eff"]
    ratios = [of["exp", BOUNDED, n]["n_eff"] / start for n in lengths]
    ends = [of.get((name, PLAIN, lengths[-1])) for name in ("exp", "sparsemax")]
    softmax, sparsemax = (each["accuracy"] if each else np.nan for each in ends)
    return {
        "by means a rule in ln n keeps up with n/16 at n ≥ 4096": any(
            of["exp", rule, n]["accuracy"] >= of["exp", BOUNDED, n]["accuracy"]
            for rule in LOG_RULES
            for n in lengths
            if n >= 4096
        ),
        f"n_eff is not constant under n/16, n_eff − 1 goes from {start - 1:.3f} to "
        f"{last - 1:.3f}": max(abs(ratio - 1) for ratio in ratios) > 0.1,
        "softmax as trained is ahead of sparsemax": bool(softmax > sparsemax),
    }


def _told(records: list[Record], most: int) -> list[str]:
    """Return how sure the comparisons in the longest rows are."""
    of = {(x["map"], x["rule"], x["seed"]): x for x in records if x["length"] == most}
    seeds, means = sorted({x["seed"] for x in records}), _means(records)
    known = [name for name in SHARPER_FIRST if (name, PLAIN, most) in means]
    in_order = sum(
        all(
            of[a, PLAIN, seed]["accuracy"] > of[b, PLAIN, seed]["accuracy"]
            for a, b in itertools.pairwise(known)
        )
        for seed in seeds
    )

    def shown(name: str, rule: str) -> str:
        each = means[name, rule, most]
        return f"{each['accuracy']:.3f} ± {each['spread']:.3f}"

    accuracy = {rule: shown("exp", rule) for rule in ("log-n", BOUNDED, "largest score")}
    return [
        f"There {', '.join(known)} read out {', '.join(shown(name, PLAIN) for name in known)} as "
        f"trained, in this order in {in_order} of {len(seeds)} seeds. Log-n reads out "
        f"{accuracy['log-n']}, n/{TRAINED} {accuracy[BOUNDED]}; log-n is ahead in "
        f"{log_n_ahead(records)} of {len(seeds)} seeds there. To read out less than "
        "half of them is little to fail where the largest score alone "
        f"reads out {accuracy['largest score']}. And n/{TRAINED} leaves an n_eff of "
        f"{means['exp', BOUNDED, most]['n_eff']:.2f}: nearly the largest score alone."
    ]


def _growth(records: list[Record]) -> str:
    """Return how n_eff of each map grows as trained, with 95 % intervals over lengths and seeds."""
    found = (f"{name} {growth(records, name)}" for name in dict.fromkeys(x["map"] for x in records))
    title = "Power of n with which n_eff grows as trained, over the longer half"
    return f"{title}: {', '.join(found)}."
