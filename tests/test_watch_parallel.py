"""The watch over a model that trains on several processes: each sees its own texts, to the bit."""

import multiprocessing
from collections.abc import Callable
from typing import Any

import pytest

from sparsity.attention.library import library
from sparsity.attention.monitoring import Watch

pytestmark = [
    pytest.mark.model,  # needs PyTorch; run with `pytest -m model`
    pytest.mark.filterwarnings("error:Watch"),
]

T, HEADS, WIDTH, STEPS = 12, 2, 16, 3


def make() -> Any:
    torch = library("torch")

    class Attention(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = torch.nn.Linear(WIDTH, 3 * WIDTH)

        def forward(self, x):
            q, k, v = (part.unflatten(-1, (HEADS, -1)).transpose(1, 2)
                       for part in self.inner(x).chunk(3, -1))  # fmt: skip
            attend = torch.nn.functional.scaled_dot_product_attention
            return x + attend(q, k, v, is_causal=True).transpose(1, 2).flatten(2)

    torch.manual_seed(1)
    return torch.nn.Sequential(Attention(), Attention())


def train(parallel: Any, rank: int, watch: Any = None) -> tuple[list[Any], list[dict[str, float]]]:
    """Loss and weights of each step, and what was logged."""
    torch = library("torch")
    kept, logs = [], []
    optimizer = torch.optim.AdamW(parallel.parameters(), lr=1e-2)
    for step in range(STEPS):
        drawn = torch.Generator().manual_seed(10 * rank + step)
        loss = parallel(3 * torch.randn(2, T, WIDTH, generator=drawn)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        kept += [loss.detach(), *(local(p).clone() for p in parallel.parameters())]
        logs.append(watch.log() if watch else {})
    return kept, logs


def local(parameter: Any) -> Any:
    """The part of a parameter that this process holds."""
    own = parameter.detach()
    return own.to_local() if hasattr(own, "to_local") else own


def sharded(model: Any) -> Any:
    """The model by FSDP2, layer by layer."""
    shard = library("torch.distributed.fsdp").fully_shard
    mesh = library("torch.distributed").init_device_mesh("cpu", (2,))
    for part in model:
        shard(part, mesh=mesh)
    return shard(model, mesh=mesh)


def work(rank: int, size: int, file: str, answers: Any) -> None:
    """Train with and without a watch in one of several processes, and tell what was found."""
    torch, distributed = library("torch"), library("torch.distributed")
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", init_method=f"file://{file}", rank=rank, world_size=size)
    wrappers: list[Callable[[Any], Any]] = [torch.nn.parallel.DistributedDataParallel, sharded]
    try:
        with Watch(make()) as watched_alone:
            _, of_alone = train(watched_alone.model, rank, watched_alone)
        for wrap in wrappers:
            bare, _ = train(wrap(make()), rank)
            parallel = wrap(make())
            with Watch(parallel) as watch:
                seen, logs = train(parallel, rank, watch)
            same = [torch.equal(a, b) for a, b in zip(bare, seen, strict=True)]
            weights = float(seen[-3].sum())
            answers.put((wrap.__name__, rank, same, logs, of_alone, watch.unseen, weights))
    finally:
        distributed.destroy_process_group()


def test_each_process_sees_its_own_texts_and_trains_to_the_same_bits(tmp_path):
    context = multiprocessing.get_context("spawn")
    answers = context.Queue()
    running = [context.Process(target=work, args=(rank, 2, str(tmp_path / "store"), answers))
               for rank in range(2)]  # fmt: skip
    for process in running:
        process.start()
    # Each tells what it found before it ends: of both ways to train in parallel.
    found = sorted([answers.get(timeout=600) for _ in range(4)], key=lambda x: x[:2])
    for process in running:
        process.join(300)
        assert process.exitcode == 0
    for _, _, same, logs, of_alone, unseen, _ in found:
        assert len(same) == STEPS * 5
        assert all(same)
        assert unseen == {}
        # The weights of the first step are those of a model alone; later ones are shared.
        assert logs[0] == of_alone[0]
        assert logs != of_alone
        assert all("0.head0/n_eff" in log for log in logs)
    for way, differing in (("DistributedDataParallel", 1), ("sharded", 2)):
        told = [x for x in found if x[0] == way]
        assert len({weights for *_, weights in told}) == differing
        assert len({logs[0]["all/n_eff"] for _, _, _, logs, *_ in told}) == 2
