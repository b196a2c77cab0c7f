"""The model that experiments look into, and their texts: what is on disk, and a random one.

The model is SmolLM2-135M-Instruct. `python -m benchmarks.model_files DIR` fetches it (98 MB), and
SPARSITY_MODEL=DIR says where it is. Texts are pages of Python's documentation, as the interpreter
carries them; another version of Python has others, which their hashes tell.
"""

from __future__ import annotations

import functools
import hashlib
import os
from pathlib import Path
from pydoc_data.topics import topics
from typing import Any

import numpy as np

from sparsity import InputError, models
from sparsity.attention.checkpoints.checkpoint import LAYER, OUTER, Checkpoint, Config, sha256
from sparsity.attention.settings import Rotation

RANDOM = "random"  # stands for a hash where the model is `random_llama`
HASH = 12  # digits of a text's SHA-256 that are kept


@functools.cache
def open_model(wanted: str) -> Checkpoint:
    """Open the model of that SHA-256, or the random one.

    Raises:
        InputError: it is not there.
    """
    if wanted == RANDOM:
        return random_llama()
    folder = os.environ.get("SPARSITY_MODEL", "")
    for path in sorted(Path(folder).glob("*.gguf")) if folder else ():
        if sha256(path) == wanted:
            return models.load(path)
    fix = "must name the folder of SmolLM2-135M: `python -m benchmarks.model_files DIR` fetches it"
    raise InputError("SPARSITY_MODEL", folder, fix)


def random_llama() -> Checkpoint:
    """Return a Llama of two layers with random weights, whose tokens are bytes."""
    config = Config(
        layers=2, heads=4, kv_heads=2, dim=32, head_dim=8, inner=48, vocabulary=256, context=64,
        eps=1e-5, rotation=Rotation(500.0, 8), bos=0, tied=False,
    )  # fmt: skip

    def read(name: str, layer: int | None) -> np.ndarray:
        place = (*OUTER, *LAYER).index(name)
        noise = np.random.default_rng([place, layer or 0]).standard_normal(config.shape(name))
        return 1.7 * noise / noise.shape[-1] ** 0.5 if noise.ndim == 2 else 1 + 0.2 * noise

    encode: Any = lambda text: list(text.encode())  # noqa: E731
    return Checkpoint(Path(RANDOM), (), RANDOM, config, read, encode)


def text_of(name: str) -> str:
    """Return a page of Python's documentation."""
    return topics[name]


def hash_of(name: str) -> str:
    """Return the first digits of the SHA-256 of a page."""
    return hashlib.sha256(text_of(name).encode()).hexdigest()[:HASH]
