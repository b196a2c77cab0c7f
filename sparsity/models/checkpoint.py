"""What a checkpoint of the Llama family is: sizes, tensors by name, and a tokenizer."""

from __future__ import annotations

import hashlib
import importlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from sparsity.errors import InputError

__all__ = ["LAYER", "OUTER", "Checkpoint", "Config", "library", "refusal", "sha256"]

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
        frequencies: θ_i of the rotary positions, radians a token, [head_dim/2].
        bos: id of the token that begins a text, if there is one.
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
    frequencies: np.ndarray
    bos: int | None

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of a tensor, rows first: outputs before inputs."""
        q, kv = self.heads * self.head_dim, self.kv_heads * self.head_dim
        shapes = {"q": (q, self.dim), "k": (kv, self.dim), "v": (kv, self.dim), "o": (self.dim, q)}
        shapes |= {"gate": (self.inner, self.dim), "up": (self.inner, self.dim)}
        shapes |= {"down": (self.dim, self.inner), "embed": (self.vocabulary, self.dim)}
        return shapes.get(name, shapes["embed"] if name == "head" else (self.dim,))


@dataclass(frozen=True)
class Checkpoint:
    """A model on disk; its weights are read when they are asked for.

    Args:
        path: the file.
        name: what the model calls itself.
        config: its sizes.
        read: (name, layer or None) -> the tensor as stored, [outputs, inputs], or None.
        encode: text -> token ids, nothing added.
    """

    path: Path
    name: str
    config: Config
    read: Callable[[str, int | None], np.ndarray | None]
    encode: Callable[[str], list[int]]

    def tensor(self, name: str, layer: int | None = None) -> np.ndarray:
        """A tensor in single precision; "head" is "embed" where the two are tied.

        Args:
            name: one of `OUTER`, or of `LAYER` with its layer.
            layer: from 0.

        Raises:
            InputError: it is not there, of another shape, or holds NaN or infinite values.
        """
        found = self.read(name, layer)
        if found is None and name == "head":
            return self.tensor("embed")
        where = name if layer is None else f"{name} of layer {layer}"
        if found is None:
            raise InputError("model", self.path, f"has no weights {where}; not a whole checkpoint")
        found = np.asarray(found, np.float32)
        if found.shape != self.config.shape(name):
            fix = f"its weights {where} have shape {found.shape}, not {self.config.shape(name)}"
            raise InputError("model", self.path, fix + "; not a model of the Llama family")
        if not np.isfinite(found).all():
            fix = f"its weights {where} hold NaN or infinite values; download it again"
            raise InputError("model", self.path, fix)
        return found


def library(name: str) -> Any:
    """An optional library.

    Raises:
        InputError: it is not installed.
    """
    try:
        return importlib.import_module(name)
    except ImportError:
        fix = "is not installed; pip install 'sparsity[models]'"
        raise InputError("library", name, fix) from None


def refusal(path: Path, error: BaseException) -> InputError:
    """A file that cannot be read, in one line."""
    if isinstance(error, OSError) and error.errno:
        reason = os.strerror(error.errno).lower()
        return InputError("model", path, f"cannot be read ({reason}); give another file")
    fix = "is damaged or cut short, or no model at all; download it again"
    return InputError("model", path, fix)


def sha256(path: Path) -> str:
    """The file's SHA-256, in hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
