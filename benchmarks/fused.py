"""Statistics by a fused attention kernel: how much longer than one call of it, and how exact.

    python -m benchmarks.fused [--out DIR] [--quick]

Runs on what it finds, at most two minutes: PyTorch and JAX, each on a GPU where it has one and else
on the CPU; neither has to be there. One text, causal, head dimension 64, random queries and keys
whose scores have a spread of 3. Lengths go up until a call takes too long, the
kernel would hold too much or the time is over; what was left out is said. The statistics take
turns with the plain forward call, which does not return a log-sum-exp; ratios are medians of the
ratios within a round. Errors are those against the weights themselves in float64 by NumPy, from the
queries and keys as the kernel reads them. Writes fused.md; exit 1 where an error is too large.
"""

from __future__ import annotations

import argparse
import functools
import importlib
import math
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # leaves PyTorch its memory

import numpy as np

from benchmarks.bench.machine import describe
from benchmarks.bench.timing import paired, ratio
from sparsity.attention.fused import FusedRows, fused_rows, jax_attend, torch_attend

RESULTS = Path(__file__).parent / "results"
DIM, SPREAD = 64, 3.0
HEADS = {"cpu": 1, "gpu": 8}
LENGTHS = {"cpu": (1024, 4096, 16384), "gpu": (1024, 4096, 16384, 65536, 131072)}
DEADLINE = 100.0  # seconds; no contestant begins a length after that
LONGEST = {"cpu": 1.5, "gpu": 0.6}  # seconds of one plain call, at most
HELD = 2**29  # bytes of scores, at most, for a kernel that holds them all
LAST = 2048  # rows and keys at the end of a text that are held against NumPy
BLOCK = 256  # rows at a time there
BOUND = {"float32": 1e-4, "bfloat16": 1e-3}  # of an error, at most; the table has what it is
ROUNDED = 0.1  # of e^entropy in bfloat16, as E s comes from an output with 8 bits
ASKED = {
    "n_eff": ("n_eff",),
    "entropy": ("entropy",),
    "received mass": ("received",),
    "all of them": FusedRows._fields,
}


class Peer(NamedTuple):
    """A kernel to be timed.

    Args:
        name: what it is called in the table.
        device: "cpu" or "gpu".
        dtype: name of its precision.
        holds: whether it holds all scores at once.
        put: NumPy array -> its own on the device, in its precision.
        plain: (q, k, v) -> the output of one forward call, done.
        statistics: (q, k, which fields) -> FusedRows, done.
    """

    name: str
    device: str
    dtype: str
    holds: bool
    put: Callable[[np.ndarray], Any]
    plain: Callable[[Any, Any, Any], Any]
    statistics: Callable[[Any, Any, tuple[str, ...]], FusedRows]


def torch_peers() -> Iterator[Peer]:
    """PyTorch's attention: flash in half precision on a GPU, memory-efficient in single there."""
    tt = importlib.import_module("torch")
    device = "gpu" if tt.cuda.is_available() else "cpu"
    where = "cuda" if device == "gpu" else "cpu"
    kernels = {"float32": "memory-efficient", "bfloat16": "flash"}
    backend = importlib.import_module("torch.nn.attention").SDPBackend
    fused = [backend.FLASH_ATTENTION, backend.EFFICIENT_ATTENTION]
    for dtype in ("float32", "bfloat16"):

        def done(x: Any) -> Any:
            if device == "gpu":
                tt.cuda.synchronize()
            return x

        def plain(q: Any, k: Any, v: Any, done: Any = done) -> Any:
            with tt.no_grad(), tt.nn.attention.sdpa_kernel(fused):  # the same kernels as below
                return done(tt.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True))

        def statistics(q: Any, k: Any, of: tuple[str, ...], done: Any = done) -> FusedRows:
            with tt.no_grad():
                return done(fused_rows(torch_attend, q, k, of=of))

        kernel = kernels[dtype] if device == "gpu" else "flash"
        name = f"PyTorch {kernel}"
        real = getattr(tt, dtype)

        def put(x: np.ndarray, real: Any = real) -> Any:
            return tt.from_numpy(x).to(where, real)

        yield Peer(name, device, dtype, False, put, plain, statistics)


def cudnn_attend(q: Any, k: Any, v: Any, scale: float, causal: bool) -> tuple[Any, Any]:
    """cuDNN's attention with L in float32: `jax.nn` rounds it to the precision of the queries."""
    jax = importlib.import_module("jax")
    own = importlib.import_module("jax._src.cudnn.fused_attention_stablehlo")
    mask = own.MaskType.CAUSAL if causal else own.MaskType.NO_MASK
    heads_inside = (jax.numpy.moveaxis(x, -3, -2) for x in (q, k, v))
    out, lse = own.dot_product_attention(
        *heads_inside, scale=scale, mask_type=mask, return_residual=True
    )
    return jax.numpy.moveaxis(out, -2, -3), lse


