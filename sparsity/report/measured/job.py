"""The command `sparsity measure`: a model, texts, a netCDF file and, where wanted, a page."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sparsity import report
from sparsity.errors import InputError
from sparsity.figures import measured as pictures
from sparsity.figures.record import Plate
from sparsity.ledger import model as claims_model
from sparsity.measurement import SHAPE, asked, bootstrap, tables
from sparsity.measurement.corpus import Corpus, measure_corpus
from sparsity.measurement.labels import save
from sparsity.measurement.runs import measure_model
from sparsity.measurement.texts import texts_of
from sparsity.output import folder, json_text, write
from sparsity.report.measured import page
from sparsity.report.measured.files import inputs, kept_parts

if TYPE_CHECKING:
    import xarray


@dataclass(frozen=True)
class Job:
    """What was measured.

    Args:
        data: the measurement.
        files: everything written.
        claims: the judged claims; empty without a report.
    """

    data: xarray.Dataset
    files: tuple[Path, ...]
    claims: list[dict[str, Any]]

    def summary(self) -> dict[str, Any]:
        """The outcome in JSON's types."""
        loss = self.data["loss"]
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
            "over texts": bootstrap.over_texts(
                texts,
                bootstrap.NAMES,
                texts_of(self.data["text"].values, self.data.attrs.get("stride")),
            ),
            "claims": self.claims,
            "passed_over": self.passed_over(),
        }

    def passed_over(self) -> list[str]:
        """A line for each text that could not be used."""
        return [str(line) for line in self.data.attrs.get("passed_over", [])]

    def text(self) -> str:
        """The outcome for a terminal."""
        loss = ", ".join(
            f"{text} {float(self.data['loss'].sel(text=text)[0]):.2f}"
            for text in self.data["text"].values
        )
        lines = [f"{self.data.attrs['model']}: next-token loss in nats: {loss}"]
        lines += [tables.text(tables.summary(self.data)), ""]
        lines += [f"  {record['verdict']:<10} {record['claim']}" for record in self.claims]
        lines += [f"Passed over: {line}" for line in self.passed_over()]
        places = self.files[:1] + self.files[-1:] if self.claims else self.files
        return "\n".join([*lines, f"Written: {', '.join(map(str, places))}"])


_LEAST = 128  # tokens for a report: context lengths 64 and 128


def _over_runs(data: xarray.Dataset) -> xarray.Dataset:
    """The data over text and bos: one of each where it is of one run, −1 where bos is not said.

    Raises:
        InputError: weights without logits, or a single context length.
    """
    if "gamma" not in data:
        fix = "a report compares rows with laws of their logits; measure queries and keys"
        raise InputError("data", "weights", fix)
    if data.sizes["context"] < 2:
        fix = f"a report compares contexts; measure causal attention of {_LEAST} tokens or more"
        raise InputError("data", f"one context of {int(data['context'][-1])} tokens", fix)
    for name, untold in (("bos", -1), ("text", "text")):
        if name not in data.dims:
            kept = data if name in data.coords else data.assign_coords({name: untold})
            data = kept.expand_dims(name)
    return data.assign_attrs({"model": "a model"} | data.attrs)


def write_report(
    data: xarray.Dataset, out: str | os.PathLike[str], command: str
) -> tuple[tuple[Path, ...], list[dict[str, Any]]]:
    """Pictures with their data, claims.json and index.html, each written whole or not at all.

    Args:
        data: from `measure_model`, or of one run, as `measure` and `measure_transformers` give it.
        out: the folder, made if need be.
        command: that the page names to compute everything again.

    Returns:
        The files, the page last, and the judged claims.

    Raises:
        InputError: data without logits or their shape, of one context length only, or a folder
            that cannot be had.
    """
    data = _over_runs(data)
    claims, out = claims_model.judge(data), folder(out)
    plates = [
        Plate(x.name, x.title(data), x.caption, x.alt, pictures.render(x, data))
        for x in pictures.ALL
    ]
    contents: dict[str, bytes | str] = {
        f"{plate.name}.{suffix}": content
        for plate in plates
        for suffix, content in plate.files.items()
    }
    meta = {k: v for k, v in report.environment().items() if k != "seed"}
    contents["claims.json"] = json_text(claims)
    contents["index.html"] = page.render(data, plates, claims, meta, command)
    for name, content in contents.items():
        write(out / name, content)
    return tuple(out / name for name in contents), claims


@dataclass(frozen=True)
class Summed:
    """Texts that were summed up.

    Args:
        corpus: what was found.
        files: everything written.
    """

    corpus: Corpus
    files: tuple[Path, ...]

    def summary(self) -> dict[str, Any]:
        """The outcome in JSON's types."""
        return self.corpus.summary() | {"files": [str(path) for path in self.files]}

    def text(self) -> str:
        """The outcome for a terminal."""
        return f"{self.corpus.text()}\nWritten: {', '.join(map(str, self.files))}"


def sum_up(
    model: str,
    texts: Sequence[str],
    *,
    out: str,
    bos: bool = False,
    progress: Callable[[int, int], None] | None = None,
    **cut: Any,
) -> Summed:
    """Measure a model on many texts and write summaries, which `measurement.summaries` merges.

    Finished texts are kept in a folder beside `out` until it is written, so that the same command
    goes on where it was ended.

    Args:
        model: GGUF or safetensors file, or a folder of the latter.
        texts: folders and files, of text or of token ids (.npy).
        out: the netCDF file.
        bos: whether to begin each text with the model's first token.
        progress: called with (layers done, layers in all).
        cut: tokens, offset and stride of `measure_corpus`.

    Raises:
        InputError: as `inputs` and `measure_corpus`.
    """
    opened, paths = inputs(model, texts, out)
    with kept_parts(Path(out)) as parts:
        corpus = measure_corpus(opened, paths, bos=bos, parts=parts, progress=progress, **cut)
        return Summed(corpus, (save(corpus.dataset(), out),))


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
        tokens: of each window.
        offset: tokens of a text before its first window.
        stride: tokens from one window to the next; None for one window a text.
        bos: whether to begin each text with the model's first token.
        of: what else to measure, as `sparsity.measure` has it; a report adds the shape of logits.
        report_to: folder for a page with pictures and claims, for which every text is run both with
            and without that token, if the model has one; None for no page.
        progress: called with (layers done, layers in all).

    Raises:
        InputError: a file that cannot be read or written, or as `measure_model`.
    """
    if report_to is not None and tokens < _LEAST:
        fix = f"a report compares context lengths; give {_LEAST} or more"
        raise InputError("tokens", tokens, fix)
    asked.names(of)
    opened, paths = inputs(model, texts, out, report_to)
    both = report_to is not None and opened.config.bos is not None
    with kept_parts(Path(out)) as parts:
        data = measure_model(
            opened,
            paths,
            tokens=tokens,
            offset=offset,
            stride=stride,
            bos=(False, True) if both else (bos,),
            of=of if report_to is None else (*of, *SHAPE),
            parts=parts,
            progress=progress,
        )
        files, claims = (save(data, out),), []
    if report_to is not None:
        words = ["sparsity", "measure", Path(model).name, *(Path(text).name for text in texts)]
        words += [w for name in of for w in ("--of", name)]
        words += ["--tokens", str(tokens), "--out", Path(out).name, "--report", "DIR"]
        words += ["--offset", str(offset)] if offset else []
        words += ["--stride", str(stride)] if stride else []
        written, claims = write_report(data, report_to, shlex.join(words))
        files += written
    return Job(data, files, claims)
