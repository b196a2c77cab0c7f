"""Formulas at random over the grammar of typed kernels, and what asking for them must give."""

import contextlib
import functools
import random
import signal
from typing import NamedTuple

import numpy as np
from scipy import special

import sparsity
from sparsity import InputError, NoClosedForm
from sparsity.derivation import takes_seconds
from sparsity.kernels.symbols import FUNCTIONS

_MOST_SECONDS = 400.0  # of CPU, at which an answer or a refusal hangs: 8 at most, on a quiet core
_MOST_BOUND = 1e-3
_ORDINARY = ("0", "1", "2", "3", "0.5", "0.1", "pi", "-1", "10")
_EXTREME = ("1e-30", "1e30", "1e-8", "1e8", "1e3", "1e-3", "64", "-64", "700", "-1e15")
_EXPONENTS = ("2", "3", "4", "-1", "-2", "0.5", "(1/3)", "0.1", "-0.5", "64", "-64", "(63/64)")
_BETAS = (0.0, 0.0, 0.0, 0.1, -3.0, 5.0, 1e3, -1e6)
_GAMMAS = (1.0, 1.0, 1.0, 0.01, 3.0, 30.0, 1e-8, 1e4)
_CONVERGED = 1e-3  # change of S with the panels; a jump inside one leaves that
_REACH, _PANELS, _NODES = 38.0, 4000, 8  # of Gauss–Legendre, in spreads around the mean


class Asked(NamedTuple):
    """A formula and where it is asked for."""

    formula: str
    beta: float
    gamma: float


class Hang(BaseException):
    """More CPU seconds than an answer may take."""


def formula(draw: random.Random, depth: int) -> str:
    """A formula of at most `depth` nested parts."""
    if depth == 0 or draw.random() < 0.1:
        if draw.random() < 0.6:
            return "s"
        return draw.choice(_ORDINARY if draw.random() < 0.7 else _EXTREME)
    part = functools.partial(formula, draw, depth - 1)
    match draw.choice(("call", "call", "call", "sum", "product", "ratio", "power", "of", "where")):
        case "call":
            return f"{draw.choice(tuple(FUNCTIONS))}({part()})"
        case "sum":
            return f"({part()} {draw.choice('+-')} {part()})"
        case "product":
            return f"{part()}*{part()}"
        case "ratio":
            return f"({part()})/({part()})"
        case "power" if draw.random() < 0.15:
            return f"{draw.choice(('2', '0.5', '1e-3', '10'))}**({part()})"
        case "power":
            return f"({part()})**{draw.choice(_EXPONENTS)}"
        case "of":
            many = ", ".join(part() for _ in range(draw.choice((2, 2, 3))))
            return f"{draw.choice(('min', 'max'))}({many})"
        case _:
            condition = f"{part()} {draw.choice(('<', '<=', '>', '>='))} {part()}"
            return f"where({condition}, {part()}, {part()})"


def asked(seed: int) -> Asked:
    """The formula of a seed."""
    draw = random.Random(seed)
    return Asked(
        formula(draw, draw.choice((1, 2, 2, 3, 3, 4))), draw.choice(_BETAS), draw.choice(_GAMMAS)
    )


def _maximum(*parts):
    return functools.reduce(np.maximum, parts)


def _minimum(*parts):
    return functools.reduce(np.minimum, parts)


_NUMPY = {
    **{x: getattr(np, x) for x in ("exp", "log", "sqrt", "abs", "sign", "sinh", "cosh", "tanh")},
    **{x: getattr(np, x) for x in ("sin", "cos", "floor", "where", "pi")},
    "atan": np.arctan,
    "erf": special.erf,
    "erfc": special.erfc,
    "max": _maximum,
    "min": _minimum,
    "relu": lambda x: np.maximum(x, 0),
    "sigmoid": special.expit,
    "softplus": lambda x: np.logaddexp(0, x),
    "gelu": lambda x: x * special.ndtr(x),
    "silu": lambda x: x * special.expit(x),
    "elu": lambda x: np.where(x > 0, x, np.expm1(np.minimum(x, 0))),
}


