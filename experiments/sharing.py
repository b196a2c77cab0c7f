"""Can one row choose the keys of another? Neighbouring queries, heads and layers of a real model.

Rows are compared by the correlation ρ of their scores, and by how many of their largest scores they
share; the law of Gaussian scores says the second from the first. The first key is left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from scipy.special import logsumexp, ndtr, ndtri, owens_t

from experiments import statistics
from experiments.frame import Experiment, Record
from experiments.real_model import RANDOM, SMOLLM2, hash_of, open_model, text_of
from sparsity import metric
from sparsity.attention.library import library
from sparsity.attention.torch.interception import Interceptor

QUERIES, LAYERS, HEADS = "query before", "next layer, same head", "next head, same layer"
WHOLE, SHUFFLED = "next layer, all heads", "shuffled (control)"
SHARES = (0.05, 0.01, 0.2)  # of the keys; ρ "from the top" is that of the first
_RHOS = np.concatenate([np.linspace(-0.99, 0.99, 199), [0.999, 0.99999]])


@dataclass(frozen=True)
class Settings:
    """What is read: every text, by every row of the last half that is drawn."""

    texts: tuple[str, ...] = ("types", "formatstrings")
    tokens: int = 1024
    rows: int = 32
    seed: int = 0
    model: str = SMOLLM2


def cells(settings: Settings) -> list[Record]:
    """Return a cell for each text."""
    return [{"text": name, "sha256": hash_of(name)} for name in settings.texts]


def law(q: float, rho: Any) -> np.ndarray:
    """Return P(Z > z, Z′ > z)/q, the share of the top q that two rows of correlation ρ share."""
    slope = np.sqrt((1 - np.asarray(rho)) / (1 + np.asarray(rho)))
    return np.asarray(np.maximum(1 - 2 * owens_t(-ndtri(q), slope) / q, 0.0))


def rho_from_top(q: float, overlap: np.ndarray) -> np.ndarray:
    """Return the ρ at which the law has that overlap, within ±0.99 or so."""
    return np.interp(overlap, law(q, _RHOS), _RHOS)


def read_scores(settings: Settings, text: str) -> tuple[Any, Any]:
    """Return scores [layers, heads, rows, keys] of rows, and of the queries before.

    The keys are the nearest that both see, as many as all rows have without the text's first one.
    """
    model, torch = open_model(settings.model), library("torch")
    ids: Any = torch.as_tensor(model.encode(text)[: settings.tokens])[None]
    first = ids.shape[1] // 2
    drawn = np.random.default_rng(settings.seed).permutation(np.arange(first, ids.shape[1]))
    rows = np.sort(drawn[: settings.rows])

    def look(path: str, call: Any, made: Any) -> tuple[np.ndarray, np.ndarray]:
        q, k = (x[0].float().numpy() for x in (call.query, call.key))
        k = np.repeat(k, len(q) // len(k), axis=0)[:, rows[:, None] - np.arange(1, first)]
        scale = q.shape[-1] ** -0.5
        now, before = (np.einsum("hrd,hrkd->hrk", q[:, at], k) * scale for at in (rows, rows - 1))
        return now, before

    with Interceptor(model.llama, look) as calls, torch.no_grad():
        model.llama(input_ids=ids, use_cache=False)
    scores = [found for _, found in calls.clear()]
    return np.stack([now for now, _ in scores]), np.stack([before for _, before in scores])


def compare(a: np.ndarray, b: np.ndarray) -> dict[str, np.ndarray]:
    """Return what pairs of rows have in common, [...] each, of scores [..., keys]."""
    n = a.shape[-1]
    x, y = (s - s.mean(-1, keepdims=True) for s in (a, b))
    rho = (x * y).mean(-1) / (x.std(-1) * y.std(-1))
    kept = [max(round(q * n), 1) for q in SHARES]
    shared = [metric.top_k_overlap(a, b, k, log=True) for k in kept]
    there = np.argsort(-b, axis=-1)[..., : kept[0]]
    kept_in_a: Any = logsumexp(np.take_along_axis(a, there, -1), axis=-1)
    all_of_a: Any = logsumexp(a, axis=-1)
    found = {"rho": rho, "gamma": a.std(-1), "held": np.exp(kept_in_a - all_of_a)}
    found["held_law"] = ndtr(rho * a.std(-1) + ndtri(kept[0] / n))
    for q, k, overlap in zip(SHARES, kept, shared, strict=True):
        found |= {f"share_{q:g}": overlap, f"law_{q:g}": law(k / n, rho)}
    return found


def pairs(settings: Settings, text: str) -> Iterator[tuple[str, int, np.ndarray, np.ndarray]]:
    """Yield what is compared, in which layer: scores [heads, rows, keys] of both."""
    now, before = read_scores(settings, text)
    rng = np.random.default_rng([settings.seed, 1])
    whole: Any = logsumexp(now - logsumexp(now, axis=-1, keepdims=True), axis=1, keepdims=True)
    for layer in range(len(now)):
        yield QUERIES, layer, now[layer], before[layer]
        yield HEADS, layer, now[layer], np.roll(now[layer], -1, axis=0)
        if layer + 1 < len(now):
            yield LAYERS, layer, now[layer], now[layer + 1]
            yield WHOLE, layer, whole[layer], whole[layer + 1]
            yield SHUFFLED, layer, now[layer], rng.permuted(now[layer + 1], axis=-1)


def run(settings: Settings, cell: Record) -> list[Record]:
    """Compare the rows of a text: means over rows, of every head."""
    records = []
    for what, layer, a, b in pairs(settings, text_of(cell["text"])):
        found = {name: np.mean(x, axis=-1) for name, x in compare(a, b).items()}
        n = a.shape[-1]
        kept = [max(round(q * n), 1) / n for q in SHARES]
        found["rho_top"] = rho_from_top(kept[0], found[f"share_{SHARES[0]:g}"])
        for q, share in zip(SHARES, kept, strict=True):
            found[f"top_law_{q:g}"] = law(share, found["rho_top"])
        for head in range(len(a)):
            of_head = {name: round(float(x[head]), 4) for name, x in found.items()}
            records.append({"pair": what, "layer": layer, "head": head, **of_head})
    return records


def columns(records: list[Record], *pairs: str) -> dict[str, np.ndarray]:
    """Return the numbers of some pairs, mean over texts, by name [heads]."""
    kept = [x for x in records if x["pair"] in pairs]
    texts = list(dict.fromkeys(x["text"] for x in kept))
    names = list(kept[0])[list(kept[0]).index("head") + 1 :]
    by_text = [[[x[name] for x in kept if x["text"] == t] for t in texts] for name in names]
    return {name: np.mean(x, axis=0) for name, x in zip(names, by_text, strict=True)}


def near(of: dict[str, np.ndarray], law: str, q: float = 0.05) -> float:
    """Return in which share of heads a law is within 0.1 of the overlap measured."""
    return float(np.mean(np.abs(of[f"{law}_{q:g}"] - of[f"share_{q:g}"]) < 0.1))


def judge(records: list[Record]) -> str:
    """Return a table of the pairs, and what held of the prediction."""
    kinds = (QUERIES, HEADS, LAYERS, WHOLE, SHUFFLED)
    by = {name: columns(records, name) for name in kinds}
    both = columns(records, QUERIES, LAYERS)
    lines = [
        "Medians of heads: ρ of the scores, the top 5 % in common, what the law says of it at that "
        "ρ, ρ from the top; the weight of a row on the other's top 5 %, and its law; heads whose "
        "law is within 0.1.",
        "",
        "| a row and | ρ | shared | law | ρ from the top | weight held | law | within 0.1 |",
        "|---|---|---|---|---|---|---|---|",
    ]
    names = ("rho", "share_0.05", "law_0.05", "rho_top", "held", "held_law")
    for kind, of in by.items():
        values = " | ".join(f"{np.median(of[name]):.2f}" for name in names)
        lines.append(f"| {kind} | {values} | {near(of, 'law'):.0%} |")
    shared = {kind: float(np.median(of["share_0.05"])) for kind, of in by.items()}
    ranks = statistics.rank_correlation(both["rho"], both["share_0.05"])
    gap = float(np.median(by[QUERIES]["law_0.05"] - by[QUERIES]["share_0.05"]))
    top = [near(both, "top_law", q) for q in SHARES[1:]]
    row = [near(both, "law", q) for q in SHARES[1:]]
    held = float(np.mean(np.abs(by[LAYERS]["held_law"] - by[LAYERS]["held"]) < 0.1))
    control = by[SHUFFLED]
    off = float(np.abs(control["law_0.05"] - control["share_0.05"]).max())
    came = {
        f"1: neighbouring queries share {shared[QUERIES]:.2f} of their top 5 %, more than half": (
            shared[QUERIES] > 0.5
        ),
        f"2: the same head of the next layer shares {shared[LAYERS]:.2f}, less than 0.35, and no "
        f"more than the next head of the same layer, {shared[HEADS]:.2f}": (
            shared[LAYERS] < 0.35 and shared[LAYERS] <= shared[HEADS]
        ),
        f"3: layers as a whole share {shared[WHOLE]:.2f}, between 0.5 and 0.7": (
            0.5 < shared[WHOLE] < 0.7
        ),
        f"4: the law at ρ of the whole row is within 0.1 in {near(both, 'law'):.1%} of heads, 60 % "
        f"or more, and off by {gap:+.3f} in the median of neighbouring queries, too little": (
            near(both, "law") >= 0.6 and gap < 0
        ),
        f"5: ρ from the top forecasts the top 1 % and 20 % in {top[0]:.0%} and {top[1]:.0%} of "
        f"heads, 70 % or more, and more than ρ of the whole row, {row[0]:.0%} and {row[1]:.0%}": (
            min(top) >= 0.7 and top[0] > row[0] and top[1] > row[1]
        ),
        f"6: the weight held is within 0.1 of its law in {held:.0%} of heads, half or more": (
            held >= 0.5
        ),
        f"control: shuffled keys share {shared[SHUFFLED]:.3f}, the law off by {off:.3f} at most": (
            off < 0.02
        ),
    }
    few, low = near(both, "law") < 0.4, ranks.value < 0.8
    met = {
        f"the law is within 0.1 in {near(both, 'law'):.0%} of heads, fewer than 40 %": few,
        f"ρ ranks the overlaps of heads with {ranks} only, below 0.8": low,
        f"layers as a whole share {shared[WHOLE]:.2f}, less than half": shared[WHOLE] < 0.5,
    }
    more = ["", f"ρ of the whole row ranks the overlaps of heads with {ranks}."]
    return "\n".join([*lines, "", *statistics.verdicts(came), *more, *statistics.refutations(met)])


def draw(records: list[Record], figure: Figure) -> None:
    """Draw the overlap of every head against its ρ, beside the law."""
    axes = figure.subplots(1, 2, sharey=True)
    rho = np.linspace(-0.3, 0.999, 200)
    for ax, kinds in zip(axes, ((QUERIES, LAYERS), (HEADS, WHOLE)), strict=True):
        for kind in kinds:
            of = columns(records, kind)
            ax.plot(of["rho"], of["share_0.05"], "o", markersize=3, label=kind)
        ax.plot(rho, law(SHARES[0], rho), color="grey", label="theory")
        ax.set(xlabel="correlation of the scores ρ", xlim=(-0.3, 1.02), ylim=(0, 1.02))
        ax.legend(frameon=False, loc="upper left")
    axes[0].set(ylabel="top 5 % in common", title="A head and its neighbours")
    axes[1].set(title="A layer and its neighbours")


EXPERIMENT = Experiment(
    name="sharing",
    title="Can one layer choose the keys of the next?",
    full=Settings(),
    tiny=Settings(tokens=60, rows=4, model=RANDOM),
    cells=cells,
    run=run,
    judge=judge,
    draw=draw,
)
