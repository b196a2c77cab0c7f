"""Texts as windows of token ids; what cannot be used is named and passed over."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from sparsity.arguments import path, several, whole
from sparsity.attention.checkpoints.checkpoint import Checkpoint
from sparsity.attention.checkpoints.tokens import read_text
from sparsity.errors import InputError, printable
from sparsity.output import require_regular_file
from sparsity.reading import npy_file

MAX_NAME = 200  # letters of a text's name, in tables and files


@dataclass(frozen=True)
class Window:
    """Some tokens of a text.

    Args:
        name: of the text, with "@start" where several windows are taken of each.
        ids: with and without the token that begins a text, as asked for, [T] each.
    """

    name: str
    ids: tuple[np.ndarray, ...]


def texts_of_windows(names: Iterable[Any], stride: int | None) -> list[str]:
    """Return the texts that windows of such names are of, as `Cut.windows` names them."""
    return [str(name).rpartition("@")[0] if stride else str(name) for name in names]


def _list_files(path: Path) -> list[Path]:
    """Return a file, or the files of a folder, by name; hidden ones are left out."""
    try:
        if not require_regular_file(path, "text").is_dir():
            return [path]
    except InputError:
        raise
    except (OSError, ValueError) as error:  # no name of a file, such as a text itself
        fix = "is not a file name; give a folder, a file, or texts in a list"
        raise InputError("text", f"{str(path)[:40]!r}", fix) from error
    found = sorted(x for x in path.iterdir() if x.is_file() and not x.name.startswith("."))
    if not found:
        raise InputError("text", path, "has no file; give a folder of texts")
    return found


def name_texts(texts: Any) -> dict[str, Any]:
    """Return texts by name.

    Args:
        texts: name -> text; or a folder, a file, or several of these; or a list of texts. A text
            is a string, token ids [T], or the Path of a file of text or of ids (.npy).

    Raises:
        InputError: no text, one given twice, or a folder without files.
    """
    if isinstance(texts, Mapping):
        found = list(texts.items())
    else:
        fix = "give texts by name, a folder, or a list of texts"
        one = isinstance(texts, str | os.PathLike)
        given = [path("texts", texts, fix)] if one else several("texts", texts, fix)
        paths = [y for x in given if isinstance(x, os.PathLike) for y in _list_files(Path(x))]
        others = [x for x in given if not isinstance(x, os.PathLike)]
        stems, numbers = [path.stem for path in paths], [str(i) for i in range(len(others))]
        # Files are named by their stems where these differ, else by their whole paths.
        alone = len({*stems, *numbers}) == len(stems) + len(numbers)
        names = [*(stems if alone else map(str, paths)), *numbers]
        found = list(zip(names, [*paths, *others], strict=True))
    if not found:
        raise InputError("texts", None, "give at least one text")
    # Names of files need not be text, and those of others may hold what netCDF cannot.
    names = [printable(str(name), MAX_NAME) for name, _ in found]
    if len(set(names)) < len(names):
        raise InputError("text", max(names, key=names.count), "is given twice; give it once")
    return dict(zip(names, (text for _, text in found), strict=True))


def _read_ids(model: Checkpoint, name: str, text: Any) -> np.ndarray:
    """Return the token ids of one text.

    Raises:
        InputError: of the argument "text": one that cannot be used; "tokenizer": another model's.
    """
    if isinstance(text, os.PathLike):
        path = Path(text)
        try:
            text = npy_file(path) if path.suffix == ".npy" else read_text(path)
        except InputError:
            raise
        except (ValueError, OSError):
            raise InputError("text", path, "holds no array of token ids; give another") from None
    count = model.config.vocabulary
    if isinstance(text, str):
        if not text.strip():
            raise InputError("text", name, "has no words; give another text")
        ids = np.asarray(model.encode(text), np.int64)
        if ids.max(initial=0) >= count:
            fix = f"has more tokens than the {count} of the model; give its own"
            raise InputError("tokenizer", model.name, fix)
        return ids
    try:
        ids = np.asarray(text)
    except ValueError:  # rows of several lengths
        ids = np.empty((0, 0))
    if ids.ndim != 1 or ids.dtype.kind not in "iu" or not ids.size:
        raise InputError(
            "text", name, "is not a text; give a string or token ids, whole numbers [T]"
        )
    if ids.min() < 0 or ids.max() >= count:
        raise InputError("text", name, f"has token ids that are not from 0 to {count - 1}")
    return ids


def check_beginnings(bos: Any) -> tuple[bool, ...]:
    """Return whether windows begin with the model's first token, for each run of every text.

    Raises:
        InputError: anything but True and False, of which there is at least one.
    """
    fix = "give (False,), (True,) or (False, True)"
    if isinstance(bos, np.ndarray) and bos.dtype == bool and bos.ndim == 1:
        bos = bos.tolist()
    found = several("bos", bos, fix)
    if not found or not all(isinstance(each, bool | np.bool_) for each in found):
        raise InputError("bos", bos if found else "an empty list", fix)
    return found


@dataclass(frozen=True)
class Cut:
    """Which tokens of each text are taken.

    Args:
        tokens: T ≥ 2 of a window, the token that begins the text included.
        offset: tokens of the text before the first window, ≥ 0.
        stride: tokens from one window to the next; None for one window a text.
        bos: for each value, whether a window begins with the model's first token.
    """

    tokens: int
    offset: int = 0
    stride: int | None = None
    bos: tuple[bool, ...] = (False,)

    def __post_init__(self) -> None:
        """Check the numbers.

        Raises:
            InputError: numbers out of range.
        """
        for name, least in (("tokens", 2), ("offset", 0), ("stride", 1)):
            if name != "stride" or self.stride is not None:
                object.__setattr__(self, name, whole(name, getattr(self, name), least))
        object.__setattr__(self, "bos", check_beginnings(self.bos))

    def check(self, model: Checkpoint) -> None:
        """Check that the windows suit the model.

        Raises:
            InputError: more tokens than it was trained on, or a model without a first token.
        """
        if self.tokens > model.config.context:
            fix = f"{model.name} was trained on {model.config.context}; ask for no more"
            raise InputError("tokens", self.tokens, fix)
        if any(self.bos) and model.config.bos is None:
            fix = f"{model.name} has no token that begins a text; leave it out"
            raise InputError("bos", True, fix)

    def windows(self, model: Checkpoint, name: str, text: Any) -> list[Window]:
        """Return the windows of one text.

        Raises:
            InputError: of the argument "text": one that cannot be used, or is too short.
        """
        ids = _read_ids(model, name, text)
        # With BOS a window holds one token less of the text. Where both are asked for, the text
        # must suffice for the run without, so that both are of the same texts.
        need = self.tokens - min(map(int, self.bos))
        if len(ids) - self.offset < need:
            fix = f"has only {max(len(ids) - self.offset + self.tokens - need, 0)} tokens"
            fix += f" after the first {self.offset}" if self.offset else ""
            fix += f"; give a longer text or fewer tokens than {self.tokens}"
            raise InputError("text", name, fix)
        last = len(ids) - need if self.stride else self.offset
        found = []
        for start in range(self.offset, last + 1, self.stride or 1):
            first = [np.full(int(b), model.config.bos or 0, np.int64) for b in self.bos]
            own = [np.concatenate([b, ids[start:]])[: self.tokens] for b in first]
            label = f"{name}@{start}" if self.stride else name
            found.append(Window(label, tuple(x.astype(np.int32) for x in own)))
        return found


def take_windows(
    model: Checkpoint, texts: Mapping[str, Any], cut: Cut
) -> tuple[list[Window], list[str]]:
    """Return the windows of all texts, and a line for each text that was passed over.

    Raises:
        InputError: no text is left: the first refusal; or as `Cut.check`.
    """
    cut.check(model)
    found: list[Window] = []
    refused: list[InputError] = []
    for name, text in texts.items():
        try:
            found += cut.windows(model, name, text)
        except InputError as error:
            if error.argument != "text":  # no matter of this text: no other would fare better
                raise
            refused.append(error)
    if not found:
        raise refused[0]
    return found, [" ".join(str(error).split()) for error in refused]
