"""What measuring a model costs beside running it: CPU seconds and memory, in one process each.

    python -m benchmarks.measure_model [TOKENS]

SmolLM2-135M in single precision on one thread, loading left out. A turn runs the model plainly and
then measures it, in new processes; the ratio is the median of those of five turns, with the least
and the largest, since neighbours on a machine slow both runs of a turn alike. The plain run makes
scores of the vocabulary at every token; measuring leaves them out.
"""

import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.model_files import smollm2, texts
from sparsity.attention.library import library

TURNS = 5


def one(what: str, tokens: int, folder: Path) -> None:
    """Print CPU seconds and peak memory in MB of a run."""
    torch = library("torch", "torch")

    from sparsity.attention.torch.models import load, measure_transformers

    torch.set_num_threads(1)
    model, tokenizer = load(smollm2(folder))
    text = "\n".join(path.read_text("utf-8") for path in texts(folder))
    ids = tokenizer(text)["input_ids"][:tokens]
    assert len(ids) == tokens, len(ids)
    act = measure_transformers if what == "measured" else run
    act(model, ids[:64])  # what is compiled or loaded on first use
    start = time.process_time()
    act(model, ids)
    seconds = time.process_time() - start
    print(seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)


def run(model, ids) -> None:
    torch = library("torch", "torch")

    with torch.no_grad():
        model(input_ids=torch.as_tensor(ids)[None], use_cache=False)


def main(tokens: int) -> None:
    found: dict[str, list[list[float]]] = {"plain": [], "measured": []}
    with tempfile.TemporaryDirectory() as folder:
        smollm2(Path(folder))
        for _ in range(TURNS):
            for what, kept in found.items():
                command = [sys.executable, "-m", "benchmarks.measure_model", what, str(tokens)]
                done = subprocess.run(
                    [*command, folder], capture_output=True, text=True, check=True
                )
                kept.append([float(x) for x in done.stdout.split()])
                print(f"{what:8} {kept[-1][0]:7.2f} s {kept[-1][1]:7.0f} MB", flush=True)
    turns = zip(found["plain"], found["measured"], strict=True)
    ratios = [[b / a for a, b in zip(*turn, strict=True)] for turn in turns]
    (low, time_ratio, high), (_, memory, _) = (
        (min(x), statistics.median(x), max(x)) for x in zip(*ratios, strict=True)
    )
    print(
        f"{tokens} tokens: {time_ratio:.2f} × the time ({low:.2f} to {high:.2f}), "
        f"{memory:.2f} × the memory"
    )


if __name__ == "__main__":
    if len(sys.argv) > 3:
        one(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]))
    else:
        main(int(sys.argv[1]) if len(sys.argv) > 1 else 2048)
