"""`sparsity measure` of every row: a model, texts, a netCDF file and, where wanted, a page."""

from __future__ import annotations

import itertools
import os
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sparsity import report
from sparsity.attention import claims as claims_model
from sparsity.attention import figures as pictures
from sparsity.attention import page
from sparsity.attention.checkpoints import Checkpoint
from sparsity.attention.claims.head_evidence import format_head_table, head_table
from sparsity.attention.claims.heads import judge_heads
from sparsity.attention.measurement import SHAPE, tables, with_head_law
from sparsity.attention.measurement.datasets import save
from sparsity.attention.measurement.heads import measure_heads
from sparsity.attention.measurement.requested import requested_names
from sparsity.attention.measurement.runs import kept_pieces, measure_model, open_inputs
from sparsity.attention.measurement.texts import Cut, take_windows, texts_of_windows
from sparsity.errors import InputError, printable
from sparsity.figures.figure import Plate
from sparsity.output import folder, json_text, write_together

if TYPE_CHECKING:
    import xarray


MIN_TOKENS = 128  # A report compares contexts: the shortest is of 64 tokens, the next of 128.


def written_places(home: str | None) -> list[Path]:
    """Return the files that a page may write, to be refused before anything is measured."""
    drawn = [f"{p.name}.{suffix}" for p in pictures.ALL for suffix in ("svg", "png", "csv")]
    return [Path(home) / name for name in (*drawn, "claims.json", "index.html")] if home else []


def _over_runs(data: xarray.Dataset) -> xarray.Dataset:
    """Return the data with axes of text and bos, of length one where it is of a single run.

    Where it is not said whether the text begins with BOS, `bos` is −1.

    Raises:
        InputError: weights without logits, or a single context length.
    """
    if "gamma" not in data:
        fix = "a report compares rows with laws of their logits; measure queries and keys"
        raise InputError("data", "weights", fix)
    if data.sizes["context"] < 2:
        fix = f"a report compares contexts; measure causal attention of {MIN_TOKENS} tokens or more"
        raise InputError("data", f"one context of {int(data['context'][-1])} tokens", fix)
    for name, untold in (("bos", -1), ("text", "text")):
        if name not in data.dims:
            kept = data if name in data.coords else data.assign_coords({name: untold})
            data = kept.expand_dims(name)
    return data.assign_attrs({"model": "a model"} | data.attrs)


def write_report(
    data: xarray.Dataset,
    out: str | os.PathLike[str],
    command: str,
    head_claims: Sequence[dict[str, Any]] = (),
) -> tuple[tuple[Path, ...], list[dict[str, Any]]]:
    """Write pictures with their data, claims.json and index.html, each whole or not at all.

    Args:
        data: a dataset of `measure_model`, or of one run by `measure` or `measure_transformers`.
        out: the folder, made if need be.
        command: the command that the page names to compute everything again.
        head_claims: the judged claims on heads, to stand with the others.

    Returns:
        The files, the page last, and the judged claims.

    Raises:
        InputError: data without logits or their shape, of one context length only, or a folder
            that cannot be had.
    """
    # Everything is made before anything is written, and files are then replaced together: a page
    # never stands beside the pictures of another measurement.
    data = _over_runs(data)
    claims, out = [*claims_model.judge(data), *head_claims], folder(out)
    plates = [
        Plate(x.name, x.title(data), x.caption, x.alt, x.render(data), x.colours)
        for x in pictures.drawn(data)
    ]
    contents: dict[str, bytes | str] = {
        f"{plate.name}.{suffix}": content
        for plate in plates
        for suffix, content in plate.files.items()
    }
    # The environment's seed is that of sampling, of which a measurement has none.
    meta = {k: v for k, v in report.environment().items() if k != "seed"}
    contents["claims.json"] = json_text(claims)
    contents["index.html"] = page.render(data, plates, claims, meta, command)
    write_together({out / name: content for name, content in contents.items()})
    return tuple(out / name for name in contents), claims


_MAX_COMMAND = 2000  # letters of a command on a page: it may name thousands of texts
# The bias of a key is estimated from queries at least so many tokens after the row that is judged,
# in texts of 512 tokens and more.
_GAP = 64


