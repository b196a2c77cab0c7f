"""A measurement as a folder: pictures with their data, claims and a page."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sparsity import report
from sparsity.attention import claims as claims_model
from sparsity.attention import figures as pictures
from sparsity.attention.page import page
from sparsity.errors import InputError
from sparsity.figures.figure import Plate
from sparsity.output import folder, json_text, write_together

if TYPE_CHECKING:
    import xarray

LEAST = 128  # tokens for a report: context lengths 64 and 128


def written_places(home: str | None) -> list[Path]:
    """The files of a page."""
    drawn = [f"{p.name}.{suffix}" for p in pictures.ALL for suffix in ("svg", "png", "csv")]
    return [Path(home) / name for name in (*drawn, "claims.json", "index.html")] if home else []


def _over_runs(data: xarray.Dataset) -> xarray.Dataset:
    """The data over text and bos: one of each where it is of one run, −1 where bos is not said.

    Raises:
        InputError: weights without logits, or a single context length.
    """
    if "gamma" not in data:
        fix = "a report compares rows with laws of their logits; measure queries and keys"
        raise InputError("data", "weights", fix)
    if data.sizes["context"] < 2:
        fix = f"a report compares contexts; measure causal attention of {LEAST} tokens or more"
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
    """Pictures with their data, claims.json and index.html, each written whole or not at all.

    Args:
        data: from `measure_model`, or of one run, as `measure` and `measure_transformers` give it.
        out: the folder, made if need be.
        command: that the page names to compute everything again.
        head_claims: the judged claims on heads, to stand with the others.

    Returns:
        The files, the page last, and the judged claims.

    Raises:
        InputError: data without logits or their shape, of one context length only, or a folder
            that cannot be had.
    """
    data = _over_runs(data)
    claims, out = [*claims_model.judge(data), *head_claims], folder(out)
    plates = [
        Plate(x.name, x.title(data), x.caption, x.alt, x.render(data)) for x in pictures.drawn(data)
    ]
    contents: dict[str, bytes | str] = {
        f"{plate.name}.{suffix}": content
        for plate in plates
        for suffix, content in plate.files.items()
    }
    meta = {k: v for k, v in report.environment().items() if k != "seed"}
    contents["claims.json"] = json_text(claims)
    contents["index.html"] = page.render(data, plates, claims, meta, command)
    write_together({out / name: content for name, content in contents.items()})
    return tuple(out / name for name in contents), claims
