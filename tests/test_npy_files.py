"""Files of scores that lie: one line and exit 2, or what is right."""

import struct
from collections.abc import Iterator

import numpy as np
import pytest


def npy_files() -> Iterator[tuple[str, bytes, bool]]:
    """(name, content, whether the header is that of the 300 numbers behind it)."""
    data = np.arange(300, dtype="<i4").tobytes()

    def made(header, version=(1, 0), declared=None, magic=b"\x93NUMPY"):
        text = header if isinstance(header, bytes) else header.encode("latin1")
        form = "<H" if version[0] == 1 else "<I"
        size = struct.pack(form, (len(text) if declared is None else declared))
        return magic + bytes(version) + size + text + data

    def header(shape, descr="'<i4'", order="False"):
        return f"{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}, }}\n"

    yield "base", made(header("(300,)")), True
    yield "version 2", made(header("(300,)"), (2, 0)), True
    for shape in ("(10**12,)", "(1000000000000,)", "(1000000000,)", "(301,)", "(0,)", "(-1,)",
                  "(-300,)", "(4294967296, 4294967296)", "(0, 9223372036854775807)", "(300, 1e3)",
                  "(True,)", "300", "None", "'300'", "(18446744073709551616,)",
                  "(" + "9" * 999 + ",)",
                  "(" + "1," * 64 + ")", "(2, 150)", "[300]", "()", "(300.0,)", "(300j,)",
                  "((300,),)"):  # fmt: skip
        yield f"shape {shape[:24]}", made(header(shape)), False
    for descr in ("'|O'", "'<U1000000000'", "'<f16'", "'<M8[ns]'", "'|V1200'", "'<c8'", "'x'",
                  "[('a', '<i4')]", "[('a', '|O')]", "None", "3", "'|S4'", "'<U1'", "('<i4', (9,))",
                  "[('a', [('b', '<i4')])]", "'|b1'"):  # fmt: skip
        yield f"type {descr[:24]}", made(header("(300,)", descr)), False
    for text in ("", "{}", "[]", "{'descr': '<i4'}", "(" * 9000, "[" * 200 + "]" * 200,
                 "\0" * 64,
                 "{" * 99 + "}" * 99, "__import__('os')", "1" * 5000,
                 "-" * 5000 + "1"):  # fmt: skip
        yield f"header {text[:16]!r} {len(text)}", made(text), False
    yield "header of 2^32", made(header("(300,)"), (2, 0), 2**32 - 1), False
    yield "header of 60000", made(header("(300,)"), (1, 0), 60000), False
    for version in ((0, 0), (4, 0), (255, 255)):
        yield f"version {version}", made(header("(300,)"), version), False
    yield "zip", b"PK\3\4" + data, False
    yield "pickle", b"\x80\x04cos\nsystem\n(S'true'\ntR.", False
    yield "text", b"1 2 3", False
    yield "empty", b"", False
    yield "magic only", b"\x93NUMPY", False
    whole = made(header("(300,)"))
    for keep in (7, 8, 10, 40, len(whole) - 4):
        yield f"cut to {keep}", whole[:keep], False


@pytest.mark.filterwarnings("ignore")  # of files that NumPy leaves open where it refuses them
def test_files_of_scores_that_lie_are_refused_in_one_line(tmp_path, command):
    path, first = tmp_path / "scores.npy", None
    for name, content, fits in npy_files():
        path.write_bytes(content)
        given = "exact", "exp", "--gamma", "1", "--length", "8", "--scores", path
        code, shown, err = command(*given)
        if fits:
            first = first or shown
            assert (code, shown) == (0, first), name
        elif code:
            assert (code, shown, len(err.splitlines())) == (2, "", 1), (name, err)
            assert "not enough memory" not in err, name
        else:
            assert name == "shape (2, 150)" or name.startswith("type"), name
