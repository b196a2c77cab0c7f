"""`sparsity measure`: a model of transformers, texts, a netCDF file, a picture and a page."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sparsity.attention.measurement import tables
from sparsity.attention.measurement.datasets import MEANING, save, with_laws
from sparsity.attention.measurement.layers import requested_names
from sparsity.attention.report import write_picture, write_report
from sparsity.attention.torch.models import load, measure_transformers, read_ids
from sparsity.checks import check_whole
from sparsity.errors import InputError, printable

if TYPE_CHECKING:
    import xarray

_MAX_COMMAND = 2000  # letters of a command on a page: it may name thousands of texts
_MAX_NAME = 200  # letters of a text's name, in tables and files


@dataclass(frozen=True)
class Job:
    """The outcome of one run of `sparsity measure`.

    Args:
        data: the measurement.
        files: all files that were written, the dataset first.
        passed_over: a line for each text that could not be used.
    """

    data: xarray.Dataset
    files: tuple[Path, ...]
    passed_over: tuple[str, ...]

    def summary(self) -> dict[str, Any]:
        """Return the outcome in JSON's types."""
        return {
            "model": self.data.attrs["model"],
            "bos": bool(self.data.attrs["bos"]),
            "files": [str(path) for path in self.files],
            "table": tables.summary(self.data),
            "texts": tables.by_text(self.data),
            "passed_over": list(self.passed_over),
        }

    def text(self) -> str:
        """Return the outcome for a terminal."""
        begun = ", after the model's first token" if self.data.attrs["bos"] else ""
        lines = [f"{self.data.attrs['model']}{begun}", tables.text(tables.summary(self.data)), ""]
        lines += [f"Skipped: {line}" for line in self.passed_over]
        places = ", ".join(map(str, (*self.files[:2], *self.files[2:][-1:])))
        return "\n".join([*lines, f"Written: {places}"])


def run(
    model: str,
    texts: Sequence[str],
    *,
    out: str,
    tokens: int = 512,
    bos: bool = False,
    of: Sequence[str] = (),
    report_to: str | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Job:
    """Measure a model on texts, write every row with the laws beside it, and draw its heads.

    Args:
        model: the folder of a model, a GGUF file, or a name of the hub.
        texts: folders and files, of text or of token ids (.npy).
        out: the netCDF file; the picture stands beside it, as .svg.
        tokens: the length of each text in tokens; shorter ones are skipped.
        bos: whether to begin each text with the model's first token.
        of: what else to measure, as `sparsity.measure` has it.
        report_to: folder for a page with pictures; None for no page.
        progress: called with (layers done, layers in all).

    Raises:
        InputError: a file that cannot be read or written, or as `measure_transformers`.
    """
    import xarray

    tokens = check_whole("tokens", tokens, 2)
    of = requested_names(of)
    paths = _list_files(texts)
    opened, tokenizer = load(model)
    begin = [tokenizer.bos_token_id] if bos else []
    if begin == [None]:
        raise InputError("bos", True, "the model has no token that begins a text; leave it out")
    runs, names, passed = [], [], []
    for done, path in enumerate(paths):
        try:
            ids = np.concatenate([np.asarray(begin, np.int64), read_ids(path, tokenizer)])
            if len(ids) < tokens:
                raise InputError("text", path, f"has {len(ids)} tokens of {tokens}; give a longer")
        except InputError as error:
            if error.argument != "text":
                raise
            passed.append(printable(str(error), _MAX_COMMAND))
            continue

        def layers(layer: int, total: int, done: int = done) -> None:
            if progress is not None:
                progress(done * total + layer, len(paths) * total)

        ids = ids[:tokens]
        one = measure_transformers(opened, ids, of=of, progress=layers)
        words = np.array(tokenizer.convert_ids_to_tokens(ids), object)
        about = {"long_name": MEANING["token"]}
        runs.append((one if of else with_laws(one)).assign(token=("key", words, about)))
        names.append(printable(path.stem, _MAX_NAME))
    if not runs:
        raise InputError("text", len(paths), f"of all files none can be used: {passed[0]}")
    data = xarray.concat(runs, "text").assign_coords(text=names)
    about = {"model": printable(Path(model).name, _MAX_NAME), "tokens": tokens, "bos": int(bos)}
    data = data.assign_attrs(about)
    files = (save(data, out), write_picture(data, Path(out).with_suffix(".svg")))
    if report_to is not None:
        # Names without folders: the page shall not tell whose disk it was made on, and be the same
        # on another one.
        words = ["sparsity", "measure", Path(model).name, *(Path(text).name for text in texts)]
        words += [w for name in of for w in ("--of", name)] + ["--bos"] * bos
        words += ["--tokens", str(tokens), "--out", Path(out).name, "--report", "DIR"]
        command = printable(shlex.join(words), _MAX_COMMAND)  # names of files need not be text
        files += write_report(data, report_to, command)
    return Job(data, files, tuple(passed))


def _list_files(texts: Sequence[str]) -> list[Path]:
    """Return files, and the files of folders by name; hidden ones are left out."""
    paths: list[Path] = []
    for path in map(Path, texts):
        if path.is_dir():
            paths += sorted(x for x in path.iterdir() if x.is_file() and x.name[0] != ".")
        else:  # one that is not there is named when it is read
            paths.append(path)
    if not paths:
        raise InputError("text", ", ".join(texts) or None, "give files or folders of texts")
    stems = [path.stem for path in paths]
    if len(set(stems)) < len(stems):
        raise InputError("text", max(stems, key=stems.count), "is given twice; name texts apart")
    return paths
