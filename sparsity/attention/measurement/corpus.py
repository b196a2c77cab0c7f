"""Many texts: each measured and summed up, kept on disk when done, and merged at the end."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np

from sparsity.attention import checkpoints as models
from sparsity.attention.checkpoints.checkpoint import fingerprint
from sparsity.attention.measurement import bootstrap, summaries
from sparsity.attention.measurement.parts import Parts
from sparsity.attention.measurement.pieces import pieces as each_piece
from sparsity.attention.measurement.runs import about
from sparsity.attention.measurement.summaries import Summary
from sparsity.attention.measurement.texts import Cut, Window, named, texts_of, windows
from sparsity.errors import InputError
from sparsity.tasks import TaskExecutor

if TYPE_CHECKING:
    import xarray

_SUMS = tuple(field.name for field in fields(Summary))


@dataclass(frozen=True)
class Corpus:
    """Many texts measured.

    Args:
        about: the model and the settings.
        names: of the texts, or of their windows.
        figures: of each text, at the longest context, as `tables.summary` has them, and its loss.
        importance: of the sink key in each text, [text, layer, head].
        sinks: of each text, as `sinks.listed` gives them.
        sums: moments and histograms of all rows.
        passed_over: a line for each text that could not be used.
    """

    about: dict[str, Any]
    names: tuple[str, ...]
    figures: tuple[dict[str, Any], ...]
    importance: np.ndarray
    sinks: tuple[list[dict[str, Any]], ...]
    sums: Summary
    passed_over: tuple[str, ...]

    def table(self) -> list[dict[str, Any]]:
        """All rows of 2^(k−1) < n ≤ 2^k keys, by k."""
        found = []
        for k in range(self.sums.count.shape[-1]):
            own = self.sums.at(k)
            row: dict[str, Any] = {"n": 2**k, "rows": int(own.count[0].sum())}
            row |= {name: own.average(name) for name in ("S", "sink_mass", "sinks_mass")}
            for name in ("n_eff", "n_eff_others"):
                row[name] = float(np.exp(own.quantile(f"log_{name}", 0.5)))
            row["gamma_others"] = own.quantile("gamma_others", 0.5)
            for name in ("ratio_exact", "ratio_exact_others"):
                row[name] = float(np.exp(own.quantile(name.replace("ratio", "residual"), 0.5)))
            found.append(row)
        return found

    def over_texts(self) -> dict[str, dict[str, Any]]:
        """Means over the texts, whose windows are never drawn apart."""
        texts = texts_of(self.names, self.about["stride"])
        return bootstrap.over_texts(self.figures, bootstrap.NAMES, texts)

    def summary(self) -> dict[str, Any]:
        """The outcome in JSON's types."""
        texts = [
            {"text": name, **figures, "sinks": listed}
            for name, figures, listed in zip(self.names, self.figures, self.sinks, strict=True)
        ]
        return {
            **self.about,
            "table": self.table(),
            "over texts": self.over_texts(),
            "texts": texts,
            "passed_over": list(self.passed_over),
        }

    def text(self) -> str:
        """The outcome for a terminal."""
        columns = (
            ("n up to", "n", "d"), ("rows", "rows", "d"), ("mean S", "S", ".3f"),
            ("n_eff", "n_eff", ".2f"), ("no sinks", "n_eff_others", ".2f"),
            ("on sinks", "sinks_mass", ".1%"), ("γ", "gamma_others", ".2f"),
            ("S/exact", "ratio_exact_others", ".3f"),
        )  # fmt: skip
        texts = len(set(texts_of(self.names, self.about["stride"])))
        count = f"{texts} text{'s' * (texts > 1)}"
        count = f"{len(self.names)} windows of {count}" if self.about["stride"] else count
        lines = [f"{self.about['model']}: {count}"]
        lines.append(" ".join(f"{title:>9}" for title, *_ in columns))
        for row in self.table():
            lines.append(" ".join(f"{row[key]:{form}}".rjust(9) for _, key, form in columns))
        lines.append("n_eff, γ, S/exact: medians, from histograms (cells of 0.2 in ln n_eff and γ,")
        lines.append("0.1 in ln S/exact); γ and S/exact without sinks")
        for name, x in self.over_texts().items():
            low, high = x["ci95"]
            spread_of = f"{low:.3f} to {high:.3f} over texts" if x["count"] > 1 else "of one text"
            lines.append(f"  {name:<19} {x['value']:8.3f}  ({spread_of})")
        return "\n".join([*lines, *(f"Passed over: {line}" for line in self.passed_over)])

    def dataset(self) -> xarray.Dataset:
        """Everything with its labels; `summaries.read` gives the sums back, to be merged."""
        data = summaries.dataset(self.sums)
        names = list(self.figures[0])
        table = np.array([[float(x[name]) for name in names] for x in self.figures])
        flat = [(i, sink) for i, own in enumerate(self.sinks) for sink in own]
        data = data.assign_coords(text=list(self.names), figure=names)
        data["figures"] = (("text", "figure"), table, {"long_name": "of each text, at length T"})
        said = {"long_name": "mean weight of the sink key over the rows that see it"}
        data["importance"] = (("text", "layer", "head"), self.importance.astype(np.float32), said)
        data["sink_text"] = ("sink", np.array([i for i, _ in flat], np.int32))
        for name, kind in (("position", np.int32), ("heads", np.int32), ("importance", np.float32)):
            data[f"sink_{name}"] = ("sink", np.array([x[name] for _, x in flat], kind))
        data["sink_token"] = ("sink", np.array([x["token"] for _, x in flat], object))
        told = {"passed_over": list(self.passed_over)} if self.passed_over else {}
        return data.assign_attrs(self.about | told)


