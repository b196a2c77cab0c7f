"""`sparsity measure` of every row: a model, texts, a netCDF file and, where wanted, a page."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sparsity.attention.measurement import tables
from sparsity.attention.measurement.datasets import save
from sparsity.attention.measurement.requested import requested_names
from sparsity.attention.measurement.runs import kept_pieces, measure_model, open_inputs
from sparsity.attention.measurement.texts import texts_of_windows
from sparsity.attention.report import write_report, written_places
from sparsity.errors import printable

if TYPE_CHECKING:
    import xarray


_MAX_COMMAND = 2000  # letters of a command on a page: it may name thousands of texts


@dataclass(frozen=True)
class Job:
    """The outcome of one run of `sparsity measure`.

    Args:
        data: the measurement.
        files: all files that were written, the dataset first.
    """

    data: xarray.Dataset
    files: tuple[Path, ...]

    def summary(self) -> dict[str, Any]:
        """Return the outcome in JSON's types."""
        loss = self.data["loss"]
        # "over texts" draws whole texts: windows of one text are not independent.
        return {
            "model": self.data.attrs["model"],
            "model_sha256": self.data.attrs["model_sha256"],
            "files": [str(path) for path in self.files],
            "loss": [
                {"text": str(text), "bos": bool(b), "nats": float(loss.sel(text=text, bos=b))}
                for text in self.data["text"].values
                for b in self.data["bos"].values
            ],
            "table": tables.summary(self.data),
            "texts": (texts := tables.by_text(self.data)),
            "over texts": tables.bootstrap_over_texts(
                texts,
                tables.OVER_TEXTS,
                texts_of_windows(self.data["text"].values, self.data.attrs.get("stride")),
            ),
            "passed_over": self.passed_over(),
        }

    def passed_over(self) -> list[str]:
        """Return a line for each text that could not be used."""
        return [str(line) for line in self.data.attrs.get("passed_over", [])]

    def text(self) -> str:
        """Return the outcome for a terminal."""
        loss = ", ".join(
            f"{text} {float(self.data['loss'].sel(text=text)[0]):.2f}"
            for text in self.data["text"].values
        )
        lines = [f"{self.data.attrs['model']}: next-token loss in nats: {loss}"]
        lines += [tables.text(tables.summary(self.data)), ""]
        lines += [f"Passed over: {line}" for line in self.passed_over()]
        places = self.files[:1] + self.files[1:][-1:]
        return "\n".join([*lines, f"Written: {', '.join(map(str, places))}"])


def run(
    model: str,
    texts: Sequence[str],
    *,
    out: str,
    tokens: int = 512,
    offset: int = 0,
    stride: int | None = None,
    bos: bool = False,
    of: Sequence[str] = (),
    report_to: str | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Job:
    """Measure a model on texts and write every row.

    Finished layers are kept in a folder beside `out` until it is written, so that the same command
    goes on where it was ended.

    Args:
        model: GGUF or safetensors file, or a folder of the latter.
        texts: folders and files, of text or of token ids (.npy).
        out: the netCDF file.
        tokens: the length of each window in tokens.
        offset: the tokens of a text to pass over before its first window.
        stride: the tokens from the start of one window to that of the next; None for one window a
            text.
        bos: whether to begin each text with the model's first token.
        of: what else to measure, as `sparsity.measure` has it.
        report_to: folder for a page with pictures, for which every text is run both with
            and without that token, if the model has one; None for no page.
        progress: called with (layers done, layers in all).

    Raises:
        InputError: a file that cannot be read or written, or as `measure_model`.
    """
    requested_names(of)
    places = written_places(report_to) if report_to is not None else []
    opened, paths = open_inputs(model, texts, out, report_to, places)
    # A report compares texts with BOS and without, since where sinks are depends on it.
    both = report_to is not None and opened.config.bos is not None
    with kept_pieces(Path(out)) as parts:
        data = measure_model(
            opened,
            paths,
            tokens=tokens,
            offset=offset,
            stride=stride,
            bos=(False, True) if both else (bos,),
            of=of,
            parts=parts,
            progress=progress,
        )
        files = (save(data, out),)
    if report_to is not None:
        # Names without folders: the page shall not tell whose disk it was made on, and be the same
        # on another one.
        words = ["sparsity", "measure", Path(model).name, *(Path(text).name for text in texts)]
        words += [w for name in of for w in ("--of", name)]
        words += ["--tokens", str(tokens), "--out", Path(out).name, "--report", "DIR"]
        words += ["--offset", str(offset)] if offset else []
        words += ["--stride", str(stride)] if stride else []
        command = printable(shlex.join(words), _MAX_COMMAND)  # names of files need not be text
        files += write_report(data, report_to, command)
    return Job(data, files)