def jax_peers() -> Iterator[Peer]:
    """`jax.nn.dot_product_attention`: XLA's, which holds all scores, and cuDNN's on a GPU."""
    jax = importlib.import_module("jax")
    device = "gpu" if jax.default_backend() == "gpu" else "cpu"
    kinds = [("XLA", "float32", True, "xla", jax_attend)]
    if device == "gpu":
        kinds.append(("cuDNN", "bfloat16", False, "cudnn", cudnn_attend))
    for kernel, dtype, holds, implementation, attend in kinds:

        @jax.jit
        def call(q: Any, k: Any, v: Any, implementation: str = implementation) -> Any:
            heads_inside = (jax.numpy.moveaxis(x, 1, 2) for x in (q, k, v))
            return jax.nn.dot_product_attention(
                *heads_inside, is_causal=True, implementation=implementation
            )

        @functools.partial(jax.jit, static_argnames="of")
        def read(q: Any, k: Any, of: tuple[str, ...], attend: Any = attend) -> FusedRows:
            return fused_rows(attend, q, k, of=of)

        def plain(q: Any, k: Any, v: Any, call: Any = call) -> Any:
            return jax.block_until_ready(call(q, k, v))

        def statistics(q: Any, k: Any, of: tuple[str, ...], read: Any = read) -> FusedRows:
            return jax.block_until_ready(read(q, k, of))

        def put(x: np.ndarray, dtype: str = dtype) -> Any:
            return jax.numpy.asarray(x, dtype)

        yield Peer(f"JAX {kernel}", device, dtype, holds, put, plain, statistics)


def numbers(x: Any) -> np.ndarray:
    """An array of any library, in float64 on the host."""
    if hasattr(x, "detach"):
        return x.detach().double().cpu().numpy()
    return np.asarray(x).astype(np.float64)


def by_numpy(q: np.ndarray, k: np.ndarray) -> dict[str, np.ndarray]:
    """Statistics of the last rows, and of the last keys, of one head, from the weights themselves.

    Only the last rows see the last keys, so that these are whole without the rest of the matrix.
    """
    n = len(q)
    first = max(0, n - LAST)
    n_eff, entropy = np.empty(n - first), np.empty(n - first)
    received = np.zeros(n - first)
    for start in range(first, n, BLOCK):
        rows = np.arange(start, min(start + BLOCK, n))
        s = q[rows] @ k[: rows[-1] + 1].T / math.sqrt(DIM)
        s[np.arange(s.shape[1]) > rows[:, None]] = -np.inf
        s -= s.max(1, keepdims=True)
        e = np.exp(s)
        total = e.sum(1)
        n_eff[rows - first] = total**2 / (e * e).sum(1)
        with np.errstate(invalid="ignore"):
            s *= e
        entropy[rows - first] = np.log(total) - np.nansum(s, 1) / total
        received[: rows[-1] + 1 - first] += (e / total[:, None]).sum(0)[first:]
    return {"n_eff": n_eff, "entropy": entropy, "received": received}


def errors(found: FusedRows, truth: dict[str, np.ndarray]) -> dict[str, float]:
    """The largest relative error of each statistic; of the entropy, that of its exponential.

    What all keys receive is the number of rows: an identity that reaches every row and key.
    """
    head = {name: numbers(getattr(found, name)[0, 0]) for name in truth}
    last = {name: x[-len(truth[name]) :] for name, x in head.items()}
    off = {name: last[name] / truth[name] - 1 for name in ("n_eff", "received")}
    off["entropy"] = np.expm1(last["entropy"] - truth["entropy"])
    off["all received"] = np.array(head["received"].sum() / len(head["received"]) - 1)
    return {name: float(np.abs(x).max()) for name, x in off.items()}


def measured(peer: Peer, length: int, rounds: int) -> dict[str, Any]:
    """Seconds, ratios to the plain call and errors at one length, or why it was left out."""
    heads = HEADS[peer.device]
    rng = np.random.default_rng(length)
    drawn = [rng.standard_normal((1, heads, length, DIM), np.float32) for _ in range(3)]
    q, k, v = map(peer.put, (np.float32(SPREAD) * drawn[0], *drawn[1:]))
    works: dict[str, Callable[[int], Any]] = {"plain": lambda _: peer.plain(q, k, v)}
    for name, of in ASKED.items():
        works[name] = lambda _, of=of: peer.statistics(q, k, of)
    works["plain"](0)  # compiles
    started = time.perf_counter()
    works["plain"](0)
    taken = time.perf_counter() - started
    if taken > LONGEST[peer.device]:
        return {"left_out": f"{taken:.1f} s a call"}
    for name in ASKED:
        found = works[name](0)
    truth = by_numpy(numbers(q[0, 0]), numbers(k[0, 0]))
    off = errors(found, truth)
    repeats = max(1, min(20, int(0.02 / max(taken, 1e-6))))  # a round is no shorter than 20 ms

    def repeated(work: Callable[[int], Any]) -> Callable[[int], Any]:
        return lambda i: [work(i) for _ in range(repeats)] and None

    done = paired({name: repeated(work) for name, work in works.items()}, rounds).seconds
    times = {name: ratio(done[name], done["plain"]) for name in ASKED}
    return {"seconds": median(done["plain"]) / repeats, "times": times, "errors": off}


