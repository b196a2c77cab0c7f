"""The temperature that real heads ask for as the context grows: benchmarks/results/temperature.md.

    python -m benchmarks.temperature DIR      # DIR: for the model and the texts

SmolLM2 reads two texts of 8192 tokens. For every head of some layers the queries of rows of about
2048, 4096 and 8192 keys are scaled until the mean n_eff of the longer rows is that of the rows of
2048, without sinks: the factor c, and the slope a of c = 1 + a·ln r. Beside it is the slope that
the exact law of independent Gaussian scores has at the head's own spread.
"""

import itertools
import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import brentq
from scipy.special import logsumexp

from benchmarks.bench.machine import describe
from benchmarks.model_files import queries_and_keys, smollm2, texts
from experiments.rules.temperature import asked_factor
from sparsity.attention.measurement.sinks import MIN_SINK_WEIGHT
from sparsity.attention.torch.models import load
from sparsity.claims_ledger.judging import Routes
from sparsity.errors import InputError

RESULTS = Path(__file__).parent / "results"
TEXTS = {"types": ("types",), "formatstrings, debugger": ("formatstrings", "debugger")}
SHORT, LENGTHS = 2048, (2048, 4096, 8192)
LAYERS = range(1, 30, 3)  # ten, over the whole depth
ROWS, AMONG = 96, 256  # queries drawn at each length, out of the last so many before it
SEED, DRAWS = 0, 2000  # DRAWS: of heads, for the error of a median
FACTORS = (0.05, 20.0)  # in which c is sought

TEMPLATE = """# The temperature that real heads ask for

`python -m benchmarks.temperature DIR`, on {where}, {seconds:.0f} s.
SmolLM2-135M-Instruct (4-bit), two texts of 8192 tokens without BOS: `types`, and `formatstrings`
and `debugger` one after the other (pages of Python's documentation). All 9 heads of layers
{layers}, counted from 0; {rows} queries of each text, drawn out of the last
{among} before 2048, 4096 and 8192 (seed {seed}). Sinks, keys with more than {sink:g} of a head's
weight on average over the drawn rows that see them, are left out.

The file says that the model takes {context} tokens; how much of its training was that long it does
not say. Loss of the next token, in nats, by position: {losses}.
Beyond the longest text of the training positions are out of distribution; there the loss would be
above that of shorter contexts.

c is the factor on q that brings a head's mean n_eff in the longer rows to that of its rows of 2048
keys; a = (c − 1)/ln r. *Law*: the same from the exact law of independent Gaussian scores of the
head's γ̂, its root mean square over the rows of 2048. *Same queries*: those of the rows of 8192,
which see only their last 2048 or 4096 keys for the shorter rows, so that nothing but the length
differs. *Gaussian*: the same procedure on independent Gaussian scores of the head's γ̂, which must
give the law's slope. Medians over heads, with the standard error by the bootstrap over heads;
quartiles in brackets.

| rows | r | heads | n_eff at 2048 | n_eff, c = 1 | c | slope a | law's slope | rank correlation |
|---|---|---|---|---|---|---|---|---|
{table}

γ̂ of the heads at 2048 keys: median {gamma[1]:.2f}, quartiles {gamma[0]:.2f} and {gamma[2]:.2f}.
Heads with no such c in {factors}: {none}. Rank correlation: Spearman's of a with the law's slope.

{words}
"""


def drawn_positions(rng: np.random.Generator) -> dict[int, np.ndarray]:
    """Positions of the queries at each length, the same for every layer and text."""
    return {n: np.sort(n - 1 - rng.choice(AMONG, ROWS, replace=False)) for n in LENGTHS}


def scores_of(q: np.ndarray, k: np.ndarray, at: np.ndarray) -> np.ndarray:
    """Scaled scores [heads, rows, keys] of some queries, −∞ where a query does not see a key."""
    groups = len(q) // len(k)
    keys = np.repeat(k[:, : at[-1] + 1], groups, axis=0)
    found = q[:, at] @ keys.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    return np.where(np.arange(keys.shape[1]) <= at[:, None], found, -np.inf)


