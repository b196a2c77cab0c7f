"""A model run over texts, every layer measured as it goes; what is done is kept on disk."""

from __future__ import annotations

import hashlib
import os
import zipfile
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

import sparsity
from sparsity import models
from sparsity.errors import InputError, whole
from sparsity.measurement import asked
from sparsity.measurement.labels import MEANING, dataset, measured
from sparsity.measurement.sources import of_queries
from sparsity.models.checkpoint import fingerprint
from sparsity.output import folder, replacing

if TYPE_CHECKING:
    import xarray


class _Parts:
    """Finished layers on disk, each whole or not there; without a folder, nothing is kept."""

    def __init__(self, home: str | os.PathLike[str] | None) -> None:
        self.home = None if home is None else folder(home)

    def get(self, name: str) -> dict[str, np.ndarray] | None:
        if self.home is None:
            return None
        try:
            with np.load(self.home / f"{name}.npz") as stored:
                return dict(stored)
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
            return None  # not there, or damaged: to be done again

    def put(self, name: str, values: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Keep them; returns them."""
        if self.home is not None:
            with replacing(self.home / f"{name}.npz") as part, part.open("wb") as file:
                np.savez(file, **values)  # type: ignore[arg-type]
        return values


def _tokens(model: models.Checkpoint, name: str, text: str, count: int, bos: bool) -> np.ndarray:
    """The first tokens of a text, `count` with the one that begins it."""
    if not text.strip():
        raise InputError("text", name, "holds no words; give a longer one")
    ids = model.encode(text)
    if bos and model.config.bos is None:
        raise InputError("bos", True, f"{model.name} has no token that begins a text; leave it out")
    if bos:
        ids = [model.config.bos, *ids]
    if len(ids) < count:
        fix = f"has only {len(ids)} tokens; give a longer text or fewer tokens than {count}"
        raise InputError("text", name, fix)
    if max(ids[:count]) >= model.config.vocabulary:
        fix = f"knows more tokens than {model.config.vocabulary}; give that of this model"
        raise InputError("tokenizer", model.name, fix)
    return np.asarray(ids[:count], np.int32)


def _length(model: models.Checkpoint, tokens: Any) -> int:
    tokens = whole("tokens", tokens, 2)
    if tokens > model.config.context:
        fix = f"{model.name} was trained on {model.config.context}; ask for no more"
        raise InputError("tokens", tokens, fix)
    return tokens


def measure_model(
    model: str | os.PathLike[str] | models.Checkpoint,
    texts: Mapping[str, str],
    *,
    tokens: int = 512,
    bos: Sequence[bool] = (False,),
    sink: int = 0,
    of: str | Sequence[str] = (),
    parts: str | os.PathLike[str] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> xarray.Dataset:
    """Run texts through a model of the Llama family and measure its attention.

    Args:
        model: a GGUF or safetensors file, or an opened checkpoint.
        texts: name -> text; the first `tokens` tokens of each are taken.
        tokens: T ≥ 2, the token that begins the text included.
        bos: for each value one run of every text, with (True) or without the token that begins it.
        sink: position of the key that is looked at as a sink.
        of: what else to measure, as `measure` has it.
        parts: folder in which finished layers are kept: a run that was ended, in any way, goes on
            from there. None keeps nothing.
        progress: called with (layers done, layers in all, of all texts).

    Returns:
        As `measure`, over text and bos too, with the next-token loss of each.

    Raises:
        InputError: a bad file, an empty text or one shorter than asked, or more tokens than the
            model was trained on.
    """
    from sparsity.models.llama import forward

    also = asked.names(of)
    opened = model if isinstance(model, models.Checkpoint) else models.load(model)
    config, tokens = opened.config, _length(opened, tokens)
    if not texts:
        raise InputError("texts", None, "give at least one text")
    ids = [_tokens(opened, k, text, tokens, b) for k, text in texts.items() for b in bos]
    kept, digest = _Parts(parts), fingerprint(opened.files)
    settings = f"{sparsity.__version__} {digest} {sink} {also}"
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
    return _joined(opened, digest, list(texts), list(bos), tokens, sink, layers, ends)


def _joined(
    model: models.Checkpoint,
    digest: str,
    names: list[str],
    bos: list[bool],
    tokens: int,
    sink: int,
    layers: list[Any],
    ends: list[Any],
) -> xarray.Dataset:
    """All runs as one dataset, text by text and with or without BOS."""
    import xarray

    attributes = {
        "title": "attention of a model, measured",
        "model": model.name,
        "model_sha256": digest,
        "tokens": tokens,
        "sink": sink,
        "causal": 1,
        "sparsity": sparsity.__version__,
    }
    loss = np.reshape([end["loss"] for end in ends], (len(names), len(bos)))
    runs = [dataset(layer, attributes) for layer in layers]
    rows = [xarray.concat(runs[i : i + len(bos)], "bos") for i in range(0, len(runs), len(bos))]
    data = xarray.concat(rows, "text")
    data = data.assign_coords(text=names, bos=np.asarray(bos, np.int8))
    data["loss"] = (("text", "bos"), loss, {"long_name": MEANING["loss"], "units": "nat"})
    data["bos"].attrs = {"long_name": "whether the text begins with the model's first token"}
    return data
