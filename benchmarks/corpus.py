"""Fifty texts through the command line, ended by kill -9 and gone on with.

python -m benchmarks.corpus DIR      # for the model, the texts and what is measured

Writes benchmarks/results/corpus.md.
"""

import hashlib
import json
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from pydoc_data.topics import topics

from benchmarks.bench.machine import describe
from sparsity.attention.checkpoints import smollm2

RESULTS = Path(__file__).parent / "results"
TEXTS, CHARACTERS, KILLED_AFTER = 50, 6000, 10

TEMPLATE = """# Fifty texts, measured

`python -m benchmarks.corpus DIR`, on {where}.
SmolLM2-135M-Instruct (4-bit), {count} texts of 512 tokens without BOS: pages of Python's
documentation, in pieces of {characters} characters; and one text that is too short.

    sparsity measure SmolLM2-135M-Instruct.Q4_1.gguf texts --out whole.nc

| what | |
|---|---|
| summaries of all {rows:,} rows | {size:.2f} MB |
| largest that the folder of finished texts was | {parts:.1f} MB |
| unbroken | {whole:.0f} s |
| killed by signal 9 with {done} texts finished, after | {first:.0f} s |
| the same command again | {second:.0f} s |
| result of the broken run | {same}, SHA-256 {digest}… |
| another request in its place (`--tokens 256`) | exit {code}: `{refused}` |
| passed over | `{passed}` |

## By length

Rows of n/2 < count ≤ n keys, all layers, heads and texts. Medians are read off
histograms (cells of 0.2 in ln n_eff and γ, 0.1 in ln S/exact), which shows in the shortest rows.

{table}

## Over texts

Rows of 257 to 512 keys of each text; mean over texts, with a 95 % interval by the bootstrap over
texts. Sinks are the keys that take more than 0.1 of the weight on average over the rows that see
them. Rates are shares of heads: `sink_rate` and `any_rate`, where the importance of the first
token, or of any key, exceeds 0.3 over all rows; `late_rate` and `sinks_rate`, where the mean weight
of the first token, or of all sinks together, does over these rows.

{spread}

## The sinks

Of the {sinks} pairs of text and key that are a sink of some head, by token:

{tokens}
"""


def texts(folder: Path) -> Path:
    """Pieces of pages, and one too short."""
    folder.mkdir(parents=True, exist_ok=True)
    pieces = {
        f"{name}-{i}": text[at : at + CHARACTERS]
        for name, text in sorted(topics.items())
        for i, at in enumerate(range(0, len(text) - CHARACTERS, CHARACTERS))
    }
    for name in list(pieces)[:TEXTS]:
        (folder / f"{name}.txt").write_text(pieces[name], "utf-8")
    (folder / "short.txt").write_text("Too short to count.", "utf-8")
    return folder


def start(model: Path, home: Path, out: Path, *options: str) -> subprocess.Popen[str]:
    words = [sys.executable, "-m", "sparsity", "measure", model, home, "--out", out, "--json"]
    command = [*map(str, words), *options]
    return subprocess.Popen(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def finished(model: Path, home: Path, out: Path) -> tuple[dict, float]:
    started = time.perf_counter()
    process = start(model, home, out)
    shown, err = process.communicate()
    assert process.returncode == 0, err
    return json.loads(shown), time.perf_counter() - started


def size(folder: Path) -> float:
    return sum(path.stat().st_size for path in folder.glob("*")) / 1e6


def broken(model: Path, home: Path, out: Path) -> dict:
    """A run that is killed, refused to another request, and gone on with."""
    parts, started = out.with_name(f".{out.name}.parts"), time.perf_counter()
    shutil.rmtree(parts, ignore_errors=True)
    out.unlink(missing_ok=True)
    process = start(model, home, out)
    while len(list(parts.glob("[0-9a-f]*.npz"))) < KILLED_AFTER:
        assert process.poll() is None, process.communicate()
        time.sleep(0.2)
    process.send_signal(signal.SIGKILL)
    process.wait()
    first, done = time.perf_counter() - started, len(list(parts.glob("[0-9a-f]*.npz")))
    each = size(parts) / done
    other = start(model, home, out, "--tokens", "256")
    _, refused = other.communicate()
    _, second = finished(model, home, out)
    assert not parts.exists()
    return {
        "first": first, "second": second, "done": done, "parts": each * TEXTS,
        "code": other.returncode, "refused": refused.strip().replace(str(out.parent), "DIR"),
    }  # fmt: skip


def markdown(rows: list[dict], columns: dict[str, str]) -> str:
    lines = ["| " + " | ".join(columns) + " |", "|---" * len(columns) + "|"]
    for row in rows:
        cells = [
            "–" if row[k] is None else f"{row[k]:{form}}" if form else str(row[k])
            for k, form in columns.items()
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def by_token(answer: dict) -> str:
    found: dict[str, dict] = {}
    for text in answer["texts"]:
        for sink in text["sinks"]:
            token = "any, at position 1" if sink["position"] == 1 else f"`{sink['token']}`"
            own = found.setdefault(token, {"token": token, "keys": 0, "heads": 0, "texts": set()})
            own["keys"] += 1
            own["heads"] += sink["heads"]
            own["texts"].add(text["text"])
    rows = sorted(found.values(), key=lambda row: -row["heads"])[:8]
    rows = [row | {"texts": len(row["texts"])} for row in rows]
    return markdown(rows, {"token": "", "texts": "d", "keys": "d", "heads": "d"})


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    model, home = smollm2(folder), texts(folder / "texts")
    answer, whole = finished(model, home, folder / "whole.nc")
    told = broken(model, home, folder / "broken.nc")
    one, other = ((folder / f"{name}.nc").read_bytes() for name in ("whole", "broken"))
    machine = describe()
    stated = {k: v for k, v in machine.items() if k != "versions"} | machine["versions"]
    columns = {"n": "d", "rows": ",d", "S": ".3f", "n_eff": ".2f", "n_eff_without_sinks": ".2f"}
    columns |= {"sink_mass": ".3f", "sinks_mass": ".3f", "gamma_without_sinks": ".2f"}
    columns |= {"ratio_exact": ".3f", "ratio_exact_without_sinks": ".3f"}
    spread = [
        {"figure": f"`{name}`", "mean": x["value"], "stderr": x["stderr"]}
        | {"95 %": "{:.3f} to {:.3f}".format(*x["ci95"])}
        for name, x in answer["over texts"].items()
    ]
    report = TEMPLATE.format(
        **told,
        where=", ".join(f"{key} {value}" for key, value in stated.items()),
        count=len(answer["texts"]),
        characters=CHARACTERS,
        rows=sum(row["rows"] for row in answer["table"]),
        size=len(one) / 1e6,
        whole=whole,
        same="the same bytes" if one == other else "OTHER BYTES",
        digest=hashlib.sha256(other).hexdigest()[:16],
        passed="; ".join(answer["passed_over"]).replace(str(folder), "DIR"),
        table=markdown(answer["table"], columns),
        spread=markdown(spread, {"figure": "", "mean": ".3f", "stderr": ".3f", "95 %": ""}),
        sinks=sum(len(text["sinks"]) for text in answer["texts"]),
        tokens=by_token(answer),
    )
    (RESULTS / "corpus.md").write_text(report, "utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
