"""The one-pass measures of attention against the attention itself: time and memory.

    python -m benchmarks.streaming [--out DIR] [--lengths N …]

Needs PyTorch (`pip install torch`); takes three minutes on two cores. 8 heads, d = 64, causal,
float32, random queries and keys. Contestants take turns; ratios are medians of the ratios within a
round. Memory is the peak of a process of its own over what it held with its queries and keys and a
short row measured. Writes streaming.md.
"""

from __future__ import annotations

import argparse
import functools
import math
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import sparsity
from benchmarks.bench.machine import describe
from benchmarks.bench.timing import paired, ratio

RESULTS = Path(__file__).parent / "results"
HEADS, DIM = 8, 64
LENGTHS = (4096, 8192, 32768)
ASKED = {4096: 4.0}  # times SDPA, at most
AGAINST_BLOCKED, MEMORY, LONG_SECONDS = 1.5, 100.0, 10.0


def arrays(length: int, heads: int = HEADS, count: int = 3) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.standard_normal((heads, length, DIM), np.float32) for _ in range(count)]


@functools.partial(jax.jit, static_argnames=("size",))
def blocked(q: Any, k: Any, size: int = 256) -> Any:
    """n_eff as one would write it in JAX: blocks of queries against all keys before them."""

    def rows(i: Any) -> Any:
        part = jax.lax.dynamic_slice_in_dim(q, i * size, size, axis=1)
        s = jnp.einsum("hqd,hkd->hqk", part, k) / math.sqrt(DIM)
        seen = jnp.arange(k.shape[1]) <= (i * size + jnp.arange(size))[:, None]
        e = jnp.exp(jnp.where(seen, s - s.max(-1, keepdims=True), -jnp.inf))
        return e.sum(-1) ** 2 / (e * e).sum(-1)

    return jax.lax.map(rows, jnp.arange(q.shape[1] // size))


def contestants(length: int) -> dict[str, Callable[[int], Any]]:
    import torch  # pyright: ignore[reportMissingImports]

    q, k, v = arrays(length)
    tq, tk, tv = (torch.from_numpy(x[None]) for x in (q, k, v))
    jq, jk = jnp.asarray(q), jnp.asarray(k)

    def attention(_: int) -> Any:
        with torch.no_grad():
            return torch.nn.functional.scaled_dot_product_attention(tq, tk, tv, is_causal=True)

    works: dict[str, Callable[[int], Any]] = {
        "SDPA": attention,
        "five statistics": lambda _: jax.block_until_ready(sparsity.stream(jq, jk)),
    }
    if length <= 8192:
        works["n_eff"] = lambda _: jax.block_until_ready(sparsity.stream(jq, jk, "n_eff"))
        works["blocked JAX n_eff"] = lambda _: jax.block_until_ready(blocked(jq, jk))
    if length <= 4096:
        works["measure"] = lambda _: sparsity.measure(queries=q, keys=k)
    return works


_MEMORY = """
import sys
import jax, jax.numpy as jnp
from benchmarks import streaming
from benchmarks.bench.resources import peak_mib
import sparsity
q, k = map(jnp.asarray, streaming.arrays({length}, count=2))
jax.block_until_ready(sparsity.stream(q[:, :512], k[:, :512]))
with open("/proc/self/clear_refs", "w") as reset:  # Linux: the peak from here on
    reset.write("5")
before = peak_mib()
jax.block_until_ready(sparsity.stream(q, k))
print(peak_mib() - before)
"""


def memory(length: int) -> float:
    """MiB over the start, in a process of its own."""
    root = Path(__file__).resolve().parents[1]
    code = _MEMORY.format(length=length)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True,
                          check=True, cwd=root)  # fmt: skip
    return float(done.stdout)


def long_context() -> float:
    """Seconds of 256 log-spaced rows of 32 heads over 32,768 keys, compiling included."""
    q, k = (jnp.asarray(x) for x in arrays(32768, heads=32, count=2))
    rows = sparsity.streaming.log_spaced(32768, 256)
    started = time.perf_counter()
    jax.block_until_ready(sparsity.stream(q, k, rows=rows))
    return time.perf_counter() - started


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the results")
    parser.add_argument("--lengths", type=int, nargs="+", default=LENGTHS, help="tokens")
    options = parser.parse_args()

    about = describe()
    versions = ", ".join(f"{name} {found}" for name, found in about["versions"].items())
    lines = [
        "# Measures in one pass", "",
        f"`python -m benchmarks.streaming` on {about['cpu']}, {about['cores']} cores, {versions}. "
        f"{HEADS} heads, d = {DIM}, causal, float32. Five statistics: n_eff, entropy, γ̂, largest "
        "logit, sink mass.", "",
        "| tokens | what | seconds | times SDPA | MiB over the start |",
        "| ---: | --- | ---: | ---: | ---: |",
    ]  # fmt: skip
    missed = []
    for length in options.lengths:
        works = contestants(length)
        for work in works.values():
            work(0)  # compiles
        done = paired(works, 5 if length <= 8192 else 1).seconds
        held = memory(length)
        if held > MEMORY:
            missed.append(f"{held:.0f} MiB at {length}")
        for what, seconds in done.items():
            times = ratio(seconds, done["SDPA"])
            own = f"{held:.0f}" if what == "five statistics" else ""
            lines.append(f"| {length} | {what} | {median(seconds):.3f} | {times:.2f} | {own} |")
            if what == "five statistics" and times > ASKED.get(length, math.inf):
                missed.append(f"{times:.2f} times SDPA at {length}")
        if "blocked JAX n_eff" in done:
            times = ratio(done["n_eff"], done["blocked JAX n_eff"])
            lines.append(f"| {length} | n_eff over blocked JAX | | {times:.2f} | |")
            if times > AGAINST_BLOCKED:
                missed.append(f"n_eff {times:.2f} times blocked JAX at {length}")
    seconds = long_context()
    lines += ["", f"256 log-spaced rows of 32 heads over 32,768 keys: {seconds:.1f} s, compiling "
              "included."]  # fmt: skip
    if seconds > LONG_SECONDS:
        missed.append(f"{seconds:.1f} s for the long context")
    text = "\n".join(lines) + "\n"
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "streaming.md").write_text(text, encoding="utf-8")
    print(text)
    print("missed: " + "; ".join(missed) if missed else "all reached")
    return 1 if missed else 0


if __name__ == "__main__":
    raise SystemExit(main())
