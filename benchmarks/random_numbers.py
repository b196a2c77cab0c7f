"""Would another generator of random bits make the samplers quicker, and may it be taken?

    python -m benchmarks.random_numbers [--out DIR] [--quick]

Runs on whatever JAX finds, three minutes on two cores. Contestants take turns; rates are medians
over rounds, ratios medians of the ratios within a round. Writes random_numbers.md.

A generator may be taken where it is at least 1.5 times faster inside the samplers, gives the same
bits on any number of devices, and its statistical quality is established.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.bench.machine import describe
from benchmarks.bench.timing import paired, ratio
from benchmarks.generators import ALL, NAMED, Generator, rekeyed
from benchmarks.rekeyed import DIFFER, FAILED, SAME, SAMPLERS, drawn, exact_under_vmap, layout
from sparsity.sampling.batches import CHUNK
from sparsity.sampling.random_numbers import normal

RESULTS = Path(__file__).parent / "results"
TODAY, ASKED = ALL[0].name, 1.5
BLOCK = 2**16
DEVICES = (1, 2, 4)

Way = Callable[[jax.Array, int], jax.Array]


def mapped(way: Way, generator: Generator, blocks: int, size: int) -> Callable[[int], Any]:
    """Blocks of numbers made one after the other, each reduced where it was made."""

    @jax.jit
    def run(seed: Any) -> jax.Array:
        key = rekeyed(jax.random.key(seed, impl="threefry2x32"), generator)
        return jax.lax.map(
            lambda i: way(jax.random.fold_in(key, i), size), jnp.arange(blocks, dtype="uint32")
        )

    def work(seed: int) -> Any:
        with layout(generator):
            return jax.block_until_ready(run(np.uint32(seed)))

    return work


def bits(kind: str) -> Way:
    return lambda key, size: jnp.bitwise_xor.reduce(jax.random.bits(key, (size,), kind))


def box_muller(key: jax.Array, shape: tuple[int, ...], dtype: Any) -> jax.Array:
    """Two normals from two uniforms, without rejection."""
    u, v = jax.random.uniform(key, (2, shape[0] // 2), dtype)
    radius, angle = jnp.sqrt(-2 * jnp.log1p(-u)), 2 * jnp.pi * v
    return jnp.concatenate([radius * jnp.cos(angle), radius * jnp.sin(angle)])


def summed(law: Callable[..., jax.Array], dtype: str) -> Way:
    def way(key: jax.Array, size: int) -> jax.Array:
        z = law(key, (size,), dtype)
        return jnp.stack([z.sum(), (z * z).sum()])

    return way


WAYS: dict[str, Way] = {
    f"{name}, {dtype}": summed(law, dtype)
    for dtype in ("float32", "float64")
    for name, law in {
        "jax.random.normal (erf_inv)": jax.random.normal,
        "montecarlo.normals": normal,
        "Box-Muller": box_muller,
    }.items()
    if (name, dtype) != ("montecarlo.normals", "float64")  # which is JAX's own
}


def timed(
    works: dict[str, Callable[[int], Any]], numbers: float, rounds: int, base: str
) -> dict[str, dict[str, float]]:
    """Numbers a second, speed over the base's, and seconds of the first call."""
    first = {}
    for name, work in works.items():
        started = time.perf_counter()
        work(0)
        first[name] = time.perf_counter() - started
    done = paired(works, rounds).seconds
    return {
        name: {
            "rate": numbers / median(done[name]),
            "ratio": ratio(done[base], done[name]),
            "first": first[name],
        }
        for name in works
    }