def allowed(name: str, dtype: str) -> float:
    """The largest error that passes."""
    return ROUNDED if (name, dtype) == ("entropy", "bfloat16") else BOUND[dtype]


def tables(results: list[tuple[Peer, int, dict[str, Any]]]) -> list[str]:
    """The lines of two tables, cost and error, with a row for each kernel and length."""
    cost = [
        "| kernel | tokens | plain call, ms | n_eff | entropy | received mass | all |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    error = [
        "| kernel | tokens | n_eff | e^entropy | received mass | its sum |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    left_out = []
    for peer, length, found in results:
        start = f"| {peer.name}, {peer.dtype} | {length:,} |"
        if "left_out" in found:
            left_out.append(f"{peer.name}, {peer.dtype}, {length:,} tokens: {found['left_out']}")
            continue
        times = " | ".join(f"{found['times'][name]:.2f}" for name in ASKED)
        cost.append(f"{start} {1e3 * found['seconds']:.2f} | {times} |")
        names = ("n_eff", "entropy", "received", "all received")
        off = " | ".join(f"{found['errors'][name]:.1e}" for name in names)
        error.append(f"{start} {off} |")
    said = ["", "Left out, and what is longer: " + "; ".join(left_out) + "."] if left_out else []
    return [
        "## Cost, in plain calls",
        "",
        *cost,
        "",
        "## Largest relative error",
        "",
        *error,
        *said,
    ]


def devices() -> str:
    """What ran: the CPU, and the GPU as PyTorch or JAX calls it."""
    about = describe()
    torch, jax = sys.modules.get("torch"), sys.modules.get("jax")
    gpu = ""
    if torch and torch.cuda.is_available():
        gpu = f", {torch.cuda.get_device_name(0)}"
    elif jax and jax.default_backend() == "gpu":
        gpu = f", {about['jax device']}"
    versions = ", ".join(f"{name} {found}" for name, found in about["versions"].items())
    return f"{about['cpu']}, {about['cores']} cores{gpu}, {versions}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of fused.md")
    parser.add_argument("--quick", action="store_true", help="1,024 tokens, to see that it works")
    options = parser.parse_args()

    began = time.perf_counter()
    peers: list[Peer] = []
    notes: list[str] = []
    for name, builder in (("PyTorch", torch_peers), ("JAX", jax_peers)):
        try:
            peers += builder()
        except ImportError:
            notes.append(f"{name} is not installed.")
    results: list[tuple[Peer, int, dict[str, Any]]] = []
    gone: set[str] = set()
    lengths = sorted({n for peer in peers for n in LENGTHS[peer.device]})
    for length in lengths[:1] if options.quick else lengths:
        for peer in peers:
            key = f"{peer.name} {peer.dtype}"
            if length not in LENGTHS[peer.device] or key in gone:
                continue
            held = 4 * HEADS[peer.device] * length**2
            if peer.holds and held > HELD:
                found = {"left_out": f"would hold {held / 2**30:.0f} GiB of scores"}
            elif time.perf_counter() - began > DEADLINE:
                found = {"left_out": "the time was over"}
            else:
                try:
                    found = measured(peer, length, 3 if options.quick or length > 4096 else 5)
                except Exception as error:  # noqa: BLE001 one kernel that fails leaves the others
                    found = {"left_out": f"{type(error).__name__}: {str(error)[:120]!r}"}
            if "left_out" in found:
                gone.add(key)
            results.append((peer, length, found))
            print(peer.name, peer.dtype, length, found, flush=True)

    order = {peer.name + peer.dtype: i for i, peer in enumerate(peers)}
    results.sort(key=lambda found: (order[found[0].name + found[0].dtype], found[1]))
    heads = ". ".join(sorted({f"Heads on a {p.device.upper()}: {HEADS[p.device]}" for p in peers}))
    lines = [
        "# Fused kernels as instruments: cost and error", "",
        f"`python -m benchmarks.fused` on {devices()}. {heads}; d = {DIM}, causal, scores of "
        f"spread γ = {SPREAD:g}. Costs are ratios to the plain forward call, medians over rounds; "
        "n_eff takes two calls that return the log-sum-exp, the entropy "
        "one, the received mass two, all of them three. XLA leaves out the product with the values "
        "where only the log-sum-exp is read. Errors are the largest relative ones against the "
        f"weights in float64 by NumPy, over the last {LAST:,} rows and keys of a head; what "
        "all keys receive together must be the number of rows. For bfloat16 the queries and "
        "keys are rounded before both.", "", *tables(results), "", *notes,
    ]  # fmt: skip
    bad = [
        f"{peer.name} {peer.dtype} at {length}: {name} off by {off:.1e}"
        for peer, length, found in results
        for name, off in found.get("errors", {}).items()
        if not off <= allowed(name, peer.dtype)
    ]
    lines += [f"Too far off: {line}." for line in bad]
    text = "\n".join(lines).rstrip() + "\n"
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "fused.md").write_text(text, encoding="utf-8")
    print(text)
    return 1 if bad else 0


if __name__ == "__main__":
    raise SystemExit(main())
