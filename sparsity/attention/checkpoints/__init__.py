"""Models on disk: GGUF and safetensors checkpoints of the Llama family.

gguf_file, safetensors_file ── checkpoint (sizes, tensors, refusals) ── llama (the forward pass)
tokens ── tokenizing (the tokenizer, in a process of its own)
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
        InputError: not there, damaged, of another architecture, or a library is missing.
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
    from sparsity.attention.checkpoints import gguf_file

    return gguf_file.load(path)


def _is_gguf(path: Path) -> bool:
    """Whether it begins as such files do, whatever its name; ONNX models and archives do not."""
    try:
        with path.open("rb") as file:
            return file.read(4) == b"GGUF"
    except OSError:  # the reader says why
        return True
