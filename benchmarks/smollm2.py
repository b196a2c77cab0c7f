"""Measure SmolLM2 on real text and write benchmarks/results/smollm2.md, .json and two pictures.

    python -m benchmarks.smollm2 DIR      # DIR: for the model, the texts and the page

Also: time and memory of one text in a process of its own, and of 32 heads of 4096 synthetic tokens
beside the route that holds T × T.
"""

import json
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import xarray

from benchmarks.bench.machine import describe
from benchmarks.model_files import texts
from sparsity.attention.checkpoints import smollm2
from sparsity.attention.claims.head_evidence import LAWS
from sparsity.attention.measurement import sinks, tables
from sparsity.attention.page import COLUMNS

RESULTS = Path(__file__).parent / "results"
HEADS, KV, LENGTH, DIM = 32, 8, 4096, 64


TEMPLATE = """# SmolLM2-135M-Instruct, measured

`python -m benchmarks.smollm2 DIR`, on {where}.
Python's licence and three pages of its documentation, the first 512 tokens of each.

## By context length

{table}

At context length T: all rows with T/2 < n ≤ T of all layers, heads and texts. n_eff, γ̂ and the
ratios of S to its law are medians; rank correlations are Spearman's over rows. From "without sinks"
on, all sinks are left out: every key that takes more than 0.1 of a head's weight on average,
wherever it is. Sinks > 0.3: heads in which all sinks together have more than 0.3 of the weight of
these rows.

## The first token alone, and whole rows

{first}

Published > ε: heads in which the first token's mean weight over all rows up to T exceeds ε, the
early rows too. Late rows: over T/2 < n ≤ T, ε = 0.3. S/exact without: of rows without that token
alone.

## By text

{texts}

T = 512, without BOS. The interval is that of the mean over other such texts (bootstrap over texts).
S/exact: first without all sinks, last without the first token alone.

| text | sinks: position, token (heads) |
|---|---|
{sinks}

## The law of a real head

{heads}

Without sinks, every eighth row above T/2, without BOS. The second law is given the row's largest
logit; the third multiplies γ̂ by one constant κ of the head, fitted on the other texts.

![Measured S over three laws, against its rank](smollm2-head-law.png)

## Beside Gaussian rows

{gaussian}

Rows without their sinks, and 4000 rows of independent Gaussian logits drawn at the n and γ̂ of
real ones: even these scatter about the law of their mean. Within a quarter: share of rows whose S
is within a quarter of the exact law. Rank: Spearman's correlation of S with the exact law.

## Claims

{verdicts}

With their findings and numbers: `smollm2.json`.

## Cost

| what | seconds | peak GiB |
|---|---|---|
{costs}

## The forward pass against that of transformers

`SPARSITY_MODEL=DIR python -m pytest -m model -s tests/test_real_model.py` holds it, on 512 tokens,
against `LlamaForCausalLM` of transformers, which reads the same file by its own code. Largest
difference of any attention weight 1.2e-5 (must be < 1e-4), of any logit 1.1e-4 (< 1e-3), of the
loss < 1e-4.
"""


def arrays():
    rng = np.random.default_rng(0)
    q = 1.5 * rng.normal(size=(HEADS, LENGTH, DIM)).astype(np.float32)
    return q, rng.normal(size=(KV, LENGTH, DIM)).astype(np.float32)


def blocks():
    from sparsity import measure

    q, k = arrays()
    started = time.perf_counter()
    data = measure(queries=q, keys=k)
    return (
        time.perf_counter() - started,
        float(data.n_eff.mean()),
        float(data.gamma[..., -1].mean()),
    )


