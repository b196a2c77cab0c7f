"""The door: what a caller gives is checked here, once, before any work.

Names, domains, shapes and what is not a number are refused in one line.
"""

from __future__ import annotations

import errno
import math
import os
import warnings
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from sparsity.calls import did_you_mean
from sparsity.errors import InputError
from sparsity.parsing import parse_number

MOST = 2**24  # dimensions of a key

Check = Callable[[float], bool]


class SupportsArray(Protocol):
    """What NumPy can make an array of: those of JAX, PyTorch, xarray and pandas."""

    def __array__(self, *arguments: Any, **options: Any) -> np.ndarray: ...


Numbers = float | Sequence[float] | Sequence[Sequence[float]] | SupportsArray  # no text


def is_jax(value: Any) -> bool:
    """Tell whether a value is an array of JAX, traced or not: only these have an `aval`."""
    return hasattr(type(value), "aval")


def is_traced(value: Any) -> bool:
    """Tell whether a value is a tracer of JAX, whose numbers exist only when the program runs."""
    if not is_jax(value):
        return False
    import jax.core  # it has been already: this is one of its arrays

    return isinstance(value, jax.core.Tracer)


def _array(argument: str, value: Any, fix: str) -> np.ndarray:
    """Return the array that NumPy makes of a value, none with masked entries."""
    if np.ma.is_masked(value):
        raise InputError(argument, "masked array", f"has masked entries: leave these out; {fix}")
    try:
        if hasattr(type(value), "detach"):  # a tensor of PyTorch
            # NumPy has no bfloat16: half precisions become float32, which holds their numbers.
            value = value.detach().cpu()
            value = value.float() if value.is_floating_point() and value.itemsize < 4 else value
        return np.asarray(value)
    except (TypeError, ValueError, RuntimeError):  # ragged, or without numbers to be had
        raise InputError(argument, f"of type {type(value).__name__}", fix) from None


def _is_real(dtype: np.dtype) -> bool:
    """Tell a type of real numbers: also of those that JAX adds to NumPy, as bfloat16."""
    added = dtype.kind == "V" and dtype.names is None and np.can_cast(dtype, np.float64)
    return dtype.kind in "iuf" or added


def _require(holds: bool, name: str, value: Any, fix: str) -> Any:
    """Return the value if it is as it must be.

    Raises:
        InputError: it is not.
    """
    if not holds:
        raise InputError(name, value, fix)
    return value


def as_float64(value: Any, argument: str, fix: str, *, texts: bool = True) -> np.ndarray:
    """Return real numbers, or texts of them, as float64; what is too large for it is refused.

    Args:
        value: a number or numbers of any shape.
        argument: its name.
        fix: what would be right.
        texts: whether texts of numbers are taken as well.

    Raises:
        InputError: something else among them.
    """
    given = _array(argument, value, fix)
    if given.dtype.kind == "U" and texts:
        parsed = [parse_number(str(text), argument, fix) for text in given.flat]
        return np.array(parsed, dtype=np.float64).reshape(given.shape)
    # Of bools, complex numbers and dates NumPy would make other numbers.
    if not _is_real(given.dtype) and given.dtype.kind != "O":
        shown = value if given.ndim == 0 else f"array of {given.dtype}"
        raise InputError(argument, shown, fix)
    try:
        return np.asarray(given, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):  # no numbers, or of hundreds of digits
        raise InputError(argument, f"of type {type(value).__name__}", fix) from None


def check_number(name: str, value: Any, fix: str, holds: Check = lambda x: True) -> float:
    """Return the one finite real number that `value` is; a whole one stays an int.

    Raises:
        InputError: anything else.
    """
    number = as_float64(value, name, fix, texts=False)
    if number.ndim or not (np.isfinite(number) and holds(float(number))):
        raise InputError(name, value if number.ndim == 0 else f"array of {number.shape}", fix)
    # Up to 2^53 float64 holds every whole number.
    whole = _array(name, value, fix).dtype.kind in "iu" and abs(number) <= 2**53
    return int(number) if whole else float(number)


def check_bound(name: str, value: Any, fix: str, holds: Check) -> float:
    """Return a number as `number` does, or infinity, which is no bound at all.

    Raises:
        InputError: anything else.
    """
    number = as_float64(value, name, fix, texts=False)
    if number.ndim == 0 and number == np.inf:
        return math.inf
    return check_number(name, value, fix, holds)


