"""What a watch costs a training step of PyTorch, compiled and not; part of `benchmarks.monitor`.

A pass of a compiled model that is looked at is computed once more, uncompiled and without gradient.
Each contestant trains a model of its own; they take turns in one process.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from typing import Any

import torch  # pyright: ignore[reportMissingImports]

from benchmarks.bench.timing import against_first
from sparsity.attention.monitoring import Watch

LAYERS, HEADS, WIDTH, BATCH, LENGTH, TURN = 4, 4, 256, 8, 128, 20


class Attention(torch.nn.Module):
    """Causal attention of many heads and a network of each token, each beside what it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = torch.nn.Linear(WIDTH, 3 * WIDTH)
        self.up, self.down = torch.nn.Linear(WIDTH, 4 * WIDTH), torch.nn.Linear(4 * WIDTH, WIDTH)
        self.norms = torch.nn.ModuleList(torch.nn.LayerNorm(WIDTH) for _ in range(2))

    def forward(self, x: Any) -> Any:
        q, k, v = (part.unflatten(-1, (HEADS, -1)).transpose(1, 2)
                   for part in self.inner(self.norms[0](x)).chunk(3, -1))  # fmt: skip
        attend = torch.nn.functional.scaled_dot_product_attention
        x = x + attend(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
        return x + self.down(torch.nn.functional.gelu(self.up(self.norms[1](x))))


def trained(backend: str | None, every: int | None) -> Callable[[int], None]:
    """Return a turn of training of a model of its own.

    Args:
        backend: that compiles it; None for none.
        every: of so many passes one is looked at, and logged; None for no watch.
    """
    torch.manual_seed(0)
    model: Any = torch.nn.Sequential(*(Attention() for _ in range(LAYERS)))
    model = torch.compile(model, backend=backend, fullgraph=True) if backend else model
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    given = torch.randn(BATCH, LENGTH, WIDTH)
    watch = Watch(model, every=every) if every else None

    def work(turn: int) -> None:
        with watch or contextlib.nullcontext():
            for _ in range(TURN):
                optimizer.zero_grad()
                model(given).square().mean().backward()
                optimizer.step()
                if watch:
                    watch.log()
        if watch and watch.unseen:
            raise RuntimeError(f"nothing to time: {watch.unseen}")

    return work


def lines(turns: int) -> list[str]:
    """Time the steps and return a table and a sentence for the page of results."""
    found = {}
    for kind, backend in (("compiled by Inductor", "inductor"), ("not compiled", None)):
        works = {
            f"{kind}, no watch": trained(backend, None),
            **({f"{kind}, no watch, again": trained(backend, None)} if backend else {}),
            f"{kind}, every step": trained(backend, 1),
            f"{kind}, every 20th step": trained(backend, 20),
        }
        for work in works.values():
            work(0)  # compiles, and makes the table of the law
        found |= against_first(works, turns, TURN)

    def more(name: str) -> str:
        _, times, error = found[name]
        return f"{100 * (times - 1):.1f} ± {100 * error:.1f} %".replace("-", "−")

    load = os.getloadavg()[1] / (os.cpu_count() or 1)
    return [
        f"`Watch` on a training step of PyTorch: {LAYERS} layers of width {WIDTH}, {BATCH} texts "
        f"of {LENGTH} tokens, 16 rows of every head, logged, AdamW, {torch.get_num_threads()} "
        f"thread(s). CPU time of {turns} turns of {TURN} steps each; {load:.1f} processes "
        "shared a core, other work most of them, of which seconds on a clock would tell:", "",
        "| step | CPU ms | times no watch | standard error |", "| --- | ---: | ---: | ---: |",
        *(f"| {name} | {a:.1f} | {b:.3f} | {c:.3f} |" for name, (a, b, c) in found.items()),
        "",
        f"A compiled step took {more('compiled by Inductor, every step')} more CPU time where each "
        f"was looked at and {more('compiled by Inductor, every 20th step')} with `every=20`; a "
        f"step that is not compiled {more('not compiled, every step')} and "
        f"{more('not compiled, every 20th step')}. The compiled step without a watch took "
        f"{more('compiled by Inductor, no watch, again')} more than itself.",
    ]  # fmt: skip
