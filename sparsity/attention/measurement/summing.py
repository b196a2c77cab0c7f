"""`sparsity measure`: a model, many texts, and a netCDF file of summaries."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sparsity.attention.measurement.corpus import Corpus, measure_corpus
from sparsity.attention.measurement.files import inputs, kept_parts
from sparsity.attention.measurement.labels import save
from sparsity.tasks import TaskExecutor


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
    executor: TaskExecutor | None = None,
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
        executor: as `measure_corpus` has it.
        progress: called with (layers done, layers in all).
        cut: tokens, offset and stride of `measure_corpus`.

    Raises:
        InputError: as `inputs` and `measure_corpus`.
    """
    opened, paths = inputs(model, texts, out)
    with kept_parts(Path(out)) as parts:
        how = {"bos": bos, "parts": parts, "executor": executor, "progress": progress}
        corpus = measure_corpus(opened, paths, **how, **cut)
        return Summed(corpus, (save(corpus.dataset(), out),))