def check_budget(rel_error: Any, max_samples: Any) -> dict[str, float]:
    """Return when an estimation ends, by name: at a relative error, or after so many draws.

    Raises:
        InputError: an error that is not between 0 and 1, fewer draws than 1.
    """
    fix = "must be between 0 and 1"
    return {
        "rel_error": check_number("rel_error", rel_error, fix, lambda x: 0 < x < 1),
        "max_samples": check_bound("max_samples", max_samples, "must be >= 1", lambda x: x >= 1),
    }


def check_whole(name: str, value: Any, least: int, most: int = 2**53) -> int:
    """Return the whole number from `least` to `most` that `value` is.

    Raises:
        InputError: anything else.
    """
    fix = f"must be a whole number >= {least}, at most {'2^53' if most == 2**53 else most}"
    return int(check_number(name, value, fix, lambda x: least <= x <= most and x == int(x)))


def keep_checked(record: Any, name: str, check: Callable[..., Any], *how: Any) -> None:
    """Check a field of a frozen record, and keep what it reads as: `check(name, value, *how)`.

    A frozen dataclass takes no assignment, not even in its own `__post_init__`.
    """
    object.__setattr__(record, name, check(name, getattr(record, name), *how))


def float_type(value: Any) -> np.dtype:
    """Return float32 or float64, from NumPy's or JAX's type or by name.

    Raises:
        InputError: anything else.
    """
    try:
        dtype = np.dtype(value)
    except (TypeError, ValueError):
        raise InputError("dtype", value, "choose float32 or float64") from None
    if value is None or dtype not in (np.float32, np.float64):
        raise InputError("dtype", value, "choose float32 or float64")
    return dtype


def check_seed(value: Any) -> int:
    """Return the seed as an int from 0 to 2³²−1.

    Raises:
        InputError: anything else.
    """
    fix = "must be a whole number from 0 to 2^32 - 1"
    return int(check_number("seed", value, fix, lambda x: 0 <= x < 2**32 and x == int(x)))


def check_vector(name: str, value: Any, fix: str) -> np.ndarray:
    """Return one vector of finite numbers, [d], as float64 of its own that cannot be written to.

    Raises:
        InputError: anything else.
    """
    vector = np.array(as_float64(value, name, fix, texts=False))
    if vector.ndim != 1 or not np.all(np.isfinite(vector)):
        raise InputError(name, f"array of shape {vector.shape}", fix)
    vector.flags.writeable = False
    return vector


def check_pair(
    name: str, value: Any, fix: str, holds: Callable[[float, float], bool]
) -> tuple[float, float]:
    """Return two finite numbers.

    Raises:
        InputError: anything else, or two that do not hold.
    """
    pair = check_vector(name, value, fix).tolist()
    _require(len(pair) == 2 and holds(*pair), name, value, fix)
    return pair[0], pair[1]


def check_reals(
    name: str,
    value: Any,
    fix: str = "give real numbers",
    *,
    bools: bool = False,
    traced: bool = False,
) -> Any:
    """Return an array of real numbers in its own precision; arrays of JAX stay with JAX.

    Args:
        name: of the argument.
        value: an array, a tensor of PyTorch, or lists of numbers.
        fix: what would be right.
        bools: whether an array of bools is taken as well.
        traced: whether JAX's tracers are.

    Raises:
        InputError: anything else.
    """
    if not traced and is_traced(value):
        raise InputError(name, "traced array", f"must be known before the program runs; {fix}")
    array = value if is_jax(value) else _array(name, value, fix)
    if isinstance(array, np.ndarray) and array.dtype.kind in "iuf":
        # JAX, and what reads bits, take neither the other byte order nor the widest of NumPy.
        wide = np.dtype(np.float64) if array.dtype == np.longdouble else array.dtype
        array = array.astype(wide.newbyteorder("="), copy=False)
    known = isinstance(array.dtype, np.dtype)  # keys of JAX have another
    if not (known and (_is_real(array.dtype) or (bools and array.dtype.kind == "b"))):
        raise InputError(name, f"array of {array.dtype}, shape {array.shape}", fix)
    return array


