"""The files of a measurement: where it may write, and what is kept until it is whole."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from sparsity.attention import checkpoints as models
from sparsity.attention.measurement.texts import named
from sparsity.errors import InputError
from sparsity.output import folder, netcdf_path, refuse_unwritable

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None


def _refuse_inputs(outputs: Sequence[Path], inputs: Sequence[Path]) -> None:
    """Refuse to write over what is read."""
    for out, path in itertools.product(outputs, inputs):
        if out.exists() and path.exists() and out.samefile(path):
            raise InputError("out", out, "is read by this run; choose another place")


@contextmanager
def kept_parts(out: Path) -> Iterator[Path]:
    """The folder for finished layers, of one run at a time; gone at the end, unless it failed."""
    home = folder(out.with_name(f".{out.name}.parts"))
    lock = home / "lock"
    try:
        with lock.open("w") as file:
            try:
                if fcntl:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                fix = "is being written by another run; wait for it or choose another place"
                raise InputError("out", out, fix) from None
            try:
                yield home
                shutil.rmtree(home, ignore_errors=True)
            finally:
                lock.unlink(missing_ok=True)
    finally:
        with suppress(OSError):  # only where nothing was finished
            home.rmdir()


def inputs(
    model: str,
    texts: Sequence[str],
    out: str,
    report_to: str | None = None,
    page: Sequence[Path] = (),
) -> tuple[models.Checkpoint, dict[str, Path]]:
    """The model opened, and the texts by name, where the outputs can be written.

    Args:
        model: GGUF or safetensors file, or a folder of the latter.
        texts: folders and files.
        out: the netCDF file.
        report_to: folder of a page besides; None for no page.
        page: the files of that page.

    Raises:
        InputError: no text, files that cannot be read or written, or outputs that are read.
    """
    if not texts:
        raise InputError("text", None, "give a folder or files of texts, or --text FILE")
    paths = named([Path(text) for text in texts])
    refuse_unwritable(out)
    if report_to is not None:
        folder(report_to)
    opened = models.load(model)
    _refuse_inputs([Path(out), *page], [*paths.values(), *opened.files])
    netcdf_path(out)
    return opened, paths
