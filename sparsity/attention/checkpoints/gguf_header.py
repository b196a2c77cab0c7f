"""What a GGUF file declares, held against its size before anything is made of it.

A file is its counts, fields of metadata, a list of tensors, and their data. Nothing declared is
taken on trust: each count, length and offset is compared with the bytes that are there.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

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