def check_heads(names: str, queries: Any, keys: Any, fix: str, fits: bool = True) -> None:
    """Refuse queries and keys that are no [..., heads, tokens, dim] of one attention.

    Warn of keys that are likely to have their heads and tokens exchanged.

    Args:
        names: what they are called, such as "q and k".
        queries: an array or a tensor.
        keys: likewise.
        fix: what to give.
        fits: whether they have what else the caller asks of their shapes.

    Raises:
        InputError: the heads of keys do not divide those of queries, or other axes do not fit.
    """
    q, k = tuple(queries.shape), tuple(keys.shape)
    alike = min(len(q), len(k)) >= 3 and (*q[:-3], q[-1]) == (*k[:-3], k[-1])
    if not (fits and alike and all((*q, *k))):
        raise InputError(names, f"arrays of shape {q} and {k}", fix)
    if q[-3] % k[-3]:
        fix = "key heads must divide query heads"
        raise InputError(names, f"arrays of shape {q} and {k}", fix)
    if k[-2] < k[-3]:
        fix = "if they are [..., tokens, heads, dim], exchange these axes"
        warnings.warn(f"keys have {k[-2]} tokens of {k[-3]} heads: {fix}", stacklevel=5)


def check_flag(name: str, value: Any) -> bool:
    """Return True or False, from a bool of Python or NumPy, or from 1 or 0.

    Raises:
        InputError: anything else.
    """
    as_number = isinstance(value, (int, np.integer)) and value in (0, 1)
    holds = as_number or isinstance(value, np.bool_)
    return bool(_require(holds, name, value, "give True or False"))


def check_choice(name: str, value: Any, among: Collection[str]) -> str:
    """Return one of some names.

    Raises:
        InputError: anything else.
    """
    if isinstance(value, str) and value in among:
        return value
    hint = did_you_mean(value, among) if isinstance(value, str) else ""
    raise InputError(name, value, hint.rstrip() or f"choose one of {', '.join(among)}")


def check_text(name: str, value: Any, fix: str) -> str:
    """Return a text.

    Raises:
        InputError: anything else.
    """
    return _require(isinstance(value, str), name, value, fix)


def check_function(name: str, value: Any, fix: str) -> Any:
    """Return the function that `value` is.

    Raises:
        InputError: anything else.
    """
    return _require(callable(value), name, value, fix)


def check_progress(value: Any) -> Callable[[int, int], Any] | None:
    """Return the function that is called with the progress, or None.

    Raises:
        InputError: anything else.
    """
    holds = value is None or callable(value)
    return _require(holds, "progress", value, "give a function of (done, total)")


def check_executor(value: Any) -> Any:
    """Return what takes tasks by `submit`, or None.

    Raises:
        InputError: anything else.
    """
    fix = "give an executor, such as sparsity.tasks.process_pool(4)"
    return _require(value is None or hasattr(value, "submit"), "executor", value, fix)


def check_several(name: str, value: Any, fix: str) -> tuple[Any, ...]:
    """Return the members of a list, a tuple or another iterable, neither text nor numbers.

    Raises:
        InputError: anything else.
    """
    no_list = isinstance(value, (str, bytes, Mapping)) or not isinstance(value, Iterable)
    no_list = no_list or getattr(value, "ndim", 1) == 0
    return tuple(_require(not no_list, name, value, fix))


def check_positions(
    name: str, value: Any, fix: str, least: int = 0, most: int = 2**53
) -> np.ndarray:
    """Return whole numbers from `least` to `most`, at least one, [numbers].

    Raises:
        InputError: anything else.
    """
    numbers = as_float64(value, name, fix, texts=False)
    inside = (numbers >= least) & (numbers <= most) & (numbers == np.floor(numbers))
    _require(numbers.ndim == 1 and bool(numbers.size) and bool(np.all(inside)), name, value, fix)
    return numbers.astype(np.int64)


def check_instance(name: str, value: Any, kind: type[Any] | tuple[type[Any], ...], fix: str) -> Any:
    """Return a record of a class of this package, or of another.

    Raises:
        InputError: anything else.
    """
    if not isinstance(value, kind):
        raise InputError(name, f"of type {type(value).__name__}", fix)
    return value


def check_path(name: str, value: Any, fix: str) -> Path:
    """Return the path of a file or a folder, there or not, from its name.

    Raises:
        InputError: no name that a file can have.
    """
    if not isinstance(value, (str, os.PathLike)) or not os.fspath(value):
        raise InputError(name, value, fix)
    try:
        os.lstat(value)
    except ValueError:  # a zero byte, or half of a character
        raise InputError(name, value, fix) from None
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            raise InputError(name, value, f"is longer than a file's name can be; {fix}") from None
    return Path(value)