def naive():
    """S, n_eff, entropy, sink and the first four moments only, with every T × T at once."""
    q, k = arrays()
    started = time.perf_counter()
    seen = np.tri(LENGTH, dtype=bool)
    n = np.arange(1, LENGTH + 1, dtype=np.float32)
    s = q.reshape(KV, -1, LENGTH, DIM) @ k[:, None].swapaxes(-1, -2) / np.float32(DIM**0.5)
    s = s.reshape(HEADS, LENGTH, LENGTH)
    away = np.where(seen, s - (np.where(seen, s, 0).sum(-1) / n)[..., None], 0)
    square = away * away
    moments = [x.sum(-1) / n for x in (square, square * away, square * square)]
    del away, square
    p = np.where(seen, np.exp(s - s.max(-1, keepdims=True)), 0)
    p /= p.sum(-1, keepdims=True)
    n_eff = 1 / (p * p).sum(-1)
    others = [(p * np.log(np.where(p > 0, p, 1))).sum(-1), np.sort(p, -1)[..., -64:].sum(-1)]
    assert all(np.isfinite(x).all() for x in [*moments, *others])
    gamma = np.sqrt(moments[0][:, -1] * LENGTH / (LENGTH - 1))
    return time.perf_counter() - started, float(n_eff.mean()), float(gamma.mean())


def apart(*command):
    """A command in a process of its own: (its output, seconds, GiB at the peak)."""
    watch = (
        "import resource, subprocess, sys, time; t = time.perf_counter();"
        "r = subprocess.run(sys.argv[1:], check=True, stdout=sys.stderr);"
        "t = time.perf_counter() - t;"
        "print(t, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 2**20)"
    )
    done = subprocess.run(
        [sys.executable, "-c", watch, *map(str, command)],
        check=True,
        capture_output=True,
        text=True,
    )
    seconds, peak = map(float, done.stdout.split())
    return done.stderr, seconds, peak


def lines(titles, rows):
    head = ["| " + " | ".join(titles) + " |", "|---" * len(titles) + "|"]
    return "\n".join([*head, *("| " + " | ".join(row) + " |" for row in rows)])


def markdown(rows, columns):
    cells = [
        ["yes" if row["bos"] else "no", *(f"{row[key]:{form}}" for key, *_, form in columns)]
        for row in rows
    ]
    return lines(["BOS", *(title for _, _, title, _ in columns)], cells)


def by_text(answer):
    texts, over = answer["texts"], answer["over texts"]
    rows = [[x["text"], *(f"{x[key]:{form}}" for key, _, form in COLUMNS)] for x in texts]
    rows.append(["mean", *(f"{over[key]['value']:{form}}" for key, _, form in COLUMNS)])
    ends = [[f"{end:{form}}" for end in over[key]["ci95"]] for key, _, form in COLUMNS]
    rows.append(["95 %", *(f"{low} to {high}" for low, high in ends)])
    return lines(["text", *(title for _, title, _ in COLUMNS)], rows)


def sinks_of(path):
    """The sinks of each text, those of most heads first."""
    out = []
    with xarray.open_dataset(path) as data:
        for name in data["text"].values:
            run = data.isel(bos=0).sel(text=name)
            found = sinks.list_sinks(
                run["key_importance"].values, [str(x) for x in run["token"].values]
            )
            found.sort(key=lambda x: -x["heads"])
            few = [
                f"{x['position']} “{sinks.spell_token(x['token'])}” ({x['heads']})" for x in found
            ]
            more = f", {len(few) - 4} more" if len(few) > 4 else ""
            out.append(f"| {name} | {', '.join(few[:4])}{more} |")
    return "\n".join(out)


def heads(found):
    rows = [
        [kind + LAWS[name], f"{x['ratio']:.3f}", f"{x['rank']:.3f}", f"{x['within']:.1%}",
         str(x["rows"])]
        for kind, laws in (("", found["laws"]), ("Gaussian rows: ", found["gaussian"]))
        for name, x in laws.items()
    ]  # fmt: skip
    return lines(["law", "median S/law", "rank of rows", "within a quarter", "rows"], rows)


