"""What routers would read of a real model's attention, beside the law of Gaussian scores.

python -m benchmarks.router DIR      # DIR: for the model and the texts of model_files.py

Rows of 1024 keys, the nearest ones, of SmolLM2-135M on its four texts: the softmax mass of the
eighth of the keys that a proxy chooses, beside the exact law of rows of as many Gaussian scores at
the row's own spread γ̂ and the proxy's own correlation ρ̂.
"""

import sys
import time
from pathlib import Path

import numpy as np
from scipy.interpolate import RegularGridInterpolator
from scipy.special import ndtr, ndtri

from benchmarks.bench.machine import describe
from benchmarks.model_files import queries_and_keys, smollm2
from benchmarks.model_files import texts as files
from sparsity import Row, estimate, exact
from sparsity.attention.torch.models import load

RESULTS = Path(__file__).parent / "results"
TOKENS, KEYS, READ, STEP, PAST = 1536, 1024, 128, 16, 256
RANK = 16  # of 64 dimensions
PROXIES = {
    "blocks of 16": 16,
    "blocks of 64": 64,
    f"{RANK} of 64 dimensions": 0,
    f"attention of the {PAST} queries before": 0,
}  # and the keys of a block
GAMMAS, RHOS = np.geomspace(0.3, 8.0, 7), (0.0, 0.26, 0.5, 0.7, 0.85, 0.95, 0.995)


def masses(s, proxy):
    """Mass captured by the top keys of a proxy, γ̂, ρ̂, skew and mass of the best choice, of rows."""
    p = np.exp(s - s.max(-1, keepdims=True))
    p /= p.sum(-1, keepdims=True)
    top = np.argpartition(-proxy, READ - 1, axis=-1)[..., :READ]
    centred = [x - x.mean(-1, keepdims=True) for x in (s, proxy)]
    sd = [np.sqrt((x * x).mean(-1)) for x in centred]
    rho = (centred[0] * centred[1]).mean(-1) / np.maximum(sd[0] * sd[1], 1e-30)
    best = np.sort(p, axis=-1)[..., -READ:].sum(-1)
    captured = np.take_along_axis(p, top, -1).sum(-1)
    return np.stack([captured, sd[0], rho, (centred[0] ** 3).mean(-1) / sd[0] ** 3, best])


def head_rows(q, k, left, right):
    """[without and with the first key, proxies, figures, rows] of a head.

    `left` and `right` take queries and keys to the few dimensions of the third proxy. The first key
    stands in the place of the farthest one.
    """
    s = q @ k.T * q.shape[-1] ** -0.5
    s = np.where(np.tri(len(s), dtype=bool), s, -np.inf)
    p = np.exp(s - s.max(-1, keepdims=True))
    p /= p.sum(-1, keepdims=True)
    rows = np.arange(KEYS + PAST + 1, TOKENS, STEP)
    out = []
    for sink in (False, True):
        keys = rows[:, None] - np.arange(KEYS)[::-1]
        if sink:
            keys[:, 0] = 0
        own = np.take_along_axis(s[rows], keys, -1)
        blocks = [
            np.repeat(own.reshape(len(rows), -1, size).mean(-1), size, axis=-1) for size in (16, 64)
        ]
        few = np.einsum("rd,rkd->rk", (q @ left)[rows], (k @ right)[keys])
        before = [p[i - PAST : i, at].sum(0) for i, at in zip(rows, keys, strict=True)]
        proxies = [*blocks, few, np.log(np.stack(before) + 1e-12)]
        out.append(np.stack([masses(own, each) for each in proxies]))
    return np.stack(out)


def measured(folder):
    """[with the sink, layer, head, proxy, figure, row] over all texts."""
    model, tokenizer = load(smollm2(folder))
    whole = [tokenizer.encode(path.read_text("utf-8")) for path in files(folder)]
    ids, layers = [x[:TOKENS] for x in whole if len(x) >= TOKENS], []
    by_text = [queries_and_keys(model, x)[0] for x in ids]
    for layer, waiting in enumerate(zip(*by_text, strict=True)):
        heads = []
        for head in range(waiting[0][0].shape[0]):
            group = head // (waiting[0][0].shape[0] // waiting[0][1].shape[0])
            all_keys = np.concatenate([k[group, 1:] for _, k in waiting])
            # Directions in which this head's scores vary most: of keys weighed by its queries.
            queries = np.concatenate([q[head] for q, _ in waiting])
            weigh = np.linalg.cholesky(queries.T @ queries / len(queries) + 1e-6 * np.eye(64))
            seen = (all_keys - all_keys.mean(0)) @ weigh
            basis = np.linalg.svd(seen, full_matrices=False)[2][:RANK].T
            left, right = np.linalg.inv(weigh).T @ basis, weigh @ basis
            rows = [head_rows(q[head], k[group], left, right) for q, k in waiting]
            heads.append(np.concatenate(rows, axis=-1))
        layers.append(np.stack(heads, axis=1))
        print(f"layer {layer}", flush=True)

    return np.stack(layers, axis=1), len(ids)