def _joined(
    about: dict[str, Any], found: Sequence[Window], pieces: Any, passed: list[str]
) -> Corpus:
    """All texts, in their order: the sums do not depend on which of them were done before."""
    figures, importance, listed, sums = [], [], [], None
    for piece in pieces:
        own = Summary(*(piece[name] for name in _SUMS))
        sums = own if sums is None else summaries.merge(sums, own)
        said = json.loads(str(piece["said"]))
        figures.append({k: np.nan if v is None else v for k, v in said["figures"].items()})
        importance.append(piece["importance"])
        listed.append(said["sinks"])
    assert sums is not None
    names = tuple(window.name for window in found)
    heads = np.stack(importance)
    return Corpus(about, names, tuple(figures), heads, tuple(listed), sums, tuple(passed))


def measure_corpus(
    model: str | os.PathLike[str] | models.Checkpoint,
    texts: Any,
    *,
    tokens: int = 512,
    offset: int = 0,
    stride: int | None = None,
    bos: bool = False,
    sink: int = 0,
    parts: str | os.PathLike[str] | None = None,
    executor: TaskExecutor | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Corpus:
    """Run many texts through a model and keep of their attention what can be merged.

    Memory and disk do not grow with rows: of a text its figures are kept, of its rows moments and
    histograms by layer, head and length.

    Args:
        model: a GGUF or safetensors file, or an opened checkpoint.
        texts: as `measure_model` takes them; one that cannot be used is named and passed over.
        tokens: T ≥ 2 of a window, the token that begins it included.
        offset: tokens of a text that are left out before the first window.
        stride: tokens from one window to the next; None for one window a text.
        bos: whether each window begins with the model's first token.
        sink: position of the key that is looked at as the published sink.
        parts: folder in which finished texts are kept, a file each: a run that was ended, in any
            way, goes on from there, and its result is the same to the bit. None keeps nothing.
        executor: where texts are measured, a few in a task, as in `sparsity.sweep`; the same bits
            likewise. The workers open the model by its path, once each, so that no weights are sent
            to them. None is here.
        progress: called with (layers done, layers in all, of all texts).

    Raises:
        InputError: as `measure_model`; `parts` is of another request; the executor lost its
            workers; texts failed there, told when the others are kept.
    """
    opened = model if isinstance(model, models.Checkpoint) else models.load(model)
    if not isinstance(bos, bool | np.bool_):
        raise InputError("bos", bos, "give True or False")
    cut = Cut(tokens, offset, stride, (bool(bos),))
    found, passed = windows(opened, named(texts), cut)
    digest = fingerprint(opened.files)
    settings = about(opened, digest, cut, sink) | {"bos": int(bos)}
    kept, base = Parts(parts, settings), json.dumps(settings, sort_keys=True).encode()
    keys = [hashlib.sha256(base + w.ids[0].tobytes()).hexdigest()[:20] for w in found]
    todo = [i for i, key in enumerate(keys) if kept.get(key) is None]
    held: dict[str, dict[str, Any]] = {}  # where nothing is kept; else they are read at the end
    count = opened.config.layers
    done, total = count * (len(found) - len(todo)), count * len(found)

    def step(layers: int) -> None:
        nonlocal done
        done += layers
        if progress is not None:
            progress(done, total)

    failed: dict[str, Exception] = {}
    ids = [found[i].ids[0] for i in todo]
    for at, piece in each_piece(opened, digest, sink, ids, executor, step):
        i = todo[at]
        if not isinstance(piece, Exception):
            kept.put(keys[i], piece, compressed=True)
            held |= {keys[i]: piece} if parts is None else {}
        elif parts is None:
            raise piece
        else:
            failed[found[i].name] = piece
    if failed:
        raise _failure(failed)
    each = (held[key] if parts is None else kept.again(key) for key in keys)
    return _joined(settings, found, each, passed)


def _failure(failed: dict[str, Exception]) -> InputError:
    """All texts that failed, the first of them with the reason."""
    name, why = next(iter(failed.items()))
    fix = f"failed: {name}: {' '.join(str(why).split()) or type(why).__name__}; the others are kept"
    return InputError("texts", ", ".join([*failed][:3]) + ", …" * (len(failed) > 3), fix)
