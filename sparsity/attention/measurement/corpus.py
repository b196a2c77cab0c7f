"""Many texts: each measured and summed up, kept on disk when done, and merged at the end.

A text is measured here, or by a worker of an executor that opens the model itself; what is kept of
it is the same to the bit.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sparsity.attention import checkpoints as models
from sparsity.attention.checkpoints.checkpoint import fingerprint
from sparsity.attention.measurement import sinks, summaries, tables
from sparsity.attention.measurement.datasets import label_layers, measure_with_laws, save
from sparsity.attention.measurement.layer_inputs import layer_of_queries
from sparsity.attention.measurement.runs import KeptPieces, describe_run, kept_pieces, open_inputs
from sparsity.attention.measurement.summaries import Summary
from sparsity.attention.measurement.texts import Cut, name_texts, take_windows, texts_of_windows
from sparsity.errors import InputError
from sparsity.output import json_ready
from sparsity.tasks import TaskExecutor, run_all_tasks

if TYPE_CHECKING:
    import xarray

# Texts that share one reading of the weights: more read less and lose more to a kill, as a text is
# kept when its group is done, and hold the queries and keys of more texts in memory.
MAX_TOGETHER = 4
MIN_TASKS = 8  # for an executor, where there are as many texts: fewer would leave workers idle


@dataclass(frozen=True)
class Corpus:
    """Many texts measured.

    Args:
        about: the model and the settings.
        names: of the texts, or of their windows.
        figures: of each text, at the longest context, as `tables.summary` has them, and its loss.
        importance: of the sink key in each text, [text, layer, head].
        sinks: of each text, as `sinks.list_sinks` gives them.
        sums: moments and histograms of all rows.
        passed_over: a line for each text that could not be used.
        files: what was written of it.
    """

    about: dict[str, Any]
    names: tuple[str, ...]
    figures: tuple[dict[str, Any], ...]
    importance: np.ndarray
    sinks: tuple[list[dict[str, Any]], ...]
    sums: Summary
    passed_over: tuple[str, ...]
    files: tuple[Path, ...] = ()

    def table(self) -> list[dict[str, Any]]:
        """Return a line for all rows of 2^(k−1) < n ≤ 2^k keys, by k."""
        found = []
        for k in range(self.sums.count.shape[-1]):
            own = self.sums.at(k)
            row: dict[str, Any] = {"n": 2**k, "rows": int(own.count[0].sum())}
            row |= {name: own.average(name) for name in ("S", "sink_mass", "sinks_mass")}
            for name in ("n_eff", "n_eff_without_sinks"):
                row[name] = float(np.exp(own.quantile(f"log_{name}", 0.5)))
            row["gamma_without_sinks"] = own.quantile("gamma_without_sinks", 0.5)
            for name in ("ratio_exact", "ratio_exact_without_sinks"):
                row[name] = float(np.exp(own.quantile(name.replace("ratio", "residual"), 0.5)))
            found.append(row)
        return found

    def over_texts(self) -> dict[str, dict[str, Any]]:
        """Return means over the texts, whose windows are never drawn apart."""
        texts = texts_of_windows(self.names, self.about["stride"])
        return tables.bootstrap_over_texts(self.figures, tables.OVER_TEXTS, texts)

    def summary(self) -> dict[str, Any]:
        """Return the outcome in JSON's types."""
        each = zip(self.names, self.figures, self.sinks, strict=True)
        found = {
            **self.about,
            "table": self.table(),
            "over texts": self.over_texts(),
            "texts": [{"text": name, **own, "sinks": listed} for name, own, listed in each],
            "passed_over": list(self.passed_over),
        }
        return found | ({"files": [str(path) for path in self.files]} if self.files else {})

    def text(self) -> str:
        """Return the outcome for a terminal."""
        columns = (
            ("n up to", "n", "d"), ("rows", "rows", "d"), ("mean S", "S", ".3f"),
            ("n_eff", "n_eff", ".2f"), ("no sinks", "n_eff_without_sinks", ".2f"),
            ("on sinks", "sinks_mass", ".1%"), ("γ", "gamma_without_sinks", ".2f"),
            ("S/exact", "ratio_exact_without_sinks", ".3f"),
        )  # fmt: skip
        texts = len(set(texts_of_windows(self.names, self.about["stride"])))
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
        lines += [f"Passed over: {line}" for line in self.passed_over]
        lines += [f"Written: {', '.join(map(str, self.files))}"] if self.files else []
        return "\n".join(lines)

    def dataset(self) -> xarray.Dataset:
        """Return everything with its labels; `summaries.read` gives the sums back, to be merged."""
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
        lines = {"passed_over": list(self.passed_over)} if self.passed_over else {}
        return data.assign_attrs(self.about | lines)


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
    found, passed = take_windows(opened, name_texts(texts), cut)
    # A piece is named by all that its numbers depend on: version, model, settings, and token ids.
    digest = fingerprint(opened.files)
    settings = describe_run(opened, digest, cut, sink) | {"bos": int(bos)}
    kept, base = KeptPieces(parts, settings), json.dumps(settings, sort_keys=True).encode()
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
    for at, piece in _measure_texts(opened, digest, sink, ids, executor, step):
        i = todo[at]
        if not isinstance(piece, Exception):
            kept.put(keys[i], piece, compressed=True)
            held |= {keys[i]: piece} if parts is None else {}
        elif parts is None:
            raise piece
        else:
            failed[found[i].name] = piece
    if failed:
        name, why = next(iter(failed.items()))
        reason = " ".join(str(why).split()) or type(why).__name__
        names = ", ".join([*failed][:3]) + ", …" * (len(failed) > 3)
        raise InputError("texts", names, f"failed: {name}: {reason}; the others are kept")
    # In the order of the texts, one at a time: the sums do not depend on which were done before.
    figures, importance, listed, sums = [], [], [], None
    for key in keys:
        piece = held[key] if parts is None else kept.get_again(key)
        own = Summary(*(piece[field.name] for field in fields(Summary)))
        sums = own if sums is None else summaries.merge(sums, own)
        said = json.loads(str(piece["said"]))
        figures.append({k: np.nan if v is None else v for k, v in said["figures"].items()})
        importance.append(piece["importance"])
        listed.append(said["sinks"])
    assert sums is not None
    names, heads = tuple(window.name for window in found), np.stack(importance)
    return Corpus(settings, names, tuple(figures), heads, tuple(listed), sums, tuple(passed))


