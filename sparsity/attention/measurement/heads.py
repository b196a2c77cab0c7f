"""Heads of a model over several texts: their rows, the parts of these, what makes the tail."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from sparsity.arguments import function, whole
from sparsity.attention import checkpoints as models
from sparsity.attention.measurement import row_figures
from sparsity.attention.measurement.score_parts import Split, split
from sparsity.attention.measurement.texts import Cut, named, windows
from sparsity.errors import InputError

if TYPE_CHECKING:
    import xarray

FAINT = 0.05  # mean weight of a key from which on it is a sink

MEANING = row_figures.MEANING | {
    "length": "n, the keys that the row sees",
    "sink_logit": "logit of the sink key less the mean of the others",
    "gamma_clear": "γ̂ without the nearest keys and without any sink",
    "S_clear": "S without the nearest keys and without any sink",
    "length_clear": "keys that are then left",
    "gamma_content": "standard deviation of the content, without distance profile and key bias",
    "S_content": "S of the content",
    "S_shape": "S of the row's logits shrunk to the spread of the content",
}


def sinks(parts: Split, first: np.ndarray, gap: int) -> np.ndarray:
    """The keys that take more than `FAINT` of all rows' weight, from `gap` away on average.

    Args:
        parts: of the head.
        first: logits of the first key, [texts, rows], less the mean of the others.
        gap: how far from every row such a key is, at least.

    Returns:
        bool [texts, keys].
    """
    top = np.maximum(np.where(parts.seen, parts.scores, -np.inf).max(-1), first)[..., None]
    a = np.where(parts.seen, np.exp(parts.scores - top), 0)
    p = a / (a.sum(-1, keepdims=True) + np.exp(first[..., None] - top))
    return (p.mean(1) > FAINT) & (parts.distance >= gap).all(0)


def head_figures(parts: Split, first: np.ndarray, gap: int, seed: int) -> dict[str, np.ndarray]:
    """All of `MEANING`, [texts, rows]; the first key is not in the row.

    Args:
        parts: of the head.
        first: logits of the first key, as in `sinks`.
        gap: as in `sinks`.
        seed: of the Gaussian rows.
    """
    c, seen, content = parts.scores, parts.seen, parts.content
    found = row_figures.figures(c, seen, parts.distance, np.random.default_rng(seed))
    near = parts.distance < row_figures.LAST
    clear = seen & ~near & ~sinks(parts, first, gap)[:, None]
    gamma = row_figures.gamma_of(content, seen)
    shrunk = c * (gamma / found["gamma_rest"])[..., None]
    found |= row_figures.both("clear", c, clear)
    return found | {
        "length": np.broadcast_to(seen.sum(-1) + 1, first.shape),
        "length_clear": clear.sum(-1),
        "sink_logit": first,
        "gamma_content": gamma,
        "S_content": row_figures.sparsity(content, seen),
        "S_shape": row_figures.sparsity(shrunk, seen),
    }


def positions(tokens: int, gap: int, step: int) -> np.ndarray:
    """The queries that are looked at: of the second half, with `gap`/2 queries for the key bias."""
    return np.arange(tokens // 2 + step // 2, tokens - gap - gap // 2, step)


def logits(q: Any, k: Any, head: int) -> np.ndarray:
    """Scores of one query head [texts, T, T] from q [texts, heads, T, d] and k of its groups."""
    shared = q.shape[1] // k.shape[1]
    return np.matmul(q[:, head], k[:, head // shared].swapaxes(1, 2)) / q.dtype.type(
        q.shape[-1] ** 0.5
    )


def _layer(
    waiting: list[tuple[np.ndarray, np.ndarray]], rows: np.ndarray, gap: int, each: Callable
) -> dict[str, np.ndarray]:
    """The figures of all heads of a layer, [texts, heads, rows], from q and k of each text."""
    queries, keys = (np.stack(x) for x in zip(*waiting, strict=True))
    found = []
    for head in range(queries.shape[1]):
        s = logits(queries, keys, head)
        parts = split(s, rows, gap)
        first = s[:, rows, 0] - s[:, rows].mean(-1, where=parts.seen)
        found.append(head_figures(parts, first, gap, head))
        each(head, parts)
    return {name: np.stack([x[name] for x in found], axis=1) for name in found[0]}


def measure_heads(
    model: str | os.PathLike[str] | models.Checkpoint,
    texts: Any,
    *,
    tokens: int = 512,
    offset: int = 0,
    every: int = 1,
    step: int = 16,
    gap: int = 64,
    each: Callable[[int, int, Split], None] = lambda layer, head, parts: None,
) -> xarray.Dataset:
    """Run texts through a model of the Llama family and take the rows of its heads apart.

    Args:
        model: a GGUF or safetensors file, or an opened checkpoint.
        texts: as `measure_model` takes them, two or more; one that cannot be used is passed over.
        tokens: T of each text, without BOS.
        offset: tokens of a text that are left out before them.
        every: layers 0, `every`, 2·`every` … are looked at.
        step: rows of the second half at that distance are.
        gap: queries that much later tell the key bias; see `parts.split`.
        each: called with (layer, head, parts), for what else is to be made of them.

    Returns:
        A dataset over text, layer, head and row, of `MEANING`.

    Raises:
        InputError: fewer than two texts that can be used, or numbers that leave no row.
    """
    import xarray

    from sparsity.attention.checkpoints import llama

    tokens, every = whole("tokens", tokens, 2), whole("every", every, 1)
    step, gap = whole("step", step, 1), whole("gap", gap, 2)
    cut = Cut(tokens, offset)
    function("each", each, "give a function of (layer, head, parts)")
    opened = model if isinstance(model, models.Checkpoint) else models.load(model)
    rows = positions(tokens, gap, step)
    if not len(rows):
        raise InputError("tokens", tokens, f"leave no row with a gap of {gap}; give {8 * gap}")
    found, _ = windows(opened, named(texts), cut)
    if len(found) < 2:
        fix = "parts are estimated on other texts; give two or more"
        raise InputError("texts", len(found), fix)
    ids = [window.ids[0] for window in found]
    waiting: list[tuple[np.ndarray, np.ndarray]] = []
    layers: list[dict[str, np.ndarray]] = []

    def visit(layer: int, text: int, q: Any, k: Any) -> None:
        if layer % every:
            return
        waiting.append((np.asarray(q), np.asarray(k)))
        if len(waiting) == len(ids):
            layers.append(_layer(waiting, rows, gap, functools.partial(each, layer)))
            waiting.clear()

    last = range(0, opened.config.layers, every)[-1]
    llama.layers(opened, ids, visit, last + 1)
    attributes = {"title": "heads of a model taken apart", "model": opened.name, "causal": 1}
    axes = ("text", "layer", "head", "row")
    return xarray.Dataset(
        {
            name: (axes, np.stack([x[name] for x in layers], axis=1), {"long_name": meaning})
            for name, meaning in MEANING.items()
        },
        coords={
            "text": [window.name for window in found],
            "layer": np.arange(0, opened.config.layers, every),
            "row": rows + 1,
        },
        attrs=attributes | {"tokens": tokens, "gap": gap},
    )
