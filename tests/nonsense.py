"""Kinds of nonsense for an argument, and where a kind is sensible all the same."""

import datetime
import decimal
import fractions
import importlib.util
import math
from typing import Any, NamedTuple

import jax
import numpy as np
import sympy
import xarray

# It is not among what the tests install: its kinds are tried where it is.
torch: Any = importlib.import_module("torch") if importlib.util.find_spec("torch") else None

NUMBER = {"number", "numbers"}  # one real number; real numbers of any shape, or texts of them
WHOLE = NUMBER | {"whole", "wholes"}  # the same of whole numbers
SEVERAL = {"numbers", "wholes", "vector"}


class RefusesArray:
    """As a frame of pandas with what is no number."""

    def __array__(self, dtype=None, copy=None):
        raise RuntimeError("no array")


class RefusesFloat:
    def __float__(self):
        raise RuntimeError("no float")


class RefusesLength:
    def __len__(self):
        raise RuntimeError("no length")

    def __getitem__(self, index):
        raise RuntimeError("no item")


class RefusesText:
    def __str__(self):
        raise RuntimeError("no text")

    __repr__ = __str__


class RefusesAnything:
    def __getattr__(self, name):
        raise RuntimeError("no attribute")

    def __eq__(self, other):
        raise RuntimeError("no comparison")

    __hash__ = None  # pyright: ignore[reportAssignmentType]


class OwnText(str):
    pass


class OwnFloat(float):
    pass


class OwnInt(int):
    pass


class Kind(NamedTuple):
    name: str
    make: object
    sensible: frozenset


def _kind(name, make, *sensible):
    return Kind(name, make, frozenset().union(*sensible))


def _traced():
    """A tracer as it is found after its function has ended."""
    held = []
    jax.jit(lambda x: held.append(x) or x)(1.0)
    return held[0]