def without_sinks(scores: dict[int, np.ndarray]) -> dict[int, np.ndarray]:
    """The scores at each length with the sinks of each head, over all these rows, left out."""
    longest = max(scores)
    received = np.zeros((scores[longest].shape[0], scores[longest].shape[-1]))
    seen = np.zeros_like(received)
    for s in scores.values():
        p = np.exp(s - logsumexp(s, axis=-1, keepdims=True))
        received[:, : s.shape[-1]] += p.sum(1)
        seen[:, : s.shape[-1]] += np.isfinite(s).sum(1)
    # A key that few rows see is no sink for having been looked at by them.
    sink = (received > MIN_SINK_WEIGHT * seen) & (seen >= ROWS // 2)
    return {n: np.where(sink[:, None, : s.shape[-1]], -np.inf, s) for n, s in scores.items()}


def log_mean_n_eff(rows: list[np.ndarray], factor: float) -> float:
    """Log of the mean n_eff = (Σe^(cs))²/Σe^(2cs) of rows of scores times c."""
    found = []
    for s in rows:
        weights = np.exp(factor * (s - s.max(-1, keepdims=True)))
        found.append(weights.sum(-1) ** 2 / np.einsum("ij,ij->i", weights, weights))
    return float(np.log(np.concatenate(found).mean()))


def spread(rows: list[np.ndarray]) -> float:
    """γ̂: the root mean square over rows of the standard deviation of their scores."""
    squares = [np.nanvar(np.where(np.isfinite(s), s, np.nan), axis=-1) for s in rows]
    return float(np.sqrt(np.concatenate(squares).mean()))


def factor_of(wanted: float, rows: list[np.ndarray]) -> float:
    """The c that gives rows the log of a mean n_eff; NaN where none does."""

    def gap(log_c: float) -> float:
        return log_mean_n_eff(rows, float(np.exp(log_c))) - wanted

    ends = np.log(FACTORS)
    if gap(ends[0]) * gap(ends[1]) > 0:
        return float("nan")
    found: Any = brentq(gap, *ends, xtol=1e-4)
    return float(np.exp(found))


def last_keys(s: np.ndarray, count: int) -> np.ndarray:
    """Scores of rows that see only their last keys, as many as are given."""
    ends = np.isfinite(s).cumsum(-1)[..., -1:]  # keys in sight, sinks apart
    return np.where(ends - np.isfinite(s).cumsum(-1) < count, s, -np.inf)


def law_slope(gamma: float, ratio: float) -> float:
    """The slope that the exact law asks for; NaN where a factor up to 3 does not do."""
    try:
        return (asked_factor(Routes(), gamma, ratio, SHORT) - 1) / float(np.log(ratio))
    except (ValueError, InputError):
        return float("nan")


def measure(folder: Path) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """One record a head, and what the run itself was."""
    model, tokenizer = load(smollm2(folder))
    stems = {path.stem: path.read_text("utf-8") for path in texts(folder)}
    ids = [
        np.concatenate([tokenizer.encode(stems[name]) for name in names])[: max(LENGTHS)]
        for names in TEXTS.values()
    ]
    assert all(len(x) == max(LENGTHS) for x in ids)
    at = drawn_positions(np.random.default_rng(SEED))
    kept: dict[int, list[dict[int, np.ndarray]]] = {layer: [] for layer in LAYERS}

    started = time.perf_counter()
    by_text: list[np.ndarray] = []
    for text, own in enumerate(ids):
        layers, logits = queries_and_keys(model, own)
        for layer, of_layer in kept.items():
            of_layer.append(without_sinks({n: scores_of(*layers[layer], at[n]) for n in LENGTHS}))
        log_sum: Any = logsumexp(logits[:-1], axis=-1)
        by_text.append(log_sum - logits[np.arange(len(own) - 1), own[1:]])
        print(f"text {text} {time.perf_counter() - started:.0f} s", flush=True)
    ends = (0, 1024, 2048, 4096, 8191)
    by_position = {
        f"{low + 1} to {high}": float(np.mean([x[low:high] for x in by_text]))
        for low, high in itertools.pairwise(ends)
    }
    count = model.config.num_attention_heads
    heads = [of_head(layer, h, kept[layer]) for layer in kept for h in range(count)]
    return heads, {"losses": by_position, "context": model.config.max_position_embeddings}


def of_head(layer: int, head: int, per_text: list[dict[int, np.ndarray]]) -> dict[str, Any]:
    """The factors of one head at its own rows, at the same queries, and of Gaussian scores."""
    rows = {n: [s[n][head].astype(float) for s in per_text] for n in LENGTHS}
    gamma, found = spread(rows[SHORT]), []
    same = {n: [last_keys(s, n) for s in rows[max(LENGTHS)]] for n in LENGTHS}
    rng = np.random.default_rng([SEED, layer, head])
    null = {n: [gamma * rng.standard_normal((len(per_text) * ROWS, n))] for n in LENGTHS}
    for kind, own in (("own queries", rows), ("same queries", same), ("Gaussian", null)):
        wanted = log_mean_n_eff(own[SHORT], 1.0)
        for n in LENGTHS[1:]:
            c = factor_of(wanted, own[n])
            own_gamma = spread(own[SHORT]) if kind == "same queries" else gamma
            found.append(
                {
                    "rows": kind,
                    "ratio": n // SHORT,
                    "n_eff": np.exp(wanted),
                    "longer": np.exp(log_mean_n_eff(own[n], 1.0)),
                    "factor": c,
                    "slope": (c - 1) / np.log(n / SHORT),
                    "law": law_slope(own_gamma, n / SHORT),
                }
            )
    return {"layer": layer, "head": head, "gamma": gamma, "found": found}


def with_quartiles(values: np.ndarray, rng: np.random.Generator, form: str) -> str:
    """Median ± standard error (quartiles), in words."""
    again = np.median(rng.choice(values, (DRAWS, len(values))), axis=1).std()
    low, middle, high = np.quantile(values, (0.25, 0.5, 0.75))
    return f"{middle:{form}} ± {again:{form}} ({low:{form}} … {high:{form}})"


def rank_correlation(a: np.ndarray, b: np.ndarray) -> float:
    """Spearman's, of values without ties."""
    first, second = (np.argsort(np.argsort(x)) for x in (a, b))
    return float(np.corrcoef(first, second)[0, 1])


def report(heads: list[dict[str, Any]], run: dict[str, Any], seconds: float) -> str:
    rng = np.random.default_rng(SEED)
    lines, none, medians = [], 0, {}
    for i in range(len(heads[0]["found"])):
        cells = [head["found"][i] for head in heads]
        get = {key: np.array([cell[key] for cell in cells]) for key in cells[0]}
        known = np.isfinite(get["slope"]) & np.isfinite(get["law"])
        none += int((~known).sum())
        kind, ratio = cells[0]["rows"], cells[0]["ratio"]
        medians[kind, ratio] = {
            k: float(np.median(x[known])) for k, x in get.items() if k != "rows"
        }
        quoted = [
            with_quartiles(get[key][known], rng, form)
            for key, form in (("n_eff", ".1f"), ("longer", ".1f"), ("factor", ".3f"),
                              ("slope", ".3f"), ("law", ".3f"))
        ]  # fmt: skip
        rank = rank_correlation(get["slope"][known], get["law"][known])
        lines.append(f"| {kind} | {ratio} | {known.sum()} | {' | '.join(quoted)} | {rank:.2f} |")
    machine = describe()
    stated = {k: v for k, v in machine.items() if k != "versions"} | machine["versions"]
    return TEMPLATE.format(
        where=", ".join(f"{key} {value}" for key, value in stated.items()),
        seconds=seconds,
        layers=", ".join(map(str, LAYERS)),
        rows=ROWS,
        among=AMONG,
        seed=SEED,
        sink=MIN_SINK_WEIGHT,
        context=run["context"],
        losses="; ".join(f"{name} {value:.3f}" for name, value in run["losses"].items()),
        table="\n".join(lines),
        gamma=np.quantile([head["gamma"] for head in heads], (0.25, 0.5, 0.75)),
        factors=f"[{FACTORS[0]:g}, {FACTORS[1]:g}]",
        none=none,
        words=in_words(medians),
    )


def in_words(medians: dict[tuple[str, int], dict[str, float]]) -> str:
    """What was found, from the medians."""
    real, null, same = (medians[x, 4] for x in ("own queries", "Gaussian", "same queries"))
    return (
        f"At four times the length these heads ask for a slope of {real['slope']:.3f}, where the "
        f"law at their γ̂ asks for\n{real['law']:.3f} and models ship 0.1; Gaussian scores of the "
        f"same spread, put through the same procedure, ask\nfor {null['slope']:.3f}. Far keys add "
        f"less than their number: with the same queries the median n_eff goes from\n"
        f"{same['n_eff']:.1f} for the last 2048 keys to {same['longer']:.1f} for all 8192, that of "
        f"Gaussian scores from {null['n_eff']:.1f} to {null['longer']:.1f}."
    )


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    started = time.perf_counter()
    heads, run = measure(folder)
    (folder / "temperature.json").write_text(json.dumps([heads, run], default=float), "utf-8")
    text = report(heads, run, time.perf_counter() - started)
    (RESULTS / "temperature.md").write_text(text, "utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
