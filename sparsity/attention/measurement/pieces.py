"""What is kept of each text of a corpus: measured here, or by workers that open the model."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import BrokenExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from sparsity.attention import checkpoints as models
from sparsity.attention.checkpoints.checkpoint import fingerprint
from sparsity.attention.measurement import sinks, tables
from sparsity.attention.measurement.given import of_queries
from sparsity.attention.measurement.labels import dataset, measured
from sparsity.attention.measurement.summaries import Summary
from sparsity.errors import InputError
from sparsity.output import json_ready
from sparsity.tasks import TaskExecutor, run_tasks

TOGETHER = 4  # texts that share one reading of the weights; so many are lost to a kill at most
_SHARES = 8  # tasks at least, where there are as many texts

Step = Callable[[int], None]  # called with layers done
Texts = Sequence[np.ndarray]  # token ids of each


def _piece(layers: Sequence[dict[str, Any]], loss: float, words: list[str]) -> dict[str, Any]:
    """What is kept of one text."""
    data = dataset(layers, {"causal": 1})
    sums = Summary.of({str(name): values.values for name, values in data.items()})
    figures = tables.row(data, int(data["context"][-1])) | {"loss": float(np.float32(loss))}
    listed = sinks.listed(data["key_importance"].values, words)
    return {
        **asdict(sums),
        "importance": data["importance"].values[..., -1],
        "said": np.array(json.dumps(json_ready({"figures": figures, "sinks": listed}))),
    }


def _here(model: models.Checkpoint, sink: int, step: Step, texts: Texts) -> list[dict[str, Any]]:
    """Measure texts that share one reading of the weights."""
    from sparsity.attention.checkpoints.llama import forward

    layers: list[list[dict[str, Any]]] = [[] for _ in texts]

    def visit(layer: int, run: int, q: Any, k: Any) -> None:
        layers[run].append(measured(of_queries(q, k), sink))
        step(1)

    losses = forward(model, texts, visit)
    words = map(model.encode.words, texts)
    return [_piece(*each) for each in zip(layers, losses, words, strict=True)]


@functools.lru_cache(maxsize=1)
def _opened(path: Path, digest: str) -> models.Checkpoint:
    """The model, opened once in a worker; weights are read layer by layer when they are needed."""
    model = models.load(path)
    if fingerprint(model.files) != digest:
        raise InputError("model", path, "is another file there; give every worker the same")
    return model


def _there(path: Path, digest: str, sink: int, texts: Texts) -> list[dict[str, Any]]:
    """In a worker: the same."""
    return _here(_opened(path, digest), sink, lambda _: None, texts)


def pieces(
    model: models.Checkpoint,
    digest: str,
    sink: int,
    texts: Texts,
    executor: TaskExecutor | None,
    step: Step,
) -> Iterator[tuple[int, dict[str, Any] | Exception]]:
    """Index and piece of each text, as they come; on an executor also why it failed.

    Args:
        model: the checkpoint.
        digest: of its files.
        sink: position of the key that is looked at as the published sink.
        texts: token ids [T] of each.
        executor: where they are measured; None is here.
        step: called with the number of layers that were done.

    Raises:
        InputError: here, what a text raises; the executor has no workers left.
    """
    if executor is None:
        size, work = TOGETHER, functools.partial(_here, model, sink, step)
    else:
        size = max(min(TOGETHER, len(texts) // _SHARES), 1)
        work = functools.partial(_there, model.path.resolve(), digest, sink)
    groups = [texts[i : i + size] for i in range(0, len(texts), size)]
    try:
        for index, found, error, _ in run_tasks(work, groups, executor):
            if error is not None and executor is None:
                raise error
            each = found if error is None else [error] * len(groups[index])
            yield from enumerate(each, index * size)
            if executor is not None:
                step(model.config.layers * len(each))
    except BrokenExecutor:
        fix = "lost its workers; run again to go on from what is kept"
        raise InputError("executor", type(executor).__name__, fix) from None
