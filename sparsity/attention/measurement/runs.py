"""A model run over texts, every layer measured as it goes; what is done is kept on disk.

`KeptPieces`, `kept_pieces` and `open_inputs` serve every long run: of a dataset, a corpus, a page.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sparsity._version import __version__
from sparsity.arguments import path as check_path
from sparsity.arguments import progress as check_progress
from sparsity.arguments import whole
from sparsity.attention import checkpoints as models
from sparsity.attention.checkpoints.checkpoint import fingerprint
from sparsity.attention.measurement.datasets import MEANING, label_layers, measure_with_laws
from sparsity.attention.measurement.layer_inputs import layer_of_queries
from sparsity.attention.measurement.requested import requested_names
from sparsity.attention.measurement.sinks import MIN_SINK_WEIGHT
from sparsity.attention.measurement.texts import Cut, name_texts, take_windows
from sparsity.errors import InputError
from sparsity.output import folder, json_text, netcdf_path, refuse_unwritable, replacing, write
from sparsity.reading import json_file

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

if TYPE_CHECKING:
    import xarray


def measure_model(
    model: str | os.PathLike[str] | models.Checkpoint,
    texts: Any,
    *,
    tokens: int = 512,
    offset: int = 0,
    stride: int | None = None,
    bos: Sequence[bool] = (False,),
    sink: int = 0,
    of: str | Sequence[str] = (),
    parts: str | os.PathLike[str] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> xarray.Dataset:
    """Run texts through a model of the Llama family and measure its attention.

    Args:
        model: a GGUF or safetensors file, or an opened checkpoint.
        texts: name -> text, a folder, or a list of texts; a text is a string, token ids [T], or
            the Path of a file of either. One that cannot be used is passed over, and named in the
            attribute `passed_over`.
        tokens: T ≥ 2 of each text, the token that begins it included.
        offset: tokens of a text that are left out before the first window.
        stride: tokens from one window of T to the next; None for one window a text.
        bos: for each value one run of every text, with (True) or without the token that begins it.
        sink: position of the key that is looked at as a sink.
        of: what else to measure, as `measure` has it.
        parts: folder in which finished layers are kept: a run that was ended, in any way, goes on
            from there. None keeps nothing.
        progress: called with (layers done, layers in all, of all texts).

    Returns:
        As `measure`, over text and bos too, with the next-token loss of each.

    Raises:
        InputError: a bad file, no text that can be used, or more tokens than the model was
            trained on.
    """
    import xarray

    from sparsity.attention.checkpoints.llama import forward

    also, sink = requested_names(of), whole("sink", sink, 0)
    check_progress(progress)
    if parts is not None:
        parts = check_path("parts", parts, "give the name of a folder")
    cut = Cut(tokens, offset, stride, bos)  # pyright: ignore[reportArgumentType]
    opened = model if isinstance(model, models.Checkpoint) else models.load(model)
    config = opened.config
    found, passed = take_windows(opened, name_texts(texts), cut)
    ids = [x for window in found for x in window.ids]
    kept, digest = KeptPieces(parts), fingerprint(opened.files)
    # A piece is named by all that its numbers depend on, so that a folder can be used again for
    # other texts or settings and never gives another run's numbers.
    settings = f"{__version__} {digest} {sink} {MIN_SINK_WEIGHT} {also}"
    keys = [hashlib.sha256(settings.encode() + x.tobytes()).hexdigest()[:20] for x in ids]
    layers: list[list[dict[str, np.ndarray] | None]] = [
        [kept.get(f"{key}-{layer}") for layer in range(config.layers)] for key in keys
    ]
    ends = [kept.get(f"{key}-loss") for key in keys]
    todo = [i for i, end in enumerate(ends) if end is None or None in layers[i]]
    total, done = config.layers * len(ids), config.layers * (len(ids) - len(todo))

    # A text of which one layer is missing runs through the whole model again, since a layer needs
    # those before it; but layers that are kept are not measured again.
    def visit(layer: int, run: int, q: Any, k: Any) -> None:
        nonlocal done
        own, key = layers[todo[run]], keys[todo[run]]
        if own[layer] is None:
            one = measure_with_laws(layer_of_queries(q, k), sink, also)
            own[layer] = kept.put(f"{key}-{layer}", one)
        done += 1
        if progress is not None:
            progress(done, total)

    if todo:
        losses = forward(opened, [ids[i] for i in todo], visit)
        for i, loss in zip(todo, losses, strict=True):
            ends[i] = kept.put(f"{keys[i]}-loss", {"loss": np.asarray(loss, np.float32)})
    attributes = describe_run(opened, digest, cut, sink)
    if passed:
        attributes["passed_over"] = passed
    # All runs as one dataset, text by text and with or without BOS.
    names = [window.name for window in found]
    runs = [label_layers(layer, attributes) for layer in layers]  # type: ignore[arg-type]
    count = len(cut.bos)
    by_text = [xarray.concat(runs[i : i + count], "bos") for i in range(0, len(runs), count)]
    data = xarray.concat(by_text, "text").assign_coords(
        text=names, bos=np.asarray(cut.bos, np.int8)
    )
    data["bos"].attrs = {"long_name": "whether the text begins with the model's first token"}
    loss = np.reshape([end["loss"] for end in ends], (len(names), count))  # type: ignore[index]
    data["loss"] = (("text", "bos"), loss, {"long_name": MEANING["loss"], "units": "nat"})
    words = np.array([opened.encode.words(x) for x in ids], object)
    words = np.reshape(words, (len(names), count, -1))
    data["token"] = (("text", "bos", "key"), words, {"long_name": MEANING["token"]})
    return data


def describe_run(model: models.Checkpoint, digest: str, cut: Cut, sink: int) -> dict[str, Any]:
    """Return the attributes that say what a measurement is of."""
    return {
        "title": "attention of a model, measured",
        "model": model.name,
        "model_sha256": digest,
        "tokens": cut.tokens,
        "offset": cut.offset,
        "stride": cut.stride or 0,
        "sink": sink,
        "sinks_above": MIN_SINK_WEIGHT,
        "causal": 1,
        "sparsity": __version__,
    }


class KeptPieces:
    """Named arrays, each piece whole or not there; without a folder, nothing is kept.

    Args:
        home: the folder.
        request: what the pieces are of, in JSON's types; None where their names say it.

    Raises:
        InputError: the folder holds pieces of another request; names what differs.
    """

    def __init__(
        self, home: str | os.PathLike[str] | None, request: Mapping[str, Any] | None = None
    ) -> None:
        self.home = None if home is None else folder(home)
        self._request = request
        if self.home is None or request is None:
            return
        try:
            other = json_file(self.home / "request.json")
        except (OSError, ValueError):
            return  # nothing was finished there
        if not isinstance(other, dict):
            return
        for name in sorted(request.keys() | other.keys()):
            if request.get(name) != other.get(name):
                fix = f"an unfinished run with {name} = {other.get(name)} is kept in {self.home}; "
                fix += "ask for that, choose another place, or remove it"
                raise InputError(name, request.get(name, "none"), fix)

    def get(self, name: str) -> dict[str, np.ndarray] | None:
        """Return a piece, None where it is not there or damaged."""
        if self.home is None:
            return None
        try:
            with np.load(self.home / f"{name}.npz") as stored:
                return dict(stored)
        except Exception:  # noqa: BLE001  whatever a damaged file makes of itself
            return None

    def get_again(self, name: str) -> dict[str, np.ndarray]:
        """Return a piece that was kept.

        Raises:
            InputError: it is not there any more.
        """
        found = self.get(name)
        if found is None:
            raise InputError("parts", self.home, "was changed during the run; run again")
        return found

    def put(
        self, name: str, values: dict[str, np.ndarray], compressed: bool = False
    ) -> dict[str, np.ndarray]:
        """Keep a piece and return it."""
        if self.home is not None:
            if self._request is not None and not (self.home / "request.json").exists():
                write(self.home / "request.json", json_text(dict(self._request)))
            # Renamed when complete: a run that is killed leaves no half of a piece.
            with replacing(self.home / f"{name}.npz") as part, part.open("wb") as file:
                (np.savez_compressed if compressed else np.savez)(file, **values)  # type: ignore[arg-type]
        return values


@contextmanager
def kept_pieces(out: Path) -> Iterator[Path]:
    """Yield the folder for finished pieces of one run; it is gone unless the run failed."""
    # The lock is the system's and ends with the process, however that ends; the file alone would
    # stay behind after a kill and keep the next run out.
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


def open_inputs(
    model: str,
    texts: Sequence[str],
    out: str,
    report_to: str | None = None,
    page: Sequence[Path] = (),
) -> tuple[models.Checkpoint, dict[str, Path]]:
    """Return the model opened, and the texts by name, where the outputs can be written.

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
    paths = name_texts([Path(text) for text in texts])
    # All refusals come before the model runs: hours of measuring must not end at a missing folder.
    refuse_unwritable(out)
    if report_to is not None:
        folder(report_to)
    opened = models.load(model)
    for target, path in itertools.product([Path(out), *page], [*paths.values(), *opened.files]):
        if target.exists() and path.exists() and target.samefile(path):
            raise InputError("out", target, "is read by this run; choose another place")
    netcdf_path(out)
    return opened, paths
