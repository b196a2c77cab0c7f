"""GGUF files: the header, and where each tensor lies, quantised ones too.

The layout is that of llama.cpp's specification: magic and version, counts, metadata, a record for
each tensor, and then the data of the tensors, aligned. The header is parsed here and not by
`gguf.GGUFReader`, which makes an array of each item, and as many as a file declares. Here nothing
is made before the file has been seen to be large enough for it.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from sparsity.errors import InputError

# A hostile file may declare any counts, and each item becomes an object of 28 bytes and more.
_MAX_ITEMS = 2**22  # of an array: the largest vocabularies have 2¹⁸ tokens and 2¹⁹ merges
_MAX_ENTRIES = 2**16  # fields, or tensors: a model of 126 layers has 1,136
_MAX_AXES = 4  # of a tensor, by the format
_MAX_ROWS = 128  # joined rows that `dequantize` leaves to the library at most, if it can

# The specification's numbers for the types of metadata.
_NUMBERS = {
    0: "<u1", 1: "<i1", 2: "<u2", 3: "<i2", 4: "<u4", 5: "<i4", 6: "<f4", 10: "<u8", 11: "<i8",
    12: "<f8",
}  # fmt: skip
_BOOLEAN, _STRING, _ARRAY = 7, 8, 9


@dataclass(frozen=True)
class Tensor:
    """A tensor as the file stores it.

    Args:
        kind: its quantisation, a `gguf.GGMLQuantizationType`.
        shape: outputs first, then inputs; the file has the axes in reverse.
        data: its bytes, [..., bytes of a row].
    """

    kind: Any
    shape: tuple[int, ...]
    data: np.ndarray


class _Reader:
    """A reader of the bytes of a file, one after another from the beginning.

    Raises:
        ValueError: the file declares more than it holds.
    """

    def __init__(self, data: np.ndarray) -> None:
        self._bytes, self.at = memoryview(data.data), 0

    def take(self, size: int) -> memoryview:
        """Return the next bytes."""
        if size > len(self._bytes) - self.at:
            raise ValueError("declares more than it holds")
        self.at += size
        return self._bytes[self.at - size : self.at]

    def whole(self, form: str = "<Q") -> int:
        """Return the next whole number."""
        return struct.unpack(form, self.take(struct.calcsize(form)))[0]

    def string(self) -> str:
        """Return the next text."""
        return str(self.take(self.whole()), "utf-8")

    def count(self, most: int) -> int:
        """Return the next number of items, of which each takes at least a byte of the file."""
        found = self.whole()
        if found > min(most, len(self._bytes) - self.at):
            raise ValueError("declares more items than it can hold")
        return found

    def items(self, kind: int, count: int) -> list[Any]:
        """Return the next values of one type; arrays of arrays are refused as an unknown type."""
        if kind == _STRING:
            return [self.string() for _ in range(count)]
        if kind == _BOOLEAN:
            return [{0: False, 1: True}[x] for x in self.take(count)]  # KeyError for another byte
        dtype = np.dtype(_NUMBERS[kind])
        return np.frombuffer(self.take(count * dtype.itemsize), dtype).tolist()

    def value(self) -> Any:
        """Return the next value of metadata, which its type precedes."""
        kind = self.whole("<I")
        if kind != _ARRAY:
            return self.items(kind, 1)[0]
        inner = self.whole("<I")
        return self.items(inner, self.count(_MAX_ITEMS))

    def tensor_record(self) -> tuple[tuple[int, ...], int, int]:
        """Return the next tensor's shape, kind and offset."""
        axes = self.whole("<I")
        if not 1 <= axes <= _MAX_AXES:
            raise ValueError("declares a tensor of too many axes")
        shape = tuple(self.whole() for _ in range(axes))[::-1]
        return shape, self.whole("<I"), self.whole()

    def named(self, read: Callable[[], Any], count: int) -> dict[str, Any]:
        """Return the next items by the name that precedes each.

        Raises:
            ValueError: a name stands twice.
        """
        found: dict[str, Any] = {}
        for _ in range(count):
            name = self.string()
            if name in found:
                raise ValueError("gives a name twice")
            found[name] = read()
        return found


def read(gguf: Any, path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Return the metadata and the tensors of a file, by name; data stays on disk until it is used.

    Args:
        gguf: the library, which knows the sizes of quantised blocks.
        path: the file.

    Raises:
        OSError: it cannot be opened.
        ValueError, KeyError: it is not what it declares, or of big-endian numbers.
    """
    # A map of the file: tensors are views into it, read from disk when a layer is run.
    data = np.asarray(np.memmap(path, np.uint8, "r"))
    file = _Reader(data)
    if bytes(file.take(4)) != b"GGUF" or file.whole("<I") not in (2, 3):
        raise ValueError("is not of GGUF version 2 or 3")
    tensors, fields = file.count(_MAX_ENTRIES), file.count(_MAX_ENTRIES)
    metadata = file.named(file.value, fields)
    records = file.named(file.tensor_record, tensors)
    alignment = metadata.get("general.alignment", 32)
    if type(alignment) is not int or alignment < 1 or alignment & (alignment - 1):
        raise ValueError("declares an alignment that is no power of two")
    first = -(-file.at // alignment) * alignment
    found, end = {}, first
    # In the order of their offsets, each must begin where the one before has ended, or later: two
    # tensors on the same bytes are no model.
    for name, (shape, kind, offset) in sorted(records.items(), key=lambda x: x[1][2]):
        kind = gguf.GGMLQuantizationType(kind)
        block, size = gguf.GGML_QUANT_SIZES[kind]
        start, stop = first + offset, first + offset + math.prod(shape) // block * size
        # A row is quantised in whole blocks, so that rows can be read for themselves.
        if offset % alignment or shape[-1] % block or not all(shape):
            raise ValueError(f"declares a tensor {name} that is no rows of blocks")
        if start < end or stop > len(data):
            raise ValueError(f"declares a tensor {name} beyond its data")
        found[name] = Tensor(kind, shape, data[start:stop].reshape(*shape[:-1], -1))
        end = stop
    return metadata, found


def refuse_unknown_blocks(gguf: Any, path: Path, tensors: Iterable[Tensor]) -> None:
    """Refuse tensors that the library cannot unpack, before the first layer is run.

    Only a trial tells: the library has kinds whose sizes it knows but not their blocks.
    """
    for kind in {tensor.kind for tensor in tensors}:
        _, size = gguf.GGML_QUANT_SIZES[kind]
        try:
            gguf.quants.dequantize(np.zeros((1, size), np.uint8), kind)
        except NotImplementedError:
            fix = f"is quantised as {kind.name}, which cannot be read here"
            raise InputError("model", path, fix + "; give Q8_0, a K-quant or F16") from None


def dequantize(gguf: Any, tensor: Tensor) -> np.ndarray:
    """Return the numbers of a tensor in single precision.

    The library unpacks 16 rows in each round of a Python loop, thousands of rounds for the short
    rows of a small model. Rows lie one after another in whole blocks, so that joined rows are rows
    of blocks too: they are joined in pairs until few are left. Too few would cost the cache, which
    holds what a round works on.
    """
    data, joined = tensor.data, 1
    while data.ndim == 2 and len(data) % (2 * joined) == 0 and len(data) // joined > _MAX_ROWS:
        joined *= 2
    if joined > 1:
        data = data.reshape(len(data) // joined, -1)
    return gguf.quants.dequantize(data, tensor.kind).reshape(tensor.shape)