def sum_up(
    model: str,
    texts: Sequence[str],
    *,
    out: str,
    bos: bool = False,
    executor: TaskExecutor | None = None,
    progress: Callable[[int, int], None] | None = None,
    **cut: Any,
) -> Corpus:
    """Measure a model on many texts and write summaries, which `measurement.summaries` merges.

    It is the command `sparsity measure`. Finished texts are kept in a folder beside `out` until it
    is written, so that the same command goes on where it was ended.

    Args:
        model: GGUF or safetensors file, or a folder of the latter.
        texts: folders and files, of text or of token ids (.npy).
        out: the netCDF file.
        bos: whether to begin each text with the model's first token.
        executor: as `measure_corpus` has it.
        progress: called with (layers done, layers in all).
        cut: tokens, offset and stride of `measure_corpus`.

    Raises:
        InputError: as `open_inputs` and `measure_corpus`.
    """
    opened, paths = open_inputs(model, texts, out)
    with kept_pieces(Path(out)) as parts:
        how = {"bos": bos, "parts": parts, "executor": executor, "progress": progress}
        corpus = measure_corpus(opened, paths, **how, **cut)
        return replace(corpus, files=(save(corpus.dataset(), out),))


def _measure_texts(
    model: models.Checkpoint,
    digest: str,
    sink: int,
    texts: Sequence[np.ndarray],
    executor: TaskExecutor | None,
    step: Callable[[int], None],
) -> Iterator[tuple[int, dict[str, Any] | Exception]]:
    """Yield index and piece of each text, as they come; on an executor also why it failed.

    Args:
        model: the checkpoint.
        digest: of its files.
        sink: position of the key that is looked at as the published sink.
        texts: token ids [T] of each.
        executor: where they are measured; None is here.
        step: called with the number of layers that were done.

    Raises:
        InputError: here, what a text raises; the executor has no workers left.
    """
    if executor is None:
        size, work = MAX_TOGETHER, functools.partial(measure_here, model, sink, step)
    else:
        size = max(min(MAX_TOGETHER, len(texts) // MIN_TASKS), 1)
        work = functools.partial(_measure_in_worker, model.path.resolve(), digest, sink)
    groups = [texts[i : i + size] for i in range(0, len(texts), size)]
    for index, found in run_all_tasks(work, groups, executor):
        yield from enumerate(found, index * size)
        if executor is not None:
            step(model.config.layers * len(found))


def _measure_in_worker(
    path: Path, digest: str, sink: int, texts: Sequence[np.ndarray]
) -> list[dict[str, Any]]:
    """Measure texts in a worker, which opens the model by its path."""
    return measure_here(open_in_worker(path, digest), sink, lambda _: None, texts)


@functools.lru_cache(maxsize=1)
def open_in_worker(path: Path, digest: str) -> models.Checkpoint:
    """Open the model, once in a worker; weights are read layer by layer when they are needed."""
    model = models.load(path)
    if fingerprint(model.files) != digest:
        raise InputError("model", path, "is another file there; give every worker the same")
    return model


def measure_here(
    model: models.Checkpoint, sink: int, step: Callable[[int], None], texts: Sequence[np.ndarray]
) -> list[dict[str, Any]]:
    """Measure texts that share one reading of the weights; return what is kept of each."""
    from sparsity.attention.checkpoints.llama import forward

    layers: list[list[dict[str, Any]]] = [[] for _ in texts]

    def visit(layer: int, run: int, q: Any, k: Any) -> None:
        layers[run].append(measure_with_laws(layer_of_queries(q, k), sink))
        step(1)

    # The model goes layer by layer through all texts, so that weights are read once; a layer is
    # measured and its queries and keys are let go before the next one.
    losses, pieces = forward(model, texts, visit), []
    for own, loss, ids in zip(layers, losses, texts, strict=True):
        data = label_layers(own, {"causal": 1})
        sums = Summary.of({str(name): values.values for name, values in data.items()})
        figures = tables.summarise_context(data, int(data["context"][-1]))
        figures["loss"] = float(np.float32(loss))
        listed = sinks.list_sinks(data["key_importance"].values, model.encode.words(ids))
        said = json.dumps(json_ready({"figures": figures, "sinks": listed}))
        importance = data["importance"].values[..., -1]
        pieces.append({**asdict(sums), "importance": importance, "said": np.array(said)})
    return pieces