structured = np.array([(1, 2.0)], dtype=[("a", int), ("b", float)])
masked = np.ma.masked_array([1.0, 2.0], mask=[True, False])
TEXT = {"text"}
KINDS = (
    _kind("None", lambda: None, {"optional"}),
    _kind("True", lambda: True, {"flag"}),
    _kind("False", lambda: False, {"flag"}),
    _kind("np.bool_", lambda: np.bool_(True), {"flag"}),
    _kind("empty text", lambda: "", TEXT),
    _kind("abc", lambda: "abc", TEXT, {"path"}),
    _kind("text with newlines", lambda: "a\nb\x1b[31m\0", TEXT),
    _kind("full-width digits", lambda: "１２", TEXT, {"path"}),
    _kind("underscored digits", lambda: "1_0", TEXT, {"path"}),
    _kind("text of a number", lambda: "2", TEXT, {"path", "numbers", "wholes", "kernel"}),
    _kind("long text", lambda: "x" * 100_000, TEXT),
    _kind("own text", lambda: OwnText("abc"), TEXT, {"path"}),
    _kind("bytes", lambda: b"2"),
    _kind("bytearray", lambda: bytearray(b"2")),
    _kind("memoryview", lambda: memoryview(b"2")),
    _kind("complex", lambda: 1 + 2j),
    _kind("np.complex128", lambda: np.complex128(1 + 2j)),
    _kind("complex array", lambda: np.array([1 + 2j, 2.0])),
    _kind("nan", lambda: math.nan, {"nans"}),
    _kind("inf", lambda: math.inf, {"infinite"}),
    _kind("-inf", lambda: -math.inf, {"nans"}),
    _kind("array with nan", lambda: np.array([1.0, math.nan]), {"nans"}),
    _kind("1e308", lambda: 1e308, NUMBER),
    _kind("5e-324", lambda: 5e-324, NUMBER),
    _kind("10**400", lambda: 10**400),
    _kind("10**30", lambda: 10**30, NUMBER),
    _kind("10**5000", lambda: 10**5000),
    _kind("-1", lambda: -1, WHOLE),
    _kind("0", lambda: 0, WHOLE, {"flag"}),
    _kind("2.5", lambda: 2.5, NUMBER),
    _kind("np.float32", lambda: np.float32(2), WHOLE),
    _kind("np.int8", lambda: np.int8(2), WHOLE),
    _kind("own float", lambda: OwnFloat(2), WHOLE),
    _kind("own int", lambda: OwnInt(2), WHOLE),
    _kind("0-d array", lambda: np.array(2.0), WHOLE),
    _kind("jax scalar", lambda: jax.numpy.array(2.0), WHOLE),
    _kind("Decimal", lambda: decimal.Decimal("2"), WHOLE),
    _kind("Decimal nan", lambda: decimal.Decimal("sNaN")),
    _kind("Fraction", lambda: fractions.Fraction(3, 2), NUMBER),
    _kind("SymPy number", lambda: sympy.Integer(2), WHOLE, {"expression", "kernel"}),
    _kind("SymPy constant", lambda: sympy.sqrt(2), NUMBER, {"expression", "kernel"}),
    _kind("SymPy expression", lambda: sympy.Symbol("s") + 1, {"expression", "kernel"}),
    _kind("SymPy symbol", lambda: sympy.Symbol("s"), {"expression", "kernel"}),
    _kind("datetime64", lambda: np.datetime64("2020-01-01")),
    _kind("datetime64 in ns", lambda: np.datetime64("2020-01-01T00", "ns")),
    _kind("timedelta64", lambda: np.timedelta64(3, "D")),
    _kind("datetime64 array", lambda: np.array(["2020-01-01"], "M8[D]")),
    _kind("date", lambda: datetime.date(2020, 1, 1)),
    _kind("object array", lambda: np.array([1, {}, None], object)),
    _kind("object array of dates", lambda: np.array([np.datetime64("2020-01-01", "ns")], object)),
    _kind("object array of complex", lambda: np.array([np.complex128(1j)], object)),
    _kind("text array", lambda: np.array(["a", "b"]), {"names of texts"}),
    _kind("bytes array", lambda: np.array([b"1", b"2"])),
    _kind("structured array", lambda: structured),
    _kind("void scalar", lambda: structured[0]),
    _kind("masked array", lambda: masked),
    _kind("masked scalar", lambda: np.ma.masked),
    _kind("bool array", lambda: np.array([True, False]), {"bools"}),
    _kind("list with a bool", lambda: [True, 2]),
    _kind("empty list", list, {"wholes", "numbers", "empty"}),
    _kind("empty array", lambda: np.empty((0, 3)), {"wholes", "numbers"}),
    _kind("ragged list", lambda: [[1, 2], [3]]),
    _kind("nested list", lambda: [[1.0, 2.0], [3.0, 4.0]], {"numbers", "wholes", "sample"}),
    _kind("3-D array", lambda: np.ones((2, 2, 2)), {"numbers", "wholes", "array"}),
    _kind("vector", lambda: np.array([1.0, 2.0]), SEVERAL),
    _kind("dict", lambda: {"a": 1}),
    _kind("set", lambda: {1, 2}),
    _kind("generator", lambda: (x for x in (1.0, 2.0)), {"any iterable"}),
    _kind("lambda", lambda: lambda *a, **k: 1, {"function"}),
    _kind("class", lambda: dict, {"function"}),
    _kind("module", lambda: math),
    _kind("slice", lambda: slice(2)),
    _kind("Ellipsis", lambda: ...),
    _kind("range", lambda: range(1, 3), SEVERAL),
    _kind("object", object),
    _kind("refuses __array__", RefusesArray),
    _kind("refuses __float__", RefusesFloat),
    _kind("refuses __len__", RefusesLength),
    _kind("refuses __str__", RefusesText),
    _kind("refuses anything", RefusesAnything),
    _kind("jax array", lambda: jax.numpy.array([1.0, 2.0]), SEVERAL),
    _kind("jax key", lambda: jax.random.key(0)),
    _kind("tracer", _traced),
    _kind("DataArray", lambda: xarray.DataArray([1.0, 2.0], dims="gamma"), SEVERAL),
    _kind("huge array", lambda: np.broadcast_to(1.0, (10**9,))),
    _kind("huge matrix", lambda: np.broadcast_to(1.0, (10**5, 10**5))),
)
if torch is not None:
    KINDS += type(KINDS)(
        [
            _kind("torch scalar", lambda: torch.tensor(2.0), WHOLE),
            _kind("torch tensor", lambda: torch.tensor([1.0, 2.0]), SEVERAL),
        ]
    )