def measure(
    generators: Sequence[Generator], quick: bool
) -> Iterator[tuple[str, dict[str, dict[str, float]]]]:
    """The tables: raw bits, normals from free bits, samplers."""
    blocks, rounds = (2, 1) if quick else (64, 9)
    size = 2**10 if quick else BLOCK
    for kind in ("uint32", "uint64"):
        works = {g.name: mapped(bits(kind), g, blocks, size) for g in generators}
        yield f"bits, {kind}", timed(works, blocks * size, rounds, TODAY)
    floor = ALL[-1]
    works = {name: mapped(way, floor, blocks, size) for name, way in WAYS.items()}
    yield "normals", timed(works, blocks * size, rounds, next(iter(WAYS)))
    for name, (sampler, arguments) in SAMPLERS.items():
        if quick and not name.startswith("stratified 32"):
            continue
        per_chunk = CHUNK * sampler.numbers
        chunks = 1 if quick else max(1, 2**22 // per_chunk)
        chunks, calls = (1, min(chunks, 32)) if chunks > 64 else (chunks, 1)  # one pilot a call

        def work(seed: int, g: Generator, s=sampler, a=arguments, c=chunks, k=calls) -> None:
            for call in range(k):
                drawn(s, a, g, c, 100 * seed + call)

        contest = {g.name: lambda seed, g=g, w=work: w(seed, g) for g in generators}
        yield name, timed(contest, per_chunk * chunks * calls, rounds, TODAY)


def reproducible(
    generators: Sequence[Generator], devices: Sequence[int]
) -> dict[str, tuple[str, str]]:
    """By generator: the bits on so many CPU devices, and under vmap."""
    names = [generator.name for generator in generators]
    found: list[dict[str, str]] = []
    for count in devices:
        flags = f"--xla_force_host_platform_device_count={count}"
        environment = os.environ | {"XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"}
        command = [sys.executable, "-m", "benchmarks.rekeyed", *names]
        done = subprocess.run(command, env=environment, capture_output=True, check=True)
        found.append(json.loads(done.stdout))
        print(f"{count} devices: {len(found[-1])} generators", flush=True)
    verdicts = {}
    for name, generator in zip(names, generators, strict=True):
        bits = {f[name] for f in found}
        across = FAILED if FAILED in bits else SAME if len(bits) == 1 else DIFFER
        verdicts[name] = across, SAME if exact_under_vmap(generator) else DIFFER
    return verdicts


def taken(tables: dict[str, Any], same: dict[str, tuple[str, str]]) -> dict[str, list[str]]:
    """The generators that may be taken, by sampler: quick enough, same bits, of known quality."""
    fit = [g.name for g in ALL if g.name in same and g.sound and set(same[g.name]) == {SAME}]
    samplers = [name for name in SAMPLERS if name in tables]
    return {s: [n for n in fit if tables[s][n]["ratio"] >= ASKED] for s in samplers}


def markdown(tables: dict[str, Any], same: dict[str, tuple[str, str]]) -> str:
    """The tables and the finding."""
    where = describe()
    lines = [
        "# Random numbers",
        "",
        f"`python -m benchmarks.random_numbers` on {where['cpu']}, {where['cores']} cores, JAX "
        f"{where['versions']['jax']} on {where['jax device']}. Millions a second, and in brackets "
        f"how many times the speed of {TODAY}, which the library uses. *No generator* counts up: "
        "what it reaches is all that any generator could give.",
        "",
    ]
    heads = [name for name in tables if name != "normals"]
    lines += [f"| | {' | '.join(heads)} |", "| --- |" + " ---: |" * len(heads)]
    generators = [g for g in ALL if g.name in same]
    for g in generators:
        cells = [f"{tables[h][g.name]['rate'] / 1e6:.0f} ({tables[h][g.name]['ratio']:.2f})"
                 for h in heads]  # fmt: skip
        lines.append(f"| {g.name} | {' | '.join(cells)} |")
    lines += [
        "",
        "| | bits of 1, 2, 4 devices | under vmap | quality |",
        "| --- | --- | --- | --- |",
    ]
    for g in generators:
        lines.append(f"| {g.name} | {' | '.join(same[g.name])} | {g.quality} |")
    lines += ["", "| normals from bits that cost nothing | millions a second |", "| --- | ---: |"]
    lines += [f"| {n} | {row['rate'] / 1e6:.0f} |" for n, row in tables["normals"].items()]
    lines += ["", f"## At least {ASKED} times faster, same bits everywhere, of known quality", ""]
    for sampler, names in taken(tables, same).items():
        lines.append(f"- {sampler}: {'; '.join(names) or 'none'}")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the result")
    parser.add_argument("--quick", action="store_true", help="tiny sizes, to see that it works")
    options = parser.parse_args()
    generators = (ALL[0], NAMED["SplitMix64"], ALL[-1]) if options.quick else ALL
    tables = {}
    for name, table in measure(generators, options.quick):
        tables[name] = table
        print(name, flush=True)
        for who, row in table.items():
            print(
                f"  {who:38} {row['rate'] / 1e6:8.1f} M/s  {row['ratio']:.2f}  {row['first']:.2f} s"
            )
    same = reproducible(generators, DEVICES[:2] if options.quick else DEVICES)
    text = markdown(tables, same)
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "random_numbers.md").write_text(text, "utf-8")
    print(text)


if __name__ == "__main__":
    main()
