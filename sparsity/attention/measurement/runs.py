"""A model run over texts, every layer measured as it goes; what is done is kept on disk."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from sparsity._version import __version__
from sparsity.arguments import path, whole
from sparsity.arguments import progress as check_progress
from sparsity.attention import checkpoints as models
from sparsity.attention.checkpoints.checkpoint import fingerprint
from sparsity.attention.measurement import asked, sinks
from sparsity.attention.measurement.given import of_queries
from sparsity.attention.measurement.labels import MEANING, dataset, measured
from sparsity.attention.measurement.parts import Parts
from sparsity.attention.measurement.texts import Cut, named, windows

if TYPE_CHECKING:
    import xarray


def measure_model(
    model: str | os.PathLike[str] | models.Checkpoint,
    texts: Any,
    *,
    tokens: int = 512,
    offset: int = 0,
    stride: int | None = None,
    bos: Sequence[bool] = (False,),
    sink: int = 0,
    of: str | Sequence[str] = (),
    parts: str | os.PathLike[str] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> xarray.Dataset:
    """Run texts through a model of the Llama family and measure its attention.

    Args:
        model: a GGUF or safetensors file, or an opened checkpoint.
        texts: name -> text, a folder, or a list of texts; a text is a string, token ids [T], or
            the Path of a file of either. One that cannot be used is passed over, and named in the
            attribute `passed_over`.
        tokens: T ≥ 2 of each text, the token that begins it included.
        offset: tokens of a text that are left out before the first window.
        stride: tokens from one window of T to the next; None for one window a text.
        bos: for each value one run of every text, with (True) or without the token that begins it.
        sink: position of the key that is looked at as a sink.
        of: what else to measure, as `measure` has it.
        parts: folder in which finished layers are kept: a run that was ended, in any way, goes on
            from there. None keeps nothing.
        progress: called with (layers done, layers in all, of all texts).

    Returns:
        As `measure`, over text and bos too, with the next-token loss of each.

    Raises:
        InputError: a bad file, no text that can be used, or more tokens than the model was
            trained on.
    """
    from sparsity.attention.checkpoints.llama import forward

    also, sink = asked.names(of), whole("sink", sink, 0)
    check_progress(progress)
    if parts is not None:
        parts = path("parts", parts, "give the name of a folder")
    cut = Cut(tokens, offset, stride, bos)  # pyright: ignore[reportArgumentType]
    opened = model if isinstance(model, models.Checkpoint) else models.load(model)
    config = opened.config
    found, passed = windows(opened, named(texts), cut)
    ids = [x for window in found for x in window.ids]
    kept, digest = Parts(parts), fingerprint(opened.files)
    settings = f"{__version__} {digest} {sink} {sinks.EPSILON} {also}"
    keys = [hashlib.sha256(settings.encode() + x.tobytes()).hexdigest()[:20] for x in ids]
    layers: list[list[dict[str, np.ndarray] | None]] = [
        [kept.get(f"{key}-{layer}") for layer in range(config.layers)] for key in keys
    ]
    ends = [kept.get(f"{key}-loss") for key in keys]
    todo = [i for i, end in enumerate(ends) if end is None or None in layers[i]]
    total, done = config.layers * len(ids), config.layers * (len(ids) - len(todo))

    def visit(layer: int, run: int, q: Any, k: Any) -> None:
        nonlocal done
        own, key = layers[todo[run]], keys[todo[run]]
        if own[layer] is None:
            own[layer] = kept.put(f"{key}-{layer}", measured(of_queries(q, k), sink, also))
        done += 1
        if progress is not None:
            progress(done, total)

    if todo:
        losses = forward(opened, [ids[i] for i in todo], visit)
        for i, loss in zip(todo, losses, strict=True):
            ends[i] = kept.put(f"{keys[i]}-loss", {"loss": np.asarray(loss, np.float32)})
    attributes = about(opened, digest, cut, sink)
    if passed:
        attributes["passed_over"] = passed
    words = [opened.encode.words(x) for x in ids]
    return _joined([w.name for w in found], list(cut.bos), attributes, words, layers, ends)


def about(model: models.Checkpoint, digest: str, cut: Cut, sink: int) -> dict[str, Any]:
    """What a measurement is of, as its attributes."""
    return {
        "title": "attention of a model, measured",
        "model": model.name,
        "model_sha256": digest,
        "tokens": cut.tokens,
        "offset": cut.offset,
        "stride": cut.stride or 0,
        "sink": sink,
        "sinks_above": sinks.EPSILON,
        "causal": 1,
        "sparsity": __version__,
    }


def _joined(
    names: list[str],
    bos: list[bool],
    attributes: dict[str, Any],
    words: list[list[str]],
    layers: list[Any],
    ends: list[Any],
) -> xarray.Dataset:
    """All runs as one dataset, text by text and with or without BOS."""
    import xarray

    loss = np.reshape([end["loss"] for end in ends], (len(names), len(bos)))
    runs = [dataset(layer, attributes) for layer in layers]
    rows = [xarray.concat(runs[i : i + len(bos)], "bos") for i in range(0, len(runs), len(bos))]
    data = xarray.concat(rows, "text")
    data = data.assign_coords(text=names, bos=np.asarray(bos, np.int8))
    data["loss"] = (("text", "bos"), loss, {"long_name": MEANING["loss"], "units": "nat"})
    spelled = np.reshape(np.array(words, object), (len(names), len(bos), -1))
    data["token"] = (("text", "bos", "key"), spelled, {"long_name": MEANING["token"]})
    data["bos"].attrs = {"long_name": "whether the text begins with the model's first token"}
    return data
