"""Headers of GGUF files, of fields alone."""

import struct

KINDS = {bool: (7, "?"), int: (4, "I"), float: (6, "f")}


def text(value):
    data = value if isinstance(value, bytes) else value.encode()
    return struct.pack("<Q", len(data)) + data


def value_bytes(value):
    """A value with its type before it; a list is of whole numbers, or of texts."""
    if isinstance(value, str):
        return struct.pack("<I", 8) + text(value)
    if isinstance(value, list):
        kind = 8 if isinstance(value[0], str) else 4
        items = [text(x) if kind == 8 else struct.pack("<I", x) for x in value]
        return struct.pack("<IIQ", 9, kind, len(value)) + b"".join(items)
    kind, letter = KINDS[type(value)]
    return struct.pack(f"<I{letter}", kind, value)


def header(fields, tensors=()):
    """The bytes of a header of version 3."""
    parts = [b"GGUF", struct.pack("<IQQ", 3, len(tensors), len(fields))]
    parts += [text(name) + value_bytes(value) for name, value in fields.items()]
    parts += [text(name) + struct.pack("<IQIQ", 1, 32, 0, 0) for name in tensors]
    return b"".join(parts)
