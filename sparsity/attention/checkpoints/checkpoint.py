"""What a checkpoint of the Llama family is: sizes, tensors by name, and a tokenizer."""

from __future__ import annotations

import hashlib
import importlib
import itertools
import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sparsity.attention.rope_settings import Rotation
from sparsity.errors import InputError
from sparsity.rows.rotation import BASE

if TYPE_CHECKING:
    from sparsity.attention.checkpoints.tokens import Tokenizer

OUTER = ("embed", "norm", "head")
LAYER = ("attn_norm", "q", "k", "v", "o", "mlp_norm", "gate", "up", "down")


@dataclass(frozen=True)
class Config:
    """Sizes of the model.

    Args:
        layers: number of blocks.
        heads: query heads a layer.
        kv_heads: key and value heads a layer, each shared by heads/kv_heads query heads.
        dim: width of the states.
        head_dim: width of a head.
        inner: width of the gated feed-forward part.
        vocabulary: number of tokens.
        context: tokens the model was trained on.
        eps: added to the mean square in RMSNorm.
        rotation: the rotary positions.
        bos: id of the token that begins a text, if there is one.
        tied: whether the embeddings are the head too.
    """

    layers: int
    heads: int
    kv_heads: int
    dim: int
    head_dim: int
    inner: int
    vocabulary: int
    context: int
    eps: float
    rotation: Rotation
    bos: int | None
    tied: bool

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of a tensor, rows first: outputs before inputs."""
        q, kv = self.heads * self.head_dim, self.kv_heads * self.head_dim
        shapes = {"q": (q, self.dim), "k": (kv, self.dim), "v": (kv, self.dim), "o": (self.dim, q)}
        shapes |= {"gate": (self.inner, self.dim), "up": (self.inner, self.dim)}
        shapes |= {"down": (self.dim, self.inner), "embed": (self.vocabulary, self.dim)}
        return shapes.get(name, shapes["embed"] if name == "head" else (self.dim,))


# The way for a model of another family or format.
ELSE = "measure another in Python: measure_transformers(model, ids), where transformers has it,"
ELSE += " Watch(model), of PyTorch, or stream(queries, keys)"
ONLY_PLAIN = f"only plain models of the Llama family are run; {ELSE}"


@dataclass(frozen=True)
class Checkpoint:
    """A model on disk; its weights are read when they are asked for.

    Args:
        path: the file or folder.
        files: all that it was read from, tokenizer and sizes too.
        name: what the model calls itself.
        config: its sizes.
        read: (name, layer or None) -> the tensor as stored, [outputs, inputs].
        encode: text -> token ids, nothing added; `encode.words(ids)` spells them.
    """

    path: Path
    files: tuple[Path, ...]
    name: str
    config: Config
    read: Callable[[str, int | None], np.ndarray]
    encode: Tokenizer

    def tensor(self, name: str, layer: int | None = None) -> np.ndarray:
        """A tensor in single precision; "head" is "embed" where the two are tied.

        Args:
            name: one of `OUTER`, or of `LAYER` with its layer.
            layer: from 0.

        Raises:
            InputError: it holds NaN or infinite values.
        """
        if name == "head" and self.config.tied:
            return self.tensor("embed")
        found = np.asarray(self.read(name, layer), np.float32)
        if not np.isfinite(found).all():
            fix = (
                f"its weights {_where(name, layer)} hold NaN or infinite values; download it again"
            )
            raise InputError("model", self.path, fix)
        return found


def _where(name: str, layer: int | None) -> str:
    return name if layer is None else f"{name} of layer {layer}"


@dataclass(frozen=True)
class Metadata:
    """What a file says of its model, each value checked where it is asked for.

    Args:
        path: the file, for refusals.
        get: name -> value, `...` where there is none.
    """

    path: Path
    get: Callable[[str], Any]

    def refuse(self, name: str, value: Any, fix: str) -> InputError:
        """The refusal of a value, in one line."""
        return InputError("model", self.path, f"has {name} = {value!s:.60}; {fix}")

    def __call__(self, name: str, default: Any = ...) -> Any:
        value = self.get(name)
        value = default if value is ... else value
        if value is ...:
            raise InputError("model", self.path, f"does not give {name}; give a complete model")
        return value

    def whole(self, name: str, default: Any = ..., least: int = 1) -> Any:
        """A whole number, or the default."""
        value = self(name, default)
        if value is default or (type(value) is int and value >= least):
            return value
        raise self.refuse(name, value, f"must be a whole number >= {least}")

    def real(self, name: str, default: float = ..., least: float = 0.0) -> float:  # type: ignore[assignment]
        """A finite number above `least`."""
        value = self(name, default)
        with suppress(OverflowError):  # a whole number of hundreds of digits
            if type(value) in (int, float) and math.isfinite(value) and value > least:
                return float(value)
        raise self.refuse(name, value, f"must be a number > {least:g}")

    def one_of(self, name: str, default: Any, *plain: Any) -> Any:
        """The default, or one of the values that are run."""
        value = self(name, default)
        if any(type(value) is type(x) and value == x for x in (default, *plain)):
            return value
        raise self.refuse(name, value, ONLY_PLAIN)

    def config(
        self,
        names: Mapping[str, str],
        vocabulary: int,
        tied: bool,
        rotation: Callable[[int, int], Rotation],
        stored: Callable[[str, int | None], tuple[int, ...] | None],
    ) -> Config:
        """The sizes, whole and fitting each other and the tensors.

        Args:
            names: of the fields of `Config` in this file.
            vocabulary: number of tokens.
            tied: whether the embeddings are the head too.
            rotation: (head_dim, context) -> the rotary positions; asked for when the tensors have
                borne out head_dim.
            stored: (name, layer or None) -> the shape of a tensor, None where there is none.
        """
        found = {x: self.whole(names[x]) for x in ("layers", "heads", "dim", "inner", "context")}
        heads = found["heads"]
        kv_heads = self.whole(names["kv_heads"], None) or heads
        head_dim = self.whole(names["head_dim"], None) or found["dim"] // heads
        if heads % kv_heads:
            raise self.refuse(names["kv_heads"], kv_heads, f"must divide {heads} heads")
        if head_dim % 2 or not head_dim:
            raise self.refuse("width of a head", head_dim, "must be even")
        bos = self.whole(names["bos"], None, least=0)
        if bos is not None and bos >= vocabulary:
            raise self.refuse(names["bos"], bos, f"must be one of {vocabulary} tokens")
        config = Config(
            **found,
            kv_heads=kv_heads,
            head_dim=head_dim,
            vocabulary=vocabulary,
            eps=self.real(names["eps"]),
            rotation=Rotation(BASE, head_dim),
            bos=bos,
            tied=tied,
        )
        self._compare(config, stored)
        try:
            turning = rotation(head_dim, found["context"])
            turning.angles(found["context"])
        except InputError as error:
            if error.argument == "model":
                raise
            raise self.refuse(f"RoPE's {error.argument}", error.value, error.fix) from None
        return replace(config, rotation=turning)

    def _compare(
        self, config: Config, stored: Callable[[str, int | None], tuple[int, ...] | None]
    ) -> None:
        """Hold the sizes against the tensors; of declared layers it stops at the first not there.

        Raises:
            InputError: a tensor is missing, or of another shape.
        """
        outer = (name for name in OUTER if not (config.tied and name == "head"))
        layers = ((name, layer) for layer in range(config.layers) for name in LAYER)
        for name, layer in itertools.chain(((name, None) for name in outer), layers):
            shape, wanted = stored(name, layer), config.shape(name)
            where = _where(name, layer)
            if shape is None:
                fix = f"lacks the weights {where}; give a complete model"
                raise InputError("model", self.path, fix)
            if tuple(shape) != wanted:
                fix = f"its weights {where} have shape {tuple(shape)}, not {wanted}"
                raise InputError("model", self.path, f"{fix}; give a Llama model")


def refuse_others(path: Path, names: Iterable[str], known: Iterable[str]) -> None:
    """Refuse tensors that would be left unread: biases, scales of quantised weights, experts."""
    others = sorted(set(names).difference(known))
    if others:
        fix = f"has weights {others[0]}, which a plain model of the Llama family does not have"
        raise InputError("model", path, f"{fix}; {ELSE}")


def library(name: str, install: str = "'sparsity[models]'") -> Any:
    """An optional library.

    Raises:
        InputError: it is not installed; says to pip install `install`.
    """
    try:
        return importlib.import_module(name)
    except ImportError:
        raise InputError("library", name, f"is not installed; pip install {install}") from None


def refusal(path: Path, error: BaseException) -> InputError:
    """A file that cannot be read, in one line."""
    if isinstance(error, OSError) and error.errno:
        reason = os.strerror(error.errno).lower()
        return InputError("model", path, f"cannot be read ({reason}); give another file")
    fix = "is damaged, incomplete or not a model; download it again"
    return InputError("model", path, fix)


def fingerprint(files: Sequence[Path]) -> str:
    """SHA-256 of one file; of several, that of their names and digests."""
    if len(files) == 1:
        return sha256(files[0])
    lines = "".join(f"{sha256(path)}  {path.name}\n" for path in sorted(files))
    return hashlib.sha256(lines.encode()).hexdigest()


def sha256(path: Path) -> str:
    """The file's SHA-256, in hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
