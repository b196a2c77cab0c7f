"""The gains of QK-norm, from a model's weights: they set the spread of its scores before any text.

A folder of safetensors files or a GGUF file is read for these vectors alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from sparsity.attention.checkpoints import gguf_file
from sparsity.attention.checkpoints.checkpoint import library
from sparsity.attention.configuration import LayerKind
from sparsity.errors import InputError
from sparsity.output import require_regular_file
from sparsity.rows.steps import QKNorm

# Their safetensors files hold w of a gain 1 + w; llama.cpp's converter has added the 1.
_ONE_ADDED = {"gemma3", "gemma3_text", "qwen3_next"}
_IN_SAFETENSORS = re.compile(r"(?:^|\.)layers\.(\d+)\.self_attn\.([qk])_norm\.weight$")
_IN_GGUF = re.compile(r"blk\.(\d+)\.attn_([qk])_norm\.weight$")
_OTHER_TOWERS = ("vision", "visual", "audio")

Gains = dict[tuple[int, str], np.ndarray]  # of (layer, "q" or "k")


def read_gains(path: Path, family: str) -> Gains:
    """Return the gains of every layer that are stored, {} where there are no weights.

    Args:
        path: a GGUF file, a folder of safetensors files, or a file in it.
        family: `model_type`.

    Raises:
        InputError: a library is missing.
        OSError, ValueError, KeyError: damaged weights.
    """
    if path.suffix == ".gguf":
        return dict(_of_gguf(path))
    folder = path if path.is_dir() else path.parent
    one = 1.0 if family in _ONE_ADDED else 0.0
    return {place: one + w for place, w in _of_safetensors(sorted(folder.glob("*.safetensors")))}


def _of_safetensors(files: Sequence[Path]) -> Iterator[tuple[tuple[int, str], np.ndarray]]:
    """Yield the stored vectors w by (layer, "q" or "k"); other tensors are not read."""
    for file in files:
        file = require_regular_file(file, "config")
        opened: Any = library("safetensors").safe_open(file, framework="flax")  # bfloat16 too
        for name in opened.keys():  # noqa: SIM118
            found = _IN_SAFETENSORS.search(name)
            if found and not any(tower in name for tower in _OTHER_TOWERS):
                w = np.asarray(opened.get_tensor(name).astype("float32"), np.float64)
                yield (int(found[1]), found[2]), w


def _of_gguf(path: Path) -> Iterator[tuple[tuple[int, str], np.ndarray]]:
    """Yield the gains by (layer, "q" or "k") from a GGUF file."""
    gguf = library("gguf")
    _, tensors = gguf_file.read(gguf, path)
    for name, tensor in tensors.items():
        if found := _IN_GGUF.match(name):
            w = gguf.quants.dequantize(tensor.data, tensor.kind).reshape(tensor.shape)
            yield (int(found[1]), found[2]), np.asarray(w, np.float64)


def with_gains(kind: LayerKind, gains: Gains) -> tuple[LayerKind, float | None]:
    """Return a kind of layer with a note on its γ and bound from the gains, and the median γ.

    Normalised queries and keys have length √d before their gains: γ and the largest |s| follow from
    the gains alone, for keys that point anywhere on their sphere (`QKNorm.from_gains`).

    Args:
        kind: the layers.
        gains: as `read_gains` gives them.

    Returns:
        The kind as it is, and None, if its heads are not normalised by themselves, or if not all of
        its layers have gains, one for each entry of a head.
    """
    pairs = [(gains.get((layer, "q")), gains.get((layer, "k"))) for layer in kind.layers]
    fits = all(x is not None and x.shape == (kind.head_dim,) for pair in pairs for x in pair)
    if not kind.sphere or not fits:
        return kind, None
    # The row takes one γ; the median over layers is its own, the range is named in the note.
    try:
        laws = [QKNorm.from_gains(g_q, g_k, kind.scale) for g_q, g_k in pairs]
    except InputError:  # gains that are all 0, or no numbers
        return kind, None
    gamma = np.array([law.gamma for law in laws])
    bound = max(law.bound or 0.0 for law in laws)
    note = f"γ from the gains of q and k: {gamma.min():.3g} to {gamma.max():.3g} over the layers"
    note = f"{note} of {kind.title}, median {np.median(gamma):.3g}; |s| ≤ {bound:.3g}"
    return replace(kind, notes=(*kind.notes, note)), float(np.median(gamma))
