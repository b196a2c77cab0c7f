"""Models on disk: GGUF and safetensors checkpoints of the Llama family."""

from __future__ import annotations

import os

from sparsity.arguments import path as read_path
from sparsity.errors import InputError
from sparsity.models.checkpoint import Checkpoint
from sparsity.models.fetch import smollm2

__all__ = ["Checkpoint", "load", "smollm2"]


def load(path: str | os.PathLike[str]) -> Checkpoint:
    """Open a checkpoint: a .gguf file, a .safetensors file, or a folder that holds the latter.

    Raises:
        InputError: not there, damaged, of another architecture, or a library is missing.
    """
    fix = "is not there; give a .gguf or .safetensors file"
    path = read_path("model", path, fix)
    if not path.exists():
        raise InputError("model", path, fix)
    if path.is_dir() or path.suffix == ".safetensors":
        from sparsity.models import safetensors_file

        return safetensors_file.load(path)
    from sparsity.models import gguf_file

    return gguf_file.load(path)
