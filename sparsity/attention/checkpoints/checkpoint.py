"""A checkpoint of the Llama family: its sizes, its tensors by name and its tokenizer.

Both readers of files end here. Each gives names of its format for what `Config` and the forward
pass need, and `Metadata` holds what the file declares against what it stores. A setting or a tensor
that the forward pass would not honour is refused: a model run wrongly would give wrong numbers
without a word.
"""

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

from sparsity.attention.settings import Rotation
from sparsity.errors import InputError
from sparsity.rows.rope_planes import BASE

if TYPE_CHECKING:
    from sparsity.attention.checkpoints.tokens import Tokenizer

# The tensors of the forward pass: those outside the layers, and those of each layer.
OUTER = ("embed", "norm", "head")
LAYER = ("attn_norm", "q", "k", "v", "o", "mlp_norm", "gate", "up", "down")


@dataclass(frozen=True)
class Config:
    """The sizes of a model, and how it turns queries and keys.

    Args:
        layers: number of layers.
        heads: query heads a layer.
        kv_heads: key and value heads a layer, each shared by heads/kv_heads query heads.
        dim: width of the hidden states.
        head_dim: width of a head.
        inner: width of the gated feed-forward network.
        vocabulary: number of tokens.
        context: the longest text the model was trained on, in tokens.
        eps: added to the mean square in RMSNorm.
        rotation: the rotary position embedding.
        bos: id of the token that begins a text, if there is one.
        tied: whether the output head is the embedding matrix.
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
        """Return the shape of a tensor: outputs first, then inputs."""
        q, kv = self.heads * self.head_dim, self.kv_heads * self.head_dim
        shapes = {"q": (q, self.dim), "k": (kv, self.dim), "v": (kv, self.dim), "o": (self.dim, q)}
        shapes |= {"gate": (self.inner, self.dim), "up": (self.inner, self.dim)}
        shapes |= {"down": (self.dim, self.inner), "embed": (self.vocabulary, self.dim)}
        # All other tensors are the gains of norms.
        return shapes.get(name, shapes["embed"] if name == "head" else (self.dim,))


# What a refusal advises for a model of another family or format.
ELSE = (
    "measure another in Python: measure_transformers(model, ids), where transformers has it, "
    "Watch(model), of PyTorch, or stream(queries, keys)"
)
ONLY_PLAIN = f"only plain models of the Llama family are run; {ELSE}"


@dataclass(frozen=True)
class Checkpoint:
    """A model on disk, whose weights are read when they are asked for.

    Args:
        path: the file or folder.
        files: all files that it is read from, those of tokenizer and sizes too.
        name: the name that the file gives, or that of the file or folder.
        config: the sizes.
        read: (name, layer or None) -> the tensor as stored, [outputs, inputs].
        encode: text -> token ids, without BOS or other additions; `encode.words(ids)` spells them.
    """

    path: Path
    files: tuple[Path, ...]
    name: str
    config: Config
    read: Callable[[str, int | None], np.ndarray]
    encode: Tokenizer

    def tensor(self, name: str, layer: int | None = None) -> np.ndarray:
        """Return a tensor in single precision; "head" is "embed" where the two are tied.

        Args:
            name: one of `OUTER`, or of `LAYER` with its layer.
            layer: counted from 0; None for a tensor of `OUTER`.

        Raises:
            InputError: it holds NaN or infinite values.
        """
        if name == "head" and self.config.tied:
            return self.tensor("embed")
        found = np.asarray(self.read(name, layer), np.float32)
        if not np.isfinite(found).all():
            where = _name_of_tensor(name, layer)
            fix = f"its weights {where} hold NaN or infinite values; download it again"
            raise InputError("model", self.path, fix)
        return found


def _name_of_tensor(name: str, layer: int | None) -> str:
    return name if layer is None else f"{name} of layer {layer}"


@dataclass(frozen=True)
class Metadata:
    """The settings that a file gives of its model, each checked where it is asked for.

    A value that a file gives wins over the default, also where it is null: `...` alone stands for
    a value that must be there.

    Args:
        path: the file, for refusals.
        content: the values by name.
    """

    path: Path
    content: Mapping[str, Any]

    def refuse(self, name: str, value: Any, fix: str) -> InputError:
        """Return the refusal of a value, in one line."""
        return InputError("model", self.path, f"has {name} = {value!s:.60}; {fix}")

    def __call__(self, name: str, default: Any = ...) -> Any:
        """Return a value as it stands, or the default where there is none."""
        value = self.content.get(name, default)
        if value is ...:
            raise InputError("model", self.path, f"does not give {name}; give a complete model")
        return value

    def whole(self, name: str, default: Any = ..., least: int = 1) -> Any:
        """Return a whole number of at least `least`, or the default."""
        value = self(name, default)
        # `type` and not `isinstance`: True is an int, and no size.
        if value is default or (type(value) is int and value >= least):
            return value
        raise self.refuse(name, value, f"must be a whole number >= {least}")

    def real(self, name: str, default: float = ..., least: float = 0.0) -> float:  # type: ignore[assignment]
        """Return a finite number above `least`, or the default."""
        value = self(name, default)
        with suppress(OverflowError):  # a whole number of hundreds of digits
            if type(value) in (int, float) and math.isfinite(value) and value > least:
                return float(value)
        raise self.refuse(name, value, f"must be a number > {least:g}")

    def one_of(self, name: str, default: Any, *plain: Any) -> Any:
        """Return the default, or one of the other values that the forward pass honours."""
        value = self(name, default)
        # Types too: 1 == True, so that a number would pass for a switch.
        if any(type(value) is type(x) and value == x for x in (default, *plain)):
            return value
        raise self.refuse(name, value, ONLY_PLAIN)

    def read_config(
        self,
        names: Mapping[str, str],
        vocabulary: int,
        tied: bool,
        rotation: Callable[[int, int], Rotation],
        full_name: Callable[[str, int | None], str],
        shapes: Mapping[str, tuple[int, ...]],
        unread: Iterable[str] = (),
    ) -> Config:
        """Read the sizes, and refuse those that do not fit each other and the tensors.

        Args:
            names: the name of each field of `Config` in this format.
            vocabulary: number of tokens.
            tied: whether the output head is the embedding matrix.
            rotation: (head_dim, context) -> the rotary position embedding.
            full_name: (name, layer or None) -> the name of a tensor in this format.
            shapes: the shape of each stored tensor, by that name.
            unread: names of tensors that a plain model may have and that need no reading.
        """
        # Sizes that a file may leave out have the defaults of Llama: as many key heads as query
        # heads, which share the width of the hidden states.
        found = {x: self.whole(names[x]) for x in ("layers", "heads", "dim", "inner", "context")}
        heads = found["heads"]
        kv_heads = self.whole(names["kv_heads"], None) or heads
        head_dim = self.whole(names["head_dim"], None) or found["dim"] // heads
        if heads % kv_heads:
            raise self.refuse(names["kv_heads"], kv_heads, f"must divide {heads} heads")
        if head_dim % 2 or not head_dim:  # RoPE turns pairs of entries
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
        known = self._compare_shapes(config, full_name, shapes)
        # RoPE comes after the comparison, for which any rotation serves: it makes an array of
        # head_dim/2 angles, and a file may declare a head_dim that would fill the memory.
        try:
            turning = rotation(head_dim, found["context"])
            turning.angles(found["context"])  # a rule that cannot be computed is refused now
        except InputError as error:
            if error.argument == "model":
                raise
            raise self.refuse(f"RoPE's {error.argument}", error.value, error.fix) from None
        # Biases, scales of quantised weights or experts would change what the model computes.
        if others := sorted(shapes.keys() - known - set(unread)):
            fix = f"has weights {others[0]}, which a plain model of the Llama family does not have"
            raise InputError("model", self.path, f"{fix}; {ELSE}")
        return replace(config, rotation=turning)

    def _compare_shapes(
        self,
        config: Config,
        full_name: Callable[[str, int | None], str],
        shapes: Mapping[str, tuple[int, ...]],
    ) -> set[str]:
        """Return the full names of the model's tensors, each found with the shape it should have.

        The tensors are generated one by one, so that a file that declares 10⁹ layers is refused at
        the first layer that is not there.

        Raises:
            InputError: a tensor is missing, or of another shape.
        """
        outer = ((name, None) for name in OUTER if not (config.tied and name == "head"))
        layers = ((name, layer) for layer in range(config.layers) for name in LAYER)
        known = set()
        for name, layer in itertools.chain(outer, layers):
            where, full = _name_of_tensor(name, layer), full_name(name, layer)
            wanted = config.shape(name)
            if full not in shapes:
                fix = f"lacks the weights {where}; give a complete model"
                raise InputError("model", self.path, fix)
            if shapes[full] != wanted:
                fix = f"its weights {where} have shape {shapes[full]}, not {wanted}"
                raise InputError("model", self.path, f"{fix}; give a Llama model")
            known.add(full)
        return known


def library(name: str, install: str = "'sparsity[models]'") -> Any:
    """Import an optional library when it is needed.

    Args:
        name: the name of the module.
        install: what the refusal advises to install with pip.

    Raises:
        InputError: it is not installed.
    """
    try:
        return importlib.import_module(name)
    except ImportError:
        raise InputError("library", name, f"is not installed; pip install {install}") from None


def refusal(path: Path, error: BaseException) -> InputError:
    """Return the refusal of a file that cannot be read, in one line."""
    if isinstance(error, OSError) and error.errno:
        reason = os.strerror(error.errno).lower()
        return InputError("model", path, f"cannot be read ({reason}); give another file")
    fix = "is damaged, incomplete or not a model; download it again"
    return InputError("model", path, fix)


def fingerprint(files: Sequence[Path]) -> str:
    """Return the SHA-256 of one file, or that of the names and digests of several."""
    if len(files) == 1:
        return sha256(files[0])
    lines = "".join(f"{sha256(path)}  {path.name}\n" for path in sorted(files))
    return hashlib.sha256(lines.encode()).hexdigest()


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file, in hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
