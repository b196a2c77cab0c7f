"""Run notebooks and save what they show: `python notebooks/execute.py [NAME …]`, all by default.

What is saved is small, the same on every run, and visible to a reader who trusts nothing: text,
tables, PNG. Needs the extra `browser`.
"""

from __future__ import annotations

import asyncio
import base64
import io
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
SECONDS = 300  # of a cell, beside other work: one that hangs fails
OWN = "yours"  # tag of a cell whose output is of the machine that runs it: none is saved
WIDGET = "application/vnd.jupyter.widget-view+json"
_WIDE, _COLOURS = 1000, 128  # of a picture: pixels, colours of its palette


def run(notebook: Any, home: Path) -> Any:
    """The notebook, run in a kernel of its own that knows nothing of the user's configuration.

    Raises:
        DeadKernelError: the kernel ended; a note says how.
    """
    import nbclient
    import nbformat

    places = ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR")
    environment = os.environ | dict.fromkeys(places, str(home))
    environment |= {
        "IPYTHONDIR": str(home / "ipython"),
        "PYTHONWARNINGS": "default",
        "PYTHONPATH": str(HERE.parent),
        "PYDEVD_DISABLE_FILE_VALIDATION": "1",
    }
    environment.pop("MPLBACKEND", None)  # figures inline, as a reader sees them
    done: Any = nbformat.from_dict(notebook)
    for cell in done.cells:
        if cell.cell_type == "code":
            cell.update(outputs=[], execution_count=None)
    client = nbclient.NotebookClient(done, kernel_name="python3", timeout=SECONDS, iopub_timeout=10)
    kernel, processes = client.create_kernel_manager(), []
    client.on_notebook_start = lambda **_: processes.append(kernel.provisioner.process)
    try:
        asyncio.run(client.async_execute(env=environment))
    except nbclient.exceptions.DeadKernelError as error:
        error.add_note(
            f"The kernel ended with {processes[0].poll()}; -9 may be for want of memory."
        )
        raise
    return done


def kept(notebook: Any) -> Any:
    """The notebook with what is saved of its outputs, in place."""
    notebook.metadata["language_info"] = {"name": "python"}
    notebook.metadata.pop("widgets", None)
    for cell in notebook.cells:
        tags = cell.metadata.get("tags")
        cell.metadata = {"tags": tags} if tags else {}
        if cell.cell_type == "code":
            cell.outputs = [] if OWN in (tags or ()) else _joined(cell.outputs)
            for output in cell.outputs:
                shrink(output)
    return notebook


def _joined(outputs: list[Any]) -> list[Any]:
    """The outputs; text that was printed in several pieces is one."""
    found: list[Any] = []
    for output in outputs:
        last = found[-1] if found else {}
        if output.output_type == "stream" and last.get("name") == output.name:
            last["text"] += output.text
        else:
            found.append(output)
    return found


def shrink(output: Any) -> None:
    """Pictures in few colours; of a live panel the picture of one."""
    data = output.get("data", {})
    if WIDGET in data:
        shown = base64.b64encode((HERE.parent / "docs/panel.png").read_bytes()).decode()
        data.clear()
        data.update({"image/png": shown, "text/plain": "A picture of the panel: run the cell."})
    if "image/png" in data:
        from PIL import Image

        image, small = Image.open(io.BytesIO(base64.b64decode(data["image/png"]))), io.BytesIO()
        image = image.convert("RGB")
        if image.width > _WIDE:
            size = (_WIDE, round(image.height * _WIDE / image.width))
            image = image.resize(size, Image.Resampling.LANCZOS)
        palette = image.quantize(_COLOURS, Image.Quantize.MAXCOVERAGE)  # thin lines keep theirs
        palette.save(small, "png", optimize=True)
        data["image/png"] = base64.b64encode(small.getvalue()).decode()


def main(names: list[str]) -> None:
    """Run and save the notebooks of these names."""
    import nbformat

    known = {path.stem: path for path in sorted(HERE.glob("*.ipynb"))}
    unknown = sorted(set(names) - set(known))
    if unknown:
        sys.exit(f"no notebook {', '.join(unknown)}: give names out of {', '.join(known)}")
    for name in names or known:
        path = known[name]
        with tempfile.TemporaryDirectory() as home:
            done = kept(run(nbformat.read(path, as_version=4), Path(home)))
        written = path.with_suffix(".part")
        nbformat.write(done, written)
        written.replace(path)
        print(f"{name}: {path.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main(sys.argv[1:])