@dataclass(frozen=True)
class Job:
    """The outcome of one run of `sparsity measure`.

    Args:
        data: the measurement.
        files: all files that were written, the dataset first.
        claims: the judged claims; empty without a report and without the law of heads.
    """

    data: xarray.Dataset
    files: tuple[Path, ...]
    claims: list[dict[str, Any]]

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
            **({"head_law": head_table(self.data)} if "S_head_without_sinks" in self.data else {}),
            "claims": self.claims,
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
        if "S_head_without_sinks" in self.data:
            lines += [format_head_table(head_table(self.data)), ""]
        lines += [f"  {record['verdict']:<10} {record['claim']}" for record in self.claims]
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
    head_law: bool = False,
    report_to: str | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Job:
    """Measure a model on texts and write every row.

    Finished layers are kept in a folder beside `out` until it is written, so that the same command
    goes on where it was ended; heads are taken apart anew.

    Args:
        model: GGUF or safetensors file, or a folder of the latter.
        texts: folders and files, of text or of token ids (.npy).
        out: the netCDF file.
        tokens: the length of each window in tokens.
        offset: the tokens of a text to pass over before its first window.
        stride: the tokens from the start of one window to that of the next; None for one window a
            text.
        bos: whether to begin each text with the model's first token.
        of: what else to measure, as `sparsity.measure` has it; a report adds the shape of logits.
        head_law: whether to add the law of heads, fitted on texts and judged on others, and judge
            the claims on heads, on the first window of each text without BOS.
        report_to: folder for a page with pictures and claims, for which every text is run both with
            and without that token, if the model has one; None for no page.
        progress: called with (layers done, layers in all).

    Raises:
        InputError: a file that cannot be read or written, or as `measure_model`.
    """
    if (report_to is not None or head_law) and tokens < MIN_TOKENS:
        fix = f"a report and the law of heads need longer rows; give {MIN_TOKENS} or more"
        raise InputError("tokens", tokens, fix)
    requested_names(of)
    opened, paths = open_inputs(model, texts, out, report_to, written_places(report_to))
    # Asked before the model runs over all texts: with one text the law of heads has nothing to be
    # judged on.
    if head_law:
        found, _ = take_windows(opened, paths, Cut(tokens, offset, bos=(bool(bos),)))
        if len(found) < 2:  # one window a text
            fix = f"is fitted on some texts, judged on others; give two or more of {tokens} tokens"
            raise InputError("head_law", f"on {len(found)} text", fix)
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
            of=of if report_to is None else (*of, *SHAPE),
            parts=parts,
            progress=progress,
        )
        claims = []
        if head_law:
            data = with_head_law(data)
            claims = _head_claims(opened, paths, tokens, offset, progress)
        files = (save(data, out),)
    if report_to is not None:
        # Names without folders: the page shall not tell whose disk it was made on, and be the same
        # on another one.
        words = ["sparsity", "measure", Path(model).name, *(Path(text).name for text in texts)]
        words += [w for name in of for w in ("--of", name)]
        words += ["--tokens", str(tokens), "--out", Path(out).name, "--report", "DIR"]
        words += ["--offset", str(offset)] if offset else []
        words += ["--stride", str(stride)] if stride else []
        words += ["--head-law"] if head_law else []
        command = printable(shlex.join(words), _MAX_COMMAND)  # names of files need not be text
        written, claims = write_report(data, report_to, command, claims)
        files += written
    return Job(data, files, claims)


def _head_claims(
    model: Checkpoint, paths: Any, tokens: int, offset: int, progress: Any
) -> list[dict[str, Any]]:
    """Judge the claims on heads on the first window of each text."""
    heads, done = model.config.heads * model.config.layers, itertools.count(1)

    def each(layer: int, head: int, parts: Any) -> None:
        if progress is not None:
            progress(next(done), heads)

    # In short texts the gap is an eighth, so that the second half still has rows with queries
    # behind.
    gap = min(_GAP, tokens // 8)
    return judge_heads(
        measure_heads(model, paths, tokens=tokens, offset=offset, gap=gap, each=each)
    )
