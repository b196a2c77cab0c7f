"""Checkpoints as GGUF files, quantised ones too: their header, their tensors, their model."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from sparsity.attention.checkpoints.checkpoint import (
    ELSE,
    LAYER,
    ONLY_PLAIN,
    OUTER,
    Checkpoint,
    Metadata,
    library,
    refusal,
    refuse_others,
)
from sparsity.attention.checkpoints.tokens import bpe
from sparsity.attention.rope_settings import Rotation, scaling_rule, yarn_amplitude
from sparsity.errors import InputError, printable
from sparsity.rows import rotation as rotary
from sparsity.rows.rope_scaling import TabledScaling

_MOST_ITEMS = 2**22  # of an array: the largest vocabularies have 2¹⁸ tokens and 2¹⁹ merges
_MOST_ENTRIES = 2**16  # fields, or tensors: a model of 126 layers has 1,136
_MOST_AXES = 4  # of a tensor, by the format
_NUMBERS = {
    0: "<u1", 1: "<i1", 2: "<u2", 3: "<i2", 4: "<u4", 5: "<i4", 6: "<f4", 10: "<u8", 11: "<i8",
    12: "<f8",
}  # fmt: skip
_BOOLEAN, _STRING, _ARRAY = 7, 8, 9


@dataclass(frozen=True)
class Tensor:
    """A tensor as stored.

    Args:
        kind: how it is quantised, as `gguf.GGMLQuantizationType`.
        shape: rows first: outputs before inputs.
        data: its bytes, [..., bytes of a row].
    """

    kind: Any
    shape: tuple[int, ...]
    data: np.ndarray


class _Reader:
    """The bytes of a file from its beginning on.

    Raises:
        ValueError: what is declared is not there.
    """

    def __init__(self, data: np.ndarray) -> None:
        self._bytes, self.at = memoryview(data.data), 0

    def take(self, size: int) -> memoryview:
        """The next bytes."""
        if size > len(self._bytes) - self.at:
            raise ValueError("declares more than it holds")
        self.at += size
        return self._bytes[self.at - size : self.at]

    def whole(self, form: str = "<Q") -> int:
        """The next whole number."""
        return struct.unpack(form, self.take(struct.calcsize(form)))[0]

    def string(self) -> str:
        """The next text."""
        return str(self.take(self.whole()), "utf-8")

    def count(self, most: int) -> int:
        """The next number of items, of which each takes a byte or more."""
        found = self.whole()
        if found > min(most, len(self._bytes) - self.at):
            raise ValueError("declares more items than it can hold")
        return found

    def items(self, kind: int, count: int) -> list[Any]:
        """The next values of a kind that is no array."""
        if kind == _STRING:
            return [self.string() for _ in range(count)]
        if kind == _BOOLEAN:
            return [{0: False, 1: True}[x] for x in self.take(count)]
        dtype = np.dtype(_NUMBERS[kind])
        return np.frombuffer(self.take(count * dtype.itemsize), dtype).tolist()

    def value(self) -> Any:
        """The next value of metadata, its kind before it."""
        kind = self.whole("<I")
        if kind != _ARRAY:
            return self.items(kind, 1)[0]
        inner = self.whole("<I")
        return self.items(inner, self.count(_MOST_ITEMS))

    def named(self, read: Callable[[], Any], count: int) -> dict[str, Any]:
        """The next items by name.

        Raises:
            ValueError: a name twice.
        """
        found: dict[str, Any] = {}
        for _ in range(count):
            name = self.string()
            if name in found:
                raise ValueError("gives a name twice")
            found[name] = read()
        return found

    def place(self) -> tuple[tuple[int, ...], int, int]:
        """The next shape, rows first, with its kind and offset."""
        axes = self.whole("<I")
        if not 1 <= axes <= _MOST_AXES:
            raise ValueError("declares a tensor of too many axes")
        shape = tuple(self.whole() for _ in range(axes))[::-1]
        return shape, self.whole("<I"), self.whole()


def read(gguf: Any, path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The metadata and the tensors of a file, by name; the data stays on disk until it is used.

    Args:
        gguf: the library, which knows the sizes of quantised blocks.
        path: the file.

    Raises:
        OSError: it cannot be opened.
        ValueError, KeyError: it is not what it declares, or of big-endian numbers.
    """
    data = np.asarray(np.memmap(path, np.uint8, "r"))
    file = _Reader(data)
    if bytes(file.take(4)) != b"GGUF" or file.whole("<I") not in (2, 3):
        raise ValueError("is not of GGUF version 2 or 3")
    tensors, fields = file.count(_MOST_ENTRIES), file.count(_MOST_ENTRIES)
    metadata = file.named(file.value, fields)
    places = file.named(file.place, tensors)
    alignment = metadata.get("general.alignment", 32)
    if type(alignment) is not int or alignment < 1 or alignment & (alignment - 1):
        raise ValueError("declares an alignment that is no power of two")
    first = -(-file.at // alignment) * alignment
    found, end = {}, first
    for name, (shape, kind, offset) in sorted(places.items(), key=lambda x: x[1][2]):
        kind = gguf.GGMLQuantizationType(kind)
        block, size = gguf.GGML_QUANT_SIZES[kind]
        start, stop = first + offset, first + offset + math.prod(shape) // block * size
        if offset % alignment or shape[-1] % block or not all(shape):
            raise ValueError(f"declares a tensor {name} that is no rows of blocks")
        if start < end or stop > len(data):
            raise ValueError(f"declares a tensor {name} beyond its data")
        found[name] = Tensor(kind, shape, data[start:stop].reshape(*shape[:-1], -1))
        end = stop
    return metadata, found


_NAMES = {
    "embed": "token_embd",
    "norm": "output_norm",
    "head": "output",
    "attn_norm": "attn_norm",
    "q": "attn_q",
    "k": "attn_k",
    "v": "attn_v",
    "o": "attn_output",
    "mlp_norm": "ffn_norm",
    "gate": "ffn_gate",
    "up": "ffn_up",
    "down": "ffn_down",
}


def halves(w: np.ndarray, heads: int) -> np.ndarray:
    """Rows of q or k with the planes of RoPE as (i, i + d/2): GGUF stores them side by side."""
    return w.reshape(heads, -1, 2, w.shape[-1]).swapaxes(1, 2).reshape(w.shape)


_GROUPS = 128  # of rows, where a tensor has more: 16 of them are unpacked in the cache
_WHOLE = (3, 4)  # llama.cpp's kinds of tokens: of control, and added by the user

_SIZES = {
    "layers": "llama.block_count",
    "heads": "llama.attention.head_count",
    "kv_heads": "llama.attention.head_count_kv",
    "dim": "llama.embedding_length",
    "head_dim": "llama.attention.key_length",
    "inner": "llama.feed_forward_length",
    "context": "llama.context_length",
    "eps": "llama.attention.layer_norm_rms_epsilon",
    "bos": "tokenizer.ggml.bos_token_id",
}


# llama.cpp does not read these of a Llama: only what it takes without them is read here.
_YARN_AS_PUBLISHED = {
    "llama.rope.scaling.yarn_beta_fast": 32.0,
    "llama.rope.scaling.yarn_beta_slow": 1.0,
    "llama.rope.scaling.yarn_ext_factor": 1.0,
    "llama.rope.scaling.yarn_attn_factor": 1.0,
}
# What llama.cpp's converter also writes of a plain Llama; what is not plain is read, or refused.
_PLAIN = (
    "llama.attention.value_length",
    "llama.expert_count",
    "llama.expert_used_count",
    "llama.rope.dimension_count",
    "llama.rope.freq_base",
    "llama.rope.scale_linear",
    "llama.rope.scaling.attn_factor",
    "llama.rope.scaling.factor",
    "llama.rope.scaling.finetuned",
    "llama.rope.scaling.original_context_length",
    "llama.rope.scaling.type",
    *_YARN_AS_PUBLISHED,
    "llama.attention.causal",
    "llama.vocab_size",
)


def _refuse_unread(given: Metadata, names: Iterable[str], vocabulary: int) -> None:
    """Refuse what a plain model does not have, and what a plain reader would not honour."""
    given.one_of("general.type", "model")
    parts = given("split.count", 0)
    if parts not in (0, 1):
        fix = "give the whole model, which llama-gguf-split --merge makes of its parts"
        raise given.refuse("split.count", parts, fix)
    given.one_of("llama.expert_count", 0)
    for name, value in _YARN_AS_PUBLISHED.items():
        given.one_of(name, value)
    given.one_of("llama.attention.causal", True)
    if given("llama.vocab_size", vocabulary) != vocabulary:
        fix = f"must be its {vocabulary} tokens"
        raise given.refuse("llama.vocab_size", given("llama.vocab_size"), fix)
    for name in sorted(names):
        if name.startswith("llama.") and name not in (*_SIZES.values(), *_PLAIN):
            raise given.refuse(name, given(name), ONLY_PLAIN)


def _rotation(
    given: Metadata, table: Tensor | None, dequantize: Any
) -> Callable[[int, int], Rotation]:
    """The rotary positions by (head_dim, context), as llama.cpp takes them from a file.

    Args:
        given: the metadata.
        table: `rope_freqs.weight`, factors that divide the angles of the planes.
        dequantize: tensor -> its numbers.
    """

    def rotation(head_dim: int, context: int) -> Rotation:
        for name in ("llama.rope.dimension_count", "llama.attention.value_length"):
            given.one_of(name, head_dim)
        base = given.real("llama.rope.freq_base", rotary.BASE, 1.0)
        kind, factor = _scaling(given)
        trained = given.whole("llama.rope.scaling.original_context_length", 0, least=0) or context
        scaling = scaling_rule(kind, {"factor": factor}, trained) if factor != 1 else None
        amplitude = given.real("llama.rope.scaling.attn_factor", 1.0)
        if kind == "yarn":
            amplitude *= yarn_amplitude({}, factor)
        if table is not None:
            if kind == "yarn":
                fix = f"it has rope_freqs.weight besides; {ELSE}"
                raise given.refuse("llama.rope.scaling.type", kind, fix)
            scaling = TabledScaling(np.asarray(dequantize(table)) * factor)  # type: ignore[arg-type]
        return Rotation(base, head_dim, scaling, amplitude)

    return rotation


def _scaling(given: Metadata) -> tuple[str, float]:
    """The rule for the angles, and its factor.

    Raises:
        InputError: another rule than "none", "linear" and "yarn", or "none" with a factor.
    """
    names = ("llama.rope.scaling.factor", "llama.rope.scale_linear")  # the second, of older files
    name = next((x for x in names if given(x, None) is not None), names[0])
    factor = given.real(name, 1.0, least=-1.0) or 1.0  # 0 stands for 1 in llama.cpp
    kind = given("llama.rope.scaling.type", "linear")
    if kind == "none":
        given.one_of(name, 1.0, 0.0)
        return "default", 1.0
    if factor < 1:
        raise given.refuse(name, factor, "must be a number >= 1")
    if kind not in ("linear", "yarn"):
        raise given.refuse("llama.rope.scaling.type", kind, ONLY_PLAIN)
    return kind, factor


def _in_groups(data: np.ndarray) -> np.ndarray:
    """Rows of blocks joined: they are unpacked 16 at a time, which is too few of short ones."""
    joined = 1
    while data.ndim == 2 and len(data) % (2 * joined) == 0 and len(data) // joined > _GROUPS:
        joined *= 2
    return data.reshape(len(data) // joined, -1) if joined > 1 else data


def _opened(gguf: Any, path: Path) -> tuple[Metadata, dict[str, Any], dict[str, Tensor]]:
    """The metadata, as it is and to be asked, and the tensors, by name."""
    try:
        fields, tensors = read(gguf, path)
    except (OSError, ValueError, KeyError) as error:
        raise refusal(path, error) from None
    given = Metadata(path, lambda name: fields.get(name, ...))
    architecture = given("general.architecture")
    if architecture != "llama":
        fix = f"is of the architecture {architecture!s:.40}, not of the Llama family; {ELSE}"
        raise InputError("model", path, fix)
    return given, fields, tensors


def _refuse_unknown_blocks(gguf: Any, path: Path, tensors: Iterable[Tensor]) -> None:
    """Find out before the work whether all tensors can be unpacked."""
    for kind in {tensor.kind for tensor in tensors}:
        _, size = gguf.GGML_QUANT_SIZES[kind]
        try:
            gguf.quants.dequantize(np.zeros((1, size), np.uint8), kind)
        except NotImplementedError:
            fix = f"is quantised as {kind.name}, which cannot be read here"
            raise InputError("model", path, fix + "; give Q8_0, a K-quant or F16") from None


def _strings(field: Metadata, name: str, *default: Any) -> list[str]:
    """A list of texts."""
    found = field(name, *default)
    if not isinstance(found, list) or not all(isinstance(x, str) for x in found):
        raise field.refuse(name, found, "must be a list of texts; download it again")
    return found


def load(path: Path) -> Checkpoint:
    """Open a GGUF file of the Llama family.

    Raises:
        InputError: cut short, of another architecture, quantised in an unknown way, or with sizes
            that its tensors do not have.
    """
    gguf = library("gguf")
    field, fields, tensors = _opened(gguf, path)
    _refuse_unknown_blocks(gguf, path, tensors.values())

    def dequantize(tensor: Tensor) -> np.ndarray:
        found = gguf.quants.dequantize(_in_groups(tensor.data), tensor.kind)
        return found.reshape(tensor.shape)

    def find(name: str, layer: int | None) -> Tensor | None:
        full = _NAMES[name] if layer is None else f"blk.{layer}.{_NAMES[name]}"
        return tensors.get(f"{full}.weight")

    def stored(name: str, layer: int | None) -> tuple[int, ...] | None:
        tensor = find(name, layer)
        return None if tensor is None else tensor.shape

    tokens = _strings(field, "tokenizer.ggml.tokens")
    if not tokens or len(set(tokens)) < len(tokens):
        raise InputError("model", path, "has no tokens, or a token twice; download it again")
    _refuse_unread(field, fields, len(tokens))
    rotation = _rotation(field, tensors.get("rope_freqs.weight"), dequantize)
    tied = "output.weight" not in tensors
    config = field.config(_SIZES, len(tokens), tied, rotation, stored)
    blocks = [f"blk.{i}.{_NAMES[name]}.weight" for i in range(config.layers) for name in LAYER]
    outer = [f"{_NAMES[name]}.weight" for name in OUTER]
    refuse_others(path, tensors, [*blocks, *outer, "rope_freqs.weight"])

    def weights(name: str, layer: int | None) -> np.ndarray:
        w = dequantize(find(name, layer))  # type: ignore[arg-type]  # which `config` has seen
        heads = {"q": config.heads, "k": config.kv_heads}.get(name)
        return halves(w, heads) if heads else w

    kinds = field("tokenizer.ggml.token_type", [])
    if not isinstance(kinds, list) or len(kinds) not in (0, len(tokens)):
        raise InputError("model", path, "lacks the kind of some token; download it again")
    encode = bpe(
        path,
        kind=str(field("tokenizer.ggml.model")),
        pre=str(field("tokenizer.ggml.pre", "default")),
        tokens=tokens,
        merges=_strings(field, "tokenizer.ggml.merges", []),
        whole=[
            token for token, kind in zip(tokens, kinds, strict=False) if kind in _WHOLE and token
        ],
    )
    words = field("general.basename", ""), field("general.size_label", "")
    name = " ".join(map(str, words)) if all(words) else field("general.name", path.stem)
    return Checkpoint(path, (path,), printable(str(name), 100), config, weights, encode)