def gaussian(rows):
    names = ("ratio", "within", "rank_exact")
    titles = ["BOS", "T", "median S/exact", "Gaussian", "within a quarter", "Gaussian"]
    titles += ["rank", "Gaussian"]
    lines = ["| " + " | ".join(titles) + " |", "|---" * len(titles) + "|"]
    for row in rows:
        cells = [f"{row[which][name]:.2f}" for name in names for which in ("real", "gaussian")]
        lines.append(f"| {'yes' if row['bos'] else 'no'} | {row['T']} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main(folder):
    folder.mkdir(parents=True, exist_ok=True)
    model, page = smollm2(folder), folder / "page"
    given = [x for path in texts(folder) for x in ("--text", path)]
    sparsity = [sys.executable, "-m", "sparsity", "measure", "--model", model, "--json"]
    _, seconds, peak = apart(*sparsity, *given[:2], "--out", folder / "one.nc")
    out, all_seconds, all_peak = apart(
        *sparsity, *given, "--out", folder / "all.nc", "--head-law", "--report", page
    )
    answer = json.loads(next(line for line in out.splitlines() if line.startswith("{")))
    routes = {}
    for name in ("blocks", "naive"):
        out, _, gib = apart(sys.executable, __file__, name)
        took, n_eff, gamma = json.loads(out.splitlines()[-1])
        routes[name] = {"seconds": took, "peak_gib": gib, "n_eff": n_eff, "gamma": gamma}
    assert abs(routes["blocks"]["n_eff"] / routes["naive"]["n_eff"] - 1) < 1e-4
    assert abs(routes["blocks"]["gamma"] / routes["naive"]["gamma"] - 1) < 1e-4
    machine = describe()
    answer |= {"one_text": {"seconds": seconds, "peak_gib": peak}, "synthetic": routes}
    answer |= {"all_texts": {"seconds": all_seconds, "peak_gib": all_peak}, "machine": machine}
    answer["files"] = []
    (RESULTS / "smollm2.json").write_text(
        json.dumps(answer, ensure_ascii=False, indent=1) + "\n", "utf-8"
    )
    shutil.copy(page / "laws.png", RESULTS / "smollm2-laws.png")
    shutil.copy(page / "head_law.png", RESULTS / "smollm2-head-law.png")
    loss = "\n".join(
        f"| {x['text']} | {'yes' if x['bos'] else 'no'} | {x['nats']:.3f} |" for x in answer["loss"]
    )
    verdicts = "\n".join(f"- **{c['verdict']}**: {c['claim']}" for c in answer["claims"])
    stated = {k: v for k, v in machine.items() if k != "versions"} | machine["versions"]
    where = ", ".join(f"{key} {value}" for key, value in stated.items())
    block, whole = routes["blocks"], routes["naive"]
    cost = [
        ("`sparsity measure`, one text, start to end", seconds, peak),
        (
            f"{len(given) // 2} texts with and without BOS, the law of heads, and the page",
            all_seconds,
            all_peak,
        ),
        (f"{HEADS} heads, T = {LENGTH}, random q and k, in blocks", *block.values()),
        ("the same, T × T at once: S, n_eff, entropy, top 64, moments", *whole.values()),
    ]
    costs = "\n".join(f"| {what} | {took:.1f} | {gib:.2f} |" for what, took, gib, *_ in cost)
    ideal = gaussian(answer["claims"][0]["evidence"]["numbers"]["by context length"])
    report = TEMPLATE.format(
        where=where,
        table=markdown(answer["table"], tables.COLUMNS),
        first=markdown(answer["table"], [tables.COLUMNS[0], *tables.FIRST_TOKEN]),
        texts=by_text(answer),
        sinks=sinks_of(folder / "all.nc"),
        heads=heads(answer["head_law"]),
        gaussian=ideal,
        loss=loss,
        verdicts=verdicts,
        costs=costs,
    )
    (RESULTS / "smollm2.md").write_text(report, "utf-8")


if __name__ == "__main__":
    if sys.argv[1] in ("blocks", "naive"):
        print(json.dumps({"blocks": blocks, "naive": naive}[sys.argv[1]]()), file=sys.stderr)
    else:
        main(Path(sys.argv[1]))