@functools.cache
def _panels(count):
    x, w = np.polynomial.legendre.leggauss(_NODES)
    middles = (np.arange(count) + 0.5) * (2 * _REACH / count) - _REACH
    t = (middles[:, None] + x * _REACH / count).ravel()
    return t, np.tile(w * _REACH / count, count) * np.exp(-t * t / 2) / np.sqrt(2 * np.pi)


def plain(cell: Asked, count: int = _PANELS) -> tuple[float, float]:
    """S by Gauss–Legendre quadrature of the text itself in NumPy, and how far it has converged."""
    found = []
    for panels in (count, 2 * count + 1):
        t, w = _panels(panels)
        score = cell.beta + cell.gamma * t
        with np.errstate(all="ignore"):
            text = cell.formula
            a = np.abs(eval(text, {"__builtins__": {}}, {**_NUMPY, "s": score}) + 0 * score)
            keep = w > 0
            a, w = a[keep], w[keep]
            top = a.max()
            found.append((w @ (a / top)) / np.sqrt(w @ (a / top) ** 2))
    return float(found[1]), float(abs(found[1] / found[0] - 1))


@contextlib.contextmanager
def _limited(seconds: float):
    """Ends what takes longer, in seconds of CPU."""

    def stop(*_):
        raise Hang

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def outcome(call, seconds: float = _MOST_SECONDS):
    """What a call gives and how: "found", "refused", or what went wrong."""
    try:
        with _limited(seconds):
            found = call()
    except (InputError, NoClosedForm) as error:
        lines = str(error).splitlines()
        return ("refused" if len(lines) == 1 else "several lines"), str(error)
    except Hang:
        return "hang", None
    except Exception as error:  # noqa: BLE001 - any other one is what is looked for
        return f"raised {type(error).__name__}: {error}", None
    return "found", found


def _resolved(found) -> bool:
    return bool(np.isfinite(found.value) and 0 <= found.error_bound < _MOST_BOUND)


def wrong(cell: Asked, found) -> str | None:
    """What is wrong with an evaluated S, held against plain quadrature where that converges."""
    if not _resolved(found):
        return f"value {found.value}, bound {found.error_bound}"
    for count in (_PANELS, 16 * _PANELS):  # anew and finer before it counts
        reference, off = plain(cell, count)
        if not off < _CONVERGED:
            return None
        if abs(found.value / reference - 1) <= 10 * off + found.error_bound + 1e-9:
            return "agrees"
    return f"value {found.value}, plain quadrature {reference} ± {off:.0e}"


def examine(cell: Asked, derive: bool = True) -> list[str]:
    """Outcomes of the calls: `found`, `refused`, `agrees`, or else a line of what is wrong."""
    given = {"beta": cell.beta, "gamma": cell.gamma}
    how, found = outcome(lambda: sparsity.evaluate(cell.formula, **given))
    said = [f"evaluate {how}"]
    if how == "found" and (more := wrong(cell, found)) is not None:
        said.append(f"evaluate {more}")
    how, found = outcome(lambda: sparsity.exact(cell.formula, length=16, **given))
    said.append(f"exact {how}")
    if (
        how == "found"
        and found is not None
        and not (_resolved(found) and 1 - 1e-3 <= found.value <= 16 * (1 + 1e-3))
    ):
        said.append(f"exact value {found.value}, bound {found.error_bound}")
    named, kernel = outcome(lambda: sparsity.kernels.named(cell.formula))
    if derive and named == "found" and takes_seconds(kernel):
        how, found = outcome(lambda: sparsity.derive(kernel))
        said.append(f"derive {how}")
    return said


FINE = {f"{x} {y}" for x in ("evaluate", "exact", "derive") for y in ("found", "refused", "agrees")}