def law_of(size):
    """The law at (γ, ρ) for keys (size 0), exact, or blocks, sampled, from a grid.

    Between its points what is interpolated is the difference of Φ⁻¹(mass) to that of long rows,
    ργ + Φ⁻¹(q).
    """
    q = READ / KEYS
    table = np.empty((len(GAMMAS), len(RHOS)))
    for i, gamma in enumerate(GAMMAS):
        for j, rho in enumerate(RHOS):
            if size:
                within = max(0.0, (rho**2 - 1 / size) / (1 - 1 / size))
                row = Row(f"block-router:{READ // size},{size}", gamma=gamma, within=within)
                own = np.sqrt(within + (1 - within) / size)
            else:
                row, own = Row(f"router:{READ}", gamma=gamma, rho=rho), rho
            if size:  # blocks have no exact law
                mass = float(estimate(row, length=KEYS, of="abs_sum", rel_error=1e-3))
            else:
                mass = float(exact(row, length=KEYS, of="abs_sum"))
            table[i, j] = ndtri(mass) - (own * gamma + ndtri(q))
    found = RegularGridInterpolator((np.log(GAMMAS), RHOS), table)

    def law(gamma, rho):
        at = np.clip(gamma, GAMMAS[0], GAMMAS[-1]), np.clip(rho, 0.0, RHOS[-1])
        return ndtr(found((np.log(at[0]), at[1])) + rho * gamma + ndtri(q))

    return law


def table(head, rows):
    return "\n".join(["| " + " | ".join(head) + " |", "|---" * len(head) + "|",
                      *("| " + " | ".join(row) + " |" for row in rows)])  # fmt: skip


def summary(data, laws, sink):
    """A row of the table for each proxy: over heads, of the means over their rows."""
    rows, numbers = [], {}
    for i, name in enumerate(PROXIES):
        captured, gamma, rho, skew, best = np.moveaxis(data[int(sink), ..., i, :, :], -2, 0)
        law = laws[PROXIES[name]](gamma, rho)
        heads = [x.mean(-1).ravel() for x in (captured, law, gamma, rho, best, skew)]
        off = heads[0] - heads[1]
        low, middle, high = np.quantile(off, (0.05, 0.5, 0.95))
        ranks = [np.argsort(np.argsort(x)) for x in heads[:2]]
        rank = np.corrcoef(ranks[0], ranks[1])[0, 1]
        mid = [np.median(x) for x in heads]
        numbers[name] = (off, heads)
        rows.append(
            (name, *(f"{x:.2f}" for x in (mid[2], mid[3])), *(f"{x:.3f}" for x in (mid[0], mid[1])),
             f"{middle:+.3f} ({low:+.3f} … {high:+.3f})", f"{np.mean(np.abs(off) < 0.05):.0%}",
             f"{rank:.2f}", f"{mid[4]:.3f}")
        )  # fmt: skip
    head = ("proxy", "γ̂", "ρ̂", "captured", "law", "captured − law, 5 … 95 % of heads",
            "heads within 0.05", "rank correlation", "best eighth")  # fmt: skip
    return table(head, rows), numbers


def where_it_fails(numbers):
    """Captured − law in the thirds of the heads by spread, and by skew."""
    rows = []
    for name, (off, heads) in numbers.items():
        for what, by in (("γ̂", heads[2]), ("skew of the scores", heads[5])):
            parts = np.array_split(np.argsort(by), 3)
            ends = ", ".join(f"{np.median(by[x]):.2f}" for x in parts)
            rows.append((name, f"{what}: {ends}", *(f"{np.median(off[x]):+.3f}" for x in parts)))
    return table(("proxy", "thirds of the heads by", "low", "middle", "high"), rows)


def reading(numbers, sunk):
    """What the tables say, in sentences."""

    def median(found, name, which=None):
        off, heads = found[name]
        return np.median(off if which is None else heads[which])

    small, large, few, past = PROXIES
    return f"""The law is close for {few}: {median(numbers, few):+.3f} in the median head.
Where it is off, the scores are skewed right. It is not close for blocks, which hold more than
it says ({median(numbers, small):+.3f} of {small}, {median(numbers, large):+.3f} of {large}):
it has blocks of one kind, and real ones differ in spread as well as in mean. Nor is it for past
attention ({median(numbers, past):+.3f}): keys younger than {PAST} queries have gathered less, which
is why evictions keep the newest keys besides. These reasons are likely and were not tested apart.

A sink breaks the law of blocks altogether: the first key takes much of the mass, its block's mean
does not show it, and the mass captured by {small} falls from {median(numbers, small, 0):.3f} to
{median(sunk, small, 0):.3f}. It has to be read whatever the router says."""


def report(data, laws, texts, seconds):
    machine = ", ".join(f"{k} {v}" for k, v in describe().items() if k != "versions")
    plain, numbers = summary(data, laws, False)
    sunk, with_sink = summary(data, laws, True)
    return f"""# What a router reads of real attention, and the law

`python -m benchmarks.router DIR`, on {machine}; {seconds:.0f} s.

SmolLM2-135M on {texts} texts of {TOKENS} tokens: {data[0, ..., 0, 0, :].size} rows of
{np.prod(data.shape[1:3])} heads, the {KEYS} nearest keys of each. {READ} of them are read:
those that a proxy chooses. The law is the exact one of {KEYS} Gaussian scores, at each row's own γ̂
and at the correlation ρ̂ of score and proxy in that row. Medians over heads of the means over rows.

- blocks of B: the blocks of the largest mean score, q · (mean key). The law is of whole blocks.
- {RANK} of 64 dimensions: q · k in the directions in which a head's scores vary most, of the same
  texts, so that ρ̂ is at its best.
- attention of the queries before: the sum of the weights that the {PAST} earlier queries gave a
  key, as an eviction by accumulated attention keeps it; its logarithm is what ρ̂ is of.

## Without the first key

{plain}

## With the first key, in the place of the farthest

{sunk}

## Where the law fails, without the first key

Captured − law, medians of thirds of the heads:

{where_it_fails(numbers)}

{reading(numbers, with_sink)}
"""


def main(folder):
    start = time.perf_counter()
    data, texts = measured(folder)
    laws = {size: law_of(size) for size in sorted(set(PROXIES.values()))}
    text = report(data, laws, texts, time.perf_counter() - start)
    (RESULTS / "router.md").write_text(text, "utf-8")
    print(text)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
