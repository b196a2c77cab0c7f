"""Models on disk: GGUF and safetensors checkpoints of the Llama family, and their forward pass.

A reader of a format gives the names that it has for the sizes and tensors of a Llama; `checkpoint`
checks them against each other and gives the model; `llama` runs it and shows queries and keys.

    gguf_file ── gguf_llama ──┐
    safetensors_file ─────────┼── checkpoint ── llama
    tokens ── tokenizing ─────┘   (a tokenizer works in a process of its own)
"""

from __future__ import annotations

import os
from pathlib import Path

from sparsity.arguments import path as read_path
from sparsity.attention.checkpoints.checkpoint import ELSE, Checkpoint
from sparsity.attention.checkpoints.fetch import smollm2
from sparsity.errors import InputError
from sparsity.output import require_regular_file

__all__ = ["Checkpoint", "load", "smollm2"]


def load(path: str | os.PathLike[str]) -> Checkpoint:
    """Open a checkpoint: a .gguf file, a .safetensors file, or a folder that holds the latter.

    Raises:
        InputError: the file is not there, damaged or of another architecture, or a library is
            missing.
    """
    fix = "is not there; give a .gguf or .safetensors file"
    path = require_regular_file(read_path("model", path, fix), "model")
    if not path.exists():
        raise InputError("model", path, fix)
    if path.is_dir() or path.suffix == ".safetensors":
        from sparsity.attention.checkpoints import safetensors_file

        return safetensors_file.load(path)
    if path.suffix != ".gguf" and not _is_gguf(path):
        raise InputError("model", path, f"is not a model in GGUF or safetensors; {ELSE}")
    from sparsity.attention.checkpoints import gguf_llama

    return gguf_llama.load(path)


def _is_gguf(path: Path) -> bool:
    """Return whether a file begins as GGUF files do, whatever its name."""
    try:
        with path.open("rb") as file:
            return file.read(4) == b"GGUF"
    except OSError:  # the reader's refusal says why
        return True
