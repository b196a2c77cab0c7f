"""What is lost below a threshold in longer rows of a real model? The weight that `thresholds` left.

Texts and rows are those of `dilution`, laws those of `tile_law`, given the largest score of a row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from scipy.special import softmax

from experiments import dilution, statistics, tile_law
from experiments.frame import Experiment, Record
from experiments.thresholds import highest
from experiments.thresholds_verdict import FACTOR, MATTERS, in_factor
from sparsity.attention.library import library
from sparsity.attention.torch.interception import Interceptor

DIGITS = 5  # of what is kept
OF_LAW, OF_INDEPENDENT, MEASURED = "law", "none", "mass"  # columns begin with these


@dataclass(frozen=True)
class Settings(dilution.Settings):
    """What is read: as in `dilution`, longer rows alone; a tile of 1 is a key."""

    lengths: tuple[int, ...] = (2048, 4096, 8192)
    log_ratios: tuple[float, ...] = (-4, -6)  # at −8 no head lost as much as matters
    tiles: tuple[int, ...] = (1, 64, 128)


def read_rows(settings: Settings, s: np.ndarray, within: np.ndarray) -> Record:
    """Return what scores [heads, rows, n] of a layer lose, and what laws say, [heads] each."""
    n, largest, gamma = s.shape[-1], s.max(-1), s.std(-1)
    m, weights = (largest - s.mean(-1)) / gamma, softmax(s, axis=-1)
    steps = np.stack([t / gamma for t in settings.log_ratios])
    found = {}
    for size in settings.tiles:
        below = highest(s - largest[..., None], size)
        held = weights.reshape(*below.shape, size).sum(-1)
        with np.errstate(divide="ignore"):  # ln 0: beside a key that is a tile there is no other
            laws = {
                OF_LAW: tile_law.mass(within[:, None], size, n // size, m, gamma, steps),
                OF_INDEPENDENT: tile_law.mass(0.0, size, n // size, m, gamma, steps),
            }
        for i, t in enumerate(settings.log_ratios):
            where = f"{t:g}_{size}_{n}"
            found[f"{MEASURED}_{where}"] = np.where(below < t, held, 0).sum(-1).mean(-1)
            found |= {f"{name}_{where}": law[i].mean(-1) for name, law in laws.items()}
    return found


def run(settings: Settings, cell: Record) -> list[Record]:
    """Read the heads of a text; numbers are means of rows."""
    model, torch = dilution.open_model(settings.model), library("torch")
    ids, after = dilution.tokens(settings, cell["text"])
    fitted = dilution.fitted_within()
    layers = 0

    def look(path: str, call: Any, made: Any) -> list[Record]:
        nonlocal layers
        found: Record = {}
        for s in dilution.nearest_rows(settings, call, after):
            within = np.array([fitted[layers, head] for head in range(len(s))])
            found |= read_rows(settings, s, within)
        layers += 1
        return [
            {"layer": layers - 1, "head": i}
            | {name: round(float(x[i]), DIGITS) for name, x in found.items()}
            for i in range(len(within))
        ]

    with Interceptor(model.llama, look) as calls, torch.no_grad():
        model.llama(input_ids=ids, use_cache=False, logits_to_keep=1)
    return [record for _, of_layer in calls.clear() for record in of_layer]


# --- what came out of it -------------------------------------------------------------------------


def quotients(law: np.ndarray, mass: np.ndarray) -> np.ndarray:
    """Return what is said over what is lost, of heads in which that matters."""
    matters = np.maximum(law, mass) >= MATTERS
    return np.maximum(law[matters], 1e-9) / np.maximum(mass[matters], 1e-9)


def judge(records: list[Record]) -> str:
    """Return what is lost at every length, and what held of the prediction."""
    of = {k: np.array([x[k] for x in records]) for k, x in records[0].items() if k != "text"}
    places = [name.split("_")[1:] for name in of if name.startswith(MEASURED)]
    ratios, sizes, lengths = (list(dict.fromkeys(part)) for part in zip(*places, strict=True))
    keys, tiles, longest = sizes[:1], sizes[1:], lengths[-1]
    drawn = np.random.default_rng(0).permutation(len(records))

    def pooled(name: str, of_sizes: list[str], n: str, order: Any = slice(None)) -> float:
        """Return the share of heads and settings that one thing says within the factor."""
        parts = []
        for where in (f"{t}_{size}" for size in of_sizes for t in ratios):
            said = (
                of[f"{name}_{where}_{n}"] if name != MEASURED else of[f"mass_{where}_{lengths[0]}"]
            )
            parts.append(quotients(said[order], of[f"mass_{where}_{n}"]))
        return in_factor(np.concatenate(parts))

    by_n = {n: (pooled(OF_LAW, keys, n), pooled(OF_LAW, tiles, n)) for n in lengths}
    longer = lengths[1:]
    of_tiles, of_keys = ([by_n[n][i] for n in longer] for i in (1, 0))
    middle = {n: float(np.median(of[f"mass_{ratios[0]}_1_{n}"])) for n in lengths}
    change = middle[longest] / max(middle[lengths[0]], 1e-9)
    same = pooled(MEASURED, tiles, longest)
    none = [pooled(OF_INDEPENDENT, tiles, n) for n in longer]
    others = [(pooled(OF_LAW, keys, n, drawn), pooled(OF_LAW, tiles, n, drawn)) for n in longer]

    def percent(shares: Any) -> str:
        return ", ".join(f"{x:.0%}" for x in shares)

    held = {
        f"1: tiles are within a factor of {FACTOR} in {percent(of_tiles)} of heads, less than "
        f"half, and in {by_n[lengths[0]][1]:.0%} at n = {lengths[0]}, more than at {longest}": bool(
            max(of_tiles) < 0.5 and of_tiles[-1] < by_n[lengths[0]][1]
        ),
        f"2: keys are in {percent(x[0] for x in by_n.values())} from n = {lengths[0]} on, 60 % or "
        "more, and more than tiles": all(x[0] >= 0.6 and x[0] > x[1] for x in by_n.values()),
        f"3: what the keys below weigh at {ratios[0]} goes from {middle[lengths[0]]:.4f} to "
        f"{middle[longest]:.4f} in the median head, by less than a factor of 1.5": bool(
            abs(np.log(max(change, 1e-9))) < np.log(1.5)
        ),
        f"4: no change from n = {lengths[0]} is within the factor in {same:.0%} of heads with "
        f"tiles at {longest}, 60 % or more, and more than the law": same >= 0.6
        and same > of_tiles[-1],
        f"baseline: independent keys are in {percent(none)}, fewer than tiles by the law": all(
            a < b for a, b in zip(none, of_tiles, strict=True)
        ),
        f"control: laws of other heads are in {percent(x[0] for x in others)} of keys and "
        f"{percent(x[1] for x in others)} of tiles, fewer than their own": all(
            a < b
            for n, x in zip(longer, others, strict=True)
            for a, b in zip(x, by_n[n], strict=True)
        ),
    }
    met = {
        f"tiles are within the factor in {percent(of_tiles)} of heads, fewer than 50 %": (
            min(of_tiles) < 0.5
        ),
        f"keys are within the factor in {percent(of_keys)} of heads, fewer than 50 %": (
            min(of_keys) < 0.5
        ),
    }
    lines = [
        "",
        "| n | ln λ | tile | weight lost | law | `within` 0 | heads that count | law over lost | "
        f"within {FACTOR} | `within` 0 | weight at n = {lengths[0]} |",
        "|---" * 11 + "|",
    ]
    for n, t, size in ((n, t, size) for n in lengths for t in ratios for size in sizes):
        where = f"{t}_{size}"
        mass = of[f"mass_{where}_{n}"]
        said = [of[f"{name}_{where}_{n}"] for name in (OF_LAW, OF_INDEPENDENT)]
        by = [quotients(x, mass) for x in (*said, of[f"mass_{where}_{lengths[0]}"])]
        weights = " | ".join(f"{np.median(x):.4f}" for x in (mass, *said))
        off = f"{np.median(by[0]):.2f}" if by[0].size else ""
        shares = " | ".join(f"{in_factor(x):.0%}" for x in by).replace("nan%", "")
        tile = "keys" if size == "1" else size
        lines.append(
            f"| {int(n):,} | {t.replace('-', '−')} | {tile} | {weights} | {by[0].size} | {off} | "
            f"{shares} |"
        )
    count = len(dict.fromkeys(x["text"] for x in records))
    unchanged = pooled(MEASURED, keys, longest)
    lines += [
        "",
        f"Medians of the heads of {count} texts, and shares of those that count.",
        "",
        "Looked at after the results: of keys no change from n = "
        f"{lengths[0]} is within the factor in {unchanged:.0%} of heads and settings at {longest}, "
        f"the law in {of_keys[-1]:.0%}.",
    ]
    return "\n".join([*statistics.verdicts(held), *statistics.refutations(met), *lines])


def draw(records: list[Record], figure: Figure) -> None:
    """Draw the weight lost with keys and tiles beside its law, a panel a length."""
    names = [x.removeprefix("mass_") for x in records[0] if x.startswith("mass_")]
    ratio = names[0].split("_")[0]
    lengths = list(dict.fromkeys(x.split("_")[2] for x in names))
    sizes = list(dict.fromkeys(x.split("_")[1] for x in names))[:2]
    axes = figure.subplots(1, len(lengths), sharey=True)
    for ax, n in zip(axes, lengths, strict=True):
        for size in sizes:
            law, mass = ([x[f"{k}_{ratio}_{size}_{n}"] for x in records] for k in ("law", "mass"))
            ax.plot(law, mass, ".", ms=2, label="keys" if size == "1" else f"tiles of {size}")
        ax.plot([1e-4, 1], [1e-4, 1], color="grey", label="theory")
        ax.set(xscale="log", yscale="log", xlim=(1e-4, 1), ylim=(1e-4, 1))
        ax.set(xlabel="by the law given the largest", title=f"n = {int(n):,}")
    axes[0].set_ylabel("weight lost, measured")
    axes[0].legend(frameon=False, markerscale=3)
    figure.suptitle(
        f"At ln λ = {ratio.replace('-', '−')} most heads lose what the law says to a factor of two"
    )


EXPERIMENT = Experiment(
    name="lost_weight",
    title="What is lost below a threshold in longer rows of a real model?",
    full=Settings(),
    tiny=Settings(
        texts=("types", "pickle.py"),
        lengths=(16, 24, 32),
        after=8,
        rows=4,
        log_ratios=(-1, -2),
        tiles=(1, 4, 8),
        model=dilution.RANDOM,
    ),
    cells=dilution.cells,
    run=run,
    judge=judge,
    draw=draw,
)
